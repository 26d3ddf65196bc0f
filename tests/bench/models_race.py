#!/usr/bin/env python3
"""Whole models against other runtimes on this machine, in one interleaved run.

    models_race.py [NAME ...] [--threads 1 2] [--effort S] [--trials N] [--peers onnxruntime openvino ...] [--work DIR]
                   [--light DIR] [--build DIR] [--blocks 4] [--block-s 0.5] [-o RESULT.json]

NAME: a model of tests/models/make_models.py (default: the seven, an attention layer, an LSTM cell, and three in int8), one of its
networks of images with _int8 behind it (resnet18_int8: without the softmax, quantised by ONNX Runtime, which needs
the package onnx, with random calibration data) or the path of an ONNX file, whose inputs are those of test_data_set_0 in its folder if it has one
(this needs the package onnx, too; sizes that the model leaves open are those of these inputs), else random; --light DIR adds every DIR/*/model.onnx (../shared/onnx/light where it is there). For each model and
number of threads: the module with default schedules, that with schedules predicted in S seconds (0: none), the module tuned with N trials (0: none; records are kept in
WORK/tuner.db, so a second run only compiles), and every peer (model_peers.py; default: all that are installed)
take turns in blocks A B C C B A. A ratio is the peer's time over ours, block by block, and their median is
printed: above 1 we are faster. The limit beside ours is the roofline: the sum over kernels of operations over the
FMA peak or bytes over the bandwidth of a working set of the model's size, whichever is more. Outputs are compared before the clock starts.

Needs numpy and onnxruntime, whose outputs are the reference (run it with an interpreter that has them); skips
loudly (exit 77) without. The models are written by /usr/bin/python3, which has Debian's python3-onnx.
"""
import argparse
import functools
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
from model_peers import PEERS, onnx_runtime_session, version  # noqa: E402

MODELS = ["dqn", "resnet18", "resnet50", "mobilenet", "lstm_lm", "dcgan", "bert_small"]
PARTS = ["attention", "lstm_cell"]
INT8 = ["resnet18_int8", "resnet50_int8", "mobilenet_int8"]
KNOWN = MODELS + PARTS + INT8
# The bound of issue and conformance tests; a faster wrong module is not a result.
MAX_RELATIVE_ERROR = 1e-5
# Of files: tests/long/shared_models.py judges the real models by tolerances of their own.
MAX_FILE_ERROR = 1e-4
# Of models in float16: what their own rounding makes.
MAX_HALF_ERROR = 1e-2
# Outputs in bytes: sums that lie on the edge between two of them are rounded to either, and what is computed from
# those moves along. So many are at most one step away.
MIN_NEXT = 0.99
# Products of bytes in one instruction for each of floats.
BYTE_SPEEDUP = 4


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(KNOWN))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--effort", type=float, default=0, metavar="S")
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--light", type=Path, metavar="DIR")
    parser.add_argument("--work", type=Path, default=Path("/tmp/models_race"))
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--block-s", type=float, default=0.5)
    parser.add_argument("-o", "--output", type=Path)
    flags = parser.parse_args()
    for name in flags.names:
        if name not in KNOWN and not Path(name).is_file():
            parser.error(f"unknown model '{name}': expected a file or some of {', '.join(KNOWN)}")
    # Who has no onnx cannot quantise.
    flags.names = flags.names or MODELS + PARTS + (INT8 if importlib.util.find_spec("onnx") else [])
    if flags.light:
        found = sorted(flags.light.glob("*/model.onnx"))
        if not found:
            print(f"[SKIP] light topologies: no {flags.light}/*/model.onnx")
        flags.names += [str(path) for path in found]
    return flags


def call(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def stem(name):
    return name if name in KNOWN else Path(name).resolve().parent.name


class RandomImages:
    """Calibration data: a few inputs like those that are timed."""

    def __init__(self, model, count=4):
        info = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).get_inputs()[0]
        rng = np.random.default_rng(0)
        self.left = [{info.name: input_for(info, rng)} for _ in range(count)]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantise(model, result):
    """As ONNX Runtime's guide has it: QuantizeLinear and DequantizeLinear around every operator, static ranges, a
    scale for each output channel of the weights."""
    from onnxruntime.quantization import QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process
    prepared = result.with_name("prepared.onnx")
    quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
    quantize_static(str(prepared), str(result), RandomImages(prepared), quant_format=QuantFormat.QDQ, per_channel=True)
    prepared.unlink()


class Modules:
    """Model files and modules of one run, made on first use."""

    def __init__(self, flags):
        self.flags = flags
        self.cli = flags.build / "bin/tilewright"
        flags.work.mkdir(parents=True, exist_ok=True)

    def model(self, name):
        if name not in KNOWN:
            return Path(name)
        path = self.flags.work / name / "model.onnx"
        if path.exists():
            return path
        if name not in INT8:
            call("/usr/bin/python3", ROOT / "tests/models/make_models.py", self.flags.work, name)
            return path
        network = name.removesuffix("_int8")
        path.parent.mkdir(parents=True, exist_ok=True)
        call("/usr/bin/python3", ROOT / "tests/models/make_models.py", path.parent, network, "--logits")
        quantise(path.parent / network / "model.onnx", path)
        return path

    def compiled(self, name, threads, effort):
        path = self.flags.work / f"{stem(name)}-{'predicted' if effort else 'default'}-{threads}t.tw"
        model = self.model(name)
        start = time.perf_counter()
        facts = json.loads(call(self.cli, "compile", model, *shape_flags(model), "--target", f"native,threads={threads}",
                                "--effort", effort, "-o", path, "--format", "json"))
        return path, facts, time.perf_counter() - start

    def limit_us(self, name, facts, threads):
        """The roofline of a compiled model: no schedule can be quicker on this machine."""
        size = max(1 << 16, facts["constant_bytes"] + facts["arena_bytes"])
        can = json.loads(call(self.flags.build / "bin/machine_limits", "--threads", threads, size))
        gflop_s = can["gflop_s"] * (BYTE_SPEEDUP if is_quantised(name) else 1)
        return sum(k["uses"] * max(k["flops"] / gflop_s, k["bytes"] / can["read"][0]["gb_s"])
                   for k in facts["kernels"]) / 1e3

    def tuned(self, name, threads):
        path = self.flags.work / f"{stem(name)}-tuned-{threads}t.tw"
        log = self.flags.work / "tuner.db"
        target = f"native,threads={threads}"
        call(self.cli, "tune", self.model(name), *shape_flags(self.model(name)), "--target", target, "--trials", self.flags.trials, "--log", log,
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


def distance(found, expected):
    exact = expected.astype(np.float64)
    return float(np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact))


def next_to(found, expected):
    """How many outputs in bytes are equal or next to the expected ones."""
    values = np.unique(expected.astype(np.float64))
    step = np.diff(values).min() if values.size > 1 else 1.0
    return float((np.abs(found.astype(np.float64) - expected) < 1.5 * step).mean())


@functools.cache
def is_quantised(name):
    """Whether a model computes in bytes: then outputs may be a step off."""
    return name in INT8 or name not in KNOWN and b"QLinearConv" in Path(name).read_bytes()


def differs(name, found, expected):
    """What is wrong with outputs; nothing where they are right."""
    if is_quantised(name):
        near = next_to(found, expected)
        return None if near >= MIN_NEXT else f"{near:.2%} are equal or next to the expected"
    error = distance(found, expected)
    most = MAX_HALF_ERROR if expected.dtype == np.float16 else MAX_RELATIVE_ERROR if name in KNOWN else MAX_FILE_ERROR
    return None if error <= most else f"|a-e|/|e| = {error}"


def check(name, which, session, feeds, expected, output):
    found = session.run(feeds)[output]
    problem = differs(name, found, expected)
    if problem:
        sys.exit(f"{name} {which}: outputs differ: {problem}")
    return distance(found, expected)


def interleave(runs, blocks, seconds):
    """runs: {name: callable} → {name: [block medians]}, in turns forwards and backwards."""
    times = {name: [] for name in runs}
    for _ in range(blocks):
        for name in [*runs, *reversed(runs)]:
            times[name].append(block(runs[name], seconds))
    return times


@functools.cache
def test_inputs(model):
    """{name: value} of the first test set in the model's folder; None: it has none."""
    folder = Path(model).parent / "test_data_set_0"
    if not folder.is_dir():
        return None
    from onnx import TensorProto, numpy_helper
    tensors = [TensorProto.FromString(path.read_bytes()) for path in sorted(folder.glob("input_*.pb"))]
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in tensors}


def shape_flags(model):
    return [word for name, value in (test_inputs(model) or {}).items() if value.ndim
            for word in ("--shape", f"{name}={'x'.join(map(str, value.shape))}")]


def input_for(info, rng):
    shape = [d if isinstance(d, int) else 1 for d in info.shape]
    if "int" in info.type:
        return rng.integers(0, 100, shape).astype(np.int64 if "64" in info.type else np.int32)
    return rng.standard_normal(shape).astype(np.float32)


def make_peers(name, model, threads, feeds, expected, flags):
    """{name: peer} of those that take the model, {name: why not} of the others."""
    peers, refused = {}, {}
    for peer_name in flags.peers:
        if version(PEERS[peer_name]) is None:
            continue
        try:
            peer = PEERS[peer_name](model, threads, feeds)
            problem = differs(name, peer.run(), expected)
            if problem:
                raise ValueError(f"its output differs: {problem}")
            peers[peer_name] = peer
        except Exception as error:  # a peer's own exceptions: of any kind
            refused[peer_name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return peers, refused


def measure(name, threads, modules, flags):
    default, facts, compile_s = modules.compiled(name, threads, 0)
    paths = {"default": default}
    if flags.effort:
        paths["predicted"], predicted, predicted_s = modules.compiled(name, threads, flags.effort)
    if flags.trials:
        paths["tuned"] = modules.tuned(name, threads)
    sessions = {which: tw.Session(tw.Module(str(path)), threads) for which, path in paths.items()}
    reference = onnx_runtime_session(modules.model(name))
    rng = np.random.default_rng(7)
    feeds = test_inputs(modules.model(name)) or {i.name: input_for(i, rng) for i in reference.get_inputs()}
    output = reference.get_outputs()[0].name
    expected = reference.run(None, feeds)[0]
    del reference
    errors = {which: check(name, which, s, feeds, expected, output) for which, s in sessions.items()}
    peers, refused = make_peers(name, modules.model(name), threads, feeds, expected, flags)
    runs = {which: s.run for which, s in sessions.items()} | {n: p.run for n, p in peers.items()}
    for run in runs.values():
        block(run, 0.2)
    times = interleave(runs, flags.blocks, flags.block_s)
    row = {"model": stem(name), "threads": threads, "compile_s": round(compile_s, 2),
           "kernels": sum(k["uses"] for k in facts["kernels"]),
           "gflop": round(sum(k["flops"] * k["uses"] for k in facts["kernels"]) / 1e9, 4),
           "limit_us": round(modules.limit_us(name, facts, threads), 1), "refused": refused}
    for which, samples in times.items():
        row[which] = {"us": round(statistics.median(samples) / 1e3, 1), "low_us": round(min(samples) / 1e3, 1),
                      "high_us": round(max(samples) / 1e3, 1)}
    if flags.effort:
        row["predicted"]["compile_s"] = round(predicted_s, 2)
        row["predicted"]["kernels"] = sum(k["predicted"] for k in predicted["kernels"])
        for other in paths.keys() - {"predicted"}:
            row["predicted"][f"against_{other}"] = against(times[other], times["predicted"])
    for which in paths:
        row[which]["error"] = errors[which]
        row[which]["ratios"] = {peer: against(times[peer], times[which]) for peer in peers}
    return row


def against(theirs, ours):
    ratios = [p / o for o, p in zip(ours, theirs)]
    return [round(f(ratios), 3) for f in (statistics.median, min, max)]


def print_row(row, peers):
    def of(which):
        if which not in row:
            return f"{'-':>9}       " + "".join(f"{'-':>12}" for _ in peers)
        ratios = row[which]["ratios"]
        return f"{row[which]['us']:>9.0f}us {row['limit_us'] / row[which]['us']:>4.0%}" + "".join(
            f"{ratios[p][0]:>11.2f}x" if p in ratios else f"{'-':>12}" for p in peers)
    print(f"{row['model']:<17} {row['threads']:>2}  {'  '.join(map(of, ('default', 'predicted', 'tuned')))}", flush=True)


def main():
    flags = parse_flags()
    onnxruntime.set_default_logger_severity(3)  # a warning for each run costs time
    modules = Modules(flags)
    peers = [name for name in flags.peers if version(PEERS[name])]
    columns = "".join(f"{name:>12}" for name in peers)
    print(f"{'model':<17} {'T':>2}" + "".join(f"  {which:>11} {'':>4}{columns}" for which in ("default", "predicted", "tuned")))
    rows = []
    for name in flags.names:
        for threads in flags.threads:
            rows.append(measure(name, threads, modules, flags))
            print_row(rows[-1], peers)
    for name, why in sorted({(n, w) for row in rows for n, w in row["refused"].items()}):
        print(f"# {name} cannot take a model: {why}")
    if flags.output:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        result = {"benchmark": "models_race", "peers": {name: version(PEERS[name]) for name in peers},
                  "machine": machine(), "cores": os.cpu_count(),
                  "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit.stdout.strip(),
                  "command": "tests/bench/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]), "rows": rows}
        flags.output.parent.mkdir(parents=True, exist_ok=True)
        flags.output.write_text(json.dumps(result, indent=1) + "\n")


def machine():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


try:
    import numpy as np
    import onnxruntime
except ImportError as error:
    if __name__ == "__main__" and not {"-h", "--help"} & set(sys.argv):
        print(f"[SKIP] models_race: {error}; pip install onnxruntime numpy")
        sys.exit(77)

if __name__ == "__main__":
    build = parse_flags().build
    os.environ.setdefault("TILEWRIGHT_RUNTIME_LIBRARY", str(build / "lib/libtilewright_runtime.so"))
    sys.path.insert(0, str(ROOT / "deploy/bindings/python"))
    import tilewright_runtime as tw  # noqa: E402
    main()
