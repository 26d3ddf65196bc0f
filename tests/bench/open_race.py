#!/usr/bin/env python3
"""What open sizes cost: a module of open sizes against the module compiled for each size, paired in one process, one thread. Schedules are the
defaults, or with --effort those that the cost model predicts; with --trials the fixed modules are tuned by that many measurements each.

open_race.py [-o RESULTS.json] [--model NAME] [--seconds S] [--effort S] [--trials N] [--target T] prints, per model and size, time of the fixed module / time of the open one: 1 is equal,
the bar is 0.9; at the sizes of SPECIALISED also of the module that has functions for these (bar: 0.97). Where onnxruntime is installed, the open
module's output of each size must be its output (‖a−e‖/‖e‖ of 1e-5), or the exit code is 1. Then what modules cost: processor
seconds of compiling and bytes of the module, of one size (the mean of all), of open sizes, and with the specialisations."""

import argparse
import datetime
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "models"), str(ROOT / "support")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from fleet import BIN, make_models  # noqa: E402
from model_peers import onnx_runtime_session  # noqa: E402
from network_check import load  # noqa: E402
from open_models import encoder, lstm, unet  # noqa: E402

MOST_ERROR = 1e-5



def tilewright(*words):
    return subprocess.run([BIN / "tilewright", *map(str, words)], check=True, capture_output=True, text=True).stdout


def resnet18(folder, **open_axes):
    """ResNet-18 for images of 224, whose dimensions of these names are open."""
    model = onnx.load(str(make_models(folder, "resnet18") / "resnet18" / "model.onnx"))
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for name, axis in open_axes.items():
        dims[axis].Clear()
        dims[axis].dim_param = name
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return model


def each(*names, at, **others):
    """Sizes that all of these names have, and fixed ones."""
    return [dict.fromkeys(names, size) | others for size in at]


# Maker, dimensions (open ones are ranges), sizes: powers of two and others. The encoder is bert_small with its length open.
MODELS = {
    "resnet18": (lambda folder: resnet18(folder, N=0), {"N": "1..32"}, each("N", at=(1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 19, 24, 31, 32))),
    "resnet18 images": (lambda folder: resnet18(folder, H=2, W=3), {"H": "64..512", "W": "64..512"},
                        each("H", "W", at=(64, 65, 97, 128, 131, 160, 200, 223, 224, 256, 257, 333, 384, 511, 512))),
    "encoder 4x512": (lambda _: encoder(512, 8, 4), {"N": "1..4", "L": "1..512"},
                      each("L", at=(1, 2, 3, 4, 7, 8, 13, 16, 31, 32, 33, 64, 77, 100, 128, 200, 256, 333, 384, 512), N=1)),
    "lstm 2x650": (lambda _: lstm(10000, 650), {"T": "1..128", "N": "1"},
                   each("T", at=(1, 2, 3, 4, 5, 7, 8, 11, 16, 23, 31, 32, 33, 50, 64, 77, 100, 127, 128))),
    "unet": (lambda _: unet(), {"N": "1", "H": "16..512", "W": "16..512"},
             each("H", "W", at=(16, 17, 32, 33, 50, 64, 77, 100, 128, 150, 200, 225, 256, 333, 400, 512))),
}
SPECIALISED = {
    "resnet18": [{"N": n} for n in (1, 4, 8)],
    "encoder 4x512": [{"N": 1, "L": n} for n in (4, 32, 100, 128, 384)],
}


def shapes(sizes):
    return [word for name, size in sizes.items() for word in ("--shape", f"{name}={size}")]


class Race:
    """One model in a folder: its modules, and their races."""

    def __init__(self, folder, name, flags):
        self.name, self.seconds, self.effort, self.target, self.trials = name, flags.seconds, flags.effort, flags.target, flags.trials
        make, self.ranges, self.cases = MODELS[name]
        self.model, self.fixed, self.open, self.special = (Path(folder) / file for file in ("model.onnx", "fixed.tw", "open.tw", "special.tw"))
        onnx.save(make(folder), str(self.model))
        self.peer = onnx_runtime_session(self.model) if importlib.util.find_spec("onnxruntime") else None
        if self.peer is None:
            print(f"{name:16} [SKIP] no onnxruntime: outputs are compared with none", flush=True)

    def error(self, sizes):
        """‖a−e‖/‖e‖ of the open module's output against ONNX Runtime's."""
        (x,) = self.peer.get_inputs()
        shape = [sizes.get(dim, int(self.ranges.get(dim, "1").split("..")[0])) if isinstance(dim, str) else dim for dim in x.shape]
        random = np.random.default_rng(1)
        value = random.integers(0, 1000, shape) if x.type == "tensor(int64)" else random.standard_normal(shape, np.float32)
        folder = self.model.parent
        np.save(folder / "x.npy", value)
        tilewright("run", self.open, "--input", f"{x.name}={folder / 'x.npy'}", "--output-dir", folder / "out", "--repeat", 1)
        expected = self.peer.run(None, {x.name: value})[0].astype(np.float64)
        return float(np.linalg.norm(load(folder / "out/output_0.pb") - expected) / np.linalg.norm(expected))

    def compile(self, module, sizes, points=()):
        """What the module cost: processor seconds, bytes."""
        words = [word for point in points for word in ("--specialise", ",".join(f"{k}={v}" for k, v in point.items()))]
        before = os.times()
        said = tilewright("compile", self.model, "--target", self.target, "--effort", self.effort, "-o", module, *shapes(sizes), *words)
        after = os.times()
        self.compiled_for = re.search(r"\btarget (\S+)", said).group(1)
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        return {"seconds": round(seconds, 2), "bytes": module.stat().st_size}

    def tune(self, module, sizes):
        """Sizes of one model share a log: what one measured, the next may recall."""
        folder = module.parent
        tilewright("tune", self.model, "--target", self.target, "--trials", self.trials, "--log", folder / "tuner.db", "--state-dir", folder / "state",
                   "-o", module, *shapes(sizes))

    def ratio(self, module, sizes):
        found = json.loads(tilewright("bench", "diff", self.fixed, module, *shapes(sizes), "--seconds", self.seconds, "-o", "json"))
        return {key: found[key] for key in ("ratio", "ratio_low", "ratio_high")}

    def run(self):
        points = SPECIALISED.get(self.name, [])
        cost = {"open": self.compile(self.open, self.ranges)}
        if points:
            cost["specialised"] = self.compile(self.special, self.ranges, points)
        rows, fixed = [], []
        for sizes in self.cases:
            fixed.append(self.compile(self.fixed, self.ranges | sizes))
            if self.trials:
                self.tune(self.fixed, self.ranges | sizes)
            row = {"model": self.name, "sizes": sizes, **self.ratio(self.open, sizes)}
            if sizes in points:
                row["specialised"] = self.ratio(self.special, sizes)
            if self.peer is not None:
                row["error"] = self.error(sizes)
            rows.append(row)
            special = f"   specialised {row['specialised']['ratio']:.3f}" if sizes in points else ""
            found = f"   error {row['error']:.1e}" if "error" in row else ""
            print(f"{self.name:16} {' '.join(f'{k}={v}' for k, v in sizes.items()):12} {row['ratio']:.3f}{special}{found}", flush=True)
        cost["fixed"] = {key: round(sum(of[key] for of in fixed) / len(fixed), 2) for key in fixed[0]}
        cost["fixed"]["least_seconds"] = min(of["seconds"] for of in fixed)
        for kind, of in cost.items():
            print(f"{self.name:16} {kind:12} compiled in {of['seconds']} s, {of['bytes'] / 2**20:.1f} MiB", flush=True)
        return rows, {"points": points, **cost}


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("-o", "--output", type=Path)
    flags.add_argument("--model", choices=MODELS, action="append")
    flags.add_argument("--seconds", type=float, default=2)
    flags.add_argument("--effort", type=float, default=0)
    flags.add_argument("--trials", type=int, default=0)
    flags.add_argument("--target", default="native,threads=1", help="such as cpu,arch=x86_64,cpu=znver3,threads=1: vectors of AVX2 wherever it runs")
    flags = flags.parse_args()
    rows, costs = [], {}
    for name in flags.model or MODELS:
        with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as where:
            race = Race(where, name, flags)
            found, costs[name] = race.run()
            rows += found
    if flags.output:
        command = f"tests/bench/open_race.py --seconds {flags.seconds:g} --effort {flags.effort:g}" + (f" --trials {flags.trials}" if flags.trials else "")
        result = {"command": command, "unit": "time of the fixed module / time of the open one", "target": race.compiled_for, "effort": flags.effort,
                  "date": datetime.date.today().isoformat(), "rows": rows, "cost": costs}
        flags.output.write_text(json.dumps(result, indent=1) + "\n")
    return any(not row["error"] <= MOST_ERROR for row in rows if "error" in row)


if __name__ == "__main__":
    sys.exit(main())
