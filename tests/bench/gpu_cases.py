"""What gpu_race.py races: products, the convolutions of the seven networks, and these networks, each as an ONNX model with inputs."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "models"), str(ROOT / "support")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from fleet import make_models  # noqa: E402
from network_check import NAMES  # noqa: E402

KIND = {"fp32": TensorProto.FLOAT, "tf32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "int8": TensorProto.INT8}
FLOATS = {"fp32": np.float32, "tf32": np.float32, "fp16": np.float16}
LIMIT = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "int8": 0}  # |a - e| / |e|
SQUARE = (512, 1024, 2048, 4096, 8192)
# Rows, columns, terms: what language models and heads of classifiers have, tall, flat and long ones, primes, and a few more or
# less than a power of two.
ODD = ((17, 4096, 4096), (100, 1000, 2048), (384, 384, 1536), (511, 513, 512), (640, 1280, 960), (1000, 1000, 1000),
       (1536, 100, 4096), (2049, 2047, 256), (3072, 768, 768), (4095, 33, 4097), (24, 11008, 4096), (48, 768, 3072),
       (96, 50257, 768), (127, 4096, 11008), (197, 3072, 768), (197, 768, 3072), (257, 1024, 1024), (300, 300, 10000),
       (333, 2222, 1111), (513, 513, 2049), (577, 1000, 577), (729, 1152, 4304), (997, 991, 983), (1023, 1025, 4096),
       (1500, 384, 1536), (2000, 40, 2000), (2047, 2047, 2047), (3000, 3000, 300), (4097, 255, 1023), (10000, 64, 650))


def input_of(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Product:
    """C[m,n] = A[m,k] B[k,n]."""
    is_network = False

    def __init__(self, dtype, m, n, k, group):
        self.dtype, self.m, self.n, self.k, self.group = dtype, m, n, k, group
        self.name = f"{dtype} {m}x{n}x{k}"
        self.flops = 2 * m * n * k

    def model(self, _folder):
        kind, is_int = KIND[self.dtype], self.dtype == "int8"
        graph = helper.make_graph([helper.make_node("MatMulInteger" if is_int else "MatMul", ["a", "b"], ["c"])], "product",
                                  [input_of("a", kind, (self.m, self.k)), input_of("b", kind, (self.k, self.n))],
                                  [input_of("c", TensorProto.INT32 if is_int else kind, (self.m, self.n))])
        return model_of(graph)

    def inputs(self, rng):
        shapes = {"a": (self.m, self.k), "b": (self.k, self.n)}
        if self.dtype == "int8":
            return {name: rng.integers(-128, 128, shape, np.int8) for name, shape in shapes.items()}
        return {name: rng.standard_normal(shape).astype(FLOATS[self.dtype]) for name, shape in shapes.items()}


class Convolution:
    """One of a network's nodes with constant weights. `key`: image, weights, attributes."""
    is_network, group = False, "convolutions"

    def __init__(self, dtype, key):
        self.dtype, self.key = dtype, key
        operator, x, w, y, attributes = key
        self.attributes = dict(attributes)
        window = "x".join(map(str, w[2:]))
        self.name = (f"{dtype} {'deconv' if operator == 'ConvTranspose' else 'conv'} {'x'.join(map(str, x))} to {y[1]} k{window}"
                     f" s{self.attributes.get('strides', (1,))[0]}" + (f" g{self.attributes['group']}" if self.attributes.get("group", 1) > 1 else ""))
        pixels = x if operator == "ConvTranspose" else y
        self.flops = 2 * int(np.prod(w)) * pixels[0] * int(np.prod(pixels[2:]))

    def model(self, _folder):
        operator, x, w, y, _ = self.key
        kind, type_ = KIND[self.dtype], FLOATS[self.dtype]
        weights = np.random.default_rng(2).standard_normal(w) / np.sqrt(np.prod(w[1:]))
        attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in self.attributes.items()}
        graph = helper.make_graph([helper.make_node(operator, ["x", "w"], ["y"], **attributes)], "convolution", [input_of("x", kind, x)],
                                  [input_of("y", kind, y)], [numpy_helper.from_array(weights.astype(type_), "w")])
        return model_of(graph)

    def inputs(self, rng):
        return {"x": rng.standard_normal(self.key[1]).astype(FLOATS[self.dtype])}


def convolutions_of(model):
    """Operator, shapes of image, weights and result, and attributes of each convolution."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in [*graph.input, *graph.value_info, *graph.output]}
    shapes.update({t.name: tuple(t.dims) for t in graph.initializer})
    for node in graph.node:
        if node.op_type in ("Conv", "ConvTranspose"):
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            fixed = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in attributes.items()))
            yield node.op_type, shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]], fixed


def batched(model, batch):
    """The model for so many images, rows of tokens or noise; it is made for one. A language model's batch is its second axis."""
    graph = model.graph
    dims = graph.input[0].type.tensor_type.shape.dim
    dims[next(i for i, dim in enumerate(dims) if dim.dim_value == 1)].dim_value = batch
    reshaped = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for tensor in graph.initializer:
        if tensor.name in reshaped:
            shape = numpy_helper.to_array(tensor).copy()
            shape[0] *= batch
            tensor.CopyFrom(numpy_helper.from_array(shape, tensor.name))
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    return model


class Network:
    is_network, group, dtype, flops = True, "networks", "fp32", None

    def __init__(self, network, batch, options=()):
        self.network, self.batch, self.options = network, batch, options
        self.name = f"{network} batch {batch}"

    def model(self, folder):
        self.made = batched(onnx.load(str(make_models(folder, self.network, *self.options) / self.network / "model.onnx")), self.batch)
        return self.made

    def inputs(self, rng):
        value = self.made.graph.input[0]
        tensor, shape = value.type.tensor_type, [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if tensor.elem_type == TensorProto.FLOAT:
            return {value.name: rng.standard_normal(shape).astype(np.float32)}
        table = next(node.input[0] for node in self.made.graph.node if node.op_type == "Gather")
        rows = next(t.dims[0] for t in self.made.graph.initializer if t.name == table)
        return {value.name: rng.integers(0, rows, shape)}


def cases(folder):
    """All, by name; `folder` is for the networks that convolutions are taken from."""
    products = [Product(dtype, n, n, n, "products") for dtype in ("fp32", "tf32", "fp16", "int8") for n in SQUARE]
    odd = [Product(dtype, *shape, "odd products") for dtype in ("fp32", "fp16") for shape in ODD]
    keys = {}
    for name in NAMES:
        for key in convolutions_of(onnx.load(str(make_models(folder, name) / name / "model.onnx"))):
            keys.setdefault(key)
    convolutions = [Convolution(dtype, key) for dtype in ("fp32", "fp16") for key in keys]
    networks = [Network(name, batch) for name in NAMES for batch in (1, 16)]
    return {case.name: case for case in products + odd + convolutions + networks}
