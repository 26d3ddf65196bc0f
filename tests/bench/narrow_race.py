#!/usr/bin/env python3
"""How much faster networks are in narrow types than in float32, on one thread: schedules are the defaults, `tilewright bench diff`
runs the two modules in turns. In int8 on the processors of other machines that this one can be, in bf16 and float16 on its own.

    narrow_race.py [--types int8 bf16 f16] [--cpu NAME ...] [--threads N] [--seconds S] [-o RESULTS.json] [NETWORK ...]
    narrow_race.py --board [--types ...] [--cpu cortex-a76 neoverse-v1 ...] [-o RESULTS.json] [NETWORK ...]

`tilewright quantize` makes the int8 models; in the others all but inputs and outputs has 16 bits. A ratio is the time in float32 / the
time in the narrow type, the median of pairs. Exit code 1 if one of int8 or bf16 is below 1: then the narrow type is slower. f16 counts on boards alone: this machine converts it.
--board: on an emulated 64-bit Arm board (tests/support/board.py), in virtual cycles, which equal runs agree on to a thousandth."""

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "support"), str(ROOT / "long")]

import board  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from fleet import make_models  # noqa: E402
from half_tensors import half_tensor  # noqa: E402
from lane import commit  # noqa: E402
from network_check import command  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from quantized_networks import input_shape, noisy, quantize  # noqa: E402

# Dot products of bytes in AVX-512, none in AVX-512, AVX2, SSE2.
CPUS = ("icelake-server", "skylake-avx512", "haswell", "x86-64")
# Arithmetic in f16; that and products of f16 with sums in f32.
BOARD_CPUS = ("cortex-a76", "neoverse-v1")
NETWORKS = ("resnet18", "resnet50", "mobilenet", "dqn", "bert_small")
CALIBRATION = 4


def quantized(folder, path):
    shape = input_shape(onnx.load(path))
    rng = np.random.default_rng(0)
    np.save(folder / "data.npy", np.concatenate(
        [noisy(i, shape, i) if len(shape) == 4 else rng.normal(0, 1, shape).astype(np.float32) for i in range(CALIBRATION)]))
    quantize(path, folder / "data.npy", folder / "int8.onnx")
    return folder / "int8.onnx"


def halved(folder, path, element):
    """The model with every f32 in between in 16 bits."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        tensor.CopyFrom(half_tensor(numpy_helper.to_array(tensor), element, tensor.name))
    del model.graph.value_info[:]
    # Inputs and outputs stay, so that both modules read and write the same.
    inner = {value.name: value.name + "_half" for value in [*model.graph.input, *model.graph.output]
             if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [inner.get(name, name) for name in names]
    nodes = [helper.make_node("Cast", [value.name], [inner[value.name]], to=element)
             for value in model.graph.input if value.name in inner]
    nodes += model.graph.node
    nodes += [helper.make_node("Cast", [inner[value.name]], [value.name], to=TensorProto.FLOAT)
              for value in model.graph.output if value.name in inner]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, str(folder / "half.onnx"))
    return folder / "half.onnx"


MAKERS = {"int8": quantized, "bf16": lambda folder, path: halved(folder, path, TensorProto.BFLOAT16),
          "f16": lambda folder, path: halved(folder, path, TensorProto.FLOAT16)}


def race(folder, pair, target, seconds):
    modules = [folder / f"{i}.tw" for i in range(2)]
    for model, module in zip(pair, modules):
        command("compile", model, "--target", target, "--effort", 0, "-o", module)
    found = json.loads(command("bench", "diff", *modules, "--seconds", seconds, "-o", "json"))
    return {key: round(found[key], 3) for key in ("ratio", "ratio_low", "ratio_high")}


def board_race(folder, pair, target, cpu):
    """The same in virtual cycles, which one run of each gives."""
    cycles = []
    for i, model in enumerate(pair):
        command("compile", model, "--target", target, "--effort", 0, "-o", folder / f"{i}.tw")
        said = json.loads(command("run", folder / f"{i}.tw", "--bridge", board.counting_bridge(cpu), "--allow-weak-sandbox", "--repeat", 1,
                                  "-o", "json"))
        cycles.append(said["virtual_cycles"]["median"])
    return {"ratio": round(cycles[0] / cycles[1], 3), "cycles": cycles}


def runs_here(cpu):
    rows = json.loads(command("targets", "-o", "json"))["targets"]
    return any(row["runs_here"] for row in rows if row["target"] == f"cpu,arch=x86_64,cpu={cpu}")


def races(folder, pair, kind, cpus, flags):
    """A row for each processor that can be had."""
    for cpu in cpus if flags.board or kind == "int8" else ["native"]:
        target = cpu if cpu == "native" else f"cpu,arch={'aarch64' if flags.board else 'x86_64'},cpu={cpu}"
        if not flags.board and kind == "int8" and not runs_here(cpu):
            print(f"[SKIP] this machine cannot run code for {cpu}")
            continue
        target += f",threads={flags.threads}"
        row = board_race(folder, pair, target, cpu) if flags.board else race(folder, pair, target, flags.seconds)
        print(f"{pair[0].parent.name:12} {kind:5} {target:45} {row['ratio']:6.2f}", flush=True)
        yield {"target": target, **row}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="+", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--board", action="store_true", help="an emulated Arm board")
    parser.add_argument("--cpu", nargs="+", help="of int8; with --board of all types")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=NETWORKS)
    flags = parser.parse_args()
    cpus = flags.cpu or (BOARD_CPUS if flags.board else CPUS)
    if flags.board:
        board.build()
    rows = []
    for name in flags.networks:
        with tempfile.TemporaryDirectory(prefix="tilewright-narrow-") as where:
            folder = Path(where)
            path = make_models(folder, name, "--logits") / name / "model.onnx"
            for kind in flags.types:
                pair = path, MAKERS[kind](folder, path)
                rows += [{"network": name, "type": kind, **row} for row in races(folder, pair, kind, cpus, flags)]
    if flags.output:
        flags.output.write_text(json.dumps({
            "commit": commit(), "command": "tests/bench/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "machine": platform.machine(), "unit": f"{'virtual cycles' if flags.board else 'time'} in float32 / in the type", "rows": rows}, indent=1) + "\n")
    return 0 if all(row["ratio"] >= 1 for row in rows if row["type"] != "f16" or flags.board) else 1


if __name__ == "__main__":
    sys.exit(main())
