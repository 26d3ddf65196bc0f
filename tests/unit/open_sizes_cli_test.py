"""`tilewright run` and `bench diff` of a module of open sizes: inputs of any legal shape, --shape, errors that say what is legal."""

import json
import os
import subprocess
import tempfile
import unittest

import numpy as np

BUILD = os.environ["TILEWRIGHT_BUILD_DIR"]


def reference(x):
    """y = 3 x W (tests/unit/module_fixture.h)."""
    k, n = np.arange(8.0)[:, None], np.arange(16.0)[None, :]
    return (3 * (x.astype(np.float64) @ (k - 0.25 * n))).astype(np.float32)


class OpenSizesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        subprocess.run([os.path.join(BUILD, "bin/tilewright_make_test_module"), os.path.join(cls.folder, "open.tw"), "--open-rows"],
                       check=True)
        rng = np.random.default_rng(7)
        for rows in (1, 4, 7, 33, 34):
            x = rng.integers(-8, 8, (rows, 8)).astype(np.float32)
            np.save(os.path.join(cls.folder, f"x{rows}.npy"), x)
            np.save(os.path.join(cls.folder, f"y{rows}.npy"), reference(x))

    def call(self, *command):
        return subprocess.run([os.path.join(BUILD, "bin/tilewright"), *command], cwd=self.folder, capture_output=True, text=True)

    def run_module(self, *flags):
        return self.call("run", "open.tw", "--repeat", "1", *flags)

    def test_files_choose_the_sizes(self):
        for rows in (1, 4, 7, 33):
            done = self.run_module("--input", f"x=x{rows}.npy", "--expect", f"y=y{rows}.npy", "--output-dir", f"out{rows}",
                                   "--output-format", "npy")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, "")
            self.assertIn(f"sizes N={rows} (x float32 Nx8 -> y float32 Nx16; N from 1 to 33)", done.stdout)
            y = np.load(os.path.join(self.folder, f"out{rows}", "output_0.npy"))
            self.assertEqual(y.shape, (rows, 16))

    def test_a_wrong_result_is_still_one(self):
        np.save(os.path.join(self.folder, "wrong.npy"), np.zeros((7, 16), np.float32))
        self.assertEqual(self.run_module("--input", "x=x7.npy", "--expect", "y=wrong.npy").returncode, 5)

    def test_shape_chooses_the_sizes_of_seeded_inputs(self):
        done = self.run_module("--shape", "N=7", "-o", "json", "--profile")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["sizes"], {"N": 7})
        self.assertEqual(document["size_vars"], [{"name": "N", "min": 1, "max": 33}])
        self.assertEqual(document["function"], "main")
        self.assertEqual(document["specialisations"], [{"name": "four", "at": {"N": 4}}])
        self.assertEqual(document["inputs"], [{"name": "x", "dtype": "float32", "dims": ["N", 8], "shape": [7, 8]}])
        self.assertEqual(document["outputs"][0]["shape"], [7, 16])
        # The module counts 128 N operations; the time cancels out.
        matmul = document["kernels"][0]
        self.assertAlmostEqual(matmul["gflop_s"] * matmul["median_us"] * 1e3, 128 * 7, delta=1)
        self.assertEqual(json.loads(self.run_module("--shape", "N=4", "-o", "json").stdout)["function"], "four")
        self.assertIn("function four (specialised: four (N=4))", self.run_module("--shape", "N=4", "--profile").stdout)

    def test_the_smallest_sizes_are_the_default(self):
        done = self.run_module()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("running at N=1, the smallest sizes", done.stderr)
        self.assertIn("sizes N=1 ", done.stdout)

    def test_what_does_not_fit_is_refused(self):
        allowed = "input 'x': dimension 0 (N): expected 1 to 33, found 34"
        for flags, code, text in ((["--input", "x=x34.npy"], 1, allowed), (["--shape", "N=34"], 1, allowed),
                                  (["--shape", "M=3"], 2, "N (1 to 33)"), (["--shape", "N=1x2"], 2, "N (1 to 33)"),
                                  (["--shape", "N=8", "--input", "x=x7.npy"], 1, "expected N=8, found 7"),
                                  (["--input", "x=y7.npy"], 1, "expected Nx8, found 7x16"),
                                  (["--input", "x=x7.npy", "--expect", "y=y4.npy"], 1, "7x16"),
                                  (["--sandbox"], 1, "run.sandbox.open_sizes")):
            done = self.run_module(*flags)
            self.assertEqual(done.returncode, code, (flags, done.stderr))
            self.assertIn(text, done.stderr)

    def test_modules_race_at_chosen_sizes(self):
        done = self.call("bench", "diff", "open.tw", "open.tw", "--shape", "N=4", "--seconds", "0.05", "--profile")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("outputs differ by 0", done.stdout)
        self.assertIn("matmul", done.stdout)


if __name__ == "__main__":
    unittest.main()
