#!/usr/bin/env python3
"""Models of which a run decides something, on devices: found sizes, loops, an If, open sizes, a state. Launches of fixed sizes run on the
device, the others on the processor. OpenCL and Vulkan; some on an emulated GPU (networks_cuda.py), which refuses races. Against NumPy where the processor's tests are, else against the processor's module."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import loops
import numpy as np
from found_sizes import FLOAT, MOST, run_checks, save, suppressed, tilewright, tw
from loops import node, value

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, BUILD, skip  # noqa: E402

KINDS = ("opencl", "vulkan")
GPU = "cuda,arch=sm_90"
FAKES = str(BUILD / "tests/support/simt/fake_cuda")
LOOPS = (loops.data_decide_how_often, loops.loops_in_loops, loops.a_run_takes_one_way, loops.values_that_swap,
         loops.trips_find_sizes_of_their_own, loops.states_that_grow, loops.lists_of_open_length)


def compiled(path, target, *words):
    """The module's path, and what the compiler said of its kernels."""
    module = path.with_suffix(f".{target.split(',')[0]}.tw")
    said = json.loads(tilewright("compile", path, "--target", target, "--effort", 0, *words, "-o", module, "--format", "json"))
    return module, said["kernels"]


def session(module, threads=1):
    try:
        return tw.Session(tw.Module(str(module)), threads)
    except tw.Error as error:
        if "runtime.device.none" in str(error):
            skip("no device of the kind")
        raise


def name_of(target):
    return target.split(",")[0]


def sides(kernels):
    """Names of the operators whose kernels are on the device, and on the processor."""
    return tuple({k["task_name"].split()[0] for k in kernels if k["on_host"] == here} for here in (False, True))


def equal(found, wanted, rtol=1e-4, atol=1e-5):
    assert found.keys() == wanted.keys()
    for name, numbers in wanted.items():
        assert found[name].shape == numbers.shape, (name, found[name].shape, numbers.shape)
        np.testing.assert_allclose(found[name], numbers, rtol=rtol, atol=atol, err_msg=name)


def ssd(path):
    """A small detector: convolutions, then boxes and scores of 6 x 6 places, of which suppression chooses some."""
    rng = np.random.default_rng(7)
    weights = {f"w{i}": (rng.standard_normal(shape) * 0.3).astype(np.float32)
               for i, shape in enumerate(((8, 3, 3, 3), (16, 8, 3, 3), (4, 16, 1, 1), (3, 16, 1, 1)))}
    ys, xs = np.mgrid[0:6, 0:6].astype(np.float32)
    low = np.stack([ys, xs], axis=-1).reshape(1, 36, 2)
    constants = weights | {"low": low, "one": np.float32(1), "rows": np.int64([1, 36, 4]), "columns": np.int64([1, 3, 36]),
                           "two": np.int64([2]), "three": np.int64([3]), "axis": np.int64([1]), "zero": np.int64([0]),
                           "most": np.int64([MOST]), "overlap": np.float32([0.5]), "least": np.float32([0.3])}
    save(path, [
        node("Conv", ["image", "w0"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1]), node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]), node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["places"]), node("Conv", ["r1", "w3"], ["classes"]),
        node("Transpose", ["places"], ["last"], perm=[0, 2, 3, 1]), node("Reshape", ["last", "rows"], ["raw"]),
        node("Split", ["raw"], ["from", "size"], axis=2), node("Sigmoid", ["from"], ["shift"]), node("Add", ["shift", "low"], ["begin"]),
        node("Sigmoid", ["size"], ["part"]), node("Add", ["part", "one"], ["extent"]), node("Add", ["begin", "extent"], ["end"]),
        node("Concat", ["begin", "end"], ["boxes"], axis=2),
        node("Reshape", ["classes", "columns"], ["logits"]), node("Sigmoid", ["logits"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"]),
        node("Slice", ["chosen", "two", "three", "axis"], ["column"]), node("Squeeze", ["column", "axis"], ["place"]),
        node("Squeeze", ["boxes", "zero"], ["box_rows"]), node("Gather", ["box_rows", "place"], ["kept"]),
        node("Slice", ["chosen", "axis", "three", "axis"], ["class_and_place"]), node("Squeeze", ["scores", "zero"], ["score_rows"]),
        node("GatherND", ["score_rows", "class_and_place"], ["kept_scores"]),
    ], [value("image", FLOAT, [1, 3, 24, 24])],
        [value("kept", FLOAT, ["n", 4]), value("kept_scores", FLOAT, ["n"]), value("boxes", FLOAT, [1, 36, 4]), value("scores", FLOAT, [1, 3, 36])],
        constants)


def a_detector_ends_on_the_processor(kind):
    """Convolutions run on the device; suppression, and the gathers of as many boxes as are left, on the processor."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="tilewright-runs-") as where:
        path = Path(where) / "ssd.onnx"
        ssd(path)
        module, kernels = compiled(path, kind)
        there, here = sides(kernels)
        assert any(name.startswith("conv2d") for name in there), there
        assert here and not any(name.startswith("conv2d") for name in here), here
        serial = [k["task_name"].split()[0] for k in kernels if k["on_host"] and "a run decides about chosen_0" not in k["host_reason"]]
        assert serial == ["pick_boxes"], serial
        on_device, on_processor = session(module), session(compiled(path, "native,threads=1")[0])
        counts = set()
        for scale in (0, 0.5, 1, 3, 10):
            image = (rng.standard_normal((1, 3, 24, 24)) * scale).astype(np.float32)
            found = on_device.run({"image": image})
            left = suppressed(found["boxes"][0], found["scores"][0])
            assert len(left) == len(found["kept"]) == len(found["kept_scores"])
            counts.add(len(left))
            if left:
                np.testing.assert_array_equal(found["kept"], found["boxes"][0][[place for _, place in left]])
                np.testing.assert_array_equal(found["kept_scores"], found["scores"][0][tuple(np.array(left).T)])
            equal(found, on_processor.run({"image": image}))
        assert len(counts) > 2, counts
        profile = json.loads(tilewright("run", module, "--repeat", 2, "--profile", "-o", "json"))["kernels"]
        assert {row["on"] for row in profile} == {name_of(kind), "processor"}, profile
        table = tilewright("run", module, "--repeat", 2, "--profile")
        assert "processor" in table and name_of(kind) in table, table
        plain = tilewright("run", compiled(path, "native,threads=1")[0], "--repeat", 2, "--profile")
        assert " on " not in plain.split("\n")[0], plain


def loops_run_as_on_the_processor(kind, checks=LOOPS):
    """The checks of loops.py, whose loops are now on two sides."""
    on_device = []

    def sessions(path, *words):
        module, kernels = compiled(path, kind, *words)
        on_device.append(not all(kernel["on_host"] for kernel in kernels))
        yield session(module)
    kept, loops.sessions = loops.sessions, sessions
    try:
        for check in checks:
            check()
    finally:
        loops.sessions = kept
    assert sum(on_device) >= len(on_device) - 2, on_device  # a list of rows that a run counts has nothing else


def a_recurrent_layer_keeps_its_state_there(kind):
    """A Scan of more steps than are unrolled: its products are on the device, what counts on the processor."""
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory(prefix="tilewright-runs-") as where:
        path = Path(where) / "scan.onnx"
        weights = loops.recurrent(path, 3000)
        module, kernels = compiled(path, kind)
        there, here = sides(kernels)
        assert any("dense" in name or "matmul" in name for name in there), (there, here)
        assert all("counts or compares" in k["host_reason"] for k in kernels if k["on_host"]), kernels
        start, xs = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 24), (3000, 2, 24)))
        h, columns = start, []
        for x in xs[::-1]:
            h = np.tanh(x @ weights["W"] + h @ weights["R"])
            columns.append(h)
        found = session(module).run({"start": start, "xs": xs})
        np.testing.assert_allclose(found["last"], h, atol=1e-4)
        np.testing.assert_allclose(found["all"], np.stack(columns[::-1], axis=1), atol=1e-4)


def normed(path):
    """Convolutions and softmax of several kernels each; a sum over the elements above 0 scales what goes through the last ones."""
    rng = np.random.default_rng(5)
    constants = {"w": (rng.standard_normal((16, 16, 3, 3)) * 0.2).astype(np.float32), "zero": np.float32(0), "rows": np.int64([2, 2048])}
    save(path, [node("Conv", ["x", "w"], ["a"], pads=[1] * 4), node("Softmax", ["a"], ["s"], axis=1), node("Reshape", ["a", "rows"], ["flat"]),
                node("Softmax", ["flat"], ["long"], axis=1), node("Greater", ["flat", "zero"], ["mask"]), node("NonZero", ["mask"], ["at"]),
                node("Transpose", ["at"], ["places"]), node("GatherND", ["flat", "places"], ["kept"]), node("ReduceMean", ["kept"], ["mean"], keepdims=0),
                node("Mul", ["s", "mean"], ["scaled"]), node("Conv", ["scaled", "w"], ["b"], pads=[1] * 4), node("Softmax", ["b"], ["y"], axis=1)],
         [value("x", FLOAT, [1, 16, 16, 16])], [value("kept", FLOAT, ["n"]), value("long", FLOAT, [2, 2048]), value("y", FLOAT, [1, 16, 16, 16])], constants)


def what_follows_a_found_size_is_there_again(kind):
    """A run goes to the device, to the processor, and back; kernels of one task pass tensors behind those whose sizes a run finds."""
    rng = np.random.default_rng(2)
    with tempfile.TemporaryDirectory(prefix="tilewright-runs-") as where:
        path = Path(where) / "n.onnx"
        normed(path)
        module, kernels = compiled(path, kind)
        assert sum(k["uses"] for k in kernels if k["task_name"].startswith("conv2d") and not k["on_host"]) == 2, kernels
        found, wanted = session(module), session(compiled(path, "native,threads=1")[0])
        for _ in range(3):
            x = rng.standard_normal((1, 16, 16, 16)).astype(np.float32)
            a, b = found.run({"x": x}), wanted.run({"x": x})
            # An element next to 0 may be on the other side of it.
            assert abs(len(a["kept"]) - len(b["kept"])) <= 2, (len(a["kept"]), len(b["kept"]))
            equal({name: a[name] for name in ("long", "y")}, {name: b[name] for name in ("long", "y")}, rtol=1e-3, atol=1e-4)
        profile = json.loads(tilewright("run", module, "--repeat", 2, "--profile", "-o", "json"))["kernels"]
        on = [row["on"] for row in profile]
        assert on[0] == on[-1] == kind and len(profile) > len(kernels), profile


def classifier(path):
    rng = np.random.default_rng(4)
    weights = {"w": (rng.standard_normal((4, 3, 3, 3)) * 0.3).astype(np.float32), "v": rng.standard_normal((4, 5)).astype(np.float32)}
    save(path, [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["r"]), node("GlobalAveragePool", ["r"], ["p"]),
                node("Flatten", ["p"], ["f"]), node("MatMul", ["f", "v"], ["y"])],
         [value("x", FLOAT, ["N", 3, 8, 8])], [value("y", FLOAT, ["N", 5])], weights)


def open_sizes_run_here_and_fixed_ones_there(kind):
    """Of open sizes all is on the processor, which the compiler warns of; the functions of fixed sizes are on the device."""
    rng = np.random.default_rng(6)
    with tempfile.TemporaryDirectory(prefix="tilewright-runs-") as where:
        path = Path(where) / "c.onnx"
        classifier(path)
        words = ["--shape", "N=1..8"]
        wanted = session(compiled(path, "native,threads=1", *words)[0])
        for special in ([], ["--specialise", "N=4,8"]):
            module, kernels = compiled(path, kind, *words, *special)
            assert {tuple(k["open_sizes"]) for k in kernels if k["on_host"]} == {("N",)}, kernels
            assert any(not k["on_host"] for k in kernels) == bool(special), kernels
            found = session(module)
            for n in (4, 1, 8, 3, 4, 8, 8, 1):
                x = rng.standard_normal((n, 3, 8, 8)).astype(np.float32)
                equal(found.run({"x": x}), wanted.run({"x": x}))
        for n, on in ((4, name_of(kind)), (3, "processor")):
            said = json.loads(tilewright("run", module, "--shape", f"N={n}", "--repeat", 2, "--profile", "-o", "json"))
            assert {row["on"] for row in said["kernels"]} == {on}, said["kernels"]
        done = tw_errors("compile", path, "--target", kind, "--effort", 0, *words, "-o", path.with_suffix(".w.tw"))
        assert "launches run on the processor" in done and "N open" in done and "--specialise N=" in done, done


def tw_errors(*words):
    """What the command says on standard error."""
    done = subprocess.run([BIN / "tilewright", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def decoder(path):
    """One attention of a single head: keys and values of all tokens so far are what a state keeps."""
    rng = np.random.default_rng(8)
    weights = {name: (rng.standard_normal((16, 16)) * 0.3).astype(np.float32) for name in ("q", "k", "v", "o")}
    save(path, [node("MatMul", ["x", "q"], ["query"]), node("MatMul", ["x", "k"], ["key"]), node("MatMul", ["x", "v"], ["val"]),
                node("Concat", ["past_k", "key"], ["present_k"], axis=0), node("Concat", ["past_v", "val"], ["present_v"], axis=0),
                node("Transpose", ["present_k"], ["kt"], perm=[1, 0]), node("MatMul", ["query", "kt"], ["s"]),
                node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "present_v"], ["a"]), node("MatMul", ["a", "o"], ["y"])],
         [value("x", FLOAT, ["seq", 16]), value("past_k", FLOAT, ["past", 16]), value("past_v", FLOAT, ["past", 16])],
         [value("y", FLOAT, ["seq", 16]), value("present_k", FLOAT, ["all", 16]), value("present_v", FLOAT, ["all", 16])], weights)
    return weights


def a_state_is_kept_on_the_processor(kind):
    """Products of single tokens run on the device, and their keys come back to the lists that a state keeps."""
    rng = np.random.default_rng(9)
    with tempfile.TemporaryDirectory(prefix="tilewright-runs-") as where:
        path = Path(where) / "d.onnx"
        decoder(path)
        words = ["--shape", "seq=1..6", "--shape", "past=0..32", "--state", "past_k=present_k", "--state", "past_v=present_v",
                 "--specialise", "seq=1"]
        module, kernels = compiled(path, kind, *words)
        assert any(not k["on_host"] for k in kernels) and any(k["on_host"] for k in kernels), kernels
        found, wanted = session(module), session(compiled(path, "native,threads=1", *words)[0])
        for length in (5, 1, 1, 3, 1, 1, 1):
            x = rng.standard_normal((length, 16)).astype(np.float32)
            equal(found.run({"x": x}), wanted.run({"x": x}))


def named(check, kind, *more):
    def run():
        check(kind, *more)
    run.__name__ = f"{check.__name__}_{name_of(kind)}"
    return run


def checks():
    for kind in KINDS:
        for check in (a_detector_ends_on_the_processor, what_follows_a_found_size_is_there_again, loops_run_as_on_the_processor,
                      a_recurrent_layer_keeps_its_state_there, open_sizes_run_here_and_fixed_ones_there, a_state_is_kept_on_the_processor):
            yield named(check, kind)
    for check in (a_detector_ends_on_the_processor, open_sizes_run_here_and_fixed_ones_there):
        yield named(check, GPU)
    yield named(loops_run_as_on_the_processor, GPU, LOOPS[:4])


if __name__ == "__main__":
    if FAKES not in os.environ.get("LD_LIBRARY_PATH", ""):  # the driver is loaded into this process
        os.execve(sys.executable, [sys.executable, *sys.argv], dict(os.environ, LD_LIBRARY_PATH=FAKES))
    run_checks(*checks())
