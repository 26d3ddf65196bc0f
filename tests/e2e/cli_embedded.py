#!/usr/bin/env python3
"""`tilewright tune` without a server: a fleet on this machine that lives as long as the command.

    cli_embedded.py [--build DIR]      DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Runs alone: it wants most measurements to be good.

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402
from cli_case import FAILED, MISMATCH, OK, UNAVAILABLE  # noqa: E402

TRIALS = 24


class Embedded(cli_case.Case):
    def setUp(self):
        super().setUp()
        onnx.save(cli_case.dense_model(rows=4, inner=256, columns=96), self.path("m.onnx"), save_as_external_data=True, location="m.onnx.data",
                  size_threshold=0)

    def tune_args(self, trials, *more):
        return ["tune", "m.onnx", "--target", "native,threads=1", "--trials", str(trials),
                "-o", "m.tw", *more]

    def start_and_measure(self, trials, *more):
        """A tune in the background that has measured something."""
        child = self.start(*self.tune_args(trials, *more))
        self.wait_for("a measurement", lambda: " trials  best " in self.err() or child.poll() is not None)
        self.assertIsNone(child.poll(), self.err())
        return child

    def log_file(self):
        return self.path("state", "tilewright", "embedded", "tuner", "tuner.db")

    def check_other_devices_records_never_count(self, lines):
        """The same records said to be of another processor: imported, shown, and not used."""
        with open(self.path("other.jsonl"), "w") as f:
            for line in lines:
                f.write(json.dumps(dict(line, target_key="cpu,arch=x86_64,cpu=another")) + "\n")
        self.good("log", "import", "other.jsonl", "--log", "other.db")
        done = self.call("compile", "m.onnx", "--target", "native,threads=1", "--log", "other.db",
                         "--require-tuned", "95", "-o", "other.tw")
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("measured for cpu,arch=x86_64,cpu=another", done.stderr)
        self.assertFalse(os.path.exists(self.path("other.tw")))
        compiled = json.loads(self.good("compile", "m.onnx", "--target", "native,threads=1", "--log", "other.db",
                                        "-o", "other.tw", "--format", "json"))
        self.assertEqual((compiled["tuned_percent"], compiled["kernels"][0]["tuned"]), (0, False))
        self.assertAlmostEqual(compiled["misses"][0]["percent"], 100)

    def check_export_import_and_merge(self, lines):
        self.good("log", "export", "--log", "tuner.db", "--features", "-o", "all.jsonl")
        report = json.loads(self.good("log", "import", "all.jsonl", "--log", "copy.db", "-o", "json"))[0]
        self.assertEqual((report["new_records"], report["known"], report["conflicts"]), (len(lines), 0, 0))
        report = json.loads(self.good("log", "merge", "tuner.db", "--log", "copy.db", "-o", "json"))[0]
        self.assertEqual((report["new_records"], report["known"], report["conflicts"]), (0, len(lines), 0))
        self.assertEqual(self.good("log", "export", "--log", "copy.db", "--features"),
                         self.good("log", "export", "--log", "tuner.db", "--features"))
        report = json.loads(self.good("log", "merge", "other.jsonl", "--log", "copy.db", "-o", "json"))[0]
        self.assertEqual((report["new_records"], report["conflicts"]), (0, len(lines)))
        with open(self.path("all.jsonl"), "a") as f:
            f.write("\n")
        done = self.call("log", "import", "all.jsonl", "--log", "none.db")
        self.assertEqual(done.returncode, MISMATCH)
        self.assertFalse(os.path.exists(self.path("none.db")))

    def check_damaged_logs(self):
        """Flipped bits: an export is right, or an error. A check says which; what is whole can be kept."""
        with open(self.path("tuner.db"), "rb") as f:
            whole = f.read()
        said = json.loads(self.good("log", "check", "--log", "tuner.db", "-o", "json"))
        self.assertEqual((said["whole"], len(said["jobs"])), (True, 1))
        right = self.good("log", "export", "--log", "tuner.db", "--features")
        generator = numpy.random.default_rng(16)
        refused = 0
        for _ in range(16):
            at = int(generator.integers(len(whole)))
            with open(self.path("damaged.db"), "wb") as f:
                f.write(whole[:at] + bytes([whole[at] ^ 1 << int(generator.integers(8))]) + whole[at + 1:])
            done = self.call("log", "export", "--log", "damaged.db", "--features")
            refused += done.returncode != OK
            if done.returncode == OK:
                self.assertEqual(done.stdout, right, at)
        self.assertGreater(refused, 4, "most of a log is rows")
        at = whole.index(b"split ")
        with open(self.path("damaged.db"), "wb") as f:
            f.write(whole[:at] + b"splat " + whole[at + 6:])
        done = self.call("log", "check", "--log", "damaged.db")
        self.assertEqual(done.returncode, FAILED, done.stdout)
        self.assertIn("log.check.damaged", done.stderr)
        self.assertIn("--skip-damaged", done.stderr)
        for command in (["export"], ["merge", "damaged.db"]):
            done = self.call("log", *command, "--log", "damaged.db" if command == ["export"] else "merged.db")
            self.assertEqual(done.returncode, FAILED, done.stdout)
            self.assertIn("log.check.damaged", done.stderr)
        self.good("log", "export", "--log", "damaged.db", "--skip-damaged", "--features", "-o", "kept.jsonl")
        self.good("log", "import", "kept.jsonl", "--log", "kept.db")
        self.good("log", "check", "--log", "kept.db")

    def check_explain(self, usable, default, fastest, chosen):
        said = json.loads(self.good("log", "explain", fastest["task"], "--log", "tuner.db", "-o", "json"))
        self.assertEqual(said["chosen"]["measurement_id"], chosen["measurement_id"])
        self.assertEqual(said["tried"]["trials"], TRIALS)
        self.assertEqual(sum(said["tried"]["by_outcome"].values()), TRIALS)
        self.assertEqual(said["default_median"], default["median"] if default else 0)
        medians = [row["median"] for row in said["runner_ups"]]
        self.assertEqual(medians, sorted(medians))
        ids = {line["measurement_id"] for line in usable} - {chosen["measurement_id"]}
        self.assertEqual(len(medians), min(5, len(ids)))
        self.assertTrue({row["measurement_id"] for row in said["runner_ups"]} <= ids)
        self.assertEqual(said["launches"], [{"launch": "y", "onnx_nodes": ["node_of_y"]}])
        for word in (["node_of_y"], ["y"], [said["hash"][:8]], ["y", "--module", "m.tw"]):
            other = json.loads(self.good("log", "explain", *word, "--log", "tuner.db", "-o", "json"))
            self.assertEqual(other, said, word)
        text = self.good("log", "show", "node_of_y", "--log", "tuner.db")
        self.assertIn("y (node_of_y)", text)
        text = self.good("log", "explain", fastest["task"], "--log", "tuner.db")
        self.assertIn(chosen["measurement_id"], text)
        self.assertIn("why ", text)

    def test_a_relative_state_folder(self):
        self.good(*self.tune_args(4, "--state-dir", "own"))
        self.assertTrue(os.path.exists(self.path("m.tw")))
        self.assertTrue(os.path.isdir(self.path("own", "tuner")))

    def test_tune_then_everything_from_the_log(self):
        out = json.loads(self.good(*self.tune_args(TRIALS, "--log", "tuner.db", "--format", "json")))
        self.assertEqual(out["state"], "SUCCEEDED")
        self.assertEqual(out["progress"]["measured"], TRIALS)
        self.assertTrue(os.path.isfile(self.path("tuner.db")))
        self.assertEqual(self.processes(), [])

        # The module computes what NumPy says.
        x = numpy.random.default_rng(3).standard_normal((4, 256)).astype(numpy.float32)
        weight = numpy_helper.to_array(onnx.load(self.path("m.onnx")).graph.initializer[0])
        for name, values, tensor in (("x.pb", x, "x"), ("y.pb", x @ weight, "y")):
            with open(self.path(name), "wb") as f:
                f.write(numpy_helper.from_array(values, tensor).SerializeToString())
        self.good("run", "m.tw", "--input", "x=x.pb", "--expect", "y=y.pb", "--rtol", "1e-4",
                  "--atol", "1e-4", "--repeat", "3")

        # The log holds one accepted result of each trial, and whoever reads it finds the same best schedule.
        lines = [json.loads(line) for line in self.good("log", "export", "--log", "tuner.db").splitlines()]
        ids = [line["measurement_id"] for line in lines]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(len({line["trial"] for line in lines if line["accepted"] and line["generated_by"] != "final"}),
                         TRIALS)
        best = json.loads(self.good("log", "best", "--log", "tuner.db", "-o", "json"))
        self.assertEqual(len(best), 1)
        usable = [line for line in lines if line["accepted"] and line["valid"] and line["outcome"] == "OK"]
        self.assertIn(best[0]["measurement_id"], [line["measurement_id"] for line in usable])
        fastest = cli_case.fastest_program(lines, usable)
        compiled = json.loads(self.good("compile", "m.onnx", "--target", "native,threads=1", "--log",
                                        "tuner.db", "--require-tuned", "100", "-o", "c.tw",
                                        "--format", "json"))
        kernel = compiled["kernels"][0]
        # The default schedule stays where the fastest is no faster than noise; it may itself have been too noisy.
        default = next((line for line in usable if line["generated_by"] == "default"), None)
        kept = default is not None and default["median"] * 0.99 <= fastest["median"]
        chosen = default if default and kernel["measurement_id"] == default["measurement_id"] else fastest
        self.assertTrue(not kept or chosen is default)
        self.assertEqual((kernel["program_hash"], kernel["tuned"]), (chosen["program_hash"], True))
        self.assertEqual(kernel["measurement_id"], chosen["measurement_id"])
        self.assertEqual((best[0]["measurement_id"], best[0]["records"]), (chosen["measurement_id"], len(usable)))
        # The module of the job itself is made of the same schedule.
        with open(self.path("m.tw"), "rb") as module:
            self.assertIn(chosen["measurement_id"].encode(), module.read())
        # Records of one thread say nothing about two.
        done = self.call("compile", "m.onnx", "--target", "native,threads=2", "--log", "tuner.db",
                         "--require-tuned", "1", "-o", "two.tw")
        self.assertEqual(done.returncode, FAILED)
        self.assertFalse(os.path.exists(self.path("two.tw")))
        self.assertIn("measured with 1 threads", done.stderr)
        self.check_other_devices_records_never_count(lines)
        self.check_export_import_and_merge(lines)
        self.check_damaged_logs()
        self.check_explain(usable, default, fastest, chosen)

        task = fastest["task"]
        shown = self.good("log", "show", task, "--log", "tuner.db", "--ir")
        self.assertIn("(the measured one)", shown.splitlines()[0])
        self.assertIn(chosen["program_hash"], shown.splitlines()[0])
        any_record = json.loads(self.good("log", "show", task, "--log", "tuner.db", "--record",
                                          usable[-1]["measurement_id"], "-o", "json"))
        self.assertEqual(any_record["chosen"]["steps"], usable[-1]["steps"])
        stats = json.loads(self.good("log", "stats", "--model", "--log", "tuner.db", "-o", "json"))
        self.assertEqual((stats[0]["trials_ended"], stats[0]["records"]), (TRIALS, len(lines)))
        for model in stats[0]["models"]:
            self.good("log", "model", model["id"], "--log", "tuner.db", "-o", "model.ubj")
            self.assertGreater(os.path.getsize(self.path("model.ubj")), 0)
        self.good("log", "stats", "--model", "--log", "tuner.db")
        drafts = self.good("log", "export", "--drafts", "--log", "tuner.db").splitlines()
        self.assertEqual(len(drafts), stats[0]["considered"])

        # A reader that leaves early is no error.
        with subprocess.Popen([cli_case.binary("tilewright"), "log", "export", "--drafts", "--features",
                               "--log", "tuner.db"], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as child:
            child.stdout.read(10)
            child.stdout.close()
            self.assertEqual(child.stderr.read(), b"")
            self.assertEqual(child.wait(cli_case.PATIENCE), OK)

    def test_a_second_tuning_measures_nothing(self):
        first = self.progress_of(TRIALS)
        self.assertEqual((first["measured"], first["cached"]), (TRIALS, 0))
        known = len(self.known_programs())
        self.assertGreater(known, TRIALS // 2)
        second = self.progress_of(TRIALS, "--seed", "9")
        self.assertEqual((second["measured"], second["cached"]), (TRIALS - known, known))
        finals = [job["finals"] for job in json.loads(self.good("log", "stats", "-o", "json"))]
        if known == TRIALS and finals[0] < 6:  # as it is, but where the machine is very noisy
            self.assertEqual((second["built"], second["best_us"], finals[1]), (0, first["best_us"], 0))
        known = len(self.known_programs())
        more = self.progress_of(TRIALS + 8)
        self.assertEqual((more["measured"], more["cached"]), (TRIALS + 8 - known, known))
        afresh = self.progress_of(8, "--fresh")
        self.assertEqual((afresh["measured"], afresh["cached"]), (8, 0))

    def progress_of(self, trials, *more):
        return json.loads(self.good(*self.tune_args(trials, *more, "--format", "json")))["progress"]

    def test_a_failed_job_is_explained_without_a_server(self):
        """Advice named commands of a server that had ended with the command."""
        model = cli_case.dense_model("Frobnicate")
        onnx.save(model, self.path("m.onnx"))
        done = self.call(*self.tune_args(4))
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("graph.onnx.unsupported_operator", done.stderr)
        self.assertIn("tilewright operators", done.stderr)
        self.assertNotIn("jobs get", done.stderr)

    def test_interrupt_cancels_the_job_and_stops_everything(self):
        child = self.start_and_measure(100000)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(cli_case.PATIENCE), FAILED, self.err())
        self.assertIn("cli.interrupted", self.err())
        self.assertEqual(self.processes(), [])
        self.assertFalse(os.path.exists(self.path("m.tw")))
        stats = json.loads(self.good("log", "stats", "-o", "json"))  # the log of this machine
        self.assertIn(stats[0]["state"], ("CANCELLED", "CANCELLING"))
        self.assertGreater(stats[0]["records"], 0)

    def test_children_die_with_a_killed_command_and_the_next_one_starts_clean(self):
        child = self.start_and_measure(100000)
        child.kill()
        child.wait()
        self.wait_for("the end of all children", lambda: not self.processes())
        out = json.loads(self.good(*self.tune_args(8, "--format", "json")))
        # What the killed command measured counts.
        self.assertEqual(out["state"], "SUCCEEDED")
        self.assertGreaterEqual(out["progress"]["measured"] + out["progress"]["cached"], 8)
        states = [job["state"] for job in json.loads(self.good("log", "stats", "-o", "json"))]
        self.assertEqual(states, ["CANCELLED", "SUCCEEDED"])

    def stored(self):
        stats = json.loads(self.good("log", "stats", "-o", "json"))
        return stats[0]["records"]

    def test_a_service_that_dies_is_started_again(self):
        child = self.start_and_measure(100000)  # does not end by itself, however fast the machine
        for name in ("tracker", "tuner", "agent"):
            killed = set(self.processes("tilewright-" + name))
            for process in killed:
                os.kill(process, signal.SIGKILL)
            self.wait_for("a new " + name,
                          lambda name=name, old=killed: set(self.processes("tilewright-" + name)) - old)
            before = self.stored()
            self.wait_for("work after the death of the " + name, lambda n=before: self.stored() >= n + 30)
        self.assertIn("starting it again", self.err())
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(cli_case.PATIENCE), FAILED, self.err())
        stats = json.loads(self.good("log", "stats", "-o", "json"))
        self.assertIn(stats[0]["state"], ("CANCELLED", "CANCELLING"))
        lines = [json.loads(line) for line in self.good("log", "export").splitlines()]
        ids = [line["measurement_id"] for line in lines]
        self.assertEqual(len(ids), len(set(ids)))
        trials = [line["trial"] for line in lines if line["accepted"]]
        self.assertEqual(len(trials), len(set(trials)))
        self.assertLessEqual(len(trials), stats[0]["trials_ended"])  # the others were cancelled

    def test_a_log_has_one_writer_under_all_its_names(self):
        child = self.start_and_measure(100000, "--log", "tuner.db")
        os.symlink("tuner.db", self.path("link.db"))
        os.link(self.path("tuner.db"), self.path("hard.db"))
        self.good("log", "export", "--log", "tuner.db", "-o", "some.jsonl")
        for name in ("tuner.db", "link.db", "hard.db"):
            done = self.call("log", "import", "some.jsonl", "--log", name)
            self.assertEqual(done.returncode, UNAVAILABLE, done.stderr)
            self.assertIn("log.open.in_use", done.stderr)
        for name in ("link.db", "hard.db"):  # the name tuner.db has a state folder, which is locked, too
            done = self.call(*self.tune_args(4, "--log", name))
            self.assertEqual(done.returncode, UNAVAILABLE, done.stderr)
            self.assertIn("log.open.in_use", done.stderr)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(cli_case.PATIENCE), FAILED, self.err())
        self.good("log", "import", "some.jsonl", "--log", "link.db")

    def test_one_at_a_time_in_a_folder(self):
        child = self.start_and_measure(100000)
        done = self.call(*self.tune_args(4))
        self.assertEqual(done.returncode, UNAVAILABLE, done.stderr)
        self.assertIn("cli.embedded.locked", done.stderr)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(cli_case.PATIENCE), FAILED, self.err())


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
