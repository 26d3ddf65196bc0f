#!/usr/bin/env python3
"""The RTL of the accelerator in Verilator against the simulators (../differential/vta_rtl_test.cc): builds it in a tree of
its own, runs it with many seeds, and measures how fast it is simulated; runs a layer on the plug-in's RTL device and
tunes it there (vta_rtl_device.py); runs whole networks on it (vta_rtl_networks.py); `--synthesise block8` also synthesises it
(../../vta/rtl/synthesise.py). Writes tests/results/vta_rtl.json; exit code 1 after a difference or for a latch. Wants `deploy/install_packages.sh --test --rtl`.
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
from vta_rtl_device import layers_agree
from vta_rtl_networks import LEAST, networks_agree

sys.path.append(str(ROOT / "vta" / "rtl"))
from synthesise import synthesise  # noqa: E402

SPEED = re.compile(r"^speed: (\w+) (\d+) cycles per second.* compute busy in (\d+) %$", re.M)
PROGRAM, PLUGIN = "vta_rtl_test", "tilewright_device_vta"
DRIVER = "vta_driver_test"  # takes the RTL as one more backend
LEAST_SPEED = 500_000  # cycles per second, of the fastest run of each configuration


def build(folder):
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DTILEWRIGHT_BUILD_RTL=ON"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", PROGRAM, PLUGIN, DRIVER], check=True)
    return folder / "bin" / PROGRAM


def run(binary, seed):
    """The output of the program with a seed, and whether it passed."""
    done = subprocess.run([binary], env=dict(os.environ, TILEWRIGHT_SEED=str(seed)), capture_output=True, text=True)
    return done.stdout + done.stderr, done.returncode == 0


def run_seeds(args, result, save):
    binary = build(args.build_dir.resolve())
    for seed in range(args.seed, args.seed + args.seeds):
        output, passed = run(binary, seed)
        add_counts(result["counts"], output)
        for name, speed, busy in SPEED.findall(output):
            speed = int(speed)
            row = result["speed"].setdefault(name, {"slowest": speed, "fastest": speed})
            row.update(slowest=min(speed, row["slowest"]), fastest=max(speed, row["fastest"]), compute_busy_percent=int(busy))
        if not passed:
            result["failures"].append({"replay": f"TILEWRIGHT_SEED={seed} {PROGRAM}", "output": output[-5000:]})
        result["seeds"] += 1
        save()
        print(f"seed {seed}: {'ok' if passed else 'FAILED'}, {result['counts']}", flush=True)


def judge_speed(result):
    for name, row in result["speed"].items():
        if row["fastest"] < LEAST_SPEED:
            result["failures"].append({"slow": name, "cycles_per_second": row["fastest"]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "rtl")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1000, help="the first")
    parser.add_argument("--networks", nargs="*", default=list(LEAST), metavar="NAME")
    parser.add_argument("--synthesise", nargs="*", default=[], metavar="CONFIG", help="minutes each")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "vta_rtl.json")
    args = parser.parse_args()
    if shutil.which("verilator") is None:
        sys.exit("[SKIP] verilator is not installed: deploy/install_packages.sh --rtl")
    start = time.monotonic()
    result = {"lane": "vta_rtl", "commit": commit(args.output), "date": time.strftime("%Y-%m-%d", time.gmtime()),
              "command": " ".join(["tests/long/vta_rtl.py", *sys.argv[1:]]), "first_seed": args.seed, "seeds": 0, "counts": {},
              "speed": {}, "layers": [], "networks": [], "synthesis": {}, "failures": []}
    # What is not run or synthesised again keeps its row.
    if args.output.exists():
        before = json.loads(args.output.read_text())
        result["synthesis"] = before["synthesis"]
        result["networks"] = [row for row in before["networks"] if row["network"] not in args.networks]

    def save():
        result["seconds"] = round(time.monotonic() - start, 1)
        args.output.write_text(json.dumps(result, indent=1) + "\n")

    run_seeds(args, result, save)
    judge_speed(result)
    output, passed = run(args.build_dir.resolve() / "bin" / DRIVER, args.seed)
    if not passed or "/Rtl" not in output:
        result["failures"].append({"replay": DRIVER, "output": output[-5000:]})
    # The programs are those of the build; the plug-in with the RTL is that of this lane.
    os.environ["TILEWRIGHT_PLUGIN_DIR"] = str(args.build_dir.resolve() / "lib")
    result["layers"] = layers_agree()
    save()
    for row in networks_agree(args.networks):
        result["networks"].append({"commit": commit(args.output), **row})
        save()
    for config in args.synthesise:
        row = synthesise(config)
        result["synthesis"][config] = {"commit": commit(args.output), **row}
        if row["latches"]:
            result["failures"].append({"latches": config})
        save()
    return 1 if result["failures"] or result["seeds"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
