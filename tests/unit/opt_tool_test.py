#!/usr/bin/env python3
"""tilewright-opt as its users meet it: text in, text out, exit codes, errors in one line."""
import os
import subprocess
import tempfile
import unittest

OPT = os.path.join(os.environ["TILEWRIGHT_BUILD_DIR"], "bin", "tilewright-opt")

MATMUL = """
fn matmul(A: f32[13,9] input, B: f32[9,20] constant, C: f32[13,20] output) stage=scheduled {
  for i in 0..13 {
    for j in 0..20 {
      for k in 0..9 {
        block C(vi: spatial 0..13 = i, vj: spatial 0..20 = j, vk: reduce 0..9 = k) {
          reads A[vi:1, vk:1], B[vk:1, vj:1];
          writes C[vi:1, vj:1];
          init {
            C[vi, vj] = 0.0f32;
          }
          C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj];
        }
      }
    }
  }
}
"""
STEPS = "split %1 [?,8] tail=peel; vectorize %5; parallel %0"


class OptTool(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = os.path.join(self.folder.name, "matmul.tir")
        with open(self.file, "w", encoding="utf-8") as f:
            f.write(MATMUL)

    def opt(self, *args, stdin=None):
        return subprocess.run([OPT, *args], input=stdin, text=True, capture_output=True,
                              timeout=120, check=False)

    def ok(self, *args, stdin=None):
        result = self.opt(*args, stdin=stdin)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_text_round_trip(self):
        text = self.ok(self.file)
        self.assertEqual(self.ok("-", stdin=text), text)
        self.assertEqual(self.ok("-", stdin="# a comment\n" + text), text)

    def test_hash_depends_on_steps_not_on_spelling(self):
        plain = self.ok(self.file, "--print-hash").strip()
        self.assertRegex(plain, "^[0-9a-f]{16}$")
        scheduled = self.ok(self.file, "--print-hash", "--apply", STEPS).strip()
        self.assertNotEqual(plain, scheduled)
        spaced = STEPS.replace("; ", "\n").replace("[?,8]", "[ ?, 8 ]")
        self.assertEqual(self.ok(self.file, "--print-hash", "--apply", spaced).strip(), scheduled)

    def test_handles(self):
        self.assertIn("# %3 block C", self.ok(self.file, "--print-handles"))

    def test_explains_what_is_decided_and_what_could_be(self):
        text = self.ok(self.file, "--explain", "--target", "cpu,arch=x86_64,cpu=znver4,threads=2")
        self.assertIn("C: vi=13 vj=20 vk=9 (reduced); reads A, B", text)
        self.assertIn("tile: lanes along vj, 16 wide; loads of a vector: vi 33 vj 2", text)
        self.assertIn("steps\n  cache_write", text)
        self.assertRegex(text, "around_default of variant direct: .* points, the first is the default")
        steps = text.split("steps\n  ")[1].split("\n")[0]
        self.assertIn("vectorized", self.ok(self.file, "--apply", steps), "the printed steps can be applied")
        bound = self.ok(self.file, "--explain", "--target", "cuda,arch=sm_80")
        self.assertIn("threads: a thread for each 1 x 1 results", bound)

    def test_passes_compose_to_the_pipeline(self):
        whole = self.ok(self.file, "--apply", STEPS, "--pipeline=cpu", "--verify-each",
                        "--target=cpu,arch=x86_64,cpu=x86-64-v3")
        self.assertIn("stage=flat", whole)
        self.assertIn("fma(", whole)
        part = self.ok(self.file, "--apply", STEPS, "--pipeline=cpu",
                       "--stop-after=partition_loops")
        self.assertIn("stage=loops", part)
        single = self.ok("-", "--passes=lower_blocks,simplify", stdin=self.ok(self.file))
        self.assertIn("stage=loops", single)

    def test_run_compares_with_the_interpreter(self):
        text = self.ok(self.file, "--apply", STEPS, "--run", "--target=native,threads=2",
                       "--repeat=3")
        self.assertIn("repeats=3", text)
        self.assertIn("C: all 260 elements match", text)

    def test_a_tasks_other_algorithms_can_be_chosen(self):
        task = os.path.join(self.folder.name, "conv.task")
        y = "f32[1,2,7,6,4]"
        with open(task, "w", encoding="utf-8") as f:
            f.write("graph {\n  input %%0: %s\n  weight %%1: f32[2,2,3,3,4,4]\n  %%2: %s = conv2d(%%0, %%1) "
                    "{data_layout=\"NCHW4c\", pads=[1,1,1,1], weight_layout=\"OIHW4i4o\"}\n  output %%2\n}\n" % (y, y))
        hashes = {self.ok("--task", task, "--apply", steps, "--print-hash")
                  for steps in ("", "variant winograd", "variant winograd_2")}
        self.assertEqual(len(hashes), 3)
        text = self.ok("--task", task, "--apply", "variant winograd", "--run")
        self.assertIn("all 336 elements match", text)

    def test_planted_faults_are_seen(self):
        for kind in ("tail", "init"):
            result = self.opt(self.file, "--apply", STEPS, "--run", "--test-miscompile", kind)
            self.assertEqual(result.returncode, 1)
            self.assertTrue(result.stderr.startswith("opt.run.mismatch: expected"), result.stderr)
            self.assertIn("elements differ: first at [", result.stdout)

    def test_dumps_and_code(self):
        dump = os.path.join(self.folder.name, "dump")
        code = os.path.join(self.folder.name, "matmul.so")
        self.ok(self.file, "--emit-code", "-o", code, "--dump-ir", dump)
        with open(code, "rb") as f:
            self.assertEqual(f.read(4), b"\x7fELF")
        names = sorted(os.listdir(dump))
        self.assertIn("00_input.tir", names)
        self.assertIn("matmul.ll", names)
        self.assertIn("matmul.s", names)

    def test_usage_errors_are_2(self):
        for args in ([], ["--no-such-flag"], [self.file, "--passes=nonsense"],
                     [self.file, "--target=toaster"], [self.file, "--apply=split"],
                     [self.file, "--pipeline=cpu", "--stop-after=nonsense"]):
            result = self.opt(*args)
            self.assertEqual(result.returncode, 2, (args, result.stderr))
            self.assertNotEqual(result.stderr, "")

    def test_failures_are_1_and_say_why(self):
        cases = {
            "ir.parse": ["-"],
            "schedule.vectorize.": [self.file, "--apply=vectorize %2"],
            "file.": [os.path.join(self.folder.name, "absent.tir")],
        }
        for slug, args in cases.items():
            result = self.opt(*args, stdin="fn broken(")
            self.assertEqual(result.returncode, 1, (args, result.stderr))
            self.assertTrue(result.stderr.startswith(slug), result.stderr)


if __name__ == "__main__":
    unittest.main()
