#!/usr/bin/env python3
"""DQN against ONNX Runtime on this machine: one interleaved run, A B B A blocks, 1 and 2 threads.

    dqn_vs_onnxruntime.py MODULE_1T.tw MODULE_2T.tw MODEL.onnx [--blocks 12] [--block-s 0.5] [-o RESULT.json]

The ratio is ONNX Runtime's median over ours: above 1 we are faster. Outputs are compared in the same run.
Needs the Python packages onnxruntime and numpy (run it with an interpreter that has them); skips loudly
(exit 77) without. The runtime library is looked for in $TILEWRIGHT_RUNTIME_LIBRARY, else build/release.
"""
import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("TILEWRIGHT_RUNTIME_LIBRARY", str(ROOT / "build/release/lib/libtilewright_runtime.so"))
sys.path.insert(0, str(ROOT / "deploy/bindings/python"))

try:
    import numpy as np
    import onnxruntime
except ImportError as error:
    print(f"[SKIP] dqn_vs_onnxruntime: {error}; pip install onnxruntime numpy")
    sys.exit(77)
import tilewright_runtime as tw  # noqa: E402


def block(run, seconds):
    samples, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        run()
        samples.append(time.perf_counter_ns() - start)
    return samples


def compare(module, model, threads, options):
    session = tw.Session(tw.Module(module), threads)
    ort_options = onnxruntime.SessionOptions()
    ort_options.intra_op_num_threads = threads
    ort_options.inter_op_num_threads = 1
    ort_options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    peer = onnxruntime.InferenceSession(model, ort_options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(7)
    feeds = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in peer.get_inputs()}
    ours_out, peer_out = session.run(feeds), peer.run(None, feeds)[0]
    name = peer.get_outputs()[0].name
    error = float(np.linalg.norm(ours_out[name] - peer_out) / np.linalg.norm(peer_out))
    assert error <= 1e-5, f"outputs differ: |a-e|/|e| = {error}"
    for _ in range(20):
        session.run()
        peer.run(None, feeds)
    ours, theirs = [], []
    for _ in range(options.blocks):
        for who in "ABBA":
            if who == "A":
                ours.append(statistics.median(block(session.run, options.block_s)))
            else:
                theirs.append(statistics.median(block(lambda: peer.run(None, feeds), options.block_s)))
    ratios = [t / o for o, t in zip(ours, theirs)]
    return {"threads": threads, "ours_us": statistics.median(ours) / 1e3, "onnxruntime_us": statistics.median(theirs) / 1e3,
            "ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios), "error": error}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module_1t")
    parser.add_argument("module_2t")
    parser.add_argument("model")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--block-s", type=float, default=0.5)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    rows = [compare(options.module_1t, options.model, 1, options), compare(options.module_2t, options.model, 2, options)]
    print(f"{'threads':>7}  {'ours':>9}  {'ORT':>9}  {'ratio':>6}  range")
    for row in rows:
        print(f"{row['threads']:>7}  {row['ours_us']:>7.1f}us  {row['onnxruntime_us']:>7.1f}us  {row['ratio']:>5.2f}x  "
              f"{row['ratio_low']:.2f}..{row['ratio_high']:.2f}")
    if options.output:
        result = {"benchmark": "dqn_vs_onnxruntime", "onnxruntime": onnxruntime.__version__,
                  "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
                  "date": time.strftime("%Y-%m-%d", time.gmtime()), "command": " ".join(sys.argv), "rows": rows}
        Path(options.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
