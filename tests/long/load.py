#!/usr/bin/env python3
"""The load lane: a real tracker with mutual TLS and tokens, every commit durable, under 1,000 agents
(each its own connection, certificate and the real protocol) and 500 work items a second, client and
server on this machine (tests/bench/fleet_load.cc); then a kill -9 under that load. Compares with the
published bars and writes tests/results/load.json. Wants the machine for itself: two minutes.
With --older BUILD_DIR: also pairs of that build and this one, in turns.
"""

import argparse
import datetime
import json
import os
import pathlib
import shlex
import subprocess
import sys

from lane import ROOT, commit, paired

# fleet.md's R5, R7, R8: of 1,000 agents and 500 items/s, and of 10,000 and 1,000/s (needs `ulimit -n 20000`).
BARS = {"dispatch.p99_ms": 25, "kb_per_agent": 150, "restart.all_agents_s": 10}
BARS_OF_10000 = {"dispatch.p99_ms": 100, "kb_per_agent": 150, "restart.all_agents_s": 90}
NOTHING = ("refused", "ended_not_done", "ended_twice", "results_twice")


def at(report, path):
    for name in path.split("."):
        report = report[name]
    return report


def bars(agents):
    return BARS if agents <= 1000 else BARS_OF_10000


def failures(report):
    """What is wrong with a run, in words."""
    found = [f"{path} is {at(report, path):.1f}, the bar is {bar}" for path, bar in bars(report["agents"]).items()
             if not at(report, path) <= bar]
    work = report["work"]
    found += [f"work.{name} is {work[name]}" for name in NOTHING if work[name] != 0]
    if not work["all_ended"] or work["ended"] != work["submitted"]:
        found.append(f"{work['submitted']} work items, {work['ended']} ended")
    rate = report["dispatch"]["results_per_s"]
    if rate < 0.97 * report["items_per_s"]:
        found.append(f"{rate:.0f} results/s of {report['items_per_s']:.0f}")
    return found


def one_run(args, build):
    command = [*shlex.split(args.wrap), str(build.resolve() / "bin" / "fleet_load"), str(args.agents), str(args.rate),
               str(args.seconds), str(args.measure_ms), *([args.state_dir] if args.state_dir else [])]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-4000:]}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=500, help="work items a second")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--measure-ms", type=int, default=500, help="what each item takes on its device")
    parser.add_argument("--state-dir", default="", help="of the tracker, removed first; default: a temporary folder")
    parser.add_argument("--wrap", default="", metavar="COMMAND", help="runs it, on machines that are shared")
    parser.add_argument("--machine", default="", help="a line about it, for the results")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "load.json")
    parser.add_argument("--older", type=pathlib.Path, help="another build, compared in turns")
    parser.add_argument("--rounds", type=int, default=4, help="pairs with --older")
    args = parser.parse_args()
    report = one_run(args, args.build_dir)
    report = {"lane": "load", "commit": commit(),
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "machine": args.machine or f"{os.cpu_count()} cores", "bars": bars(args.agents), **report,
              "failures": failures(report)}
    if args.older:
        report["against_older"] = {
            "commit": commit(folder=args.older), "figure": "dispatch.p99_ms",
            **paired(lambda build: one_run(args, build)["dispatch"]["p99_ms"], args.older, args.build_dir, args.rounds)}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
