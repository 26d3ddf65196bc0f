"""Whole networks on a device whose driver compiles: narrow and small ones with default schedules, one from Python, and
networks tuned by a real tracker, tuner and agent, whose records know the driver's compiler. For scripts that run alone: a
device measures in them.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
from fleet import BUILD, PYTHON, ROOT, expected_output, make_models, run_checks, skip  # noqa: E402
from network_check import MAX_NORM, check, command, load, text  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402

import numpy as np  # noqa: E402
from onnx import TensorProto  # noqa: E402

PROGRAM = """
import sys, numpy as np, tilewright_runtime as tw
from onnx import TensorProto, numpy_helper
session = tw.Session(tw.Module(sys.argv[1]))
x = numpy_helper.to_array(TensorProto.FromString(open(sys.argv[2], "rb").read()))
for _ in range(2):
    (y,) = session.run({sys.argv[4]: x}).values()
np.save(sys.argv[3], y)
"""


class DeviceNetworks:
    """Checks of one kind of device. `generator` is its code generator's part of a toolchain."""

    def __init__(self, kind, generator):
        self.kind, self.generator = kind, generator

    def good(self, name, folder, trials=0):
        try:
            row = check(name, VARIANTS[name], folder, trials=trials, targets={self.kind: (self.kind, 1)})
        except AssertionError as error:
            if "runtime.device.none" in str(error):
                skip(f"no device of kind {self.kind}")
            raise
        print("        " + text(row))
        assert row["good"], f"outputs differ from the evaluator's, or a trial failed: {[r.get('outcomes') for r in row['runs']]}"

    def checked(self, name):
        def run():
            with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
                self.good(name, folder)
        run.__name__ = name
        return run

    def from_python(self):
        with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
            case = make_models(folder, "dqn", *VARIANTS["dqn"]) / "dqn"
            module, out = Path(folder) / "dqn.tw", Path(folder) / "y.npy"
            command("compile", case / "model.onnx", "--target", self.kind, "-o", module)
            environment = dict(os.environ, TILEWRIGHT_RUNTIME_LIBRARY=str(BUILD / "lib/libtilewright_runtime.so"),
                               PYTHONPATH=str(ROOT / "deploy/bindings/python"))
            data = case / "test_data_set_0/input_0.pb"
            name = TensorProto.FromString(data.read_bytes()).name
            subprocess.run([PYTHON, "-c", PROGRAM, module, data, out, name], env=environment, check=True)
            expected = load(expected_output(case))
            assert np.linalg.norm(np.load(out) - expected) <= MAX_NORM * np.linalg.norm(expected)

    def tune(self, folder, log, trials):
        """DQN again, with what `log` knows; how many trials were measured."""
        job = json.loads(command("tune", Path(folder) / "dqn/model.onnx", "--target", self.kind, "--trials", trials,
                                 "--log", log, "--state-dir", Path(folder) / f"state-{log.stem}", "-o",
                                 Path(folder) / "again.tw", "--format", "json"))
        return job["progress"]["measured"]

    def records_know_the_drivers_compiler(self, folder, trials):
        log = Path(folder) / f"tuner-{self.kind}.db"
        lines = command("log", "export", "--log", log)
        records = [json.loads(line) for line in lines.splitlines()]
        (toolchain,) = {record["toolchain"] for record in records}
        generator, compiler = toolchain.split("+", 1)
        assert generator == self.generator and compiler, toolchain
        # What was too noisy in each attempt is measured anew.
        known = len({record["program_hash"] for record in records if record["accepted"] and record["valid"]})
        unknown = trials - known
        measured = self.tune(folder, log, trials)
        assert measured == unknown < known, f"the same compiler's {known} programs are known, {measured} were measured"
        # As after an update of the driver: what another compiler made is known no more.
        older = Path(folder) / "older.db"
        exported = Path(folder) / "older.jsonl"
        exported.write_text(lines.replace(json.dumps(toolchain), json.dumps(generator + "+older-0.1")))
        command("log", "import", exported, "--log", older)
        assert self.tune(folder, older, trials) > unknown, "another compiler's records are not"
        found = {json.loads(line)["toolchain"] for line in command("log", "export", "--log", older).splitlines()}
        assert found == {toolchain, generator + "+older-0.1"}, found

    def tuned(self, name, trials):
        """`trials` are those of all kernels of the network together, defaults included."""
        def run():
            with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
                self.good(name, folder, trials=trials)
                if name == "dqn":
                    self.records_know_the_drivers_compiler(folder, trials)
        run.__name__ = f"{name}_tuned"
        return run

    def run(self, names, trials):
        """Runs `names` with default schedules, and tunes the networks of `trials`."""
        run_checks(*map(self.checked, names), self.from_python, *(self.tuned(*item) for item in trials.items()))
