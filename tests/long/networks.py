#!/usr/bin/env python3
"""The seven networks in full size: the standard models (also against the golden outputs of ../shared, loudly
skipped where absent), before the softmax, with fresh weights, other sizes and widths; untuned, 1 and 2 threads.

    TILEWRIGHT_BUILD_DIR=build/release tests/long/networks.py [--tune TRIALS] [NAME ...]

With --tune, each is tuned with so many trials on a tracker, a tuner and an agent of its own, standard models (and
before the softmax) only; no trial may end in a wrong result. Writes tests/results/networks.json (networks_tuned.json): errors, compile times, kernels. Exit code 1 when a bar is missed."""

import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from lane import ROOT, commit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from network_check import NAMES, SHARED, check, text  # noqa: E402

FRESH = ("--seed", 21)
VARIANTS = {name: [(), FRESH] for name in NAMES}
for name in ("resnet18", "resnet50", "mobilenet"):
    VARIANTS[name] += [("--logits",), ("--seed", 22, "--size", 160, "--width", 0.75, "--logits")]
VARIANTS["dqn"] += [("--seed", 23, "--size", 111, "--width", 1.7)]
VARIANTS["lstm_lm"] += [("--logits",)]
TUNED = {name: [("--logits",) if ("--logits",) in VARIANTS[name] else ()] for name in NAMES}
MAX_COMPILE_S = 20  # ResNet-50, on two cores


def main():
    names, trials = sys.argv[1:], 0
    if names[:1] == ["--tune"]:
        trials, names = int(names[1]), names[2:]
    names = names or NAMES
    if not (SHARED / "models/golden").is_dir():
        print(f"[SKIP] {SHARED}/models/golden is not there: golden outputs are NOT compared")
    rows = []
    for name in names:
        for options in TUNED[name] if trials else VARIANTS[name]:
            with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
                rows.append(check(name, options, folder, trials=trials))
                rows[-1]["load_average"] = round(os.getloadavg()[0], 1)  # compile times mean little beside others
                print(text(rows[-1]), flush=True)
    late = [r for row in rows for r in row["runs"] if row["network"] == "resnet50" and not trials and r["compile_s"] > MAX_COMPILE_S]
    result = {"lane": "networks_tuned" if trials else "networks", "commit": commit(), "date": time.strftime("%Y-%m-%d", time.gmtime()),
              "machine": platform.processor() or platform.machine(), "command": " ".join(["tests/long/networks.py", *sys.argv[1:]]),
              "rows": rows}
    folder = ROOT / "tests/results"
    folder.mkdir(exist_ok=True)
    path = folder / ("networks_tuned.json" if trials else "networks.json")
    if trials and path.exists():  # networks may be tuned one by one
        fresh = {row["network"] for row in rows}
        result["rows"] = [r for r in json.loads(path.read_text())["rows"] if r["network"] not in fresh] + rows
    if trials or tuple(names) == NAMES:
        path.write_text(json.dumps(result, indent=1) + "\n")
    failed = sum(not row["good"] for row in rows) + len(late)
    print(f"{len(rows) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
