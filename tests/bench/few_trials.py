#!/usr/bin/env python3
"""How near 60 trials of a whole network come to 300: each budget from an empty log, with the same seed. All modules of a
network and seed take turns in blocks A B B A of one run.

    TILEWRIGHT_BUILD_DIR=build/release tests/bench/few_trials.py [NAME ...] [--few 60] [--many 300] [--seeds 1 2 3]
                                                                 [--threads 1] [--blocks 6] [--block-s 0.5] [--json FILE]

NAME: a network of tests/models/make_models.py (default: bert_small mobilenet resnet18). Wanted: the geometric mean of
`time after many trials / time after few` is at least 0.97.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from whole_network import ROOT, block

sys.path.insert(0, str(ROOT / "tests/support"))
from fleet import make_models, tune_alone  # noqa: E402

BAR = 0.97


def tune(model, seed, trials, folder, threads):
    """A module tuned from an empty log, and where its trials went."""
    state = folder / f"{trials}-{seed}"
    state.mkdir()
    module = state / "model.tw"
    seconds, answer = tune_alone(model, state, module, "--target", f"native,threads={threads}", "--trials", trials, "--seed", seed)
    tasks = sorted(answer["tasks"], key=lambda task: -task["uses"] * task["tuned_us"])
    total = sum(task["uses"] * task["tuned_us"] for task in tasks)
    shares = [{"task": task["name"], "time": round(task["uses"] * task["tuned_us"] / total, 4), "trials": task["trials"]}
              for task in tasks]
    return module, {"wall_s": round(seconds, 1), "measured": answer["progress"]["measured"], "tasks": shares}


def measure(name, seed, flags):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model = make_models(folder / "model", name) / name / "model.onnx"
        few, few_row = tune(model, seed, flags.few, folder, flags.threads)
        many, many_row = tune(model, seed, flags.many, folder, flags.threads)
        times = {few: [], many: []}
        for turn in range(flags.blocks):
            for module in [few, many][::1 if turn % 2 == 0 else -1]:
                times[module].append(block(module, flags.block_s))
    ratios = [m / f for f, m in zip(times[few], times[many])]
    few_row["us"], many_row["us"] = statistics.median(times[few]), statistics.median(times[many])
    return {"model": name, "seed": seed, "few": few_row, "many": many_row,
            "share_of_speed": [round(f(ratios), 4) for f in (statistics.median, min, max)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["bert_small", "mobilenet", "resnet18"])
    parser.add_argument("--few", type=int, default=60)
    parser.add_argument("--many", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--block-s", type=float, default=0.5)
    parser.add_argument("--json", type=Path)
    flags = parser.parse_args()
    rows = []
    for name in flags.names:
        for seed in flags.seeds:
            rows.append(row := measure(name, seed, flags))
            middle, low, high = row["share_of_speed"]
            heaviest = ", ".join(f"{task['task']} {task['time']:.0%} of the time {task['trials']} trials" for task in row["few"]["tasks"][:3])
            print(f"{name} seed {seed}: {row['few']['measured']} trials in {row['few']['wall_s']} s -> {row['few']['us']:.0f} us, "
                  f"{row['many']['measured']} in {row['many']['wall_s']} s -> {row['many']['us']:.0f} us: {middle:.3f} "
                  f"({low:.3f}..{high:.3f}) of the speed; {heaviest}", flush=True)
    mean = math.exp(statistics.fmean(math.log(row["share_of_speed"][0]) for row in rows))
    print(f"geometric mean {mean:.4f} (wanted {BAR}): {'met' if mean >= BAR else 'missed'}")
    if flags.json:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        flags.json.write_text(json.dumps({"benchmark": "few_trials", "cpus": os.cpu_count(), "commit": commit.stdout.strip(),
                                          "command": " ".join(sys.argv), "few": flags.few, "many": flags.many,
                                          "geometric_mean": round(mean, 4), "wanted": BAR, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
