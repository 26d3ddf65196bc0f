"""Jobs of a real fleet whose state is on one disk, and episodes in which that disk is hurt (hurt_disk.py)."""

import json
import sys
import time
from collections import Counter

from fleet import Fleet, make_models, wait_for
from hurt_disk import HurtDisk

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
DISK_MB = 384
WORK_S = 240  # to the first trial of a fleet, and to the first after an episode, on a busy machine


class DiskEpisodes:
    """`at_once`: jobs that are open when an episode begins, `trials`: of each."""

    def __init__(self, at_once, trials):
        self.at_once, self.trials = at_once, trials
        self.jobs, self.rows, self.failures, self.cancelled = [], [], [], []

    def __enter__(self):
        self.disk = HurtDisk(DISK_MB)
        scratch = self.disk.path / "tmp"
        scratch.mkdir()
        env = {name: {**self.disk.env(children=name == "tuner"), "TMPDIR": str(scratch)}
               for name in ("tracker", "tuner", "agent")}
        self.fleet = Fleet(tuner_args=("--running-jobs", self.at_once + 1), disk=self.disk.path, env=env)
        self.fleet.start_all()
        self.model = make_models(self.fleet.state / "models", "dqn", "--size", 44, "--width", 0.5) / "dqn" / "model.onnx"
        return self

    def __exit__(self, *error):
        self.fleet.__exit__(*error)
        self.disk.__exit__(*error)

    def _submit(self):
        name = self.fleet.submit(self.model, self.trials, seed=len(self.jobs) + 1, extra=("--fresh",))
        self.jobs.append(name)
        return name

    def _look(self):
        return {name: self.fleet.job(name) for name in self.jobs}

    def _measured(self):
        return sum(job["progress"]["measured"] for job in self._look().values())

    def _open(self):
        return [name for name, job in self._look().items() if job["state"] not in ENDED]

    def _fill_up(self):
        for _ in range(self.at_once - len(self._open())):
            self._submit()
        before = self._measured()
        wait_for("work before the episode", lambda: self._measured() > before or not self._open(), WORK_S)

    def run(self, kind, seconds, cancel=False):
        """One episode under `at_once` jobs; `cancel`: of one more job that is cancelled in its midst."""
        self._fill_up()
        victim = self._submit() if cancel else None
        open_before = self._open()
        waits = Counter()

        def during():
            for name in open_before:
                look = self.fleet.cli("jobs", "get", name, *self.fleet.server(), "-o", "json", check=False)
                # Readers of the log wait for its writers: on a slow disk some run into their deadline.
                for condition in json.loads(look.stdout)["conditions"] if look.returncode == 0 else ():
                    waits[condition["reason"]] += 1
                    if condition["type"] == "STORAGE_FAILED" and not condition["reason"].startswith("job.waits."):
                        self.failures.append(f"{name} does not know that this may pass: {condition}")
            if victim:
                self.fleet.cli("jobs", "cancel", victim, *self.fleet.server())
        self.disk.hurt(kind, seconds, during)
        begin, before = time.monotonic(), self._measured()
        wait_for(f"work after a disk that was {kind} for {seconds:g} s",
                 lambda: self._measured() > before or not self._open(), WORK_S)
        if victim:
            self.cancelled.append(victim)
        dead = [name for name, daemon in self.fleet.daemons.items() if not daemon.alive()]
        self.failures += [f"{name} ended: {self.fleet.daemons[name].tail()}" for name in dead]
        row = {"kind": kind, "seconds": seconds, "jobs": len(open_before), "waits": dict(sorted(waits.items())),
               "recovery_s": round(time.monotonic() - begin, 1)}
        self.rows.append(row)
        print(f"  {row}")
        sys.stdout.flush()

    def finish(self):
        """Waits for all jobs. Returns what is wrong with them: nothing, if all is well."""
        for name in self.jobs:
            job = self.fleet.wait_job(name, 1800)
            if name in self.cancelled:
                if job["state"] != "CANCELLED":
                    self.failures.append(f"{name} was cancelled and is {job['state']}")
                continue
            if job["state"] != "SUCCEEDED" or job["progress"]["measured"] != self.trials:
                self.failures.append(f"{name}: {job['state']} with {job['progress']['measured']} of {self.trials} "
                                     f"trials: {job['state_reason']}")
            # What is much slower than the best is not measured to the end: the candidate's fault, not the disk's.
            failed = {kind: n for kind, n in job["progress"]["failed_by_kind"].items() if n and kind != "EARLY_STOPPED"}
            if failed:
                self.failures.append(f"{name}: {failed}")
            records = self.fleet.export(job=name)
            twice = [m for m, n in Counter(r["measurement_id"] for r in records).items() if n > 1]
            per_trial = Counter(r["trial"] for r in records if r["accepted"])
            finals = sum(r["accepted"] and r["generated_by"] == "final" for r in records)
            if twice or len(per_trial) != self.trials + finals or max(per_trial.values()) > 1:
                self.failures.append(f"{name}: {len(per_trial)} trials have an accepted record, twice: {twice}")
        return self.failures
