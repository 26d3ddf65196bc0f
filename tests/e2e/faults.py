#!/usr/bin/env python3
"""Wrong code never wins. An agent that injects wrong results, crashes and hangs: the kinds are counted
right and no faulted trial is best. A builder that miscompiles on purpose: the result check finds it."""

import stat
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, Fleet, make_models, run_checks  # noqa: E402

FAULT_KINDS = {"WRONG_RESULT", "RUN_CRASH", "RUN_TIMEOUT"}


def one_job_with_faults(fleet, model):
    """The kinds that its trials ended with."""
    # A fault in its final ends a program: of a light task, all of them in some runs.
    name = fleet.submit(model, 80, extra=("--fresh", "--search", "finals=off"))
    job = fleet.wait_job(name, 900)
    assert job["state"] == "SUCCEEDED", job
    assert job["progress"]["measured"] == 80, job["progress"]
    records = [r for r in fleet.export(job=name) if r["accepted"]]
    kinds = Counter(r["outcome"] for r in records)
    reported = {k: v for k, v in job["progress"]["failed_by_kind"].items() if v}
    counted = {k: v for k, v in kinds.items() if k != "OK"}
    assert reported == counted, (reported, counted)
    for kind in FAULT_KINDS:
        assert kinds[kind] <= 30, kinds
    for task in job["tasks"]:
        best = [r for r in records if r["steps"] == task["best_steps"] and r["outcome"] == "OK" and r["valid"]]
        assert best, f"the best of {task['name']} has no OK record"
    return kinds


def injected_faults_are_counted_and_never_win():
    with Fleet(threads=1, agent_args=("--test-faults", "seed=3,wrong=.1,crash=.1,hang=.05",
                                      "--wall-limit-ms", "3000")) as fleet:
        fleet.start_all()
        model = make_models(fleet.state / "models", "dqn") / "dqn" / "model.onnx"
        # Drawn by the measurements' names, which differ from run to run: of 80 trials not one hangs in 1 of 60 runs.
        seen = Counter()
        for _ in range(4):
            seen += one_job_with_faults(fleet, model)
            if FAULT_KINDS <= set(seen):
                return
        raise AssertionError(f"kinds never seen: {FAULT_KINDS - set(seen)}")


def miscompiles_are_caught():
    for kind in ("tail", "init"):
        with Fleet(threads=1) as fleet:
            wrapper = fleet.state / "builder"
            wrapper.write_text(f'#!/bin/sh\nexec "{BIN}/tilewright-builder" --test-miscompile={kind} "$@"\n')
            wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
            fleet.tuner_args = ("--builder", wrapper)
            fleet.start_all()
            # Odd sizes: tails exist in every kernel.
            model = make_models(fleet.state / "models", "dqn", "--size", 52, "--width", 0.6) / "dqn" / "model.onnx"
            name = fleet.submit(model, 40)
            job = fleet.wait_job(name, 900)
            records = fleet.export(job=name)
            wrong = [r for r in records if r["outcome"] == "WRONG_RESULT"]
            assert wrong, f"{kind}: no WRONG_RESULT in {Counter(r['outcome'] for r in records)}"
            if kind == "init":  # every kernel reduces: not one may pass
                passed = [r for r in records if r["outcome"] == "OK"]
                assert not passed, f"{len(passed)} candidates without init passed the check"
            assert job["state"] in ("SUCCEEDED", "FAILED"), job


if __name__ == "__main__":
    run_checks(injected_faults_are_counted_and_never_win, miscompiles_are_caught)
