#!/usr/bin/env python3
"""The long lane of the differential tests: many pairs of a random program and a random schedule.

Runs compiled_schedule_test (compiled code against the interpreter) and, for a share of the pairs,
random_schedule_test (symbolic sizes, 16-bit floats, races) in chunks with seeds of their own, on
`--jobs` processes, until `--pairs` pairs are done, the time is up, or one fails (`--keep-going`: goes
on with the other chunks). A chunk takes seconds; `--wrap` names a command that runs each one, for
machines that have to be shared. Writes what was run and what came of it to
tests/results/differential.json; prints a failing pair as the test shrunk it.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import threading
import time

from lane import ROOT, commit

CHUNK = 500  # pairs per process: a failure loses little, the start costs nothing
# The fixed seeds of the CI lane are small: these do not meet them.
FIRST_SEED = 10_000_000
SUMMARY = re.compile(r"^(\d+) pairs, (\d+) steps, (\d+) cut off$", re.M)
PRIMITIVE = re.compile(r"^  (\w+) +(\d+) applied, (\d+) refused$", re.M)


def run_chunk(command, seed, deadline):
    env = dict(os.environ, TILEWRIGHT_SEED=str(seed), TILEWRIGHT_ROUNDS=str(CHUNK))
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace",
                              timeout=max(60, deadline - time.monotonic() + 300))
    except subprocess.TimeoutExpired as late:
        return {"seed": seed, "failure": f"no answer in {late.timeout:.0f} s"}
    summary = SUMMARY.search(done.stdout)
    if done.returncode != 0 or summary is None:
        return {"seed": seed, "failure": (done.stdout + done.stderr)[-20000:]}
    return {"seed": seed, "pairs": int(summary[1]), "steps": int(summary[2]),
            "cut_off": int(summary[3]),
            "primitives": {m[1]: [int(m[2]), int(m[3])] for m in PRIMITIVE.finditer(done.stdout)}}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "dev")
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--interpreted-share", type=float, default=0.2)
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--wrap", default="", metavar="COMMAND")
    parser.add_argument("--output", type=pathlib.Path,
                        default=ROOT / "tests" / "results" / "differential.json")
    args = parser.parse_args()
    binaries = {name: args.build_dir / "bin" / name
                for name in ("compiled_schedule_test", "random_schedule_test")}
    for path in binaries.values():
        if not path.exists():
            sys.exit(f"{path} is not there: build it first")

    start, built_from = time.monotonic(), commit()
    deadline = start + args.minutes * 60
    chunks = max(1, -(-args.pairs // CHUNK))
    stop = threading.Event()
    totals = {name: {"pairs": 0, "steps": 0, "cut_off": 0} for name in binaries}
    primitives, failures = {}, []

    def work(i):
        if stop.is_set() or time.monotonic() > deadline:
            return None
        every = round(1 / args.interpreted_share) if args.interpreted_share > 0 else 0
        name = "random_schedule_test" if every and i % every == every - 1 else "compiled_schedule_test"
        return name, run_chunk(
            [*shlex.split(args.wrap), str(binaries[name])], args.seed + i * CHUNK, deadline)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for answer in pool.map(work, range(chunks)):
            if answer is None:
                continue
            name, result = answer
            if "failure" in result:
                failures.append({"test": name, **result})
                if not args.keep_going:
                    stop.set()
                continue
            for key in totals[name]:
                totals[name][key] += result[key]
            for primitive, (applied, refused) in result["primitives"].items():
                row = primitives.setdefault(primitive, {"applied": 0, "refused": 0})
                row["applied"] += applied
                row["refused"] += refused

    pairs = sum(t["pairs"] for t in totals.values())
    never = sorted(p for p, row in primitives.items() if row["applied"] == 0)
    report = {
        "lane": "differential", "commit": built_from,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join([pathlib.Path(sys.argv[0]).name] + sys.argv[1:]),
        "first_seed": args.seed, "pairs": pairs, "tests": totals, "primitives": primitives,
        "never_applied": never, "failures": failures,
        "seconds": round(time.monotonic() - start, 1), "processors": os.cpu_count(),
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(f"{pairs} pairs in {report['seconds']:.0f} s, {len(failures)} failures -> {args.output}")
    for failure in failures:
        print(f"{failure['test']} seed {failure['seed']}\n{failure['failure']}", file=sys.stderr)
    if never:
        print("never applied: " + " ".join(never), file=sys.stderr)
    return 1 if failures or never else 0


if __name__ == "__main__":
    sys.exit(main())
