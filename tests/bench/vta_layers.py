#!/usr/bin/env python3
"""ResNet-18's convolutions but the first on the accelerator, in each configuration: runs vta_layers and adds up its lines
by how often the network has each layer. Writes results/vta_layers.json and prints a table.

  tests/bench/vta_layers.py [--build-dir build/release] [CONFIG ...]

With --optimum CONFIG:LAYER it runs every tile of these layers instead (minutes each), and adds to the results at which
trial a search by the estimate comes to the best.
"""

import argparse
import json
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULT = ROOT / "tests" / "bench" / "results" / "vta_layers.json"
# How often ResNet-18 has each layer.
USES = {"C2": 4, "C3": 0, "C4": 1, "C5": 1, "C6": 3, "C7": 1, "C8": 1, "C9": 3, "C10": 1, "C11": 1, "C12": 3}
BAR = 0.97


def summary(rows):
    cycles = sum(USES[r["layer"]] * r["cycles"] for r in rows)

    def share(key):
        return round(sum(USES[r["layer"]] * r["cycles"] * r[key] for r in rows) / cycles, 4)
    return {"cycles": cycles, "products": share("products"), "of_bound": share("of_bound"), "compute": share("compute"),
            "layers_at_97_percent_of_bound": sum(r["of_bound"] >= BAR for r in rows)}


def measured(binary, config):
    done = subprocess.run([binary, config], check=True, capture_output=True, text=True)
    layers = [json.loads(line) for line in done.stdout.splitlines()]
    by_tile = {}
    for row in layers:
        by_tile.setdefault(row["tile"], []).append(row)
    return {"resnet18": {tile: summary(rows) for tile, rows in by_tile.items()}, "layers": layers}


def optimum(binary, word, known):
    """The rows of `known` with that of one layer."""
    config, layer = word.split(":")
    done = subprocess.run([binary, config, "", layer], check=True, capture_output=True, text=True)
    row = {"config": config, **json.loads(done.stdout)}
    print(row, flush=True)
    return [r for r in known if (r["config"], r["layer"]) != (config, layer)] + [row]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--optimum", nargs="*", default=[], metavar="CONFIG:LAYER")
    parser.add_argument("configs", nargs="*", default=["block8", "block16", "block32"])
    args = parser.parse_args()
    result = json.loads(RESULT.read_text())
    result["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    result["command"] = "tests/bench/vta_layers.py"
    for word in args.optimum:
        result["optimum"] = optimum(args.build_dir / "bin" / "vta_layers", word, result.get("optimum", []))
    for config in [] if args.optimum else args.configs:
        found = measured(args.build_dir / "bin" / "vta_layers", config)
        result["configurations"][config] = found
        for tile, row in found["resnet18"].items():
            print(f"{config} {tile}: {row}", flush=True)
        for row in found["layers"]:
            print(f"  {row['layer']:4}{row['tile']:12}{row['cycles']:9} cycles, {100 * row['of_bound']:5.1f} % of the bound, "
                  f"products {100 * row['products']:5.1f} %")
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
