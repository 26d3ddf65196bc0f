"""An ONNX model in PyTorch's own functions: what gpu_race.py races against, and what it takes for exact in double precision.

TorchGraph(torch, model, device)(*feeds) runs the operators of the seven networks and of single products and convolutions. Weights are
on the device from the start. An operator that it does not know is refused by name.
"""
import onnx
from onnx import helper, numpy_helper


def window(attributes, w):
    """Strides, pads as PyTorch has them (the same at both ends), dilations."""
    spatial = w.dim() - 2
    pads = attributes.get("pads", [0] * 2 * spatial)
    if pads[:spatial] != pads[spatial:] or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise NotImplementedError(f"pads {pads}: PyTorch's convolutions have the same at both ends")
    return attributes.get("strides", [1] * spatial), pads[:spatial], attributes.get("dilations", [1] * spatial)


class TorchGraph:
    def __init__(self, torch, model, device, exact=False):
        self.torch, self.nn, self.exact = torch, torch.nn.functional, exact
        graph = model.graph
        self.nodes = [(node, {a.name: helper.get_attribute_value(a) for a in node.attribute}) for node in graph.node]
        unknown = {node.op_type for node, _ in self.nodes if not hasattr(self, node.op_type)}
        if unknown:
            raise NotImplementedError("operators without a function of PyTorch: " + ", ".join(sorted(unknown)))
        self.shapes = {t.name: numpy_helper.to_array(t).tolist() for t in graph.initializer if t.data_type == onnx.TensorProto.INT64}
        self.constants = {t.name: self.tensor(numpy_helper.to_array(t)).to(device) for t in graph.initializer if t.name not in self.shapes}
        self.inputs = [i.name for i in graph.input if i.name not in self.constants and i.name not in self.shapes]
        self.outputs = [o.name for o in graph.output]

    def tensor(self, array):
        value = self.torch.from_numpy(array.copy())
        return value.double() if self.exact and array.dtype.kind == "f" else value

    def __call__(self, *feeds):
        values = dict(self.constants, **dict(zip(self.inputs, feeds)))
        for node, attributes in self.nodes:
            # Shapes and axes are numbers of the program, no tensors.
            operands = [self.shapes[name] if name in self.shapes else values.get(name) for name in node.input]
            results = getattr(self, node.op_type)(attributes, *operands)
            values.update(zip(node.output, results if isinstance(results, tuple) else (results,)))
        return values[self.outputs[0]]

    # One method for each operator: its attributes, then its operands.
    def Identity(self, _, x):
        return x

    def Add(self, _, a, b):
        return a + b

    def Sub(self, _, a, b):
        return a - b

    def Mul(self, _, a, b):
        return a * b

    def Div(self, _, a, b):
        return a / b

    def Pow(self, _, a, b):
        return a ** b

    def Sqrt(self, _, x):
        return x.sqrt()

    def Erf(self, _, x):
        return x.erf()

    def Tanh(self, _, x):
        return x.tanh()

    def Relu(self, _, x):
        return x.relu()

    def Clip(self, _, x, low=None, high=None):
        return self.torch.clamp(x, low, high)

    def MatMul(self, _, a, b):
        return a @ b

    def MatMulInteger(self, _, a, b):
        return a.double() @ b.double() if self.exact else self.torch._int_mm(a, b)

    def Gemm(self, attributes, a, b, c):
        if attributes.get("transA") or attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
            raise NotImplementedError("Gemm with a transposed first operand or with factors")
        return self.nn.linear(a, b if attributes.get("transB") else b.t(), c)

    def Conv(self, attributes, x, w, b=None):
        strides, pads, dilations = window(attributes, w)
        return self.nn.conv2d(x, w, b, strides, pads, dilations, attributes.get("group", 1))

    def ConvTranspose(self, attributes, x, w, b=None):
        strides, pads, dilations = window(attributes, w)
        return self.nn.conv_transpose2d(x, w, b, strides, pads, attributes.get("output_padding", 0), attributes.get("group", 1), dilations)

    def BatchNormalization(self, attributes, x, scale, bias, mean, variance):
        return self.nn.batch_norm(x, mean, variance, scale, bias, eps=attributes.get("epsilon", 1e-5))

    def MaxPool(self, attributes, x):
        strides, pads, dilations = window(attributes, x)
        return self.nn.max_pool2d(x, attributes["kernel_shape"], strides, pads, dilations)

    def GlobalAveragePool(self, _, x):
        return x.mean((2, 3), keepdim=True)

    def Flatten(self, attributes, x):
        return x.flatten(attributes.get("axis", 1))

    def Reshape(self, _, x, shape):
        return x.reshape(shape)

    def Squeeze(self, _, x, axes):
        for axis in sorted(axes, reverse=True):
            x = x.squeeze(axis)
        return x

    def Transpose(self, attributes, x):
        return x.permute(attributes["perm"])

    def Softmax(self, attributes, x):
        return x.softmax(attributes.get("axis", -1))

    def ReduceMean(self, attributes, x):
        return x.mean(attributes["axes"], keepdim=bool(attributes.get("keepdims", 1)))

    def Gather(self, attributes, x, indices):
        if attributes.get("axis", 0) != 0:
            raise NotImplementedError("Gather along an inner axis")
        return x[indices]

    def LSTM(self, attributes, x, w, r, b):
        """Gates of ONNX are input, output, forget, cell; PyTorch's are input, forget, cell, output."""
        hidden = attributes["hidden_size"]

        def reordered(rows):
            i, o, f, c = rows.split(hidden)
            return self.torch.cat([i, f, c, o])
        start = x.new_zeros(1, x.shape[1], hidden)
        weights = [reordered(part) for part in (w[0], r[0], b[0, :4 * hidden], b[0, 4 * hidden:])]
        result = self.torch.lstm(x, (start, start), weights, True, 1, 0.0, False, False, False)
        return (result[0].unsqueeze(1), *result[1:])
