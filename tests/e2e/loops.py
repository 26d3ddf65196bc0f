#!/usr/bin/env python3
"""Loops whose end a run decides: their trips are kernels of the module that run again and again. On processors (device_runs.py: on
devices), against NumPy."""

import json
import tempfile
from pathlib import Path

import numpy as np
from found_sizes import FLOAT, INT64, run_checks, save, tilewright, tw
from onnx import TensorProto, helper, numpy_helper

BOOL = TensorProto.BOOL
node, value = helper.make_node, helper.make_tensor_value_info


def body(nodes, inputs, outputs, constants=()):
    tensors = [numpy_helper.from_array(np.asarray(number), name) for name, number in dict(constants).items()]
    return helper.make_graph(nodes, "body", inputs, outputs, tensors)


def sessions(path, *words):
    """Sessions of the model for one thread and for two."""
    for threads in (1, 2):
        module = path.with_suffix(f".{threads}.tw")
        tilewright("compile", path, "--target", f"native,threads={threads}", "--effort", 0, *words, "-o", module)
        yield tw.Session(tw.Module(str(module)), threads)


def root(path):
    """Newton's steps to square roots, until none of them changes by more than `near`; each step is a row of a result."""
    trip = body([node("Div", ["x", "before"], ["quotient"]), node("Add", ["before", "quotient"], ["sum"]),
                 node("Mul", ["sum", "half"], ["after"]), node("Sub", ["after", "before"], ["change"]),
                 node("Abs", ["change"], ["size"]), node("ReduceMax", ["size"], ["largest"], keepdims=0),
                 node("Greater", ["largest", "near"], ["more"]), node("Identity", ["after"], ["row"])],
                [value("i", INT64, []), value("going", BOOL, []), value("before", FLOAT, [64])],
                [value("more", BOOL, []), value("after", FLOAT, [64]), value("row", FLOAT, [64])], {"half": np.float32(0.5)})
    save(path, [node("Loop", ["most", "", "x"], ["root", "rows"], body=trip), node("ReduceMax", ["rows"], ["top"], keepdims=0)],
         [value("x", FLOAT, [64]), value("near", FLOAT, []), value("most", INT64, [])],
         [value("root", FLOAT, [64]), value("rows", FLOAT, ["steps", 64]), value("top", FLOAT, [])], {})


def newton(x, near, most):
    rows, before = [], x
    while len(rows) < most:
        rows.append(((before + x / before) * np.float32(0.5)).astype(np.float32))
        change, before = np.abs(rows[-1] - before).max(), rows[-1]
        if not change > near:
            break
    return before, np.array(rows, np.float32).reshape(-1, 64)


def data_decide_how_often():
    """The number of trips is that of the data, up to the first input and to what --shape allows."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as where:
        path = Path(where) / "root.onnx"
        root(path)
        counts = set()
        for session in sessions(path, "--shape", "steps=0..40"):
            for near, most, scale in ((1e-4, 100, 1e4), (1e-4, 100, 2), (1.0, 100, 100), (1e-4, 3, 1e4), (0.1, 1, 9)):
                x = rng.uniform(1, scale, 64).astype(np.float32)
                found = session.run({"x": x, "near": np.float32(near), "most": np.int64(most)})
                wanted, rows = newton(x, np.float32(near), most)
                counts.add(len(rows))
                np.testing.assert_allclose(found["root"], wanted, rtol=1e-5)
                assert found["rows"].shape == rows.shape, (found["rows"].shape, rows.shape)
                np.testing.assert_allclose(found["rows"], rows, rtol=1e-4)
                np.testing.assert_allclose(found["top"], rows.max(), rtol=1e-4)
            x = np.linspace(1, 2, 64, dtype=np.float32)
            unchanged = session.run({"x": x, "near": np.float32(0), "most": np.int64(0)})
            np.testing.assert_array_equal(unchanged["root"], x)
            assert unchanged["rows"].shape == (0, 64), unchanged["rows"].shape
            try:  # never near enough
                session.run({"x": np.ones(64, np.float32), "near": np.float32(-1), "most": np.int64(41)})
            except tw.Error as error:
                assert "runtime.session.found_size" in str(error) and "0 to 40 for steps, found 41" in str(error), error
            else:
                raise AssertionError("more trips than the stack has room for were not refused")
        assert len(counts) > 3, counts
        message = tilewright("compile", path, "--target", "native", "-o", path.with_suffix(".tw"), code=1)
        assert "graph.onnx.size_bound" in message and "--shape steps=0..N" in message, message


def nested(path):
    """A loop in a loop, as often as there were trips of the outer one."""
    inner = body([node("Add", ["t", "x"], ["u"]), node("Mul", ["u", "factor"], ["v"]), node("Identity", ["c"], ["d"])],
                 [value("j", INT64, []), value("c", BOOL, []), value("t", FLOAT, [8])],
                 [value("d", BOOL, []), value("v", FLOAT, [8])], {"factor": np.float32(0.5)})
    outer = body([node("Loop", ["i", "", "s"], ["after"], body=inner), node("Neg", ["after"], ["flipped"]), node("Identity", ["c"], ["d"])],
                 [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, [8])],
                 [value("d", BOOL, []), value("flipped", FLOAT, [8])])
    save(path, [node("Loop", ["trips", "", "x"], ["y"], body=outer)], [value("x", FLOAT, [8]), value("trips", INT64, [])],
         [value("y", FLOAT, [8])], {})


def loops_in_loops():
    """A loop in a loop begins anew in every trip; its number of trips is what the outer one computes."""
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as where:
        path = Path(where) / "nested.onnx"
        nested(path)
        for session in sessions(path):
            for trips in (0, 1, 2, 7):
                x = np.arange(8, dtype=np.float32)
                wanted = x
                for i in range(trips):
                    for _ in range(i):
                        wanted = (wanted + x) * np.float32(0.5)
                    wanted = -wanted
                np.testing.assert_allclose(session.run({"x": x, "trips": np.int64(trips)})["y"], wanted, rtol=1e-6)


def a_run_takes_one_way():
    """The ways of an If that cost something are computed only where they are taken; a small one always is. One has a loop in it."""
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as where:
        path = Path(where) / "if.onnx"
        rng = np.random.default_rng(5)
        w = rng.standard_normal((48, 48)).astype(np.float32) / 7
        trip = body([node("MatMul", ["s", "w"], ["p"]), node("Tanh", ["p"], ["t"]), node("Identity", ["c"], ["d"])],
                    [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, [48, 48])],
                    [value("d", BOOL, []), value("t", FLOAT, [48, 48])])
        ways = {"then_branch": body([node("Loop", ["trips", "", "x"], ["deep"], body=trip)], [], [value("deep", FLOAT, [48, 48])]),
                "else_branch": body([node("MatMul", ["x", "x"], ["square"]), node("Slice", ["square", "zero", "n"], ["top"])], [],
                                    [value("top", FLOAT, [6, 48])], {"zero": np.array([0]), "n": np.array([6])})}
        save(path, [node("Neg", ["a"], ["x"]), node("If", ["flag"], ["y"], **ways)],
             [value("a", FLOAT, [48, 48]), value("flag", BOOL, []), value("trips", INT64, [])], [value("y", FLOAT, ["rows", 48])], {"w": w})
        for session in sessions(path):
            for flag, trips in ((True, 3), (False, 3), (True, 0), (False, 0), (True, 1)):
                a = rng.standard_normal((48, 48)).astype(np.float32)
                wanted = -a if flag else (a @ a)[:6]
                for _ in range(trips if flag else 0):
                    wanted = np.tanh(wanted @ w)
                found = session.run({"a": a, "flag": np.array(flag), "trips": np.int64(trips)})["y"]
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def swapping(path):
    trip = body([node("Identity", ["c"], ["d"]), node("Add", ["a", "kept"], ["sum"])],
                [value("i", INT64, []), value("c", BOOL, []), value("a", FLOAT, [5]), value("b", FLOAT, [5]), value("kept", FLOAT, [5])],
                [value("d", BOOL, []), value("b", FLOAT, [5]), value("a", FLOAT, [5]), value("kept", FLOAT, [5]), value("sum", FLOAT, [5])])
    save(path, [node("Loop", ["trips", "", "x", "y", "z"], ["p", "q", "r", "sums"], body=trip)],
         [value(name, FLOAT, [5]) for name in "xyz"] + [value("trips", INT64, [])],
         [value(name, FLOAT, [5]) for name in "pqr"] + [value("sums", FLOAT, ["steps", 5])], {})


def values_that_swap():
    """Two states that become each other, and one that stays what it is."""
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as where:
        path = Path(where) / "swap.onnx"
        swapping(path)
        x, y, z = (np.arange(5, dtype=np.float32) * k for k in (1, 10, 100))
        for session in sessions(path, "--shape", "steps=0..9"):
            for trips in (0, 1, 4, 9):
                found = session.run({"x": x, "y": y, "z": z, "trips": np.int64(trips)})
                a, b = (x, y) if trips % 2 == 0 else (y, x)
                for name, wanted in zip("pqr", (a, b, z)):
                    np.testing.assert_array_equal(found[name], wanted)
                rows = [(y if t % 2 else x) + z for t in range(trips)]
                np.testing.assert_array_equal(found["sums"], np.array(rows, np.float32).reshape(-1, 5))


def recurrent(path, length):
    """A layer as a Scan: h = tanh(x W + h R), from the last step on; all h, a column per step."""
    rng = np.random.default_rng(2)
    weights = {name: (rng.standard_normal((24, 24)) * 0.2).astype(np.float32) for name in ("W", "R")}
    step = body([node("MatMul", ["x", "W"], ["a"]), node("MatMul", ["h", "R"], ["b"]), node("Add", ["a", "b"], ["c"]),
                 node("Tanh", ["c"], ["next"]), node("Identity", ["next"], ["out"])],
                [value("h", FLOAT, [2, 24]), value("x", FLOAT, [2, 24])], [value("next", FLOAT, [2, 24]), value("out", FLOAT, [2, 24])])
    scan = node("Scan", ["start", "xs"], ["last", "all"], body=step, num_scan_inputs=1, scan_input_directions=[1], scan_output_directions=[1],
                scan_output_axes=[1])
    save(path, [scan], [value("start", FLOAT, [2, 24]), value("xs", FLOAT, [length, 2, 24])],
         [value("last", FLOAT, [2, 24]), value("all", FLOAT, [2, length, 24])], weights)
    return weights


def scans_of_many_steps():
    """More steps than are unrolled, and an open number of them."""
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as where:
        for length, lengths, words in ((3000, (3000,), ()), ("steps", (1, 2, 77, 512), ("--shape", "steps=1..512"))):
            path = Path(where) / f"scan_{length}.onnx"
            weights = recurrent(path, length)
            for session in sessions(path, *words):
                for steps in lengths:
                    start, xs = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 24), (steps, 2, 24)))
                    h, columns = start, []
                    for x in xs[::-1]:
                        h = np.tanh(x @ weights["W"] + h @ weights["R"])
                        columns.append(h)
                    found = session.run({"start": start, "xs": xs})
                    np.testing.assert_allclose(found["last"], h, atol=1e-4)
                    np.testing.assert_allclose(found["all"], np.stack(columns[::-1], axis=1), atol=1e-4)


def pasted_regions(path):
    """As Mask R-CNN writes it: each region is resized to its box, and set into an image of zeros, which is appended to the others."""
    size = []
    for name, at in (("w", 0), ("h", 1)):
        size += [node("Gather", ["box", f"n{at}"], [f"{name}0"]), node("Gather", ["box", f"n{at + 2}"], [f"{name}1"]),
                 node("Sub", [f"{name}1", f"{name}0"], [f"{name}d"]), node("Max", [f"{name}d", "n1"], [name]),
                 node("Unsqueeze", [name, "l0"], [f"{name}l"]), node("Unsqueeze", [f"{name}0", "l0"], [f"{name}0l"]),
                 node("Sub", ["n16", f"{name}1"], [f"{name}r"]), node("Unsqueeze", [f"{name}r", "l0"], [f"{name}rl"])]
    image = [node("Gather", ["masks", "i"], ["mask"]), node("Concat", ["hl", "wl"], ["to"], axis=0), node("Shape", ["mask"], ["own"]),
             node("Slice", ["own", "l0", "l2"], ["front"]), node("Concat", ["front", "to"], ["sizes"], axis=0),
             node("Resize", ["mask", "", "", "sizes"], ["region"], mode="nearest", coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor"),
             node("Squeeze", ["region", "l01"], ["flat"]), node("Concat", ["h0l", "w0l", "hrl", "wrl"], ["pads"], axis=0),
             node("Pad", ["flat", "pads"], ["pasted"]), node("Unsqueeze", ["pasted", "l0"], ["one"]),
             node("Concat", ["before", "one"], ["after"], axis=0), node("Identity", ["c"], ["d"])]
    numbers = {f"n{i}": np.int64(i) for i in (0, 1, 2, 3, 16)} | {"l0": np.int64([0]), "l2": np.int64([2]), "l01": np.int64([0, 1])}
    trip = body([node("Gather", ["whole", "i"], ["box"])] + size + image,
                [value("i", INT64, []), value("c", BOOL, []), value("before", FLOAT, None)],
                [value("d", BOOL, []), value("after", FLOAT, None)], numbers)
    save(path, [node("Clip", ["boxes", "low", "high"], ["inside"]), node("Cast", ["inside"], ["whole"], to=INT64),
                node("Loop", ["trips", "", "none"], ["images"], body=trip)],
         [value("boxes", FLOAT, [4, 4]), value("masks", FLOAT, [4, 1, 1, 5, 5]), value("trips", INT64, [])],
         [value("images", FLOAT, ["regions", 16, 16])], {"none": np.zeros((0, 16, 16), np.float32), "low": np.float32(0), "high": np.float32(16)})


def trips_find_sizes_of_their_own():
    """Boxes of any size, without a word about how large they may be: they are cut to the image."""
    rng = np.random.default_rng(4)
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as where:
        path = Path(where) / "paste.onnx"
        pasted_regions(path)
        for session in sessions(path, "--shape", "regions=0..4"):
            for trips in (0, 1, 3, 4):
                low = rng.uniform(-4, 15, (4, 2))
                boxes = np.hstack([low, low.clip(0) + rng.uniform(1, 12, (4, 2))]).astype(np.float32)
                masks = rng.standard_normal((4, 1, 1, 5, 5)).astype(np.float32)
                images = np.zeros((trips, 16, 16), np.float32)
                for image, (x0, y0, x1, y1), mask in zip(images, boxes.clip(0, 16).astype(int), masks[:, 0, 0]):
                    rows, columns = (np.arange(size) * 5 // size for size in (y1 - y0, x1 - x0))
                    image[y0:y1, x0:x1] = mask[rows][:, columns]
                found = session.run({"boxes": boxes, "masks": masks, "trips": np.int64(trips)})
                assert found["images"].shape == images.shape, found["images"].shape
                np.testing.assert_array_equal(found["images"], images)


def growing(path):
    trip = body([node("ReduceSum", ["s", "l0"], ["sum"], keepdims=1), node("Add", ["sum", "sum"], ["twice"]),
                 node("Concat", ["twice", "s"], ["t"], axis=0), node("Identity", ["c"], ["d"])],
                [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, None)],
                [value("d", BOOL, []), value("t", FLOAT, None)], {"l0": np.int64([0])})
    save(path, [node("Loop", ["trips", "", "x"], ["all"], body=trip)], [value("x", FLOAT, [2]), value("trips", INT64, [])],
         [value("all", FLOAT, ["length"])], {})


def states_that_grow():
    """Each trip reads all that there is, and puts twice its sum in front."""
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as where:
        path = Path(where) / "grow.onnx"
        growing(path)
        message = tilewright("compile", path, "--target", "native", "-o", path.with_suffix(".tw"), code=1)
        assert "graph.onnx.size_bound" in message and "--shape all_0=0..N" in message, message
        for session in sessions(path, "--shape", "all_0=0..9", "--shape", "length=0..9"):
            for trips in (0, 1, 2, 7):
                wanted = np.float32([1, 2])
                for _ in range(trips):
                    wanted = np.concatenate([[2 * wanted.sum()], wanted]).astype(np.float32)
                np.testing.assert_array_equal(session.run({"x": np.float32([1, 2]), "trips": np.int64(trips)})["all"], wanted)
            try:
                session.run({"x": np.float32([1, 2]), "trips": np.int64(8)})
            except tw.Error as error:
                assert "runtime.session.found_size" in str(error), error
            else:
                raise AssertionError("a state larger than its range was not refused")


def backwards_with_lists(path):
    """As PyTorch exports a loop over x.unbind(0) that appends to a list: from the last part to the first, two entries each."""
    trip = body([node("Sub", ["last", "i"], ["at"]), node("SequenceAt", ["parts", "at"], ["part"]), node("Mul", ["h", "half"], ["less"]),
                 node("Add", ["part", "less"], ["next"]), node("Neg", ["next"], ["minus"]),
                 node("SequenceInsert", ["list", "next"], ["longer"]), node("SequenceInsert", ["longer", "minus"], ["longest"])],
                [helper.make_empty_tensor_value_info(name) for name in ("i", "going", "h", "list")],
                [helper.make_empty_tensor_value_info(name) for name in ("going", "next", "longest")], {"half": np.float32(0.5)})
    save(path, [node("SplitToSequence", ["x", "one"], ["parts"], axis=0, keepdims=0), node("SequenceLength", ["parts"], ["count"]),
                node("Sub", ["count", "one"], ["last"]), node("SequenceAt", ["parts", "last"], ["begin"]), node("SequenceEmpty", [], ["none"]),
                node("Loop", ["count", "", "begin", "none"], ["h_end", "list_end"], body=trip),
                node("ConcatFromSequence", ["list_end"], ["all"], axis=0), node("SequenceLength", ["list_end"], ["length"])],
         [value("x", FLOAT, ["t", 3])], [value("all", FLOAT, ["n"]), value("length", INT64, [])], {"one": np.int64(1)})


def until_large(path):
    """While the sum is below 100: PyTorch writes the largest integer as the number of trips."""
    trip = body([node("Mul", ["v", "factor"], ["next"]), node("SequenceInsert", ["list", "next"], ["longer"]),
                 node("ReduceSum", ["next"], ["sum"], keepdims=0), node("Less", ["sum", "enough"], ["more"])],
                [helper.make_empty_tensor_value_info(name) for name in ("i", "going", "v", "list")],
                [helper.make_empty_tensor_value_info(name) for name in ("more", "next", "longer")],
                {"factor": np.float32(1.5), "enough": np.float32(100)})
    save(path, [node("ReduceSum", ["x"], ["sum0"], keepdims=0), node("Less", ["sum0", "enough0"], ["first"]),
                node("SequenceConstruct", ["x"], ["list0"]), node("Loop", ["most", "first", "x", "list0"], ["end", "list"], body=trip),
                node("ConcatFromSequence", ["list"], ["rows"], axis=0, new_axis=1)],
         [value("x", FLOAT, [2])], [value("end", FLOAT, [2]), value("rows", FLOAT, ["n", 2])],
         {"most": np.int64(2**63 - 1), "enough0": np.float32(100)})


def lists_of_open_length():
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as where:
        path = Path(where) / "backwards.onnx"
        backwards_with_lists(path)
        for session in sessions(path, "--shape", "t=1..40"):
            for length in (1, 2, 17, 40):
                x = rng.uniform(-1, 1, (length, 3)).astype(np.float32)
                rows, h = [], x[-1]
                for part in x[::-1]:
                    h = (part + h * np.float32(0.5)).astype(np.float32)
                    rows += [h, -h]
                found = session.run({"x": x})
                assert found["length"] == 2 * length, found["length"]
                np.testing.assert_allclose(found["all"], np.concatenate(rows), rtol=1e-5, atol=1e-6)
        path = Path(where) / "until.onnx"
        until_large(path)
        for session in sessions(path, "--shape", "list_0=0..20"):
            for scale in (0.5, 3, 80):
                rows = [np.float32([scale, scale / 2])]
                while rows[-1].sum() < 100:
                    rows.append(rows[-1] * np.float32(1.5))
                found = session.run({"x": rows[0]})
                assert found["rows"].shape == (len(rows), 2), (found["rows"].shape, len(rows))
                np.testing.assert_allclose(found["rows"], rows, rtol=1e-5)
                np.testing.assert_allclose(found["end"], rows[-1], rtol=1e-5)


def the_commands_know_loops():
    """`run --profile` counts every trip; `compare` compares what loops leave."""
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as where:
        folder = Path(where)
        recurrent(folder / "s.onnx", 3000)
        tilewright("compile", folder / "s.onnx", "--target", "native,threads=1", "--effort", 0, "-o", folder / "s.tw")
        said = json.loads(tilewright("run", folder / "s.tw", "--repeat", 3, "--profile", "-o", "json"))
        in_kernels = sum(kernel["median_us"] for kernel in said["kernels"]) / 1e3
        rates = {kernel["name"]: kernel["gb_s"] for kernel in said["kernels"]}
        assert rates["next"] == 0 and rates["last_transpose"] > 0, rates  # only a run knows how often
        assert in_kernels > 0.1 * said["latency_ms"]["median"], said  # of one trip it would be a thousandth
        said = json.loads(tilewright("compare", folder / "s.onnx", "--target", "native,threads=1", "-o", "json"))
        assert said["first_divergent"] is None and all(row["ok"] for row in said["outputs"]), said


if __name__ == "__main__":
    run_checks(data_decide_how_often, loops_in_loops, a_run_takes_one_way, values_that_swap, scans_of_many_steps, trips_find_sizes_of_their_own,
               states_that_grow, lists_of_open_length, the_commands_know_loops)
