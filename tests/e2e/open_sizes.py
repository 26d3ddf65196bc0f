#!/usr/bin/env python3
"""Modules of open sizes: one module computes at every size what a module compiled for that size does."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "support"), str(ROOT / "models")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402
from fleet import BIN, run_checks  # noqa: E402
from open_models import MODELS  # noqa: E402

# Ranges of the open dimensions, and sizes to run at: ends, powers of two, odd ones.
CASES = {
    "mlp": ({"batch": "1..64"}, [(1,), (2,), (7,), (33,), (64,)]),
    "cnn": ({"N": "1..8", "H": "8..64", "W": "8..64"}, [(1, 8, 8), (2, 9, 13), (8, 64, 64), (3, 31, 17)]),
    "cnn_int8": ({"N": "1..8", "H": "8..64", "W": "8..64"}, [(1, 8, 8), (8, 64, 64), (3, 31, 17)]),
    "encoder": ({"N": "1..4", "L": "1..96"}, [(1, 1), (1, 64), (4, 7), (3, 33), (2, 96)]),
    "lstm": ({"T": "1..32", "N": "1..4"}, [(1, 1), (7, 1), (32, 4)]),
    "unet": ({"N": "1..4", "H": "16..96", "W": "16..96"}, [(1, 16, 16), (2, 33, 50), (4, 64, 96)]),
    "unet_resize": ({"N": "1..4", "H": "16..96", "W": "16..96"}, [(1, 16, 16), (3, 17, 31), (2, 96, 50)]),
}


def tilewright(*words, code=0):
    done = subprocess.run([BIN / "tilewright", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stderr if code else done.stdout


def shapes(sizes):
    return [word for name, size in sizes.items() for word in ("--shape", f"{name}={size}")]


def output(module, x, folder):
    np.save(folder / "x.npy", x)
    tilewright("run", module, "--input", f"x={folder / 'x.npy'}", "--output-dir", folder / "out", "--repeat", 1)
    tensor = onnx.TensorProto()
    tensor.ParseFromString((folder / "out" / "output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def compiled(name, folder, target, sizes, file, *words, effort=0):
    module = folder / file
    tilewright("compile", folder / f"{name}.onnx", "--target", target, "--effort", effort, "-o", module, *shapes(sizes), *words)
    return module


def every_size_is_that_of_its_own_module():
    """By default schedules, with one thread and with two, and by predicted ones (of Winograd's form, too)."""
    rng = np.random.default_rng(7)
    for name, (ranges, runs) in CASES.items():
        make, shape = MODELS[name]
        with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
            folder = Path(where)
            onnx.save(make(), str(folder / f"{name}.onnx"))
            modules = [compiled(name, folder, f"native,threads={threads}", ranges, f"{threads}.tw") for threads in (1, 2)]
            modules.append(compiled(name, folder, "native,threads=1", ranges, "predicted.tw", effort=2))
            for run in runs:
                sizes = dict(zip(ranges, run))
                extents = [sizes.get(dim, dim) for dim in shape]
                x = rng.integers(0, 40, extents) if name == "lstm" else rng.standard_normal(extents).astype(np.float32)
                wanted = output(compiled(name, folder, "native,threads=1", sizes, "fixed.tw"), x, folder)
                for module in modules:
                    found = output(module, x, folder)
                    assert found.shape == wanted.shape, (name, sizes, found.shape, wanted.shape)
                    error = np.abs(found - wanted).max() / np.abs(wanted).max()
                    assert error <= (1e-4 if module.stem == "predicted" else 1e-5), (name, sizes, module, error)


def kernels_choose_algorithms_by_size():
    """Of a wide range: small and large images have other algorithms in one kernel, each with weights of its own."""
    with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
        folder = Path(where)
        onnx.save(MODELS["unet"][0](), str(folder / "unet.onnx"))
        ranges = {"N": "1", "H": "16..512", "W": "16..512"}
        compiled("unet", folder, "cpu,arch=x86_64,cpu=znver5,threads=1", ranges, "m.tw", "--dump-ir", folder / "ir")
        found = [path.name for path in (folder / "ir").iterdir() if "_winograd" in path.name or "_direct" in path.name]
        assert any("_to_" in name or "_over_" in name for name in found), sorted(path.name for path in (folder / "ir").iterdir())
        module = compiled("unet", folder, "native,threads=1", ranges, "open.tw")
        rng = np.random.default_rng(7)
        for height, width in ((16, 16), (24, 40), (90, 70), (300, 256)):
            x = rng.standard_normal((1, 3, height, width)).astype(np.float32)
            wanted = output(compiled("unet", folder, "native,threads=1", {"N": 1, "H": height, "W": width}, "fixed.tw"), x, folder)
            error = np.abs(output(module, x, folder) - wanted).max() / np.abs(wanted).max()
            assert error <= 1e-5, (height, width, error)


def quantised_layers_of_open_sizes_are_in_bytes():
    """Convolutions on channel blocks with sums of bytes, as fixed sizes have them."""
    with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
        folder = Path(where)
        onnx.save(MODELS["cnn_int8"][0](), str(folder / "cnn_int8.onnx"))
        said = tilewright("compile", folder / "cnn_int8.onnx", "--target", "cpu,arch=x86_64,cpu=icelake-server,threads=1", "--effort", 0, "-o", folder / "m.tw",
                          *shapes(CASES["cnn_int8"][0]), "--format", "json")
        layers = [k["task_name"] for k in json.loads(said)["kernels"] if k["task_name"].startswith("conv2d")]
        assert len(layers) == 3, layers
        for layer in layers:
            name, result = layer.split()[0], layer.split(" → ")[1]
            assert "dequantize" in name and result.startswith("N") and "x16 k3x3" in result, layer


def sizes_outside_of_the_range_are_refused():
    with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
        folder = Path(where)
        onnx.save(MODELS["mlp"][0](), str(folder / "mlp.onnx"))
        module = compiled("mlp", folder, "native", {"batch": "2..8"}, "m.tw")
        np.save(folder / "x.npy", np.zeros((9, 64), np.float32))
        said = tilewright("run", module, "--input", f"x={folder / 'x.npy'}", code=1)
        assert "batch" in said and "2" in said and "8" in said and "9" in said, said
        for bad in ("batch=8..2", "batch=-1..4", "batch=0..0", "batch=1..", "=1..2"):
            assert "--shape" in tilewright("compile", folder / "mlp.onnx", "--target", "native", "--shape", bad, code=2), bad
        said = tilewright("compile", folder / "mlp.onnx", "--target", "native", "--shape", "width=1..4", code=1)
        assert "width" in said, said


def what_needs_numbers_says_so():
    """An operator that the import knows at fixed sizes only: the error names it, the size and the way out."""
    tensor = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Det", ["x"], ["y"], name="volumes")
    graph = onnx.helper.make_graph([node], "det", [tensor("x", 1, ["rows", 2, 2])], [tensor("y", 1, ["rows"])])
    with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
        model = Path(where) / "det.onnx"
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), str(model))
        said = tilewright("compile", model, "--target", "native", "--shape", "rows=1..8", "-o", Path(where) / "m.tw", code=1)
        assert "volumes" in said and "Det" in said and "rows" in said and "--shape" in said, said
        tilewright("compile", model, "--target", "native", "--shape", "rows=8", "-o", Path(where) / "m.tw")
        said = tilewright("check", model, "--shape", "rows=1..8", code=1)
        assert "cli.check.problems" in said, said
        onnx.save(MODELS["mlp"][0](), str(Path(where) / "mlp.onnx"))
        said = tilewright("check", Path(where) / "mlp.onnx", "--shape", "batch=1..8")
        assert "compiles: 2 different kernels" in said, said


def sizes_that_an_operator_cannot_take_are_refused():
    """Halves of odd sizes: kernels would read outside of their tensors."""
    tensor = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("SpaceToDepth", ["x"], ["y"], name="fold", blocksize=2)
    graph = onnx.helper.make_graph([node], "fold", [tensor("x", 1, [1, 1, "H", 4])], [tensor("y", 1, [1, 4, "h", 2])])
    with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
        folder = Path(where)
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), str(folder / "fold.onnx"))
        module = compiled("fold", folder, "native", {"H": "1..9"}, "m.tw")
        x = np.arange(24, dtype=np.float32).reshape(1, 1, 6, 4)
        y = output(module, x, folder)
        assert np.array_equal(y, x.reshape(1, 1, 3, 2, 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 4, 3, 2)), y
        np.save(folder / "x.npy", x[:, :, :5])
        said = tilewright("run", module, "--input", f"x={folder / 'x.npy'}", code=1)
        assert "module.sizes.unequal" in said and "H=5" in said, said


def the_module_says_its_sizes():
    with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
        folder = Path(where)
        onnx.save(MODELS["cnn"][0](), str(folder / "cnn.onnx"))
        module = compiled("cnn", folder, "native", CASES["cnn"][0], "m.tw")
        said = tilewright("run", module, "--shape", "N=2", "--shape", "H=32", "--shape", "W=9", "--repeat", 1, "-o", "json")
        assert json.loads(said)["sizes"] == {"N": 2, "H": 32, "W": 9}, said
        again = compiled("cnn", folder, "native", CASES["cnn"][0], "again.tw")
        assert module.read_bytes() == again.read_bytes(), "the same model gives the same module"


# Points of each model as --specialise takes them, and the function that runs at each of some sizes.
SPECIALISED = {
    "mlp": (["batch=1,8"], {(1,): "at_batch_1", (8,): "at_batch_8", (7,): "main", (64,): "main"}),
    "cnn": (["N=1,H=32,W=9,32", "N=1"], {(1, 32, 9): "at_H_32_N_1_W_9", (1, 32, 32): "at_H_32_N_1_W_32", (1, 16, 9): "at_N_1",
                                         (2, 32, 32): "main"}),
    "encoder": (["N=1,4,L=16", "N=1"], {(1, 16): "at_L_16_N_1", (4, 16): "at_L_16_N_4", (1, 33): "at_N_1", (3, 16): "main"}),
}


def specialised_sizes_are_those_of_their_own_module():
    """To the bit where all sizes are fixed: the same kernels run. Elsewhere the functions of all sizes, or of some, compute."""
    rng = np.random.default_rng(11)
    for name, (points, runs) in SPECIALISED.items():
        make, shape = MODELS[name]
        ranges = CASES[name][0]
        with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
            folder = Path(where)
            onnx.save(make(), str(folder / f"{name}.onnx"))
            words = [word for point in points for word in ("--specialise", point)]
            module = compiled(name, folder, "native,threads=1", ranges, "special.tw", *words)
            plain = compiled(name, folder, "native,threads=1", ranges, "plain.tw")
            for run, function in runs.items():
                sizes = dict(zip(ranges, run))
                said = json.loads(tilewright("run", module, *shapes(sizes), "--repeat", 1, "-o", "json", "--profile"))
                assert said["function"] == function and said["kernels"], (name, sizes, said["function"])
                assert len(said["specialisations"]) == len(set(runs.values()) - {"main"}), said["specialisations"]
                x = rng.standard_normal([sizes.get(dim, dim) for dim in shape]).astype(np.float32)
                found = output(module, x, folder)
                wanted = output(compiled(name, folder, "native,threads=1", sizes, "fixed.tw"), x, folder)
                assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max(), (name, sizes)
                if function == "main":
                    assert np.array_equal(found, output(plain, x, folder)), (name, sizes)
                elif function.count("_") == 2 * len(ranges):
                    assert np.array_equal(found, wanted), (name, sizes)


def predicted_schedules_are_for_open_and_for_specialised_sizes():
    with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
        folder = Path(where)
        onnx.save(MODELS["cnn"][0](), str(folder / "cnn.onnx"))

        def kernels(*words):
            summary = json.loads(tilewright("compile", folder / "cnn.onnx", "--target", "cpu,arch=x86_64,cpu=znver4,threads=1", "--effort", 60,
                                            "-o", folder / "m.tw", "--format", "json", *words))
            return summary, {kernel["task_hash"]: kernel for kernel in summary["kernels"]}

        fixed = kernels("--shape", "N=1", "--shape", "H=64", "--shape", "W=64")[1]
        summary, found = kernels(*shapes(CASES["cnn"][0]), "--specialise", "N=1,H=64,W=64")
        assert any(kernel["predicted"] for kernel in fixed.values()), fixed
        assert [function["at"] for function in summary["functions"]] == [{}, {"H": 64, "N": 1, "W": 64}], summary["functions"]
        for task, kernel in fixed.items():
            assert found[task]["steps"] == kernel["steps"] and found[task]["predicted"] == kernel["predicted"], kernel["task_name"]
        assert any(kernel["predicted"] for task, kernel in found.items() if task not in fixed), "kernels of open sizes"


def wrong_points_are_refused():
    with tempfile.TemporaryDirectory(prefix="tilewright-open-") as where:
        folder = Path(where)
        onnx.save(MODELS["mlp"][0](), str(folder / "mlp.onnx"))
        call = lambda code, *words: tilewright("compile", folder / "mlp.onnx", "--target", "native", "-o", folder / "m.tw", *words, code=code)
        for shape, point, code, slug in (("batch=1..8", "width=4", 1, "driver.specialise.name"), ("batch=2..8", "batch=1", 1, "driver.specialise.size"),
                                         ("batch=8", "batch=8", 1, "driver.specialise.fixed"), ("batch=1..8", "batch", 2, "cli.usage.specialise"),
                                         ("batch=1..8", "batch=4,4", 2, "cli.usage.specialise"),
                                         ("batch=1..99", "batch=" + ",".join(map(str, range(1, 65))), 1, "driver.specialise.too_many")):
            assert slug in call(code, "--shape", shape, "--specialise", point), (shape, point)
        assert not (folder / "m.tw").exists()


if __name__ == "__main__":
    run_checks(every_size_is_that_of_its_own_module, kernels_choose_algorithms_by_size, quantised_layers_of_open_sizes_are_in_bytes,
               sizes_outside_of_the_range_are_refused, what_needs_numbers_says_so, sizes_that_an_operator_cannot_take_are_refused, the_module_says_its_sizes, specialised_sizes_are_those_of_their_own_module,
               predicted_schedules_are_for_open_and_for_specialised_sizes, wrong_points_are_refused)
