#!/usr/bin/env python3
"""The seven networks, narrow and small, compiled for NVIDIA's GPUs with default schedules and run on an emulated one
(tests/support/simt): a driver and a compiler that stand in for the vendor's. The emulator refuses races, bad barriers and
accesses out of bounds. Products of 16-bit floats have tensor cores. Outputs have the same bounds as on the processor (networks_quick.py). Then what users see where
driver, compiler or memory are missing, or a device is lost. With --long the networks that take it minutes, too."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, BUILD, make_models, run_checks  # noqa: E402
from half_tensors import as_bf16, half_tensor  # noqa: E402
from network_check import check, text  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402

FAKES = str(BUILD / "tests/support/simt/fake_cuda")
OLD_DRIVER = str(BUILD / "tests/support/simt/fake_cuda_old")  # without graphs
TARGET = "cuda,arch=sm_90"
QUICK, LONG = ("dqn",), ("resnet18", "mobilenet", "dcgan", "lstm_lm", "resnet50", "bert_small")


def network(name):
    def run():
        with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
            row = check(name, VARIANTS[name], folder, targets={"cuda": (TARGET, 1)})
            print("        " + text(row))
            assert row["good"], "outputs differ from the evaluator's"
    run.__name__ = name
    return run


def tilewright(*args, code, said, **environment):
    """Runs the command; it must end with this code and say this."""
    done = subprocess.run([str(BIN / "tilewright"), *map(str, args)], capture_output=True, text=True,
                          env=dict(os.environ, **environment), check=False)
    assert done.returncode == code, f"exit {done.returncode}, expected {code}\n{done.stderr}"
    assert said in done.stderr, f"expected {said}, found\n{done.stderr}"


def what_users_see():
    with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
        model, module = make_models(folder, "dqn", *VARIANTS["dqn"]) / "dqn/model.onnx", Path(folder) / "dqn.tw"
        tilewright("compile", model, "--target", TARGET, "-o", module, code=0, said="")
        run = ("run", module, "--repeat", 1)
        tilewright(*run, code=3, said="runtime.device.none", FAKE_CUDA_DEVICES="0")
        tilewright(*run, code=1, said="runtime.device.out_of_memory", FAKE_CUDA_FAIL="cuMemAlloc:2:0")
        tilewright(*run, code=1, said="runtime.device.kernel_failed", FAKE_CUDA_FAIL="cuStreamSynchronize:719:3")
        tilewright(*run, code=4, said="look into the driver's log", FAKE_CUDA_FAIL="cuLaunchKernel:46:2")
        tilewright(*run, code=1, said="runtime.device.unsupported", FAKE_CUDA_FAIL="cuLaunchKernel:701:0")
        # Later runs are one graph, unless that is switched off or the driver has none.
        later = ("run", module, "--repeat", 3)
        tilewright(*later, code=1, said="cuGraphLaunch", FAKE_CUDA_FAIL="cuGraphLaunch:719:0")
        tilewright(*later, code=0, said="", FAKE_CUDA_FAIL="cuGraphLaunch:719:0", TILEWRIGHT_LAUNCH_GRAPHS="off")
        # A driver that cannot make one, for whatever reason, gets the launches one by one.
        for reason in ("cuStreamBeginCapture:2", "cuStreamEndCapture:901", "cuGraphInstantiate:801"):
            tilewright(*later, code=0, said="", FAKE_CUDA_FAIL=f"{reason}:0")
        tilewright(*later, code=0, said="", LD_LIBRARY_PATH=f"{OLD_DRIVER}:{FAKES}")
        tilewright("compile", model, "--target", TARGET, "-o", Path(folder) / "no.tw", code=1, FAKE_NVRTC_NEWEST="80",
                   said="codegen.device_compiler.missing")
        other = Path(folder) / "other.tw"
        tilewright("compile", model, "--target", "cuda,arch=sm_80", "-o", other, code=0, said="")
        tilewright("run", other, code=1, said="sm_80")


def products_of_halves():
    """ONNX products of 16-bit floats of both kinds, with a bias and Relu, have the tensor cores by default: whole tiles and
    ragged ones."""
    random = np.random.default_rng(3)
    kinds = {TensorProto.FLOAT16: ("f16", lambda x: x.astype(np.float16).astype(np.float32), 2e-3),
             TensorProto.BFLOAT16: ("bf16", as_bf16, 2e-2)}
    for kind, (word, rounded, bound) in kinds.items():
        for m, k, n in ((64, 64, 64), (19, 48, 40)):
            x, w, b = (rounded(random.standard_normal(shape).astype(np.float32)) for shape in ((m, k), (k, n), (n,)))
            graph = helper.make_graph(
                [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["q"]),
                 helper.make_node("Relu", ["q"], ["y"])], "halves",
                [helper.make_tensor_value_info("x", kind, [m, k])], [helper.make_tensor_value_info("y", kind, [m, n])],
                [half_tensor(w, kind, "w"), half_tensor(b, kind, "b")])
            with tempfile.TemporaryDirectory(prefix="tilewright-halves-") as folder:
                files = {name: Path(folder) / name for name in ("m.onnx", "m.tw", "x.pb", "y.pb", "dump")}
                onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), files["m.onnx"])
                files["x.pb"].write_bytes(half_tensor(x, kind, "x").SerializeToString())
                y = rounded(np.maximum(rounded(rounded(x @ w) + b), 0))
                files["y.pb"].write_bytes(half_tensor(y, kind, "y").SerializeToString())
                tilewright("compile", files["m.onnx"], "--target", TARGET, "-o", files["m.tw"], "--dump-ir", files["dump"],
                           code=0, said="")
                kernels = "".join(text.read_text() for text in files["dump"].glob("*.cu"))
                assert f"tw_cuda_mma_{word}(" in kernels.split("__launch_bounds__", 1)[1], "expected tensor cores"
                tilewright("run", files["m.tw"], "--input", f"x={files['x.pb']}", "--expect", f"y={files['y.pb']}",
                           "--rtol", bound, "--atol", bound, "--repeat", 1, code=0, said="")


def products_of_four_warps():
    """On sm_90a: factors in shared memory, to where a unit copies whole tiles. The second of two runs is a graph, whose maps
    stay. A driver that makes no maps is too old."""
    random = np.random.default_rng(4)
    m, k, n = 512, 512, 512
    x, w = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "warps",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [m, k])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [m, n])], [numpy_helper.from_array(w, "w")])
    with tempfile.TemporaryDirectory(prefix="tilewright-warps-") as name:
        folder = Path(name)
        model, module = folder / "m.onnx", folder / "m.tw"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
        for tensor, value in (("x", x), ("y", (x.astype(np.float32) @ w.astype(np.float32)).astype(np.float16))):
            (folder / f"{tensor}.pb").write_bytes(numpy_helper.from_array(value, tensor).SerializeToString())
        tilewright("compile", model, "--target", f"{TARGET}a", "-o", module, "--dump-ir", folder / "dump", code=0, said="")
        kernels = "".join(text.read_text() for text in (folder / "dump").glob("*.cu"))
        assert "TW_BULK_COPY(" in kernels.split("__launch_bounds__", 1)[1], "expected copies of whole tiles"
        run = ("run", module, "--input", f"x={folder}/x.pb", "--expect", f"y={folder}/y.pb", "--rtol", 2e-3, "--atol", 2e-3)
        tilewright(*run, "--repeat", 2, code=0, said="")
        tilewright(*run, "--repeat", 1, code=1, said="tensor maps", LD_LIBRARY_PATH=f"{OLD_DRIVER}:{FAKES}")


def products_of_bytes():
    """Integer products of ONNX, of two inputs or of constant weights, quantised ones with all that follows: tensor cores, with
    default schedules dot products of four, and exact."""
    random = np.random.default_rng(5)
    m, k, n = 96, 128, 80
    w = random.integers(-128, 128, (k, n), np.int8)
    scales = [numpy_helper.from_array(np.array(v, t), name) for name, v, t in
              (("sx", .02, np.float32), ("sw", .01, np.float32), ("sy", .9, np.float32), ("zx", 128, np.uint8), ("zw", 0, np.int8))]
    quantised = helper.make_node("QLinearMatMul", ["x", "sx", "zx", "w", "sw", "zw", "sy", "zx"], ["y"])
    integer = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    for type_, node, constant in ((np.int8, integer, False), (np.uint8, integer, False), (np.int8, integer, True), (np.uint8, quantised, True)):
        x = random.integers(np.iinfo(type_).min, np.iinfo(type_).max + 1, (m, k), type_)
        inputs = [helper.make_tensor_value_info("x", TensorProto.INT8 if type_ is np.int8 else TensorProto.UINT8, [m, k])]
        if not constant:
            inputs.append(helper.make_tensor_value_info("w", TensorProto.INT8, [k, n]))
        expected = x.astype(np.int64) @ w
        if node is quantised:
            expected = np.clip(np.rint((x.astype(np.int64) - 128) @ w * (.02 * .01 / .9)) + 128, 0, 255)
        weights = [numpy_helper.from_array(w, "w")] * constant + scales * (node is quantised)
        result = TensorProto.UINT8 if node is quantised else TensorProto.INT32
        graph = helper.make_graph([node], "product", inputs, [helper.make_tensor_value_info("y", result, [m, n])], weights)
        with tempfile.TemporaryDirectory(prefix="tilewright-bytes-") as name:
            folder = Path(name)
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
            for tensor, value in (("x", x), ("w", w)):
                (folder / f"{tensor}.pb").write_bytes(numpy_helper.from_array(value, tensor).SerializeToString())
            given = [word for tensor in inputs for word in ("--input", f"{tensor.name}={folder}/{tensor.name}.pb")]
            # By default, constant weights are packed for dot products; other factors are multiplied one by one.
            for effort, called, wanted in (((), "tw_cuda_mma_", True), (("--effort", 0), "tw_dot4(", constant)):
                dump = folder / f"dump{len(effort)}"
                tilewright("compile", folder / "m.onnx", "--target", TARGET, *effort, "-o", folder / "m.tw", "--dump-ir", dump, code=0,
                           said="")
                kernels = "".join(text.read_text() for text in dump.glob("*.cu"))
                calls = called in kernels.split("__launch_bounds__", 1)[1]
                assert calls == wanted, f"{called} for {node.op_type} of {type_}: expected {wanted}, found {calls}"
                tilewright("run", folder / "m.tw", *given, "--output-dir", folder, "--repeat", 1, code=0, said="")
                found = numpy_helper.to_array(TensorProto.FromString((folder / "output_0.pb").read_bytes()))
                assert np.array_equal(found, expected), f"{node.op_type} of {type_}"


def long_sums():
    """Products and convolutions of f32 with few results and many terms: sums in parts, which a second launch adds up, the same bits
    in each run."""
    random = np.random.default_rng(6)
    x, w = random.standard_normal((64, 4096)).astype(np.float32), random.standard_normal((4096, 64)).astype(np.float32)
    image, taps = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 256, 7, 7), (64, 256, 1, 1)))
    for node, data, weights, expected in (
            (helper.make_node("MatMul", ["x", "w"], ["y"]), x, w, x.astype(np.float64) @ w),
            (helper.make_node("Conv", ["x", "w"], ["y"]), image, taps, np.einsum("oc,nchw->nohw", taps[:, :, 0, 0].astype(np.float64), image))):
        graph = helper.make_graph([node], "sums", [helper.make_tensor_value_info("x", TensorProto.FLOAT, data.shape)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, expected.shape)], [numpy_helper.from_array(weights, "w")])
        with tempfile.TemporaryDirectory(prefix="tilewright-sums-") as name:
            folder = Path(name)
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
            (folder / "x.pb").write_bytes(numpy_helper.from_array(data, "x").SerializeToString())
            tilewright("compile", folder / "m.onnx", "--target", TARGET, "-o", folder / "m.tw", "--dump-ir", folder / "dump", code=0, said="")
            program = "".join(text.read_text() for text in (folder / "dump").glob("*/00_input.tir"))
            kernels = "".join(text.read_text() for text in (folder / "dump").glob("*.cu"))
            assert "_rf: " in program and "_k1(" in kernels, f"expected sums in parts for {node.op_type}"
            results = []
            for _ in range(2):
                tilewright("run", folder / "m.tw", "--input", f"x={folder}/x.pb", "--output-dir", folder, "--repeat", 1, code=0, said="")
                results.append(numpy_helper.to_array(TensorProto.FromString((folder / "output_0.pb").read_bytes())))
            assert np.array_equal(*results), f"{node.op_type}: another result in the second run"
            error = np.linalg.norm(results[0] - expected) / np.linalg.norm(expected)
            assert error < 1e-6, f"{node.op_type}: error {error}"


def rounded_products():
    """Products of f32 have the tensor cores where the target asks for them, and are as exact as the model says elsewhere."""
    random = np.random.default_rng(4)
    for m, k, n in ((64, 64, 64), (100, 300, 100)):
        x, w = random.standard_normal((m, k)).astype(np.float32), random.standard_normal((k, n)).astype(np.float32)
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])], [numpy_helper.from_array(w, "w")])
        for asked in (False, True):
            with tempfile.TemporaryDirectory(prefix="tilewright-rounded-") as name:
                folder = Path(name)
                onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
                (folder / "x.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
                tilewright("compile", folder / "m.onnx", "--target", TARGET + ",tf32=on" * asked, "-o", folder / "m.tw", "--dump-ir",
                           folder / "dump", code=0, said="")
                kernels = "".join(text.read_text() for text in (folder / "dump").glob("*.cu"))
                assert ("tw_cuda_mma_tf32(" in kernels) == asked, f"asked for: {asked}"
                tilewright("run", folder / "m.tw", "--input", f"x={folder}/x.pb", "--output-dir", folder, "--repeat", 1, code=0, said="")
                found = numpy_helper.to_array(TensorProto.FromString((folder / "output_0.pb").read_bytes()))
                error = np.linalg.norm(found - x.astype(np.float64) @ w) / np.linalg.norm(found)
                assert 1e-4 < error < 1e-3 if asked else error < 1e-6, f"asked for: {asked}, error {error}"


if __name__ == "__main__":
    os.environ["LD_LIBRARY_PATH"] = FAKES
    run_checks(*map(network, QUICK + (LONG if "--long" in sys.argv else ())), products_of_halves, products_of_four_warps, products_of_bytes, long_sums, rounded_products, what_users_see)
