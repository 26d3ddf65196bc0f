#!/usr/bin/env python3
"""The seven networks, narrow and small, with fresh weights and inputs, untuned, on one and two threads:
|a-e|/|e| <= 1e-5 and max|a-e| <= 1e-4 max|e| against the NumPy evaluator, before the softmax too.
tests/long/networks.py does it in full size."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import run_checks  # noqa: E402
from network_check import NAMES, check, text  # noqa: E402

# Those without a size run as they are: they are small.
VARIANTS = {
    "resnet18": ("--size", 64, "--width", 0.3, "--logits", "--seed", 11),
    "resnet50": ("--size", 64, "--width", 0.2, "--seed", 12),
    "mobilenet": ("--size", 96, "--width", 0.4, "--logits", "--seed", 13),
    "dqn": ("--size", 61, "--width", 0.7, "--seed", 14),
    "dcgan": ("--seed", 15),
    "lstm_lm": ("--seed", 16, "--logits"),
    "bert_small": ("--seed", 17),
}


def checked(name):
    def run():
        with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
            row = check(name, VARIANTS[name], folder)
            print("        " + text(row))
            assert row["good"], "outputs differ from the evaluator's"
    run.__name__ = name
    return run


if __name__ == "__main__":
    run_checks(*map(checked, NAMES))
