#!/usr/bin/env python3
"""The soak: a real fleet (tracker, tuner, agent, worker) under one small tuning job after another for an
hour. Memory and descriptors of every daemon are flat: between the five minutes after the warm-up and the
last five they grow by less than 5 %. No job fails. Writes tests/results/soak.json, also while it runs.
Promise R8 of tests/README.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys
import threading
import time

from lane import ROOT, commit

GROWTH_BAR = 0.05
SAMPLE_S = 5
WINDOW_S = 300
FIELDS = {"VmRSS": "rss_kb", "RssAnon": "anon_kb", "Threads": "threads"}


def status(pid):
    """rss_kb, anon_kb, threads and descriptors of a process; nothing when it has ended."""
    try:
        lines = (line.split() for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        found = {FIELDS[words[0][:-1]]: int(words[1]) for words in lines if words and words[0][:-1] in FIELDS}
        return {**found, "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}
    except (OSError, KeyError):
        return None


def eldest_child(pid):
    """The worker of an agent: measurements are its children, not the agent's."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for task in os.listdir(f"/proc/{pid}/task"):
            children += pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    except OSError:
        return None
    return min(map(int, children), default=None)


class Sampler(threading.Thread):
    def __init__(self, fleet):
        super().__init__(daemon=True)
        self.fleet, self.begin, self.rows, self.done = fleet, time.monotonic(), {}, threading.Event()

    def run(self):
        while not self.done.wait(SAMPLE_S):
            agent = self.fleet.daemons["agent"].process.pid
            pids = {name: daemon.process.pid for name, daemon in self.fleet.daemons.items()}
            pids["worker"] = eldest_child(agent)
            for name, pid in pids.items():
                row = status(pid) if pid else None
                if row:
                    self.rows.setdefault(name, []).append((time.monotonic() - self.begin, row))


def growth(rows, begin_s, end_s):
    """Of each quantity: its median after the warm-up and in the end, and what it grew by."""
    early = [row for at, row in rows if begin_s <= at < begin_s + WINDOW_S]
    late = [row for at, row in rows if end_s - WINDOW_S <= at <= end_s]
    found = {}
    for name in early[0] if early and late else ():
        first, last = (statistics.median(row[name] for row in part) for part in (early, late))
        found[name] = {"first": first, "last": last, "growth": round(last / first - 1, 4)}
    return found


def judge(report):
    failures = list(report["job_failures"])
    for daemon, rows in report["daemons"].items():
        for name in ("rss_kb", "descriptors"):
            if name not in rows:
                failures.append(f"{daemon}: no samples")
            elif rows[name]["growth"] >= GROWTH_BAR:
                failures.append(f"{daemon}: {name} grew by {100 * rows[name]['growth']:.1f} %")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--warmup", type=float, default=10, help="minutes that do not count")
    parser.add_argument("--period", type=float, default=20, help="seconds from one job's begin to the next at least")
    parser.add_argument("--trials", type=int, default=30, help="of each job")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "soak.json")
    args = parser.parse_args()
    os.environ["TILEWRIGHT_BUILD_DIR"] = str(args.build_dir.resolve())
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from fleet import Fleet, make_models
    report = {"lane": "soak", "commit": commit(), "command": " ".join(["tests/long/soak.py", *sys.argv[1:]]),
              "bar": GROWTH_BAR, "jobs": 0, "trials": 0, "job_failures": []}
    with Fleet(threads=1) as fleet:
        fleet.start_all()
        model = make_models(fleet.state / "models", "dqn", "--size", 44, "--width", 0.5) / "dqn" / "model.onnx"
        sampler = Sampler(fleet)
        sampler.start()
        while time.monotonic() - sampler.begin < args.minutes * 60:
            start = time.monotonic()
            job = fleet.wait_job(fleet.submit(model, args.trials, seed=report["jobs"] + 1), 900)
            report["jobs"] += 1
            report["trials"] += job["progress"]["measured"]
            if job["state"] != "SUCCEEDED":
                report["job_failures"].append(f"job {report['jobs']}: {job['state']}")
            elapsed = time.monotonic() - sampler.begin
            report["minutes"] = round(elapsed / 60, 1)
            report["daemons"] = {name: growth(rows, args.warmup * 60, elapsed) for name, rows in sampler.rows.items()}
            report["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            report["failures"] = judge(report)
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(json.dumps(report, indent=1) + "\n")
            time.sleep(max(0, args.period - (time.monotonic() - start)))
        sampler.done.set()
        sampler.join()
    print(json.dumps(report, indent=1))
    return 1 if report["failures"] or report["minutes"] < args.minutes - 1 else 0


if __name__ == "__main__":
    sys.exit(main())
