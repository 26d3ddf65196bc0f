#!/usr/bin/env python3
"""The race against the vendor's libraries (tests/bench/gpu.sh) where no GPU is: what it says then; and each kind of case on the
emulated GPU, small, with a PyTorch in NumPy: models, modules by default and predicted schedules, outputs, rows, the page. PyTorch's own functions
for the seven networks against the NumPy evaluator, where PyTorch is installed."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("support", "bench", "models")]

import numpy as np  # noqa: E402
import numpy_eval  # noqa: E402
from fleet import BUILD, run_checks  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402

FAKE_TORCH, FAKE_CUDA = ROOT / "support/fake_torch", BUILD / "tests/support/simt/fake_cuda"


def without_a_gpu_it_is_skipped():
    hidden = dict(os.environ, CUDA_VISIBLE_DEVICES="")  # a GPU that is there would race for hours
    done = subprocess.run([ROOT / "bench/gpu.sh"], capture_output=True, text=True, env=hidden, check=False)
    assert done.returncode == 0 and done.stdout.startswith("[SKIP] gpu_race: "), done


def all_cases_are_there():
    import gpu_cases
    with tempfile.TemporaryDirectory() as folder:
        known = gpu_cases.cases(folder)
    groups = [case.group for case in known.values()]
    dtypes = {(case.group, case.dtype) for case in known.values()}
    assert len(set(gpu_cases.ODD)) == 30 and {("products", d) for d in ("fp32", "tf32", "fp16", "int8")} <= dtypes, dtypes
    assert groups.count("networks") == 14 and groups.count("convolutions") >= 80, groups
    # Every convolution of every network is a model that ONNX accepts, with the result's shape.
    import onnx
    for case in known.values():
        if case.group == "convolutions":
            onnx.checker.check_model(onnx.shape_inference.infer_shapes(case.model(None), strict_mode=True))


def small_cases():
    import gpu_cases
    conv = ("Conv", (1, 8, 10, 10), (8, 8, 3, 3), (1, 8, 5, 5), (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)), ("strides", (2, 2))))
    products = [gpu_cases.Product(dtype, 32, 24, 48, "products") for dtype in ("fp32", "tf32", "fp16", "int8")]
    return [*products, *(gpu_cases.Convolution(dtype, conv) for dtype in ("fp32", "fp16")), gpu_cases.Network("dqn", 2, VARIANTS["dqn"])]


def cases_race_on_the_emulated_gpu():
    sys.path.insert(0, str(FAKE_TORCH))
    os.environ["LD_LIBRARY_PATH"] = f"{FAKE_CUDA}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    try:
        import gpu_race
        import torch
        gpu_race.ROUNDS = gpu_race.REPEAT = 1
        rows = []
        for case in small_cases():
            options = argparse.Namespace(ways="default,predicted", trials=2)
            with tempfile.TemporaryDirectory(prefix="tilewright-race-") as folder:
                rows += gpu_race.race(torch, case, options, Path(folder))
        for row in rows:
            print("        " + gpu_race.text_of(row))
            assert row["good"] and row["ratio"] > 0, row
        assert len(rows) == 14, rows
        document = json.loads(json.dumps({"gpu": "emulated", "torch": torch.__version__, "trials": 2, "rows": rows}))
        page = gpu_race.page_of(document)
        assert page.count("<svg") == 6 and all(row["case"] in page for row in rows), page
    finally:
        sys.path.remove(str(FAKE_TORCH))
        sys.modules.pop("torch", None)


def networks_in_pytorch():
    try:
        import torch
    except ImportError:
        print("        [SKIP] PyTorch is not installed: its networks are not compared")
        return
    import gpu_cases
    from torch_graph import TorchGraph
    for name in gpu_cases.NAMES:
        with tempfile.TemporaryDirectory(prefix="tilewright-race-") as folder:
            case = gpu_cases.Network(name, 3, VARIANTS[name])
            model = case.model(Path(folder))
        feeds = case.inputs(np.random.default_rng(1))
        expected = next(iter(numpy_eval.evaluate(model, feeds).values()))
        for exact, most in ((True, 1e-12), (False, 1e-5)):
            graph = TorchGraph(torch, model, "cpu", exact)
            found = graph(*(graph.tensor(value) for value in feeds.values())).numpy()
            error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
            assert found.shape == expected.shape and error < most, (name, exact, error)


if __name__ == "__main__":
    run_checks(without_a_gpu_it_is_skipped, all_cases_are_there, cases_race_on_the_emulated_gpu, networks_in_pytorch)
