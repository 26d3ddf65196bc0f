#!/usr/bin/env python3
"""What the chosen GPU kernels of the seven networks' products and convolutions move and use, counted on the emulated GPU.

    simt_counts.py [--target cuda,arch=sm_90a] [--rows] [-o results/simt_counts.json] [NETWORK ...]

Schedules are those that `compile` chooses by the estimate. Of each launch some groups run on the emulator (simt_counts.cc). The table
has for each network: sectors of global memory (of all groups, in thousands), the counted ones over the least that the bytes of the
warps' requests need, turns of the banks of shared memory over those without conflicts, and how the estimate's registers and occupancy compare with NVRTC's report. --rows prints each
launch, and the arrays of which it moves more than the least. It says nothing about time."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, make_models  # noqa: E402
from network_check import NAMES  # noqa: E402

MOST = 1.05  # sectors over the least
COUNTED = 4  # groups of a launch, by emulated_counts.h


def rows_of(name, target):
    with tempfile.TemporaryDirectory(prefix="tilewright-counts-") as folder:
        model = make_models(folder, name) / name / "model.onnx"
        done = subprocess.run([BIN / "simt_counts", target, model], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"simt_counts {name}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return [dict(json.loads(line), model=name) for line in done.stdout.splitlines()]


def share(rows, is_good):
    return round(sum(map(is_good, rows)) / len(rows), 3) if rows else None


def ratio(rows, moved, least):
    total = sum(row["counts"][least] for row in rows)
    return round(sum(row["counts"][moved] for row in rows) / total, 3) if total else None


def sectors(rows):
    """Thousands of sectors of all groups."""
    return round(sum(row["counts"]["global_sectors"] * max(1, row["groups"] / COUNTED) for row in rows) / 1e3)


def one(row, moved, least):
    return row["counts"][moved] / max(1, row["counts"][least])


def is_over(part):
    return part["global_sectors"] > part["global_ideal_sectors"] or part["shared_turns"] > part["shared_ideal_turns"]


def summary(rows):
    known = [row for row in rows if "registers" in row]
    return {
        "launches": len(rows),
        "thousand_sectors": sectors(rows),
        "sectors_over_least": ratio(rows, "global_sectors", "global_ideal_sectors"),
        "launches_within_5_percent": share(rows, lambda r: one(r, "global_sectors", "global_ideal_sectors") <= MOST),
        "bank_turns_over_least": ratio(rows, "shared_turns", "shared_ideal_turns"),
        "launches_with_conflicts": sum(one(r, "shared_turns", "shared_ideal_turns") > 1 for r in rows),
        "spilling": sum(row["spill_bytes"] > 0 for row in known),
        "occupancy_within_a_quarter": share(known, lambda r: abs(r["occupancy"] - r["occupancy_estimated"]) <= .25),
        "registers_within_half": share(known, lambda r: .5 <= r["registers_estimated"] / r["registers"] <= 1.5),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda,arch=sm_90a")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("networks", nargs="*", default=NAMES)
    flags = parser.parse_args()
    result = {"note": "no GPU has run these kernels: counts of the emulated GPU, registers by NVRTC", "target": flags.target,
              "networks": {}, "launches": []}
    everything = []
    for name in flags.networks:
        rows = rows_of(name, flags.target)
        everything += rows
        result["networks"][name] = summary(rows)
        print(name, json.dumps(result["networks"][name]), flush=True)
        for row in rows:
            short = {"model": name, "task": row["task"], "launch": row["launch"],
                     "sectors_over_least": round(one(row, "global_sectors", "global_ideal_sectors"), 3),
                     "bank_turns_over_least": round(one(row, "shared_turns", "shared_ideal_turns"), 3),
                     **{key: row.get(key) for key in ("groups", "threads", "registers", "registers_estimated", "spill_bytes")},
                     **{key: round(row.get(key, 0), 2) for key in ("occupancy", "occupancy_estimated")}}
            result["launches"].append(short)
            if flags.rows:
                print("  ", json.dumps(short), flush=True)
                for part in filter(is_over, row["parts"]):
                    print("     ", json.dumps({key: part[key] for key in part if part[key]}), flush=True)
    result["all"] = summary(everything)
    print("all", json.dumps(result["all"]))
    if flags.output:
        body = dict(result)
        launches = body.pop("launches")
        text = json.dumps(body, indent=1)[:-2] + ',\n "launches": [\n  ' + ",\n  ".join(map(json.dumps, launches)) + "\n ]\n}\n"
        flags.output.write_text(text)


if __name__ == "__main__":
    main()
