#!/usr/bin/env python3
"""What a second tuning of a network costs: the same command again, which finds all it wants in the log.

    TILEWRIGHT_BUILD_DIR=build/release tests/bench/second_tuning.py [NAME ...] [--trials 100] [--runs 5] [--json FILE]

NAME: a network of tests/models/make_models.py (default: dqn resnet18 bert_small). `command` is all of `tilewright tune`
with the start and the end of its tracker, tuner and agent; `job` is the tuning itself, as a server would do it. Medians.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import make_models, tune_alone  # noqa: E402


def tune(model, folder, trials):
    return tune_alone(model, folder, folder / "module.tw", "--target", "native", "--trials", trials)


def measure(name, flags):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model = make_models(folder, name) / name / "model.onnx"
        first_s, first = tune(model, folder, flags.trials)
        module = (folder / "module.tw").read_bytes()
        commands, jobs = [], []
        for _ in range(flags.runs):
            seconds, answer = tune(model, folder, flags.trials)
            if answer["progress"]["measured"] != 0 or (folder / "module.tw").read_bytes() != module:
                sys.exit(f"{name}: a second tuning measured something, or made another module")
            commands.append(seconds)
            jobs.append(answer["progress"]["elapsed_s"])
    return {"model": name, "trials": first["progress"]["measured"], "first_s": first_s,
            "command_s": statistics.median(commands), "job_s": statistics.median(jobs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["dqn", "resnet18", "bert_small"])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    flags = parser.parse_args()
    rows = []
    for name in flags.names:
        rows.append(row := measure(name, flags))
        print(f"{name:12s} first {row['first_s']:6.1f} s ({row['trials']} trials)   again {row['command_s']:5.2f} s, "
              f"of which the job {row['job_s']:5.2f} s", flush=True)
    if flags.json:
        flags.json.write_text(json.dumps({"benchmark": "second_tuning", "cpus": os.cpu_count(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
