#!/usr/bin/env python3
"""DQN's output against an independent evaluator, untuned and tuned: the standard model, a fresh input,
fresh weights, another image size and width. |a-e|/|e| <= 1e-5 and max|a-e| <= 1e-4 max|e|."""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, PYTHON, ROOT, Fleet, expected_output, make_models, run_checks  # noqa: E402

VARIANTS = {"standard": (), "weights": ("--seed", 5), "size": ("--size", 100), "width": ("--width", 1.5),
            "odd": ("--size", 61, "--width", 0.7)}
SHARED_GOLDEN = ROOT.parent / "shared/models/golden/dqn/output_0.pb"

fleet = Fleet(threads=2)


def check_module(module, case, expected, folder, source=None):
    source = source or case / "test_data_set_0" / "input_0.pb"
    for threads in (1, 2):
        subprocess.run([str(BIN / "tilewright"), "run", str(module), "--input", f"input={source}", "--threads",
                        str(threads), "--repeat", "1", "--output-dir", str(folder)], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([PYTHON, str(ROOT / "tests/models/compare_outputs.py"), str(folder / "output_0.pb"),
                               str(expected)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def untuned_variants_are_exact_enough():
    for name, options in VARIANTS.items():
        case = make_models(fleet.state / name, "dqn", *options) / "dqn"
        module = fleet.state / f"{name}.tw"
        fleet.cli("compile", case / "model.onnx", "--target", fleet.target, "-o", module)
        check_module(module, case, expected_output(case), fleet.state / f"out-{name}")


def tuned_variants_are_exact_enough():
    fleet.start_all()
    for name in ("standard", "odd"):
        case = fleet.state / name / "dqn"
        module = fleet.tune(case / "model.onnx", 30, output=fleet.state / f"{name}-tuned.tw")
        check_module(module, case, case / "expected/output_0.pb", fleet.state / f"out-{name}-tuned")


def a_fresh_input_is_exact_enough():
    # The weights variant's input is another draw; its shape is the standard model's.
    case, other = fleet.state / "standard/dqn", fleet.state / "weights/dqn/test_data_set_0/input_0.pb"
    out = fleet.state / "fresh-expected"
    subprocess.run([PYTHON, str(ROOT / "tests/models/numpy_eval.py"), str(case / "model.onnx"), str(other), "-o",
                    str(out)], check=True, stdout=subprocess.DEVNULL)
    for module in ("standard.tw", "standard-tuned.tw"):
        check_module(fleet.state / module, case, out / "output_0.pb", fleet.state / "out-fresh", other)


def the_shared_golden_agrees():
    if not SHARED_GOLDEN.exists():
        print("[SKIP] no shared golden output beside this checkout")
        return
    case = fleet.state / "standard/dqn"
    for module in ("standard.tw", "standard-tuned.tw"):
        check_module(fleet.state / module, case, SHARED_GOLDEN, fleet.state / "out-golden")


if __name__ == "__main__":
    try:
        run_checks(untuned_variants_are_exact_enough, tuned_variants_are_exact_enough, a_fresh_input_is_exact_enough,
                   the_shared_golden_agrees)
    finally:
        fleet.__exit__(None, None, None)
