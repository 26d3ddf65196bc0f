#!/usr/bin/env python3
"""Packages as deploy/ops/package.sh makes them: installed into a root of their own and unpacked where nothing but a C library is, their
programs run; the client needs no LLVM and names the package that it lacks; programs in C, C++ and Python build on tilewright-dev; the
agent of the tarball joins a tracker and measures.

    packages.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Measures: a device is used in it, and no time is judged.

import functools
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402

SCRIPT = Path(cli_case.ROOT) / "deploy/ops/package.sh"
DAEMONS = ("tracker", "tuner", "agent")
PACKAGES = ("tilewright", "tilewright-agent", "tilewright-client", "tilewright-dev", "tilewright-tracker", "tilewright-tuner")
TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "dpkg", "strip", "ldd")


class Packages(cli_case.Case):
    def setUp(self):
        super().setUp()
        absent = [tool for tool in TOOLS if shutil.which(tool) is None]
        if absent:
            self.skipTest("no %s here" % ", ".join(absent))

    @staticmethod
    def package(out, kind):
        done = subprocess.run([SCRIPT, "--build", cli_case.BUILD, "--out", out, "--no-build", "--only", kind],
                              capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return [line for line in done.stdout.splitlines() if line.startswith("/")]

    @classmethod
    @functools.cache
    def debian_packages(cls):
        """Made once for all tests: that takes half a minute."""
        out = tempfile.mkdtemp(prefix="tilewright-packages-")
        cls.addClassCleanup(shutil.rmtree, out)
        return cls.package(out, "deb")

    def unpack(self, name):
        """The files of one Debian package in a folder of their own, as `dpkg-deb -x` leaves them."""
        root = self.path("unpacked", name)
        os.makedirs(root)
        path = next(path for path in self.debian_packages() if os.path.basename(path).startswith(name + "_"))
        subprocess.run(["dpkg-deb", "-x", path, root], check=True)
        depends = subprocess.run(["dpkg-deb", "--field", path, "Depends"], capture_output=True, text=True, check=True).stdout
        return root, depends.strip()

    def works(self, *args, **options):
        done = subprocess.run(args, capture_output=True, **options)
        self.assertEqual(done.returncode, 0, "%s\n%s" % (args, done.stderr.decode(errors="replace")))
        return done.stdout

    @staticmethod
    def may_mount():
        """Whether a program can be given a root of its own here; a container may forbid it."""
        done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
        if done.returncode != 0:
            print("[SKIP] the tarball's programs in a root of their own: " + done.stderr.strip())
        return done.returncode == 0

    def check_sums(self, folder):
        with open(os.path.join(folder, "SHA256SUMS")) as sums:
            rows = [line.split() for line in sums]
        for digest, name in rows:
            with open(os.path.join(folder, name), "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), digest, name)
        return len(rows)

    def test_debian_packages_install_into_a_root_and_run(self):
        made = self.debian_packages()
        packages = list(PACKAGES)
        if "TILEWRIGHT_BUILD_IMAGES:BOOL=ON\n" in Path(cli_case.BUILD, "CMakeCache.txt").read_text():
            packages.append("tilewright-images")
        self.assertEqual(sorted(os.path.basename(path).split("_")[0] for path in made), sorted(packages))
        self.assertEqual(self.check_sums(os.path.dirname(made[0])), len(packages))
        root = self.path("root")
        os.makedirs(root + "/var/lib/dpkg/info")
        os.makedirs(root + "/var/lib/dpkg/updates")
        Path(root, "var/lib/dpkg/status").touch()
        # Libraries and the user's account belong to the whole machine; scripts are checked by reading.
        as_root = ["fakeroot"] if shutil.which("fakeroot") else []  # files of root's; root itself needs none
        done = subprocess.run([*as_root, "dpkg", "--root=" + root, "--force-depends", "--force-not-root", "--force-script-chrootless",
                               "--unpack", *made], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        versions = set()
        for program in ("tilewright", "tilewright-tracker", "tilewright-tuner", "tilewright-agent", "tilewright-worker"):
            done = subprocess.run([root + "/usr/bin/" + program, "--version"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            versions.add(done.stdout.split()[-1])
        self.assertEqual(len(versions), 1, versions)
        for name in DAEMONS:
            config = root + "/etc/tilewright/%s.conf" % name
            if not os.path.exists(config):  # unpacked, not configured yet
                config += ".dpkg-new"
            done = subprocess.run([root + "/usr/bin/tilewright-" + name, "--config", config, "--state-dir",
                                   self.path("state-" + name), "--check-config"],
                                  capture_output=True, text=True)
            self.assertEqual(done.stdout, "ok\n", done.stderr)
            unit = Path(root, "lib/systemd/system/tilewright-%s.service" % name).read_text()
            page = unit.split("Documentation=file:")[1].split()[0]
            self.assertTrue(os.path.exists(root + page), page)
        for path in made:
            fields = subprocess.run(["dpkg-deb", "--field", path, "Depends", "Version"], capture_output=True, text=True).stdout
            self.assertIn("libc6", fields, path)
            for script in ("postinst", "prerm"):
                control = self.path("control")
                subprocess.run(["dpkg-deb", "--control", path, control], check=True)
                if os.path.exists(os.path.join(control, script)):
                    self.assertEqual(subprocess.run(["sh", "-n", os.path.join(control, script)]).returncode, 0)
                shutil.rmtree(control)
        # No file belongs to two packages.
        listed = [line.split()[-1] for path in made for line in subprocess.run(
            ["dpkg-deb", "--contents", path], capture_output=True, text=True).stdout.splitlines() if not line.startswith("d")]
        self.assertEqual(len(listed), len(set(listed)))
        self.assertEqual(os.path.exists(root + "/usr/lib/libtilewright_images.so"), "tilewright-images" in packages)

        for name in ("alerts.yml", "dashboard.json", "prometheus.yml"):
            self.assertTrue(os.path.exists(root + "/usr/share/tilewright/monitoring/" + name), name)
        for package in packages:
            self.assertTrue(os.path.exists(root + "/usr/share/doc/%s/ops/threat_model.md" % package), package)

    def test_the_client_needs_no_llvm_and_names_what_it_lacks(self):
        root, depends = self.unpack("tilewright-client")
        program = root + "/usr/bin/tilewright"
        libraries = self.works("ldd", program).decode()
        for heavy in ("llvm", "lld", "xgboost"):
            self.assertNotIn(heavy, depends.lower())
            self.assertNotIn("lib" + heavy, libraries.lower())
        onnx.save(cli_case.dense_model(), self.path("m.onnx"))
        for args in (["compile", "m.onnx", "--target", "native", "-o", "m.tw"], ["tune", "m.onnx", "--target", "native", "-o", "m.tw"]):
            done = subprocess.run([program, *args], cwd=self.folder, env=cli_case.environment(self.path("state")), capture_output=True, text=True)
            self.assertEqual(done.returncode, cli_case.FAILED, done.stderr)
            self.assertIn("file.sibling.missing", done.stderr)
            self.assertIn("the package tilewright has the compiler", done.stderr)
        # What needs no compiler works: a module runs, and a server is asked (here none answers).
        self.good("compile", "m.onnx", "--target", "native", "-o", "m.tw")
        self.works(program, "run", "m.tw", "--repeat", "1", "--output-dir", "out", "--output-format", "npy", cwd=self.folder)
        self.assertEqual(numpy.load(self.path("out/output_0.npy")).shape, (1, 4))
        # The script of pipelines finds the program on the path, and the protos are whole.
        done = subprocess.run([root + "/usr/share/tilewright/ci/fetch_module.sh", "dqn", "dqn.tw"], cwd=self.folder, capture_output=True, text=True,
                              env=cli_case.environment(self.path("state"), {"PATH": root + "/usr/bin:" + os.environ["PATH"]}))
        self.assertEqual(done.returncode, cli_case.USAGE, done.stderr)
        self.assertIn("--server", done.stderr)
        self.assertTrue(os.path.exists(root + "/usr/share/doc/tilewright-client/docs/README.md"))
        protos = root + "/usr/share/tilewright/proto"
        self.works("protoc", "-I", protos, "--descriptor_set_out", self.path("all.pb"), *glob.glob(protos + "/tilewright/v1/*.proto"))

    def test_programs_in_c_cpp_and_python_build_on_the_dev_package(self):
        root, depends = self.unpack("tilewright-dev")
        for name in ("tilewright.js", "tilewright.d.ts", "worker/worker.js"):
            self.assertTrue(os.path.exists(root + "/usr/share/javascript/tilewright/" + name), name)
        self.assertRegex(depends, r"^libc6 \([^)]*\)$", "the library needs nothing else")
        model = cli_case.dense_model(rows=4, inner=32, columns=16)
        onnx.save(model, self.path("m.onnx"))
        self.good("compile", "m.onnx", "--target", "native,threads=2", "-o", "m.tw")
        x = numpy.random.default_rng(3).standard_normal((4, 32)).astype(numpy.float32)
        wanted = x @ numpy_helper.to_array(model.graph.initializer[0])
        examples = self.path("examples")
        shutil.copytree(root + "/usr/share/doc/tilewright-dev/examples", examples)
        libraries = {**os.environ, "LD_LIBRARY_PATH": root + "/usr/lib"}

        def check(program):
            raw = self.works(program, self.path("m.tw"), input=x.tobytes(), env=libraries)
            numpy.testing.assert_allclose(numpy.frombuffer(raw, numpy.float32).reshape(4, 16), wanted, rtol=1e-4, atol=1e-5)

        flags = self.works("pkg-config", "--cflags", "--libs", "tilewright",
                           env={**os.environ, "PKG_CONFIG_PATH": root + "/usr/lib/pkgconfig"}).decode().split()
        self.works("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", examples + "/run_module.c", *flags, "-o", self.path("by_pkg_config"))
        check(self.path("by_pkg_config"))
        self.works("cmake", "-S", examples, "-B", self.path("cmake"), "-DCMAKE_PREFIX_PATH=" + root + "/usr")
        self.works("cmake", "--build", self.path("cmake"))
        check(self.path("cmake/run_module"))
        check(self.path("cmake/run_threads"))
        numpy.save(self.path("x.npy"), x)
        self.works(sys.executable, examples + "/run_module.py", "m.tw", "x.npy", "y.npy", cwd=self.folder,
                   env={**os.environ, "PYTHONPATH": root + "/usr/lib/python3/dist-packages"})
        numpy.testing.assert_allclose(numpy.load(self.path("y.npy")), wanted, rtol=1e-4, atol=1e-5)

    def test_the_tarball_of_the_agent_needs_nothing_but_a_c_library(self):
        made = self.package(self.path("out"), "tarball")
        self.assertEqual(len(made), 1)
        first = Path(made[0]).read_bytes()
        self.assertEqual(Path(self.package(self.path("again"), "tarball")[0]).read_bytes(), first, "the same bytes each time")
        root = self.path("root")
        os.makedirs(root)
        subprocess.run(["tar", "-xzf", made[0], "-C", root], check=True)
        home = glob.glob(root + "/tilewright-agent-*")[0]
        inside = home[len(root):]
        if self.may_mount():
            for library in ("/lib64/ld-linux-x86-64.so.2", *("/lib/x86_64-linux-gnu/" + name for name in (
                    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2"))):
                if os.path.exists(library):
                    os.makedirs(root + os.path.dirname(library), exist_ok=True)
                    shutil.copy(os.path.realpath(library), root + library)
            os.makedirs(root + "/proc")  # the loader looks there where a program lies
            for program in ("tilewright-agent", "tilewright-worker"):
                done = subprocess.run(["unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$1" --version',
                                       root, inside + "/bin/" + program], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), program)
        # It measures, too, with the libraries that it brought.
        tracker = cli_case.Daemon(self, "tracker")
        tuner = cli_case.Daemon(self, "tuner", "--tracker", tracker.address)
        port = self.path("agent.port")
        with open(self.path("agent.log"), "w") as log:
            agent = subprocess.Popen([home + "/bin/tilewright-agent", "--state-dir", self.path("agent"), "--tracker", tracker.address,
                                      "--port-file", port, "--allow-weak-sandbox"], stderr=log)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.terminate)
        self.wait_for("the agent", lambda: os.path.exists(port))
        # As the loader says it: a daemon's /proc/PID/maps is not for others, in a container for root neither.
        listed = subprocess.run([home + "/bin/tilewright-agent"], env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"},
                                capture_output=True, text=True, check=True).stdout
        libraries = {os.path.realpath(word) for word in listed.split() if word.startswith("/")}
        brought = [path for path in libraries if path.startswith(home)]
        self.assertGreater(len(brought), 20)
        others = {os.path.basename(path).split(".so")[0] for path in libraries if not path.startswith(home)}
        self.assertLessEqual(others, {"libc", "libm", "libdl", "libpthread", "librt", "libresolv", "ld-linux-x86-64", "ld-2", "libnss_files"})
        onnx.save(cli_case.dense_model(rows=4, inner=256, columns=96), self.path("m.onnx"))
        out = json.loads(self.good("tune", "m.onnx", "--target", "native,threads=1", "--trials", "4", "--format", "json", "-o", "m.tw",
                                   "--server", tuner.address))
        self.assertEqual(out["state"], "SUCCEEDED")


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
