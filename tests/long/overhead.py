#!/usr/bin/env python3
"""What a trial costs beside the kernel's own time on a live agent: artifact ready to record committed, one trial
at a time, all durable (tests/fault/trial_overhead_test.cc). Compares the median with the published bar, notes how
long this disk takes for one fsync (a trial waits for five), and writes tests/results/overhead.json.
With --older BUILD_DIR: also pairs of that build and this one, in turns.
"""

import argparse
import datetime
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from lane import ROOT, commit, paired
from seeded_lane import add_counts

BAR_MS = 3


def fsync_ms(folder):
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        times = []
        for _ in range(100):
            file.write(b"x" * 300)
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            times.append(1e3 * (time.perf_counter() - start))
        return round(statistics.median(times), 3)


def one_run(args, binary, folder):
    env = dict(os.environ, TILEWRIGHT_ROUNDS=str(args.trials), TMPDIR=folder)
    done = subprocess.run([*shlex.split(args.wrap), str(binary)], env=env, capture_output=True, text=True, errors="replace")
    counts = {}
    if not add_counts(counts, done.stdout) or done.returncode != 0:
        sys.exit(f"{binary}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return {"folder": folder, "fsync_p50_ms": fsync_ms(folder), **counts}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--folder", action="append", help="for all state; repeated: one run in each; default: the "
                        "folder for temporary files")
    parser.add_argument("--wrap", default="", metavar="COMMAND", help="runs it, on machines that are shared")
    parser.add_argument("--machine", default="", help="a line about it, for the results")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "overhead.json")
    parser.add_argument("--older", type=pathlib.Path, help="another build, compared in turns in the first folder")
    parser.add_argument("--rounds", type=int, default=9, help="pairs with --older")
    args = parser.parse_args()
    binary = args.build_dir.resolve() / "bin" / "trial_overhead_test"
    folders = args.folder or [tempfile.gettempdir()]
    report = {"lane": "overhead", "commit": commit(),
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "machine": args.machine or f"{os.cpu_count()} cores", "bar_ms": BAR_MS,
              "runs": [one_run(args, binary, folder) for folder in folders]}
    if args.older:
        older = args.older.resolve() / "bin" / "trial_overhead_test"
        report["against_older"] = {"commit": commit(folder=args.older), "figure": "overhead_p50_ms", "folder": folders[0],
                                   **paired(lambda program: one_run(args, program, folders[0])["overhead_p50_ms"],
                                            older, binary, args.rounds)}
    report["bar_met"] = all(run["overhead_p50_ms"] < BAR_MS for run in report["runs"])
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    return 0 if report["bar_met"] else 1


if __name__ == "__main__":
    sys.exit(main())
