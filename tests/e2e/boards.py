#!/usr/bin/env python3
"""A board of another architecture: the worker is built for 64-bit Arm as deploy/ops/boards says, and an agent of
this machine measures with it over a bridge. The emulator in place of the board counts virtual cycles (a plug-in of
ours): it proves function, and that equal jobs write equal logs; never speed."""
# Measures: a device is used in it, and no time is judged.

import json
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import board  # noqa: E402
from fleet import BIN, Fleet, make_models, run_checks, wait_for  # noqa: E402
from network_check import check, text  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402

C_LIBRARIES = {"libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1"}
MODELS = ("dqn", "resnet18", "mobilenet")  # all seven, in full size: tests/long/aarch64.py
SMALL = ("--size", 61, "--width", 0.4, "--seed", 14)  # dqn
TRIALS = 20  # until one of them is faster than the default schedule


# Cycles of one instruction, from a thousand of them.
COSTS = """
#include <stdint.h>
#include <stdio.h>
#define CYCLES ((volatile uint64_t*)%s)[1]
#define LOOP(text) ({ uint64_t start = CYCLES; for (int i = 0; i < 1000; ++i) __asm__ volatile(text ::: "v0", "x9", "p0"); CYCLES - start; })
#define COST(text) (LOOP(text "\\n" text) - LOOP(text) + 500) / 1000
int main(void) {
  const uint64_t costs[] = {INSTRUCTIONS};
  for (unsigned i = 0; i < sizeof(costs) / sizeof(costs[0]); ++i) printf("%%d ", (int)costs[i]);
}
""" % board.COUNTER


def needs_only_the_c_library():
    for path in (board.WORKER, board.OUT / "lib/libtilewright_runtime.so", board.OUT / "lib/libtilewright_device_opencl.so"):
        shown = board.call("readelf", "-hd", path)
        assert "AArch64" in shown, path
        needed = {line.split("[")[1].rstrip("]") for line in shown.splitlines() if "(NEEDED)" in line}
        assert needed <= C_LIBRARIES, f"{path.name}: {needed}"


def agent_measures_behind_a_bridge():
    with Fleet(devices=[board.device(board.bridge())]) as fleet:
        fleet.start_all()

        def found():
            listed = fleet.cli_json("devices", "list", *fleet.server())
            return next((d for d in listed if d["name"].endswith("board") and d["health"] == "good"), None)
        # Healthy: it ran the self-test's kernel with the right result.
        device = wait_for("the board", found, 60)
        assert device["attributes"]["arch"] == "aarch64", device


def models_run_behind_a_bridge():
    for name in MODELS:
        with tempfile.TemporaryDirectory(prefix="tilewright-boards-") as folder:
            row = check(name, VARIANTS[name], folder, targets={"aarch64": (board.TARGET, 1)},
                        run_flags=["--bridge", board.bridge(), "--allow-weak-sandbox"])
        print("        " + text(row))
        assert row["good"], "outputs differ from the evaluator's"


def equal_work_costs_equal_cycles():
    """The plug-in's table: a vector instruction costs the same in each of its forms, so that it orders kernels by work."""
    words = {"vector": "fmla v0.4s, v1.4s, v2.4s", "element": "fmla v0.4s, v1.4s, v2.s[1]", "dots": "sdot v0.4s, v1.16b, v2.16b",
             "half": "fmla v0.2s, v1.2s, v2.2s", "divide": "fdiv v0.4s, v1.4s, v2.4s", "sqrt": "fsqrt v0.4s, v1.4s",
             "scalar": "fmadd s0, s1, s2, s0", "add": "add x9, x9, x10", "sve": "fmla z0.s, p0/m, z1.s, z2.s",
             "sve_divide": "fdiv z0.s, p0/m, z0.s, z1.s", "sve_load": "ld1w z0.s, p0/z, [sp]", "predicate": "ptrue p0.s"}
    with tempfile.TemporaryDirectory(prefix="tilewright-boards-") as folder:
        source, program = Path(folder, "costs.c"), Path(folder, "costs")
        source.write_text(COSTS.replace("INSTRUCTIONS", ", ".join(f'COST("{text}")' for text in words.values())))
        board.call("aarch64-linux-gnu-gcc", "-O1", "-march=armv8.2-a+dotprod+sve", source, "-o", program)
        plugin = "-plugin", f"{board.PLUGIN},at={board.COUNTER},sve=256"
        cost = dict(zip(words, map(int, board.call(*board.emulated(*plugin, cpu="max,sve-max-vq=2"), program).split())))
    assert cost == {"vector": 2, "element": 2, "dots": 2, "half": 1, "divide": 20, "sqrt": 20, "scalar": 1, "add": 1, "sve": 4,
                    "sve_divide": 40, "sve_load": 1, "predicate": 1}, cost


def runs_behind_a_bridge_count_cycles():
    """`run` says cycles, not the emulator's time; so does the profile. A second run differs by what lies in the caches at its start."""
    with tempfile.TemporaryDirectory(prefix="tilewright-boards-") as folder:
        model, module = make_models(folder, "dqn", *SMALL) / "dqn/model.onnx", Path(folder, "dqn.tw")
        board.call(BIN / "tilewright", "compile", model, "--target", board.TARGET, "--effort", 0, "-o", module)
        run = [BIN / "tilewright", "run", module, "--bridge", board.counting_bridge(), "--allow-weak-sandbox", "--repeat", 2]
        one, two = (json.loads(board.call(*run, "--profile", "-o", "json")) for _ in range(2))
        said = board.call(*run)
    assert "latency_ms" not in one, one
    cycles, again = (document["virtual_cycles"]["median"] for document in (one, two))
    assert abs(cycles - again) < 1e-3 * cycles, (cycles, again)
    kernels = sum(kernel["median_us"] * 1000 for kernel in one["kernels"])
    assert 0.9 * cycles < kernels < 1.1 * cycles, (cycles, kernels)
    shown = int(re.search(r"^virtual_cycles median=(\d+) p10=\d+ p90=\d+ repeats=2$", said, re.M)[1])
    assert abs(cycles - shown) < 1e-3 * cycles, (cycles, said)


def tuned_records(model):
    with Fleet(devices=[board.device(board.counting_bridge())]) as fleet:
        fleet.target = board.TARGET
        fleet.start_all()
        fleet.tune(model, TRIALS, seed=7)
        return fleet.export()


def equal_seeds_write_equal_logs():
    with tempfile.TemporaryDirectory(prefix="tilewright-boards-") as folder:
        model = make_models(folder, "dqn", *SMALL) / "dqn/model.onnx"
        one, two = tuned_records(model), tuned_records(model)
    searched = [r for r in one if r["generated_by"] != "final"]
    assert len(searched) == TRIALS and {r["value_kind"] for r in one} == {"virtual_cycles"}, one
    assert len(one) > TRIALS, "no winner was measured again"
    assert {r["outcome"] for r in one} <= {"OK", "EARLY_STOPPED"}, one
    different = board.first_difference(board.transcript(one), board.transcript(two))
    assert not different, different


if __name__ == "__main__":
    board.build()
    run_checks(needs_only_the_c_library, agent_measures_behind_a_bridge, models_run_behind_a_bridge, equal_work_costs_equal_cycles,
               runs_behind_a_bridge_count_cycles, equal_seeds_write_equal_logs)
