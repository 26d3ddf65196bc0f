#!/usr/bin/env python3
"""What a graph pass is worth: launches, kernels and time of each network compiled as usual and with other flags,
one interleaved run (A B B A blocks), and how near the memory plan comes to its bound.

    tests/bench/pass_table.py [NAME|MODEL.onnx ...] [--other="--disable-pass fuse_operators"] [--effort 0] [--threads 1] [-o RESULT.json]

Default schedules; with --effort S those that the cost model chooses in S seconds. Inputs of an ONNX file are random.
The ratio is the other median over the usual one: above 1 the usual compilation wins. Outputs of both are compared in
the same run.
Binaries come from $TILEWRIGHT_BUILD_DIR (default build/release); needs Debian's python3-onnx and python3-numpy.
"""
import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "deploy/bindings/python"))
from fleet import BUILD, make_models  # noqa: E402
from network_check import NAMES, command  # noqa: E402

os.environ.setdefault("TILEWRIGHT_RUNTIME_LIBRARY", str(BUILD / "lib/libtilewright_runtime.so"))

import numpy as np  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402

import tilewright_runtime as tw  # noqa: E402


def block(session, seconds):
    samples, end = [], time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        start = time.perf_counter_ns()
        session.run()
        samples.append(time.perf_counter_ns() - start)
    return statistics.median(samples)


def build(model, folder, options, name, flags):
    module = Path(folder) / f"{name}.tw"
    summary = json.loads(command("compile", model, "--target", f"native,threads={options.threads}", "-o", module,
                                 "--effort", options.effort, "--format", "json", *flags))
    return tw.Session(tw.Module(str(module)), options.threads), summary


def model_and_feeds(name, folder):
    if name.endswith(".onnx"):
        return Path(name), None
    case = make_models(folder, name) / name
    feeds = {}
    for path in sorted((case / "test_data_set_0").glob("input_*.pb")):
        tensor = TensorProto.FromString(path.read_bytes())
        feeds[tensor.name] = numpy_helper.to_array(tensor)
    return case / "model.onnx", feeds


def measure(name, options):
    with tempfile.TemporaryDirectory(prefix="tilewright-passes-") as folder:
        model, feeds = model_and_feeds(name, folder)
        usual, summary = build(model, folder, options, "usual", ())
        other, other_summary = build(model, folder, options, "other", options.other.split())
        if feeds is None:
            rng = np.random.default_rng(1)
            feeds = {info.name: rng.random(info.shape).astype(info.dtype) for info in usual.module.inputs}
        a, b = (next(iter(session.run(feeds).values())) for session in (usual, other))
        error = float(np.linalg.norm(a - b) / np.linalg.norm(b))
        assert error <= 1e-5, f"{name}: outputs differ: {error}"
        times = {"A": [], "B": []}
        for _ in range(options.blocks):
            for who in "ABBA":
                times[who].append(block(usual if who == "A" else other, options.block_s))
    ratios = [b / a for a, b in zip(times["A"], times["B"])]

    def count(of):
        return sum(kernel["uses"] for kernel in of["kernels"])
    return {"network": label(name), "threads": options.threads, "launches": count(summary), "launches_other": count(other_summary),
            "kernels": len(summary["kernels"]), "kernels_other": len(other_summary["kernels"]),
            "usual_us": statistics.median(times["A"]) / 1e3, "other_us": statistics.median(times["B"]) / 1e3,
            "ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios), "error": error,
            "arena_bytes": summary["arena_bytes"], "arena_bound_bytes": summary["arena_bound_bytes"],
            "arena_bytes_other": other_summary["arena_bytes"]}


def label(name):
    return Path(name).parent.name if name.endswith(".onnx") else name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES) + ", or the path of an ONNX file")
    parser.add_argument("--other", default="--disable-pass fuse_operators", help="flags of the other compilation")
    parser.add_argument("--effort", type=float, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--block-s", type=float, default=0.4)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    print(f"{'network':24s} {'launches':>13s} {'usual':>11s} {'other':>11s} {'ratio':>6s}  range       arena/bound")
    rows = []
    for name in options.names or NAMES:
        row = measure(name, options)
        rows.append(row)
        print(f"{row['network']:24s} {row['launches']:>5d} / {row['launches_other']:<5d} {row['usual_us']:>9.0f}us {row['other_us']:>9.0f}us "
              f"{row['ratio']:>5.2f}x  {row['ratio_low']:.2f}..{row['ratio_high']:.2f}  "
              f"{row['arena_bytes'] / max(1, row['arena_bound_bytes']):.3f}", flush=True)
    if options.output:
        result = {"benchmark": "pass_table", "other": options.other, "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
                  "date": time.strftime("%Y-%m-%d", time.gmtime()), "command": " ".join(["tests/bench/pass_table.py", *sys.argv[1:]]), "rows": rows}
        Path(options.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
