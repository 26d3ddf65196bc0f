#!/usr/bin/env python3
"""What a model costs to import, to compile and to run: seconds, and the peak of memory of each.

    tests/bench/model_costs.py [NAME|MODEL.onnx[@SHAPE,SHAPE...] ...] [--threads 2] [--effort SECONDS] [--large] [-o RESULT.json]

NAME: a network of tests/models/make_models.py (default: the seven and bert_small). SHAPE goes to --shape: yunet.onnx@height=64..640,width=64..640.
--large adds a model of 400 MB. Compiling is `tilewright compile` as people run it (wall and processor time of all its processes, the largest
of them in memory). Running is `tilewright run --repeat 1`: `over` is its peak beyond the weights and the plan of the module, whose bar is 30 MB.
Programs come from $TILEWRIGHT_BUILD_DIR (default build/release); needs Debian's python3-onnx and python3-numpy.
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "deploy/bindings/python"))
from child_cost import child_cost  # noqa: E402
from fleet import BIN, BUILD, make_models  # noqa: E402

os.environ.setdefault("TILEWRIGHT_RUNTIME_LIBRARY", str(BUILD / "lib/libtilewright_runtime.so"))

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import tilewright_runtime as tw  # noqa: E402

NAMES = ("dqn", "mobilenet", "resnet18", "resnet50", "dcgan", "lstm_lm", "attention", "bert_small")
MB = 1e6


def large_model(folder):
    """Ten products of 41 MB each."""
    side, random = 3200, np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(10):
        weights.append(numpy_helper.from_array(random.standard_normal((side, side), dtype=np.float32) / 57, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"x{i + 1}"]))
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, side])] for name in ("x0", "x10")]
    model = helper.make_model(helper.make_graph(nodes, "large", *ends, weights), opset_imports=[helper.make_opsetid("", 17)])
    path = Path(folder) / "large.onnx"
    onnx.save(model, str(path))
    return path


def cost(command):
    """Rounded for people; ends the program if the command fails."""
    done = child_cost(command)
    if done.code != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return {"wall_s": round(done.wall_s, 2), "cpu_s": round(done.cpu_s, 2), "peak_mb": round(done.peak_bytes / MB, 1)}


def row(name, options, folder):
    model, _, shapes = name.partition("@")
    if model == "large":
        path = large_model(folder)
    else:
        path = Path(model) if model.endswith(".onnx") else make_models(folder, model) / model / "model.onnx"
    module = Path(folder) / "module.tw"
    flags = [word for shape in filter(None, shapes.split(",")) for word in ("--shape", shape)]
    effort = [] if options.effort is None else ["--effort", options.effort]
    result = {"model": name}
    if not flags:
        said = subprocess.run([BIN / "import_cost", path], check=True, capture_output=True, text=True).stdout
        result["import"] = json.loads(said)
    result["compile"] = cost([BIN / "tilewright", "compile", path, "--target", f"native,threads={options.threads}", "-o", module, *effort, *flags])
    result["run"] = cost([BIN / "tilewright", "run", module, "--repeat", "1"])
    manifest = json.loads(tw.Module(module).manifest)
    weights = manifest.get("constants_bytes", 0)
    arena = manifest.get("arena_bytes", 0) + manifest.get("workspace_bytes", 0)
    if isinstance(arena, int):
        result["run"] |= {"weights_mb": round(weights / MB, 1), "arena_mb": round(arena / MB, 1),
                          "over_mb": round(result["run"]["peak_mb"] - (weights + arena) / MB, 1)}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="default: " + " ".join(NAMES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--effort", help="as of `tilewright compile` (default: its own)")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    names = (options.names or list(NAMES)) + (["large"] if options.large else [])
    rows = []
    print(f"{'model':28} {'import s':>9} {'x size':>7} {'compile s':>10} {'cpu s':>7} {'peak MB':>8} {'run MB':>7} {'over MB':>8}", flush=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            done = row(name, options, folder)
        rows.append(done)
        imported, run = done.get("import", {}), done["run"]
        print(f"{Path(name.partition('@')[0]).parent.name if '/' in name else name:28} {imported.get('seconds', ''):>9} "
              f"{imported.get('peak_ratio', ''):>7} {done['compile']['wall_s']:>10} {done['compile']['cpu_s']:>7} {done['compile']['peak_mb']:>8} "
              f"{run['peak_mb']:>7} {run.get('over_mb', ''):>8}", flush=True)
    if options.output:
        said = {"command": " ".join(["tests/bench/model_costs.py", *sys.argv[1:]]), "machine": platform.processor() or platform.machine(),
                "date": time.strftime("%Y-%m-%d"), "rows": rows}
        Path(options.output).write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
