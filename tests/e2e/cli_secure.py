#!/usr/bin/env python3
"""A fleet with TLS, tokens and roles, set up and used with the command line alone, as
deploy/docs/operator.md says: certificates, tokens, three daemons, a tuning job, a CI pipeline, refusals
with their exit codes and reasons, renewal, revocation, the audit logs.

    cli_secure.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Measures: a device is used in it, and no time is judged.

import contextlib
import json
import os
import socketserver
import sys
import threading
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402
from cli_case import FAILED, NOT_FOUND, OK, UNAVAILABLE  # noqa: E402

TRIALS = 8
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # the first frame of any HTTP/2 server


@contextlib.contextmanager
def plain_text_server():
    """The address of a server that answers everybody as gRPC without TLS does."""
    class Answer(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.sendall(SETTINGS)
            self.request.recv(4096)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "127.0.0.1:%d" % server.server_address[1]
        server.shutdown()


class Secure(cli_case.Case):
    def setUp(self):
        super().setUp()
        onnx.save(cli_case.dense_model(rows=4, inner=256, columns=96), self.path("m.onnx"))
        self.good("certs", "init", "pki")
        for kind, name in (("tracker", "lab"), ("tuner", "main"), ("agent", "bench"), ("client", "ana"),
                           ("client", "ci")):
            self.good("certs", "issue", "pki", kind, name)
        self.token("tracker-tokens", "tuner", "main", "main")
        self.token("tracker-tokens", "agent", "bench", "bench")
        self.ana = self.token("tuner-tokens", "engineer", "ana", "ana")
        self.token("tuner-tokens", "ci", "nightly", "ci")
        self.tracker = cli_case.Daemon(self, "tracker", *self.identity("lab"), "--tokens", self.path("tracker-tokens"))
        self.tuner = cli_case.Daemon(self, "tuner", "--tracker", self.tracker.address, *self.identity("main"),
                                     "--tokens", self.path("tuner-tokens"))
        self.agent = cli_case.Daemon(self, "agent", "--tracker", self.tracker.address, "--name", "bench",
                                     "--device", "cpu", *self.identity("bench"))
        self.server = ["--server", self.tuner.address]
        self.wait_for("a device", self.devices)

    def token(self, file, role, name, identity):
        return json.loads(self.good("tokens", "create", role, name, "--file", file, "--identity",
                                    f"pki/issued/{identity}", "-o", "json"))

    def identity(self, name):
        return ["--identity", self.path(f"pki/issued/{name}")]

    def as_(self, name):
        return [*self.server, *self.identity(name)]

    def devices(self):
        done = self.call("devices", "list", *self.as_("ana"), "-o", "json")
        return json.loads(done.stdout) if done.returncode == OK else []

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def refused(self, code, reason, *args, env=None):
        done = self.call(*args, env=env)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(reason, done.stderr)
        self.assertIn("\n  do:  ", done.stderr)

    def audit(self, daemon):
        with open(self.path(f"{daemon}/audit.jsonl")) as file:
            return [json.loads(line) for line in file]

    def test_a_secure_fleet_from_first_certificate_to_revocation(self):
        # An engineer tunes, a pipeline fetches.
        out = json.loads(self.good("tune", "m.onnx", "--target", "native,threads=1", "--trials", str(TRIALS),
                                   "--name", "first", "--format", "json", "-o", "m.tw", *self.as_("ana")))
        self.assertEqual((out["state"], out["progress"]["measured"]), ("SUCCEEDED", TRIALS))
        module = json.loads(self.good("modules", "list", *self.as_("ci"), "-o", "json"))[0]["name"].split("/")[3]
        self.good("modules", "fetch", module, "-o", "ci.tw", *self.as_("ci"))
        with open(self.path("m.tw"), "rb") as tuned, open(self.path("ci.tw"), "rb") as fetched:
            self.assertEqual(tuned.read(), fetched.read())
        self.assertEqual(len(self.measured_trials("first", *self.as_("ana"))), TRIALS)

        again = self.good("jobs", "submit", "m.onnx", "--target", "native,threads=1", "--trials", "1", "--name", "second",
                          *self.as_("ana")).splitlines()[-1]
        self.assertIn("--identity", again)
        self.good(*again[again.index("tilewright ") + len("tilewright "):].split())

        # Nobody else, and nobody more than that.
        self.refused(FAILED, "auth.role.denied", "jobs", "list", *self.as_("ci"))
        self.refused(FAILED, "auth.role.denied", "devices", "drain", "bench-cpu", *self.as_("ana"))
        self.refused(FAILED, "auth.admin.required", "jobs", "submit", "m.onnx", "--target", "native,threads=1",
                     "--priority", "1", *self.as_("ana"))
        # Without an identity, with one of another fleet, with one that only calls itself one of this fleet.
        self.refused(UNAVAILABLE, "rpc.tls.wanted", "jobs", "list", *self.server)
        self.good("certs", "init", "other")
        self.good("certs", "issue", "other", "client", "eve")
        eve = [*self.server, "--identity", self.path("other/issued/eve")]
        self.refused(UNAVAILABLE, "rpc.tls:", "jobs", "list", *eve)
        with plain_text_server() as address:
            self.refused(UNAVAILABLE, "rpc.tls.plain", "jobs", "list", "--server", address, *self.identity("ana"))
        with open(self.path("other/issued/eve/ca.pem"), "a") as file:
            file.write(self.read("pki/issued/ana/ca.pem"))
        self.refused(UNAVAILABLE, "rpc.tls.identity", "modules", "list", *eve)
        self.refused(UNAVAILABLE, "rpc.tls.identity", "tune", "m.onnx", "--target", "native", "--trials", "1",
                     "-o", "no.tw", *eve)
        # Releasing is for people; a pipeline looks and fetches.
        self.refused(FAILED, "auth.role.denied", "modules", "release", module + "/1", *self.as_("ci"))
        self.refused(FAILED, "module.release.no_key", "modules", "release", module + "/1", *self.as_("ana"))
        self.refused(FAILED, "auth.certificate.mismatch", "jobs", "list", *self.server, *self.identity("bench"),
                     env={"TILEWRIGHT_TOKEN": self.read("pki/issued/ana/token").strip()})
        self.refused(FAILED, "auth.token.malformed", "jobs", "list", *self.as_("ana"), env={"TILEWRIGHT_TOKEN": "twt_x"})
        self.refused(NOT_FOUND, "identity.file.missing", "jobs", "list", *self.server, "--identity", "nobody")

        # By environment, as in CI; with a renewed certificate; with a rotated token.
        env = {"TILEWRIGHT_SERVER": self.tuner.address, "TILEWRIGHT_IDENTITY": self.path("pki/issued/ci"),
               "TILEWRIGHT_TOKEN": self.read("pki/issued/ci/token").strip()}
        self.assertEqual(self.call("modules", "list", env=env).returncode, OK)
        self.good("certs", "renew", "pki", "pki/issued/ana", "--days", "3")
        self.good("jobs", "list", *self.as_("ana"))
        old = self.read("pki/issued/ana/token").strip()
        self.good("tokens", "rotate", self.ana["id"], "--file", "tuner-tokens", "--identity", "pki/issued/ana")
        self.assertNotEqual(self.read("pki/issued/ana/token").strip(), old)
        self.wait_for("the rotated token", lambda: self.call("jobs", "list", *self.as_("ana")).returncode == OK)
        self.good("tokens", "revoke", self.ana["id"], "--file", "tuner-tokens")
        env = {"TILEWRIGHT_TOKEN": old}
        self.wait_for("the revocation",
                      lambda: "auth.token.revoked" in self.call("jobs", "list", *self.as_("ana"), env=env).stderr)
        self.refused(FAILED, "auth.token.revoked", "jobs", "list", *self.as_("ana"), env=env)

        # What happened is written down, and the writing is whole.
        self.good("devices", "hold", "bench-cpu", "--holder", "ana", *self.as_("ana"))
        for daemon in ("tuner", "tracker"):
            self.assertIn("none changed or missing", self.good("audit", "verify", f"{daemon}/audit.jsonl"))
        lines = self.audit("tuner")
        created = [line for line in lines if line.get("method", "").endswith("/CreateJob")]
        self.assertEqual([(line["who"], line["outcome"], line["what"]) for line in created][:2],
                         [("engineer/ana", "OK", "first"), ("engineer/ana", "OK", "second")])
        self.assertEqual((created[2]["outcome"], created[2]["detail"]), ("PERMISSION_DENIED", "auth.admin.required"))
        self.assertIn("auth.token.revoked", {line.get("detail", "").split(":")[0] for line in lines})
        self.assertIn(("ci/nightly", "PERMISSION_DENIED"), {(line["who"], line["outcome"]) for line in lines})
        hold = [line for line in self.audit("tracker") if line.get("method", "").endswith("/CreateHold")]
        self.assertEqual([(line["who"], line["on_behalf_of"]) for line in hold], [("tuner/main", "engineer/ana")])
        job = json.loads(self.good("jobs", "get", "first", *self.as_("ana"), "-o", "json"))
        self.assertEqual(job["state"], "SUCCEEDED")
        secret = old.split("_")[2]
        for daemon in (self.tracker, self.tuner, self.agent):
            self.assertNotIn(secret, daemon.log())
        for root, _, names in os.walk(self.folder):
            for name in names:
                if "pki" in root or name.endswith((".tw", ".db", ".db-wal", ".db-shm")):
                    continue
                with open(os.path.join(root, name), "rb") as file:
                    self.assertNotIn(secret.encode(), file.read(), os.path.join(root, name))


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
