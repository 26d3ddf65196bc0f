#!/usr/bin/env python3
"""64-bit Arm in full, on an emulated board (tests/support/board.py):

    schedules   random programs under random schedules on each of the emulated processors, against the interpreter
    networks    the seven networks in full size, compiled here and run there, against NumPy (and the golden outputs of ../shared)
    tuning      DQN and ResNet-18 (small images) tuned twice with one seed, by one board and by two: equal logs

    TILEWRIGHT_BUILD_DIR=build/release tests/long/aarch64.py [--pairs N] [--trials N] [--again] [PART[:ROW] ...]

PART:ROW is one row of a part, as in networks:dqn. Each row is written to tests/results/aarch64.json when it is done. A run
continues where an earlier one of the same commit ended; --again measures rows anew. Exit code 1 when a bar is missed."""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter

import row_lane
from lane import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))
import board  # noqa: E402
from fleet import BIN, Fleet, make_models  # noqa: E402
from network_check import NAMES, SHARED, check, text  # noqa: E402

TUNED = {"dqn": (), "resnet18": ("--size", 64)}
FIRST_SEED = 20_000_000  # the CI lane's are small
SUMMARY = re.compile(r"^(\d+) pairs, (\d+) steps, (\d+) cut off$", re.M)


def schedules(_, flags):
    env = dict(os.environ, TILEWRIGHT_SEED=str(FIRST_SEED), TILEWRIGHT_ROUNDS=str(flags.pairs))
    done = subprocess.run([BIN / "emulated_test", "--gtest_filter=*RandomSchedules*"], env=env, capture_output=True, text=True,
                          check=False)
    found = SUMMARY.search(done.stdout)
    if done.returncode != 0 or found is None:
        return {"good": False, "failure": (done.stdout + done.stderr)[-5000:]}
    return {"good": int(found[1]) >= flags.pairs, "first_seed": FIRST_SEED, "pairs": int(found[1]), "steps": int(found[2]),
            "cut_off": int(found[3])}


def network(name, _):
    if not (SHARED / "models/golden").is_dir():
        print(f"[SKIP] {SHARED}/models/golden is not there: golden outputs are NOT compared")
    with tempfile.TemporaryDirectory(prefix="tilewright-aarch64-") as folder:
        row = check(name, (), folder, targets={"aarch64": (board.TARGET, 1)},
                    run_flags=["--bridge", board.bridge(), "--allow-weak-sandbox"])
    print(text(row), flush=True)
    return row


def tuned(model, boards, trials):
    devices = [board.device(board.counting_bridge(), f"board{i}") for i in range(boards)]
    with Fleet(devices=devices) as fleet:
        fleet.target = board.TARGET
        fleet.start_all()
        fleet.tune(model, trials, seed=7, timeout=36_000)
        return fleet.export()


def tuning(name, flags):
    with tempfile.TemporaryDirectory(prefix="tilewright-aarch64-") as folder:
        model = make_models(folder, name, *TUNED[name]) / name / "model.onnx"
        one, two = tuned(model, 1, flags.trials), tuned(model, 2, flags.trials)
    difference = board.first_difference(board.transcript(one), board.transcript(two))
    searched = [record for record in one if record["generated_by"] != "final"]  # winners are measured again
    outcomes = Counter(record["outcome"] for record in one)
    good = not difference and len(searched) == flags.trials and set(outcomes) <= {"OK", "EARLY_STOPPED"}
    print(f"{name}: {len(searched)} records and {len(one) - len(searched)} of winners, {difference or 'equal'}", flush=True)
    return {"options": " ".join(map(str, TUNED[name])), "trials": len(searched), "finals": len(one) - len(searched),
            "outcomes": dict(outcomes), "difference": difference, "good": good}


PARTS = {"schedules": (("random",), schedules), "networks": (NAMES, network), "tuning": (TUNED, tuning)}


def add_flags(parser):
    parser.add_argument("--pairs", type=int, default=600)
    parser.add_argument("--trials", type=int, default=64)


if __name__ == "__main__":
    row_lane.main("aarch64", __doc__, PARTS, add_flags, board.build)
