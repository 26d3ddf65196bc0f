#!/usr/bin/env python3
"""Models as PyTorch exports them (../models/exported_zoo.py): torchvision, timm, transformers with small configs and random
weights, and layers of torch.nn, by both exporters and with open sizes; and Keras models, layers and functions of TensorFlow by
tf2onnx (../models/exported_tensorflow.py). Each is compiled with default schedules for one thread,
run on the inputs that it was exported with, and must give what ONNX Runtime gives, within --tolerance of the output's spread;
or within 4 times as much as ONNX Runtime's own results move when each input moves to a neighbouring number, where that is more.
A row says operators, nodes, kernels, compile time, our time against ONNX Runtime's, or the refusal.

    exported_models.py [--python /tmp/tv/bin/python3] [--tensorflow /tmp/tf/bin/python3] [NAME[:FORM] ...] [--models DIR] [--build-dir DIR] [-o RESULT.json]

--models keeps the exported models from run to run. Writes tests/results/exported_models.json; exit code 1 after wrong numbers,
77 without a Python that has torch or TensorFlow. A model that these cannot export is counted, and is no failure of ours; nor is a refusal."""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

from lane import ROOT, commit

sys.path.insert(0, str(ROOT / "tests" / "models"))
from exported_facts import difference  # noqa: E402

ZOOS = {"python": ROOT / "tests" / "models" / "exported_zoo.py", "tensorflow": ROOT / "tests" / "models" / "exported_tensorflow.py"}
FACTS = ROOT / "tests" / "models" / "exported_facts.py"
STEADY = 4  # times what the roundings of the inputs do: those of every operator add up
LONGEST_S = 600  # of one command of ours
EXPORT_S = 900  # of one model's export


def listed(args):
    """row → the command that exports it."""
    rows = {}
    for option, zoo in ZOOS.items():
        python = getattr(args, option)
        if python:
            rows |= {row: [python, zoo] for row in subprocess.run([python, zoo], capture_output=True, text=True).stdout.split()}
        else:
            print(f"[SKIP] no --{option}: the models of {zoo.name} are NOT run", file=sys.stderr)
    return rows


class Lane:
    def __init__(self, args, scratch, rows):
        self.rows = rows
        self.args, self.cli, self.scratch = args, args.build_dir / "bin" / "tilewright", scratch
        self.models = args.models or scratch

    def call(self, *words):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LONGEST_S)
        return done.stdout, (done.stdout + done.stderr)[-1500:].strip() if done.returncode else None

    def exported(self, row):
        folder = self.models / row.replace(":", ".")
        if not (folder / "facts.json").exists():
            subprocess.run([*self.rows[row], self.models, row], capture_output=True, timeout=EXPORT_S)
        facts = folder / "facts.json"
        return folder, json.loads(facts.read_text()) if facts.exists() else {"failure": "the exporter died"}

    def row(self, name):
        folder, facts = self.exported(name)
        row = {"model": name} | {key: facts[key] for key in ("operators", "nodes") if key in facts}
        if "failure" in facts:
            return row | {"verdict": "not exported", "why": facts["failure"][:300]}
        module, start = self.scratch / "model.tw", time.monotonic()
        shapes = [word for label, (least, most) in facts.get("open", {}).items()
                  for word in ("--shape", f"{label}={least}..{most}")]
        table, error = self.call(self.cli, "compile", folder / "model.onnx", "--target", "native,threads=1", "--effort", 0,
                             *shapes, "-o", module)
        row["compile_s"] = round(time.monotonic() - start, 2)
        if error:
            slug = re.search(r"why: ([a-z0-9_.]+):", error)
            return row | {"verdict": "refused", "slug": slug.group(1) if slug else "", "why": error[:600]}
        row["kernels"] = len(re.findall(r"(?m)^t\d+-", table))
        return row | self.ran(module, folder, facts)

    def ran(self, module, folder, facts):
        """The rest of the row: each set of inputs, and the time of the first one."""
        found, out, over = {"difference": 0.0}, self.scratch / "out", False
        for label in facts["sets"]:
            inputs = [word for i, given in enumerate(facts["inputs"])
                      for word in ("--input", f"{given['name']}={folder}/input{label}_{i}.npy")]
            said, error = self.call(self.cli, "run", module, *inputs, "--output-dir", out, "--output-format", "npy",
                                    "--repeat", 5, "-o", "json")
            if error:
                return found | {"verdict": "wrong", "why": error[:600]}
            found.setdefault("ratio", round(json.loads(said)["latency_ms"]["median"] * 1e3 / facts["onnxruntime_us"], 2))
            far, ours, theirs = [], [], []
            for i in range(facts["outputs"]):
                ours.append(np.load(out / f"output_{i}.npy"))
                theirs.append(np.load(folder / f"expected{label}_{i}.npy"))
                far.append(difference(ours[i], theirs[i]))
                if not isinstance(far[i], float):
                    return found | {"verdict": "wrong", "why": f"output {i}: {far[i]}"}
            found["difference"] = max([found["difference"], *(float("%.2g" % one) for one in far)])
            if found["difference"] <= self.args.tolerance:
                continue
            if rows_change_places(ours, theirs, self.args.tolerance):
                found["places"] = "rows of equal score change places"
                continue
            moved = self.moved(folder, label)
            found["moved"] = max(found.get("moved", 0.0), float("%.2g" % max(moved)))
            over |= any(one > max(self.args.tolerance, STEADY * own) for one, own in zip(far, moved))
        return found | {"verdict": "wrong" if over else "right"}

    def moved(self, folder, label):
        """How far each output of ONNX Runtime moves with the roundings of the inputs; 0 where that is not known."""
        python = self.rows[":".join(folder.name.rsplit(".", 1))][0]
        return json.loads(subprocess.run([python, FACTS, folder, label, "3"], capture_output=True, text=True).stdout)


def rows_change_places(ours, theirs, tolerance):
    """Whether rows of all outputs, in another order, are what was expected, although an output of floats that puts them in order,
    such as the scores of boxes, is the same to six digits without that: it has equal numbers but for roundings."""
    lengths = {array.shape[:1] for array in theirs}
    in_order = [i for i, array in enumerate(theirs) if array.ndim == 1 and array.dtype.kind == "f" and
                np.allclose(ours[i], array, rtol=1e-5, atol=1e-6) and (np.diff(array) <= 0).all()]
    if len(lengths) != 1 or not in_order:
        return False
    left, order = list(range(next(iter(lengths))[0])), []
    for row in range(len(left)):
        def distance(other, row=row):
            return max(float(np.abs(np.subtract(a[other], b[row], dtype=np.float64)).max()) for a, b in zip(ours, theirs))
        order.append(min(left, key=distance))
        left.remove(order[-1])
    return all(difference(a[order], b) <= tolerance for a, b in zip(ours, theirs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME[:FORM]")
    parser.add_argument("--python", help="an interpreter that has torch, torchvision, timm, transformers, onnxruntime")
    parser.add_argument("--tensorflow", help="one that has tensorflow, tf2onnx, onnxruntime")
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--tolerance", type=float, default=2e-3, help="of the spread of an output (default 0.002)")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "exported_models.json")
    args = parser.parse_args()
    commands = listed(args)
    if not commands:
        print("[SKIP] neither --python nor --tensorflow: the exported models are NOT run")
        return 77
    rows = [row for row in commands if not args.names or row in args.names or row.split(":")[0] in args.names or
            ":" + row.split(":")[1] in args.names]
    result = {"lane": "exported_models", "commit": commit(args.output), "date": time.strftime("%Y-%m-%d", time.gmtime()),
              "command": " ".join(["tests/long/exported_models.py", *sys.argv[1:]]), "rows": []}
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        lane = Lane(args, pathlib.Path(scratch), commands)
        for name in rows:
            try:
                row = lane.row(name)
            except subprocess.TimeoutExpired:
                row = {"model": name, "verdict": "refused", "slug": "time-limit", "why": "longer than the lane allows"}
            result["rows"].append(row)
            print("%-34s %-12s nodes %5s  kernels %4s  compile %6s s  ratio %6s  difference %8s  moved %8s  %s" % (
                name, row["verdict"], row.get("nodes", ""), row.get("kernels", ""), row.get("compile_s", ""),
                row.get("ratio", ""), row.get("difference", ""), row.get("moved", ""),
                row.get("why", "")[:200].replace("\n", " ")), flush=True)
            counts = collections.Counter(row["verdict"] for row in result["rows"])
            result["counts"] = dict(counts)
            args.output.write_text(json.dumps(result, indent=1) + "\n")  # a lane that is stopped keeps its rows
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
