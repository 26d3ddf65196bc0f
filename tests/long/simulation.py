#!/usr/bin/env python3
"""The long lane of the simulated fleet: many seeds of fleet_sim_test, on `--jobs` processes, until
`--seeds` are done, the time is up, or one fails. Writes counts and the failing seed to
tests/results/simulation.json; exit code 1 after a failure.
Promise R18 of tests/README.md.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from lane import ROOT, commit

CHUNK = 250
FIRST_SEED = 1_000_000  # beyond those of the CI lane
SUMMARY = re.compile(r"^\d+ fleets: (.*)$", re.M)
REPLAY = re.compile(r"replay: (TILEWRIGHT_SEED=\d+)")


def run_chunk(binary, seed, rounds):
    env = dict(os.environ, TILEWRIGHT_SEED=str(seed), TILEWRIGHT_ROUNDS=str(rounds))
    done = subprocess.run([binary, "--gtest_filter=*NothingIsLostOrStuck*"], env=env,
                          capture_output=True, text=True, errors="replace")
    summary = SUMMARY.search(done.stdout)
    row = {"seed": seed, "seeds": rounds, "counts": {}}
    if summary is not None:
        row["counts"] = {k: int(v) for k, v in (part.split("=") for part in summary[1].split())}
    if done.returncode != 0 or summary is None:
        replay = REPLAY.search(done.stdout)
        row["failure"] = (done.stdout + done.stderr)[-8000:]
        row["replay"] = replay[1] if replay else f"TILEWRIGHT_SEED={seed}"
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--output", type=pathlib.Path,
                        default=ROOT / "tests" / "results" / "simulation.json")
    args = parser.parse_args()
    binary = args.build_dir.resolve() / "bin" / "fleet_sim_test"
    begin = time.monotonic()
    starts = list(range(args.seed, args.seed + args.seeds, CHUNK))
    totals, failures, seeds = {}, [], 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        def one(seed):
            if failures or time.monotonic() - begin > args.minutes * 60:
                return None
            return run_chunk(binary, seed, min(CHUNK, args.seed + args.seeds - seed))
        for row in pool.map(one, starts):
            if row is None:
                continue
            if "failure" in row:
                failures.append({"replay": row["replay"], "output": row["failure"]})
                print(row["failure"], flush=True)
                continue
            seeds += row["seeds"]
            for name, count in row["counts"].items():
                most = name == "slowest_end_s"
                totals[name] = max(totals.get(name, 0), count) if most else totals.get(name, 0) + count
    result = {"lane": "simulation", "commit": commit(),
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
              "command": " ".join(["tests/long/simulation.py", *sys.argv[1:]]), "first_seed": args.seed,
              "seeds": seeds, "seconds": round(time.monotonic() - begin), "counts": totals,
              "failures": failures}
    args.output.parent.mkdir(exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{seeds} seeds, {len(failures)} failures, {totals}")
    return 1 if failures or seeds == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
