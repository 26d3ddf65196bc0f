#!/usr/bin/env python3
"""The long lane of sudden death: 10,000 kill -9 and SIGSTOP of real tracker and agent processes
(tests/fault/kill_test.cc, each chunk with a seed of its own), and after every --tuner-every chunks some
kills of the tuner too (tests/e2e/kill9.py: tracker, tuner and agent in the middle of a job). Nothing
lost, nothing twice, checked per measurement id. Writes tests/results/kills.json.
"""

import argparse
import os
import subprocess
import sys

from lane import ROOT
import seeded_lane

CHUNK = 250
KILLS_PER_JOB = 5


def kill_tuner(args, chunk, totals):
    if args.tuner_every <= 0 or chunk % args.tuner_every != 0:
        return None
    env = dict(os.environ, TILEWRIGHT_BUILD_DIR=str(args.build_dir.resolve()))
    command = [str(ROOT / "tests" / "e2e" / "kill9.py"), "--rounds", str(args.tuner_rounds), "--seed",
               str(args.seed + chunk)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace")
    for victim in ("tuner", "tracker", "agent"):
        kills = done.stdout.count(f"  killed {victim} ")
        totals[f"job_{victim}_kills"] = totals.get(f"job_{victim}_kills", 0) + kills
    if done.returncode == 0:
        return None
    return {"replay": " ".join(command), "output": (done.stdout + done.stderr)[-12000:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    seeded_lane.arguments(parser, "kills", 10_000, CHUNK, 1000, ROOT)
    parser.add_argument("--tuner-every", type=int, default=4, help="chunks; 0 = never")
    parser.add_argument("--tuner-rounds", type=int, default=2 * KILLS_PER_JOB)
    args = parser.parse_args()
    return seeded_lane.run(args, "kills", "kill_test", beside=lambda chunk, totals: kill_tuner(args, chunk, totals))


if __name__ == "__main__":
    sys.exit(main())
