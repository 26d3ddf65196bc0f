#!/usr/bin/env python3
"""Draws the fixed set of logged schedules, logged_schedules.txt, from the pool of measured candidates that
the shipped cost model was trained on: of each task the default schedule of then, the fastest, and one each
that the search drew at random and with a model. The same pool gives the same bytes.

    tests/golden/draw_logged_schedules.py
"""

import json
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
POOL = HERE.parent / "bench/results/model_pool.tar.xz"
HEAD = """\
# Schedules out of tuning logs, each with the hash of the program that it gave when it was measured:
# tests/unit/logged_schedules_test.cc replays them. Drawn by draw_logged_schedules.py; not edited by hand.
# task NAME TEXT: the task's canonical text, its lines joined by '|'. Below it: HASH STEPS.
"""


def drawn(head, records):
    """(hash, steps), without repetitions."""
    right = [r for r in records if r["ratio"] > 0 and not r["wrong"]]
    chosen = [(head["program"], head["baseline"])]
    chosen.append(min(((r["ratio"], r["program"], r["steps"]) for r in right))[1:])
    for origin in ("random", "model"):  # hashes are as good as a draw
        of_origin = [(r["program"], r["steps"]) for r in right if r["origin"] == origin]
        chosen += sorted(set(of_origin) - set(chosen))[:1]
    return list(dict.fromkeys(chosen))


def main():
    lines = []
    with tarfile.open(POOL) as pool:
        for member in sorted((m for m in pool if m.name.endswith(".jsonl")), key=lambda m: m.name):
            head, *records = map(json.loads, pool.extractfile(member).read().splitlines())
            assert "|" not in head["text"]
            lines.append(f"task {Path(member.name).stem} {head['text'].replace(chr(10), '|')}")
            lines += [f"{program} {steps}" for program, steps in drawn(head, records)]
    (HERE / "logged_schedules.txt").write_text(HEAD + "\n".join(lines) + "\n")
    print(f"{sum(not line.startswith('task') for line in lines)} schedules of {sum(line.startswith('task') for line in lines)} tasks")


if __name__ == "__main__":
    main()
