#!/usr/bin/env python3
"""Writes the networks that tests, the quickstart and the benchmarks use, as ONNX files with seeded random
weights and a seeded input:

    make_models.py OUT_DIR [NAME ...] [--logits] [--seed N] [--size N] [--width X]

creates OUT_DIR/NAME/model.onnx and OUT_DIR/NAME/test_data_set_0/input_0.pb for each NAME (default: all):
dqn, resnet18, resnet50, mobilenet, lstm_lm, dcgan (the workloads of the TVM paper, OSDI'18, and ResNet-50),
bert_small, two parts of networks: attention and lstm_cell, and quantized, a small int8 network. Architectures are the published ones, weights synthetic; their scales keep activations near unit
variance to the last layer, so that a wrong kernel shows in the output.

  --logits    without the final Softmax, whose output hides errors
  --seed N    other weights and inputs
  --size N    image size of resnet18, resnet50, mobilenet (default 224), dqn (default 84) and quantized (32)
  --width X   multiplies the channels of these

The same options give the same bytes on every machine. Needs Debian's python3-onnx and python3-numpy.
Expected outputs come from numpy_eval.py beside this file.
"""
import argparse
import math
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET_VERSION = 13
IR_VERSION = 7
PRODUCER = "make_models"
F32 = np.float32


class Settings:
    """What the command line chose, with the derived sizes."""

    def __init__(self, logits=False, seed=0, size=None, width=1.0):
        self.logits, self.seed, self.size, self.width = logits, seed, size, width

    def image_size(self, default):
        return self.size or default

    def channels(self, count):
        return max(1, int(count * self.width))


class GraphWriter:
    """Collects the nodes, initialisers and inputs of one network, in the order they are asked for.

    Two sequences make the file what it is: `_number` counts every tensor that gets a name, and `random` is drawn
    from in the order of the calls. Both are part of the format: a reordering changes all digests.
    """

    def __init__(self, name, number, settings):
        self.name = name
        self.settings = settings
        self.random = np.random.default_rng(number + 1000 * settings.seed)
        self._number = 0
        self._nodes, self._constants = [], []
        self._inputs, self._outputs, self._feeds = [], [], []

    # ---- names, values

    def name_for(self, stem):
        self._number += 1
        return f"{stem}_{self._number}"

    def gauss(self, shape, deviation):
        return (self.random.standard_normal(shape) * deviation).astype(F32)

    def near_one(self, count):
        return self.random.uniform(0.8, 1.2, count).astype(F32)

    def constant(self, values, stem="w"):
        name = self.name_for(stem)
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def scalar(self, value):
        return self.constant(np.array(value, F32), "c")

    def integers(self, values, stem="shape"):
        return self.constant(np.array(values, np.int64), stem)

    def feed(self, name, shape, values):
        element = TensorProto.INT64 if values.dtype == np.int64 else TensorProto.FLOAT
        self._inputs.append(helper.make_tensor_value_info(name, element, shape))
        self._feeds.append(values)
        return name

    def feed_image(self, channels, default_size):
        side = self.settings.image_size(default_size)
        shape = (1, channels, side, side)
        return self.feed("input", list(shape), self.gauss(shape, 1.0))

    # ---- operators

    def add_node(self, operator, operands, result, **attributes):
        self._nodes.append(helper.make_node(operator, operands, [result], name=result, **attributes))
        return result

    def apply(self, operator, *operands, **attributes):
        return self.add_node(operator, list(operands), self.name_for(operator.lower()), **attributes)

    def relu(self, x):
        return self.apply("Relu", x)

    def add(self, a, b):
        return self.apply("Add", a, b)

    def convolution(self, x, inputs, outputs, kernel, stride=1, padding=None, groups=1, bias=False, gain=2.0):
        if padding is None:
            padding = kernel // 2
        per_group = inputs // groups
        deviation = np.sqrt(gain / (per_group * kernel * kernel))
        operands = [x, self.constant(self.gauss((outputs, per_group, kernel, kernel), deviation))]
        if bias:
            operands.append(self.constant(self.gauss((outputs,), 0.1), "b"))
        return self.apply("Conv", *operands, kernel_shape=[kernel] * 2, strides=[stride] * 2,
                          pads=[padding] * 4, group=groups)

    def normalise(self, x, channels):
        gamma = self.constant(self.near_one(channels), "gamma")
        beta = self.constant(self.gauss((channels,), 0.1), "beta")
        mean = self.constant(self.gauss((channels,), 0.1), "mean")
        variance = self.constant(self.near_one(channels), "var")
        return self.apply("BatchNormalization", x, gamma, beta, mean, variance, epsilon=1e-5)

    def conv_bn(self, x, inputs, outputs, kernel, *rest, **named):
        return self.normalise(self.convolution(x, inputs, outputs, kernel, *rest, **named), outputs)

    def fully_connected(self, x, inputs, outputs, gain=2.0):
        weight = self.constant(self.gauss((outputs, inputs), np.sqrt(gain / inputs)))
        bias = self.constant(self.gauss((outputs,), 0.1), "b")
        return self.apply("Gemm", x, weight, bias, transB=1)

    def dequantized(self, values, scale, axis=0):
        """A constant of i8 or i32 and the node that makes floats of it."""
        zeros = np.zeros(np.shape(scale), values.dtype)
        operands = [self.constant(values, "q"), self.constant(np.asarray(scale, F32), "s"), self.constant(zeros, "z")]
        return self.apply("DequantizeLinear", *operands, axis=axis)

    def rounded(self, x, largest, signed=True):
        """To i8 and back, as quantisers put it around every operator: [-largest, largest], or [0, largest]."""
        scale = np.array(largest / (127 if signed else 255), F32)
        parameters = [self.constant(scale, "s"), self.constant(np.array(0 if signed else -128, np.int8), "z")]
        return self.apply("DequantizeLinear", self.apply("QuantizeLinear", x, *parameters), *parameters), scale

    def small_weights(self, shape, fan_in, data_scale, axis=0):
        """Weights of i8, a scale for each output, and the bias as i32 at the scale of the products."""
        scales = (self.random.uniform(0.5, 1.5, shape[axis]) * np.sqrt(2.0 / fan_in) / 40).astype(F32)
        weights = np.clip(np.round(self.random.standard_normal(shape) * 40), -127, 127).astype(np.int8)
        bias = np.round(self.random.standard_normal(shape[axis]) * 500).astype(np.int32)
        return [self.dequantized(weights, scales, axis), self.dequantized(bias, scales * data_scale)]

    def small_convolution(self, value, inputs, outputs, kernel, stride=1, groups=1):
        """`value` and the scale it was rounded with; the result is in floats, to be rounded next."""
        x, scale = value
        shape = (outputs, inputs // groups, kernel, kernel)
        operands = self.small_weights(shape, shape[1] * kernel * kernel, scale)
        return self.apply("Conv", x, *operands, kernel_shape=[kernel] * 2, strides=[stride] * 2,
                          pads=[kernel // 2] * 4, group=groups)

    def softmax(self, x):
        return x if self.settings.logits else self.apply("Softmax", x, axis=1)

    def pooled_classifier(self, x, channels, classes=1000):
        flat = self.apply("Flatten", self.apply("GlobalAveragePool", x), axis=1)
        self.finish(self.softmax(self.fully_connected(flat, channels, classes, gain=1.0)), [1, classes])

    def finish(self, value, shape):
        self._nodes.append(helper.make_node("Identity", [value], ["output"], name="output_identity"))
        self._outputs.append(helper.make_tensor_value_info("output", TensorProto.FLOAT, shape))

    # ---- files

    def save(self, folder):
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET_VERSION)],
                                  producer_name=PRODUCER)
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        data = Path(folder) / self.name / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        onnx.save(model, str(data.parent / "model.onnx"))
        for index, (values, info) in enumerate(zip(self._feeds, self._inputs)):
            tensor = numpy_helper.from_array(values, info.name)
            (data / f"input_{index}.pb").write_bytes(tensor.SerializeToString())


# ------------------------------------------------------------------------------------------ the networks

def dqn(settings):
    """The action-value network of Mnih et al. (2015): three convolutions, two dense layers, 18 actions."""
    net = GraphWriter("dqn", 3, settings)
    side, channels = settings.image_size(84), 4
    x = net.feed_image(channels, 84)
    for outputs, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        outputs = settings.channels(outputs)
        x = net.relu(net.convolution(x, channels, outputs, kernel, stride, 0, bias=True))
        channels, side = outputs, (side - kernel) // stride + 1
    x = net.apply("Flatten", x, axis=1)
    x = net.relu(net.fully_connected(x, channels * side * side, 512))
    net.finish(net.fully_connected(x, 512, 18, gain=1.0), [1, 18])
    return net


def residual_network(name, number, settings, depths, bottleneck):
    """He et al. (2016): basic blocks of two 3x3 convolutions, or bottlenecks of 1x1, 3x3, 1x1."""
    net = GraphWriter(name, number, settings)
    channels = settings.channels(64)
    x = net.relu(net.conv_bn(net.feed_image(3, 224), 3, channels, 7, 2))
    x = net.apply("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for stage, depth in enumerate(depths):
        inner = settings.channels(64 * 2 ** stage)
        outer = inner * (4 if bottleneck else 1)
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            shortcut = x
            if stride != 1 or channels != outer:
                shortcut = net.conv_bn(x, channels, outer, 1, stride, 0, gain=1.0)
            if bottleneck:
                y = net.relu(net.conv_bn(x, channels, inner, 1))
                y = net.relu(net.conv_bn(y, inner, inner, 3, stride))
                y = net.conv_bn(y, inner, outer, 1, gain=0.5)
            else:
                y = net.relu(net.conv_bn(x, channels, inner, 3, stride))
                y = net.conv_bn(y, inner, outer, 3, gain=0.5)
            x, channels = net.relu(net.add(y, shortcut)), outer
    net.pooled_classifier(x, channels)
    return net


def resnet18(settings):
    return residual_network("resnet18", 18, settings, (2, 2, 2, 2), bottleneck=False)


def resnet50(settings):
    return residual_network("resnet50", 50, settings, (3, 4, 6, 3), bottleneck=True)


def mobilenet(settings):
    """Howard et al. (2017): depthwise separable convolutions with ReLU6."""
    net = GraphWriter("mobilenet", 1, settings)
    bounds = (net.constant(F32(0), "lo"), net.constant(F32(6), "hi"))

    def relu6(value):
        return net.apply("Clip", value, *bounds)

    channels = settings.channels(32)
    x = relu6(net.conv_bn(net.feed_image(3, 224), 3, channels, 3, 2))
    layers = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for outputs, stride in layers:
        outputs = settings.channels(outputs)
        x = relu6(net.conv_bn(x, channels, channels, 3, stride, groups=channels))
        x = relu6(net.conv_bn(x, channels, outputs, 1))
        channels = outputs
    net.pooled_classifier(x, channels)
    return net


def lstm_lm(settings, hidden=650, words=10000, length=16):
    """The medium word-level language model of Zaremba et al. (2014): two LSTM layers of 650."""
    net = GraphWriter("lstm_lm", 2, settings)
    tokens = net.random.integers(0, words, (length, 1)).astype(np.int64)
    ids = net.feed("tokens", [length, 1], tokens)
    x = net.apply("Gather", net.constant(net.gauss((words, hidden), 1.0), "embedding"), ids, axis=0)
    deviation = 1 / np.sqrt(hidden)
    for _ in range(2):
        result = net.name_for("lstm")
        gates = [net.constant(net.gauss((1, 4 * hidden, hidden), deviation), stem) for stem in ("W", "R")]
        bias = net.constant(net.gauss((1, 8 * hidden), 0.1), "B")
        net.add_node("LSTM", [x, *gates, bias], result, hidden_size=hidden)
        x = net.apply("Squeeze", result, net.integers([1], "axes"))
    x = net.apply("Reshape", x, net.integers([length, hidden]))
    net.finish(net.softmax(net.fully_connected(x, hidden, words, gain=4.0)), [length, words])
    return net


def dcgan(settings):
    """The generator of Radford et al. (2016): four transposed convolutions to a 64x64 image."""
    net = GraphWriter("dcgan", 4, settings)
    channels = 1024
    seed_vector = net.feed("z", [1, 100], net.gauss((1, 100), 1.0))
    x = net.fully_connected(seed_vector, 100, channels * 16)
    x = net.apply("Reshape", x, net.integers([1, channels, 4, 4]))
    x = net.relu(net.normalise(x, channels))
    for outputs in (512, 256, 128, 3):
        weight = net.constant(net.gauss((channels, outputs, 4, 4), np.sqrt(2.0 / (channels * 4))))
        x = net.apply("ConvTranspose", x, weight, kernel_shape=[4, 4], strides=[2, 2], pads=[1] * 4)
        if outputs == 3:
            x = net.apply("Tanh", x)
        else:
            x = net.relu(net.normalise(x, outputs))
        channels = outputs
    net.finish(x, [1, 3, 64, 64])
    return net


def bert_small(settings, layers=4, width=512, heads=8, length=128):
    """A transformer encoder the way exporters write it: separate Q, K, V, LayerNorm and GELU decomposed."""
    net = GraphWriter("bert_small", 5, settings)
    x = net.feed("hidden", [1, length, width], net.gauss((1, length, width), 1.0))

    def linear(value, inputs, outputs):
        weight = net.constant(net.gauss((inputs, outputs), np.sqrt(1.0 / inputs)))
        product = net.apply("MatMul", value, weight)
        return net.add(product, net.constant(net.gauss((outputs,), 0.02), "b"))

    def layer_norm(value):
        centred = net.apply("Sub", value, net.apply("ReduceMean", value, axes=[-1], keepdims=1))
        square = net.apply("Pow", centred, net.scalar(2.0))
        variance = net.apply("ReduceMean", square, axes=[-1], keepdims=1)
        deviation = net.apply("Sqrt", net.add(variance, net.scalar(1e-5)))
        scaled = net.apply("Div", centred, deviation)
        scaled = net.apply("Mul", scaled, net.constant(net.near_one(width), "g"))
        return net.add(scaled, net.constant(net.gauss((width,), 0.02), "b"))

    def split_heads(value):
        split = net.apply("Reshape", value, net.integers([1, length, heads, width // heads]))
        return net.apply("Transpose", split, perm=[0, 2, 1, 3])

    def attention(value):
        query, key, content = [split_heads(linear(value, width, width)) for _ in range(3)]
        scores = net.apply("MatMul", query, net.apply("Transpose", key, perm=[0, 1, 3, 2]))
        scores = net.apply("Div", scores, net.scalar(np.sqrt(width / heads)))
        mixed = net.apply("MatMul", net.apply("Softmax", scores, axis=-1), content)
        mixed = net.apply("Transpose", mixed, perm=[0, 2, 1, 3])
        return linear(net.apply("Reshape", mixed, net.integers([1, length, width])), width, width)

    def gelu(value):
        half = net.apply("Mul", value, net.scalar(0.5))
        erf = net.apply("Erf", net.apply("Div", value, net.scalar(np.sqrt(2.0))))
        return net.apply("Mul", half, net.add(erf, net.scalar(1.0)))

    for _ in range(layers):
        x = layer_norm(net.add(x, attention(x)))
        x = layer_norm(net.add(x, linear(gelu(linear(x, width, 4 * width)), 4 * width, width)))
    net.finish(x, [1, length, width])
    return net


def attention(settings, heads=12, length=128, depth=64):
    """Scaled dot-product attention of one layer of BERT-base: three inputs, no weights."""
    net = GraphWriter("attention", 6, settings)
    shape = [1, heads, length, depth]
    query, key, content = [net.feed(name, shape, net.gauss(shape, 1.0)) for name in ("query", "key", "content")]
    scores = net.apply("MatMul", query, net.apply("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.apply("Div", scores, net.scalar(np.sqrt(depth)))
    net.finish(net.apply("MatMul", net.apply("Softmax", scores, axis=-1), content), shape)
    return net


def lstm_cell(settings, hidden=512):
    """One step of an LSTM with 512 units, batch 1: two products of a vector and a matrix, four gates."""
    net = GraphWriter("lstm_cell", 7, settings)
    x = net.feed("x", [1, 1, hidden], net.gauss((1, 1, hidden), 1.0))
    deviation = 1 / np.sqrt(hidden)
    gates = [net.constant(net.gauss((1, 4 * hidden, hidden), deviation), stem) for stem in ("W", "R")]
    bias = net.constant(net.gauss((1, 8 * hidden), 0.1), "B")
    state = [net.feed(name, [1, 1, hidden], net.gauss((1, 1, hidden), 1.0)) for name in ("h", "c")]
    result = net.name_for("lstm")
    net.add_node("LSTM", [x, *gates, bias, "", *state], result, hidden_size=hidden)
    net.finish(net.apply("Squeeze", result, net.integers([1], "axes")), [1, 1, hidden])
    return net


def quantized(settings):
    """An int8 network as quantisers write it (QuantizeLinear and DequantizeLinear around every operator): a first
    convolution of three channels, a depthwise separable layer, a residual block of unequal scales, maxima, a mean
    and a dense layer, with scales for each channel, i8 data with and without zero points."""
    net = GraphWriter("quantized", 8, settings)
    few, many = settings.channels(16), settings.channels(32)
    x = net.rounded(net.feed_image(3, 32), 4.0)
    x = net.rounded(net.relu(net.small_convolution(x, 3, few, 3, 2)), 6.0, signed=False)
    x = net.rounded(net.apply("MaxPool", x[0], kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4), 6.0, signed=False)
    x = net.rounded(net.relu(net.small_convolution(x, few, few, 3, groups=few)), 5.0, signed=False)
    x = net.rounded(net.small_convolution(x, few, many, 1), 5.0)
    y = net.rounded(net.relu(net.small_convolution(x, many, many, 3)), 5.0, signed=False)
    y = net.rounded(net.small_convolution(y, many, many, 3), 7.0)
    x = net.rounded(net.relu(net.add(y[0], x[0])), 8.0, signed=False)
    x = net.rounded(net.apply("GlobalAveragePool", x[0]), 3.0, signed=False)
    x = net.rounded(net.apply("Flatten", x[0], axis=1), 3.0, signed=False)
    weights, bias = net.small_weights((10, many), many, x[1])
    x = net.rounded(net.apply("Gemm", x[0], weights, bias, transB=1), 4.0)
    net.finish(x[0], [1, 10])
    return net


NETWORKS = {build.__name__: build
            for build in (dqn, resnet18, resnet50, mobilenet, lstm_lm, dcgan, bert_small, attention, lstm_cell,
                          quantized)}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NETWORKS))
    parser.add_argument("--logits", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int)
    parser.add_argument("--width", type=float, default=1.0)
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(NETWORKS))
    if unknown:
        parser.error(f"expected networks out of {', '.join(NETWORKS)}, found {', '.join(unknown)}")
    if not (math.isfinite(options.width) and options.width > 0) or (options.size or 1) < 1:
        parser.error("expected a positive width and size")
    settings = Settings(options.logits, options.seed, options.size, options.width)
    for name in options.names or NETWORKS:
        NETWORKS[name](settings).save(options.out_dir)
        print("wrote", name)


if __name__ == "__main__":
    main(sys.argv[1:])
