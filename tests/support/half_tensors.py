"""Tensors of 16-bit floats for ONNX models: NumPy has no bfloat16."""

import numpy as np
from onnx import TensorProto, numpy_helper


def as_bf16(values):
    """The nearest numbers of 16 bits with the exponent of 32, ties to even, as float32."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def half_tensor(values, kind, name):
    """A TensorProto of `kind`, FLOAT16 or BFLOAT16."""
    if kind == TensorProto.FLOAT16:
        return numpy_helper.from_array(values.astype(np.float16), name)
    upper = (np.ascontiguousarray(as_bf16(values)).view(np.uint32) >> 16).astype(np.uint16)
    return TensorProto(name=name, data_type=kind, dims=values.shape, raw_data=upper.tobytes())
