#!/usr/bin/env python3
"""Synthesises the RTL with Yosys for Xilinx' 7 series and prints what it takes: look-up tables, registers, multipliers
(DSP48E1), block RAM (in RAMB36E1; a RAMB18E1 is half of one), distributed RAM. Exit code 1 if there is a latch.

  vta/rtl/synthesise.py block8 block16

Without names: every configuration of isa.def. Minutes each. Wants `deploy/install_packages.sh --rtl`.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ISA = HERE.parent / "isa" / "vta_isa.sv"
TOP = "vta_core"
CONFIG = re.compile(r"VTA_CONFIG_(\w+)$", re.M)
DEFAULT = "block16"  # the one without a macro
# Of a 7020, which is on PYNQ boards.
PART = {"luts": 53200, "registers": 106400, "multipliers": 220, "block_ram": 140}


def configurations():
    return [DEFAULT] + CONFIG.findall(ISA.read_text())


def sources():
    """Packages first."""
    modules = sorted(HERE.glob("*.sv"), key=lambda path: (path.stem != "vta_rtl", path.name))
    return [ISA, *modules]


def cells_of(config):
    """How many cells of each type the flattened accelerator has."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "stat.json"
        script = "; ".join([f"read_verilog -sv -D VTA_CONFIG_{config} {' '.join(map(str, sources()))}",
                            f"synth_xilinx -family xc7 -flatten -noiopad -top {TOP}", f"tee -q -o {result} stat -json"])
        done = subprocess.run(["yosys", "-q", "-p", script], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        return json.loads(result.read_text())["design"]["num_cells_by_type"]


def summary(cells):
    def count(*patterns):
        return sum(number for name, number in cells.items() if any(re.fullmatch(p, name) for p in patterns))
    return {"cells": sum(cells.values()), "luts": count(r"LUT\d", "INV"), "registers": count("FD[RSCP]E"),
            "multipliers": count("DSP48E1"), "block_ram": count("RAMB36E1") + count("RAMB18E1") / 2,
            "distributed_ram": count(r"RAM(32|64|128|256)\w*"), "latches": count("LD[CP]E", r"\$_?DLATCH.*")}


def synthesise(config):
    start = time.monotonic()
    row = summary(cells_of(config))
    row["seconds"] = round(time.monotonic() - start)
    return row


def main():
    latches = 0
    for config in sys.argv[1:] or configurations():
        if config not in configurations():
            sys.exit(f"expected configurations out of {', '.join(configurations())}, found {config}")
        row = synthesise(config)
        latches += row["latches"]
        parts = [f"{name} {row[name]} ({100 * row[name] / most:.0f} % of a 7020)" for name, most in PART.items()]
        print(f"{config}: cells {row['cells']}, {', '.join(parts)}, distributed RAM {row['distributed_ram']}, "
              f"latches {row['latches']}, {row['seconds']} s", flush=True)
    return 1 if latches else 0


if __name__ == "__main__":
    sys.exit(main())
