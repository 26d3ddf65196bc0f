"""Stands in for PyTorch on an NVIDIA GPU, in NumPy: what tests/bench/gpu_race.py uses of it, for products and for DQN. Its times
are of nothing."""
import types
from contextlib import contextmanager

import numpy as np
from onnx import helper

import numpy_eval

OPSET = 17
__version__ = "0 (NumPy)"


class Tensor(np.ndarray):
    def on(self, *_):
        return self.copy()

    cuda = cpu = pin_memory = to = on

    def numpy(self):
        return np.asarray(self)

    def double(self):
        return self.astype(np.float64)

    def dim(self):
        return self.ndim

    def t(self):
        return self.T

    def relu(self):
        return np.maximum(self, 0)

    def flatten(self, axis):
        return self.reshape(int(np.prod(self.shape[:axis])), -1)

    def copy_(self, other, non_blocking):  # noqa: ARG002, as PyTorch calls it
        self[...] = other


def from_numpy(array):
    return array.view(Tensor)


def _int_mm(a, b):
    return a.astype(np.int32) @ b.astype(np.int32)


def compile(function):  # noqa: A001, PyTorch's name
    raise RuntimeError("nothing compiles here")


def conv2d(x, w, b, strides, pads, dilations, groups):
    node = helper.make_node("Conv", [], [], strides=strides, pads=[*pads, *pads], dilations=dilations, group=groups)
    result = numpy_eval.conv(numpy_eval.Node(node, OPSET), *(None if v is None else np.asarray(v) for v in (x, w, b)))
    return from_numpy(result.astype(x.dtype))


def linear(x, w, b):
    return x @ w.T + b


class Graph:
    def replay(self):
        pass


class Event:
    def __init__(self, enable_timing):
        pass

    def record(self):
        pass

    def synchronize(self):
        pass

    def elapsed_time(self, _end):
        return 1.0


@contextmanager
def recorded(_graph):
    yield


nn = types.SimpleNamespace(functional=types.SimpleNamespace(conv2d=conv2d, linear=linear))
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace()), cudnn=types.SimpleNamespace())
cuda = types.SimpleNamespace(is_available=lambda: True, get_device_capability=lambda: (9, 0), get_device_name=lambda: "an emulated GPU",
                             synchronize=lambda: None, CUDAGraph=Graph, graph=recorded, Event=Event)
