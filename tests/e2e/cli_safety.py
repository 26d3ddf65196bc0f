#!/usr/bin/env python3
"""What the command line does with what it cannot trust: modules whose code is wrong or not released, names with terminal controls,
standard output that fails, interrupts, file names that are no UTF-8.

    cli_safety.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/

Prints "N passed, N failed".
"""

import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402
from cli_case import FAILED, MISMATCH, OK, dense_model  # noqa: E402

TABLE_ROW = struct.Struct("<IIQQ32s8x")


def with_code(module, change):
    """The module with `change`(code object) in place of its code object, and all digests right."""
    magic, version, count, _ = struct.unpack_from("<8sIIQ", module)
    rows = [TABLE_ROW.unpack_from(module, 64 + 64 * i) for i in range(count)]
    parts = [module[row[2]:row[2] + row[3]] for row in rows]
    at, = [i for i, part in enumerate(parts) if part.startswith(b"\x7fELF")]
    before, parts[at] = parts[at], change(parts[at])
    for old, new in (("%s" % hashlib.sha256(before).hexdigest(), "%s" % hashlib.sha256(parts[at]).hexdigest()),
                     ('"size":%d}' % len(before), '"size":%d}' % len(parts[at]))):
        assert parts[0].count(old.encode()) == 1
        parts[0] = parts[0].replace(old.encode(), new.encode())
    out, table = bytearray(64 + 64 * count), b""
    for i, (row, part) in enumerate(zip(rows, parts)):
        align = 64 if i == 0 else 4096
        out += bytes(-len(out) % align)
        table += TABLE_ROW.pack(row[0], row[1], len(out), len(part), hashlib.sha256(part).digest())
        out += part
    out[64:64 + len(table)] = table
    struct.pack_into("<8sIIQ32s", out, 0, magic, version, count, len(out), hashlib.sha256(table).digest())
    return bytes(out)


class Safety(cli_case.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model_bytes = dense_model().SerializeToString()
        cls.made = {}

    def setUp(self):
        super().setUp()
        self.write("model.onnx", self.model_bytes)
        if "module" not in self.made:
            self.good("compile", "model.onnx", "--target", "native", "-o", "model.tw")
            with open(self.path("model.tw"), "rb") as f:
                self.made["module"] = f.read()
        self.module = self.write("model.tw", self.made["module"])

    def write(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data)
        return self.path(name)

    def fails(self, code, *args, why=(), env=None):
        done = self.call(*args, env=env)
        text = "%s\nexit code %d\n%s\n%s" % (args, done.returncode, done.stdout, done.stderr)
        self.assertEqual(done.returncode, code, text)
        self.assertEqual(len(done.stderr.strip("\n").split("\n")), 3, text)
        for word in why:
            self.assertIn(word, done.stderr, text)
        return done


class WrongCode(Safety):
    """Code objects that are damaged, in modules whose digests are right: an attacker can make digests."""

    def run_scrambled(self, change, codes=(FAILED,)):
        self.write("bad.tw", with_code(self.made["module"], change))
        done = self.call("run", "bad.tw", "--repeat", "1")
        self.assertIn(done.returncode, codes, "ended by signal %d\n%s" % (-done.returncode, done.stderr))
        if done.returncode:
            self.assertRegex(done.stderr, r"why: (runtime\.code\.|run\.code\.|runtime\.run\.)\S+: ")
            self.assertIn("\n  do:  ", done.stderr)
        return done

    def test_the_same_code_runs(self):
        self.run_scrambled(lambda code: code, codes=(OK,))

    def test_headers(self):
        rng = random.Random(1)
        self.run_scrambled(lambda code: code[:16] + rng.randbytes(48) + code[64:])
        self.run_scrambled(lambda code: code[:64] + rng.randbytes(500) + code[564:])

    def test_bytes_everywhere(self):
        for seed in range(12):
            rng = random.Random(seed)

            def change(code):
                broken = bytearray(code)
                for _ in range(len(code) // 20):
                    broken[rng.randrange(64, len(broken))] = rng.randrange(256)
                return bytes(broken)
            self.run_scrambled(change, codes=(OK, FAILED))

    def test_the_code_itself(self):
        """Every instruction is a trap (int3)."""
        def change(code):
            found = []
            offset, count = struct.unpack_from("<Q", code, 32)[0], struct.unpack_from("<H", code, 56)[0]
            for i in range(count):
                kind, flags, begin, _, _, size = struct.unpack_from("<IIQQQQ", code, offset + 56 * i)
                if kind == 1 and flags & 1:
                    found.append((begin, size))
            broken = bytearray(code)
            for begin, size in found:
                broken[begin:begin + size] = b"\xcc" * size
            return bytes(broken)
        done = self.run_scrambled(change)
        self.assertIn("run.code.crashed: the process ended with signal 5", done.stderr)
        self.assertIn("while running it", done.stderr)


class Releases(Safety):
    """`run --key` loads nothing that the key's owner has not signed."""

    def setUp(self):
        super().setUp()
        for key in ("release", "other"):
            self.good("modules", "keygen", key)
        self.good("modules", "sign", "model.tw", "--key", "release")
        self.run_it = ["run", "model.tw", "--repeat", "1"]

    def test_a_signed_module_runs_and_says_who_signed(self):
        self.assertIn("signed", self.good(*self.run_it, "--key", "release.pub"))
        said = json.loads(self.good(*self.run_it, "--key", "release.pub", "-o", "json"))
        self.assertRegex(said["key_id"], "^[0-9a-f]+$")
        os.rename(self.path("model.tw.sig"), self.path("elsewhere"))
        self.good(*self.run_it, "--key", "release.pub", "--signature", "elsewhere")

    def test_any_other_is_refused_before_it_is_loaded(self):
        self.fails(MISMATCH, *self.run_it, "--key", "other.pub", why=["signing.signature.other_key"])
        # Code that would crash when loaded: what is refused is the signature.
        self.write("model.tw", with_code(self.made["module"], lambda code: code[:64] + bytes(len(code) - 64)))
        self.fails(MISMATCH, *self.run_it, "--key", "release.pub", why=["signing.file.other_module"])
        os.remove(self.path("model.tw.sig"))
        self.fails(MISMATCH, *self.run_it, "--key", "release.pub", why=["signing.signature.missing"])

    def test_the_key_of_the_environment(self):
        self.assertEqual(self.call(*self.run_it, env={"TILEWRIGHT_MODULE_KEY": "release.pub"}).returncode, OK)
        self.fails(MISMATCH, *self.run_it, env={"TILEWRIGHT_MODULE_KEY": "other.pub"},
                   why=["signing.signature.other_key"])

    def test_the_help_says_that_a_module_is_a_program(self):
        self.assertIn("rights", self.good("run", "--help"))


class Sandbox(Safety):
    """`run --sandbox`: the same outputs, in a process that may do nothing else."""

    CONFINED = ["--sandbox", "--allow-weak-sandbox"]  # tests run in containers, too

    def test_outputs_are_the_same(self):
        for sandbox in ([], self.CONFINED):
            out = "confined" if sandbox else "free"
            done = self.call("run", "model.tw", *sandbox, "--repeat", "3", "--seed", "5", "--output-dir", out, "--profile",
                             "-o", "json")
            self.assertEqual(done.returncode, OK, done.stderr)
            said = json.loads(done.stdout)
            self.assertTrue(0 < said["latency_ms"]["p10"] <= said["latency_ms"]["median"] <= said["latency_ms"]["p90"])
            self.assertEqual([kernel["onnx_nodes"] for kernel in said["kernels"]], [["node_of_y"]])
        with open(self.path("free", "output_0.pb"), "rb") as a, open(self.path("confined", "output_0.pb"), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_behind_a_bridge(self):
        """A worker elsewhere: the same outputs. A bridge that fails says why."""
        bridge = ["--bridge", "exec " + cli_case.binary("tilewright-worker"), "--allow-weak-sandbox"]
        for out, place in (("here", []), ("there", bridge)):
            self.good("run", "model.tw", *place, "--repeat", "1", "--seed", "5", "--output-dir", out)
        with open(self.path("here", "output_0.pb"), "rb") as a, open(self.path("there", "output_0.pb"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        self.fails(FAILED, "run", "model.tw", "--bridge", "echo the board is lost >&2; exit 3",
                   why=["run.bridge.failed", "the board is lost"])

    def test_inputs_and_expectations(self):
        values = numpy.arange(8, dtype=numpy.float32).reshape(1, 8)
        numpy.save(self.path("x.npy"), values)
        numpy.save(self.path("y.npy"), values @ numpy_helper.to_array(dense_model().graph.initializer[0]))
        self.assertIn("expect y: ok", self.good("run", "model.tw", *self.CONFINED, "--input", "x=x.npy", "--expect",
                                                "y=y.npy", "--threads", "2"))
        numpy.save(self.path("y.npy"), numpy.zeros((1, 4), numpy.float32))
        self.fails(MISMATCH, "run", "model.tw", *self.CONFINED, "--input", "x=x.npy", "--expect", "y=y.npy",
                   why=["cli.mismatch"])

    def test_hostile_code(self):
        """A kernel that makes a file: without the sandbox it is there, with it the process has ended."""
        self.write("hostile.c", ("""
            #include <fcntl.h>
            #include <unistd.h>
            __attribute__((constructor)) static void begin(void) {
              int fd = open("%s", O_CREAT | O_WRONLY, 0600);
              if (fd >= 0) close(fd);
            }
            """ % self.path("made")).encode())
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-nostartfiles", "-o", self.path("hostile.so"),
                        self.path("hostile.c")], check=True)
        with open(self.path("hostile.so"), "rb") as f:
            hostile = f.read()
        self.write("hostile.tw", with_code(self.made["module"], lambda _: hostile))
        done = self.call("run", "hostile.tw", *self.CONFINED)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn("run.code.crashed", done.stderr)
        self.assertFalse(os.path.exists(self.path("made")))
        self.call("run", "hostile.tw")
        self.assertTrue(os.path.exists(self.path("made")), "the test's module is hostile indeed")

    def test_a_weak_sandbox_is_refused_unless_allowed(self):
        """A kernel that permits no namespaces: a user namespace that may have no other, without rights. Where there
        can be none, this machine is such a kernel already."""
        unnested = ["unshare", "--user", "--map-root-user"]
        script = 'exec setpriv --bounding-set=-all --inh-caps=-all -- "$@"'
        if subprocess.run([*unnested, "true"], capture_output=True, check=False).returncode == 0:
            start = [*unnested, "sh", "-c", "echo 0 >/proc/sys/user/max_user_namespaces && " + script, "sh"]
        else:
            start = ["sh", "-c", script, "sh"]
        run = [*start, cli_case.binary("tilewright"), "run", "model.tw", "--sandbox"]
        env = cli_case.environment(self.path("state"))
        refused = subprocess.run(run, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        self.assertEqual(refused.returncode, FAILED, refused.stderr)
        self.assertIn("run.sandbox.weak", refused.stderr)
        self.assertIn("namespaces", refused.stderr)
        self.assertIn("--allow-weak-sandbox", refused.stderr)
        done = subprocess.run([*run, "--allow-weak-sandbox"], cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, OK, done.stderr)

    def test_damaged_code(self):
        def change(code):
            return code[:64] + random.Random(1).randbytes(len(code) - 64)
        self.write("bad.tw", with_code(self.made["module"], change))
        self.fails(FAILED, "run", "bad.tw", *self.CONFINED, why=["runtime.code.elf"])


class StandardOutput(Safety):
    """What cannot be printed is a failure, of every command."""

    def commands(self):
        yield from (["--help"], ["--version"], ["run", "--help"], ["jobs", "list", "--help"], ["targets"],
                    ["targets", "-o", "json"], ["operators"], ["operators", "-o", "markdown"], ["completion", "bash"],
                    ["check", "model.onnx"], ["run", "model.tw", "--repeat", "1"],
                    ["compile", "model.onnx", "--target", "native", "-o", "out.tw"], ["compile", "--print-passes"],
                    ["modules", "keygen", "key%d" % self.keys()], ["certs", "init", "pki%d" % self.keys()],
                    ["tokens", "roles"])

    def keys(self):
        self.count = getattr(self, "count", 0) + 1
        return self.count

    def end(self, args, shell):
        return subprocess.run(["/bin/sh", "-c", shell, "sh", cli_case.binary("tilewright"), *args], cwd=self.folder,
                              env=cli_case.environment(self.path("state")), capture_output=True, text=True, timeout=300)

    def test_closed(self):
        for args in self.commands():
            done = self.end(args, '"$@" >&-')
            self.assertEqual(done.returncode, FAILED, args)
            self.assertIn("cli.stdout.failed", done.stderr, args)

    def test_full(self):
        for args in self.commands():
            done = self.end(args, '"$@" >/dev/full')
            self.assertEqual(done.returncode, FAILED, args)
            self.assertIn("cli.stdout.failed", done.stderr, args)

    def test_a_reader_that_goes_is_no_error(self):
        for args in (["--help"], ["operators", "-o", "markdown"], ["run", "model.tw", "--repeat", "1"]):
            done = self.end(args, '{ "$@"; echo "code $?" >&2; } | :')
            self.assertEqual(done.stderr.strip(), "code 0", args)

    def test_no_file_takes_the_number_of_a_closed_stream(self):
        done = self.end(["compile", "model.onnx", "--target", "native", "-o", "out.tw"], '"$@" >&- 2>&- <&-')
        self.assertEqual(done.returncode, FAILED)
        with open(self.path("out.tw"), "rb") as f:
            self.assertEqual(f.read(), self.made["module"])


KERNELS = 120  # of the chain: seconds of compilation, to be interrupted in the middle of


class Interrupts(Safety):
    """An interrupted compilation leaves nothing in TMPDIR; what a killed one left goes with the next."""

    def setUp(self):
        super().setUp()
        # Under nohup a command would rightly ignore the one, in the background of a script the other.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        rng = numpy.random.default_rng(3)
        nodes, weights = [], []
        for i in range(KERNELS):
            weights.append(numpy_helper.from_array(
                rng.standard_normal((64 + i, 65 + i)).astype(numpy.float32), "w%d" % i))
            nodes.append(onnx.helper.make_node("MatMul", ["x%d" % i, "w%d" % i], ["x%d" % (i + 1)]))
        value = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(nodes, "chain", [value("x0", 1, [1, 64])], [value("x%d" % KERNELS, 1, [1, 64 + KERNELS])], weights)
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), self.path("long.onnx"))
        os.mkdir(self.path("tmp"))

    def interrupt(self, number, group):
        env = cli_case.environment(self.path("state"), {"TMPDIR": self.path("tmp")})
        child = subprocess.Popen([cli_case.binary("tilewright"), "compile", self.path("long.onnx"), "--target", "native",
                                  "-o", self.path("long.tw")], cwd=self.folder, env=env, start_new_session=True,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(child.kill)
        self.wait_for("a folder for temporary files", lambda: os.listdir(self.path("tmp")) or child.poll() is not None)
        self.wait_for("the compiler", lambda: self.children(child.pid) or child.poll() is not None)
        self.assertIsNone(child.poll(), "it was too fast to be interrupted")
        (os.killpg if group else os.kill)(child.pid, number)
        self.assertEqual(child.wait(60), -number)

    def children(self, pid):
        """Whether the child of the command has a child of its own."""
        for task in self.below(pid):
            if self.below(task):
                return True
        return False

    @staticmethod
    def below(pid):
        found = []
        try:
            for task in os.listdir("/proc/%d/task" % pid):
                with open("/proc/%d/task/%s/children" % (pid, task)) as f:
                    found += [int(word) for word in f.read().split()]
        except OSError:
            pass
        return found

    def test_interrupts_leave_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for group in (False, True):
                self.interrupt(number, group)
                self.assertEqual(os.listdir(self.path("tmp")), [], "signal %d, group %s" % (number, group))
                self.assertFalse(os.path.exists(self.path("long.tw")))

    def test_what_a_killed_one_left_goes_with_the_next(self):
        self.interrupt(signal.SIGKILL, False)
        self.assertEqual(len(os.listdir(self.path("tmp"))), 1)
        self.wait_for("the end of all its processes", lambda: not self.processes("long.onnx"))
        done = self.call("compile", "model.onnx", "--target", "native", "-o", "next.tw", env={"TMPDIR": self.path("tmp")})
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(os.listdir(self.path("tmp")), [])


class FileNames(Safety):
    """File names are bytes; most are text, and what is printed of them is always text."""

    def test_names_that_are_no_utf8(self):
        name = os.fsdecode(b"caf\xe9")
        os.rename(self.path("model.onnx"), self.path(name + ".onnx"))
        os.mkdir(self.path(name))
        done = self.call("compile", name + ".onnx", "--target", "native", "-o", os.path.join(name, "out.tw"),
                         "--dump-ir", os.path.join(name, "ir"), env={"TMPDIR": self.path(name)})
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("caf\\xe9", done.stdout)
        self.assertTrue(os.listdir(self.path(name, "ir")))
        done = self.call("run", os.path.join(name, "out.tw"), "--repeat", "1")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(self.call("check", name + ".onnx").returncode, OK)
        self.write(name + ".bad", b"noise")
        self.fails(FAILED, "compile", name + ".bad", "--target", "native", why=["graph.onnx.not_onnx", "caf\\xe9"])

    def test_names_that_a_terminal_would_obey(self):
        name = "\x1b[2J\u202e.onnx"
        os.rename(self.path("model.onnx"), self.path(name))
        done = self.call("compile", name, "--target", "native", "-o", name + ".tw")
        self.assertEqual(done.returncode, OK, done.stderr)
        gone = self.call("compile", "gone" + name, "--target", "native")
        for text in (done.stdout, gone.stderr):
            self.assertIn("\\u001b[2J\\u202e", text)
            self.assertNotIn("\x1b", text)
            self.assertNotIn("\u202e", text)


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
