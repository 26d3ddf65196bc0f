#!/usr/bin/env python3
"""Modules for CI against daemons: the example of deploy/ops/ci, aliases, signatures, resuming, retention.

    modules_ci.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Measures: a device is used in it, and no time is judged.

import glob
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402
from cli_case import MISMATCH, NOT_FOUND, OK, USAGE  # noqa: E402

UNCHANGED = 6
CI = os.path.join(cli_case.ROOT, "deploy", "ops", "ci")


class ModulesForCi(cli_case.Fleet):
    """One fleet for all checks: versions are made by short jobs."""

    INNER = 64

    def tuner_flags(self):
        self.good("modules", "keygen", "release.key")
        return ["--module-key", self.path("release.key")]

    def publish(self, seed):
        # The same weights and schedules would be the same module, of which no second version is made.
        onnx.save(cli_case.dense_model(rows=4, inner=self.INNER, columns=96, seed=seed), self.path("m.onnx"))
        self.good("tune", "m.onnx", "--target", "native,threads=1", "--trials", "4", "--seed", str(seed),
                  *self.server, "-o", "tuned.tw")
        return json.loads(self.good("modules", "list", *self.server, "-o", "json"))[0]

    def digest(self, name):
        with open(self.path(name), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def fetch(self, *more, code=OK):
        done = self.call("modules", "fetch", *more, "--format", "json", *self.server)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout) if code in (OK, UNCHANGED) else done.stderr

    def run_workflow(self, module):
        """Every step of module.yml as a runner would; its outputs."""
        import yaml
        with open(os.path.join(CI, "module.yml")) as f:
            job = yaml.safe_load(f)["jobs"]["module"]
        env = cli_case.environment(self.path("state"), {
            "MODULE": module, "TILEWRIGHT_SERVER": self.tuner.address, "GITHUB_OUTPUT": self.path("out"),
            "TILEWRIGHT_MODULE_KEY": self.path(job["env"]["TILEWRIGHT_MODULE_KEY"]),
            "PATH": os.path.join(cli_case.BUILD, "bin") + ":" + os.environ["PATH"]})
        open(self.path("out"), "w").close()
        outputs = {}
        for step in job["steps"]:
            condition = step.get("if")
            if condition and outputs.get("changed") != "true":
                self.assertEqual(condition, "steps.module.outputs.changed == 'true'")
                continue
            done = subprocess.run(["bash", "-ec", step["run"]], cwd=self.folder, env=env, capture_output=True,
                                  text=True, timeout=300)
            self.assertEqual(done.returncode, 0, "%s\n%s\n%s" % (step, done.stdout, done.stderr))
            with open(self.path("out")) as f:
                outputs = dict(line.strip().split("=") for line in f)
        return outputs

    def test_modules_for_ci(self):
        first = self.publish(1)
        module = first["name"].split("/")[3]
        os.symlink(os.path.join(cli_case.ROOT, "deploy"), self.path("deploy"))
        self.good("modules", "alias", "set", module + "/1", "stable", *self.server)
        self.check_the_workflow(module)
        self.check_questions(module, first)
        self.check_times(module, first)
        self.check_if_newer_and_resume(module)
        self.check_signatures(module)
        self.check_revocation(module)
        self.check_retention(module)

    def check_revocation(self, module):
        """What is taken back is refused with the reason, also where the file is there already."""
        keys = {key["name"]: key for key in json.loads(self.good("modules", "keys", "list", *self.server, "-o", "json"))}
        self.assertEqual(set(keys), {"this server (--module-key)", "others"})
        for key, name in (("other.key", "others"), ("release.key", "this server (--module-key)")):
            self.fetch(module + "/1", "-o", "r.tw", "--key", key + ".pub")
            if key == "other.key":
                self.good("modules", "revoke", module + "/1", "--key", "other.key.pub", "--reason", "wrong on batch 8", *self.server)
            else:
                self.good("modules", "keys", "revoke", keys[name]["key_id"], "--reason", "wrong on batch 8", *self.server)
            error = self.fetch(module + "/1", "-o", "r.tw", "--if-newer", "--key", key + ".pub", code=MISMATCH)
            self.assertIn("signing.signature.revoked", error)
            self.assertIn("wrong on batch 8", error)
            shown = json.loads(self.good("modules", "show", module + "/1", *self.server, "-o", "json"))
            self.assertNotIn(keys[name]["key_id"], [one["key_id"] for one in shown["signatures"]])
            self.assertIn(keys[name]["key_id"], [one["key_id"] for one in shown["revoked_signatures"]])
        done = self.call("modules", "release", module + "/1", "--key", "other.key", *self.server)
        self.assertIn("module.signature.revoked", done.stderr)
        done = self.call("modules", "release", module + "/1", *self.server)
        self.assertIn("module.key.revoked", done.stderr)
        done = self.call("modules", "keys", "add", "release.key.pub", *self.server)
        self.assertIn("log.release_key.revoked", done.stderr)

    def check_the_workflow(self, module):
        """Published is not released: the pipeline takes nothing before somebody signs it."""
        listed = json.loads(self.good("modules", "show", module + "/1", *self.server, "-o", "json"))
        self.assertEqual(listed["signatures"], [])
        error = self.fetch(module + "@stable", "-o", "x.tw", "--key", "release.key.pub", code=MISMATCH)
        self.assertIn("signing.signature.missing", error)
        self.good("modules", "release", module + "/1", "--digest", "sha256:" + listed["files"][0]["sha256"],
                  *self.server)
        self.assertEqual(self.run_workflow(module), {"changed": "true"})
        self.assertEqual(self.run_workflow(module), {"changed": "false"})
        self.assertTrue(os.path.exists(self.path("model.tw.sig")))

    def check_questions(self, module, first):
        ask = ["modules", "resolve", *self.server, "-o", "json"]
        found = json.loads(self.good(*ask, "--model", "m.onnx", "--target", "native,threads=1"))
        self.assertEqual((found["name"], found["match"]), (first["name"], "exact"))
        found = json.loads(self.good(*ask, "--model", self.digest("m.onnx"), "--target", "native,threads=2"))
        self.assertEqual(found["match"], "compatible")
        self.assertEqual(json.loads(self.good(*ask, module, "--device-class", found["device_class"]))["number"], 1)
        for wrong in (["--model", "m.onnx", "--target", "native,threads=2", "--exact"], [module + "@nope"],
                      [module, "--device-class", "board"], ["--model", "0" * 64]):
            self.assertEqual(self.call(*ask, *wrong).returncode, NOT_FOUND, wrong)
        self.assertEqual(self.call(*ask).returncode, USAGE)
        shown = json.loads(self.good("modules", "show", module + "@stable", *self.server, "-o", "json"))
        self.assertEqual(shown["aliases"], ["stable"])
        self.assertTrue(shown["created_by"] and shown["toolchain"] and shown["device_class"], shown)
        ids = {json.loads(line)["measurement_id"]
               for line in self.good("log", "export", *self.server).splitlines()}
        self.assertTrue(shown["records"])
        self.assertTrue({r["measurement_id"] for r in shown["records"]} <= ids)
        self.assertTrue(all(r["device"] and r["median_us"] > 0 for r in shown["records"]), shown)

    def check_times(self, module, first):
        enough, too_short = "%gus" % (first["median_us"] * 1.01), "%gus" % (first["median_us"] / 2)
        self.fetch(module, "-o", "t.tw", "--max-latency", enough, "--not-slower-than", "1")
        error = self.fetch(module, "-o", "t.tw", "--max-latency", too_short, code=NOT_FOUND)
        self.assertIn("module.not_found.too_slow", error)
        self.assertIn(module + "/1, takes", error)
        self.fetch(module, "-o", "t.tw", "--max-latency", "fast", code=USAGE)
        self.fetch(module, "-o", "t.tw", "--not-slower-than", "x", code=USAGE)

    def check_if_newer_and_resume(self, module):
        got = self.fetch(module + "@stable", "-o", "a.tw", "--if-newer")
        self.assertTrue(got["changed"])
        self.assertEqual((got["sha256"], got["moved_bytes"]), (self.digest("a.tw"), os.path.getsize(self.path("a.tw"))))
        before = os.stat(self.path("a.tw"))
        again = self.fetch(module + "@stable", "-o", "a.tw", "--if-newer")
        self.assertEqual((again["changed"], again["moved_bytes"]), (False, 0))
        self.assertEqual(self.fetch(module + "@stable", "-o", "a.tw", "--if-newer", "--exit-code",
                                    code=UNCHANGED)["changed"], False)
        self.assertEqual(os.stat(self.path("a.tw")).st_mtime_ns, before.st_mtime_ns)
        with open(self.path("a.tw"), "rb") as f:
            half = f.read()[:before.st_size // 2]
        with open(self.path("b.tw." + got["sha256"][:16] + ".part"), "wb") as f:
            f.write(half)
        resumed = self.fetch(module + "@stable", "-o", "b.tw")
        self.assertEqual(resumed["moved_bytes"], before.st_size - len(half))
        self.assertEqual(self.digest("b.tw"), got["sha256"])
        self.assertEqual(glob.glob(self.path("*.part")), [])

    def check_signatures(self, module):
        self.good("modules", "keygen", "other.key")
        error = self.fetch(module + "/1", "-o", "c.tw", "--key", "other.key.pub", code=MISMATCH)
        self.assertIn("signing.signature.other_key", error)
        self.assertEqual(glob.glob(self.path("c.tw*")), [], "none of it was moved")
        for wrong in (["--file", "m.onnx"], ["--digest", "sha256:" + "0" * 64]):
            done = self.call("modules", "release", module + "/1", "--key", "other.key", *wrong, *self.server)
            self.assertNotEqual(done.returncode, OK, wrong)
        release = ["modules", "release", module + "/1", "--key", "other.key", "--file", "a.tw", "--signature", "other.sig"]
        done = self.call(*release, *self.server)
        self.assertNotEqual(done.returncode, OK)
        self.assertIn("module.key.unregistered", done.stderr)
        self.assertIn("modules keys add", done.stderr)
        self.good("modules", "keys", "add", "other.key.pub", "--name", "others", *self.server)
        self.good(*release, *self.server)
        self.fetch(module + "/1", "-o", "c.tw", "--key", "other.key.pub", "--target", "native,threads=1")
        self.good("modules", "verify", "c.tw", "--key", "other.key.pub", "--module", module + "/1",
                  "--target", "native,threads=1")
        self.check_with_openssl("c.tw", "other.key.pub")
        for wrong in (["--module", module + "/2"], ["--module", "other"],
                      ["--target", "cpu,arch=aarch64,cpu=cortex-a76,threads=1"]):
            done = self.call("modules", "verify", "c.tw", "--key", "other.key.pub", *wrong)
            self.assertEqual(done.returncode, MISMATCH, wrong)
            self.assertIn("signing.signature.other_version", done.stderr)
        self.assertEqual(self.call("modules", "verify", "c.tw", "--key", "release.key.pub").returncode, MISMATCH)
        self.check_the_old_format(module)
        other = self.publish(2)  # other bytes under the first one's signature
        self.fetch(module + "/%d" % other["number"], "-o", "d.tw")
        os.replace(self.path("c.tw.sig"), self.path("d.tw.sig"))
        self.assertNotEqual(self.digest("d.tw"), self.digest("c.tw"), "other weights")
        self.assertEqual(self.call("modules", "verify", "d.tw", "--key", "other.key.pub").returncode, MISMATCH)
        self.assertEqual(self.call("modules", "sign", "d.tw", "--key", "other.key", "--attach-to", module + "/1",
                                   *self.server).returncode, MISMATCH)
        error = self.fetch(module + "/2", "-o", "e.tw", "--digest", self.digest("c.tw"), code=MISMATCH)
        self.assertIn("module.digest.other", error)
        self.fetch(module + "/2", "-o", "e.tw", "--digest", "sha256:" + self.digest("d.tw"))
        with open(self.path("c.tw"), "r+b") as f:
            f.seek(-1, os.SEEK_END)
            last = f.read(1)
            f.seek(-1, os.SEEK_END)
            f.write(bytes([last[0] ^ 1]))
        self.assertNotEqual(self.call("modules", "verify", "c.tw", "--key", "other.key.pub").returncode, OK)

    def check_with_openssl(self, module, key):
        """Nothing of ours is needed to check a release. (deploy/docs/ci_author.md has it for the gRPC client.)"""
        with open(self.path(module + ".sig")) as f:
            fields = json.load(f)
        self.assertEqual((fields["schema"], fields["sha256"]), (2, self.digest(module)))
        with open(self.path("raw.sig"), "wb") as f:
            f.write(bytes.fromhex(fields["signature"]))
        for wrong in (0, 1):
            with open(self.path("statement"), "w") as f:
                f.write("tilewright module signature v2\nmodule %s\nversion %d\ntarget %s\nsha256 %s\n"
                        % (fields["module"], fields["version"] + wrong, fields["target"], fields["sha256"]))
            done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", self.path(key), "-rawin", "-in",
                                   self.path("statement"), "-sigfile", self.path("raw.sig")], capture_output=True)
            self.assertEqual(done.returncode, wrong, done.stdout + done.stderr)

    def check_the_old_format(self, module):
        """A signature of the bytes alone is what it is: it passes only where nobody asks for more."""
        self.good("modules", "keygen", "bytes.key")
        self.good("modules", "sign", "a.tw", "--key", "bytes.key", "--signature", "bytes.sig")
        verify = ["modules", "verify", "a.tw", "--key", "bytes.key.pub", "--signature", "bytes.sig"]
        self.assertIn("no name", self.good(*verify))
        done = self.call(*verify, "--module", module)
        self.assertEqual(done.returncode, MISMATCH)
        self.assertIn("signing.signature.bytes_only", done.stderr)

    def check_retention(self, module):
        self.publish(3)
        would = json.loads(self.good("modules", "prune", "--keep", "1", "--dry-run", *self.server, "-o", "json"))
        self.assertEqual([name.split("/")[-1] for name in would["pruned"]], ["2"])
        self.fetch(module + "/2", "-o", "e.tw")
        done = json.loads(self.good("modules", "prune", "--keep", "1", *self.server, "-o", "json"))
        self.assertEqual(done["pruned"], would["pruned"])
        self.assertIn("pruned", self.fetch(module + "/2", "-o", "f.tw", code=NOT_FOUND))
        self.assertIn("its bytes are gone", self.good("modules", "get", module + "/2", *self.server))
        self.fetch(module + "@stable", "-o", "f.tw")
        self.good("modules", "alias", "remove", module, "stable", *self.server)
        self.assertEqual(self.call("modules", "show", module + "@stable", *self.server).returncode, NOT_FOUND)


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
