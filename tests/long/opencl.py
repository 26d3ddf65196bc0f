#!/usr/bin/env python3
"""OpenCL in full, on the machine's device:

    random      random programs, random schedules for groups of threads, and random points of the search's spaces against the
                interpreter (../differential/random_opencl_test.cc); 25 chunks, in each 20 of each kind
    networks    the seven networks in full size, compiled and run, against NumPy (and the golden outputs of ../shared)
    tuning      ../e2e/networks_opencl.py --long: small networks; DQN and MobileNet tuned by real daemons

    TILEWRIGHT_BUILD_DIR=build/release tests/long/opencl.py [--rounds N] [--again] [PART[:ROW] ...]

PART:ROW is one row of a part, as in networks:dqn or random:07. Each row is written to tests/results/opencl.json when it is
done. A run continues where an earlier one of the same commit ended; --again measures rows anew. The driver compiles every
kernel for a second: all takes about an hour. Exit code 1 when a bar is missed."""

import subprocess
import sys
import tempfile

import row_lane
import seeded_lane
from lane import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))
from fleet import BIN, PYTHON  # noqa: E402
from network_check import NAMES, SHARED, check, text  # noqa: E402

CHUNKS = 25
FIRST_SEED = 50_000_000  # the CI lane's are small


def random_chunk(name, flags):
    seed, counts = FIRST_SEED + int(name), {}
    failure = seeded_lane.run_chunk(BIN / "random_opencl_test", seed, flags.rounds, counts, "")
    row = {"good": failure is None, "seed": seed, "rounds": flags.rounds, "counts": counts}
    return row if failure is None else dict(row, failure=failure)


def network(name, _):
    if not (SHARED / "models/golden").is_dir():
        print(f"[SKIP] {SHARED}/models/golden is not there: golden outputs are NOT compared")
    with tempfile.TemporaryDirectory(prefix="tilewright-opencl-") as folder:
        row = check(name, (), folder, targets={"opencl": ("opencl", 1)})
    print(text(row), flush=True)
    return row


def tuning(name, _):
    done = subprocess.run([PYTHON, ROOT / "tests/e2e" / f"{name}.py", "--long"], capture_output=True, text=True, check=False)
    print(done.stdout, end="", flush=True)
    row = {"good": done.returncode == 0, "result": (done.stdout.strip().splitlines() or [""])[-1]}
    return row if row["good"] else dict(row, failure=(done.stdout + done.stderr)[-5000:])


PARTS = {"random": (tuple(f"{i:02d}" for i in range(CHUNKS)), random_chunk), "networks": (NAMES, network),
         "tuning": (("networks_opencl",), tuning)}

if __name__ == "__main__":
    row_lane.main("opencl", __doc__, PARTS, lambda parser: parser.add_argument("--rounds", type=int, default=20))
