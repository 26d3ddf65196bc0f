#!/usr/bin/env python3
"""ResNet-18's convolutions on an emulated 64-bit Arm board (tests/support/board.py), by virtual cycles and by instructions: our tuned kernels against
XNNPACK and OpenBLAS (with im2col) from Debian's packages for that architecture, in the same emulator with the same plug-in.

    TILEWRIGHT_BUILD_DIR=build/release tests/bench/board_race.py [--trials N] [--boards N] [--records FILE | --again] [--bytes]

Ours are the tasks of the tuned network, with what was fused into them (bias, ReLU, the residual sum); the libraries do the convolution
alone. A ratio is the better library's count over ours: above 1 we are better. --records: an export of an earlier run, in place of
tuning. --again: our schedules and the libraries' counts of the result's file; only our instructions are counted anew. Writes
tests/results/board_race.json; exit code 1 if a geometric mean (of cycles, of instructions) is below 1.

--bytes: the convolutions in 8-bit numbers instead, by default schedules (not tuned), on a processor with matrix products (i8mm):
by those, by dot products, and by XNNPACK, whose version has dot products only. Writes tests/results/board_bytes.json."""

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "tests/long"))
import board  # noqa: E402
from fleet import BIN, BUILD, Fleet, make_models  # noqa: E402
from lane import commit  # noqa: E402

RESULT = ROOT / "tests/results/board_race.json"
BYTES_RESULT = ROOT / "tests/results/board_bytes.json"
BYTES_CPU = "max"  # the emulator's processor with i8mm
SYSROOT = BUILD / "sysroot-arm64-peers"
LIBRARIES = ("libxnnpack-dev", "libxnnpack0", "libpthreadpool-dev", "libpthreadpool0", "libcpuinfo-dev", "libcpuinfo0",
             "libopenblas-pthread-dev")
OPENBLAS_CORE = "NEOVERSEN1"  # the board's processor by its other name; QEMU hides the register by which it would be recognised


def build_peers(cpu=board.CPU):
    """The command that runs the libraries' program. Skips the script if the package mirror does not answer."""
    fetched = subprocess.run([board.BOARDS / "sysroot.sh", SYSROOT, "arm64", *LIBRARIES], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
    if fetched.returncode != 0:
        sys.exit(f"[SKIP] board_race.py: no libraries to race against: {fetched.stdout.strip()[-200:]}")
    usr, program = SYSROOT / "usr", board.OUT / "board_peers"
    lib = usr / "lib/aarch64-linux-gnu"
    board.OUT.mkdir(exist_ok=True)
    board.call("aarch64-linux-gnu-g++", "-std=c++17", "-O2", f"-I{ROOT}", f"-I{usr}/include",
               f"-I{usr}/include/aarch64-linux-gnu/openblas-pthread", ROOT / "tests/bench/board_peers.cc", "-o", program,
               lib / "libXNNPACK.so", lib / "openblas-pthread/libopenblas.a", f"-Wl,-rpath-link,{lib}", "-lpthread", "-lm")
    return [*board.emulated("-E", f"LD_LIBRARY_PATH={lib}", "-E", f"OPENBLAS_CORETYPE={OPENBLAS_CORE}", "-E",
                            "OPENBLAS_NUM_THREADS=1", "-plugin", f"{board.PLUGIN},at={board.COUNTER}", cpu=cpu), program, board.COUNTER]


def tune(trials, boards):
    devices = [board.device(board.counting_bridge(), f"board{i}") for i in range(boards)]
    with Fleet(devices=devices) as fleet, tempfile.TemporaryDirectory(prefix="tilewright-board-race-") as folder:
        fleet.target = board.TARGET
        fleet.start_all()
        fleet.tune(make_models(folder, "resnet18") / "resnet18/model.onnx", trials, seed=1, timeout=36_000)
        return fleet.export()


def convolution(text):
    """(in, out, size, kernel, stride) of a task's canonical text; None if it has no convolution."""
    line = re.search(r"= conv2d\w*\(%(\d+), %(\d+).*?\{(.*?)\}", text)
    if line is None:
        return None
    shapes = {number: [int(d) for d in dims.split(",")] for number, dims in re.findall(r"%(\d+): \w+\[([\d,]+)\]", text)}
    data, weights = shapes[line[1]], shapes[line[2]]
    blocked = len(data) == 5  # N, C / b, H, W, b
    channels = data[1] * data[4] if blocked else data[1]
    outputs = weights[0] * (weights[-1] if len(weights) > 4 else 1)
    return channels, outputs, data[2], weights[2], int(re.search(r"strides=\[(\d+)", line[3])[1])


def ours(records):
    """Per convolution: the best task of its shape (with or without a residual sum), its default and its steps."""
    layers = {}
    for record in records:
        shape = convolution(record["task_text"])
        if shape is None or record["outcome"] != "OK":
            continue
        task = layers.setdefault(shape, {}).setdefault(record["task"], {"trials": 0, "best": math.inf})
        task["trials"] += 1
        if record["is_default"]:
            task["default"] = record["median"]
        if record["median"] < task["best"]:
            task.update(best=record["median"], steps=record["steps"], text=record["task_text"])
    return {shape: min(tasks.values(), key=lambda t: t["best"]) for shape, tasks in layers.items()}


def measure_peers(shapes, peers):
    """{name of the shape: {peer: its counts}}"""
    lines = "".join("x".join(map(str, shape)) + " " + " ".join(map(str, shape)) + "\n" for shape in shapes)
    shown = subprocess.run([str(word) for word in peers], input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = {}
    for name, peer, cycles, instructions in map(str.split, shown.splitlines()):
        found.setdefault(name, {})[peer] = {"cycles": int(cycles), "instructions": int(instructions)}
    return found


def counts(*arguments, lines=""):
    """The lines that board_counts prints."""
    if not (BIN / "board_counts").exists():
        sys.exit("[SKIP] board_race.py: no board_counts here: configure with -DTILEWRIGHT_BUILD_BENCH=ON and build it")
    return subprocess.run([BIN / "board_counts", *arguments], input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def count_instructions(rows):
    """Adds what our kernels need: the same code as in modules, whose virtual cycles are measured."""
    lines = "".join(row["task"].replace("\n", "|") + "\t" + row["steps"] + "\n" for row in rows)
    for row, line in zip(rows, counts("schedules", board.TARGET, lines=lines), strict=True):
        row["instructions"] = int(line.split()[1])
        best = min(peer["instructions"] for peer in row["peers"].values())
        row["ratio_instructions"] = round(best / row["instructions"], 3)


def race_bytes():
    start, layers = time.monotonic(), {}
    for words in map(str.split, counts("bytes")):
        counts = {"cycles": int(words[6]), "instructions": int(words[7])}
        layers.setdefault(tuple(map(int, words[:5])), {})[words[5]] = counts
    found = measure_peers(layers, [*build_peers(BYTES_CPU), "bytes"])
    rows = [{"layer": dict(zip(("in", "out", "size", "kernel", "stride"), shape)), **ours, **found["x".join(map(str, shape))]}
            for shape, ours in layers.items()]
    means = {}
    for unit in ("instructions", "cycles"):
        for rival in ("usdot", "XNNPACK"):
            ratios = [row[rival][unit] / row["usmmla"][unit] for row in rows if "usmmla" in row]
            means[f"{rival} over usmmla, {unit}"] = round(geometric_mean(ratios), 3)
    for row in rows:
        print("x".join(map(str, row["layer"].values())), {name: count["instructions"] for name, count in row.items() if name != "layer"})
    print(means)
    BYTES_RESULT.write_text(json.dumps({
        "lane": "board_bytes", "commit": commit(BYTES_RESULT), "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": " ".join(["tests/bench/board_race.py", *sys.argv[1:]]), "seconds": round(time.monotonic() - start, 1),
        "geometric_means": means, "rows": rows}, indent=1) + "\n")


def race(layers, peers):
    found = measure_peers(layers, peers)
    rows = []
    for shape, task in sorted(layers.items(), key=lambda item: (-item[0][2], item[0])):
        peers_of = found["x".join(map(str, shape))]
        best = min(peer["cycles"] for peer in peers_of.values())
        rows.append({"layer": dict(zip(("in", "out", "size", "kernel", "stride"), shape)), "ours": task["best"],
                     "default": task.get("default"), "trials": task["trials"], "task": task["text"], "steps": task["steps"], "peers": peers_of,
                     "ratio": round(best / task["best"], 3)})
    return rows


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--boards", type=int, default=2)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--keep-records", type=Path, help="where the export of the tuning goes")
    parser.add_argument("--bytes", action="store_true")
    flags = parser.parse_args()
    if flags.bytes:
        race_bytes()
        return
    start, earlier = time.monotonic(), {}
    if flags.again:
        earlier = json.loads(RESULT.read_text())
        rows = earlier["rows"]
    else:
        board.build()
        peers = build_peers()
        if flags.records:
            records = [json.loads(line) for line in flags.records.read_text().splitlines()]
        else:
            records = tune(flags.trials, flags.boards)
        if flags.keep_records:
            flags.keep_records.write_text("".join(json.dumps(record) + "\n" for record in records))
        rows = race(ours(records), peers)
        earlier = {"lane": "board_race", "commit": commit(RESULT), "date": time.strftime("%Y-%m-%d", time.gmtime()), "target": board.TARGET,
                   "command": " ".join(["tests/bench/board_race.py", *sys.argv[1:]]), "trials": len(records),
                   "seconds": round(time.monotonic() - start, 1)}
    count_instructions(rows)
    for row in rows:
        rivals = "  ".join(f"{name} {peer['cycles'] / 1e6:.1f} {peer['instructions'] / 1e6:.1f}" for name, peer in row["peers"].items())
        print(f"{'x'.join(map(str, row['layer'].values())):20s} M cycles and instructions: ours {row['ours'] / 1e6:.1f} {row['instructions'] / 1e6:.1f}  "
              f"{rivals}  ratios {row['ratio']:.2f} {row['ratio_instructions']:.2f}")
    mean, of_instructions = (geometric_mean([row[ratio] for row in rows]) for ratio in ("ratio", "ratio_instructions"))
    print(f"geometric means over {len(rows)} layers: cycles {mean:.2f}, instructions {of_instructions:.2f}")
    RESULT.write_text(json.dumps({
        **earlier, "geometric_mean": round(mean, 3), "geometric_mean_instructions": round(of_instructions, 3),
        "instructions_of": commit(RESULT), "rows": rows}, indent=1) + "\n")
    sys.exit(0 if min(mean, of_instructions) >= 1 else 1)


if __name__ == "__main__":
    main()
