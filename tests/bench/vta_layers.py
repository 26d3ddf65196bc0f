#!/usr/bin/env python3
"""ResNet-18's convolutions but the first, and MobileNet's of one tap, on the accelerator in each configuration: runs
vta_layers and adds up its lines by how often the network has each layer. Writes results/vta_layers.json and prints a table.

  python3 tests/bench/vta_layers.py [--build-dir build/release] [--rtl] [CONFIG ...]

With --rtl (a build with -DTILEWRIGHT_BUILD_RTL=ON) every program also runs on the RTL: results are those of the simulators,
bit for bit, and cycles differ by 2 % at most; exit code 1 otherwise, or if a layer of ResNet-18 is further from the bound than
it was. DRAM has 64 cycles of latency and brings 8 bytes a cycle.
With --optimum CONFIG:LAYER it runs every tile of these layers instead (minutes each), and adds to the results at which
trial a search by the estimate comes to the best.
With --interpreter it runs the default program of each layer on random operands: both simulators compute what the interpreter
of the tensor IR does with the layer's function, bit for bit (twenty minutes); exit code 1 otherwise. What the RTL computes is
compared with these simulators by --rtl.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULT = ROOT / "tests" / "bench" / "results" / "vta_layers.json"
# How often the network has each layer.
NETWORKS = {
    "resnet18": {"C2": 4, "C3": 0, "C4": 1, "C5": 1, "C6": 3, "C7": 1, "C8": 1, "C9": 3, "C10": 1, "C11": 1, "C12": 3},
    "mobilenet": {"K112x32x64k1": 1, "K56x64x128k1": 1, "K56x128x128k1": 1, "K28x128x256k1": 1, "K28x256x256k1": 1,
                  "K14x256x512k1": 1, "K14x512x512k1": 5, "K7x512x1024k1": 1, "K7x1024x1024k1": 1},
}
BAR = 0.97  # of the bound
# What ResNet-18's layers reach of the bound by default where it is less. Short layers of block16: the operands of their
# operations, the first part of the first loads and the last slice are 3 to 5 % of the time. block32 multiplies four times as
# much with what DRAM brings: DRAM is the limit, or its memories hold too little to load for the next tile.
SHORT = {"block8": {}, "block16": {"C8": 0.95, "C11": 0.94},
         "block32": {"C3": 0.93, "C4": 0.65, "C5": 0.86, "C7": 0.64, "C8": 0.68, "C10": 0.37, "C11": 0.40, "C12": 0.37}}
MOST_DIFFERENCE = 0.02  # of the cycle model from the RTL
MOST_TILES = 20000  # of a layer whose every tile is run


def write(result):
    """A line for each object without objects."""
    text = json.dumps(result, indent=1)
    RESULT.write_text(re.sub(r"\{[^{}]*\}", lambda found: " ".join(found.group().split()), text) + "\n")


def lines(binary, config, *flags):
    """What vta_layers prints, a row for each line."""
    done = subprocess.run([binary, "--config", config, *flags], check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def cycles_of(row):
    return row.get("rtl_cycles", row["cycles"])


def summary(rows, uses):
    cycles = sum(uses[r["layer"]] * cycles_of(r) for r in rows)

    def share(key):
        return round(sum(uses[r["layer"]] * r["cycles"] * r[key] for r in rows) / cycles, 4)
    return {"cycles": cycles, "products": share("products"), "of_bound": share("of_bound"), "compute": share("compute"),
            "layers": len(rows), "layers_at_97_percent_of_bound": sum(r["of_bound"] >= BAR for r in rows),
            "layers_at_97_percent_of_limit": sum(r["of_limit"] >= BAR for r in rows)}


def measured(binary, config, rtl):
    """Summaries of the networks, and the rows of their layers."""
    found = {}
    layers = [layer for uses in NETWORKS.values() for layer in uses]
    rows = lines(binary, config, *(["--rtl"] if rtl else []), *layers)
    for row in rows:
        # Nothing is faster than compute without a break, or than DRAM that brings each operand once.
        row["limit"] = "DRAM" if row["least_reads"] > row["of_bound"] else "compute"
        row["of_limit"] = max(row["least_reads"], row["of_bound"])
    for network, uses in NETWORKS.items():
        by_tile = {}
        for row in rows:
            if row["layer"] in uses:
                by_tile.setdefault(row["tile"], []).append(row)
        found[network] = {tile: summary(of_tile, uses) for tile, of_tile in by_tile.items()}
    if rtl:
        found["rtl"] = {
            "programs": len(rows), "cycles": sum(r["rtl_cycles"] for r in rows),
            "most_difference": max(abs(r["cycles"] - r["rtl_cycles"]) / r["rtl_cycles"] for r in rows),
            "cycles_per_second": round(sum(r["rtl_cycles"] for r in rows) / sum(r["rtl_seconds"] for r in rows))}
    found["layers"] = rows
    return found


def show(config, found):
    for network in NETWORKS:
        for tile, row in found[network].items():
            print(f"{config} {network} {tile}: {row}")
    for row in found["layers"]:
        print(f"  {row['layer']:15}{row['tile']:12}{cycles_of(row):9} cycles, {100 * row['of_bound']:5.1f} % of the bound, "
              f"{100 * row['of_limit']:5.1f} % of what {row['limit']} allows, "
              f"products {100 * row['products']:5.1f} %, DRAM reads {100 * row['reads']:5.1f} %, fill {100 * row['fill']:.1f} %, "
              f"loads {100 * row['operand_loads']:.1f} %, waits {100 * row['waits']:.1f} %, drain {100 * row['drain']:.1f} %")
    if "rtl" in found:
        print(f"{config} RTL: {found['rtl']}", flush=True)


def too_low(config, rows):
    """Layers of ResNet-18 whose default is further from the bound than it has to be."""
    return [r["layer"] for r in rows if r["layer"] in NETWORKS["resnet18"] and r["tile"] == "default"
            and r["of_bound"] < SHORT[config].get(r["layer"], BAR)]


def optimum(binary, word, known):
    """The rows of `known` with that of one layer."""
    config, layer = word.split(":")
    start = time.monotonic()
    row = {"config": config, **lines(binary, config, "--tiles", layer)[0]}
    if row["tiles"] > MOST_TILES:
        sys.exit(f"{word}: expected at most {MOST_TILES} tiles, found {row['tiles']}")
    row["seconds_per_tile"] = round((time.monotonic() - start) / row["tiles"], 3)
    print(row, flush=True)
    return [r for r in known if (r["config"], r["layer"]) != (config, layer)] + [row]


def compared(binary, configs):
    """Each layer's default program on the simulators against the interpreter. Dies at a difference."""
    start = time.monotonic()
    rows = []
    for config in configs:
        for network, uses in NETWORKS.items():
            rows += [{"config": config, "network": network, **row} for row in lines(binary, config, "--interpreter", *uses)]
            print(f"{config} {network}: {len(uses)} layers, equal", flush=True)
    return {"programs": len(rows), "equal_bytes": sum(r["equal_bytes"] for r in rows),
            "seconds": round(time.monotonic() - start), "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rtl", action="store_true")
    parser.add_argument("--optimum", nargs="*", default=[], metavar="CONFIG:LAYER")
    parser.add_argument("--interpreter", action="store_true")
    parser.add_argument("configs", nargs="*", default=["block8", "block16", "block32"])
    args = parser.parse_args()
    binary = args.build_dir / "bin" / "vta_layers"
    result = json.loads(RESULT.read_text())
    result["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    failures = []
    for word in args.optimum:
        result["optimum"] = optimum(binary, word, result.get("optimum", []))
        result["median_trials_to_best"] = statistics.median(r["trials_to_best"] for r in result["optimum"])
        write(result)
    if args.interpreter:
        found = compared(binary, args.configs)
        result = json.loads(RESULT.read_text())  # others may have written meanwhile
        result["interpreter"] = found
        write(result)
    for config in [] if args.optimum or args.interpreter else args.configs:
        found = measured(binary, config, args.rtl)
        result["command"] = "python3 tests/bench/vta_layers.py" + (" --rtl" if args.rtl else "")
        result["machine"] = "DRAM of 64 cycles latency and 8 bytes a cycle; cycles of the cycle model, rtl_cycles of the RTL"
        result["configurations"][config] = found
        write(result)
        show(config, found)
        failures += [f"{config} {layer}: too far from the bound" for layer in too_low(config, found["layers"])]
        if args.rtl and found["rtl"]["most_difference"] > MOST_DIFFERENCE:
            failures.append(f"{config}: cycles of the model and the RTL differ by {found['rtl']['most_difference']}")
    print("\n".join(failures), end="\n" if failures else "")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
