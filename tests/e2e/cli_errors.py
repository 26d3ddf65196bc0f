#!/usr/bin/env python3
"""Bad input to the real command line: every case must end with its exit code, three lines on standard
error (what, why, what to do), and the folder as it was before.

    cli_errors.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/

Prints "N passed, N failed". Needs root for the full disk (a small tmpfs); says so when it skips that.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402
from child_cost import child_cost  # noqa: E402
from cli_case import FAILED, MISMATCH, NOT_FOUND, OK, UNAVAILABLE, USAGE, dense_model  # noqa: E402


def snapshot(folder):
    """Every path below the folder with its content's digest."""
    found = {}
    for base, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(base, name), folder)] = "folder"
        for name in files:
            path = os.path.join(base, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = hashlib.sha256(f.read()).hexdigest()
    return found


class CliCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="cli-errors-")
        cls.model = os.path.join(cls.shared, "model.onnx")
        onnx.save(dense_model(), cls.model)
        cls.module = os.path.join(cls.shared, "model.tw")
        done = cls.call(["compile", cls.model, "--target", "native", "-o", cls.module], cls.shared)
        assert done.returncode == OK, done.stderr

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="cli-errors-")
        self.addCleanup(shutil.rmtree, self.folder)

    @staticmethod
    def call(args, folder, **env):
        return subprocess.run([cli_case.binary("tilewright")] + args, cwd=folder,
                              env=cli_case.environment(os.path.join(folder, "no-state"), env),
                              capture_output=True, text=True, timeout=300)

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def write_tensor(self, name, values, tensor="x"):
        return self.write(name, numpy_helper.from_array(values, tensor).SerializeToString())

    def fails(self, code, args, why=(), **env):
        """The command ends with `code`, a well-formed error with the words `why`, and no trace."""
        before = snapshot(self.folder)
        done = self.call(args, self.folder, **env)
        text = "%s\nexit code %d\n%s\n%s" % (args, done.returncode, done.stdout, done.stderr)
        self.assertEqual(done.returncode, code, text)
        lines = done.stderr.strip("\n").split("\n")[-3:]
        self.assertEqual(len(lines), 3, text)
        self.assertRegex(lines[0], r"^tilewright \S.*: \S", text)
        self.assertRegex(lines[1], r"^  why: [a-z0-9_.]+: \S", text)
        self.assertRegex(lines[2], r"^  do:  \S", text)
        for word in why:
            self.assertIn(word, done.stderr, text)
        self.assertEqual(snapshot(self.folder), before, text)
        return done


def split_model(outputs):
    """x[1, outputs] -> one element each: as many kernels as outputs."""
    names = ["y%d" % i for i in range(outputs)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1]) for name in names]
    graph = helper.make_graph([helper.make_node("Split", ["x"], names, axis=1)], "split",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, outputs])], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


class Compile(CliCase):
    def compile_fails(self, code, model, why=(), more=()):
        return self.fails(code, ["compile", model, "--target", "native", "-o", "out.tw", *more], why)

    def test_truncated_models(self):
        whole = dense_model().SerializeToString()
        for size in (0, 1, 7, len(whole) // 2, len(whole) - 1):
            self.compile_fails(FAILED, self.write("cut.onnx", whole[:size]))

    def test_random_bytes(self):
        rng = random.Random(7)
        for size in (1, 100, 5000):
            self.compile_fails(FAILED, self.write("noise.onnx", rng.randbytes(size)))

    def test_flipped_bytes_never_crash(self):
        whole = bytearray(dense_model().SerializeToString())
        rng = random.Random(11)
        for _ in range(20):
            broken = bytearray(whole)
            for _ in range(4):
                broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
            path = self.write("flip.onnx", bytes(broken))
            done = self.call(["compile", path, "--target", "native", "-o", "out.tw"], self.folder)
            # A flipped weight or name may still be a model; anything else is an error, not a crash.
            self.assertIn(done.returncode, (OK, FAILED), done.stderr)
            self.assertEqual(os.path.exists(os.path.join(self.folder, "out.tw")),
                             done.returncode == OK)
            if done.returncode == OK:
                os.remove(os.path.join(self.folder, "out.tw"))

    def test_unknown_operator_is_named_with_its_node(self):
        path = self.write("odd.onnx", dense_model("Frobnicate").SerializeToString())
        self.compile_fails(FAILED, path, ["Frobnicate", "node_of_y"])

    def test_absurd_shapes(self):
        for shape in ((1, 1 << 40), (1 << 20, 1 << 20), (1, 9)):
            path = self.write("shape.onnx", dense_model(shape=shape).SerializeToString())
            self.compile_fails(FAILED, path)

    def test_shape_flag(self):
        self.compile_fails(FAILED, self.model, ["nosuch"], ["--shape", "nosuch=1x8"])
        self.compile_fails(FAILED, self.model, [], ["--shape", "x=1x9"])
        for bad in ("x", "x=", "=1x8", "x=1xA", "x=0x8", "x=-1x8", "x=1x99999999999999999999"):
            self.compile_fails(USAGE, self.model, ["--shape"], ["--shape", bad])

    def test_pass_flags(self):
        self.compile_fails(USAGE, self.model, ["nosuch", "fuse_operators"], ["--disable-pass", "nosuch"])
        self.compile_fails(USAGE, self.model, ["wrap_operators"], ["--disable-pass", "wrap_operators"])
        self.compile_fails(USAGE, self.model, ["clean"], ["--enable-pass", "clean"])

    def test_missing_model(self):
        self.compile_fails(NOT_FOUND, "nosuch.onnx", ["nosuch.onnx"])

    def test_model_is_a_folder(self):
        os.mkdir(os.path.join(self.folder, "d.onnx"))
        self.compile_fails(FAILED, "d.onnx")

    def test_targets(self):
        for bad in ("", "nosuch", "cpu,arch=vax", "cpu,arch=x86_64,cpu=i8086", "native,threads=x",
                    "native,threads=0", "cpu,arch", "vulkan,arch=sm_90"):
            self.fails(USAGE, ["compile", self.model, "--target", bad, "-o", "out.tw"])

    def test_output_in_a_missing_folder(self):
        self.fails(NOT_FOUND, ["compile", self.model, "--target", "native", "-o", "no/out.tw"])

    def test_output_is_a_folder(self):
        os.mkdir(os.path.join(self.folder, "out.tw"))
        self.compile_fails(FAILED, self.model)

    def test_require_tuned(self):
        self.compile_fails(FAILED, self.model, ["cli.tuned_share"], ["--require-tuned", "100"])

    def test_max_ram(self):
        """What `compile` says of memory is what `run` takes, and a limit below it is refused."""
        width = 2048
        rng = numpy.random.default_rng(3)
        weights = numpy_helper.from_array(rng.random((width, width), dtype=numpy.float32), "w")
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])], "wide",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, width])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, width])], [weights])
        model = os.path.join(self.shared, "wide.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
        module = os.path.join(self.shared, "wide.tw")
        done = self.call(["compile", model, "--target", "native", "--effort", "0", "-o", module, "--format", "json"],
                         self.folder)
        self.assertEqual(done.returncode, OK, done.stderr)
        ram = json.loads(done.stdout)["ram_bytes"]
        self.assertEqual(ram["total"], sum(size for part, size in ram.items() if part != "total"))
        self.assertGreaterEqual(ram["weights"], width * width * 4)
        self.assertEqual(ram["inputs_outputs"], 2 * 8 * width * 4)

        more = ["--effort", "0", "--max-ram"]
        self.compile_fails(FAILED, model, ["cli.ram.exceeded", "weights 16.0 MiB"], [*more, str(ram["total"] - 1)])
        self.compile_fails(USAGE, model, ["cli.usage.flags"], [*more, "many"])
        done = self.call(["compile", model, "--target", "native", "-o", module, *more, str(ram["total"])], self.folder)
        self.assertEqual(done.returncode, OK, done.stderr)

        done = child_cost([cli_case.binary("tilewright"), "run", module, "--repeat", "3"])
        self.assertEqual(done.code, OK, done.stderr)
        peak = done.peak_bytes
        self.assertLessEqual(peak, ram["total"] + (30 << 20))
        self.assertGreater(peak, ram["weights"], "it was measured")

    def test_log(self):
        self.compile_fails(NOT_FOUND, self.model, ["nosuch.db"], ["--log", "nosuch.db"])
        noise = self.write("noise.db", random.Random(3).randbytes(5000))
        self.compile_fails(FAILED, self.model, [], ["--log", noise])


def model_of(nodes, inputs, outputs, weights=(), opset=17):
    """A model of nodes (operator, inputs, output, attributes); inputs and outputs are (name, type, dimensions)."""
    graph = helper.make_graph(
        [helper.make_node(op, reads, [result], name="node_" + result, **attributes)
         for op, reads, result, attributes in nodes], "g",
        [helper.make_tensor_value_info(*info) for info in inputs],
        [helper.make_tensor_value_info(*info) for info in outputs], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


class Check(CliCase):
    """`tilewright check`, and the advice of `compile`, for each kind of model that is refused."""

    FLOAT = TensorProto.FLOAT

    def check(self, model, code, *more, name="m.onnx"):
        """The document of `check`, whose exit code is `code`. Errors of compile give the same advice."""
        onnx.save(model, os.path.join(self.folder, name))
        done = self.call(["check", name, "--target", "native", "-o", "json", *more], self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["compiles"], code == OK, said)
        if code == OK:
            self.assertEqual(done.stderr, "")
            self.assertFalse(os.path.exists(os.path.join(self.folder, "m.tw")))
            return said
        self.assertIn("cli.check.problems", done.stderr)
        compiled = self.call(["compile", name, "--target", "native", *more], self.folder)
        self.assertEqual(compiled.returncode, FAILED)
        self.assertIn(compiled.stderr.split("why: ")[1].split(":")[0],
                      [problem["slug"] for problem in said["problems"]])
        return said

    def slugs(self, said):
        return [problem["slug"].removeprefix("graph.onnx.") for problem in said["problems"]]

    def test_a_good_model(self):
        said = self.check(dense_model(), OK)
        self.assertEqual((said["problems"], said["kernels"], said["operators"]), ([], 1, {"MatMul": 1}))
        done = self.call(["check", "m.onnx"], self.folder)
        self.assertIn("compiles: 1 ", done.stdout)

    def test_two_unsupported_operators(self):
        x, y = ("x", self.FLOAT, [1, 4]), ("y", self.FLOAT, [1, 4])
        said = self.check(model_of([("StringNormalizer", ["x"], "a", {}), ("StringNormalizer", ["a"], "b", {}), ("Relu", ["b"], "c", {}),
                                    ("StringConcat", ["c"], "y", {})], [x], [y]), FAILED)
        self.assertEqual([(p["what"], p["where"]) for p in said["problems"]],
                         [("StringNormalizer", ['node "node_a" (StringNormalizer)',
                                                'node "node_b" (StringNormalizer)']),
                          ("StringConcat", ['node "node_y" (StringConcat)'])])
        self.assertEqual(said["unchecked_nodes"], 1)
        self.assertIn("tilewright operators", said["problems"][0]["do"])
        text = self.call(["check", "m.onnx"], self.folder).stdout
        self.assertIn("StringNormalizer (2 places)", text)
        self.assertIn("not checked", text)

    def test_all_dynamic_inputs_and_the_flags_that_they_need(self):
        image = ("image", self.FLOAT, [-1, 3, 8, -1])  # as Paddle writes it
        tokens = ("tokens", self.FLOAT, ["batch", 3, 8, 8])
        model = model_of([("Add", ["image", "tokens"], "y", {})], [image, tokens], [("y", self.FLOAT, [-1, 3, 8, 8])])
        said = self.check(model, FAILED)
        self.assertEqual([(p["what"], p["where"]) for p in said["problems"]],
                         [("--shape batch=N --shape image_0=N --shape image_3=N",
                           ['"image" [image_0,3,8,image_3]', '"tokens" [batch,3,8,8]'])])
        done = self.call(["compile", "m.onnx", "--target", "native"], self.folder)
        self.assertIn("--shape batch=N --shape image_0=N --shape image_3=N", done.stderr)
        self.assertIn("in place of each N", done.stderr)
        self.assertNotIn("onnx.checker", done.stderr)
        # The flags that it says, with numbers, are all that is needed.
        flags = said["problems"][0]["what"].replace("batch=N", "batch=2").replace("image_0=N", "image_0=2").replace("image_3=N", "image_3=8").split()
        self.check(model, OK, *flags)
        flags = ["--shape", "batch=2", "--shape", "image=2x3x8x8"]
        self.check(model, OK, *flags)
        self.fails(FAILED, ["compile", "m.onnx", "--target", "native", "--shape", "image=2x3x9x8"],
                   ["graph.onnx.shape_override", "dimension 2 to be 8"])

    def test_element_types(self):
        strange = TensorProto.COMPLEX64
        said = self.check(model_of([("MatMul", ["x", "w"], "m", {}), ("StringNormalizer", ["m"], "y", {})],
                                   [("x", strange, [1, 64])], [("y", strange, [1, 4])],
                                   [numpy_helper.from_array(numpy.ones((64, 4), numpy.float32), "w")]), FAILED)
        self.assertEqual(self.slugs(said), ["unsupported_operator", "element_type"])
        done = self.call(["compile", "m.onnx", "--target", "native"], self.folder)
        self.assertIn("found complex64", done.stderr)

    def test_external_data(self):
        model = dense_model(inner=64, columns=64)
        onnx.save(model, os.path.join(self.folder, "m.onnx"), save_as_external_data=True, location="w.bin",
                  size_threshold=0)

        # Other files of the model's folder are part of it, wherever the command runs.
        inside = os.path.join(self.folder, "inside")
        os.mkdir(inside)
        for command in (["check", "../m.onnx"], ["compile", "../m.onnx", "--target", "native", "--effort", "0", "-o", "m.tw"],
                        ["compare", "../m.onnx"]):
            done = self.call(command, inside)
            self.assertEqual(done.returncode, OK, done.stderr)
        os.rename(os.path.join(self.folder, "w.bin"), os.path.join(inside, "w.bin"))
        done = self.call(["check", "m.onnx", "-o", "json"], self.folder)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        found, = json.loads(done.stdout)["problems"]
        self.assertEqual((found["slug"], found["what"]), ("graph.onnx.external_data", "w.bin"))
        self.assertIn("No such file", found["detail"])
        self.assertIn("into the model's folder", found["do"])
        done = self.call(["compile", "m.onnx", "--target", "native"], self.folder)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn('"w.bin"', done.stderr)
        self.assertIn("into the model's folder", done.stderr)

    def test_types_attributes_and_opset(self):
        x, y = ("x", self.FLOAT, [1, 4]), ("y", self.FLOAT, [1, 4])
        said = self.check(model_of([("Gelu", ["x"], "a", {"approximate": "fast"}), ("Relu", ["a"], "y", {})],
                                   [x, ("s", TensorProto.STRING, [1])], [y], opset=20), FAILED)
        self.assertEqual(self.slugs(said), ["element_type", "attribute"])
        self.assertEqual((said["problems"][0]["what"], said["problems"][1]["what"]), ("string", "Gelu"))
        self.assertIn("found fast", said["problems"][1]["detail"])
        said = self.check(model_of([("Relu", ["x"], "y", {})], [x], [y], opset=99), FAILED)
        self.assertEqual(self.slugs(said), ["opset"])

    def test_what_is_no_model_or_no_target(self):
        self.fails(FAILED, ["check", self.write("noise.onnx", b"noise")], ["graph.onnx.not_onnx"])
        self.fails(NOT_FOUND, ["check", "nosuch.onnx"], ["nosuch.onnx"])
        self.fails(USAGE, ["check", self.model, "--target", "nosuch"])
        self.fails(USAGE, ["check", self.model, "--shape", "x"])

    def test_the_list_of_operators(self):
        done = self.call(["operators", "-o", "json"], self.folder)
        rows = {(row["domain"], row["name"]) for row in json.loads(done.stdout)["operators"]}
        self.assertTrue({("", "Conv"), ("", "Relu"), ("com.microsoft", "QLinearAdd")} <= rows)
        self.assertIn("Conv ", self.call(["operators"], self.folder).stdout)


class Run(CliCase):
    def test_corrupt_modules(self):
        with open(self.module, "rb") as f:
            whole = f.read()
        for size in (0, 1, 15, 64, len(whole) // 2, len(whole) - 1):
            self.fails(FAILED, ["run", self.write("cut.tw", whole[:size])], ["module."])
        rng = random.Random(5)
        for _ in range(20):
            broken = bytearray(whole)
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
            path = self.write("flip.tw", bytes(broken))
            done = self.call(["run", path, "--repeat", "1"], self.folder)
            self.assertIn(done.returncode, (OK, FAILED), done.stderr)  # padding may flip unnoticed
        self.fails(FAILED, ["run", self.write("noise.tw", rng.randbytes(4096))], ["module."])

    def test_missing_files(self):
        self.fails(NOT_FOUND, ["run", "nosuch.tw"], ["nosuch.tw"])
        self.fails(NOT_FOUND, ["compare", "nosuch.onnx"], ["nosuch.onnx"])
        self.fails(USAGE, ["compare", self.model, "--input", "nosuch"], ["NAME=FILE"])
        self.fails(MISMATCH, ["compare", self.model, "--rtol", "0", "--atol", "0"], ["the first kernel", "max |a-e|"])
        self.fails(NOT_FOUND, ["run", self.module, "--input", "x=nosuch.pb"], ["nosuch.pb"])

    def test_wrong_names_list_the_right_ones(self):
        good = self.write_tensor("x.pb", numpy.zeros((1, 8), numpy.float32))
        self.fails(FAILED, ["run", self.module, "--input", "z=" + good], ["z", "x float32 1x8"])
        self.fails(FAILED, ["run", self.module, "--expect", "z=" + good], ["z", "y float32 1x4"])

    def test_wrong_shape_or_type(self):
        for values in (numpy.zeros((1, 9), numpy.float32), numpy.zeros((8,), numpy.float32),
                       numpy.zeros((1, 8), numpy.int32)):
            path = self.write_tensor("x.pb", values)
            self.fails(FAILED, ["run", self.module, "--input", "x=" + path], ["1x8"])

    def test_broken_tensor_files(self):
        rng = random.Random(9)
        for name in ("x.pb", "x.npy"):
            path = self.write(name, rng.randbytes(77))
            self.fails(FAILED, ["run", self.module, "--input", "x=" + path])

    def test_flags(self):
        for flags in (["--input", "x"], ["--input", "=f"], ["--repeat", "0"], ["--repeat", "many"],
                      ["--rtol", "-1"], ["--threads", "0"], ["--nosuch"]):
            self.fails(USAGE, ["run", self.module, *flags])

    def test_mismatch_tells_the_error_and_keeps_the_output(self):
        x = self.write_tensor("x.pb", numpy.ones((1, 8), numpy.float32))
        wrong = self.write_tensor("y.pb", numpy.full((1, 4), 1e6, numpy.float32), "y")
        done = self.fails(MISMATCH, ["run", self.module, "--input", "x=" + x, "--expect",
                                     "y=" + wrong], ["cli.mismatch"])
        self.assertIn("max|a-e|=", done.stdout)

    def test_right_answer(self):
        values = numpy.arange(8, dtype=numpy.float32).reshape(1, 8)
        x = self.write_tensor("x.pb", values)
        weight = numpy_helper.to_array(dense_model().graph.initializer[0])
        y = self.write_tensor("y.pb", values @ weight, "y")
        done = self.call(["run", self.module, "--input", "x=" + x, "--expect", "y=" + y,
                          "--output-dir", "out", "--repeat", "5"], self.folder)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertRegex(done.stdout, r"latency_ms median=\d+\.\d+ p10=\S+ p90=\S+ repeats=5")
        with open(os.path.join(self.folder, "out", "output_0.pb"), "rb") as f:
            tensor = onnx.TensorProto.FromString(f.read())
        self.assertEqual(tensor.name, "y")
        numpy.testing.assert_allclose(numpy_helper.to_array(tensor), values @ weight, rtol=1e-5)

    def test_a_script_gets_one_document(self):
        wrong = self.write_tensor("y.pb", numpy.full((1, 4), 1e6, numpy.float32), "y")
        for expect, code in (([], OK), (["--expect", "y=" + wrong], MISMATCH)):
            done = self.call(["run", self.module, *expect, "--profile", "--repeat", "5", "-o", "json"], self.folder)
            self.assertEqual(done.returncode, code, done.stderr)
            said = json.loads(done.stdout)
            latency = said["latency_ms"]
            self.assertTrue(0 < latency["p10"] <= latency["median"] <= latency["p90"], said)
            self.assertEqual((said["repeats"], len(said["kernels"])), (5, 1))
            self.assertGreaterEqual(said["threads"], 1)
            self.assertAlmostEqual(sum(kernel["share"] for kernel in said["kernels"]), 1)
            kernel, = said["kernels"]
            self.assertEqual((kernel["name"], kernel["task"], kernel["onnx_nodes"]),
                             ("y", "t0-dense", ["node_of_y"]))
            self.assertEqual([(e["output"], e["ok"]) for e in said.get("expected", [])], [("y", False)] if expect else [])


@contextlib.contextmanager
def closed_port():
    """A port where nobody listens, and nobody else can begin to: it is bound all the while."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1]


class Bench(CliCase):
    def test_modules_that_cannot_race(self):
        self.fails(NOT_FOUND, ["bench", "diff", self.module, "nosuch.tw"], ["nosuch.tw"])
        self.fails(USAGE, ["bench", "diff", self.module], ["cli.usage.flags"])
        other = self.write("other.onnx", dense_model(rows=3).SerializeToString())
        module = os.path.join(self.shared, "other.tw")
        self.assertEqual(self.call(["compile", other, "--target", "native", "--effort", "0", "-o", module], self.folder).returncode, OK)
        self.fails(FAILED, ["bench", "diff", self.module, module], ["cli.bench.modules", "other.tw"])

    def test_a_module_is_as_fast_as_itself(self):
        done = self.call(["bench", "diff", self.module, self.module, "--seconds", "1", "--profile", "--at-least", "0.5", "-o", "json"],
                         self.folder)
        self.assertEqual(done.returncode, OK, done.stderr)
        document = json.loads(done.stdout)
        self.assertLess(document["ratio_low"], 1.25)
        self.assertGreater(document["ratio_high"], 0.8)
        self.assertEqual(document["outputs_relative_difference"], 0)
        self.assertTrue(all(kernel["a_us"] > 0 and kernel["b_us"] > 0 for kernel in document["kernels"]))
        self.fails(MISMATCH, ["bench", "diff", self.module, self.module, "--seconds", "0", "--at-least", "100"], ["cli.mismatch.slower"])


class Server(CliCase):
    def test_unreachable(self):
        with closed_port() as port:
            self.check_unreachable("127.0.0.1:%d" % port)

    def check_unreachable(self, server):
        for args in (["jobs", "list"], ["jobs", "get", "j"], ["jobs", "cancel", "j"],
                     ["devices", "list"], ["devices", "get", "d"], ["modules", "list"],
                     ["modules", "fetch", "m", "-o", "m.tw"], ["log", "stats"],
                     ["log", "export", "-o", "x.jsonl"], ["log", "best"],
                     ["jobs", "submit", self.model, "--target", "native"],
                     ["tune", self.model, "--target", "native", "-o", "t.tw"]):
            self.fails(UNAVAILABLE, args + ["--server", server], [server])
        self.fails(UNAVAILABLE, ["jobs", "list"], [server], TILEWRIGHT_SERVER=server)

    def test_no_server_named(self):
        for args in (["jobs", "list"], ["devices", "list"], ["modules", "list"]):
            self.fails(USAGE, args, ["TILEWRIGHT_SERVER"])

    def test_bad_addresses(self):
        for bad in ("nowhere", "host:", ":7000", "host:0", "host:99999", "host:x"):
            self.fails(USAGE, ["jobs", "list", "--server", bad], ["HOST:PORT"])


class Tune(CliCase):
    def test_a_split_into_5000_says_what_it_does(self):
        """It had measured nothing after a minute, and said nothing."""
        model = os.path.join(self.folder, "split.onnx")
        onnx.save(split_model(5000), model)
        with open(os.path.join(self.folder, "err"), "w+") as err:
            child = subprocess.Popen([cli_case.binary("tilewright"), "tune", model, "--target", "native,threads=1", "--trials", "1"],
                                     cwd=self.folder, env=cli_case.environment(os.path.join(self.folder, "state")),
                                     stdout=subprocess.DEVNULL, stderr=err)
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)

            def said():
                err.seek(0)
                return err.read()

            # It says what it does every few seconds: the first of these may be over by then.
            phase = re.compile("reading the model|computing expected outputs, task [0-9]+ of 5000")
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and child.poll() is None and not phase.search(said()):
                time.sleep(0.1)
            self.assertRegex(said(), phase)
            child.send_signal(signal.SIGINT)
            self.assertIn(child.wait(cli_case.PATIENCE), (OK, FAILED), said())

    def test_bad_requests_start_nothing(self):
        native = ["--target", "native"]
        self.fails(NOT_FOUND, ["tune", "nosuch.onnx"] + native, ["nosuch.onnx"])
        self.fails(USAGE, ["tune", self.model, "--target", "nosuch"])
        self.fails(USAGE, ["tune", self.model] + native + ["--trials", "0"])
        self.fails(USAGE, ["tune", self.model] + native + ["--trials", "5", "--minutes", "1"])
        self.fails(USAGE, ["tune", self.model] + native + ["--cost-model", "oracle"])
        self.fails(USAGE, ["tune", self.model] + native + ["--detach"])
        self.fails(USAGE, ["tune", self.model] + native + ["--server", "h:1", "--log", "a.db"])
        self.fails(NOT_FOUND, ["tune", self.model] + native + ["-o", "no/such/folder.tw"])
        arch = "aarch64" if os.uname().machine == "x86_64" else "x86_64"
        self.fails(FAILED, ["tune", self.model, "--target", "cpu,arch=" + arch],
                   ["cli.embedded.target"])


class Log(CliCase):
    def test_no_log(self):
        for command in (["stats"], ["best"], ["export"], ["show", "t"], ["model", "m", "-o", "m.ubj"]):
            self.fails(NOT_FOUND, ["log"] + command, ["--log"])
            self.fails(NOT_FOUND, ["log"] + command + ["--log", "nosuch.db"], ["nosuch.db"])

    def test_not_a_log(self):
        noise = self.write("noise.db", random.Random(3).randbytes(5000))
        for command in (["stats"], ["best"], ["export"], ["show", "t"], ["model", "m", "-o", "m.ubj"]):
            self.fails(FAILED, ["log"] + command + ["--log", noise])


class Certs(CliCase):
    def test_what_is_refused(self):
        for args in (["issue", "pki", "king", "x"], ["issue", "pki", "agent", "../x"],
                     ["issue", "pki", "agent", "x", "--days", "0"]):
            self.fails(USAGE, ["certs"] + args)
        for args in (["issue", "pki", "agent", "x"], ["renew", "pki", "x"], ["show", "x"],
                     ["rotate", "pki"]):
            self.fails(NOT_FOUND, ["certs"] + args)
        self.assertEqual(self.call(["certs", "init", "pki"], self.folder).returncode, OK)
        self.fails(FAILED, ["certs", "init", "pki"])
        issued = self.call(["certs", "issue", "pki", "client", "ana"], self.folder)
        self.assertEqual((issued.returncode, issued.stderr), (OK, ""))
        os.chmod(os.path.join(self.folder, "pki/issued/ana/key.pem"), 0o644)
        self.fails(FAILED, ["certs", "show", "pki/issued/ana"])
        for command in (["jobs", "list"], ["devices", "list"], ["modules", "list"], ["log", "export"]):
            self.fails(FAILED, command + ["--server", "127.0.0.1:1", "--identity", "pki/issued/ana"])
            self.fails(NOT_FOUND, command + ["--server", "127.0.0.1:1", "--identity", "nobody"])

    def test_tokens(self):
        file = ["--file", "tokens"]
        for args in (["create", "king", "ana"], ["create", "ci", "a/b"], ["create", "ci", "x", "--days", "-1"]):
            self.fails(USAGE, ["tokens"] + args + file)
        for args in (["list"], ["revoke", "3f9a0c2b71de"], ["rotate", "3f9a0c2b71de"]):
            self.fails(NOT_FOUND, ["tokens"] + args + file)
        made = self.call(["tokens", "create", "ci", "nightly", "-o", "json"] + file, self.folder)
        self.assertEqual((made.returncode, made.stderr), (OK, ""))
        token = json.loads(made.stdout)
        self.assertTrue(token["token"].startswith("twt_" + token["id"]))
        self.assertEqual(self.call(["tokens", "revoke", token["id"]] + file, self.folder).returncode, OK)
        ended = self.call(["tokens", "rotate", token["id"]] + file, self.folder)
        self.assertEqual(ended.returncode, FAILED)
        self.assertIn("tokens.id.revoked", ended.stderr)
        listed = json.loads(self.call(["tokens", "list", "-o", "json"] + file, self.folder).stdout)
        self.assertEqual([(t["name"], t["state"]) for t in listed], [("nightly", "revoked")])
        with open(os.path.join(self.folder, "noise"), "w") as noise:
            noise.write("noise\n")
        self.fails(FAILED, ["tokens", "list", "--file", "noise"])
        self.fails(FAILED, ["audit", "verify", "noise"])
        self.fails(NOT_FOUND, ["audit", "verify", "nothing"])


class CommandLine(CliCase):
    def test_unknown(self):
        for args in ([], ["nosuch"], ["jobs"], ["jobs", "nosuch"], ["compile"], ["run"],
                     ["compile", self.model], ["log", "show"], ["targets", "-o", "xml"],
                     ["modules", "push"]):
            self.fails(USAGE, args)

    def test_help_everywhere(self):
        groups = {"": ["compile", "run", "tune", "targets", "jobs", "devices", "modules", "log",
                       "certs", "tokens", "audit"],
                  "tokens": ["create", "list", "revoke", "rotate"],
                  "audit": ["verify"],
                  "certs": ["init", "rotate", "issue", "renew", "show"],
                  "jobs": ["submit", "list", "get", "watch", "cancel"],
                  "devices": ["list", "get", "drain", "undrain", "hold"],
                  "modules": ["list", "get", "fetch"],
                  "log": ["show", "best", "export", "stats", "model"]}
        for group, commands in groups.items():
            for command in commands:
                args = [group] * bool(group) + [command, "--help"]
                done = self.call(args, self.folder)
                self.assertEqual((done.returncode, done.stderr), (OK, ""), args)
                self.assertIn("Examples:", done.stdout, args)

    def test_full_standard_output(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([cli_case.binary("tilewright"), "targets"],
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("cli.stdout", done.stderr)


class Incomplete(CliCase):
    """The command line alone, without the binaries that belong beside it."""

    def alone_fails(self, *args):
        shutil.copy(cli_case.binary("tilewright"), self.folder)
        before = snapshot(self.folder)
        done = subprocess.run([os.path.join(self.folder, "tilewright"), *args], cwd=self.folder,
                              env=cli_case.environment(os.path.join(self.folder, "state")),
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn("install", done.stderr)
        shutil.rmtree(os.path.join(self.folder, "state"), ignore_errors=True)
        self.assertEqual(snapshot(self.folder), before)

    def test_compile(self):
        self.alone_fails("compile", self.model, "--target", "native", "-o", "out.tw")

    def test_tune(self):
        self.alone_fails("tune", self.model, "--target", "native", "-o", "out.tw")


class SmallDisk(CliCase):
    """A folder that is full or read-only; root mounts it."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root to mount a small disk")
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", self.folder],
                              capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest("cannot mount: " + done.stderr.strip())
        self.addCleanup(subprocess.run, ["umount", "-l", self.folder], check=True)

    def fill(self):
        with open(os.path.join(self.folder, "filler"), "wb", buffering=0) as f:
            for piece in (b"x" * 4096, b"x"):
                try:
                    while f.write(piece):
                        pass
                except OSError:
                    pass

    def read_only(self):
        subprocess.run(["mount", "-o", "remount,ro", self.folder], check=True)

    def commands(self):
        return (["compile", self.model, "--target", "native", "-o", "out.tw"],
                ["run", self.module, "--repeat", "1", "--output-dir", "."],
                ["run", self.module, "--repeat", "1", "--output-dir", "new/folder"])

    def test_full(self):
        self.fill()
        for args in self.commands():
            self.fails(FAILED, args)

    def test_read_only(self):
        self.read_only()
        for args in self.commands():
            self.fails(FAILED, args)


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
