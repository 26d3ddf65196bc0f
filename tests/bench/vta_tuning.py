#!/usr/bin/env python3
"""How few trials a tuning job needs to come to the optimum of a layer on the accelerator: `tilewright tune --trials 8`, from an
empty log, of each layer whose every tile was run (results/vta_layers.json, which vta_layers.py --optimum writes). Writes
results/vta_tuning.json and prints a row for each layer; with names of layers, the rows of the others stay.

  TILEWRIGHT_BUILD_DIR=build/release python3 tests/bench/vta_tuning.py [CONFIG:LAYER ...]

Exit code 1 if the optimum is not found in the median of the layers, a candidate is invalid, or a layer's default schedule is
not the one whose neighbours were run. Values are simulated cycles: other work on the machine changes only the seconds. Takes
ten minutes.
"""

import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from fleet import tune_alone  # noqa: E402
from network_check import command  # noqa: E402

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

OPTIMA = ROOT / "tests" / "bench" / "results" / "vta_layers.json"
RESULT = ROOT / "tests" / "bench" / "results" / "vta_tuning.json"
TRIALS = 8
# ResNet-18's: side of the image, channels, columns, taps of a side, stride.
LAYERS = {"C2": (56, 64, 64, 3, 1), "C3": (56, 64, 64, 1, 1), "C4": (56, 64, 128, 3, 2), "C5": (56, 64, 128, 1, 2),
          "C6": (28, 128, 128, 3, 1), "C7": (28, 128, 256, 3, 2), "C8": (28, 128, 256, 1, 2), "C9": (14, 256, 256, 3, 1),
          "C10": (14, 256, 512, 3, 2), "C11": (14, 256, 512, 1, 2), "C12": (7, 512, 512, 3, 1)}


class Builder:
    """Nodes and constants of a quantised model."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, name, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"node_{output}", **attributes))
        return output

    def dequantised(self, name, value, scale):
        return self.node("DequantizeLinear", [self.constant(name, value), self.constant(f"{name}_s", np.float32(scale)),
                                              self.constant(f"{name}_z", value.dtype.type(0))], f"{name}_f")

    def quantised(self, x, name, scale):
        s, z = self.constant(f"{name}_s", np.float32(scale)), self.constant(f"{name}_z", np.int8(0))
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [x, s, z], f"{name}_q"), s, z], name)


def layer_model(size, channels, columns, taps, stride):
    """The convolution with bias, relu and requantisation, as quantize_linear networks have it."""
    rng, b = np.random.default_rng(1), Builder()
    x_scale, w_scale = np.float32(0.05), np.float32(0.01)
    weights = b.dequantised("w", rng.integers(-127, 128, (columns, channels, taps, taps)).astype(np.int8), w_scale)
    bias = b.dequantised("b", rng.integers(-2000, 2000, columns).astype(np.int32), x_scale * w_scale)
    image = b.quantised("x", "given", x_scale)
    sums = b.node("Conv", [image, weights, bias], "sums", pads=[taps // 2] * 4, strides=[stride] * 2, kernel_shape=[taps] * 2)
    b.node("Identity", [b.quantised(b.node("Relu", [sums], "positive"), "result", 0.4)], "y")
    out = (size + 2 * (taps // 2) - taps) // stride + 1
    value = helper.make_tensor_value_info
    graph = helper.make_graph(b.nodes, "layer", [value("x", TensorProto.FLOAT, [1, channels, size, size])],
                              [value("y", TensorProto.FLOAT, [1, columns, out, out])], b.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def tuned(best):
    """At which trial the job comes to the optimum of one layer."""
    with tempfile.TemporaryDirectory(prefix="tilewright-vta-") as folder:
        folder = Path(folder)
        onnx.save(layer_model(*LAYERS[best["layer"]]), folder / "m.onnx")
        seconds, _ = tune_alone(folder / "m.onnx", folder, folder / "m.tw", "--target", f"vta,config={best['config']}",
                                "--trials", TRIALS)
        records = [json.loads(line) for line in command("log", "export", "--log", folder / "tuner.db").splitlines()]
    trials = [r for r in records if r["generated_by"] != "final"]
    cycles = [min(r["samples"]) if r["outcome"] == "OK" else math.inf for r in trials]
    assert {r["value_kind"] for r in trials} == {"simulated_cycles"}, trials
    assert len(trials) == TRIALS and trials[0]["generated_by"] == "default", trials
    assert cycles[0] == best["default_cycles"], (best, cycles)
    assert min(cycles) >= best["best_cycles"], (best, cycles)
    at = next((i + 1 for i, n in enumerate(cycles) if n == best["best_cycles"]), None)
    return {"config": best["config"], "layer": best["layer"], "tiles": best["tiles"], "found_at": at,
            "of_optimum": round(best["best_cycles"] / min(cycles), 5),
            "invalid": sum(r["outcome"] not in ("OK", "EARLY_STOPPED") for r in trials), "job_seconds": round(seconds, 1)}


def write(rows):
    """Returns the summary."""
    summary = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "command": "python3 tests/bench/vta_tuning.py",
               "trials": TRIALS, "layers": len(rows), "found": sum(r["found_at"] is not None for r in rows),
               "median_found_at": statistics.median(r["found_at"] or math.inf for r in rows),
               "least_of_optimum": min(r["of_optimum"] for r in rows), "invalid": sum(r["invalid"] for r in rows)}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    RESULT.write_text(json.dumps(summary, indent=1)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n')
    return summary


def main(words):
    def named(row):
        return not words or f"{row['config']}:{row['layer']}" in words
    rows = [r for r in json.loads(RESULT.read_text())["rows"] if not named(r)] if RESULT.exists() else []
    for best in filter(named, json.loads(OPTIMA.read_text())["optimum"]):
        rows.append(tuned(best))
        print(rows[-1], flush=True)
    summary = write(rows)
    print(summary)
    return 0 if summary["median_found_at"] <= TRIALS and summary["invalid"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
