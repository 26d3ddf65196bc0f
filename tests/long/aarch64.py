#!/usr/bin/env python3
"""64-bit Arm in full, on an emulated board (tests/support/board.py):

    schedules   random programs under random schedules on six processors, against the interpreter
    networks    the seven networks in full size, compiled here and run there, against NumPy (and the golden outputs of ../shared)
    tuning      DQN and ResNet-18 (small images) tuned twice with one seed, by one board and by two: equal logs

    TILEWRIGHT_BUILD_DIR=build/release tests/long/aarch64.py [--pairs N] [--trials N] [PART ...]

Writes tests/results/aarch64.json, each part for itself. Exit code 1 when a bar is missed."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter

from lane import ROOT, commit

sys.path.insert(0, str(ROOT / "tests/support"))
import board  # noqa: E402
from fleet import BIN, Fleet, make_models  # noqa: E402
from network_check import NAMES, SHARED, check, text  # noqa: E402

RESULT = ROOT / "tests/results/aarch64.json"
TUNED = {"dqn": (), "resnet18": ("--size", 64)}
FIRST_SEED = 20_000_000  # the CI lane's are small
SUMMARY = re.compile(r"^(\d+) pairs, (\d+) steps, (\d+) cut off$", re.M)


def schedules(flags):
    env = dict(os.environ, TILEWRIGHT_SEED=str(FIRST_SEED), TILEWRIGHT_ROUNDS=str(flags.pairs))
    done = subprocess.run([BIN / "emulated_test", "--gtest_filter=*RandomSchedules*"], env=env, capture_output=True, text=True,
                          check=False)
    found = SUMMARY.search(done.stdout)
    if done.returncode != 0 or found is None:
        return {"good": False, "failure": (done.stdout + done.stderr)[-5000:]}
    return {"good": int(found[1]) >= flags.pairs, "first_seed": FIRST_SEED, "pairs": int(found[1]), "steps": int(found[2]),
            "cut_off": int(found[3])}


def networks(_):
    if not (SHARED / "models/golden").is_dir():
        print(f"[SKIP] {SHARED}/models/golden is not there: golden outputs are NOT compared")
    rows = []
    for name in NAMES:
        with tempfile.TemporaryDirectory(prefix="tilewright-aarch64-") as folder:
            rows.append(check(name, (), folder, targets={"aarch64": (board.TARGET, 1)},
                              run_flags=["--bridge", board.bridge(), "--allow-weak-sandbox"]))
            print(text(rows[-1]), flush=True)
    return {"good": all(row["good"] for row in rows), "rows": rows}


def tuned(model, boards, trials):
    devices = [board.device(board.counting_bridge(), f"board{i}") for i in range(boards)]
    with Fleet(devices=devices) as fleet:
        fleet.target = board.TARGET
        fleet.start_all()
        fleet.tune(model, trials, seed=7, timeout=36_000)
        return fleet.export()


def tuning(flags):
    rows = []
    for name, options in TUNED.items():
        with tempfile.TemporaryDirectory(prefix="tilewright-aarch64-") as folder:
            model = make_models(folder, name, *options) / name / "model.onnx"
            one, two = tuned(model, 1, flags.trials), tuned(model, 2, flags.trials)
        difference = board.first_difference(board.transcript(one), board.transcript(two))
        outcomes = Counter(record["outcome"] for record in one)
        good = not difference and len(one) == flags.trials and set(outcomes) <= {"OK", "EARLY_STOPPED"}
        rows.append({"network": name, "options": " ".join(map(str, options)), "trials": len(one), "outcomes": dict(outcomes),
                     "difference": difference, "good": good})
        print(f"{name}: {len(one)} records, {difference or 'equal'}", flush=True)
    return {"good": all(row["good"] for row in rows), "rows": rows}


PARTS = {"schedules": schedules, "networks": networks, "tuning": tuning}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART")
    parser.add_argument("--pairs", type=int, default=600)
    parser.add_argument("--trials", type=int, default=64)
    flags = parser.parse_args()
    board.build()
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {"lane": "aarch64", "parts": {}}
    failed = 0
    for name in flags.parts or PARTS:
        start = time.monotonic()
        part = PARTS[name](flags)
        part.update(commit=commit(), date=time.strftime("%Y-%m-%d", time.gmtime()), seconds=round(time.monotonic() - start, 1),
                    command=" ".join(["tests/long/aarch64.py", *sys.argv[1:]]))
        result["parts"][name] = part
        failed += not part["good"]
        print(f"{name}: {'ok' if part['good'] else 'FAILED'} in {part['seconds']} s", flush=True)
        RESULT.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    print(f"{len(flags.parts or PARTS) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
