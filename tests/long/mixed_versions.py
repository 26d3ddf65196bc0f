#!/usr/bin/env python3
"""Daemons of two versions in one fleet: today's build beside an older one. Jobs run over each mixture, and over a
fleet that is upgraded under load: tracker, then agent, then tuner, each stopped and started again by its newer
binary. No trial may be lost, counted twice or end as anything but measured. Writes
tests/results/mixed_versions.json. Promise R19 of tests/README.md.

    git worktree add /tmp/older REVISION && cmake --preset release -S /tmp/older && cmake --build /tmp/older/build/release
    tests/long/mixed_versions.py --older /tmp/older/build/release --older-commit REVISION
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lane import ROOT, commit  # noqa: E402

DAEMONS = ("tracker", "agent", "tuner")
# Which daemons are of the older build.
MIXTURES = {"older agent": ("agent",), "older tuner": ("tuner",), "older tracker": ("tracker",),
            "newer tracker": ("agent", "tuner"), "newer tuner": ("tracker", "agent")}


def judge(fleet, job, trials):
    """What the log says of a job; dies unless every trial was measured, once."""
    ended = fleet.wait_job(job)
    records = [row for row in fleet.export(job=job) if row.get("kind", row.get("type")) == "record"]
    ids = [row["measurement_id"] for row in records]
    outcomes = collections.Counter(row["outcome"] for row in records)
    # A trial that was stopped early may be measured again: an id ends in the trial and the attempt.
    seen = {row["measurement_id"].rsplit("/", 1)[0] for row in records if row["generated_by"] != "final"}
    bad = set(outcomes) - {"OK", "EARLY_STOPPED", "BUILD_ERROR"}
    if ended["state"] != "SUCCEEDED" or len(seen) != trials or len(set(ids)) != len(ids) or bad:
        sys.exit(f"{job}: {ended['state']}, {len(ids)} records of {len(seen)} of {trials} trials, {dict(outcomes)}")
    return {"trials": len(seen), "records": len(ids), "outcomes": dict(outcomes)}


def measured(fleet, job):
    return int(fleet.job(job)["progress"]["measured"])


def run_mixture(module, model, older_bin, older, trials):
    with module.Fleet(folders={name: older_bin for name in older}) as fleet:
        fleet.start_all()
        return judge(fleet, fleet.submit(model, trials), trials)


def run_upgrade(module, model, older_bin, trials):
    with module.Fleet(folders=dict.fromkeys(DAEMONS, older_bin)) as fleet:
        fleet.start_all()
        job = fleet.submit(model, trials)
        for step, name in enumerate(DAEMONS):
            module.wait_for("trials", lambda: measured(fleet, job) >= (step + 1) * trials // 5, 300)
            fleet.daemons[name].stop()
            del fleet.folders[name]
            fleet.restart(name)
        return judge(fleet, job, trials)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--older", type=pathlib.Path, required=True, metavar="BUILD_DIR")
    parser.add_argument("--older-commit", required=True)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "mixed_versions.json")
    args = parser.parse_args()
    os.environ["TILEWRIGHT_BUILD_DIR"] = str(args.build_dir.resolve())
    import fleet as module  # after the environment says where the binaries are
    older_bin = args.older.resolve() / "bin"
    report = {"lane": "mixed_versions", "commit": commit(), "older": args.older_commit,
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "runs": {}}
    with tempfile.TemporaryDirectory() as folder:
        model = module.make_models(folder, "dqn", "--size", 45) / "dqn" / "model.onnx"
        for what, older in MIXTURES.items():
            report["runs"][what] = run_mixture(module, model, older_bin, older, args.trials)
            print(what, report["runs"][what], flush=True)
        report["runs"]["upgrade under load"] = run_upgrade(module, model, older_bin, args.trials)
        print("upgrade under load", report["runs"]["upgrade under load"], flush=True)
    args.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
