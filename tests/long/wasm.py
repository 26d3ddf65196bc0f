#!/usr/bin/env python3
"""WebAssembly in full, in Node.js:

    schedules   random programs under random schedules, with and without relaxed instructions, against the interpreter
    networks    the seven networks in full size, behind a bridge to Node.js, against NumPy (and the golden outputs of ../shared)
    tuning      DQN and MobileNet (small images) tuned by a worker in Node.js: no result is wrong

    TILEWRIGHT_BUILD_DIR=build/release tests/long/wasm.py [--pairs N] [--trials N] [--again] [PART[:ROW] ...]

PART:ROW is one row of a part, as in networks:dqn. Each row is written to tests/results/wasm.json when it is done. A run
continues where an earlier one of the same commit ended; --again measures rows anew. Exit code 1 when a bar is missed."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter

import row_lane
from lane import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))
from fleet import BIN, Fleet, make_models, skip  # noqa: E402
from network_check import NAMES, SHARED, check, text  # noqa: E402

NODE = shutil.which("node") or shutil.which("nodejs")
BRIDGE = f"exec {NODE} {ROOT / 'deploy/javascript/worker/worker.js'}"
TUNED = {"dqn": (), "mobilenet": ("--size", 96)}
FIRST_SEED = 30_000_000  # the CI lane's are small
SUMMARY = re.compile(r"^(\d+) pairs, (\d+) steps, (\d+) cut off$", re.M)


def schedules(_, flags):
    env = dict(os.environ, TILEWRIGHT_SEED=str(FIRST_SEED), TILEWRIGHT_ROUNDS=str(flags.pairs))
    done = subprocess.run([BIN / "wasm_test", "--gtest_filter=*RandomSchedules*"], env=env, capture_output=True, text=True, check=False)
    found = SUMMARY.search(done.stdout)
    if done.returncode != 0 or found is None:
        return {"good": False, "failure": (done.stdout + done.stderr)[-5000:]}
    return {"good": int(found[1]) >= flags.pairs, "first_seed": FIRST_SEED, "pairs": int(found[1]), "steps": int(found[2]),
            "cut_off": int(found[3])}


def network(name, _):
    if not (SHARED / "models/golden").is_dir():
        print(f"[SKIP] {SHARED}/models/golden is not there: golden outputs are NOT compared")
    with tempfile.TemporaryDirectory(prefix="tilewright-wasm-") as folder:
        row = check(name, (), folder, targets={"wasm": ("wasm", 1), "relaxed": ("wasm,cpu=relaxed_simd", 1)},
                    run_flags=["--bridge", BRIDGE])
    print(text(row), flush=True)
    return row


def tuning(name, flags):
    with tempfile.TemporaryDirectory(prefix="tilewright-wasm-") as folder, Fleet(devices=["cpu,name=node,bridge=" + BRIDGE]) as fleet:
        fleet.target = "wasm"
        fleet.start_all()
        fleet.tune(make_models(folder, name, *TUNED[name]) / name / "model.onnx", flags.trials, seed=7, timeout=36_000)
        records = fleet.export()
    outcomes = Counter(record["outcome"] for record in records)
    searched = sum(record["generated_by"] != "final" for record in records)
    return {"options": " ".join(map(str, TUNED[name])), "trials": searched, "outcomes": dict(outcomes),
            "good": searched >= flags.trials and set(outcomes) <= {"OK", "EARLY_STOPPED"}}


PARTS = {"schedules": (("random",), schedules), "networks": (NAMES, network), "tuning": (TUNED, tuning)}


def add_flags(parser):
    parser.add_argument("--pairs", type=int, default=600)
    parser.add_argument("--trials", type=int, default=64)


if __name__ == "__main__":
    if NODE is None:
        skip("no Node.js here (Debian: nodejs)")
    row_lane.main("wasm", __doc__, PARTS, add_flags)
