#!/usr/bin/env python3
"""`tilewright compile` without a device or a log: the cost model chooses schedules, in the time of --effort."""
# Runs alone: it judges times.

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import make_models, run_checks  # noqa: E402
from network_check import check, command  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402

# On every processor that the model knows another schedule than the default gains a sixth for one of its layers.
NETWORK = ("mobilenet", VARIANTS["mobilenet"])


def compiled(model, module, *flags, target="native,threads=1"):
    return json.loads(command("compile", model, "--target", target, "-o", module, "--format", "json", *flags))


def predicted_schedules_are_used_and_right():
    name, options = NETWORK
    with tempfile.TemporaryDirectory(prefix="tilewright-effort-") as folder:
        row = check(name, options, folder, targets={"1t": ("native,threads=1", 1)}, compile_flags=("--effort", 300))
        assert row["good"], row
        assert row["runs"][0]["predicted"] > 0, row


def each_kernel_says_where_its_schedule_is_from():
    name, options = NETWORK
    with tempfile.TemporaryDirectory(prefix="tilewright-effort-") as folder:
        model, module = make_models(folder, name, *options) / name / "model.onnx", Path(folder) / "m.tw"
        one = compiled(model, module, "--effort", 300)
        manifest = module.read_bytes()
        predicted = [k for k in one["kernels"] if k["predicted"]]
        assert predicted and not any(k["tuned"] for k in one["kernels"]), one["kernels"]
        assert all(k["predicted_gain"] > 1 and k["task_hash"].encode() in manifest for k in predicted), predicted
        assert b"predicted_tasks" in manifest and one["tuned_percent"] == 0
        assert compiled(model, module, "--effort", 300)["sha256"] == one["sha256"], "the same model gives the same module"
        none = compiled(model, module, "--effort", 0)
        assert not any(k["predicted"] for k in none["kernels"]) and b"predicted_tasks" not in module.read_bytes()
        table = command("compile", model, "--target", "native,threads=1", "-o", module, "--effort", 300)
        assert table.count("predicted") == len(predicted), table
        # No model knows this kind of device yet: its default schedules stay.
        other = compiled(model, module, target="opencl")
        assert not any(k["predicted"] for k in other["kernels"])


def kernels_of_bytes_keep_their_defaults():
    """The model knows no program with dot products; what it chose was half as fast as the defaults."""
    with tempfile.TemporaryDirectory(prefix="tilewright-effort-") as folder:
        model, module = make_models(folder, "quantized") / "quantized" / "model.onnx", Path(folder) / "m.tw"
        kernels = compiled(model, module, "--effort", 60)["kernels"]
        of_bytes = {k["task_hash"] for k in compiled(model, module, "--effort", 0)["kernels"] if "tensorize" in k["steps"]}
        assert kernels and of_bytes, kernels
        assert not any(k["predicted"] for k in kernels if k["task_hash"] in of_bytes), kernels


if __name__ == "__main__":
    run_checks(predicted_schedules_are_used_and_right, each_kernel_says_where_its_schedule_is_from,
               kernels_of_bytes_keep_their_defaults)
