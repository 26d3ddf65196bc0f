#!/usr/bin/env python3
"""How fast the tuner gets through trials, and where the time goes: one job per model over a fleet of real daemons on
loopback (tracker, tuner, one agent), read back from the tuner's database and from /proc.

    TILEWRIGHT_BUILD_DIR=build/release tests/bench/tuner_throughput.py [--model dqn] [--trials 240] [--json FILE]

Trials per second count ended trials between the first proposal and the last result; `job` is the whole job with
import, expected outputs and the final compile. Shares are of the time between first proposal and last result; phases
overlap, so they may add up to more than 100 %. Processor seconds are of each daemon with its children."""

import argparse
import json
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import Fleet, make_models  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def processes():
    """pid -> (parent, name, processor seconds). Ended children count for workers only: nobody sees a measuring process
    long enough to count it by itself."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # it ended meanwhile
        name = text[text.index("(") + 1:text.rindex(")")]
        fields = text[text.rindex(")") + 2:].split()
        ticks = fields[11:15] if name.startswith("tilewright-work") else fields[11:13]
        found[int(entry.name)] = (int(fields[1]), name, sum(map(int, ticks)) / TICKS)
    return found


class CpuWatch(threading.Thread):
    """The most processor time that was seen of each process under the daemons, by what it is."""

    def __init__(self, roots):
        super().__init__(daemon=True)
        self.roots, self.seconds, self.end = roots, {}, threading.Event()

    def run(self):
        while not self.end.wait(0.2):
            self.look()

    def look(self):
        found = processes()
        for pid, (_, name, seconds) in found.items():
            at = pid
            while at in found and at not in self.roots:
                at = found[at][0]
            if at in self.roots:
                key = (pid, name if pid in self.roots else f"{name} of {self.roots[at]}")
                self.seconds[key] = max(self.seconds.get(key, 0), seconds)

    def totals(self):
        self.end.set()
        self.join()
        self.look()
        totals = {}
        for (_, name), seconds in self.seconds.items():
            totals[name] = totals.get(name, 0) + seconds
        return totals


def one(db, sql, *args):
    return db.execute(sql, args).fetchone()


def read_job(path, name):
    job = name.split("/")[-1]
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        started, ended = one(db, "select started_us, ended_us from jobs where id=?", job)
        first, last, trials = one(db, "select min(created_us), max(ended_us), count(*) from trials where job=?", job)
        outcomes = dict(db.execute("select outcome, count(*) from trials where job=? group by outcome", (job,)))
        lower, codegen, link = one(db, "select sum(lower_s), sum(codegen_s), sum(link_s) from trials where job=?", job)
        batches, considered, search, features, model = one(
            db, "select count(*), sum(considered), sum(search_s), sum(features_s), sum(model_s) from batches "
            "where job=?", job)
        train = one(db, "select sum(seconds) from models where job=?", job)[0]
        fetch, load, run = one(db, "select sum(fetch_s), sum(load_s), sum(run_s) from records where job=?", job)
    seconds = {"draft and lower": search or 0, "features": features or 0, "rank": model or 0, "train": train or 0,
               "build": lower + codegen + link, "fetch": fetch or 0, "measure": load + run}
    wall = (last - first) * 1e-6
    return {"job_s": (ended - started) * 1e-6, "wall_s": wall, "trials": trials, "outcomes": outcomes,
            "trials_per_s": trials / wall, "batches": batches, "considered": considered, "seconds": seconds,
            "search_and_model_share": sum(seconds[k] for k in ("draft and lower", "features", "rank", "train")) / wall}


def show(name, result):
    print(f"{name}: {result['trials']} trials in {result['wall_s']:.2f} s = {result['trials_per_s']:.1f}/s "
          f"(job {result['job_s']:.2f} s); {result['batches']} batches ranked {result['considered']} drafts; "
          + ", ".join(f"{count} {outcome}" for outcome, count in sorted(result["outcomes"].items())))
    for phase, seconds in result["seconds"].items():
        print(f"    {phase:16} {seconds:8.2f} s {100 * seconds / result['wall_s']:6.1f} %"
              f" {1e3 * seconds / result['trials']:8.2f} ms/trial")
    print(f"    search and model together {100 * result['search_and_model_share']:.1f} % of wall")
    for process, seconds in sorted(result["cpu"].items(), key=lambda item: -item[1]):
        print(f"    cpu {process:30} {seconds:7.2f} s {1e3 * seconds / result['trials']:8.2f} ms/trial")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="a model of make_models.py or a file (default dqn)")
    parser.add_argument("--trials", type=int, default=240)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the numbers here, too")
    parser.add_argument("--keep", action="store_true", help="leave the state folder")
    args = parser.parse_args()
    results = {}
    for model in args.model or ["dqn"]:
        with Fleet(threads=args.threads, keep=args.keep) as fleet:
            fleet.start_all()
            path = Path(model)
            if not path.exists():
                path = make_models(fleet.state / "models", model) / model / "model.onnx"
            watch = CpuWatch({d.process.pid: d.name for d in fleet.daemons.values()})
            watch.start()
            job = fleet.submit(path, args.trials, seed=args.seed)
            end = fleet.wait_job(job, 3600)
            cpu = watch.totals()
            if end["state"] != "SUCCEEDED":
                raise SystemExit(f"{model}: {end['state']}: {end}")
            results[model] = read_job(next(fleet.state.glob("tuner/**/tuner.db")), job)
            results[model].update(cpu=cpu, default_us=end["default_us"], tuned_us=end["tuned_us"])
            show(model, results[model])
            print(f"    {end['default_us']:.1f} -> {end['tuned_us']:.1f} us")
            if args.keep:
                print(f"    state in {fleet.state}")
    if args.json:
        stamp = {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "cores": os.cpu_count(),
                 "threads": args.threads, "seed": args.seed}
        Path(args.json).write_text(json.dumps({**stamp, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
