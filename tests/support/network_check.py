"""Whole networks from outside: made with chosen options, compiled by the real binary, run on one and two
threads, compared with the independent evaluator (and with golden outputs of ../shared where they are).
Used by tests/e2e/networks_quick.py (small) and tests/long/networks.py (full size).
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fleet import BIN, PYTHON, ROOT, expected_output, make_models  # noqa: E402

import numpy as np  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402

NAMES = ("resnet18", "mobilenet", "dqn", "dcgan", "lstm_lm", "resnet50", "bert_small")
MAX_NORM, MAX_ELEMENT = 1e-5, 1e-4
SHARED = Path(os.environ.get("TILEWRIGHT_SHARED", ROOT.parent / "shared"))


def load(path):
    return numpy_helper.to_array(TensorProto.FromString(Path(path).read_bytes())).astype(np.float64)


def errors(actual, expected):
    """(|a-e| / |e|, max|a-e| / max|e|); infinite where shapes differ or a value is not finite."""
    a, e = load(actual), load(expected)
    if a.shape != e.shape or not np.isfinite(a).all():
        return float("inf"), float("inf")
    return (float(np.linalg.norm(a - e) / np.linalg.norm(e)), float(np.abs(a - e).max() / np.abs(e).max()))


def golden(name, options):
    """The committed output of another implementation for the standard model; None where there is none."""
    path = SHARED / "models" / "golden" / name / "output_0.pb"
    return path if not options and path.exists() else None


def command(*args):
    done = subprocess.run([str(BIN / "tilewright"), *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"tilewright {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def build(model, target, label, module, trials, compile_flags, folder):
    """The module by predicted schedules for one thread and default ones for others, or tuned with some trials on a fleet of
    its own; facts for the row."""
    if trials == 0:
        effort = () if label == "1t" else ("--effort", 0)
        summary = json.loads(command("compile", model, "--target", target, "-o", module, "--format", "json", *effort,
                                     *compile_flags))
        return {"kernels": len(summary["kernels"]), "launches": sum(k["uses"] for k in summary["kernels"]),
                "predicted": sum(k["predicted"] for k in summary["kernels"])}
    log = Path(folder) / f"tuner-{label}.db"
    job = json.loads(command("tune", model, "--target", target, "--trials", trials, "--log", log, "--state-dir",
                             Path(folder) / f"state-{label}", "-o", module, "--format", "json"))
    records = [json.loads(line) for line in command("log", "export", "--log", log).splitlines()]
    outcomes = Counter(r["outcome"] for r in records if r["accepted"])
    made_of = set(re.search(rb'"log_records":"([^"]*)"', Path(module).read_bytes())[1].decode().split(","))
    chosen = {r["task"]: r for r in records if r["measurement_id"] in made_of}
    return {"kernels": len({r["task"] for r in records}), "launches": 0, "trials": job["progress"]["measured"],
            "outcomes": dict(outcomes), "tuned": sum(not r["is_default"] for r in chosen.values()),
            "variants": dict(Counter(r["steps"].split(";")[0] for r in chosen.values() if r["steps"].startswith("variant ")))}


PROCESSOR = {"1t": ("native,threads=1", 1), "2t": ("native,threads=2", 2)}


def check(name, options, folder, compile_flags=(), trials=0, targets=None, run_flags=()):
    """One network: compiles (or tunes) it for each target (label: target, threads) and runs it; a row of results.
    Without targets: this processor, one thread and two. run_flags: of `tilewright run`, for another machine."""
    case = make_models(folder, name, *options) / name
    expected = expected_output(case)
    row = {"network": name, "options": " ".join(map(str, options)), "runs": []}
    inputs = []
    for path in sorted((case / "test_data_set_0").glob("input_*.pb")):
        inputs += ["--input", f"{TensorProto.FromString(path.read_bytes()).name}={path}"]
    for label, (target, threads) in (targets or PROCESSOR).items():
        module, out = Path(folder) / f"{name}-{label}.tw", Path(folder) / f"out-{name}-{label}"
        start = time.monotonic()
        facts = build(case / "model.onnx", target, label, module, trials, compile_flags, folder)
        seconds = time.monotonic() - start
        command("run", module, *inputs, "--threads", threads, "--repeat", 1, "--output-dir", out, *run_flags)
        norm, largest = errors(out / "output_0.pb", expected)
        run = {"label": label, "threads": threads, **facts, "compile_s": round(seconds, 2), "norm": norm, "max": largest}
        other = golden(name, options)
        if other:
            run["golden_norm"], run["golden_max"] = errors(out / "output_0.pb", other)
        row["runs"].append(run)
    row["good"] = all(r["norm"] <= MAX_NORM and r["max"] <= MAX_ELEMENT and r.get("golden_norm", 0) <= MAX_NORM
                      and r.get("golden_max", 0) <= MAX_ELEMENT and set(r.get("outcomes", ())) <= {"OK", "EARLY_STOPPED"}
                      for r in row["runs"])
    return row


def text(row):
    parts = [f"{row['network']:10s} {row['options']:32s} {'ok' if row['good'] else 'WRONG'}"]
    for r in row["runs"]:
        made = (f"{r['trials']} trials, {r['tuned']} tuned {r['variants']}" if "trials" in r
                else f"{r['launches']} launches, {r['predicted']} kernels predicted")
        parts.append(f"{r['label']}: {r['kernels']} kernels, {made}, {r['compile_s']} s, "
                     f"norm {r['norm']:.2g} max {r['max']:.2g}"
                     + (f" golden {r['golden_norm']:.2g} {r['golden_max']:.2g}" if "golden_norm" in r else ""))
    return "  ".join(parts)
