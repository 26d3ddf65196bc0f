#!/usr/bin/env python3
"""kill -9 of one random daemon in mid-job, then the same daemon again on its state: nothing
acknowledged is lost, nothing is stored twice, the job ends with its full number of trials.

    kill9.py [--rounds 20] [--seed 1]
"""
# Measures: a device is used in it, and no time is judged.

import argparse
import random
import sqlite3
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import Fleet, make_models, wait_for  # noqa: E402

TRIALS_PER_JOB = 60
KILLS_PER_JOB = 5


def stored(fleet):
    """(measurement id, outcome) of every record, straight from the database."""
    path = next(fleet.state.glob("tuner/**/tuner.db"))
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as db:
        return db.execute("select measurement_id, outcome from records").fetchall()


def run_job(fleet, model, rng, seed, kills):
    name = fleet.submit(model, TRIALS_PER_JOB, seed=seed)
    seen = set()
    for kill in range(kills):
        target = TRIALS_PER_JOB * (kill + 1) // (kills + 2)

        def far_enough():
            return fleet.job(name)["progress"]["measured"] >= target or \
                fleet.job(name)["state"] not in ("QUEUED", "RUNNING")
        wait_for(f"{target} trials", far_enough, 300)
        time.sleep(rng.random() * 0.5)  # any moment will do: this is chance, not a condition
        victim = rng.choice(("tracker", "tuner", "agent"))
        fleet.kill9(victim)
        acknowledged = {m for m, _ in stored(fleet)}
        lost = seen - acknowledged
        assert not lost, f"lost after kill of {victim}: {lost}"
        seen |= acknowledged
        fleet.restart(victim)
        print(f"  killed {victim} at {len(acknowledged)} records")
        sys.stdout.flush()
    job = fleet.wait_job(name, 600)
    assert job["state"] == "SUCCEEDED", job
    assert job["progress"]["measured"] == TRIALS_PER_JOB, job["progress"]
    records = stored(fleet)
    ids = Counter(m for m, _ in records)
    assert all(count == 1 for count in ids.values()), [m for m, c in ids.items() if c > 1]
    assert seen <= set(ids), f"lost: {seen - set(ids)}"
    lines = [r for r in fleet.export(job=name) if r["accepted"]]
    per_trial = Counter(r["trial"] for r in lines)
    finals = sum(r["generated_by"] == "final" for r in lines)
    assert len(per_trial) == TRIALS_PER_JOB + finals and max(per_trial.values()) == 1, (
        len(per_trial), finals, per_trial.most_common(3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"[SEED] {options.seed}")
    rng = random.Random(options.seed)
    rounds = jobs = 0
    with Fleet(threads=1) as fleet:
        fleet.start_all()
        model = make_models(fleet.state / "models", "dqn", "--size", 44, "--width", 0.5) / "dqn" / "model.onnx"
        while rounds < options.rounds:
            kills = min(KILLS_PER_JOB, options.rounds - rounds)
            run_job(fleet, model, rng, options.seed + jobs, kills)
            rounds += kills
            jobs += 1
            print(f"ok      job {jobs}: {kills} kills")
            sys.stdout.flush()
    print(f"{rounds} passed, 0 failed")


if __name__ == "__main__":
    main()
