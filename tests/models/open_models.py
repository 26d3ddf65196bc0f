#!/usr/bin/env python3
"""Small models whose inputs have open dimensions, as exporters write them: the shapes of reshapes are computed from Shape.

open_models.py FOLDER [NAME...] writes NAME.onnx, seeded. As a module: MODELS says what each one's open dimensions are."""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """Nodes and weights of a model, by chains of calls that return the names of values."""

    def __init__(self, seed=1):
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(seed)

    def node(self, op, *inputs, **attributes):
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value):
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape):
        scale = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0])
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def dense(self, x, inputs, outputs):
        return self.node("Add", self.node("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def conv(self, x, inputs, outputs, kernel=3, group=1, **attributes):
        weight = self.weight(outputs, inputs // group, kernel, kernel)
        return self.node("Conv", x, weight, self.weight(outputs), kernel_shape=[kernel, kernel], pads=[kernel // 2] * 4, group=group, **attributes)

    def bytes_of(self, x, scale, zero=128):
        """u8 and back, as QDQ models have it between layers."""
        parameters = self.constant(np.float32(scale)), self.constant(np.uint8(zero))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *parameters), *parameters)

    def byte_conv(self, x, inputs, outputs, kernel=3, group=1, **attributes):
        """A convolution whose weights are i8, with a scale per channel."""
        weight = self.constant(self.rng.integers(-127, 128, (outputs, inputs // group, kernel, kernel)).astype(np.int8))
        scale = self.constant((1 / 127 / np.sqrt(inputs // group * kernel * kernel) * self.rng.uniform(.5, 1.5, outputs)).astype(np.float32))
        weight = self.node("DequantizeLinear", weight, scale, self.constant(np.zeros(outputs, np.int8)), axis=0)
        return self.node("Conv", x, weight, kernel_shape=[kernel, kernel], pads=[kernel // 2] * 4, group=group, **attributes)

    def model(self, name, x, x_shape, y, y_shape, element=TensorProto.FLOAT):
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        tensor = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, name, [tensor(x, element, x_shape)], [tensor("y", TensorProto.FLOAT, y_shape)],
                                  self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        onnx.checker.check_model(model, full_check=True)
        return model


def mlp():
    b = Builder()
    h = b.node("Relu", b.dense("x", 64, 128))
    return b.model("mlp", "x", ["batch", 64], b.dense(h, 128, 10), ["batch", 10])


def cnn():
    b = Builder()
    x = b.node("MaxPool", b.node("Relu", b.conv("x", 3, 16)), kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Relu", b.conv(x, 16, 32, strides=[2, 2]))
    x = b.node("Add", b.node("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), b.conv(x, 32, 32, group=32))
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    return b.model("cnn", "x", ["N", 3, "H", "W"], b.dense(x, 32, 10), ["N", 10])


def cnn_int8():
    b = Builder()
    x = b.bytes_of(b.node("Relu", b.byte_conv(b.bytes_of("x", 3 / 127), 3, 16)), 4 / 255, 0)
    x = b.bytes_of(b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 4 / 255, 0)
    x = b.bytes_of(b.node("Relu", b.byte_conv(x, 16, 32, strides=[2, 2])), 4 / 255, 0)
    x = b.bytes_of(b.node("Add", x, b.bytes_of(b.byte_conv(x, 32, 32, group=32), 4 / 127)), 6 / 127)
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    return b.model("cnn_int8", "x", ["N", 3, "H", "W"], b.dense(x, 32, 10), ["N", 10])


def encoder(width=64, heads=4, layers=2):
    b = Builder()
    x, size = "x", width // heads
    shape = b.node("Shape", "x")
    batch, length = (b.node("Unsqueeze", b.node("Gather", shape, b.constant(np.int64(i))), b.constant(np.array([0], np.int64))) for i in (0, 1))
    apart = b.node("Concat", batch, length, b.constant(np.array([heads, size], np.int64)), axis=0)
    together = b.node("Concat", batch, length, b.constant(np.array([width], np.int64)), axis=0)
    norm = lambda v: b.node("LayerNormalization", v, b.constant(np.ones(width, np.float32)), b.weight(width), axis=-1)
    for _ in range(layers):
        q, k, v = (b.node("Transpose", b.node("Reshape", b.dense(x, width, width), apart), perm=perm)
                   for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = b.node("Mul", b.node("MatMul", q, k), b.constant(np.float32(size ** -0.5)))
        context = b.node("MatMul", b.node("Softmax", scores, axis=-1), v)
        context = b.node("Reshape", b.node("Transpose", context, perm=[0, 2, 1, 3]), together)
        x = norm(b.node("Add", x, b.dense(context, width, width)))
        inner = b.dense(x, width, 4 * width)
        gelu = b.node("Mul", b.node("Mul", inner, b.constant(np.float32(0.5))),
                      b.node("Add", b.node("Erf", b.node("Mul", inner, b.constant(np.float32(2 ** -0.5)))), b.constant(np.float32(1))))
        x = norm(b.node("Add", x, b.dense(gelu, 4 * width, width)))
    return b.model("encoder", "x", ["N", "L", width], x, ["N", "L", width])


def lstm(words=40, width=24):
    """A language model: words by time and batch, a layer in both directions and one forward."""
    b = Builder()
    x = b.node("Gather", b.weight(words, width), "x", axis=0)
    for directions, name in ((2, "bidirectional"), (1, "forward")):
        gates = [b.constant((b.rng.standard_normal((directions, 4 * width, width)) * width ** -0.5).astype(np.float32)) for _ in range(2)]
        bias = b.constant((b.rng.standard_normal((directions, 8 * width)) * 0.1).astype(np.float32))
        x = b.node("ReduceSum", b.node("LSTM", x, *gates, bias, hidden_size=width, direction=name), b.constant(np.array([1], np.int64)), keepdims=0)
    return b.model("lstm", "x", ["T", "N"], b.dense(x, width, words), ["T", "N", words], TensorProto.INT64)


class UNet(Builder):
    """Parts of U-Nets as PyTorch exports them: what is smaller than its skip connection is padded, or resized to it."""

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def size(self, x, axis):
        return self.node("Gather", self.node("Shape", x), self.constant(np.int64(axis)))

    def convs(self, x, inputs, outputs):
        norm = [self.constant(self.rng.uniform(0.5, 1.5, outputs).astype(np.float32)) for _ in range(4)]
        x = self.node("Relu", self.node("BatchNormalization", self.conv(x, inputs, outputs), *norm))
        return self.node("Relu", self.conv(x, outputs, outputs))

    def halved(self, x, **attributes):
        return self.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], **attributes)

    def padded_like(self, x, skip):
        """torch.nn.functional.pad(x, [w // 2, w - w // 2, h // 2, h - h // 2]) with the differences h and w of the sizes."""
        pads = []
        for axis in (3, 2):
            difference = self.node("Sub", self.size(skip, axis), self.size(x, axis))
            half = self.node("Div", difference, self.constant(np.int64(2)))
            pads += [self.node("Unsqueeze", value, self.ints(0)) for value in (half, self.node("Sub", difference, half))]
        zeros = self.node("ConstantOfShape", self.ints(4), value=numpy_helper.from_array(np.zeros(1, np.int64)))
        pairs = self.node("Reshape", self.node("Concat", *pads, zeros, axis=0), self.ints(-1, 2))
        turned = self.node("Slice", pairs, self.ints(-1), self.ints(-2 ** 63 + 1), self.ints(0), self.ints(-1))
        flat = self.node("Reshape", self.node("Transpose", turned, perm=[1, 0]), self.ints(-1))
        return self.node("Pad", x, self.node("Cast", flat, to=TensorProto.INT64), self.constant(np.float32(0)), mode="constant")

    def resized_like(self, x, skip, **attributes):
        """torch.nn.functional.interpolate(x, size=skip.shape[2:])"""
        sizes = self.node("Slice", self.node("Shape", skip), self.ints(2), self.ints(4), self.ints(0))
        front = self.node("Slice", self.node("Shape", x), self.ints(0), self.ints(2), self.ints(0))
        return self.node("Resize", x, "", "", self.node("Concat", front, sizes, axis=0), **attributes)

    def joined(self, skip, x, inputs, outputs):
        return self.convs(self.node("Concat", skip, x, axis=1), inputs, outputs)


def unet():
    b = UNet()
    skips, x = [], b.convs("x", 3, 8)
    for inputs, outputs in ((8, 16), (16, 32)):
        skips.append((x, inputs))
        x = b.convs(b.halved(x), inputs, outputs)
    for skip, width in reversed(skips):
        up = b.node("ConvTranspose", x, b.weight(2 * width, width, 2, 2), b.weight(width), kernel_shape=[2, 2], strides=[2, 2])
        x = b.joined(skip, b.padded_like(up, skip), 2 * width, width)
    return b.model("unet", "x", ["N", 3, "H", "W"], b.conv(x, 8, 2, kernel=1), ["N", 2, "H", "W"])


def unet_resize():
    """With Upsample instead of transposed convolutions, one kind per level, and a last level of DepthToSpace."""
    b = UNet()
    x0 = b.convs("x", 3, 8)
    x1 = b.convs(b.halved(x0, ceil_mode=1), 8, 8)
    x2 = b.convs(b.halved(x1), 8, 8)
    x3 = b.convs(b.halved(x2), 8, 16)
    scales = b.constant(np.array([1, 1, 2, 2], np.float32))
    up = b.node("Resize", x3, "", scales, mode="linear", coordinate_transformation_mode="align_corners")
    x = b.joined(x2, b.padded_like(up, x2), 24, 8)
    x = b.joined(x1, b.resized_like(x, x1, mode="linear", coordinate_transformation_mode="pytorch_half_pixel"), 16, 8)
    x = b.joined(x0, b.resized_like(x, x0, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"), 16, 8)
    up = b.node("DepthToSpace", x, blocksize=2, mode="CRD")
    edge = b.node("Pad", up, b.ints(0, 0, 1, 2, 0, 0, 2, 1), mode="reflect")
    return b.model("unet_resize", "x", ["N", 3, "H", "W"], edge, ["N", 2, "A", "B"])


# Name → maker, and the shape of the input "x".
MODELS = {"mlp": (mlp, ["batch", 64]), "cnn": (cnn, ["N", 3, "H", "W"]), "cnn_int8": (cnn_int8, ["N", 3, "H", "W"]), "encoder": (encoder, ["N", "L", 64]), "lstm": (lstm, ["T", "N"]),
          "unet": (unet, ["N", 3, "H", "W"]), "unet_resize": (unet_resize, ["N", 3, "H", "W"])}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        onnx.save(MODELS[name][0](), str(folder / f"{name}.onnx"))
