#!/usr/bin/env python3
"""Custom operators: models with nodes of a foreign domain, defined in a file, compute what NumPy says."""
# Measures: a device is used in it, and no time is judged.

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "deploy/bindings/python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
import tilewright_operators as tw  # noqa: E402
from fleet import BIN, run_checks  # noqa: E402

OPERATORS = r"""
operator com.acme::Softcap(x: T[..]) -> (y: T[..])
  type T in f32;
  attribute cap: float = 5.0;
{ y[..] = cap * tanh(x[..] / cap); }

operator com.acme::Standardise(x: T[.., d]) -> (y: T[.., d], mean: T[..], deviation: T[..])
  type T in f32;
  attribute epsilon: float = 1e-5;
{
  mean[..] = sum(k: d, x[.., k]) / T(d);
  deviation[..] = sqrt(sum(k: d, (x[.., k] - mean[..]) * (x[.., k] - mean[..])) / T(d) + epsilon);
  y[.., j] = (x[.., j] - mean[..]) / deviation[..];
}

operator com.acme::Shift(x: T[n, c, h, w], f: T[c, kh, kw]) -> (y: T[n, c, (h + 2 * pads[0] - kh) / stride + 1, (w + 2 * pads[1] - kw) / stride + 1])
  type T in f32;
  attribute pads: ints = [0, 0];
  attribute stride: int = 1;
{
  y[m, g, i, j] = sum(a: kh, b: kw, f[g, a, b] * select(
      i * stride + a - pads[0] >= 0 && i * stride + a - pads[0] < h && j * stride + b - pads[1] >= 0 && j * stride + b - pads[1] < w,
      x[m, g, i * stride + a - pads[0], j * stride + b - pads[1]], 0));
}

operator com.acme::Attend(q: T[n, h, e], k: T[m, h, e], v: T[m, h, e]) -> (y: T[n, h, e])
  type T in f32;
{
  score[g: h, i: n, j: m] = sum(l: e, q[i, g, l] * k[j, g, l]) / sqrt(T(e));
  weight[g: h, i: n, j: m] = exp(score[g, i, j] - max(l: m, score[g, i, l]));
  y[i, g, c] = sum(j: m, weight[g, i, j] * v[j, g, c]) / sum(j: m, weight[g, i, j]);
}

operator com.acme::Pick(x: f32[n, d], at: i64[n, k]) -> (y: f32[n, k])
{ y[i, j] = x[i, at[i, j]]; }

# The nearest of m codes, and how far it is.
operator com.acme::Nearest(x: T[n, d], codes: T[m, d]) -> (y: T[n, d], at: i64[n], worst: i64[n])
  type T in f32;
{
  away[i: n, j: m] = sum(k: d, (x[i, k] - codes[j, k]) * (x[i, k] - codes[j, k]));
  at[i] = argmin(j: m, away[i, j]);
  worst[i] = argmax(j: m, away[i, j]);
  y[i, c] = x[i, c] - codes[at[i], c];
}
"""


def softcap(x, cap=5.0):
    return cap * np.tanh(x / cap)


def standardise(x):
    mean, deviation = x.mean(-1), np.sqrt(x.var(-1) + 1e-5)
    return (x - mean[..., None]) / deviation[..., None], mean, deviation


def shift(x, f, pads, stride):
    x = np.pad(x, ((0, 0), (0, 0), (pads[0],) * 2, (pads[1],) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(x, f.shape[1:], (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwab,cab->nchw", windows, f)


def attend(q, k, v):
    score = np.einsum("nhe,mhe->hnm", q, k) / np.sqrt(q.shape[-1])
    weight = np.exp(score - score.max(-1, keepdims=True))
    return np.einsum("hnm,mhe->nhe", weight / weight.sum(-1, keepdims=True), v)


def pick(x, at):
    return np.take_along_axis(x, np.clip(at, 0, x.shape[1] - 1), 1)


def nearest(x, codes):
    away = ((x[:, None] - codes) ** 2).sum(-1)
    return x - codes[away.argmin(1)], away.argmin(1), away.argmax(1)


# Operator: operands (None stands for the open size), attributes, the function of NumPy.
CASES = {
    "Softcap": ([(None, 3, 40)], {"cap": 2.0}, lambda x: softcap(x, 2.0)),
    "Standardise": ([(None, 4, 96)], {}, standardise),
    "Shift": ([(None, 6, 17, 20), (6, 3, 5)], {"pads": [1, 2], "stride": 2}, lambda x, f: shift(x, f, [1, 2], 2)),
    "Attend": ([(None, 4, 32), (50, 4, 32), (50, 4, 32)], {}, attend),
    "Pick": ([(None, 30), (None, 5)], {}, pick),
    "Nearest": ([(None, 12), (37, 12)], {}, nearest),
}


def tilewright(*words, code=0):
    done = subprocess.run([BIN / "tilewright", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stderr + done.stdout if code else done.stdout


def one_node(op, shapes, attributes, outputs, element=TensorProto.FLOAT):
    """x0, x1, ... → op → y0, y1, ..., with an addition behind the first result."""
    names = ["x%d" % i for i in range(len(shapes))]
    kinds = [TensorProto.INT64 if op == "Pick" and i == 1 else element for i in range(len(shapes))]
    results = ["y%d" % i for i in range(outputs)]
    nodes = [helper.make_node(op, names, results, name="mine", domain="com.acme", **attributes),
             helper.make_node("Add", ["y0", "y0"], ["sum"], name="twice")]
    make = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "one", [make(n, kind, ["N" if d is None else d for d in shape]) for n, kind, shape in zip(names, kinds, shapes)],
        [make("sum", element, None), *(make(name, TensorProto.INT64 if op == "Nearest" else element, None) for name in results[1:])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)])


def inputs_of(op, shapes, n, element=np.float32):
    rng = np.random.default_rng(n)
    sized = [[n if d is None else d for d in shape] for shape in shapes]
    values = [rng.standard_normal(shape).astype(element) for shape in sized]
    if op == "Pick":
        values[1] = rng.integers(-3, 33, sized[1])
    return values


def run(module, inputs, folder):
    words = []
    for i, value in enumerate(inputs):
        np.save(folder / f"x{i}.npy", value)
        words += ["--input", f"x{i}={folder / f'x{i}.npy'}"]
    tilewright("run", module, *words, "--output-dir", folder / "out", "--repeat", 1)
    found = []
    for path in sorted((folder / "out").glob("output_*.pb")):
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        found.append(numpy_helper.to_array(tensor))
    return found


def expect(op, found, inputs, tolerance=2e-5):
    wanted = CASES[op][2](*[x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs])
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    wanted[0] = 2 * wanted[0]
    assert len(found) == len(wanted), (op, len(found))
    for f, w in zip(found, wanted):
        assert f.shape == w.shape, (op, f.shape, w.shape)
        error = np.abs(f - w).max() / max(1, np.abs(w).max())
        assert error <= tolerance, (op, error)


class Folder(tempfile.TemporaryDirectory):
    def __enter__(self):
        folder = Path(super().__enter__())
        (folder / "acme.ops").write_text(OPERATORS)
        return folder


def save(folder, op, **more):
    shapes, attributes, _ = CASES[op]
    onnx.save(one_node(op, shapes, attributes, 3 if op in ("Standardise", "Nearest") else 1, **more), str(folder / "m.onnx"))
    return shapes


def fixed_sizes_are_what_numpy_says():
    for op in CASES:
        with Folder(prefix="tilewright-custom-") as folder:
            shapes = save(folder, op)
            for threads in (1, 2):
                tilewright("compile", folder / "m.onnx", "--target", f"native,threads={threads}", "--shape", "N=7", "--operators", folder / "acme.ops",
                           "-o", folder / "m.tw")
                inputs = inputs_of(op, shapes, 7)
                expect(op, run(folder / "m.tw", inputs, folder), inputs)


def one_module_computes_at_all_sizes():
    for op in CASES:
        with Folder(prefix="tilewright-custom-") as folder:
            shapes = save(folder, op)
            tilewright("compile", folder / "m.onnx", "--target", "native,threads=2", "--shape", "N=1..64", "--operators", folder / "acme.ops",
                       "-o", folder / "m.tw", "--effort", 0)
            for n in (1, 2, 13, 64):
                inputs = inputs_of(op, shapes, n)
                expect(op, run(folder / "m.tw", inputs, folder), inputs)


def elementwise_definitions_are_fused():
    with Folder(prefix="tilewright-custom-") as folder:
        save(folder, "Softcap")
        summary = json.loads(tilewright("compile", folder / "m.onnx", "--target", "native", "--shape", "N=4", "--operators", folder / "acme.ops",
                                        "-o", folder / "m.tw", "--format", "json"))
        assert len(summary["kernels"]) == 1, summary["kernels"]


def floats_of_16_bits_are_rounded_results():
    with Folder(prefix="tilewright-custom-") as folder:
        shapes = save(folder, "Standardise", element=TensorProto.FLOAT16)
        tilewright("compile", folder / "m.onnx", "--target", "native", "--shape", "N=5", "--operators", folder / "acme.ops", "-o", folder / "m.tw")
        inputs = inputs_of("Standardise", shapes, 5, np.float16)
        found = run(folder / "m.tw", inputs, folder)
        assert all(f.dtype == np.float16 for f in found)
        expect("Standardise", found, inputs, 2e-3)


def tuning_checks_candidates_with_the_definition():
    """The tuner gets the definitions with the model, with and without its weights."""
    for words in ((), ("--records-only",)):
        with Folder(prefix="tilewright-custom-") as folder:
            shapes = save(folder, "Attend")
            said = json.loads(tilewright("tune", folder / "m.onnx", "--target", "native,threads=1", "--shape", "x0=9x4x32", "--operators", folder / "acme.ops",
                                         "--trials", 12, "--log", folder / "log.db", "--state-dir", folder / "state", "-o", folder / "m.tw", "--format", "json",
                                         *words))
            assert said["progress"]["measured"] >= 12, said["progress"]
            assert "WRONG_RESULT" not in json.dumps(said["progress"]), said["progress"]
            inputs = inputs_of("Attend", shapes, 9)
            expect("Attend", run(folder / "m.tw", inputs, folder), inputs)


def definitions_inside_of_a_model_need_no_file():
    with Folder(prefix="tilewright-custom-") as folder:
        op = tw.Operator("com.acme::Softcap")
        op.type("T", "f32")
        x, y, cap = op.operand("x", "T[..]"), op.result("y", "T[..]"), op.attribute("cap", 5.0)
        op.define(y[...], cap * tw.tanh(x[...] / cap))
        shapes = save(folder, "Softcap")
        model = onnx.load(str(folder / "m.onnx"))
        op.add_to(model)
        onnx.save(model, str(folder / "m.onnx"))
        said = tilewright("check", folder / "m.onnx", "--shape", "N=3")
        assert "Softcap of com.acme: 1 nodes, defined in com.acme::Softcap" in said, said
        tilewright("compile", folder / "m.onnx", "--target", "native", "--shape", "N=3", "-o", folder / "m.tw")
        inputs = inputs_of("Softcap", shapes, 3)
        expect("Softcap", run(folder / "m.tw", inputs, folder), inputs)


LIBRARY = r"""
#include <stdio.h>
#include <string.h>
#include "external_kernel.h"

/* Sums of the last k elements of each row; fails for rows that begin with 99. */
int32_t acme_window(const DLTensor* in, int32_t ins, DLTensor* out, int32_t outs, const char* attributes) {
  long k = 0;
  if (ins != 1 || outs != 1 || sscanf(attributes, "k = %ld\n", &k) != 1 || !strstr(attributes, "mode = \"sum\"\n")) return 2;
  if (in->ndim != 2 || out->ndim != 2 || in->dtype.code != kDLFloat || in->dtype.bits != 32 || out->shape[1] != in->shape[1]) return 3;
  const float* x = (const float*)in->data;
  float* y = (float*)out->data;
  for (int64_t r = 0; r < in->shape[0]; ++r) {
    if (x[r * in->shape[1]] == 99) return 7;
    for (int64_t c = 0; c < in->shape[1]; ++c) {
      y[r * in->shape[1] + c] = 0;
      for (int64_t i = c; i >= 0 && i > c - k; --i) y[r * in->shape[1] + c] += x[r * in->shape[1] + i];
    }
  }
  return 0;
}

int32_t acme_product_less(const DLTensor* in, int32_t ins, DLTensor* out, int32_t outs, const char* attributes) {
  if (ins != 3 || outs != 1 || attributes[0] != 0) return 2;
  const float *a = (const float*)in[0].data, *b = (const float*)in[1].data, *c = (const float*)in[2].data;
  for (int64_t i = 0; i < out->shape[0]; ++i) ((float*)out->data)[i] = a[i] * b[i] - c[i];
  return 0;
}
"""
EXTERNAL = """
operator com.acme::Window(x: T[n, d]) -> (y: T[n, d])
  type T in f32; attribute k: int = 3; attribute mode: string = "sum"; require k >= 1;
  library "libacme.so" function acme_window
"""
REFERENCE = "{ y[i, j] = sum(l: k, select(j - l >= 0, x[i, j - l], 0)); }"


def external(folder, reference=";"):
    """relu → Window → twice, and the library."""
    (folder / "acme.c").write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-I", ROOT / "deploy/runtime", "-o", folder / "libacme.so", folder / "acme.c"],
                   check=True)
    (folder / "window.ops").write_text(EXTERNAL + reference)
    nodes = [helper.make_node("Relu", ["x0"], ["r"], name="relu"), helper.make_node("Window", ["r"], ["w"], name="mine", domain="com.acme", k=4),
             helper.make_node("Add", ["w", "w"], ["sum"], name="twice")]
    make = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "external", [make("x0", 1, ["N", 33])], [make("sum", 1, ["N", 33])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)])
    onnx.save(model, str(folder / "m.onnx"))
    x = np.random.default_rng(5).standard_normal((6, 33)).astype(np.float32)
    r = np.maximum(x, 0).astype(np.float64)
    sums = np.cumsum(r, 1)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", (2 * (sums - np.pad(sums, ((0, 0), (4, 0)))[:, :-4])).astype(np.float32))


def a_library_computes_an_operator_where_it_is_allowed():
    with Folder(prefix="tilewright-custom-") as folder:
        external(folder)
        allowed = ("--allow-library", folder / "libacme.so")
        for threads, shape in ((1, "N=6"), (2, "N=1..64")):
            said = tilewright("compile", folder / "m.onnx", "--target", f"native,threads={threads}", "--shape", shape, "--operators", folder / "window.ops",
                              "-o", folder / "m.tw")
            assert "none: library libacme.so" in said, said
            run_it = ("run", folder / "m.tw", "--input", f"x0={folder / 'x.npy'}", "--repeat", 3)
            tilewright(*run_it, *allowed, "--expect", f"sum={folder / 'y.npy'}", "--rtol", "1e-4")
            # Nothing is loaded that the caller did not name, wherever it is.
            said = tilewright(*run_it, code=1)
            assert "runtime.load.library" in said and "libacme.so" in said and "--allow-library" in said, said
            (folder / "other.so").write_bytes((folder / "libacme.so").read_bytes())
            assert "runtime.load.library" in tilewright(*run_it, "--allow-library", folder / "other.so", code=1)
            tilewright(*run_it, *allowed, "--sandbox", code=2)
        # A failing function ends the run, and the session can go on.
        x = np.load(folder / "x.npy")
        x[2, 0] = 99
        np.save(folder / "bad.npy", x)
        said = tilewright("run", folder / "m.tw", "--input", f"x0={folder / 'bad.npy'}", *allowed, code=1)
        assert "runtime.run.library_failed" in said and "acme_window returned 7" in said, said


def a_library_gets_an_operand_as_often_as_the_node_has_it():
    with Folder(prefix="tilewright-custom-") as folder:
        external(folder)
        (folder / "less.ops").write_text("operator com.acme::Less(a: f32[n], b: f32[n], c: f32[n]) -> (y: f32[n]) "
                                         'library "libacme.so" function acme_product_less;')
        make = helper.make_tensor_value_info
        node = helper.make_node("Less", ["c", "x", "x"], ["y"], name="less", domain="com.acme")
        graph = helper.make_graph([node], "twice", [make("x", 1, [5]), make("c", 1, [5])], [make("y", 1, [5])])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]), str(folder / "less.onnx"))
        x, c = np.float32([1, 2, 3, 4, 5]), np.float32([7, -1, 0, 2, 9])
        for name, value in (("x", x), ("c", c), ("y", c * x - x)):
            np.save(folder / f"{name}.npy", value)
        tilewright("compile", folder / "less.onnx", "--target", "native", "--operators", folder / "less.ops", "-o", folder / "less.tw")
        tilewright("run", folder / "less.tw", "--input", f"x={folder / 'x.npy'}", "--input", f"c={folder / 'c.npy'}", "--allow-library",
                   folder / "libacme.so", "--expect", f"y={folder / 'y.npy'}")


def a_module_with_a_library_runs_from_python():
    code = """if True:
        import sys, numpy as np
        import tilewright_runtime as tw
        x, y = np.load("x.npy"), np.load("y.npy")
        try:
            tw.Module("m.tw")
            sys.exit("loaded without the library")
        except tw.Error as error:
            assert error.status == "failed_precondition", error
        session = tw.Session(tw.Module("m.tw", libraries=["./libacme.so"]))
        assert np.allclose(session.run({"x0": x})["sum"], y, rtol=1e-4, atol=1e-5)
        bad = x.copy()
        bad[0, 0] = 99
        try:
            session.run({"x0": bad})
            sys.exit("a failing function was no error")
        except tw.Error as error:
            assert "acme_window returned 7" in str(error), error
        assert np.allclose(session.run({"x0": x})["sum"], y, rtol=1e-4, atol=1e-5)
    """
    with Folder(prefix="tilewright-custom-") as folder:
        external(folder)
        tilewright("compile", folder / "m.onnx", "--target", "native,threads=1", "--shape", "N=6", "--operators", folder / "window.ops", "-o", folder / "m.tw")
        environment = {"PYTHONPATH": str(ROOT / "deploy/bindings/python"), "PATH": "/usr/bin:/bin",
                       "TILEWRIGHT_RUNTIME_LIBRARY": str(next((BIN.parent / "lib").glob("libtilewright_runtime.so")))}
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def what_a_library_computes_is_not_tuned():
    with Folder(prefix="tilewright-custom-") as folder:
        external(folder)
        said = json.loads(tilewright("tune", folder / "m.onnx", "--target", "native,threads=1", "--shape", "x0=6x33", "--operators", folder / "window.ops",
                                     "--trials", 6, "--log", folder / "log.db", "--state-dir", folder / "state", "-o", folder / "m.tw", "--format", "json"))
        assert said["progress"]["tasks"] == 2, said["progress"]
        tilewright("run", folder / "m.tw", "--input", f"x0={folder / 'x.npy'}", "--expect", f"sum={folder / 'y.npy'}", "--rtol", "1e-4",
                   "--allow-library", folder / "libacme.so")


def a_library_is_compared_with_its_reference():
    with Folder(prefix="tilewright-custom-") as folder:
        external(folder)
        words = ("compare", folder / "m.onnx", "--shape", "N=6", "--operators", folder / "window.ops", "--input", f"x0={folder / 'x.npy'}")
        said = tilewright(*words, code=1)
        assert "runtime.load.library" in said and "--allow-library" in said, said
        words += ("--allow-library", folder / "libacme.so")
        said = tilewright(*words, code=1)
        assert "op.external.reference" in said, said
        (folder / "window.ops").write_text(EXTERNAL + REFERENCE)
        said = tilewright(*words)
        assert "DIFFERS" not in said and "  mine" in said, said
        (folder / "window.ops").write_text(EXTERNAL + REFERENCE.replace("j - l", "j - l - 1"))
        said = tilewright(*words, code=5)
        assert "DIFFERS" in said and "mine" in said, said


def mistakes_say_where_they_are():
    with Folder(prefix="tilewright-custom-") as folder:
        save(folder, "Softcap")
        call = lambda *words: tilewright("compile", folder / "m.onnx", "--target", "native", "--shape", "N=3", "-o", folder / "m.tw", *words, code=1)
        said = call()
        assert "Softcap" in said and "com.acme" in said and "--operators" in said, said
        (folder / "bad.ops").write_text("# first line\noperator com.acme::Softcap(x: f32[n]) -> (y: f32[n])\n{ y[i] = x[i]] ; }\n")
        said = call("--operators", folder / "bad.ops")
        assert "op.custom.syntax" in said and "bad.ops" in said and "line 3" in said, said
        (folder / "rank.ops").write_text("operator com.acme::Softcap(x: f32[n]) -> (y: f32[n]) attribute cap: float; { y[i] = x[i] / cap; }")
        said = call("--operators", folder / "rank.ops")
        assert "op.custom.shape" in said and "rank.ops" in said and "mine" in said, said
        said = call("--operators", folder / "acme.ops", "--operators", folder / "rank.ops")
        assert "op.custom.name" in said and "acme.ops" in said and "rank.ops" in said, said
        tilewright("compile", folder / "m.onnx", "--target", "native", "--operators", folder / "none.ops", "-o", folder / "m.tw", code=3)
        said = tilewright("check", folder / "m.onnx", "--shape", "N=3", "--operators", folder / "rank.ops", code=1)
        assert "op.custom.shape" in said and "Softcap of com.acme" in said, said
        assert not (folder / "m.tw").exists()


if __name__ == "__main__":
    run_checks(fixed_sizes_are_what_numpy_says, one_module_computes_at_all_sizes, elementwise_definitions_are_fused,
               floats_of_16_bits_are_rounded_results, tuning_checks_candidates_with_the_definition, definitions_inside_of_a_model_need_no_file,
               a_library_computes_an_operator_where_it_is_allowed, a_library_gets_an_operand_as_often_as_the_node_has_it,
               a_module_with_a_library_runs_from_python, what_a_library_computes_is_not_tuned, a_library_is_compared_with_its_reference,
               mistakes_say_where_they_are)
