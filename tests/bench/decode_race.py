#!/usr/bin/env python3
"""Time per decoded token of a small language model against ONNX Runtime, one thread: cache of 1, 128 and 512 tokens, floats and 4 bits.

decode_race.py [-o RESULTS.json] [--threads 1] [--seconds S] [--large] prints milliseconds of both and their ratio, above 1 we are faster; the
time to read a prompt of as many tokens; the bytes per second that a token reads, counting weights and cache once, and their share of what the
machine reads in the same turns; and where our time goes with a cache of 512. Ours keeps its cache as state. The peer gets what its run before
gave out. Both take turns: the fastest of each is printed, and the median of the ratios of turns. One thread is timed by its processor time, so
that other programs matter little."""

import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "support"), str(ROOT / "models"), str(ROOT.parent / "deploy" / "bindings" / "python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from decoder_models import BLOCK, Config, Decoder  # noqa: E402
from fleet import BIN  # noqa: E402

os.environ.setdefault("TILEWRIGHT_RUNTIME_LIBRARY", str(BIN.parent / "lib" / "libtilewright_runtime.so"))
import tilewright_runtime as tw  # noqa: E402

CACHES = (1, 128, 512)
SMALL = {"width": 512, "layers": 8, "heads": 8, "kv_heads": 2, "vocab": 4096}
LARGE = {"width": 768, "layers": 12, "heads": 12, "kv_heads": 4, "vocab": 16384}
MOST = 640


class Ours:
    def __init__(self, decoder, model, threads):
        self.decoder, module = decoder, model.with_suffix(".tw")
        sizes = [word for flag in decoder.shape_flags(f"0..{MOST}", f"1..{MOST}") for word in ("--shape", flag)]
        subprocess.run([BIN / "tilewright", "compile", model, "--target", f"native,threads={threads}", "--effort", "0", "--state", "known",
                        "-o", module, *sizes], check=True, capture_output=True)
        self.session = tw.Session(tw.Module(module), threads)

    def read(self, tokens):
        self.session.reset()
        return self.session.run(self.decoder.feeds(tokens, 0))["logits"]

    def decode(self, token, past):
        self.session.reset(past)
        return self.session.run(self.decoder.feeds(token, past))["logits"]

    def kernels(self, token, past):
        """(microseconds, kernel) of a token, by operators of the kernel."""
        for name, array in self.decoder.feeds(token, past).items():
            self.session.set_input(name, array)
        launches = json.loads(self.session.module.manifest)["functions"][0]["launches"]
        best = [float("inf")] * len(launches)
        for _ in range(30):
            self.session.reset(past)
            best = [min(old, ns) for old, (_, ns) in zip(best, self.session.profile())]
        total = Counter()
        for launch, ns in zip(launches, best):
            total[re.sub(r"^tw_kernel_k\d+_", "", launch["symbol"])] += ns / 1000
        return [(round(us, 1), kernel) for kernel, us in total.most_common(8)]


class OnnxRuntime:
    def __init__(self, decoder, model, threads):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.decoder = decoder
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.names = [output.name for output in self.session.get_outputs()]

    def run(self, feeds):
        return dict(zip(self.names, self.session.run(None, feeds)))

    def read(self, tokens):
        found = self.run({**self.decoder.feeds(tokens, 0), **self.decoder.empty_cache()})
        self.cache = {past: found[present] for past, present in self.decoder.cache_names()}
        return found["logits"]

    def decode(self, token, past):
        return self.run({**self.decoder.feeds(token, past), **self.cache})["logits"]


class Reading:
    """As many bytes as a token reads, in parts of as many threads: libc's search for a byte that is not there."""

    def __init__(self, size, threads):
        self.find = ctypes.CDLL(None).memchr
        self.find.argtypes, self.find.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p
        self.parts = [np.ones(int(size) // threads, np.uint8) for _ in range(threads)]
        self.pool = ThreadPoolExecutor(threads)

    def run(self):
        parts = [(part.ctypes.data, 2, part.nbytes) for part in self.parts]
        if len(parts) == 1:
            return self.find(*parts[0])
        return list(self.pool.map(lambda part: self.find(*part), parts))


def in_turns(runs, seconds, clock):
    """Milliseconds of the fastest run of each, and its median over turns A B C C B A of the first's share of its time."""
    best, spent = [float("inf")] * len(runs), []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(spent) < 3:
        spent.append([0] * len(runs))
        for i in (*range(len(runs)), *reversed(range(len(runs)))):
            start = clock()
            runs[i]()
            ms = (clock() - start) * 1000
            spent[-1][i] += ms
            best[i] = min(best[i], ms)
    return best, [statistics.median(turn[i] / turn[0] for turn in spent) for i in range(len(runs))]


def against_peer(runs, seconds, clock):
    """Of ours and the peer's, and what more there is to run in the same turns."""
    best, ratios = in_turns(runs, seconds, clock)
    return {"ours_ms": round(best[0], 3), "peer_ms": round(best[1], 3), "ratio": round(ratios[1], 2)}, ratios[2:]


def bytes_of_a_token(config, past):
    """Of all weights that multiply, with their scales, and of the cache."""
    kv, rows = config.kv_heads * config.head, config.width
    products = config.layers * rows * (2 * config.width + 2 * kv + 3 * config.inner) + config.vocab * rows
    of_weight = 4 if config.bits == 32 else config.bits / 8 + 4 / BLOCK
    return products * of_weight + config.layers * 2 * kv * past * 4


def race(config, folder, threads, seconds):
    decoder = Decoder(config)
    model = folder / f"{config.form}{config.bits}.onnx"
    onnx.save(decoder.model(), str(model))
    runners = [kind(decoder, model, threads) for kind in (Ours, OnnxRuntime)]
    rng = np.random.default_rng(0)
    clock = time.thread_time if threads == 1 else time.perf_counter
    for past in CACHES:
        tokens, token = (rng.integers(0, config.vocab, (1, length)) for length in (past, 1))
        reading, _ = against_peer([partial(runner.read, tokens) for runner in runners], seconds, clock)
        a, b = (runner.decode(token, past) for runner in runners)
        assert np.abs(a - b).max() <= 1e-3 * np.abs(b).max(), "both compute the same"
        size = bytes_of_a_token(config, past)
        runs = [partial(runner.decode, token, past) for runner in runners]
        decoding, (of_read,) = against_peer([*runs, Reading(size, threads).run], seconds, clock)
        decoding["gb_s"] = round(size / decoding["ours_ms"] / 1e6, 2)
        decoding["of_read"] = round(of_read, 2)
        row = {"form": config.form, "bits": config.bits, "cache": past, "token": decoding, "prompt": reading}
        print(f"{config.form:8} {config.bits:2} bits  cache {past:3}  token {decoding['ours_ms']:7.2f} {decoding['peer_ms']:7.2f} ms  {decoding['ratio']:5.2f}"
              f"  {decoding['gb_s']:5.1f} GB/s, {decoding['of_read']:.0%} of reading"
              f"   prompt {reading['ours_ms']:7.1f} {reading['peer_ms']:7.1f} ms  {reading['ratio']:5.2f}", flush=True)
        if past == CACHES[-1]:
            row["kernels_us"] = runners[0].kernels(token, past)
        yield row


def machine():
    """The processor's name, and the day."""
    name = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{name.group(1) if name else 'unknown'}, {os.cpu_count()} threads, shared; {time.strftime('%Y-%m-%d')}"


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("-o", "--output", type=Path)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--seconds", type=float, default=3, help="for each number")
    flags.add_argument("--large", action="store_true", help="a decoder of 108 M parameters, with 4 bits only")
    options = flags.parse_args()
    try:
        import onnxruntime
    except ImportError:
        print("[SKIP] onnxruntime is not installed")
        sys.exit(77)
    shape = LARGE if options.large else SMALL
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as where:
        for form in ("plain", "grouped"):
            for bits in ((4,) if options.large else (32, 4)):
                rows += race(Config(form=form, bits=bits, **shape), Path(where), options.threads, options.seconds)
    for row in rows:
        if "kernels_us" in row:
            print(f"{row['form']} {row['bits']} bits, cache {row['cache']}, us:",
                  ", ".join(f"{kernel} {us:.0f}" for us, kernel in row["kernels_us"]))
    if options.output:
        options.output.write_text(json.dumps({"peer": f"onnxruntime {onnxruntime.__version__}", "machine": machine(),
                                              "threads": options.threads, "model": shape, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
