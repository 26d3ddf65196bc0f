#!/usr/bin/env python3
"""A noisy device: 3 of 10 measurements are made invalid (agent flag --test-faults noisy=…). They are made again,
all of them are in the log, each trial ends once, and nothing invalid is learned from, recalled or chosen.

    noise.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Runs alone: it counts the noise that it injects.

import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402

TRIALS = 40
MAX_ATTEMPTS = 3  # of a trial whose results are not valid; the last one counts as it is


class Noise(cli_case.Fleet):
    INNER = 64

    def agent_flags(self):
        return ["--test-faults", "seed=5,noisy=.3"]

    def tune(self, name, *more):
        return json.loads(self.good("tune", "m.onnx", "--target", "native,threads=1", "--trials", str(TRIALS),
                                    "--name", name, "--format", "json", "-o", name + ".tw", *self.server, *more))

    def check_attempts(self, records):
        """Of each trial: invalid results that did not count, then the one that did."""
        trials = defaultdict(list)
        for record in records:
            trials[record["trial"]].append(record)
        self.assertEqual(len(trials) - len({r["trial"] for r in records if r["generated_by"] == "final"}), TRIALS)
        again = 0
        for attempts in trials.values():
            (counted,) = [r for r in attempts if r["accepted"]]
            rest = [r for r in attempts if not r["accepted"] and r["outcome"] == "OK"]
            for record in rest:
                self.assertFalse(record["valid"], record)
                self.assertTrue(record["invalid_reasons"], record)
            self.assertLess(len(rest), MAX_ATTEMPTS)
            again += len(rest)
            if counted["outcome"] == "OK" and not counted["valid"]:
                self.assertEqual(len(rest), MAX_ATTEMPTS - 1, "counted as it is after the last attempt only")
        self.assertGreater(again, 0, "the noise was there")

    def check_choice(self, best, usable, said):
        """What was chosen is valid, and so is what the module is made of."""
        chosen = said["chosen"]["measurement_id"]
        self.assertEqual([(row["records"], row["measurement_id"]) for row in best], [(len(usable), chosen)])
        ids = {record["measurement_id"] for record in usable}
        self.assertIn(chosen, ids)
        self.assertTrue({row["measurement_id"] for row in said["runner_ups"]} <= ids)
        with open(self.path("noisy.tw"), "rb") as module:
            self.assertIn(chosen.encode(), module.read())

    def test_noise_costs_attempts_and_nothing_else(self):
        progress = self.tune("noisy")["progress"]
        self.assertEqual((progress["measured"], progress["cached"]), (TRIALS, 0))
        records = self.records("noisy", *self.server)
        self.check_attempts(records)
        self.assertEqual(len(self.measured_trials("noisy", *self.server)), TRIALS)

        # Each command counts trials as trials and records as records.
        usable = [r for r in records if r["accepted"] and r["valid"] and r["outcome"] == "OK"]
        stats = json.loads(self.good("log", "stats", *self.server, "-o", "json"))[0]
        invalid = sum(not r["valid"] for r in records)
        self.assertEqual((stats["trials_ended"], stats["records"], stats["invalid_records"]), (TRIALS, len(records), invalid))
        job = json.loads(self.good("jobs", "get", "noisy", *self.server, "-o", "json"))
        self.assertEqual((job["state"], job["progress"]["measured"], job["progress"]["trials_total"]),
                         ("SUCCEEDED", TRIALS, TRIALS))
        said = json.loads(self.good("log", "explain", records[0]["task"], *self.server, "-o", "json"))
        self.assertEqual((said["tried"]["trials"], sum(said["tried"]["by_outcome"].values())), (TRIALS, TRIALS))

        best = json.loads(self.good("log", "best", *self.server, "-o", "json"))
        if cli_case.fastest_program(records, usable):
            self.check_choice(best, usable, said)
        else:  # the machine has noise of its own, and so much that no final confirmed a winner
            self.assertEqual((best, said["chosen"]["measurement_id"]), ([], ""))
        self.good("run", "noisy.tw", "--repeat", "2")

        # A later job knows what was measured well, and measures the rest.
        known = len(self.known_programs("noisy", *self.server))
        progress = self.tune("later", "--seed", "9")["progress"]
        self.assertEqual((progress["measured"], progress["cached"]), (TRIALS - known, known))


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
