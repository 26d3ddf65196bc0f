#!/usr/bin/env python3
"""Vulkan in full, on the machine's device:

    random      random programs, random schedules for groups of threads, and random points of the search's spaces against the
                interpreter (../differential/random_vulkan_test.cc); 25 chunks, in each 25 of each kind
    networks    the seven networks in full size, compiled and run, against NumPy (and the golden outputs of ../shared)
    nodes       ONNX's node cases, all of them (../conformance/onnx_node_test.cc)
    tuning      ../e2e/networks_vulkan.py --long: small networks; DQN and MobileNet tuned by real daemons

    TILEWRIGHT_BUILD_DIR=build/release tests/long/vulkan.py [--rounds N] [--again] [PART[:ROW] ...]

PART:ROW is one row of a part, as in networks:dqn or random:07. Each row is written to tests/results/vulkan.json when it is
done. A run continues where an earlier one of the same commit ended; --again measures rows anew. Exit code 1 when a bar is
missed."""

import os
import re
import subprocess
import sys

import device_lane
from lane import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))
from fleet import BIN  # noqa: E402


def nodes(_name, _flags):
    """All cases: as many as onnx_node_test wants of the processor."""
    environment = dict(os.environ, TILEWRIGHT_ROUNDS="2000", TILEWRIGHT_SHARED=str(ROOT.parent / "shared"))
    done = subprocess.run([BIN / "onnx_node_test", "--gtest_filter=*Vulkan*"], env=environment, capture_output=True, text=True,
                          check=False)
    ran = re.search(r"^(\d+) cases run", done.stdout, re.M)
    row = {"good": done.returncode == 0 and ran is not None and int(ran[1]) >= 1011, "cases": int(ran[1]) if ran else 0}
    return row if row["good"] else dict(row, failure=(done.stdout + done.stderr)[-5000:])


if __name__ == "__main__":
    device_lane.main("vulkan", __doc__, {"nodes": (("all",), nodes)}, rounds=25)
