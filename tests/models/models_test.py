#!/usr/bin/env python3
"""Checks make_models.py and numpy_eval.py. TILEWRIGHT_SHARED names the folder of golden data (default: ../shared
beside the repository); without it the comparison with goldens is skipped, loudly."""
import hashlib
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("TILEWRIGHT_SHARED", HERE.parents[2] / "shared"))
GOLDEN = SHARED / "models" / "golden"
PYTHON = sys.executable


def generate(folder, *arguments):
    subprocess.run([PYTHON, HERE / "make_models.py", folder, *arguments], check=True, stdout=subprocess.DEVNULL)


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def evaluate(model, inputs, out):
    return subprocess.run([PYTHON, HERE / "numpy_eval.py", model, *inputs, "-o", out],
                          capture_output=True, text=True)


def read(path):
    return numpy_helper.to_array(TensorProto.FromString(Path(path).read_bytes()))


class Generator(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def model_digest(self, *options):
        out = Path(self.folder.name) / "x".join(options or ("default",)).replace("--", "")
        generate(out, "dqn", *options)
        return digest(out / "dqn" / "model.onnx"), digest(out / "dqn" / "test_data_set_0" / "input_0.pb")

    def test_every_option_matters_and_repeats(self):
        self.assertEqual(self.model_digest(), self.model_digest())
        default = self.model_digest()
        for options in (("--seed", "1"), ("--size", "60"), ("--width", "0.5")):
            other = self.model_digest(*options)
            self.assertNotEqual(other[0], default[0], options)
            self.assertEqual(other, self.model_digest(*options))
        self.assertNotEqual(self.model_digest("--seed", "1")[1], default[1])

    def test_unknown_network_is_a_usage_error(self):
        result = subprocess.run([PYTHON, HERE / "make_models.py", self.folder.name, "nonesuch"],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("nonesuch", result.stderr)


class Evaluator(unittest.TestCase):
    def run_node(self, operator, operands, **attributes):
        with tempfile.TemporaryDirectory() as folder:
            names = [f"x{i}" for i in range(len(operands))]
            infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, o.shape)
                     for n, o in zip(names, operands)]
            node = helper.make_node(operator, names, ["y"], name="n", **attributes)
            result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
            model = helper.make_model(helper.make_graph([node], "g", infos, [result]),
                                      opset_imports=[helper.make_opsetid("", 13)])
            Path(folder, "m.onnx").write_bytes(model.SerializeToString())
            for name, operand in zip(names, operands):
                Path(folder, name).write_bytes(numpy_helper.from_array(operand, name).SerializeToString())
            done = evaluate(Path(folder, "m.onnx"), [Path(folder, n) for n in names], folder)
            if done.returncode:
                return done
            return read(Path(folder, "output_0.pb"))

    def test_convolution_by_hand(self):
        x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
        w = np.array([[[[1, 0], [0, 2]]]], np.float32)
        np.testing.assert_array_equal(self.run_node("Conv", [x, w], kernel_shape=[2, 2])[0, 0],
                                      [[0 + 2 * 4, 1 + 2 * 5], [3 + 2 * 7, 4 + 2 * 8]])
        padded = self.run_node("Conv", [x, w], kernel_shape=[2, 2], pads=[1, 0, 0, 1], strides=[2, 1])
        np.testing.assert_array_equal(padded[0, 0], [[2, 4, 0], [3 + 14, 4 + 16, 5]])

    def test_depthwise_and_dilation(self):
        x = np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3)
        w = np.array([[[[1, 1]]], [[[2, 3]]]], np.float32)
        out = self.run_node("Conv", [x, w], kernel_shape=[1, 2], dilations=[1, 2], group=2)
        np.testing.assert_array_equal(out[0, :, :, 0], [[2, 8, 14], [2 * 9 + 33, 2 * 12 + 42, 2 * 15 + 51]])

    def test_pooling_by_hand(self):
        x = np.array([[[[1, 5], [7, 3]]]], np.float32)
        np.testing.assert_array_equal(
            self.run_node("MaxPool", [x], kernel_shape=[2, 2], pads=[1, 1, 0, 0])[0, 0], [[1, 5], [7, 7]])
        np.testing.assert_array_equal(
            self.run_node("AveragePool", [x], kernel_shape=[2, 2], pads=[1, 1, 0, 0])[0, 0], [[1, 3], [4, 4]])

    def test_transposed_convolution_is_the_adjoint(self):
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((1, 3, 8, 8)), rng.standard_normal((1, 5, 4, 4))
        w = rng.standard_normal((5, 3, 4, 4))
        x, y, w = (a.astype(np.float32) for a in (x, y, w))
        how = {"kernel_shape": [4, 4], "strides": [2, 2], "pads": [1, 1, 1, 1]}
        forward, back = self.run_node("Conv", [x, w], **how), self.run_node("ConvTranspose", [y, w], **how)
        self.assertAlmostEqual(float((forward * y).sum()), float((back * x).sum()), places=3)

    def test_quantisation_by_hand(self):
        # 0.5, 1.5 and 2.5 round to even, 300 saturates.
        x = np.array([[[[0.5, 1.5, 2.5, 300.0]]]], np.float32)
        quantized = self.run_node("QuantizeLinear", [x, np.array(1, np.float32)])
        np.testing.assert_array_equal(quantized[0, 0, 0], [0, 2, 2, 255])
        two = np.ones((1, 2, 1, 1), np.float32)
        scaled = self.run_node("DequantizeLinear", [two, np.array([2, 3], np.float32)])
        np.testing.assert_array_equal(scaled[0, :, 0, 0], [2, 3])

    def test_unknown_operator_is_named(self):
        done = self.run_node("Det", [np.ones((2, 2), np.float32)])
        self.assertEqual(done.returncode, 1)
        self.assertIn("'n' (Det)", done.stderr)


class Golden(unittest.TestCase):
    def test_digests_and_outputs(self):
        if not GOLDEN.is_dir():
            print(f"[SKIP] {GOLDEN} is not there: digests and golden outputs are NOT checked", file=sys.stderr)
            self.skipTest("no golden data")
        wanted = dict(reversed(line.split()) for line in (GOLDEN / "SHA256SUMS").read_text().splitlines())
        for name in ("dqn", "mobilenet", "lstm_lm", "dcgan", "bert_small", "resnet18"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                generate(folder, name)
                model = Path(folder, name, "model.onnx")
                data = Path(folder, name, "test_data_set_0", "input_0.pb")
                for path in (model, data):
                    self.assertEqual(digest(path), wanted[str(path.relative_to(folder))])
                done = evaluate(model, [data], folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                actual = read(Path(folder, "output_0.pb")).astype(np.float64)
                expected = read(GOLDEN / name / "output_0.pb").astype(np.float64)
                self.assertEqual(actual.shape, expected.shape)
                self.assertLessEqual(np.linalg.norm(actual - expected), 1e-5 * np.linalg.norm(expected))
                self.assertLessEqual(np.abs(actual - expected).max(), 1e-4 * np.abs(expected).max())


if __name__ == "__main__":
    unittest.main()
