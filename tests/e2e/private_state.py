#!/usr/bin/env python3
"""State is for its own user alone, whatever the umask says: folders 0700 and files 0600, after each daemon ran and after the command
line did. State that older versions left open is closed at the next start.

    private_state.py [--build DIR]     DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Measures: a device is used in it, and no time is judged.

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402

NOBODY = 65534
PUBLIC = ("ca.pem", "cert.pem", "crl.pem", "request.pem")  # what certificates are for: to be given away
TRIES_TO_LOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


class PrivateState(cli_case.Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.umask, os.umask(0))
        onnx.save(cli_case.dense_model(rows=4, inner=64, columns=96), self.path("m.onnx"))

    def check_private(self, folder, at_least):
        found = [Path(self.path(folder)), *Path(self.path(folder)).rglob("*")]
        self.assertGreaterEqual(len(found), at_least, found)
        for path in found:
            if path.is_symlink():
                continue
            if path.name in PUBLIC:
                self.assertEqual(path.stat().st_mode & 0o7133, 0, path)
                continue
            self.assertEqual(path.stat().st_mode & 0o7777, 0o700 if path.is_dir() else 0o600, path)

    def tune(self, *more):
        self.good("tune", "m.onnx", "--target", "native,threads=1", "--trials", "4", "-o", "m.tw", *more)

    def test_tuning_without_a_server(self):
        self.tune("--log", "tuner.db")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("tuner.db")).st_mode), 0o600)
        self.check_private("state/tilewright", at_least=20)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("m.tw")).st_mode), 0o644, "what people make is theirs to give")
        self.good("log", "export", "--log", "tuner.db", "-o", "all.jsonl")
        self.good("log", "import", "all.jsonl", "--log", "copy.db")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("copy.db")).st_mode), 0o600)

    def start_fleet(self):
        identity = lambda name: ["--identity", self.path("pki/issued/" + name)]
        tracker = cli_case.Daemon(self, "tracker", *identity("lab"), "--tokens", self.path("tracker-tokens"))
        tuner = cli_case.Daemon(self, "tuner", "--tracker", tracker.address, *identity("main"), "--tokens", self.path("tuner-tokens"))
        agent = cli_case.Daemon(self, "agent", "--tracker", tracker.address, "--name", "bench", "--device", "cpu", *identity("bench"))
        self.server = ["--server", tuner.address, *identity("ana")]
        return agent, tuner, tracker

    def make_token(self, name):
        """Returns its id."""
        made = self.good("tokens", "create", "ci", name, "--file", "tuner-tokens", "--identity", name, "-o", "json")
        return json.loads(made)["id"]

    def test_daemons_certificates_and_tokens(self):
        self.good("certs", "init", "pki")
        for kind, name in (("tracker", "lab"), ("tuner", "main"), ("agent", "bench"), ("client", "ana")):
            self.good("certs", "issue", "pki", kind, name)
        for file, role, name in (("tracker-tokens", "tuner", "main"), ("tracker-tokens", "agent", "bench"),
                                 ("tuner-tokens", "engineer", "ana")):
            self.good("tokens", "create", role, name, "--file", file, "--identity", "pki/issued/" + name)
        daemons = self.start_fleet()
        self.tune(*self.server)
        self.good("tokens", "revoke", self.make_token("build"), "--file", "tuner-tokens")
        for folder, at_least in (("tracker", 6), ("tuner", 10), ("agent", 5), ("pki", 15), ("build", 2)):
            self.check_private(folder, at_least)
        for name in ("tracker-tokens", "tuner-tokens", "tracker-tokens.lock", "tuner-tokens.lock"):
            self.assertEqual(stat.S_IMODE(os.stat(self.path(name)).st_mode), 0o600, name)
        for daemon in daemons:
            daemon.stop()
        self.check_older_state()

    def check_older_state(self):
        """As the versions before this one left it, under umask 022."""
        for name in ("tracker", "tuner", "agent"):
            os.chmod(self.path(name), 0o755)
            os.chmod(self.path(name, "lock"), 0o644)
        os.chmod(self.path("tuner-tokens.lock"), 0o644)
        self.start_fleet()
        late = self.make_token("late")
        for name in ("tracker", "tuner", "agent"):
            self.check_private(name, at_least=5)
            self.assertIn('"daemon.state_dir.closed"', Path(self.path(name + ".log")).read_text())
        self.check_strangers_cannot_lock("tuner/lock", "tuner/tuner.db", "tuner-tokens.lock", "tracker/lock", "agent/lock")
        self.good("tokens", "revoke", late, "--file", "tuner-tokens")

    def check_strangers_cannot_lock(self, *names):
        if os.geteuid() != 0:
            self.skipTest("needs root to try as another user")
        os.chmod(self.folder, 0o755)
        for name in names:
            tried = subprocess.run([sys.executable, "-c", TRIES_TO_LOCK, self.path(name)], user=NOBODY, group=NOBODY, extra_groups=[],
                                   capture_output=True, text=True)
            self.assertIn("PermissionError", tried.stderr, name)


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
