#!/usr/bin/env python3
"""Runs an ONNX model in NumPy and writes what it computes: an implementation that shares nothing with the
compiler, for expected outputs.

    numpy_eval.py MODEL.onnx INPUT.pb ... -o DIR

INPUT.pb are TensorProto files, one per graph input in the graph's order (a tensor that carries the name of an
input goes to that one). DIR/output_N.pb are written in the graph's order, each with its name. Floating-point
tensors are computed in float64 throughout and rounded once at the end, so the result is more exact than any
float32 program. Operators: those of the networks of make_models.py, at the opsets it uses; others are refused
by name. Needs Debian's python3-onnx and python3-numpy.
"""
import argparse
import math
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Unsupported(Exception):
    pass


def numpy_type(element):
    """Of a tensor's element type; the package's older versions have a table only."""
    convert = getattr(helper, "tensor_dtype_to_np_dtype", None)
    return convert(element) if convert else helper.mapping.TENSOR_TYPE_TO_NP_TYPE[element]


def spatial_windows(x, kernel, strides, pads, dilations, fill):
    """View of x [n, c, h, w] as [n, c, out_h, out_w, kernel_h, kernel_w], with padding by `fill`."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    size = [(extent - r) // s + 1 for extent, r, s in zip(x.shape[2:], reach, strides)]
    n, c, h, w = x.strides
    return np.lib.stride_tricks.as_strided(
        x, x.shape[:2] + tuple(size) + tuple(kernel),
        (n, c, h * strides[0], w * strides[1], h * dilations[0], w * dilations[1]), writeable=False)


class Node:
    """One node with its attributes as Python values."""

    def __init__(self, proto, opset):
        self.proto, self.opset = proto, opset
        self.attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}

    def get(self, name, default=None):
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def refuse(self, what):
        raise Unsupported(f"node '{self.proto.name}' ({self.proto.op_type}): {what}")

    def window(self, spatial, kernel):
        strides = self.get("strides", [1] * spatial)
        pads = self.get("pads", [0] * 2 * spatial)
        dilations = self.get("dilations", [1] * spatial)
        if self.get("auto_pad", "NOTSET") != "NOTSET" or spatial != 2:
            self.refuse("only two spatial dimensions with explicit pads")
        return self.get("kernel_shape", kernel), strides, pads, dilations


def conv(node, x, w, b=None):
    groups = node.get("group", 1)
    kernel, strides, pads, dilations = node.window(w.ndim - 2, list(w.shape[2:]))
    windows = spatial_windows(x, kernel, strides, pads, dilations, 0.0)
    batch, _, height, width = windows.shape[:4]
    per_in, per_out = w.shape[1], w.shape[0] // groups
    out = np.empty((batch, w.shape[0], height, width))
    for g in range(groups):
        part = windows[:, g * per_in:(g + 1) * per_in].transpose(0, 2, 3, 1, 4, 5)
        columns = part.reshape(batch * height * width, -1)
        matrix = w[g * per_out:(g + 1) * per_out].reshape(per_out, -1)
        result = (columns @ matrix.T).reshape(batch, height, width, per_out)
        out[:, g * per_out:(g + 1) * per_out] = result.transpose(0, 3, 1, 2)
    return out if b is None else out + b.reshape(1, -1, 1, 1)


def conv_transpose(node, x, w, b=None):
    if node.get("group", 1) != 1 or any(node.get("output_padding", [0])) or node.get("output_shape"):
        node.refuse("only one group, no output padding or shape")
    kernel, strides, pads, dilations = node.window(w.ndim - 2, list(w.shape[2:]))
    batch, _, height, width = x.shape
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip((height, width), strides, kernel, dilations)]
    out = np.zeros((batch, w.shape[1], *full))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = slice(i * dilations[0], i * dilations[0] + (height - 1) * strides[0] + 1, strides[0])
            cols = slice(j * dilations[1], j * dilations[1] + (width - 1) * strides[1] + 1, strides[1])
            out[:, :, rows, cols] += np.tensordot(w[:, :, i, j], x, ([0], [1])).transpose(1, 0, 2, 3)
    top, left, bottom, right = pads
    out = out[:, :, top:full[0] - bottom, left:full[1] - right]
    return out if b is None else out + b.reshape(1, -1, 1, 1)


def gemm(node, a, b, c=None):
    a = a.T if node.get("transA", 0) else a
    b = b.T if node.get("transB", 0) else b
    out = node.get("alpha", 1.0) * (a @ b)
    return out if c is None else out + node.get("beta", 1.0) * c


def batch_norm(node, x, scale, bias, mean, variance):
    if node.get("training_mode", 0):
        node.refuse("only inference mode")
    per_channel = [p.reshape((1, -1) + (1,) * (x.ndim - 2)) for p in (scale, bias, mean, variance)]
    scale, bias, mean, variance = per_channel
    return (x - mean) / np.sqrt(variance + np.float64(np.float32(node.get("epsilon", 1e-5)))) * scale + bias


def max_pool(node, x):
    if node.get("ceil_mode", 0):
        node.refuse("only ceil_mode=0")
    kernel, strides, pads, dilations = node.window(x.ndim - 2, None)
    return spatial_windows(x, kernel, strides, pads, dilations, -np.inf).max(axis=(4, 5))


def average_pool(node, x):
    if node.get("ceil_mode", 0):
        node.refuse("only ceil_mode=0")
    kernel, strides, pads, dilations = node.window(x.ndim - 2, None)
    total = spatial_windows(x, kernel, strides, pads, dilations, 0.0).sum(axis=(4, 5))
    if node.get("count_include_pad", 0):
        return total / (kernel[0] * kernel[1])
    return total / spatial_windows(np.ones_like(x), kernel, strides, pads, dilations, 0.0).sum(axis=(4, 5))


def softmax(node, x):
    if node.opset >= 13:
        axis = node.get("axis", -1)
    else:  # everything from the axis on is one row
        shape, axis = x.shape, node.get("axis", 1)
        x = x.reshape(int(np.prod(shape[:axis])), -1)
        return softmax_along(x, 1).reshape(shape)
    return softmax_along(x, axis)


def softmax_along(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def reshape(node, x, shape):
    shape = [x.shape[i] if n == 0 and not node.get("allowzero", 0) else n for i, n in enumerate(shape)]
    return x.reshape([int(n) for n in shape])


def flatten(node, x):
    axis = node.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return x.reshape(int(np.prod(x.shape[:axis])), -1)


def axes_of(node, given):
    axes = node.get("axes") if given is None else given.tolist()
    return None if axes is None else tuple(int(a) for a in axes)


def squeeze(node, x, given=None):
    return np.squeeze(x, axes_of(node, given))


def unsqueeze(node, x, given=None):
    return np.expand_dims(x, axes_of(node, given))


def reduction(function):
    def run(node, x, given=None):
        return function(x, axis=axes_of(node, given), keepdims=bool(node.get("keepdims", 1)))
    return run


def clip(node, x, low=None, high=None):
    low = node.get("min") if low is None else low
    high = node.get("max") if high is None else high
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(node, x, w, r, b=None, lengths=None, h0=None, c0=None, peepholes=None):
    if node.get("direction", "forward") != "forward" or lengths is not None or peepholes is not None:
        node.refuse("only the forward direction, full lengths, no peepholes")
    if node.get("activations") or node.get("clip") or node.get("input_forget", 0) or node.get("layout", 0):
        node.refuse("only the default activations")
    hidden = r.shape[2]
    h = np.zeros((x.shape[1], hidden)) if h0 is None else h0[0]
    c = np.zeros((x.shape[1], hidden)) if c0 is None else c0[0]
    bias = np.zeros(4 * hidden) if b is None else b[0, :4 * hidden] + b[0, 4 * hidden:]
    steps = []
    for row in x:
        gates = row @ w[0].T + h @ r[0].T + bias
        i, o, f, g = np.split(gates, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        steps.append(h)
    return np.stack(steps)[:, np.newaxis], h[np.newaxis], c[np.newaxis]


def dropout(node, x, ratio=None, training=None):
    if training is not None and training:
        node.refuse("only inference mode")
    return x


def constant(node):
    for name in ("value_float", "value_int", "value_floats", "value_ints"):
        if name in node.attributes:
            return widened(np.array(node.get(name)))
    return widened(numpy_helper.to_array(node.get("value")))


def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def along(node, x, parameter):
    """A scale or zero point of the channels along the node's axis, or of everything."""
    if parameter.ndim != 1 or parameter.size == 1:
        return parameter
    return parameter.reshape([-1 if d == node.get("axis", 1) % x.ndim else 1 for d in range(x.ndim)])


def quantize_linear(node, x, scale, zero=np.array(0, np.uint8)):
    limits = np.iinfo(zero.dtype)
    steps = np.rint(x / along(node, x, scale)) + along(node, x, zero)
    return np.clip(steps, limits.min, limits.max).astype(zero.dtype)


def dequantize_linear(node, x, scale, zero=np.array(0, np.int32)):
    return (x.astype(np.float64) - along(node, x, zero)) * along(node, x, scale)


def elementwise(function):
    return lambda node, *operands: function(*operands)


OPERATORS = {
    "Abs": elementwise(np.abs), "Add": elementwise(np.add), "Div": elementwise(np.divide),
    "Erf": elementwise(erf), "Exp": elementwise(np.exp), "Identity": elementwise(lambda x: x),
    "Log": elementwise(np.log), "Mul": elementwise(np.multiply), "Neg": elementwise(np.negative),
    "Pow": elementwise(np.power), "Relu": elementwise(lambda x: np.maximum(x, 0)),
    "Sigmoid": elementwise(sigmoid), "Sqrt": elementwise(np.sqrt), "Sub": elementwise(np.subtract),
    "Tanh": elementwise(np.tanh),
    "AveragePool": average_pool, "BatchNormalization": batch_norm, "Clip": clip,
    "Concat": lambda node, *parts: np.concatenate(parts, axis=node.get("axis")),
    "Constant": constant, "Conv": conv, "ConvTranspose": conv_transpose, "DequantizeLinear": dequantize_linear,
    "Dropout": dropout,
    "Flatten": flatten, "Gather": lambda node, x, i: np.take(x, i, axis=node.get("axis", 0)),
    "Gemm": gemm, "GlobalAveragePool": lambda node, x: x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),
    "LSTM": lstm, "MatMul": elementwise(np.matmul), "MaxPool": max_pool,
    "QuantizeLinear": quantize_linear,
    "ReduceMax": reduction(np.max), "ReduceMean": reduction(np.mean), "ReduceMin": reduction(np.min),
    "ReduceSum": reduction(np.sum), "Reshape": reshape, "Softmax": softmax, "Squeeze": squeeze,
    "Transpose": lambda node, x: np.transpose(x, node.get("perm")), "Unsqueeze": unsqueeze,
}


def widened(array):
    return array.astype(np.float64) if array.dtype in (np.float16, np.float32) else array


def evaluate(model, feeds):
    """Outputs of the model by name; `feeds` are its inputs by name."""
    graph = model.graph
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    unknown = [f"'{n.name}' ({n.op_type})" for n in graph.node
               if n.op_type not in OPERATORS or n.domain not in ("", "ai.onnx")]
    if unknown:
        raise Unsupported("operators without an implementation: " + ", ".join(unknown))
    values = {t.name: widened(numpy_helper.to_array(t)) for t in graph.initializer}
    values.update({name: widened(array) for name, array in feeds.items()})
    for proto in graph.node:
        operands = [values[name] if name else None for name in proto.input]
        results = OPERATORS[proto.op_type](Node(proto, opset), *operands)
        results = results if isinstance(results, tuple) else (results,)
        values.update({name: result for name, result in zip(proto.output, results) if name})
    return {output.name: values[output.name] for output in graph.output}


def read_feeds(model, paths):
    constants = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in constants]
    if len(paths) != len(names):
        raise Unsupported(f"expected {len(names)} inputs ({', '.join(names)}), found {len(paths)}")
    feeds = {}
    for name, path in zip(names, paths):
        tensor = TensorProto.FromString(Path(path).read_bytes())
        feeds[tensor.name if tensor.name in names else name] = numpy_helper.to_array(tensor)
    return feeds


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("inputs", nargs="*", metavar="INPUT.pb")
    parser.add_argument("-o", "--output-dir", required=True)
    options = parser.parse_args(arguments)
    model = onnx.load(options.model)
    try:
        outputs = evaluate(model, read_feeds(model, options.inputs))
    except Unsupported as error:
        print(f"numpy_eval: {error}", file=sys.stderr)
        return 1
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    for index, info in enumerate(model.graph.output):
        dtype = numpy_type(info.type.tensor_type.elem_type)
        tensor = numpy_helper.from_array(np.ascontiguousarray(outputs[info.name].astype(dtype)), info.name)
        (folder / f"output_{index}.pb").write_bytes(tensor.SerializeToString())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
