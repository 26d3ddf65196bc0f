#!/usr/bin/env python3
"""How much faster networks are in int8 than in float32, on the processors of other machines that this one can be: `tilewright
quantize` makes the int8 models, schedules are the defaults, one thread; `tilewright bench diff` runs the two in turns.

    bytes_race.py [--cpu NAME ...] [--seconds S] [-o RESULTS.json] [NETWORK ...]

A ratio is the time in float32 / the time in int8, the median of pairs. Exit code 1 if one is below 1: then int8 is slower."""

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "support"), str(ROOT / "long")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from fleet import make_models  # noqa: E402
from lane import commit  # noqa: E402
from network_check import command  # noqa: E402
from quantized_networks import input_shape, noisy, quantize  # noqa: E402

# Dot products of bytes in AVX-512, none in AVX-512, AVX2, SSE2.
CPUS = ("icelake-server", "skylake-avx512", "haswell", "x86-64")
NETWORKS = ("resnet18", "resnet50", "mobilenet", "dqn", "bert_small")
CALIBRATION = 4


def models(folder, name):
    """The network in float32 and in int8."""
    path = make_models(folder, name, "--logits") / name / "model.onnx"
    shape = input_shape(onnx.load(path))
    rng = np.random.default_rng(0)
    np.save(folder / "data.npy", np.concatenate(
        [noisy(i, shape, i) if len(shape) == 4 else rng.normal(0, 1, shape).astype(np.float32) for i in range(CALIBRATION)]))
    quantize(path, folder / "data.npy", folder / "int8.onnx")
    return path, folder / "int8.onnx"


def race(folder, pair, cpu, seconds):
    modules = [folder / f"{i}.tw" for i in range(2)]
    for model, module in zip(pair, modules):
        command("compile", model, "--target", f"cpu,arch=x86_64,cpu={cpu},threads=1", "--effort", 0, "-o", module)
    found = json.loads(command("bench", "diff", *modules, "--seconds", seconds, "-o", "json"))
    return {key: round(found[key], 3) for key in ("ratio", "ratio_low", "ratio_high")}


def runs_here(cpu):
    rows = json.loads(command("targets", "-o", "json"))["targets"]
    return any(row["runs_here"] for row in rows if row["target"] == f"cpu,arch=x86_64,cpu={cpu}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", nargs="+", default=CPUS)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=NETWORKS)
    flags = parser.parse_args()
    cpus = [cpu for cpu in flags.cpu if runs_here(cpu)]
    for cpu in set(flags.cpu) - set(cpus):
        print(f"[SKIP] this machine cannot run code for {cpu}")
    rows = []
    for name in flags.networks:
        with tempfile.TemporaryDirectory(prefix="tilewright-bytes-") as folder:
            pair = models(Path(folder), name)
            for cpu in cpus:
                rows.append({"network": name, "cpu": cpu, **race(Path(folder), pair, cpu, flags.seconds)})
                print(f"{name:12} {cpu:16} {rows[-1]['ratio']:6.2f}", flush=True)
    if flags.output:
        flags.output.write_text(json.dumps({
            "commit": commit(), "command": "tests/bench/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "machine": platform.machine(), "unit": "time in float32 / time in int8", "rows": rows}, indent=1) + "\n")
    return 0 if all(row["ratio"] >= 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
