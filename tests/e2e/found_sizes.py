#!/usr/bin/env python3
"""Results whose size only a run finds: a detector's chosen boxes, masked elements, sequences of a length that is an input."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "support"), str(ROOT.parent / "deploy" / "bindings" / "python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from fleet import BIN, run_checks  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

os.environ.setdefault("TILEWRIGHT_RUNTIME_LIBRARY", str(BIN.parent / "lib" / "libtilewright_runtime.so"))
import tilewright_runtime as tw  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
MOST = 50  # boxes of a class


def tilewright(*words, code=0):
    done = subprocess.run([BIN / "tilewright", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stderr if code else done.stdout


def save(path, nodes, inputs, outputs, constants):
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "found", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


def detector(path):
    """What exporters write behind a detector: suppression, then the boxes and scores of what is left."""
    node, value = helper.make_node, helper.make_tensor_value_info
    save(path, [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"]),
        node("Slice", ["chosen", "two", "three", "one"], ["column"]),
        node("Squeeze", ["column", "one"], ["place"]),
        node("Squeeze", ["boxes", "zero"], ["rows"]),
        node("Gather", ["rows", "place"], ["kept"]),
        node("Slice", ["chosen", "one", "three", "one"], ["class_and_place"]),
        node("Squeeze", ["scores", "zero"], ["score_rows"]),
        node("GatherND", ["score_rows", "class_and_place"], ["kept_scores"]),
        node("ReduceSum", ["kept_scores"], ["total"], keepdims=0),
    ], [value("boxes", FLOAT, [1, "N", 4]), value("scores", FLOAT, [1, 3, "N"])],
        [value("kept", FLOAT, [None, 4]), value("kept_scores", FLOAT, [None]), value("total", FLOAT, [])],
        {"most": [MOST], "overlap": np.float32([0.5]), "least": np.float32([0.3]), "zero": [0], "one": [1], "two": [2], "three": [3]})


def suppressed(boxes, scores):
    """(class, box) of what is left, class by class, best first."""
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    area = np.prod(high - low, axis=1)
    left = []
    for which, row in enumerate(scores):
        alive = row > 0.3
        of_class = len(left)
        while alive.any() and len(left) < of_class + MOST:
            best = int(np.argmax(np.where(alive, row, -np.inf)))
            left.append((which, best))
            common = np.prod(np.maximum(np.minimum(high, high[best]) - np.maximum(low, low[best]), 0), axis=1)
            alive &= common / (area + area[best] - common) <= 0.5
            alive[best] = False
    return left


def a_detector_gives_as_many_boxes_as_are_left():
    """One module for any number of boxes: NumPy's choice, by the command and by the Python binding."""
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory(prefix="tilewright-found-") as where:
        folder = Path(where)
        detector(folder / "detector.onnx")
        tilewright("compile", folder / "detector.onnx", "--target", "native,threads=1", "--effort", 0, "--shape", "N=1..400",
                   "-o", folder / "d.tw")
        session = tw.Session(tw.Module(str(folder / "d.tw")), 1)
        assert [session.module.is_found(i) for i in range(3)] == [True, True, False]
        counts = set()
        for boxes in (1, 7, 64, 399, 400, 2):
            corners = rng.uniform(0, 8, (boxes, 2)).astype(np.float32)
            x = np.concatenate([corners, corners + rng.uniform(1, 3, (boxes, 2)).astype(np.float32)], axis=1)[None]
            scores = rng.uniform(0, 1, (1, 3, boxes)).astype(np.float32)
            left = suppressed(x[0], scores[0])
            counts.add(len(left))
            wanted = x[0][[place for _, place in left]], scores[0][tuple(np.array(left).T)] if left else np.zeros(0, np.float32)
            found = session.run({"boxes": x, "scores": scores})
            np.testing.assert_array_equal(found["kept"], wanted[0])
            np.testing.assert_array_equal(found["kept_scores"], wanted[1])
            np.testing.assert_allclose(found["total"], wanted[1].sum(), rtol=1e-5)
            np.save(folder / "boxes.npy", x)
            np.save(folder / "scores.npy", scores)
            said = json.loads(tilewright("run", folder / "d.tw", "--input", f"boxes={folder / 'boxes.npy'}",
                                         "--input", f"scores={folder / 'scores.npy'}", "--output-dir", folder / "out",
                                         "--repeat", 2, "--profile", "-o", "json"))
            assert said["sizes"]["chosen_0"] == len(left) and said["outputs"][0]["shape"] == [len(left), 4], said["sizes"]
            assert [var["name"] for var in said["size_vars"] if var.get("found")] == ["chosen_0"], said["size_vars"]
            written = onnx.TensorProto.FromString((folder / "out" / "output_0.pb").read_bytes())
            np.testing.assert_array_equal(numpy_helper.to_array(written), wanted[0])
            np.save(folder / "kept.npy", wanted[0])
            tilewright("run", folder / "d.tw", "--input", f"boxes={folder / 'boxes.npy'}", "--input",
                       f"scores={folder / 'scores.npy'}", "--expect", f"kept={folder / 'kept.npy'}", "--repeat", 1)
        assert len(counts) > 3, counts
        np.save(folder / "more.npy", np.zeros((9, 4), np.float32))
        message = tilewright("run", folder / "d.tw", "--shape", "N=2", "--expect", f"kept={folder / 'more.npy'}", code=1)
        assert "kept" in message, message


def masked(path):
    """x[x > 0] * 2 of torch.onnx, and the places themselves."""
    node, value = helper.make_node, helper.make_tensor_value_info
    save(path, [node("Greater", ["x", "zero"], ["mask"]), node("NonZero", ["mask"], ["places"]),
                node("Transpose", ["places"], ["rows"]), node("GatherND", ["x", "rows"], ["kept"]), node("Mul", ["kept", "two"], ["y"])],
         [value("x", FLOAT, [16, 32])], [value("y", FLOAT, [None]), value("places", INT64, [2, None])],
         {"zero": np.float32(0), "two": np.float32(2)})


def more_than(path):
    """As many twos as `x` has more elements that are not 0 than `y`: one size is found before the other."""
    node, value = helper.make_node, helper.make_tensor_value_info
    save(path, [node("NonZero", ["x"], ["a"]), node("NonZero", ["y"], ["b"]), node("Shape", ["a"], ["a_shape"]),
                node("Shape", ["b"], ["b_shape"]), node("Gather", ["a_shape", "one"], ["a_count"]),
                node("Gather", ["b_shape", "one"], ["b_count"]), node("Sub", ["a_count", "b_count"], ["more"]),
                node("ConstantOfShape", ["more"], ["zeros"]), node("Add", ["zeros", "two"], ["twos"])],
         [value("x", FLOAT, [16]), value("y", FLOAT, [32])], [value("twos", FLOAT, [None])],
         {"one": np.int64([1]), "two": np.float32([2])})


def first_ones(x, y):
    return {"x": (np.arange(16) < x).astype(np.float32), "y": (np.arange(32) < y).astype(np.float32)}


def sizes_are_differences_of_sizes():
    """The difference is no size before both are known; a run where it is below 0 has no result."""
    with tempfile.TemporaryDirectory(prefix="tilewright-found-") as where:
        path = Path(where) / "m.onnx"
        more_than(path)
        tilewright("compile", path, "--target", "native,threads=1", "--effort", 0, "-o", path.with_suffix(".tw"))
        session = tw.Session(tw.Module(str(path.with_suffix(".tw"))), 1)
        for x, y in ((10, 3), (16, 0), (5, 5), (3, 1), (16, 16)):
            np.testing.assert_array_equal(session.run(first_ones(x, y))["twos"], np.full(x - y, 2, np.float32))
        try:
            session.run(first_ones(3, 4))
        except tw.Error as error:
            assert "module.sizes.dimension" in str(error) and "found -1" in str(error), error
        else:
            raise AssertionError("a size below 0 was not refused")


def threads_share_a_session():
    """Each call gets the outputs of its own run, whatever sizes the others find."""
    with tempfile.TemporaryDirectory(prefix="tilewright-found-") as where:
        folder = Path(where)
        masked(folder / "m.onnx")
        tilewright("compile", folder / "m.onnx", "--target", "native,threads=1", "--effort", 0, "-o", folder / "m.tw")
        session, failed = tw.Session(tw.Module(str(folder / "m.tw")), 1), []

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(50):
                x = (rng.standard_normal((16, 32)) + rng.uniform(-3, 3)).astype(np.float32)
                found = session.run({"x": x})
                if not (np.array_equal(found["y"], x[x > 0] * 2) and np.array_equal(found["places"], np.nonzero(x > 0))):
                    failed.append(seed)
        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failed, failed


def sizes_that_nothing_bounds_want_a_bound():
    """The refusal says which flag gives one; a run that finds more has no result."""
    node, value = helper.make_node, helper.make_tensor_value_info
    with tempfile.TemporaryDirectory(prefix="tilewright-found-") as where:
        folder = Path(where)
        save(folder / "r.onnx", [node("Range", ["zero", "limit", "one"], ["y"])], [value("limit", INT64, [])], [value("y", INT64, ["steps"])],
             {"zero": np.int64(0), "one": np.int64(1)})
        message = tilewright("compile", folder / "r.onnx", "--target", "native,threads=1", "-o", folder / "r.tw", code=1)
        assert "graph.onnx.size_bound" in message and "--shape steps=0..N" in message and 'node "y" (Range)' in message, message
        tilewright("compile", folder / "r.onnx", "--target", "native,threads=1", "--shape", "steps=0..9", "--effort", 0, "-o", folder / "r.tw")
        session = tw.Session(tw.Module(str(folder / "r.tw")), 1)
        for limit in (0, 9, 3, -2):
            np.testing.assert_array_equal(session.run({"limit": np.int64(limit)})["y"], np.arange(max(limit, 0)))
        try:
            session.run({"limit": np.int64(10)})
        except tw.Error as error:
            assert "runtime.session.found_size" in str(error) and "0 to 9 for steps, found 10" in str(error), error
        else:
            raise AssertionError("a size beyond the bound was not refused")
        np.testing.assert_array_equal(session.run({"limit": np.int64(2)})["y"], [0, 1])
        for words, error in ((["--shape", "steps=0..9", "--shape", "stops=0..9"], "graph.onnx.shape_override"),
                             (["--shape", "steps=0..9", "--specialise", "steps=4"], "driver.specialise.ends")):
            message = tilewright("compile", folder / "r.onnx", "--target", "native,threads=1", *words, "-o", folder / "n.tw", code=1)
            assert error in message, message


def kernels_are_compared_at_the_sizes_of_a_run():
    """`compare` takes the open sizes of the inputs' files, and those that the run finds."""
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory(prefix="tilewright-found-") as where:
        folder = Path(where)
        detector(folder / "detector.onnx")
        corners = rng.uniform(0, 8, (37, 2)).astype(np.float32)
        np.save(folder / "boxes.npy", np.concatenate([corners, corners + 2], axis=1)[None])
        scores = rng.uniform(0, 1, (1, 3, 37)).astype(np.float32)
        np.save(folder / "scores.npy", scores)
        words = "compare", folder / "detector.onnx", "--target", "native,threads=1", "--shape", "N=1..400"
        said = json.loads(tilewright(*words, "--input", f"boxes={folder / 'boxes.npy'}", "--input",
                                     f"scores={folder / 'scores.npy'}", "-o", "json"))
        left = len(suppressed(np.load(folder / "boxes.npy")[0], scores[0]))
        assert said["first_divergent"] is None and all(row["ok"] for row in said["outputs"]), said
        assert f"f32[{left},4]" in {row["type"] for row in said["layers"]}, (left, said["layers"])
        masked(folder / "m.onnx")
        said = json.loads(tilewright("compare", folder / "m.onnx", "--target", "native,threads=1", "-o", "json"))
        assert said["first_divergent"] is None and all(row["ok"] for row in said["outputs"]), said


if __name__ == "__main__":
    run_checks(a_detector_gives_as_many_boxes_as_are_left, sizes_are_differences_of_sizes, threads_share_a_session, sizes_that_nothing_bounds_want_a_bound,
               kernels_are_compared_at_the_sizes_of_a_run)
