#!/usr/bin/env python3
"""Kernels and networks on an NVIDIA GPU beside the vendor's libraries (through PyTorch), in one run on one machine.

    gpu_race.py [--ways default,predicted,tuned] [--trials N] [--cases NAME,...] [-o RESULTS.json]

A case is compiled in several ways: by default schedules, by those that the estimate predicts, and tuned by `tilewright tune` with
N trials. Each runs, and is compared with the peer's result in double precision. Times are the device's own, medians of several rounds in which both take turns. A ratio above 1 is
ours being faster. Without a GPU, its driver or PyTorch it says [SKIP].
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "models"), str(ROOT / "support")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from fleet import BIN  # noqa: E402

ROUNDS, REPEAT = 3, 20
KIND = {"fp32": TensorProto.FLOAT, "tf32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "int8": TensorProto.INT8}
LIMIT = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "int8": 0}  # |a - e| / |e|
ODD = ((17, 4096, 4096), (100, 1000, 2048), (384, 384, 1536), (511, 513, 512), (640, 1280, 960), (1000, 1000, 1000),
       (1536, 100, 4096), (2049, 2047, 256), (3072, 768, 768), (4095, 33, 4097))


class Product:
    """C[m,n] = A[m,k] B[k,n]."""

    def __init__(self, dtype, m, n, k):
        self.dtype, self.m, self.n, self.k = dtype, m, n, k
        self.name = f"{dtype} {m}x{n}x{k}"
        self.flops = 2 * m * n * k

    def model(self):
        kind, is_int = KIND[self.dtype], self.dtype == "int8"
        value = helper.make_tensor_value_info
        graph = helper.make_graph([helper.make_node("MatMulInteger" if is_int else "MatMul", ["a", "b"], ["c"])], "product",
                                  [value("a", kind, (self.m, self.k)), value("b", kind, (self.k, self.n))],
                                  [value("c", TensorProto.INT32 if is_int else kind, (self.m, self.n))])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def inputs(self, rng):
        if self.dtype == "int8":
            return {name: rng.integers(-128, 128, shape, np.int8) for name, shape in (("a", (self.m, self.k)), ("b", (self.k, self.n)))}
        type_ = np.float16 if self.dtype == "fp16" else np.float32
        return {"a": rng.standard_normal((self.m, self.k)).astype(type_), "b": rng.standard_normal((self.k, self.n)).astype(type_)}

    def peer(self, torch, feeds):
        torch.backends.cuda.matmul.allow_tf32 = self.dtype == "tf32"
        a, b = (torch.from_numpy(feeds[name]).cuda() for name in ("a", "b"))
        expected = (a.double() @ b.double()).cpu().numpy()
        if self.dtype == "int8":
            return lambda: torch._int_mm(a, b), expected
        out = torch.empty(self.m, self.n, dtype=a.dtype, device="cuda")
        return lambda: torch.matmul(a, b, out=out), expected

    def target(self, torch):
        """Rounded products are there for the asking."""
        return f"cuda,arch={architecture(torch)}" + (",tf32=on" if self.dtype == "tf32" else "")


def cases():
    products = [Product(dtype, n, n, n) for dtype in ("fp32", "tf32", "fp16", "int8") for n in (512, 1024, 2048, 4096, 8192)]
    return {case.name: case for case in products + [Product("fp16", *shape) for shape in ODD]}


def tilewright(*words, **extra):
    done = subprocess.run([BIN / "tilewright", *map(str, words)], capture_output=True, text=True, check=False, **extra)
    if done.returncode != 0:
        raise RuntimeError(f"tilewright {' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def architecture(torch):
    major, minor = torch.cuda.get_device_capability()
    return {(8, 0): "sm_80", (9, 0): "sm_90a"}.get((major, minor))


class Peer:
    """Times a function of PyTorch by events, many calls in one graph."""

    def __init__(self, torch, function):
        self.torch = torch
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(REPEAT):
                function()

    def ns(self):
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.graph.replay()
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e6 / REPEAT


def ours_ns(module, inputs):
    """Device time of all kernels of a run."""
    report = json.loads(tilewright("run", module, *inputs, "--repeat", REPEAT, "--profile", "-o", "json"))
    return 1e3 * sum(k["median_us"] for k in report["kernels"])


def race(torch, case, options, folder):
    rng = np.random.default_rng(1)
    feeds, model = case.inputs(rng), folder / "model.onnx"
    onnx.save(case.model(), str(model))
    inputs = []
    for name, value in feeds.items():
        path = folder / f"{name}.pb"
        path.write_bytes(numpy_helper.from_array(value, name).SerializeToString())
        inputs += ["--input", f"{name}={path}"]
    target = case.target(torch)
    function, expected = case.peer(torch, feeds)
    peer = Peer(torch, function)
    return [race_way(way, case, options, folder, model, target, inputs, peer, expected) for way in options.ways.split(",")]


def race_way(way, case, options, folder, model, target, inputs, peer, expected):
    module, start = folder / f"{way}.tw", time.monotonic()
    if way == "tuned":
        tilewright("tune", model, "--target", target, "--trials", options.trials, "-o", module, "--log", folder / "log.db",
                   "--state-dir", folder / "state")
    else:
        tilewright("compile", model, "--target", target, "--effort", 0 if way == "default" else 20, "-o", module)
    seconds = time.monotonic() - start
    tilewright("run", module, *inputs, "--repeat", 1, "--output-dir", folder / "out")
    found = numpy_helper.to_array(TensorProto.FromString((folder / "out/output_0.pb").read_bytes())).astype(np.float64)
    error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(ours_ns(module, inputs))
        theirs.append(peer.ns())
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    return {"case": case.name, "way": way, "seconds": round(seconds, 1), "good": error <= LIMIT[case.dtype],
            "error": error, "ours_ns": ours, "peer_ns": theirs, "ratio": theirs / ours, "ours_tflops": case.flops / ours * 1e-3, "peer_tflops": case.flops / theirs * 1e-3}


def text_of(row):
    if "failed" in row:
        return f"{row['case']:24s} failed: {row['failed']}"
    return (f"{row['case']:24s} {row['way']:10s} {row['ratio']:5.2f}x  ours {row['ours_tflops']:7.1f} peer {row['peer_tflops']:7.1f}"
            f" TFLOP/s  error {row['error']:.1e}  made in {row['seconds']:5.1f} s{'' if row['good'] else '  WRONG'}")


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--ways", default="default,predicted,tuned")
    flags.add_argument("--trials", type=int, default=64)
    flags.add_argument("--cases", default="")
    flags.add_argument("-o", "--output", type=Path)
    options = flags.parse_args()
    try:
        import torch
    except ImportError:
        print("[SKIP] gpu_race: no PyTorch to race against")
        return 0
    if not torch.cuda.is_available() or architecture(torch) is None:
        print("[SKIP] gpu_race: no NVIDIA GPU of a kind that a target names")
        return 0
    known, rows = cases(), []
    for name in options.cases.split(",") if options.cases else known:
        with tempfile.TemporaryDirectory(prefix="tilewright-gpu-") as folder:
            try:
                found = race(torch, known[name], options, Path(folder))
            except RuntimeError as failed:
                found = [{"case": name, "good": False, "failed": str(failed)}]
        for row in found:
            print(text_of(row), flush=True)
        rows += found
    document = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "trials": options.trials, "rows": rows}
    if options.output:
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
