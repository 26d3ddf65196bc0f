#!/usr/bin/env python3
"""A small int8 network with fresh weights, untuned, on one and two threads and on an OpenCL device, against the NumPy
evaluator: outputs are the same integers but for a few that are next to them, and every layer runs on bytes."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, expected_output, make_models, run_checks  # noqa: E402
from network_check import SHARED, command, load  # noqa: E402

import numpy as np  # noqa: E402

# Of the last rounding of the network: 4 / 127.
QUANTUM = np.float32(4) / np.float32(127)
# A sum on the edge between two integers may be rounded to either, and moves what is computed from it.
MAX_STEPS, MIN_EQUAL = 1, 0.8


def steps_from_expected(case, module, folder, *flags):
    out = Path(folder) / "-".join(["out", *map(str, flags)])
    data = case / "test_data_set_0" / "input_0.pb"
    command("run", module, "--input", f"input={data}", "--output-dir", out, "--repeat", 1, *flags)
    actual, expected = load(out / "output_0.pb"), load(expected_output(case))
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert len(np.unique(expected)) > 3, "outputs that hardly differ tell nothing"
    return np.abs(actual - expected) / QUANTUM


def outputs_are_the_evaluators(size, width):
    worst, equal, count = 0.0, 0, 0
    for seed in range(4):
        with tempfile.TemporaryDirectory(prefix="tilewright-int8-") as folder:
            case = make_models(folder, "quantized", "--seed", seed, "--size", size, "--width", width) / "quantized"
            for threads in (1, 2):
                module = Path(folder) / f"{threads}.tw"
                command("compile", case / "model.onnx", "--target", f"native,threads={threads}", "-o", module,
                        "--effort", "10" if threads == 1 else "0")
                steps = steps_from_expected(case, module, folder, "--threads", threads)
                worst = max(worst, float(steps.max()))
                equal += int((steps < 0.5).sum())
                count += steps.size
    print(f"        {equal} of {count} outputs equal, the others at most {worst:.2f} steps away")
    assert worst < MAX_STEPS + 0.5 and equal >= MIN_EQUAL * count


def whole_blocks():
    outputs_are_the_evaluators(32, 1)


def channels_that_fill_no_block():
    outputs_are_the_evaluators(19, 0.4)


def on_an_opencl_device():
    """Dot products of bytes in the device's language, where it has an instruction for them or not."""
    with tempfile.TemporaryDirectory(prefix="tilewright-int8-") as folder:
        case = make_models(folder, "quantized") / "quantized"
        module, dump = Path(folder) / "m.tw", Path(folder) / "dump"
        command("compile", case / "model.onnx", "--target", "opencl", "-o", module, "--dump-ir", dump)
        (text,) = dump.glob("*.cl")
        assert text.read_text().count("= ((int4)(tw_dot4(") >= 5, "no dot products of bytes"
        try:
            steps = steps_from_expected(case, module, folder)
        except AssertionError as error:
            if "runtime.device.none" in str(error):
                print("[SKIP] no OpenCL device: an int8 model is NOT run on one", file=sys.stderr)
                return
            raise
        equal = int((steps < 0.5).sum())
        print(f"        {equal} of {steps.size} outputs equal, the others at most {steps.max():.2f} steps away")
        assert steps.max() < MAX_STEPS + 0.5 and equal >= MIN_EQUAL * steps.size


def layers_run_on_bytes():
    with tempfile.TemporaryDirectory(prefix="tilewright-int8-") as folder:
        case = make_models(folder, "quantized") / "quantized"
        summary = json.loads(command("compile", case / "model.onnx", "--target", "native,threads=1", "-o",
                                     Path(folder) / "m.tw", "--format", "json", "--dump-ir", Path(folder) / "dump"))
        layers = [k["task_name"] for k in summary["kernels"] if k["task_name"].startswith(("conv2d", "dense"))]
        assert len(layers) == 6, layers
        for task in layers:
            assert task.startswith(("conv2d_", "dense ")), task
        assert sum("_quantize" in task for task in layers) >= 5, layers
        # The residual addition is in the kernel of a convolution, with both scales.
        assert any("dequantize_dequantize_add" in task or "dequantize_add" in task for task in layers), layers
        stages = sorted(Path(folder, "dump").glob("*/*.tir"))
        assert any("generic.dot4" in path.read_text() for path in stages), "no dot products of bytes"


def it_says_where_bytes_gain_little():
    with tempfile.TemporaryDirectory(prefix="tilewright-int8-") as folder:
        for model, cpu, slow in (("quantized", "x86-64-v3", True), ("quantized", "cascadelake", False), ("lstm_cell", "x86-64-v3", False)):
            path = make_models(folder, model) / model / "model.onnx"
            done = subprocess.run([BIN / "tilewright", "compile", path, "--target", f"cpu,arch=x86_64,cpu={cpu}", "--effort", "0", "-o",
                                   Path(folder) / "m.tw"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            said = f"launches compute with int8 numbers, for whose dot products {cpu} has no instruction" in done.stderr
            assert said == slow and ("int8" in done.stderr) == slow, (model, cpu, done.stderr)


def a_public_model_gives_its_golden_outputs():
    """ShuffleNet of the ONNX model zoo, in QLinearConv, QLinearMatMul and ONNX Runtime's QLinearAdd: every operator's
    result is a definite integer, so the outputs are the same numbers."""
    case = SHARED / "onnx" / "models" / "shufflenet_v2_int8_qlinear"
    if not case.is_dir():
        print(f"[SKIP] {case} is not there: a public int8 model is NOT run", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-int8-") as folder:
        module = Path(folder) / "m.tw"
        command("compile", case / "model.onnx", "--target", "native,threads=1", "-o", module)
        for data in sorted(case.glob("test_data_set_*")):
            out = Path(folder) / data.name
            command("run", module, "--input", f"input={data / 'input_0.pb'}", "--output-dir", out, "--repeat", 1)
            np.testing.assert_array_equal(load(out / "output_0.pb"), load(data / "output_0.pb"))


if __name__ == "__main__":
    run_checks(whole_blocks, channels_that_fill_no_block, layers_run_on_bytes, it_says_where_bytes_gain_little, on_an_opencl_device,
               a_public_model_gives_its_golden_outputs)
