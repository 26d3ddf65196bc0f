"""The lanes that repeat one randomised GoogleTest program with many seeds: in chunks, each a process
of its own, with everything saved after each, so that a lane can be stopped at any time and gone on
with later (--resume). The program prints "counts: name=number ..." when it is done; numbers are added up, those
named slowest_* keep their largest."""

import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

from lane import commit

COUNTS = re.compile(r"^counts: (.*)$", re.M)


def arguments(parser, lane, rounds, chunk, first_seed, root):
    parser.add_argument("--build-dir", type=pathlib.Path, default=root / "build" / "release")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--chunk", type=int, default=chunk, help="rounds per process")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=first_seed)
    parser.add_argument("--wrap", default="", metavar="COMMAND", help="runs each chunk, on machines that are shared")
    parser.add_argument("--resume", action="store_true", help="go on with what the results file holds")
    parser.add_argument("--output", type=pathlib.Path, default=root / "tests" / "results" / f"{lane}.json")


def add_counts(totals, output):
    """Adds the counts that a program printed; False when it printed none."""
    found = COUNTS.findall(output)
    for pair in " ".join(found).split():
        name, value = pair.split("=")
        number = float(value) if "." in value else int(value)
        old = totals.get(name, 0)
        totals[name] = max(old, number) if name.startswith("slowest") else round(old + number, 1)
    return bool(found)


def run_chunk(binary, seed, rounds, totals, wrap):
    """Nothing, or what went wrong."""
    env = dict(os.environ, TILEWRIGHT_SEED=str(seed), TILEWRIGHT_ROUNDS=str(rounds))
    done = subprocess.run([*shlex.split(wrap), str(binary)], env=env, capture_output=True, text=True, errors="replace")
    if add_counts(totals, done.stdout) and done.returncode == 0:
        return None
    return {"replay": f"TILEWRIGHT_SEED={seed} TILEWRIGHT_ROUNDS={rounds} {binary.name}",
            "output": (done.stdout + done.stderr)[-12000:]}


def save(path, report):
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(report, indent=1) + "\n")
    fresh.replace(path)


def run(args, lane, *programs, beside=None):
    """Runs the lane to its end and returns main's exit code: in each chunk every program. `beside(chunk, totals)` is called
    after each chunk; what it returns, if anything, is a failure."""
    binaries = [args.build_dir.resolve() / "bin" / program for program in programs]
    for binary in binaries:
        if not binary.exists():
            sys.exit(f"{binary} is not there: build it first")
    report = {"lane": lane, "commits": [], "first_seed": args.seed, "rounds": 0, "chunks": 0, "seconds": 0,
              "counts": {}, "failures": []}
    if args.resume and args.output.exists():
        report = json.loads(args.output.read_text())
    report["command"] = " ".join([f"tests/long/{lane}.py", *sys.argv[1:]])
    built_from = commit()
    if built_from not in report["commits"]:
        report["commits"].append(built_from)
    begin = time.monotonic()
    while report["rounds"] < args.rounds and time.monotonic() - begin < args.minutes * 60:
        start = time.monotonic()
        rounds = min(args.chunk, args.rounds - report["rounds"])
        seed = report["first_seed"] + report["chunks"]
        found = [run_chunk(binary, seed, rounds, report["counts"], args.wrap) for binary in binaries]
        report["chunks"] += 1
        report["rounds"] += rounds
        found += [beside(report["chunks"], report["counts"]) if beside else None]
        report["failures"] += [f for f in found if f]
        report["seconds"] = round(report["seconds"] + time.monotonic() - start, 1)
        report["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        save(args.output, report)
        print(f"{report['rounds']} rounds, {len(report['failures'])} failures, {report['counts']}", flush=True)
    return 1 if report["failures"] or report["rounds"] == 0 else 0
