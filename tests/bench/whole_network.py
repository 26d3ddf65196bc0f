#!/usr/bin/env python3
"""How near a short tuning of a whole network comes to a long one: from an empty log, SHORT trials and then up to LONG of
the same log; both modules take turns in blocks A B B A.

    TILEWRIGHT_BUILD_DIR=build/release tests/bench/whole_network.py [NAME ...] [--threads 1 2] [--short 300] [--long 3000]
                                                                    [--blocks 6] [--block-s 0.5] [--json FILE]

NAME: a network of tests/models/make_models.py (default: resnet18). Wanted: within 5 % of the best, in 3 minutes of the
wall clock, which count all of `tilewright tune`: import, tracker, tuner and agent, tuning, compiling, their end.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from fleet import BIN, make_models, tune_alone  # noqa: E402


def tune(model, threads, trials, folder):
    module = folder / f"{trials}.tw"
    seconds, answer = tune_alone(model, folder, module, "--target", f"native,threads={threads}", "--trials", trials)
    return {"module": module, "wall_s": seconds, "measured": answer["progress"]["measured"],
            "sum_of_kernels_us": answer["progress"]["best_us"]}


def block(module, seconds):
    """Median of a run in microseconds."""
    def run(repeat):
        done = subprocess.run([BIN / "tilewright", "run", module, "--repeat", str(repeat), "-o", "json"], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)["latency_ms"]["median"] * 1e3

    return run(max(3, int(seconds * 1e6 / run(3))))


def measure(name, threads, flags):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model = make_models(folder, name) / name / "model.onnx"
        short = tune(model, threads, flags.short, folder)
        best = tune(model, threads, flags.long, folder)
        times = {"short": [], "best": []}
        for turn in range(flags.blocks):
            for which, tuned in [("short", short), ("best", best)][::1 if turn % 2 == 0 else -1]:
                times[which].append(block(tuned["module"], flags.block_s))
        ratios = [b / s for s, b in zip(times["short"], times["best"])]
    for which, tuned in (("short", short), ("best", best)):
        del tuned["module"]
        tuned["us"] = statistics.median(times[which])
    return {"model": name, "threads": threads, "short": short, "long": best,
            "share_of_best": [round(f(ratios), 4) for f in (statistics.median, min, max)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["resnet18"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--short", type=int, default=300)
    parser.add_argument("--long", type=int, default=3000)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--block-s", type=float, default=0.5)
    parser.add_argument("--json", type=Path)
    flags = parser.parse_args()
    rows = []
    for name in flags.names:
        for threads in flags.threads:
            rows.append(row := measure(name, threads, flags))
            middle, low, high = row["share_of_best"]
            print(f"{name} on {threads}: {row['short']['measured']} trials in {row['short']['wall_s']:.1f} s -> "
                  f"{row['short']['us']:.0f} us, {middle:.1%} ({low:.1%}..{high:.1%}) of the speed after "
                  f"{row['long']['measured']} more in {row['long']['wall_s']:.0f} s: {row['long']['us']:.0f} us", flush=True)
    if flags.json:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        flags.json.write_text(json.dumps({"benchmark": "whole_network", "cpus": os.cpu_count(), "commit": commit.stdout.strip(),
                                          "command": " ".join(sys.argv), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
