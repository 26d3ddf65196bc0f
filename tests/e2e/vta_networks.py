#!/usr/bin/env python3
"""A quantised ResNet-18 on the simulated accelerator: every convolution but the first, its pooling, its mean and every addition run there, the
rest on the processor; every kernel and the output are those of the reference, bit by bit; top-1 against floats."""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import make_models, run_checks  # noqa: E402
from network_check import command  # noqa: E402
from quantized_networks import (CALIBRATION, CLASSES, MIN_SAME, decibels, input_shape, noisy, outputs_of,  # noqa: E402
                                quantize, results, with_classifier)

import numpy as np  # noqa: E402
import onnx  # noqa: E402

TARGET = "vta,config=block16"
DEVICES = ("vta cycle model", "vta functional simulator")
SIZE = 64
MIN_DECIBELS = 25  # of the output against floats


def resnet18_runs_with_its_blocks_on_the_accelerator():
    with tempfile.TemporaryDirectory(prefix="tilewright-vta-") as folder:
        path = make_models(folder, "resnet18", "--logits", "--size", SIZE) / "resnet18" / "model.onnx"
        model = with_classifier(path, folder)
        shape = input_shape(onnx.load(model))
        data, int8, module = (Path(folder) / name for name in ("data.npy", "int8.onnx", "m.tw"))
        np.save(data, np.concatenate([noisy(c, shape, 1000 + c) for c in range(CALIBRATION)]))
        quantize(model, data, int8, "--activations", "symmetric-int8", "--no-report")

        kernels = json.loads(command("compile", int8, "--target", TARGET, "--effort", 0, "-o", module, "--format",
                                     "json"))["kernels"]
        there = {k["task_name"]: k["uses"] for k in kernels if not k["on_host"]}
        convolutions = sum(uses for task, uses in there.items() if task.startswith("conv2d"))
        additions = sum(uses for task, uses in there.items() if task.startswith("cast_mul_cast_mul_add"))
        pools = sum(uses for task, uses in there.items() if task.startswith("pool2d"))
        # The mean of the image is a convolution of each channel alone.
        assert (convolutions, additions, pools, len(kernels) - len(there)) == (20, 8, 1, 4), kernels
        on_host = [k["task_name"].split()[0] for k in kernels if k["on_host"]]
        assert [t for t in on_host if t.startswith("conv")] == ["conv2d_add_dequantize_relu_quantize"], on_host

        # Each kernel against the reference on the operands that it got, and the output against the imported model.
        compared = json.loads(command("compare", int8, "--target", TARGET, "--effort", 0, "-o", "json"))
        assert all(k["max_abs_diff"] == 0 for k in compared["layers"] if k["type"].startswith("i")), compared
        assert compared["outputs"][0]["ok"], compared

        unseen = [noisy(c, shape, 2000 + c) for c in range(CLASSES)]
        exact = results(model, unseen, folder)
        by_device = [outputs_of(module, unseen[:4], folder, "input", "--device", device) for device in DEVICES]
        assert np.array_equal(*by_device), "the simulators differ"
        rounded = outputs_of(module, unseen, folder, "input", "--device", DEVICES[1])
        same = int((exact.argmax(axis=1) == rounded.argmax(axis=1)).sum())
        print(f"        {convolutions} convolutions, {pools} pooling and {additions} additions there; {decibels(exact, rounded):.1f} dB, "
              f"top-1 as in floats in {same} of {CLASSES}")
        assert len(set(exact.argmax(axis=1))) >= CLASSES / 2, "a network that says the same of all tells nothing"
        assert same >= MIN_SAME
        assert decibels(exact, rounded) >= MIN_DECIBELS


if __name__ == "__main__":
    run_checks(resnet18_runs_with_its_blocks_on_the_accelerator)
