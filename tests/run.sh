#!/usr/bin/env bash
# Everything from nothing: installs packages, builds release, checks the sources, runs every lane of
# tests. The last line is "N passed, N failed"; the exit code is 0 only if nothing failed.
#
#   tests/run.sh                 all of it
#   tests/run.sh --lane NAME     one lane, with what it needs (may be repeated)
#   tests/run.sh --list          the lanes with their time budgets
#   tests/run.sh --build DIR     another build tree than build/release
set -uo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="$root/build/release"
jobs="$(nproc)"

# lane, budget in seconds on two cores, fewest tests, how it runs:
#   step       a function below          ctest:N  the tests with that label, N at a time
#   scripts    tests/<lane>/*.py: those that use a device ("# Measures") one by one, the others next to
#              them; then one by one those that judge times ("# Runs alone")
LANES="
packages      180 0 step
build        1500 0 step
lint           90 4 step
unit          300 100 ctest:$jobs
golden         60 1 ctest:$jobs
differential  180 1 ctest:$jobs
conformance   120 0 ctest:1
sim           180 2 ctest:$jobs
fault         480 1 ctest:2
e2e           960 5 scripts
"
WHOLE_BUDGET_S=2700
# For one script, many times what it takes: a machine may be busy, a noisy device pauses for minutes.
SCRIPT_LIMIT_S=1200

usage() {
  sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

list_lanes() {
  awk 'NF {printf "%-14s budget %5d s\n", $1, $2}' <<<"$LANES"
}

wanted=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --lane)
      if ! awk 'NF {print $1}' <<<"$LANES" | grep -qxF -- "${2-}"; then
        echo "run.sh: no lane '${2-}'; there are:" >&2
        list_lanes >&2
        exit 2
      fi
      wanted+=("$2")
      shift 2
      ;;
    --build)
      mkdir -p "${2?run.sh: --build wants a folder}" && build="$(cd "$2" && pwd)"
      shift 2
      ;;
    --list)
      list_lanes
      exit 0
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "run.sh: unknown option $1 (try --help)" >&2
      exit 2
      ;;
  esac
done

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# Each lane leaves its counts here; a lane that cannot even count has failed once.
passed=0
failed=0
skipped=0

# Continuous integration is a developer: warnings are errors, and optional parts are compiled, too.
packages=(--test)
options=(-DTILEWRIGHT_BUILD_TESTS=ON)
if [[ "${CI:-}" == true ]]; then
  packages+=(--dev --bench)
  options+=(-DTILEWRIGHT_WERROR=ON -DTILEWRIGHT_BUILD_BENCH=ON)
fi

run_packages() {
  "$root/deploy/install_packages.sh" "${packages[@]}" || failed=1
  [[ "${CI:-}" == true ]] || return 0
  # A part of its own, which nothing else needs: without its library the rest is tested all the same.
  if "$root/deploy/install_packages.sh" --images; then
    options+=(-DTILEWRIGHT_BUILD_IMAGES=ON)
  else
    echo "[SKIP] images: the library that decodes them is not to be had here"
  fi
}

run_build() {
  # The test program of a removed source must not be found by ctest, so configure every time.
  if ! cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    "${options[@]}" >"$scratch/configure" 2>&1; then
    cat "$scratch/configure"
    failed=1
    return
  fi
  echo "options and tools:"
  sed -n 's/^-- \(TILEWRIGHT_\|tool \)/  \1/p' "$scratch/configure"
  cmake --build "$build" -j "$jobs" || failed=1
}

run_lint() {
  local check
  for check in "$root"/tests/lint/check_*.py; do
    echo "== $(basename "$check")"
    if /usr/bin/python3 "$check"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  done
}

run_ctest() {
  local lane="$1" parallel="$2"
  local junit="$scratch/$lane.xml"
  # The output of passed tests is wanted too: it has the counts and the skipped cases.
  ctest --test-dir "$build" -L "^$lane\$" -j "$parallel" --no-tests=ignore --output-junit "$junit" \
    --output-on-failure --test-output-size-passed 10000000 --test-output-size-failed 10000000 ||
    true
  if [[ ! -s "$junit" ]]; then
    echo "run.sh: ctest gave no results for $lane"
    failed=1
    return
  fi
  read -r passed failed skipped < <(/usr/bin/python3 "$root/tests/lint/count_results.py" "$junit" \
    "$scratch/skipped" "$scratch/failures")
}

# One script: its output as a whole when it has ended, its exit code in a file.
run_script() {
  local lane="$1" script="$2" name begin=$SECONDS code
  name="$(basename "$script" .py)"
  TILEWRIGHT_BUILD_DIR="$build" timeout -k 30 "$SCRIPT_LIMIT_S" /usr/bin/python3 "$script" \
    >"$scratch/$name.out" 2>&1
  code=$?
  {
    flock 9
    echo "== $name.py"
    cat "$scratch/$name.out"
    ((code == 0 || code == 77)) || echo "$name.py: exit code $code"
    ((code != 124 && code != 137)) || echo "$name.py: stopped after $SCRIPT_LIMIT_S s"
    printf '%6d s  %s\n' $((SECONDS - begin)) "$name.py" >>"$scratch/$lane.times"
    echo "$code $name.py" >>"$scratch/$lane.codes"
  } 9>"$scratch/output.lock"
}

run_scripts_in_turn() {
  local lane="$1" script
  for script in "${@:2}"; do run_script "$lane" "$script"; done
}

run_scripts() {
  local lane="$1" script code name free=() measuring=() alone=()
  : >"$scratch/$lane.codes"
  for script in "$root/tests/$lane"/*.py; do
    case "$(grep -m 1 -oE '^# (Runs alone|Measures)' "$script")" in
      "# Runs alone") alone+=("$script") ;;
      "# Measures") measuring+=("$script") ;;
      *) free+=("$script") ;;
    esac
  done
  run_scripts_in_turn "$lane" "${free[@]}" &
  run_scripts_in_turn "$lane" "${measuring[@]}"
  wait
  run_scripts_in_turn "$lane" "${alone[@]}"
  while read -r code name; do
    case "$code" in
      0) passed=$((passed + 1)) ;;
      77)
        skipped=$((skipped + 1))
        echo "$lane: $name" >>"$scratch/skipped"
        ;;
      *)
        failed=$((failed + 1))
        { echo "== $name" && tail -40 "$scratch/${name%.py}.out"; } >>"$scratch/failures"
        ;;
    esac
  done <"$scratch/$lane.codes"
}

total_passed=0
total_failed=0
started=$SECONDS
: >"$scratch/table"
: >"$scratch/skipped"
: >"$scratch/failures"

run_lane() {
  local lane="$1" budget="$2" least="$3" how="$4"
  local begin=$SECONDS note=""
  passed=0
  failed=0
  skipped=0
  echo
  echo "=== $lane"
  case "$how" in
    step) "run_$lane" ;;
    ctest:*) run_ctest "$lane" "${how#ctest:}" ;;
    scripts) run_scripts "$lane" ;;
  esac
  if ((passed + failed + skipped < least)); then
    note="expected at least $least tests"
    failed=$((failed + 1))
  fi
  local seconds=$((SECONDS - begin))
  if ((seconds > budget)); then note="$note over its budget"; fi
  printf '%-14s %6d s of %5d s  %5d passed %4d failed %4d skipped %s\n' \
    "$lane" "$seconds" "$budget" "$passed" "$failed" "$skipped" "$note" >>"$scratch/table"
  total_passed=$((total_passed + passed))
  total_failed=$((total_failed + failed))
  lane_failed=$failed
}

is_wanted() {
  local lane="$1" name
  [[ ${#wanted[@]} -eq 0 ]] && return 0
  for name in "${wanted[@]}"; do
    [[ "$name" == "$lane" ]] && return 0
    # Every lane but lint runs what the first two made.
    [[ ("$lane" == packages || "$lane" == build) && "$name" != lint && "$name" != packages ]] &&
      return 0
  done
  return 1
}

while read -r lane budget least how; do
  [[ -n "$lane" ]] || continue
  is_wanted "$lane" || continue
  run_lane "$lane" "$budget" "$least" "$how" </dev/null
  if [[ ("$lane" == packages || "$lane" == build) && $lane_failed -gt 0 ]]; then
    echo "run.sh: $lane failed, nothing to test"
    break
  fi
done <<<"$LANES"

echo
if [[ -s "$scratch/failures" ]]; then
  echo "what failed:"
  cut -c -1000 "$scratch/failures" | sed 's/^/  /'
fi
if [[ -s "$scratch/skipped" ]]; then
  echo "skipped:"
  sed 's/^/  [SKIP] /' "$scratch/skipped"
fi
echo "time by lane:"
sed 's/^/  /' "$scratch/table"
whole=$((SECONDS - started))
for times in "$scratch"/*.times; do
  [[ -e "$times" ]] || continue
  echo "slowest scripts of $(basename "$times" .times):"
  sort -rn "$times" | head -8
done
printf '  %-14s %6d s of %5d s\n' whole "$whole" "$WHOLE_BUDGET_S"
# Once more, where a log that is cut in the middle still has it.
sed -n 's/^== /failed: /p' "$scratch/failures" 2>/dev/null
echo "$total_passed passed, $total_failed failed"
[[ $total_failed -eq 0 ]]
