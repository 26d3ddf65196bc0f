#!/usr/bin/env python3
"""The networks, narrow and small, compiled for OpenCL with default schedules and run on the machine's
device: the same bounds as on the processor (networks_quick.py). DQN again from Python; DQN tuned by a real tracker,
tuner and agent, whose records know the driver's compiler. With --long ResNet-50, too, whose kinds of kernels ResNet-18 has, and MobileNet
is tuned: minutes, in which a busy machine may quarantine the only device."""
# Runs alone: a device measures in it.

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BUILD, PYTHON, ROOT, expected_output, make_models, run_checks, skip  # noqa: E402
from network_check import MAX_NORM, NAMES, check, command, load, text  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402

import numpy as np  # noqa: E402
from onnx import TensorProto  # noqa: E402

TARGETS = {"opencl": ("opencl", 1)}
# Of all kernels of a network together, defaults included.
TRIALS = {"dqn": 12, "mobilenet": 40}

PROGRAM = """
import sys, numpy as np, tilewright_runtime as tw
from onnx import TensorProto, numpy_helper
session = tw.Session(tw.Module(sys.argv[1]))
x = numpy_helper.to_array(TensorProto.FromString(open(sys.argv[2], "rb").read()))
for _ in range(2):
    (y,) = session.run({sys.argv[4]: x}).values()
np.save(sys.argv[3], y)
"""


def good(name, folder, trials=0):
    try:
        row = check(name, VARIANTS[name], folder, trials=trials, targets=TARGETS)
    except AssertionError as error:
        if "runtime.device.none" in str(error):
            skip("no OpenCL device")
        raise
    print("        " + text(row))
    assert row["good"], f"outputs differ from the evaluator's, or a trial failed: {[r.get('outcomes') for r in row['runs']]}"


def checked(name):
    def run():
        with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
            good(name, folder)
    run.__name__ = name
    return run


def from_python():
    with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
        case = make_models(folder, "dqn", *VARIANTS["dqn"]) / "dqn"
        module, out = Path(folder) / "dqn.tw", Path(folder) / "y.npy"
        command("compile", case / "model.onnx", "--target", "opencl", "-o", module)
        environment = dict(os.environ, TILEWRIGHT_RUNTIME_LIBRARY=str(BUILD / "lib/libtilewright_runtime.so"),
                           PYTHONPATH=str(ROOT / "deploy/bindings/python"))
        data = case / "test_data_set_0/input_0.pb"
        name = TensorProto.FromString(data.read_bytes()).name
        subprocess.run([PYTHON, "-c", PROGRAM, module, data, out, name], env=environment, check=True)
        expected = load(expected_output(case))
        assert np.linalg.norm(np.load(out) - expected) <= MAX_NORM * np.linalg.norm(expected)


def tune(folder, log):
    """DQN again, with what `log` knows; how many trials were measured."""
    job = json.loads(command("tune", Path(folder) / "dqn/model.onnx", "--target", "opencl", "--trials", TRIALS["dqn"],
                             "--log", log, "--state-dir", Path(folder) / f"state-{log.stem}", "-o",
                             Path(folder) / "again.tw", "--format", "json"))
    return job["progress"]["measured"]


def records_know_the_drivers_compiler(folder):
    log = Path(folder) / "tuner-opencl.db"
    lines = command("log", "export", "--log", log)
    records = [json.loads(line) for line in lines.splitlines()]
    (toolchain,) = {record["toolchain"] for record in records}
    generator, compiler = toolchain.split("+", 1)
    assert generator == "opencl-c-1.2" and compiler, toolchain
    # What was too noisy in each attempt is measured anew.
    known = len({record["program_hash"] for record in records if record["accepted"] and record["valid"]})
    unknown = TRIALS["dqn"] - known
    measured = tune(folder, log)
    assert measured == unknown < known, f"the same compiler's {known} programs are known, {measured} were measured"
    # As after an update of the driver: what another compiler made is known no more.
    older = Path(folder) / "older.db"
    exported = Path(folder) / "older.jsonl"
    exported.write_text(lines.replace(json.dumps(toolchain), json.dumps(generator + "+older-0.1")))
    command("log", "import", exported, "--log", older)
    assert tune(folder, older) > unknown, "another compiler's records are not"
    found = {json.loads(line)["toolchain"] for line in command("log", "export", "--log", older).splitlines()}
    assert found == {toolchain, generator + "+older-0.1"}, found


def tuned(name):
    def run():
        with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
            good(name, folder, trials=TRIALS[name])
            if name == "dqn":
                records_know_the_drivers_compiler(folder)
    run.__name__ = f"{name}_tuned"
    return run


if __name__ == "__main__":
    is_long = "--long" in sys.argv
    names = [name for name in NAMES if is_long or name != "resnet50"]
    run_checks(*map(checked, names), from_python, *map(tuned, TRIALS if is_long else ["dqn"]))
