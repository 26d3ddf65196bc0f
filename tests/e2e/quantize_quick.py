#!/usr/bin/env python3
"""`tilewright quantize` on whole networks with fresh weights: the int8 model against the float model on inputs that
calibration did not see, both compiled and run by the command line; kept layers, weights alone, refusals, the same bytes
each time. ResNet-18 at 224 gets a classifier that tells seeded classes apart, so that its top-1 means something."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, make_models, run_checks  # noqa: E402
from network_check import command  # noqa: E402
from quantized_networks import (CALIBRATION, CLASSES, MIN_SAME, decibels, input_shape, noisy, quantize,  # noqa: E402
                                results, with_classifier)

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402

def resnet18_tells_the_same_classes():
    with tempfile.TemporaryDirectory(prefix="tilewright-quantize-") as folder:
        path = make_models(folder, "resnet18", "--logits") / "resnet18" / "model.onnx"
        model = with_classifier(path, folder)
        shape = input_shape(onnx.load(model))
        np.save(Path(folder) / "data.npy", np.concatenate([noisy(c, shape, 1000 + c) for c in range(CALIBRATION)]))
        int8 = Path(folder) / "int8.onnx"
        report = quantize(model, Path(folder) / "data.npy", int8)
        assert len(report["layers"]) == 21 and not report["float_layers"], report
        assert report["folded_norms"] == 20 and report["samples"] == CALIBRATION, report
        assert report["bytes_after"] < 0.27 * report["bytes_before"], report
        worst = min(row["alone_db"] for row in report["layers"])
        unseen = [noisy(c, shape, 2000 + c) for c in range(CLASSES)]
        exact, rounded = results(model, unseen, folder), results(int8, unseen, folder)
        right = int((exact.argmax(axis=1) == np.arange(CLASSES)).sum())
        same = int((exact.argmax(axis=1) == rounded.argmax(axis=1)).sum())
        db = decibels(exact, rounded)
        print(f"        layers alone at least {worst:.1f} dB, unseen inputs {db:.1f} dB, top-1 the same in {same} of {CLASSES}; "
              f"the float model names {right} of {CLASSES} classes")
        assert len(set(exact.argmax(axis=1))) >= CLASSES / 2, "a network that says the same of all tells nothing"
        assert worst > 30 and db > 17 and same >= MIN_SAME
        # Every layer runs on bytes, to the last addition, without a conversion to floats in memory between them.
        kernels = json.loads(command("compile", int8, "--target", "native,threads=1", "--effort", 0, "-o",
                                     Path(folder) / "m.tw", "--format", "json"))["kernels"]
        tasks = [k["task_name"] for k in kernels if k["task_name"].startswith(("conv2d", "dense"))]
        assert all("quantize" in task or task.startswith("dense") for task in tasks), tasks


def other_networks_lose_little():
    for name, options, least in (("mobilenet", ("--size", 96), 25), ("dqn", (), 22), ("bert_small", (), 25)):
        with tempfile.TemporaryDirectory(prefix="tilewright-quantize-") as folder:
            path = make_models(folder, name, "--logits", *options) / name / "model.onnx"
            shape = input_shape(onnx.load(path))
            inputs = [noisy(s, shape, s) if len(shape) == 4 else np.random.default_rng(s).normal(0, 1, shape).astype(np.float32)
                      for s in range(10)]
            np.save(Path(folder) / "data.npy", np.concatenate(inputs[:8]))
            int8 = Path(folder) / "int8.onnx"
            report = quantize(path, Path(folder) / "data.npy", int8)
            on_data = min(row["db"] for row in report["outputs"])
            feed = onnx.load(path).graph.input[0].name
            db = decibels(results(path, inputs[8:], folder, feed), results(int8, inputs[8:], folder, feed))
            print(f"        {name}: {len(report['layers'])} layers in int8, {on_data:.1f} dB on the data, {db:.1f} dB unseen")
            assert db > least and abs(db - on_data) < 8, name


def small_case(folder):
    path = make_models(folder, "dqn", "--logits", "--width", "0.5") / "dqn" / "model.onnx"
    shape = input_shape(onnx.load(path))
    for s in range(3):
        data = Path(folder) / "sets" / f"test_data_set_{s}"
        data.mkdir(parents=True)
        (data / "input_0.pb").write_bytes(numpy_helper.from_array(noisy(s, shape, s), "input").SerializeToString())
    np.save(Path(folder) / "stacked.npy", np.concatenate([noisy(s, shape, s) for s in range(3)]))
    return path, shape


def kept_layers_and_other_forms():
    with tempfile.TemporaryDirectory(prefix="tilewright-quantize-") as folder:
        path, _ = small_case(folder)
        sets, stacked = Path(folder) / "sets", Path(folder) / "stacked.npy"
        first = quantize(path, sets, Path(folder) / "a.onnx")
        again = quantize(path, stacked, Path(folder) / "b.onnx")
        assert first["samples"] == again["samples"] == 3
        bytes_a, bytes_b = (Path(folder) / "a.onnx").read_bytes(), (Path(folder) / "b.onnx").read_bytes()
        assert bytes_a == bytes_b, "the same data in another form gives another model"
        worst = first["layers"][0]["node"]
        assert first["layers"] == sorted(first["layers"], key=lambda row: row["alone_db"]), "worst first"
        kept = quantize(path, sets, Path(folder) / "c.onnx", "--keep", worst)
        assert [row["node"] for row in kept["float_layers"]] == [worst]
        assert worst not in {row["node"] for row in kept["layers"]}
        assert kept["outputs"][0]["db"] > first["outputs"][0]["db"]
        for flags in (("--activations", "int8"), ("--ranges", "minmax"), ("--ranges", "percentile=99.9")):
            other = quantize(path, sets, Path(folder) / "d.onnx", *flags)
            assert other["outputs"][0]["db"] > 20, (flags, other["outputs"])
            assert (Path(folder) / "d.onnx").read_bytes() != bytes_a, flags
        types = {t.data_type for t in onnx.load(Path(folder) / "a.onnx").graph.initializer}
        assert TensorProto.UINT8 in types and TensorProto.INT8 in types and TensorProto.INT32 in types, types
        text = command("quantize", path, "--weights-only", "-o", Path(folder) / "w.onnx")
        assert "5 layers in int8" in text, text
        weights = onnx.load(Path(folder) / "w.onnx")
        assert not [n for n in weights.graph.node if n.op_type == "QuantizeLinear"]
        onnx.checker.check_model(weights)
        report = quantize(path, sets, Path(folder) / "w.onnx", "--weights-only")
        assert report["outputs"][0]["db"] > first["outputs"][0]["db"] and report["ranges"] == ""


def refused(code, slug, *args):
    done = subprocess.run([str(BIN / "tilewright"), "quantize", *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, (args, done.returncode, done.stderr)
    assert f"why: {slug}: " in done.stderr and "\n  do:  " in done.stderr, (args, done.stderr)


def refusals_say_why_and_leave_nothing():
    with tempfile.TemporaryDirectory(prefix="tilewright-quantize-") as folder:
        path, shape = small_case(folder)
        out = Path(folder) / "out.onnx"
        sets = Path(folder) / "sets"
        bad = noisy(0, shape, 0)
        bad[0, 0, 0, 0] = np.nan
        np.save(Path(folder) / "nan.npy", bad)
        np.save(Path(folder) / "small.npy", bad[:, :, 1:])
        (Path(folder) / "empty").mkdir()
        command("quantize", path, "--data", sets, "-o", Path(folder) / "done.onnx")
        refused(2, "cli.usage.data", path, "-o", out)
        refused(2, "quantize.ranges.unknown", path, "--data", sets, "--ranges", "entropy", "-o", out)
        refused(3, "file.stat.failed", path, "--data", Path(folder) / "nowhere", "-o", out)
        refused(1, "cli.calibration.none", path, "--data", Path(folder) / "empty", "-o", out)
        refused(1, "cli.calibration.not_finite", path, "--data", Path(folder) / "nan.npy", "-o", out)
        refused(1, "cli.input.shape", path, "--data", Path(folder) / "small.npy", "-o", out)
        refused(1, "quantize.keep.unknown", path, "--data", sets, "--keep", "nothing", "-o", out)
        refused(1, "quantize.model.quantized", Path(folder) / "done.onnx", "--data", sets, "-o", out)
        refused(3, "file.read.failed", Path(folder) / "no.onnx", "--data", sets, "-o", out)
        (sets / "test_data_set_1" / "input_0.pb").rename(sets / "test_data_set_1" / "input_7.pb")
        refused(1, "cli.calibration.missing", path, "--data", sets, "-o", out)
        assert not out.exists()


def onnx_runtime_reads_it():
    try:
        import onnxruntime
    except ImportError:
        print("[SKIP] no onnxruntime for this Python: the quantised model is NOT read by it", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-quantize-") as folder:
        path, shape = small_case(folder)
        int8 = Path(folder) / "int8.onnx"
        quantize(path, Path(folder) / "sets", int8)
        unseen = [noisy(s, shape, s) for s in range(50, 54)]
        session = onnxruntime.InferenceSession(str(int8), providers=["CPUExecutionProvider"])
        theirs = np.array([session.run(None, {"input": x})[0].ravel() for x in unseen])
        exact = results(path, unseen, folder)
        ours = results(int8, unseen, folder)
        print(f"        {decibels(exact, theirs):.1f} dB in ONNX Runtime, {decibels(exact, ours):.1f} dB here")
        assert abs(decibels(exact, theirs) - decibels(exact, ours)) < 1


if __name__ == "__main__":
    run_checks(resnet18_tells_the_same_classes, other_networks_lose_little, kept_layers_and_other_forms,
               refusals_say_why_and_leave_nothing, onnx_runtime_reads_it)
