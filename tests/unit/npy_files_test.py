"""NumPy files of `tilewright run`: NumPy reads what it writes and it reads what NumPy writes, for every element type."""

import os
import subprocess
import tempfile
import unittest

import numpy as np

BUILD = os.environ["TILEWRIGHT_BUILD_DIR"]
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64"]


def values(dtype):
    if dtype == "bool":
        return np.array([[True, False, True], [False, True, False]])
    if dtype in ("float16", "bfloat16", "float32", "float64"):
        # NumPy has no bfloat16: float32 stands in. All of these are bfloat16 numbers.
        return np.array([[-1.5, 0.0, 2.0**-8], [np.inf, 1.0078125, -65280.0]], "float32" if dtype == "bfloat16" else dtype)
    info = np.iinfo(dtype)
    return np.array([[info.min, 0, 1], [2, 3, info.max]], dtype)


class NpyFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.module = os.path.join(self.folder, "types.tw")
        subprocess.run([os.path.join(BUILD, "bin/tilewright_make_test_module"), self.module, "--every-type"], check=True)

    def run_module(self, *flags):
        return subprocess.run([os.path.join(BUILD, "bin/tilewright"), "run", self.module, "--repeat", "1", *flags],
                              cwd=self.folder, capture_output=True, text=True)

    def inputs(self):
        flags = []
        for dtype in TYPES:
            np.save(os.path.join(self.folder, dtype + ".npy"), values(dtype))
            flags += ["--input", f"x_{dtype}={dtype}.npy", "--expect", f"y_{dtype}={dtype}.npy"]
        return flags

    def test_every_type_comes_back(self):
        done = self.run_module(*self.inputs(), "--output-dir", "out", "--output-format", "npy")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = os.path.join(self.folder, "out")
        self.assertEqual(sorted(os.listdir(out)), sorted(f"output_{i}.npy" for i in range(len(TYPES))))
        for i, dtype in enumerate(TYPES):
            array = np.load(os.path.join(out, f"output_{i}.npy"), allow_pickle=False)
            self.assertEqual(array.dtype, values(dtype).dtype, dtype)
            np.testing.assert_array_equal(array, values(dtype), dtype)

    def test_tensor_protos_stay_the_default(self):
        done = self.run_module(*self.inputs(), "--output-dir", "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "out"))), sorted(f"output_{i}.pb" for i in range(len(TYPES))))

    def test_another_format_is_refused(self):
        done = self.run_module("--output-dir", "out", "--output-format", "csv")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--output-format", done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "out")))


if __name__ == "__main__":
    unittest.main()
