"""Networks for tests of quantisation: pictures of seeded classes, a classifier that tells them apart, results by compiled
code. Used by tests/e2e/quantize_quick.py and tests/e2e/vta_networks.py.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from network_check import command, load  # noqa: E402

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

CLASSES, CALIBRATION, MIN_SAME, NOISE = 20, 16, 18, 0.2


def picture(seed, shape):
    """A few smooth waves in each channel, and a brightness."""
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(np.linspace(0, 1, shape[2]), np.linspace(0, 1, shape[3]), indexing="ij")
    channels = []
    for _ in range(shape[1]):
        plane = rng.normal(0, 0.7) + np.zeros_like(x)
        for _ in range(4):
            fx, fy, phase, size = rng.uniform(0, 12), rng.uniform(0, 12), rng.uniform(0, 6.28), rng.normal(0, 0.6)
            plane += size * np.sin(6.28 * (fx * x + fy * y) + phase)
        channels.append(plane)
    return np.stack(channels)[None].astype(np.float32)


def noisy(seed, shape, noise_seed):
    return picture(seed, shape) + np.random.default_rng(noise_seed).normal(0, NOISE, shape).astype(np.float32)


def outputs_of(module, inputs, folder, name="input", *flags):
    """The first output of a module for each input."""
    rows = []
    for values in inputs:
        np.save(Path(folder) / "x.npy", values)
        command("run", module, "--input", f"{name}={Path(folder) / 'x.npy'}", "--output-dir", Path(folder) / "out",
                "--repeat", 1, *flags)
        rows.append(load(Path(folder) / "out" / "output_0.pb").ravel())
    return np.array(rows)


def results(model, inputs, folder, name="input"):
    """The first output of an ONNX model for each input, by compiled code."""
    module = Path(folder) / "run.tw"
    command("compile", model, "--target", "native,threads=1", "--effort", 0, "-o", module)
    return outputs_of(module, inputs, folder, name)


def decibels(exact, rounded):
    return 10 * np.log10((exact ** 2).sum() / ((exact - rounded) ** 2).sum())


def quantize(model, data, output, *flags):
    return json.loads(command("quantize", model, "--data", data, "-o", output, "--format", "json", *flags))


def input_shape(model):
    return [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]


def with_classifier(path, folder):
    """The network with a last layer that is 1 for a picture of its own class and 0 in the middle of all."""
    model = onnx.load(path)
    (gemm,) = [node for node in model.graph.node if node.op_type == "Gemm"]
    features = onnx.load(path)
    features.graph.output[0].CopyFrom(helper.make_tensor_value_info(gemm.input[0], TensorProto.FLOAT, None))
    del features.graph.node[-2:]
    onnx.save(features, str(Path(folder) / "features.onnx"))
    shape = input_shape(model)
    found = results(Path(folder) / "features.onnx", [noisy(c, shape, 3000 + c) for c in range(CLASSES)], folder)
    middle = found.mean(axis=0)
    weights = (found - middle) / ((found - middle) ** 2).sum(axis=1, keepdims=True)
    for name, values in ((gemm.input[1], weights), (gemm.input[2], -weights @ middle)):
        (old,) = [t for t in model.graph.initializer if t.name == name]
        old.CopyFrom(numpy_helper.from_array(values.astype(np.float32), name))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, CLASSES]))
    onnx.checker.check_model(model)
    onnx.save(model, str(Path(folder) / "classifier.onnx"))
    return Path(folder) / "classifier.onnx"
