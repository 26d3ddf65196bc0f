#!/usr/bin/env python3
"""Whether a change costs time: the seven networks and ResNet-18's layers C1 to C12, untuned, compiled by two builds of this repository.

    tests/bench/paired.py OLD_BUILD NEW_BUILD [--target TARGET | --board [CPU]] [--only NAME ...] [--rounds 5] [--seconds 0.5] [-o RESULT.json]

A build is a folder with bin/tilewright. Equal code, byte for byte, has ratio 1. Other code is timed in turns A B B A, each module by its build's `run --repeat`;
a ratio is the old median over the new one, the median of the pairs: above 1 the new build is faster. Both builds' outputs are compared first. Exit code 1 if the geometric
mean is below .99 or a row below .97. Needs Debian's python3-onnx and python3-numpy.

--target: not this processor with one thread, but for example opencl. --board: an emulated 64-bit Arm board (tests/support/board.py), once each, in virtual cycles,
which equal runs agree on to a thousandth. The new build runs both modules there."""

import argparse
import hashlib
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "tests/long"))
import board  # noqa: E402
from fleet import make_models  # noqa: E402
from lane import commit  # noqa: E402
from network_check import NAMES, errors  # noqa: E402

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

LEAST_MEAN, LEAST = 0.99, 0.97
NATIVE = "native,threads=1"
LAYER = re.compile(r'Conv\("(C\d+)", (\d+), (\d+), (\d+), (\d+), (\d+)\)')  # name, size, in, out, kernel, stride


def layers():
    found = {row[0]: tuple(map(int, row[1:])) for row in LAYER.findall((ROOT / "tests/bench/layers.cc").read_text())}
    assert len(found) == 12, f"expected C1 to C12 in layers.cc, found {', '.join(found)}"
    return found


def write_layer(path, size, inputs, outputs, kernel, stride):
    """relu(conv(x) + bias), as layers.h says."""
    random = np.random.default_rng(1)
    weights = random.standard_normal((outputs, inputs, kernel, kernel), np.float32) / math.sqrt(inputs * kernel * kernel)
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(random.standard_normal(outputs, np.float32), "b")]
    after = (size + 2 * (kernel // 2) - kernel) // stride + 1
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4),
             helper.make_node("Relu", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "layer", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, inputs, size, size])],
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, outputs, after, after])], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 7
    onnx.save(model, str(path))
    return path


class Build:
    def __init__(self, folder, options):
        self.folder, self.target, self.board = Path(folder).resolve(), options.target, options.board
        self.program = self.folder / "bin/tilewright"
        # Before there were predicted schedules, default ones were all that there was.
        self.flags = ("--effort", "0") if "--effort" in self.call("compile", "--help") else ()

    def call(self, *words):
        done = subprocess.run([str(word) for word in (self.program, *words)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"paired.py: {self.program} {' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def compile(self, model, module):
        self.call("compile", model, "--target", self.target, "-o", module, *self.flags)
        return module

    def run(self, module, *words):
        where = ("--bridge", board.counting_bridge(self.board), "--allow-weak-sandbox") if self.board else ()
        return self.call("run", module, *where, *words)

    def median(self, module, repeat):
        """Milliseconds, or a board's cycles."""
        said = json.loads(self.run(module, "--repeat", repeat, *([] if self.board else ["--threads", 1]), "-o", "json"))
        return said["virtual_cycles" if self.board else "latency_ms"]["median"]


def code_of(module):
    """The digests of a module's code objects, which its manifest has."""
    code = re.search(rb'"code":\[(.*?)\]', module.read_bytes())
    return re.findall(rb'"digest":"([0-9a-f]{64})"', code[1])


def compare(name, model, old, new, options):
    with tempfile.TemporaryDirectory(prefix="tilewright-paired-") as folder:
        modules = {"A": old.compile(model, Path(folder) / "old.tw"), "B": new.compile(model, Path(folder) / "new.tw")}
        digests = {who: code_of(module) for who, module in modules.items()}
        row = {"name": name, "same_code": digests["A"] == digests["B"], "code": hashlib.sha256(b"".join(digests["B"])).hexdigest()}
        if row["same_code"]:
            return {**row, "ratio": 1.0}
        builds = {"A": new if options.board else old, "B": new}
        for who, build in builds.items():
            build.run(modules[who], "--repeat", 1, "--output-dir", Path(folder) / who)
        row["difference"] = errors(Path(folder) / "A/output_0.pb", Path(folder) / "B/output_0.pb")[0]
        assert row["difference"] <= 1e-4, f"{name}: outputs differ by {row['difference']}"
        once = 0 if options.board else old.median(modules["A"], 3)
        repeat = 1 if options.board else max(3, int(options.seconds * 1e3 / once))
        pairs = []
        for turn in range(1 if options.board else 2 * options.rounds):  # A B, B A, A B, ...
            times = {who: builds[who].median(modules[who], repeat) for who in ("AB", "BA")[turn % 2]}
            pairs.append((times["A"], times["B"]))
    return {**row, "repeat": repeat, "old": statistics.median(a for a, _ in pairs), "new": statistics.median(b for _, b in pairs),
            "ratio": statistics.median(a / b for a, b in pairs), "ratios": [round(a / b, 4) for a, b in pairs]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--target", default=NATIVE)
    parser.add_argument("--board", nargs="?", const=board.CPU, metavar="CPU")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.board:
        board.build()
        options.target = f"cpu,arch=aarch64,cpu={options.board},threads=1"
    old, new, start, rows = Build(options.old, options), Build(options.new, options), time.monotonic(), []
    table = layers()
    with tempfile.TemporaryDirectory(prefix="tilewright-models-") as folder:
        for name in options.only or [*NAMES, *table]:
            if name in table:
                model = write_layer(Path(folder) / f"{name}.onnx", *table[name])
            else:
                model = make_models(folder, name) / name / "model.onnx"
            rows.append(compare(name, model, old, new, options))
            print(f"{name:12s} {rows[-1]['ratio']:.3f}  {'the same code' if rows[-1]['same_code'] else rows[-1]['ratios']}", flush=True)
    mean = math.exp(statistics.mean(math.log(row["ratio"]) for row in rows))
    least = min(row["ratio"] for row in rows)
    print(f"geometric mean {mean:.3f} (wanted {LEAST_MEAN}), least {least:.3f} (wanted {LEAST}), {sum(row['same_code'] for row in rows)} of {len(rows)} with the same code")
    if options.output:
        result = options.output.resolve()
        options.output.write_text(json.dumps({
            "lane": "paired", "commit": commit(result if result.is_relative_to(ROOT) else None), "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": platform.processor() or platform.machine(), "load_average": round(os.getloadavg()[0], 1),
            "target": options.target, "unit": "virtual cycles" if options.board else "ms",
            "command": " ".join(["tests/bench/paired.py", *sys.argv[1:]]), "seconds": round(time.monotonic() - start, 1),
            "geometric_mean": round(mean, 4), "least": round(least, 4), "rows": rows}, indent=1) + "\n")
    sys.exit(0 if mean >= LEAST_MEAN and least >= LEAST else 1)


if __name__ == "__main__":
    main()
