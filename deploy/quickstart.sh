#!/usr/bin/env bash
# README command one: on a fresh Debian 12 machine, from nothing to a tuned model in minutes.
# Installs packages, builds what is needed, starts tracker, tuner and agent as separate daemons on
# loopback, tunes DQN, fetches the module through the modules API, runs it, checks its output against
# an independent evaluator, and stops what it started.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: deploy/quickstart.sh [--trials N] [--threads N] [--build DIR] [--state DIR] [--keep] [--no-install]

  --trials N    measured trials in all (default 120)
  --threads N   threads of the target (default: the cores of this machine)
  --build DIR   build tree (default build/release)
  --state DIR   where the daemons keep their state (default: a fresh folder under the build tree)
  --keep        leave the state folder (logs, databases, module) for looking at
  --no-install  skip deploy/install_packages.sh

example: ./deploy/quickstart.sh --trials 60 --keep
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
state= trials=120 threads=$(nproc) keep=no install=yes
while [ $# -gt 0 ]; do
  case $1 in
    --trials) trials=$2; shift 2 ;;
    --threads) threads=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --state) state=$2; shift 2 ;;
    --keep) keep=yes; shift ;;
    --no-install) install=no; shift ;;
    -h|--help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

started=$SECONDS
step() { printf '\n==> [%d:%02d] %s\n' $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60)) "$*"; }

pids=()
finish() {
  status=$?
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  if [ "$status" -ne 0 ]; then
    echo "quickstart failed (exit $status); logs are kept in ${state:-nowhere}" >&2
    if [ -n "$state" ]; then tail -n 5 "$state"/*.log >&2 2>/dev/null || true; fi
  elif [ "$keep" = no ] && [ -n "$state" ]; then
    rm -rf "$state"
  fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

if [ "$install" = yes ]; then
  step "packages"
  "$root/deploy/install_packages.sh"
fi
python=/usr/bin/python3

step "build (release, only what is needed) in $build"
mkdir -p "$build"
# A tree that was configured before keeps its options.
if [ ! -f "$build/build.ninja" ]; then
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTILEWRIGHT_BUILD_TESTS=OFF \
    >"$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
  sed -n 's/^-- \(TILEWRIGHT_\|tool \)/  \1/p' "$build/configure.log"
fi
ninja -C "$build" -j "$(nproc)" tilewright tilewright-tracker tilewright-tuner tilewright-agent tilewright-worker \
  tilewright-builder tilewright_runtime_shared
bin=$build/bin

if [ -z "$state" ]; then
  mkdir -p "$build/quickstart"
  state=$(mktemp -d "$build/quickstart/run.XXXXXX")
else
  mkdir -p "$state"
fi

step "model: DQN with seeded weights, expected output by the NumPy evaluator"
$python "$root/tests/models/make_models.py" "$state/models" dqn
model=$state/models/dqn
$python "$root/tests/models/numpy_eval.py" "$model/model.onnx" "$model/test_data_set_0/input_0.pb" \
  -o "$model/expected"

step "daemons on loopback: tracker, tuner, agent"
start() {  # start NAME ARGS...: waits until the daemon has written its port file
  local name=$1
  shift
  "$bin/tilewright-$name" --state-dir "$state/$name" "$@" 2>"$state/$name.log" &
  pids+=($!)
}
wait_port() {  # wait_port NAME
  for _ in $(seq 300); do
    if [ -s "$state/$1.port" ]; then cat "$state/$1.port"; return; fi
    sleep 0.1
  done
  echo "tilewright-$1 did not become ready; see $state/$1.log" >&2
  return 1
}
start tracker --listen 127.0.0.1:0 --port-file "$state/tracker.port"
tracker=$(wait_port tracker)
start tuner --listen 127.0.0.1:0 --port-file "$state/tuner.port" --tracker "$tracker"
# The candidates are this machine's own; a container may have no namespaces for them.
start agent --tracker "$tracker" --device cpu --allow-weak-sandbox
tuner=$(wait_port tuner)
echo "tracker $tracker, tuner $tuner"

step "tune: $trials trials for native,threads=$threads"
"$bin/tilewright" tune "$model/model.onnx" --target "native,threads=$threads" --trials "$trials" \
  --server "$tuner" --seed 1 -o "$state/tuned.tw"
"$bin/tilewright" devices list --server "$tuner"

step "fetch the module through the modules API and run it"
"$bin/tilewright" modules list --server "$tuner"
name=$("$bin/tilewright" modules list --server "$tuner" -o json |
  $python -c 'import json,sys; print(json.load(sys.stdin)[0]["name"])')
"$bin/tilewright" modules fetch "$name" --server "$tuner" -o "$state/fetched.tw"
"$bin/tilewright" compile "$model/model.onnx" --target "native,threads=$threads" -o "$state/default.tw" >/dev/null
run() {
  "$bin/tilewright" run "$1" --input "input=$model/test_data_set_0/input_0.pb" \
    --expect "output=$model/expected/output_0.pb" --rtol 1e-4 --atol 1e-4 --repeat 200 --output-dir "$2"
}
echo "default schedules:"
run "$state/default.tw" "$state/out-default"
echo "tuned schedules:"
run "$state/fetched.tw" "$state/out-tuned"

step "check the output against the independent evaluator"
$python "$root/tests/models/compare_outputs.py" "$state/out-default/output_0.pb" "$model/expected/output_0.pb"
$python "$root/tests/models/compare_outputs.py" "$state/out-tuned/output_0.pb" "$model/expected/output_0.pb"

step "records in the log"
"$bin/tilewright" log stats --server "$tuner"
step "done; stopping the daemons. Next: deploy/docs/engineer.md, ci_author.md, operator.md"
