#!/usr/bin/env python3
"""CUDA C, HIP, Metal and OpenCL C on the emulated GPU (../support/simt), and what NVRTC makes of whole networks:

    random      random programs, random schedules for groups of threads, and random points of the search's spaces against the
                interpreter, in all languages; NVRTC and clang compile some of the texts (../differential/random_simt_test.cc);
                8 chunks
    resources   the seven networks, in full size with default schedules, compiled for sm_80, sm_90 and sm_90a: no kernel spills.
                Needs NVRTC
    offered     what the search offers for each task of the seven networks and each of these machines, its first --picks: all can
                be built, but for those over a limit of the device (../bench/offered_kernels.cc). Needs NVRTC
    networks    ../e2e/networks_cuda.py --long and networks_text.py --long: small networks run on the emulator, by a driver that
                stands in for the vendor's, or by plug-ins of the tests

    TILEWRIGHT_BUILD_DIR=build/release tests/long/simt.py [--rounds N] [--picks N] [--again] [PART[:ROW] ...]

PART:ROW is one row of a part, as in resources:dqn or random:3. Each row is written to tests/results/simt.json when it is
done. A run continues where an earlier one of the same commit ended; --again measures rows anew. Exit code 1 when a bar is
missed."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import row_lane
import seeded_lane
from lane import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))
from fleet import BIN, PYTHON, make_models  # noqa: E402
from network_check import NAMES, command  # noqa: E402

CHUNKS = 8
FIRST_SEED = 60_000  # the CI lane's are small
MACHINES = ("sm_80", "sm_90", "sm_90a")
KERNEL = re.compile(r"^(\S+) registers=(\d+) spill_bytes=(\d+) ", re.M)


def random_chunk(name, flags):
    seed, counts = FIRST_SEED + int(name), {}
    failure = seeded_lane.run_chunk(BIN / "random_simt_test", seed, flags.rounds, counts, "")
    row = {"good": failure is None, "seed": seed, "rounds": flags.rounds, "counts": counts}
    return row if failure is None else dict(row, failure=failure)


def resources(name, _):
    row = {"good": True, "machines": {}}
    for machine in MACHINES:
        with tempfile.TemporaryDirectory(prefix="tilewright-simt-") as folder:
            model = make_models(folder, name) / name / "model.onnx"
            dump = Path(folder) / "dump"
            command("compile", model, "--target", f"cuda,arch={machine}", "--effort", 0, "--dump-ir", dump, "-o",
                    Path(folder) / "model.tw")
            kernels = KERNEL.findall("".join(path.read_text() for path in dump.glob("*.resources")))
        spilling = [kernel for kernel, _, spilled in kernels if int(spilled) > 0]
        row["machines"][machine] = {"kernels": len(kernels), "most_registers": max(int(k[1]) for k in kernels),
                                    "spilling": spilling}
        row["good"] = row["good"] and kernels and not spilling
    row["good"] = bool(row["good"])
    return row


def offered(name, flags):
    row = {"good": True, "machines": {}}
    for machine in MACHINES:
        with tempfile.TemporaryDirectory(prefix="tilewright-simt-") as folder:
            model = make_models(folder, name) / name / "model.onnx"
            done = subprocess.run([BIN / "offered_kernels", f"cuda,arch={machine}", str(flags.picks), "1", model], capture_output=True, text=True,
                                  check=False)
        tasks = [json.loads(line) for line in done.stdout.splitlines()]
        count = {key: sum(task[key] for task in tasks) for key in ("offered", "built")}
        failures = [dict(failure, task=task["task"]) for task in tasks for failure in task["failures"]]
        row["machines"][machine] = dict(count, tasks=len(tasks), failures=failures[:3])
        row["good"] = row["good"] and done.returncode == 0 and bool(tasks)
        if done.returncode != 0 and not failures:
            row["failure"] = done.stderr[-2000:]
    return row


def networks(name, _):
    done = subprocess.run([PYTHON, ROOT / "tests/e2e" / f"{name}.py", "--long"], capture_output=True, text=True, check=False)
    print(done.stdout, end="", flush=True)
    row = {"good": done.returncode == 0, "result": (done.stdout.strip().splitlines() or [""])[-1]}
    return row if row["good"] else dict(row, failure=(done.stdout + done.stderr)[-5000:])


PARTS = {"random": (tuple(str(i) for i in range(CHUNKS)), random_chunk), "resources": (NAMES, resources), "offered": (NAMES, offered),
         "networks": (("networks_cuda", "networks_text"), networks)}

def add_flags(parser):
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--picks", type=int, default=16)


if __name__ == "__main__":
    row_lane.main("simt", __doc__, PARTS, add_flags)
