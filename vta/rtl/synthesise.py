#!/usr/bin/env python3
"""Synthesises the RTL with Yosys for Xilinx' 7 series and prints what it takes: look-up tables, registers, multipliers
(DSP48E1), block RAM (in RAMB36E1; a RAMB18E1 is half of one), distributed RAM. Exit code 1 if there is a latch.

  vta/rtl/synthesise.py block8 block16

Without names: every configuration of isa.def. Two to twenty minutes each; standard error says so every half minute.
With --json: one line of JSON for each, {"error": WHY} where Yosys fails, as `tilewright explore --synthesise` asks for it.
Wants `deploy/install_packages.sh --rtl`.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ISA = HERE.parent / "isa" / "vta_isa.sv"
TOP = "vta_core"
PROGRESS_S = 30
SYNTH = f"synth_xilinx -family xc7 -flatten -noiopad -top {TOP}"
# The part `coarse` of synth_xilinx without its step `share`: a SAT solver looks for cells that could be one, which takes it
# a quarter of the time. It finds shifts of different lanes, which saves 1 % of the tables and makes the paths longer.
STEPS = [f"{SYNTH} -run begin:coarse", "techmap -map +/cmp2lut.v -map +/cmp2lcu.v -D LUT_WIDTH=6", "alumacc", "opt",
         "memory -nomap", "opt_clean", f"{SYNTH} -run map_memory:"]
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


class SynthesisError(Exception):
    pass


def run_yosys(config, script, log):
    if shutil.which("yosys") is None:
        raise SynthesisError("yosys is not installed (deploy/install_packages.sh --rtl)")
    start = time.monotonic()
    with open(log, "w") as out, subprocess.Popen(["yosys", "-q", "-p", script], stdout=out, stderr=out) as yosys:
        while True:
            try:
                code = yosys.wait(timeout=PROGRESS_S)
                break
            except subprocess.TimeoutExpired:
                print(f"{config}: yosys has run for {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    if code != 0:
        raise SynthesisError(log.read_text()[-2000:] or f"yosys ended with exit code {code}")


def cells_of(config):
    """How many cells of each type the flattened accelerator has."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "stat.json"
        script = "; ".join([f"read_verilog -sv -D VTA_CONFIG_{config} {' '.join(map(str, sources()))}",
                            *STEPS, f"tee -q -o {result} stat -json"])
        run_yosys(config, script, pathlib.Path(folder) / "log")
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
    latches, as_json = 0, sys.argv[1:2] == ["--json"]
    for config in sys.argv[2 if as_json else 1:] or configurations():
        try:
            if config not in configurations():
                raise SynthesisError(f"expected configurations out of {', '.join(configurations())}, found {config}")
            row = synthesise(config)
        except SynthesisError as error:
            if not as_json:
                sys.exit(str(error))
            print(json.dumps({"error": str(error)}), flush=True)
            return 1
        if as_json:
            print(json.dumps(row), flush=True)
            continue
        latches += row["latches"]
        parts = [f"{name} {row[name]} ({100 * row[name] / most:.0f} % of a 7020)" for name, most in PART.items()]
        print(f"{config}: cells {row['cells']}, {', '.join(parts)}, distributed RAM {row['distributed_ram']}, "
              f"latches {row['latches']}, {row['seconds']} s", flush=True)
    return 1 if latches else 0


if __name__ == "__main__":
    sys.exit(main())
