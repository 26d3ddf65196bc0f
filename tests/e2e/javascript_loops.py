#!/usr/bin/env python3
"""Loops whose end a run decides, and results whose size only a run finds, in modules of WebAssembly in Node.js: against native
modules (those of `loops.py` and `found_sizes.py`, which compare them with NumPy). Skips without Node.js."""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from found_sizes import FLOAT, INT64, detector, first_ones, masked, more_than, run_checks, save, tilewright, tw
from javascript import BRIDGE, JAVASCRIPT, NODE, ROOT, TOLERANCE, run_module
from fleet import skip
from loops import (backwards_with_lists, growing, nested, newton, node, pasted_regions, recurrent, root, sessions, swapping, until_large,
                   value)
from onnx import TensorProto, numpy_helper

RNG = np.random.default_rng(11)
MUTATED = 2000  # manifests


def uniform(low, high, *shape):
    return RNG.uniform(low, high, shape).astype(np.float32)


def trips(counts, **inputs):
    return [{**inputs, "trips": np.int64(count)} for count in counts]


def roots(cases):
    return [{"x": uniform(1, scale, 64), "near": np.float32(near), "most": np.int64(most)} for near, most, scale in cases]


def scans(*lengths):
    return [{"start": uniform(-1, 1, 2, 24), "xs": uniform(-1, 1, length, 2, 24)} for length in lengths]


def boxes(counts):
    low = uniform(-4, 15, 4, 2)
    return trips(counts, boxes=np.hstack([low, low.clip(0) + uniform(1, 12, 4, 2)]), masks=uniform(-1, 1, 4, 1, 1, 5, 5))


def detections(counts):
    sets = []
    for count in counts:
        low = uniform(0, 8, count, 2)
        sets.append({"boxes": np.hstack([low, low + uniform(1, 3, count, 2)])[None], "scores": uniform(0, 1, 1, 3, count)})
    return sets


# What makes a model, the flags that it is compiled with, and sets of inputs; among them some without a trip.
CASES = {
    "data_decide_how_often": (root, ("--shape", "steps=0..40"), roots(
        ((1e-4, 100, 1e4), (1e-4, 100, 2), (1.0, 100, 100), (1e-4, 3, 1e4), (0.1, 1, 9), (0, 0, 9), (1e-4, 100, 1e4)))),
    "loops_in_loops": (nested, (), trips((0, 1, 2, 7), x=np.arange(8, dtype=np.float32))),
    "values_that_swap": (swapping, ("--shape", "steps=0..9"), trips((0, 1, 4, 9, 2), x=uniform(0, 1, 5), y=uniform(2, 3, 5), z=uniform(4, 5, 5))),
    "a_long_scan": (lambda path: recurrent(path, 3000), (), scans(3000)),
    "scans_of_any_length": (lambda path: recurrent(path, "steps"), ("--shape", "steps=1..512"), scans(1, 2, 77, 512, 3)),
    "trips_find_sizes": (pasted_regions, ("--shape", "regions=0..4"), boxes((0, 1, 3, 4)) + boxes((4, 2))),
    "states_that_grow": (growing, ("--shape", "all_0=0..9", "--shape", "length=0..9"), trips((0, 1, 2, 7), x=np.float32([1, 2]))),
    "lists_of_open_length": (backwards_with_lists, ("--shape", "t=1..40"), [{"x": uniform(-1, 1, n, 3)} for n in (1, 2, 17, 40)]),
    "lists_until_large": (until_large, ("--shape", "list_0=0..20"), [{"x": np.float32([x, x / 2])} for x in (0.5, 3, 80)]),
    "masked_elements": (masked, (), [{"x": uniform(low, low + 2, 16, 32)} for low in (-1, -2, 0, -1.9, -3)]),
    "differences_of_sizes": (more_than, (), [first_ones(*counts) for counts in ((10, 3), (16, 0), (5, 5), (16, 16))]),
    "a_detector": (detector, ("--shape", "N=1..400", "--specialise", "N=64"), detections((1, 64, 399, 64, 400, 2))),
}


def compiled(folder, make, words, target="wasm"):
    make(folder / "m.onnx")
    tilewright("compile", folder / "m.onnx", "--target", target, "--effort", 0, *words, "-o", folder / "m.tw")
    return folder / "m.tw"


def saved(folder, inputs):
    """The flags that name them."""
    words = []
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
        words += ["--input", f"{name}={folder / name}.npy"]
    return words


def refusal(module, inputs):
    done = subprocess.run([NODE, JAVASCRIPT / "examples" / "run_module.js", module, *saved(module.parent, inputs)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    return done.stderr


def case(name):
    """All sets in one session, so that a run of many trips comes before one of few."""
    def check():
        make, words, sets = CASES[name]
        with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
            folder = Path(where)
            module = compiled(folder, make, words)
            listed = []
            for i, inputs in enumerate(sets):
                (folder / str(i)).mkdir()
                saved(folder / str(i), inputs)
                listed.append({key: str(folder / str(i) / f"{key}.npy") for key in inputs})
            (folder / "sets.json").write_text(json.dumps(listed))
            run_module(module, "--input-sets", folder / "sets.json", "--output-dir", folder / "out")
            native = next(sessions(folder / "m.onnx", *words))
            shapes = set()
            for i, inputs in enumerate(sets):
                for key, wanted in native.run(inputs).items():
                    place = folder / "out" / str(i) if len(sets) > 1 else folder / "out"
                    found = np.load(place / f"{key}.npy")
                    shapes.add((key, found.shape))
                    assert found.shape == wanted.shape and found.dtype == wanted.dtype, (i, key, found.shape, wanted.shape)
                    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{key} of set {i}")
            print(f"        {name}: {len(sets)} runs, {len(shapes)} shapes")
    check.__name__ = name
    return check


def trips_are_those_of_numpy():
    with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
        module = compiled(Path(where), root, ("--shape", "steps=0..40"))
        inputs = {"x": uniform(1, 1e4, 64), "near": np.float32(1e-4), "most": np.int64(100)}
        wanted, rows = newton(*inputs.values())
        said = run_module(module, *saved(Path(where), inputs), "--output-dir", where, "--profile")
        assert said["outputs"]["rows"] == list(rows.shape), (said["outputs"], rows.shape)
        np.testing.assert_allclose(np.load(Path(where) / "root.npy"), wanted, rtol=1e-5)
        never = {"x": np.ones(64, np.float32), "near": np.float32(-1), "most": np.int64(41)}
        said = refusal(module, never)
        assert "runtime.session.found_size" in said and "0 to 40 for steps, found 41" in said, said


def stated_shapes_are_checked():
    with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
        def reshape(path):
            save(path, [node("Reshape", ["x", "to"], ["y"])], [value("x", FLOAT, [16]), value("to", INT64, [2])],
                 [value("y", FLOAT, [4, 4])], {})
        module = compiled(Path(where), reshape, ())
        x = np.arange(16, dtype=np.float32)
        run_module(module, *saved(Path(where), {"x": x, "to": np.int64([4, -1])}), "--output-dir", where)
        np.testing.assert_array_equal(np.load(Path(where) / "y.npy"), x.reshape(4, 4))
        said = refusal(module, {"x": x, "to": np.int64([2, 8])})
        assert "runtime.session.stated_shape" in said and "[4, 4]" in said and "[2, 8]" in said, said


def native_slug(path):
    try:
        tw.Module(str(path))
    except tw.Error as error:
        return str(error).split(":")[0]
    return ""


def both_readers_refuse_the_same():
    """Mutated modules with loops: the C++ reader refuses no more, but for what no run in JavaScript depends on."""
    only_native = {"module.manifest." + reason for reason in ("tensor_bytes", "number", "expression")}
    only_here = {"module.manifest.functions"}  # where there is no main
    with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
        subprocess.run([NODE, ROOT / "support" / "mutated_modules.mjs", where, str(MUTATED)], check=True, timeout=300)
        accepted = refused = 0
        for i, here in enumerate(json.loads((Path(where) / "slugs.json").read_text())):
            native = native_slug(Path(where) / f"{i}.tw")
            here, native = ("" if slug.startswith("runtime.") else slug for slug in (here, native))  # what a machine lacks
            assert not here or here.startswith("module."), (i, here)
            assert here or native in only_native | {""}, (i, native, "JavaScript takes it")
            assert native or here in only_here | {""}, (i, here, "C++ takes it")
            accepted, refused = accepted + (not native and not here), refused + bool(native and here)
        assert accepted > MUTATED / 20 and refused > MUTATED / 20, (accepted, refused)
        print(f"        {MUTATED} manifests: {accepted} accepted, {refused} refused by both")


def measurements_know_loops():
    """A profile counts every trip, and a worker runs such a module for `tilewright run`."""
    with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
        folder = Path(where)
        module = compiled(folder, lambda path: recurrent(path, 3000), ())
        [inputs] = scans(3000)
        words = saved(folder, inputs)
        said = run_module(module, *words, "--repeat", 5, "--profile", "--output-dir", folder / "out")
        in_kernels = sum(launch["ms"] for launch in said["launches"])
        assert in_kernels > 0.1 * said["latency_ms"]["p10"], said  # of one trip it would be a thousandth
        tilewright("run", module, *words, "--bridge", BRIDGE, "--repeat", 2, "--output-dir", folder / "bridged")
        wanted = np.load(folder / "out" / "last.npy")
        found = numpy_helper.to_array(TensorProto.FromString((folder / "bridged" / "output_0.pb").read_bytes()))
        np.testing.assert_array_equal(found, wanted)


if __name__ == "__main__":
    if NODE is None:
        skip("no Node.js here (Debian: nodejs)")
    run_checks(*map(case, CASES), trips_are_those_of_numpy, stated_shapes_are_checked, both_readers_refuse_the_same, measurements_know_loops)
