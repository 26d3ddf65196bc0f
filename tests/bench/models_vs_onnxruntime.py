#!/usr/bin/env python3
"""Whole models against ONNX Runtime on this machine, in one interleaved run.

    models_vs_onnxruntime.py [NAME ...] [--threads 1 2] [--trials N] [--work DIR] [--build DIR]
                             [--blocks 4] [--block-s 0.5] [-o RESULT.json]

For each model (default: all of tests/models/make_models.py) and number of threads: the module with default
schedules, the module tuned with N trials (0: none; records are kept in WORK/tuner.db, so a second run only
compiles), and ONNX Runtime take turns in blocks A B C C B A. A ratio is ONNX Runtime's time over ours, block by
block, and their median is printed: above 1 we are faster. Outputs are compared before the clock starts.

Needs the Python packages onnxruntime and numpy (run it with an interpreter that has them); skips loudly
(exit 77) without. The models are written by /usr/bin/python3, which has Debian's python3-onnx.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ["dqn", "resnet18", "resnet50", "mobilenet", "lstm_lm", "dcgan", "bert_small"]
# The bound of issue and conformance tests; a faster wrong module is not a result.
MAX_RELATIVE_ERROR = 1e-5


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("/tmp/models_vs_onnxruntime"))
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--block-s", type=float, default=0.5)
    parser.add_argument("-o", "--output", type=Path)
    flags = parser.parse_args()
    for name in flags.names:
        if name not in MODELS:
            parser.error(f"unknown model '{name}': expected some of {', '.join(MODELS)}")
    return flags


def call(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


class Modules:
    """Model files and modules of one run, made on first use."""

    def __init__(self, flags):
        self.flags = flags
        self.cli = flags.build / "bin/tilewright"
        flags.work.mkdir(parents=True, exist_ok=True)

    def model(self, name):
        path = self.flags.work / name / "model.onnx"
        if not path.exists():
            call("/usr/bin/python3", ROOT / "tests/models/make_models.py", self.flags.work, name)
        return path

    def default(self, name, threads):
        path = self.flags.work / f"{name}-default-{threads}t.tw"
        start = time.perf_counter()
        facts = json.loads(call(self.cli, "compile", self.model(name), "--target", f"native,threads={threads}", "-o",
                                path, "--format", "json"))
        return path, facts, time.perf_counter() - start

    def tuned(self, name, threads):
        path = self.flags.work / f"{name}-tuned-{threads}t.tw"
        log = self.flags.work / "tuner.db"
        target = f"native,threads={threads}"
        call(self.cli, "tune", self.model(name), "--target", target, "--trials", self.flags.trials, "--log", log,
             "--state-dir", self.flags.work / "state", "-o", path)
        return path


def block(run, seconds):
    """Median nanoseconds of the calls that fit into the time, at least one."""
    samples, end = [], time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        start = time.perf_counter_ns()
        run()
        samples.append(time.perf_counter_ns() - start)
    return statistics.median(samples)


def check(name, session, feeds, expected, output):
    found = session.run(feeds)[output]
    scale = np.linalg.norm(expected.astype(np.float64))
    error = float(np.linalg.norm(found.astype(np.float64) - expected) / scale)
    if not error <= MAX_RELATIVE_ERROR:
        sys.exit(f"{name}: outputs differ: |a-e|/|e| = {error}")
    return error


def interleave(runs, blocks, seconds):
    """runs: {name: callable} → {name: [block medians]}, in turns forwards and backwards."""
    times = {name: [] for name in runs}
    for _ in range(blocks):
        for name in [*runs, *reversed(runs)]:
            times[name].append(block(runs[name], seconds))
    return times


def input_for(info, rng):
    shape = [d if isinstance(d, int) else 1 for d in info.shape]
    if "int" in info.type:
        return rng.integers(0, 100, shape).astype(np.int64 if "64" in info.type else np.int32)
    return rng.standard_normal(shape).astype(np.float32)


def peer_session(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def measure(name, threads, modules, flags):
    default, facts, compile_s = modules.default(name, threads)
    paths = {"default": default}
    if flags.trials:
        paths["tuned"] = modules.tuned(name, threads)
    peer = peer_session(modules.model(name), threads)
    rng = np.random.default_rng(7)
    feeds = {i.name: input_for(i, rng) for i in peer.get_inputs()}
    output = peer.get_outputs()[0].name
    expected = peer.run(None, feeds)[0]
    sessions = {which: tw.Session(tw.Module(str(path)), threads) for which, path in paths.items()}
    errors = {which: check(f"{name} {which}", s, feeds, expected, output) for which, s in sessions.items()}
    runs = {which: s.run for which, s in sessions.items()}
    runs["onnxruntime"] = lambda: peer.run(None, feeds)
    for run in runs.values():
        block(run, 0.2)
    times = interleave(runs, flags.blocks, flags.block_s)
    row = {"model": name, "threads": threads, "compile_s": round(compile_s, 2),
           "kernels": sum(k["uses"] for k in facts["kernels"]),
           "gflop": round(sum(k["flops"] * k["uses"] for k in facts["kernels"]) / 1e9, 4)}
    for which, samples in times.items():
        row[f"{which}_us"] = round(statistics.median(samples) / 1e3, 1)
    for which in paths:
        ratios = [p / o for o, p in zip(times[which], times["onnxruntime"])]
        row[f"{which}_ratio"] = round(statistics.median(ratios), 3)
        row[f"{which}_ratio_range"] = [round(min(ratios), 3), round(max(ratios), 3)]
        row[f"{which}_error"] = errors[which]
    return row


def print_row(row):
    def of(which):
        if f"{which}_us" not in row:
            return f"{'-':>11}  {'-':>19}"
        low, high = row[f"{which}_ratio_range"]
        return f"{row[f'{which}_us']:>9.0f}us  {row[f'{which}_ratio']:>5.2f}x ({low:.2f}..{high:.2f})"
    print(f"{row['model']:<11} {row['threads']:>2}  {row['onnxruntime_us']:>9.0f}us  {of('default')}  {of('tuned')}", flush=True)


def main():
    flags = parse_flags()
    modules = Modules(flags)
    print(f"{'model':<11} {'T':>2}  {'ORT':>11}  {'default':>11}  {'ratio (range)':<19}  {'tuned':>11}  ratio (range)")
    rows = []
    for name in flags.names or MODELS:
        for threads in flags.threads:
            rows.append(measure(name, threads, modules, flags))
            print_row(rows[-1])
    if flags.output:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        result = {"benchmark": "models_vs_onnxruntime", "onnxruntime": onnxruntime.__version__,
                  "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
                  "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit.stdout.strip(),
                  "command": "tests/bench/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]), "rows": rows}
        flags.output.parent.mkdir(parents=True, exist_ok=True)
        flags.output.write_text(json.dumps(result, indent=1) + "\n")


try:
    import numpy as np
    import onnxruntime
except ImportError as error:
    if __name__ == "__main__" and not {"-h", "--help"} & set(sys.argv):
        print(f"[SKIP] models_vs_onnxruntime: {error}; pip install onnxruntime numpy")
        sys.exit(77)

if __name__ == "__main__":
    build = parse_flags().build
    os.environ.setdefault("TILEWRIGHT_RUNTIME_LIBRARY", str(build / "lib/libtilewright_runtime.so"))
    sys.path.insert(0, str(ROOT / "deploy/bindings/python"))
    import tilewright_runtime as tw  # noqa: E402
    main()
