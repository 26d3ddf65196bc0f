#!/usr/bin/env python3
"""What open sizes cost: a module of open sizes against the module compiled for each size, paired in one process, one thread, default schedules.

open_race.py [-o RESULTS.json] prints, per model and size, time of the fixed module / time of the open one: 1 is equal, the bar is 0.9."""

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


def shapes(sizes):
    return [word for name, size in sizes.items() for word in ("--shape", f"{name}={size}")]


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("-o", "--output", type=Path)
    rows = []
    output = flags.parse_args().output
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as where:
        for name, (make, ranges, cases) in MODELS.items():
            model, opened, fixed = (Path(where) / file for file in ("model.onnx", "open.tw", "fixed.tw"))
            onnx.save(make(where), str(model))
            compile_ = lambda module, sizes: tilewright("compile", model, "--target", TARGET, "--effort", 0, "-o", module, *shapes(sizes))
            compile_(opened, ranges)
            for sizes in cases:
                compile_(fixed, sizes)
                found = json.loads(tilewright("bench", "diff", fixed, opened, *shapes(sizes), "--seconds", 2, "-o", "json"))
                rows.append({"model": name, "sizes": sizes, **{key: found[key] for key in ("ratio", "ratio_low", "ratio_high")}})
                print(f"{name:16} {' '.join(f'{k}={v}' for k, v in sizes.items()):12} {found['ratio']:.3f}", flush=True)
    if output:
        output.write_text(json.dumps({"unit": "time of the fixed module / time of the open one", "target": TARGET, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
