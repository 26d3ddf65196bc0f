#!/usr/bin/env python3
"""The RTL of the accelerator in Verilator against the simulators (../differential/vta_rtl_test.cc): builds it in a tree of
its own, runs it with many seeds, and measures how fast it is simulated. Writes
tests/results/vta_rtl.json; exit code 1 after a difference. Wants `deploy/install_packages.sh --test --rtl`.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from lane import ROOT, commit
from seeded_lane import add_counts

SPEED = re.compile(r"^speed: (\w+) (\d+) cycles per second.* compute busy in (\d+) %$", re.M)
PROGRAM = "vta_rtl_test"


def build(folder):
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DTILEWRIGHT_BUILD_RTL=ON"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", PROGRAM], check=True)
    return folder / "bin" / PROGRAM


def run(binary, seed):
    """The output of the program with a seed, and whether it passed."""
    done = subprocess.run([binary], env=dict(os.environ, TILEWRIGHT_SEED=str(seed)), capture_output=True, text=True)
    return done.stdout + done.stderr, done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "rtl")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1000, help="the first")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "vta_rtl.json")
    args = parser.parse_args()
    if shutil.which("verilator") is None:
        sys.exit("[SKIP] verilator is not installed: deploy/install_packages.sh --rtl")
    start = time.monotonic()
    binary = build(args.build_dir.resolve())
    counts, speeds, failures = {}, {}, []
    for seed in range(args.seed, args.seed + args.seeds):
        output, passed = run(binary, seed)
        add_counts(counts, output)
        for name, speed, busy in SPEED.findall(output):
            speeds.setdefault(name, []).append({"cycles_per_s": int(speed), "compute_busy_percent": int(busy)})
        if not passed:
            failures.append({"replay": f"TILEWRIGHT_SEED={seed} {PROGRAM}", "output": output[-5000:]})
        print(f"seed {seed}: {'ok' if passed else 'FAILED'}, {counts}", flush=True)
    fastest = {name: max(rows, key=lambda row: row["cycles_per_s"]) for name, rows in speeds.items()}
    slowest = {name: min(rows, key=lambda row: row["cycles_per_s"])["cycles_per_s"] for name, rows in speeds.items()}
    result = {"lane": "vta_rtl", "commit": commit(args.output), "date": time.strftime("%Y-%m-%d", time.gmtime()),
              "command": " ".join(["tests/long/vta_rtl.py", *sys.argv[1:]]), "first_seed": args.seed, "seeds": args.seeds,
              "counts": counts, "cycles_off": 0 if not failures else None, "speed": fastest, "slowest_cycles_per_s": slowest,
              "seconds": round(time.monotonic() - start, 1), "failures": failures}
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
