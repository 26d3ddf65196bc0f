#!/usr/bin/env python3
"""What open sizes cost: a module of open sizes against the module compiled for each size, paired in one process, one thread. Schedules are the
defaults, or with --effort those that the cost model predicts.

open_race.py [-o RESULTS.json] [--model NAME] [--seconds S] [--effort S] prints, per model and size, time of the fixed module / time of the open one: 1 is equal,
the bar is 0.9; at the sizes of SPECIALISED also of the module that has functions for these (bar: 0.97). Then what modules cost: processor
seconds of compiling and bytes of the module, of one size, of open sizes, and with the specialisations."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "models"), str(ROOT / "support")]

import onnx  # noqa: E402
from fleet import BIN, make_models  # noqa: E402
from open_models import encoder  # noqa: E402

TARGET = "native,threads=1"


def tilewright(*words):
    return subprocess.run([BIN / "tilewright", *map(str, words)], check=True, capture_output=True, text=True).stdout


def resnet18(folder):
    """ResNet-18 at 224 with an open batch."""
    model = onnx.load(str(make_models(folder, "resnet18") / "resnet18" / "model.onnx"))
    batch = model.graph.input[0].type.tensor_type.shape.dim[0]
    batch.Clear()
    batch.dim_param = "N"
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return model


MODELS = {
    "resnet18": (resnet18, {"N": "1..32"}, [{"N": n} for n in (1, 2, 3, 4, 8)]),
    "encoder 4x512": (lambda _: encoder(512, 8, 4), {"N": "1..4", "L": "1..512"},
                      [{"N": 1, "L": n} for n in (1, 2, 4, 8, 16, 31, 32, 33, 64, 100, 128, 200, 256, 384)]),
}
SPECIALISED = {
    "resnet18": [{"N": n} for n in (1, 4, 8)],
    "encoder 4x512": [{"N": 1, "L": n} for n in (4, 32, 100, 128, 384)],
}


def shapes(sizes):
    return [word for name, size in sizes.items() for word in ("--shape", f"{name}={size}")]


class Race:
    """One model in a folder: its modules, and their races."""

    def __init__(self, folder, name, seconds, effort):
        self.name, self.seconds, self.effort = name, seconds, effort
        make, self.ranges, self.cases = MODELS[name]
        self.model, self.fixed, self.open, self.special = (Path(folder) / file for file in ("model.onnx", "fixed.tw", "open.tw", "special.tw"))
        onnx.save(make(folder), str(self.model))

    def compile(self, module, sizes, points=()):
        """What the module cost: processor seconds, bytes."""
        words = [word for point in points for word in ("--specialise", ",".join(f"{k}={v}" for k, v in point.items()))]
        before = os.times()
        tilewright("compile", self.model, "--target", TARGET, "--effort", self.effort, "-o", module, *shapes(sizes), *words)
        after = os.times()
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        return {"seconds": round(seconds, 2), "bytes": module.stat().st_size}

    def ratio(self, module, sizes):
        found = json.loads(tilewright("bench", "diff", self.fixed, module, *shapes(sizes), "--seconds", self.seconds, "-o", "json"))
        return {key: found[key] for key in ("ratio", "ratio_low", "ratio_high")}

    def run(self):
        points = SPECIALISED[self.name]
        cost = {"open": self.compile(self.open, self.ranges), "specialised": self.compile(self.special, self.ranges, points)}
        rows = []
        for sizes in self.cases:
            fixed = self.compile(self.fixed, sizes)
            cost.setdefault("fixed", fixed | {"sizes": sizes})
            row = {"model": self.name, "sizes": sizes, **self.ratio(self.open, sizes)}
            if sizes in points:
                row["specialised"] = self.ratio(self.special, sizes)
            rows.append(row)
            special = f"   specialised {row['specialised']['ratio']:.3f}" if sizes in points else ""
            print(f"{self.name:16} {' '.join(f'{k}={v}' for k, v in sizes.items()):12} {row['ratio']:.3f}{special}", flush=True)
        for kind, of in cost.items():
            print(f"{self.name:16} {kind:12} compiled in {of['seconds']} s, {of['bytes'] / 2**20:.1f} MiB", flush=True)
        return rows, {"points": points, **cost}


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("-o", "--output", type=Path)
    flags.add_argument("--model", choices=MODELS, action="append")
    flags.add_argument("--seconds", type=float, default=2)
    flags.add_argument("--effort", type=float, default=0)
    flags = flags.parse_args()
    rows, costs = [], {}
    for name in flags.model or MODELS:
        with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as where:
            found, costs[name] = Race(where, name, flags.seconds, flags.effort).run()
            rows += found
    if flags.output:
        result = {"unit": "time of the fixed module / time of the open one", "target": TARGET, "effort": flags.effort, "rows": rows, "cost": costs}
        flags.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
