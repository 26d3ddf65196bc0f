#!/usr/bin/env python3
"""The real models beside the repository (../shared/onnx): of each of models/ every test set must give the expected outputs, within
the tolerances of its info.json, on one thread and on two, from a module of the sizes of the set and from one that keeps the sizes
open that the model leaves open. Each of light/ must import, compile, be tuned and run; their outputs say nothing.

    shared_models.py [NAME ...] [--shared DIR] [--build-dir DIR] [--trials N] [-o RESULT.json]

Writes tests/results/shared_models.json; exit code 1 after a difference or a refusal, 77 where the models are not there.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from lane import ROOT, commit

LONGEST_S = 900  # of one command


def open_sizes(facts):
    """--shape for each variable of the inputs: from the least size that a test set has to twice the largest."""
    seen = {}
    for i, declared in enumerate(facts["inputs"]):
        for axis, size in enumerate(declared["shape"]):
            if not isinstance(size, int) or size < 0:
                name = f"{declared['name']}_{axis}" if size in ("?", -1) else size
                seen.setdefault(name, []).extend(one["inputs"][i]["shape"][axis] for one in facts["sets"])
    return [f"{name}={min(sizes)}..{2 * max(sizes)}" for name, sizes in seen.items()]


class Lane:
    def __init__(self, args, scratch):
        self.cli = args.build_dir / "bin" / "tilewright"
        self.compare = args.shared / "compare_pb.py"
        self.trials = args.trials
        self.scratch = scratch
        self.log = scratch / "tuner.db"

    def call(self, *words):
        """What a command says, and its error; None: it is well."""
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LONGEST_S)
        return done.stdout, (done.stdout + done.stderr)[-800:] if done.returncode else None

    def compiled(self, folder, threads, shapes):
        start = time.monotonic()
        module = self.scratch / "model.tw"
        _, error = self.call(self.cli, "compile", folder / "model.onnx", "--target", f"native,threads={threads}", "--effort", 0,
                             *[word for shape in shapes for word in ("--shape", shape)], "-o", module)
        return module, error, round(time.monotonic() - start, 2)

    def compared(self, module, folder, test_set, info):
        """Why the outputs of one test set are not the expected ones; None: they are."""
        data, out = folder / test_set["dir"], self.scratch / "out"
        inputs = [word for i, given in enumerate(test_set["inputs"]) for word in ("--input", f"{given['name']}={data}/input_{i}.pb")]
        _, error = self.call(self.cli, "run", module, *inputs, "--output-dir", out, "--repeat", 1)
        return error or self.call("/usr/bin/python3", self.compare, out, data, "--info", info)[1]

    def model(self, folder):
        """The rows of one model: for each form of it how many test sets were right, and what was not."""
        info = folder / "info.json"
        facts = json.loads(info.read_text())
        sets, ranges = facts["sets"], open_sizes(facts)
        rows = []
        for threads in (1, 2):
            if ranges:
                rows.append(self.row(folder, info, "open", threads, sets, ranges))
            for one in sets:
                shapes = ["%s=%s" % (given["name"], "x".join(map(str, given["shape"]))) for given in one["inputs"]]
                rows.append(self.row(folder, info, one["dir"], threads, [one], shapes))
        return rows

    def row(self, folder, info, form, threads, sets, shapes):
        module, error, seconds = self.compiled(folder, threads, shapes)
        problems = [error] if error else list(filter(None, (self.compared(module, folder, one, info) for one in sets)))
        return {"model": folder.name, "form": form, "threads": threads, "compile_s": seconds, "sets": len(sets),
                "right": 0 if error else len(sets) - len(problems), "problems": problems}

    def light(self, folder):
        module, error, seconds = self.compiled(folder, 2, [])
        for words in (["run", module, "--repeat", 1],
                      ["tune", folder / "model.onnx", "--target", "native,threads=2", "--trials", self.trials, "--log", self.log,
                       "--state-dir", self.scratch / "state", "-o", module],
                      ["run", module, "--repeat", 1]):
            error = error or self.call(self.cli, *words)[1]
        return {"model": folder.name, "form": "light", "threads": 2, "compile_s": seconds, "sets": 1, "right": int(error is None),
                "problems": [error] if error else []}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared" / "onnx")
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--trials", type=int, default=64, help="of each of light/ (default 64)")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "shared_models.json")
    args = parser.parse_args()
    folders = [path.parent for part in ("models", "light") for path in sorted(args.shared.glob(f"{part}/*/model.onnx"))
               if not args.names or path.parent.name in args.names]
    if not folders:
        print(f"[SKIP] {args.shared} has no models/*/model.onnx: the real models are NOT run")
        return 77
    result = {"lane": "shared_models", "commit": commit(args.output), "date": time.strftime("%Y-%m-%d", time.gmtime()),
              "command": " ".join(["tests/long/shared_models.py", *sys.argv[1:]]), "rows": []}
    with tempfile.TemporaryDirectory() as scratch:
        lane = Lane(args, pathlib.Path(scratch))
        for folder in folders:
            rows = [lane.light(folder)] if folder.parent.name == "light" else lane.model(folder)
            for row in rows:
                print("%-30s %-16s %d threads  %d of %d right  compiled in %5.1f s  %s" % (
                    row["model"], row["form"], row["threads"], row["right"], row["sets"], row["compile_s"],
                    "\n".join(row["problems"])), flush=True)
            result["rows"] += rows
    wrong = [row for row in result["rows"] if row["right"] < row["sets"]]
    result["models"] = len(folders)
    result["right"] = sum(row["right"] for row in result["rows"])
    result["wrong"] = sum(row["sets"] - row["right"] for row in result["rows"])
    result["longest_compile_s"] = max(row["compile_s"] for row in result["rows"])
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['right']} right, {result['wrong']} not, of {len(folders)} models; the longest compile {result['longest_compile_s']} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
