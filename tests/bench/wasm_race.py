#!/usr/bin/env python3
"""WebAssembly in Node.js against this compiler's own native code for vectors of the same 16 bytes (x86-64 without AVX), both by default
schedules on one thread; and a product of matrices against a plain loop by gcc -O3. The quickest round counts, of each its tenth percentile; rounds take turns.

    wasm_race.py [--rounds N] [--json FILE]        tests/bench/results/wasm.json is a run's"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "support"), str(ROOT / "models")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from fleet import BIN, make_models, skip  # noqa: E402

NODE = shutil.which("node") or shutil.which("nodejs")
RUNNER = ROOT.parent / "deploy" / "javascript" / "examples" / "run_module.js"
RELAXED_FLAG = "--experimental-wasm-relaxed-simd"
NETWORKS = ("dqn", "mobilenet", "resnet18", "bert_small")
PRODUCT = 256  # rows and columns of both matrices
REPEAT = 40
LOOP = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
enum { N = %d };
static float a[N * N], b[N * N], c[N * N];
int main(void) {
  double best = 1e9;
  for (int i = 0; i < N * N; ++i) a[i] = b[i] = (float)rand() / (float)RAND_MAX;
  for (int repeat = 0; repeat < %d; ++repeat) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < N; ++i)
      for (int j = 0; j < N; ++j) {
        float sum = 0;
        for (int k = 0; k < N; ++k) sum += a[i * N + k] * b[k * N + j];
        c[i * N + j] = sum;
      }
    clock_gettime(CLOCK_MONOTONIC, &to);
    const double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
    if (ms < best) best = ms;
  }
  printf("%%.6f %%g\\n", best, (double)c[N + 1]);
  return 0;
}
"""


def output(*words):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=True).stdout


def product_model(folder):
    tensor = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.random.default_rng(1).random((PRODUCT, PRODUCT), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product",
                              [tensor("x", TensorProto.FLOAT, [PRODUCT] * 2)], [tensor("y", TensorProto.FLOAT, [PRODUCT] * 2)], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(folder / "product.onnx"))
    np.save(folder / "x.npy", np.random.default_rng(2).random((PRODUCT, PRODUCT), np.float32))
    return folder / "product.onnx", ["--input", f"x={folder / 'x.npy'}"]


def network_model(name, folder):
    case = make_models(folder, name) / name
    words = []
    for path in sorted((case / "test_data_set_0").glob("input_*.pb")):
        tensor = TensorProto.FromString(path.read_bytes())
        np.save(folder / f"{name}-{tensor.name}.npy", numpy_helper.to_array(tensor))
        words += ["--input", f"{tensor.name}={folder / f'{name}-{tensor.name}.npy'}"]
    return case / "model.onnx", words


def runners(model, inputs, folder, relaxed):
    """{label: a function that gives milliseconds}"""
    targets = {"wasm": "wasm", "native": "x86_64,cpu=x86-64"}
    if relaxed:
        targets["relaxed"] = "wasm,cpu=relaxed_simd"
    for label, target in targets.items():
        output(BIN / "tilewright", "compile", model, "--target", target, "--effort", 0, "-o", folder / f"{label}.tw")

    def in_node(label, *flags):
        return json.loads(output(NODE, *flags, RUNNER, folder / f"{label}.tw", *inputs, "--repeat", REPEAT))["latency_ms"]["p10"]

    def native():
        said = json.loads(output(BIN / "tilewright", "run", folder / "native.tw", *inputs, "--repeat", REPEAT, "-o", "json"))
        return said["latency_ms"]["p10"]

    result = {"wasm": lambda: in_node("wasm"), "native": native}
    if relaxed:
        result["relaxed"] = lambda: in_node("relaxed", RELAXED_FLAG)
    return result


def plain_loop(folder):
    (folder / "loop.c").write_text(LOOP % (PRODUCT, REPEAT))
    output("gcc", "-O3", "-o", folder / "loop", folder / "loop.c")
    return lambda: float(output(folder / "loop").split()[0])


def relaxed_support():
    """Whether Node.js has the relaxed instructions with that flag."""
    probe = (f"import {{ engineFeatures }} from '{RUNNER.parents[1]}/code.js'; "
             "process.exit(engineFeatures().includes('relaxed_simd') ? 0 : 1)")
    return subprocess.run([NODE, RELAXED_FLAG, "--input-type=module", "-e", probe], capture_output=True).returncode == 0


def race(name, rounds):
    with tempfile.TemporaryDirectory(prefix="tilewright-wasm-race-") as where:
        folder = Path(where)
        model, inputs = product_model(folder) if name == "product" else network_model(name, folder)
        runs = runners(model, inputs, folder, relaxed_support())
        if name == "product":
            runs["loop"] = plain_loop(folder)
        best = {label: float("inf") for label in runs}
        for _ in range(rounds):
            for label, run in runs.items():
                best[label] = min(best[label], run())
    row = {"name": f"product{PRODUCT}" if name == "product" else name, **{f"{label}_ms": round(ms, 4) for label, ms in best.items()}}
    row["of_native"] = round(best["native"] / best["wasm"], 3)
    if "loop" in best:
        row["of_loop"] = round(best["loop"] / best["wasm"], 2)
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    if NODE is None:
        skip("no Node.js here (Debian: nodejs)")
    if platform.machine() != "x86_64":
        skip("the native peer is x86-64")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = [race(name, options.rounds) for name in ("product", *NETWORKS)]
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    document = {"command": "tests/bench/wasm_race.py " + " ".join(sys.argv[1:]), "date": str(datetime.date.today()),
                "machine": f"{cpu}, {os.cpu_count()} cores", "node": output(NODE, "--version").strip(), "rows": rows,
                "about": "milliseconds of one thread; of_native: how fast wasm is as a share of native code for 16-byte "
                         "vectors; of_loop: how much faster than the loop of gcc -O3"}
    if options.json:
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
