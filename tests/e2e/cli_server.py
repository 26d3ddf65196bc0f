#!/usr/bin/env python3
"""The command line against a tracker, a tuner and an agent that are daemons of their own.

    cli_server.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Measures: a device is used in it, and no time is judged.

import hashlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy
import onnx
import onnx.numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402
from cli_case import FAILED, NOT_FOUND, OK, USAGE  # noqa: E402

TRIALS = 16


class Server(cli_case.Fleet):
    def tune(self, trials, *more):
        return ["tune", "m.onnx", "--target", "native,threads=1", "--trials", str(trials),
                *self.server, *more]

    def job(self, name):
        return json.loads(self.good("jobs", "get", name, *self.server, "-o", "json"))

    def measured(self, name):
        return self.job(name)["progress"]["measured"]

    def digest(self, name):
        with open(self.path(name), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def test_a_job_and_all_that_can_be_asked_about_it(self):
        out = json.loads(self.good(*self.tune(TRIALS, "-o", "m.tw", "--name", "first", "--format",
                                              "json")))
        self.assertEqual((out["state"], out["progress"]["measured"]), ("SUCCEEDED", TRIALS))
        self.assertEqual(out["sha256"], self.digest("m.tw"))
        self.good("run", "m.tw", "--repeat", "2")

        jobs = json.loads(self.good("jobs", "list", *self.server, "-o", "json"))
        self.assertEqual([job["name"] for job in jobs], ["projects/default/jobs/first"])
        self.assertIn("first", self.good("jobs", "list", *self.server))
        self.assertEqual(len(self.job("first")["tasks"]), 1)
        self.assertIn("end to end", self.good("jobs", "watch", "first", *self.server))

        # modules: list, get, fetch, fetch only what is new
        modules = json.loads(self.good("modules", "list", *self.server, "-o", "json"))
        self.assertEqual(len(modules), 1)
        name = modules[0]["name"].split("/")[3]
        shown = json.loads(self.good("modules", "get", name + "/1", *self.server, "-o", "json"))
        self.assertEqual(shown["files"][0]["sha256"], out["sha256"])
        ends = [(end["name"], end["dtype"], end["dims"]) for end in shown["inputs"] + shown["outputs"]]
        self.assertEqual(ends, [("x", "float32", [4, 256]), ("y", "float32", [4, 96])])
        self.assertEqual(shown["size_vars"], [])
        self.assertIn("inputs    x float32 4x256", self.good("modules", "get", name + "/1", *self.server))
        self.good("modules", "fetch", name, "-o", "fetched.tw", *self.server)
        self.assertEqual(self.digest("fetched.tw"), out["sha256"])
        before = os.stat(self.path("fetched.tw")).st_ino
        self.good("modules", "fetch", name, "-o", "fetched.tw", "--if-newer", *self.server)
        self.assertEqual(os.stat(self.path("fetched.tw")).st_ino, before)

        # log: the server's export and its file say the same
        exported = self.good("log", "export", "first", *self.server).splitlines()
        from_file = self.good("log", "export", "--log", "tuner/tuner.db").splitlines()
        self.assertEqual(exported, from_file)
        best = self.good("log", "best", *self.server, "-o", "json")
        self.assertEqual(best, self.good("log", "best", "--log", "tuner/tuner.db", "-o", "json"))
        task = json.loads(exported[0])["task"]
        shown = self.good("log", "show", task, "--ir", *self.server)
        self.assertEqual(shown, self.good("log", "show", task, "--ir", "--log", "tuner/tuner.db"))
        stats = json.loads(self.good("log", "stats", *self.server, "-o", "json"))
        self.assertEqual(stats[0]["trials_ended"], TRIALS)

        for args, code in ((["jobs", "get", "nosuch"], NOT_FOUND),
                           (["jobs", "watch", "nosuch"], NOT_FOUND),
                           (["jobs", "cancel", "nosuch"], NOT_FOUND),
                           (["modules", "get", "nosuch"], NOT_FOUND),
                           (["modules", "get", name + "/99"], NOT_FOUND),
                           (["modules", "fetch", "nosuch", "-o", "x.tw"], NOT_FOUND),
                           (["modules", "get", "a/b/c/d"], USAGE),
                           (["devices", "get", "nosuch"], NOT_FOUND),
                           (["log", "show", "nosuch"], NOT_FOUND),
                           (["log", "export", "nosuch"], NOT_FOUND),
                           (["log", "stats", "nosuch"], NOT_FOUND),
                           (["log", "best", "nosuch"], NOT_FOUND)):
            done = self.call(*args, *self.server)
            self.assertEqual(done.returncode, code, "%s\n%s" % (args, done.stderr))
        self.assertFalse(os.path.exists(self.path("x.tw")))

    def test_a_log_is_taken_over_by_a_running_server(self):
        self.good(*self.tune(6, "-o", "m.tw", "--name", "first"))
        self.good("log", "export", "first", *self.server, "-o", "first.jsonl")
        count = len(self.records("first", *self.server))  # of six trials; a noisy one has several
        report = json.loads(self.good("log", "import", "first.jsonl", *self.server, "-o", "json"))[0]
        self.assertEqual((report["new_records"], report["known"], report["conflicts"]), (0, count, 0))
        with open(self.path("first.jsonl"), encoding="utf-8") as f:
            lines = f.read().replace("first", "elsewhere")
        with open(self.path("other.jsonl"), "w", encoding="utf-8") as f:
            f.write(lines)
        report = json.loads(self.good("log", "import", "other.jsonl", *self.server, "-o", "json"))[0]
        self.assertEqual(report["new_records"], count)
        self.assertIn("elsewhere", self.good("log", "export", "elsewhere", *self.server))
        done = self.call("log", "import", "other.jsonl", *self.server, "--sha256", "00")
        self.assertEqual(done.returncode, cli_case.MISMATCH, done.stderr)
        done = self.call("log", "import", "other.jsonl", *self.server, "--log", "x.db")
        self.assertEqual(done.returncode, USAGE, done.stderr)

    def test_weights_stay_at_home_with_records_only(self):
        """Nothing of the weights is on the server; the module made here computes with them."""
        model = onnx.load(self.path("m.onnx"))
        weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
        onnx.save(model, self.path("m.onnx"), save_as_external_data=True, location="m.onnx.data", size_threshold=0)
        self.good(*self.tune(6, "-o", "m.tw", "--name", "private", "--records-only"))
        x = numpy.random.default_rng(5).standard_normal((4, 256)).astype(numpy.float32)
        for name, value in (("x", x), ("y", x @ weight)):
            with open(self.path(name + ".pb"), "wb") as f:
                f.write(onnx.numpy_helper.from_array(value, name).SerializeToString())
        self.good("run", "m.tw", "--input", "x=x.pb", "--expect", "y=y.pb", "--rtol", "1e-3", "--atol", "1e-3")
        with open(self.path("m.tw"), "rb") as f:
            self.assertTrue(self.holds(f.read(), weight), "the module made here has them")
        uploaded = 0
        for folder, _, files in os.walk(self.path("tuner")):
            for name in files:
                with open(os.path.join(folder, name), "rb") as f:
                    self.assertFalse(self.holds(f.read(), weight), name + " holds a part of the weights")
                uploaded += 1
        self.assertGreater(uploaded, 3)
        modules = json.loads(self.good("modules", "list", *self.server, "-o", "json"))
        self.assertEqual(modules, [], "a module with made-up weights was published")
        job = json.loads(self.good("jobs", "get", "private", *self.server, "-o", "json"))
        self.assertEqual((job["state"], job["published_module"]), ("SUCCEEDED", ""))
        self.assertEqual(len(self.measured_trials("private", *self.server)), 6)

    @staticmethod
    def holds(data, weight):
        """Whether four neighbouring values stand in the bytes anywhere (every eighth place is looked for)."""
        values = numpy.ascontiguousarray(weight).tobytes()
        return any(values[i:i + 16] in data for i in range(0, len(values) - 15, 128))

    def test_report_is_one_page_that_needs_nothing_else(self):
        self.good(*self.tune(TRIALS, "-o", "m.tw", "--name", "shown"))
        self.good("report", *self.server, "-o", "server.html", "--peak-gbs", "40")
        self.good("report", "--log", "tuner/tuner.db", "-o", "file.html")
        # The default schedule has no point where its measurements were too noisy.
        defaults = [r for r in self.records("shown", *self.server) if r["accepted"] and r["valid"] and r["is_default"]]
        points = 1 + len(defaults)
        for name in ("server.html", "file.html"):
            with open(self.path(name), encoding="utf-8") as f:
                html = f.read()
            for outside in ("http:", "https:", "<script", "src=", "url("):
                self.assertNotIn(outside, html)
            self.assertEqual(html.count("<h2>"), 1)
            charts = re.findall(r"<svg.*?</svg>", html, re.S)
            self.assertGreaterEqual(len(charts), 5, "curve, layers, roofline, devices, kinds of work")
            width = float(re.search(r'viewBox="0 0 (\d+)', charts[0]).group(1))
            for chart in charts:
                drawn = ElementTree.fromstring(chart)
                for circle in drawn.iter("circle"):
                    self.assertTrue(0 <= float(circle.get("cx")) <= width, circle.attrib)
            roofline = re.search(r"<h3>Roofline</h3>.*?(<svg.*?</svg>)", html, re.S).group(1)
            self.assertEqual(len(ElementTree.fromstring(roofline).findall("circle")), points, "one task, by default and tuned")
            self.assertIn("dense", html)
            self.assertEqual("roof of float32" in html, name == "server.html", "a log does not know its devices' peaks")
        self.assertEqual(self.call("report", "nosuch", *self.server, "-o", "x.html").returncode, NOT_FOUND)
        self.assertFalse(os.path.exists(self.path("x.html")))

    def test_devices_tell_why_they_get_no_work(self):
        device = self.devices()[0]["name"].split("/")[1]
        self.assertIn("online", self.good("devices", "get", device, *self.server))
        self.good("devices", "drain", device, "--reason", "new kernel", *self.server)
        row = self.devices()[0]
        self.assertEqual((row["admin_state"], row["admin_reason"]), ("draining", "new kernel"))
        self.assertTrue(row["conditions"])
        self.assertIn("drain", self.good("devices", "list", *self.server))
        self.good("devices", "undrain", device, *self.server)
        self.assertEqual(self.devices()[0]["admin_state"], "enabled")
        held = self.good("devices", "hold", device, "--holder", "ana", "--purpose", "test", "--minutes",
                         "5", *self.server)
        self.assertEqual(self.devices()[0]["admin_state"], "held")
        hold = held.split()[-1]
        self.good("devices", "hold", hold, "--release", *self.server)
        self.assertEqual(self.devices()[0]["admin_state"], "enabled")

    def test_interrupt_leaves_the_job_running(self):
        child = self.start(*self.tune(100000, "-o", "m.tw", "--name", "long"))
        self.wait_for("a measurement", lambda: " trials  best " in self.err())
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(cli_case.PATIENCE), FAILED, self.err())
        self.assertIn("tilewright jobs watch long", self.err())
        self.assertFalse(os.path.exists(self.path("m.tw")))
        self.assertEqual(self.job("long")["state"], "RUNNING")
        before = self.measured("long")
        self.wait_for("more measurements", lambda: self.measured("long") > before)
        self.good("jobs", "cancel", "long", *self.server)
        self.wait_for("the end", lambda: self.job("long")["state"] == "CANCELLED")
        done = self.call("jobs", "watch", "long", *self.server)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("job.cancelled", done.stderr)

    def test_detach_then_watch(self):
        self.good(*self.tune(TRIALS, "--detach", "--name", "apart"))
        self.assertIn("SUCCEEDED".lower(), self.good("jobs", "watch", "apart", *self.server).lower())
        self.assertEqual(self.measured("apart"), TRIALS)
        # The same name again is refused, whatever it asks for.
        self.assertEqual(self.call(*self.tune(3, "--detach", "--name", "apart")).returncode, FAILED)

    def test_tune_waits_through_restarts(self):
        trials = 150  # more than are made before the last daemon is killed, also where 75 a second are
        child = self.start(*self.tune(trials, "-o", "m.tw", "--name", "hard"))
        self.wait_for("a measurement", lambda: " trials  best " in self.err())
        for daemon in (self.tuner, self.tracker, self.agent):
            daemon.kill()
            daemon.start()
        self.assertEqual(child.wait(2 * cli_case.PATIENCE), OK, self.err())
        self.assertEqual(self.measured("hard"), trials)
        self.assertEqual(len(self.measured_trials("hard", *self.server)), trials)
        self.good("run", "m.tw", "--repeat", "2")


class SoonOffline(cli_case.Fleet):
    def tracker_flags(self):
        return ["--offline-after-ms", "8000"]

    def test_a_device_is_forgotten_when_its_agent_is_gone(self):
        device = self.devices()[0]["name"].split("/")[1]
        refused = self.call("devices", "forget", device, *self.server)
        self.assertEqual(refused.returncode, FAILED, refused.stderr)
        self.assertIn("device.forget.in_use", refused.stderr)
        self.agent.stop()
        self.wait_for("the device to be away", lambda: self.call("devices", "forget", device, *self.server).returncode == OK)
        self.assertEqual(self.devices(), [])
        self.assertEqual(self.call("devices", "forget", device, *self.server).returncode, NOT_FOUND)
        self.agent.start()
        self.wait_for("the device, which is known by the same name again",
                      lambda: [row["name"].split("/")[1] for row in self.devices()] == [device])


class KeepsOneSearch(cli_case.Fleet):
    """A tuner that keeps the drafts and models of one ended job."""

    def tuner_flags(self):
        return ["--keep-search-jobs", "1"]

    def lines(self, job, *more):
        return self.good("log", "export", job, *more, *self.server).splitlines()

    def test_an_older_search_is_given_up_and_what_it_measured_stays(self):
        tune = ["tune", "m.onnx", "--target", "native,threads=1", "--trials", str(TRIALS), *self.server]
        self.good(*tune, "-o", "m.tw", "--name", "older")
        drafts, records = self.lines("older", "--drafts"), self.lines("older")
        self.assertGreater(len(drafts), 200)
        self.good(*tune, "-o", "m2.tw", "--name", "newer", "--seed", "2")
        self.wait_for("the end of the older job's drafts",
                      lambda: len(self.lines("older", "--drafts")) < len(drafts))
        self.assertEqual(self.lines("older"), records)
        self.good("log", "explain", json.loads(records[0])["task"], "--job", "older", *self.server)


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
