#!/usr/bin/env python3
"""Compares two tensors (ONNX TensorProto files) in the norms the project promises.

    compare_outputs.py ACTUAL.pb EXPECTED.pb [--norm 1e-5] [--max 1e-4]

Passes when |a - e| / |e| <= norm (Euclidean) and max|a - e| <= max * max|e|. Exit 1 otherwise.
"""
import argparse
import sys

import numpy as np
import onnx
from onnx import numpy_helper


def load(path):
    with open(path, "rb") as file:
        return numpy_helper.to_array(onnx.load_tensor_from_string(file.read())).astype(np.float64)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("actual")
    parser.add_argument("expected")
    parser.add_argument("--norm", type=float, default=1e-5)
    parser.add_argument("--max", type=float, default=1e-4)
    options = parser.parse_args()
    actual, expected = load(options.actual), load(options.expected)
    if actual.shape != expected.shape:
        sys.exit(f"shapes differ: {actual.shape} and {expected.shape}")
    difference = np.abs(actual - expected)
    norm = np.linalg.norm(actual - expected) / max(np.linalg.norm(expected), 1e-300)
    largest = difference.max() / max(np.abs(expected).max(), 1e-300)
    good = np.isfinite(actual).all() and norm <= options.norm and largest <= options.max
    print(f"|a-e|/|e| = {norm:.3g} (limit {options.norm:g}), max|a-e|/max|e| = {largest:.3g} "
          f"(limit {options.max:g}): {'ok' if good else 'WRONG'}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
