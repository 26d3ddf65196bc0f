#!/usr/bin/env python3
"""Runs a module once, with NumPy files.

    run_module.py MODULE.tw input.npy ... output.npy ...

The inputs are read and the outputs are written in the module's order. `tilewright run --output-format npy` does the same
without a program."""

import sys

import numpy as np
import tilewright_runtime as tw


def main():
    module = tw.Module(sys.argv[1])
    files = sys.argv[2:]
    if len(files) != len(module.inputs) + len(module.outputs):
        sys.exit(f"expected a file for each of {module.inputs} and {module.outputs}")
    session = tw.Session(module)
    outputs = session.run({info.name: np.load(files[i]) for i, info in enumerate(module.inputs)})
    for info, file in zip(module.outputs, files[len(module.inputs):]):
        np.save(file, outputs[info.name])


if __name__ == "__main__":
    main()
