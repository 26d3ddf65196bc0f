"""The Python binding against NumPy's own arithmetic, on a module written by the C++ writer."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest

BUILD = os.environ["TILEWRIGHT_BUILD_DIR"]
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["TILEWRIGHT_RUNTIME_LIBRARY"] = os.path.join(BUILD, "lib", "libtilewright_runtime.so")
sys.path.insert(0, os.path.join(SOURCE, "deploy", "bindings", "python"))

import numpy as np  # noqa: E402
import tilewright_runtime as tw  # noqa: E402


def reference(x):
    k = np.arange(8, dtype=np.float64)[:, None]
    n = np.arange(16, dtype=np.float64)[None, :]
    return (x.astype(np.float64) @ (k - 0.25 * n) + 100 * n).astype(np.float32)


class PythonBindingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "dense.tw")
        subprocess.run([os.path.join(BUILD, "bin", "tilewright_make_test_module"), cls.path],
                       check=True)
        cls.module = tw.Module(cls.path)
        cls.x = np.random.default_rng(3).integers(-8, 8, (4, 8)).astype(np.float32)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_runs(self):
        for threads in (0, 1, 2):
            session = tw.Session(self.module, threads)
            outputs = session.run({"x": self.x})
            np.testing.assert_array_equal(outputs["y"], reference(self.x))

    def test_strided_and_transposed_inputs(self):
        session = tw.Session(self.module)
        wide = np.zeros((8, 9), np.float32)
        wide[:, ::2][:, :4] = self.x.T
        outputs = session.run({"x": wide[:, ::2][:, :4].T})
        np.testing.assert_array_equal(outputs["y"], reference(self.x))

    def test_module_from_bytes_and_facts(self):
        with open(self.path, "rb") as file:
            module = tw.Module(file.read())
        self.assertEqual(module.name, "dense")
        self.assertEqual([repr(i) for i in module.inputs], ["x: float32[4, 8]"])
        self.assertEqual(json.loads(module.manifest)["functions"][0]["name"], "main")

    def test_profile(self):
        names = [name for name, ns in tw.Session(self.module).profile() if ns >= 0]
        self.assertEqual(names, ["matmul", "add"])

    def open_module(self):
        path = os.path.join(self.folder.name, "open.tw")
        subprocess.run([os.path.join(BUILD, "bin", "tilewright_make_test_module"), path,
                        "--open-rows"], check=True)
        return tw.Module(path)

    def test_open_sizes(self):
        module = self.open_module()
        self.assertEqual(repr(module.inputs[0]), "x: float32[N, 8]")
        self.assertEqual(module.inputs[0].shape, ("N", 8))
        self.assertEqual(module.outputs[0].bounds, ((1, 33), (16, 16)))
        self.assertEqual(module.size_vars, {"N": (1, 33)})
        self.assertEqual(module.output_shapes([(7, 8)]), [(7, 16)])
        session = tw.Session(module, 2)
        self.assertEqual(session.run()["y"].shape, (1, 16))
        k, n = np.arange(8.0)[:, None], np.arange(16.0)[None, :]
        rng = np.random.default_rng(5)
        for rows in (7, 33, 4, 1, 16, 4):
            x = rng.integers(-8, 8, (rows, 8)).astype(np.float32)
            y = session.run({"x": x})["y"]
            np.testing.assert_array_equal(y, (3 * (x @ (k - 0.25 * n))).astype(np.float32))
            np.testing.assert_array_equal(session.run()["y"], y)
            session.set_input("x", x[:1])
            np.testing.assert_array_equal(session.run()["y"], y[:1])
        for rows in (0, 34):
            with self.assertRaises(tw.Error) as caught:
                session.run({"x": np.zeros((rows, 8), np.float32)})
            self.assertEqual(caught.exception.status, "invalid_argument")
            self.assertIn(f"dimension 0 (N): expected 1 to 33, found {rows}", str(caught.exception))

    def test_threads_share_a_session(self):
        session = tw.Session(self.module, 2)
        failures = []

        def work(seed):
            x = np.random.default_rng(seed).integers(-8, 8, (4, 8)).astype(np.float32)
            wanted = reference(x)
            for _ in range(2000):
                if not np.array_equal(session.run({"x": x})["y"], wanted):
                    failures.append(f"thread {seed}: the outputs belong to another call")
                    return

        threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
            self.assertFalse(thread.is_alive(), "a run hangs")
        self.assertEqual(failures, [])

    def test_a_forked_child_makes_its_own_session(self):
        session = tw.Session(self.module, 2)
        session.run({"x": self.x})
        if session.num_threads < 2:
            self.skipTest("[SKIP] one usable core")
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends a child that hangs
            try:
                with self.assertRaises(tw.Error) as caught:
                    session.run({"x": self.x})
                self.assertEqual(caught.exception.status, "failed_precondition")
                self.assertIn("runtime.session.forked", str(caught.exception))
                own = tw.Session(self.module, 2).run({"x": self.x})
                np.testing.assert_array_equal(own["y"], reference(self.x))
                del session
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        np.testing.assert_array_equal(session.run({"x": self.x})["y"], reference(self.x))

    def test_an_input_that_is_not_given_keeps_its_contents(self):
        session = tw.Session(self.module)
        session.set_input("x", self.x)
        np.testing.assert_array_equal(session.run()["y"], reference(self.x))

    def test_errors(self):
        session = tw.Session(self.module)
        with self.assertRaises(KeyError):
            session.run({"z": self.x})
        with self.assertRaises(TypeError):
            session.run({"x": self.x.astype(np.float64)})
        with self.assertRaises(tw.Error) as caught:
            session.run({"x": self.x[:2]})
        self.assertEqual(caught.exception.status, "invalid_argument")
        with self.assertRaises(tw.Error) as caught:
            tw.Module(os.path.join(self.folder.name, "none.tw"))
        self.assertEqual(caught.exception.status, "not_found")
        with open(self.path, "rb") as file:
            damaged = bytearray(file.read())
        damaged[-1] ^= 1
        with self.assertRaises(tw.Error) as caught:
            tw.Module(bytes(damaged))
        self.assertEqual(caught.exception.status, "data_loss")


if __name__ == "__main__":
    unittest.main()
