#!/usr/bin/env python3
"""Packages as deploy/ops/package.sh makes them: installed into a root of their own and unpacked where nothing but a C library is, their
programs run; the agent of the tarball joins a tracker and measures.

    packages.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""

import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402

SCRIPT = Path(cli_case.ROOT) / "deploy/ops/package.sh"
DAEMONS = ("tracker", "tuner", "agent")
TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "dpkg", "strip", "ldd")


class Packages(cli_case.Case):
    def setUp(self):
        super().setUp()
        absent = [tool for tool in TOOLS if shutil.which(tool) is None]
        if absent:
            self.skipTest("no %s here" % ", ".join(absent))

    def package(self, *flags):
        done = subprocess.run([SCRIPT, "--build", cli_case.BUILD, "--out", self.path("out"), "--no-build", *flags],
                              capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line for line in done.stdout.splitlines() if line.startswith("/")]

    @staticmethod
    def may_mount():
        """Whether a program can be given a root of its own here; a container may forbid it."""
        done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
        if done.returncode != 0:
            print("[SKIP] the tarball's programs in a root of their own: " + done.stderr.strip())
        return done.returncode == 0

    def check_sums(self):
        with open(self.path("out/SHA256SUMS")) as sums:
            rows = [line.split() for line in sums]
        for digest, name in rows:
            with open(self.path("out", name), "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), digest, name)
        return len(rows)

    def test_debian_packages_install_into_a_root_and_run(self):
        made = self.package("--only", "deb")
        self.assertEqual(len(made), 4)
        self.assertEqual(self.check_sums(), 4)
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
            done = subprocess.run([root + "/usr/bin/tilewright-" + name, "--config", config, "--check-config"],
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

    def test_the_tarball_of_the_agent_needs_nothing_but_a_c_library(self):
        made = self.package("--only", "tarball")
        self.assertEqual(len(made), 1)
        first = Path(made[0]).read_bytes()
        self.assertEqual(Path(self.package("--only", "tarball")[0]).read_bytes(), first, "the same bytes each time")
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
                                      "--port-file", port], stderr=log)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.terminate)
        self.wait_for("the agent", lambda: os.path.exists(port))
        with open("/proc/%d/maps" % agent.pid) as maps:
            libraries = {line.split()[-1] for line in maps if ".so" in line}
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
