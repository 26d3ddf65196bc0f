"""Quantised ResNet-18 and MobileNet on the RTL device of the accelerator's plug-in, for the lane vta_rtl.py: in every
configuration, each kernel that the accelerator takes gives on the RTL what it gives on the functional simulator, bit for
bit, since what follows it does. tests/e2e/vta_networks.py holds the simulator to the reference, kernel by kernel.
TILEWRIGHT_PLUGIN_DIR names the folder of a plug-in with the RTL.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "e2e")]
from fleet import make_models  # noqa: E402
from network_check import command  # noqa: E402
from quantized_networks import input_shape, noisy, outputs_of, quantize  # noqa: E402

import numpy as np  # noqa: E402
import onnx  # noqa: E402

RTL, SIMULATOR = "vta rtl", "vta functional simulator"
CONFIGS = ("block8", "block16", "block32")
CALIBRATION = 4
# The least convolutions on the accelerator: all of ResNet-18 but the first; MobileNet's 13 of one tap.
LEAST = {"resnet18": 19, "mobilenet": 13}


def quantized(name, folder, size):
    model = make_models(folder, name, "--logits", "--size", size) / name / "model.onnx"
    shape = input_shape(onnx.load(model))
    data, int8 = Path(folder) / f"{name}.npy", Path(folder) / f"{name}.int8.onnx"
    np.save(data, np.concatenate([noisy(c, shape, 1000 + c) for c in range(CALIBRATION)]))
    quantize(model, data, int8, "--activations", "symmetric-int8", "--no-report")
    return int8, shape


def agrees(int8, shape, name, config, folder):
    """The row of one network in one configuration; AssertionError at a difference."""
    module = Path(folder) / "m.tw"
    kernels = json.loads(command("compile", int8, "--target", f"vta,config={config}", "--effort", 0, "-o", module, "--format",
                                 "json"))["kernels"]
    convolutions = sum(k["uses"] for k in kernels if not k["on_host"] and k["task_name"].startswith("conv2d"))
    assert convolutions >= LEAST[name], (name, config, convolutions, kernels)
    inputs = [noisy(1, shape, 2001)]
    start = time.monotonic()
    real = outputs_of(module, inputs, folder, "input", "--device", RTL)
    seconds = time.monotonic() - start
    assert np.array_equal(real, outputs_of(module, inputs, folder, "input", "--device", SIMULATOR)), (name, config)
    assert len(np.unique(real)) > 12, "outputs that hardly differ tell nothing"
    return {"network": name, "config": config, "size": shape[2], "convolutions": convolutions,
            "kernels": sum(k["uses"] for k in kernels if not k["on_host"]), "seconds": round(seconds, 1)}


def networks_agree(names=tuple(LEAST), configs=CONFIGS, size=224):
    """Yields the rows."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="tilewright-vta-") as folder:
            int8, shape = quantized(name, folder, size)
            for config in configs:
                row = agrees(int8, shape, name, config, folder)
                print(row, flush=True)
                yield row


if __name__ == "__main__":
    list(networks_agree(size=int(sys.argv[1]) if len(sys.argv) > 1 else 224))
