#!/usr/bin/env python3
"""The seven networks, narrow and small, compiled for OpenCL with default schedules and run on the machine's
device: the same bounds as on the processor (networks_quick.py)."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import run_checks, skip  # noqa: E402
from network_check import NAMES, check, text  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402

TARGETS = {"opencl": ("opencl", 1)}


def good(name, folder):
    try:
        row = check(name, VARIANTS[name], folder, targets=TARGETS)
    except AssertionError as error:
        if "runtime.device.none" in str(error):
            skip("no OpenCL device")
        raise
    print("        " + text(row))
    assert row["good"], "outputs differ from the evaluator's"


def checked(name):
    def run():
        with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
            good(name, folder)
    run.__name__ = name
    return run


if __name__ == "__main__":
    run_checks(*map(checked, NAMES))
