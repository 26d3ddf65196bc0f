#!/usr/bin/env python3
"""Modules of WebAssembly in Node.js (deploy/javascript): networks against the NumPy evaluator, open sizes against native
modules, state, what the examples' page shows, and a fleet that tunes for it. Skips without Node.js. With --long all seven networks."""
# Measures: a device is used in it, and no time is judged.

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "support"), str(ROOT / "models")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402
from decoder_models import Config, Decoder  # noqa: E402
from fleet import BIN, expected_output, make_models, run_checks, skip  # noqa: E402
from network_check import MAX_ELEMENT, MAX_NORM  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402
from open_models import MODELS  # noqa: E402
from open_sizes import CASES, shapes  # noqa: E402

JAVASCRIPT = ROOT.parent / "deploy" / "javascript"
NODE = shutil.which("node") or shutil.which("nodejs")
QUICK = ("dqn", "mobilenet", "lstm_lm")
# Of one module each: the least sizes, the largest, and others.
OPEN = ("mlp", "cnn_int8", "encoder")
TOLERANCE = 1e-5  # of the largest element
BRIDGE = f"exec {NODE} {JAVASCRIPT / 'worker' / 'worker.js'}"
TRIALS = 12


def tilewright(*words, code=0):
    done = subprocess.run([BIN / "tilewright", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stderr if code else done.stdout


def node(*words):
    done = subprocess.run([NODE, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def run_module(module, *words):
    return json.loads(node(JAVASCRIPT / "examples" / "run_module.js", module, *words))


def network(name):
    def check():
        with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
            folder = Path(where)
            case = make_models(folder, name, *VARIANTS[name]) / name
            module = folder / "m.tw"
            tilewright("compile", case / "model.onnx", "--target", "wasm", "-o", module, "--effort", 0)
            words = []
            for path in sorted((case / "test_data_set_0").glob("input_*.pb")):
                tensor = TensorProto.FromString(path.read_bytes())
                np.save(folder / f"{tensor.name}.npy", numpy_helper.to_array(tensor))
                words += ["--input", f"{tensor.name}={folder / tensor.name}.npy"]
            said = run_module(module, *words, "--output-dir", folder / "out", "--repeat", 3, "--profile")
            wanted = numpy_helper.to_array(TensorProto.FromString(Path(expected_output(case)).read_bytes())).astype(np.float64)
            found = np.load(folder / "out" / f"{next(iter(said['outputs']))}.npy").astype(np.float64)
            assert found.shape == wanted.shape, (found.shape, wanted.shape)
            norm = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
            largest = np.abs(found - wanted).max() / np.abs(wanted).max()
            print(f"        {name}: norm {norm:.2g} max {largest:.2g}, {said['latency_ms']['p10']:.2f} ms, {len(said['launches'])} launches")
            assert norm <= MAX_NORM and largest <= MAX_ELEMENT, "outputs differ from the evaluator's"
    check.__name__ = name
    return check


def open_sizes_give_what_native_modules_give():
    rng = np.random.default_rng(8)
    for name in OPEN:
        ranges, runs = CASES[name][0], CASES[name][1][::2]
        make, dims = MODELS[name]
        with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
            folder = Path(where)
            model = folder / f"{name}.onnx"
            onnx.save(make(), str(model))
            special = ("--specialise", "batch=7") if name == "mlp" else ()
            for target, file in (("wasm", "wasm.tw"), ("native,threads=1", "native.tw")):
                tilewright("compile", model, "--target", target, "--effort", 0, "-o", folder / file, *shapes(ranges), *special)
            sets = []
            for i, run in enumerate(runs):
                sizes = dict(zip(ranges, run))
                np.save(folder / f"x{i}.npy", rng.standard_normal([sizes.get(d, d) for d in dims]).astype(np.float32))
                sets.append({"x": str(folder / f"x{i}.npy")})
            (folder / "sets.json").write_text(json.dumps(sets))
            run_module(folder / "wasm.tw", "--input-sets", folder / "sets.json", "--output-dir", folder / "out")
            for i, run in enumerate(runs):
                tilewright("run", folder / "native.tw", "--input", f"x={folder / f'x{i}.npy'}", "--output-dir", folder / "native",
                           "--repeat", 1)
                wanted = numpy_helper.to_array(TensorProto.FromString((folder / "native" / "output_0.pb").read_bytes()))
                found = np.load(next((folder / "out" / str(i)).glob("*.npy")))
                assert found.shape == wanted.shape, (name, run, found.shape, wanted.shape)
                error = np.abs(found - wanted).max() / np.abs(wanted).max()
                assert error <= TOLERANCE, (name, run, error)


def a_decoder_keeps_its_state():
    """A prompt, then single tokens, which have kernels of their own: every run equals NumPy without a cache."""
    for config in (Config(form="grouped", bits=4),):
        decoder = Decoder(config)
        with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
            folder = Path(where)
            onnx.save(decoder.model(), str(folder / "model.onnx"))
            sizes = [word for flag in decoder.shape_flags("0..24", "1..24", "1..2") for word in ("--shape", flag)]
            tilewright("compile", folder / "model.onnx", "--target", "wasm", "--effort", 0, "-o", folder / "m.tw", *sizes,
                       "--state", "known", "--specialise", "sequence_length=1")
            tokens = np.random.default_rng(3).integers(0, config.vocab, (2, 24)).astype(np.int64)
            ends, sets = [9, 12, *range(13, 25)], []
            for start, end in zip([0, *ends], ends):
                feeds = decoder.feeds(tokens[:, start:end], start)
                for name, value in feeds.items():
                    np.save(folder / f"{name}.{start}.npy", value)
                sets.append({name: str(folder / f"{name}.{start}.npy") for name in feeds})
            (folder / "sets.json").write_text(json.dumps(sets))
            run_module(folder / "m.tw", "--input-sets", folder / "sets.json", "--output-dir", folder / "out")
            wanted = decoder.logits(tokens)
            for i, (start, end) in enumerate(zip([0, *ends], ends)):
                found = np.load(folder / "out" / str(i) / "logits.npy")
                error = np.abs(found - wanted[:, start:end]).max() / np.abs(wanted).max()
                assert found.shape == wanted[:, start:end].shape and error <= 2e-5, (config, start, error)
            more = decoder.feeds(tokens[:, :1], 24)
            for name, value in more.items():
                np.save(folder / f"{name}.more.npy", value)
            (folder / "sets.json").write_text(json.dumps([*sets, {name: str(folder / f"{name}.more.npy") for name in more}]))
            done = subprocess.run([NODE, JAVASCRIPT / "examples" / "run_module.js", folder / "m.tw", "--input-sets", folder / "sets.json"],
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and "runtime.session.state_full" in done.stderr, done.stderr


def the_page_shows_its_answer():
    """page.js with the module of the page, in Node.js: what a browser gives it is here a stand-in."""
    with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
        folder = Path(where)
        case = make_models(folder, "dqn", *VARIANTS["dqn"]) / "dqn"
        tilewright("compile", case / "model.onnx", "--target", "wasm", "-o", folder / "model.tw", "--effort", 0)
        (folder / "stand_in.mjs").write_text(f"""
            import {{ readFileSync }} from "node:fs";
            import {{ runPage }} from {json.dumps((JAVASCRIPT / "examples" / "page.js").as_uri())};
            globalThis.fetch = async (url) => new Response(readFileSync(new URL(url, import.meta.url)));
            const answer = {{}};
            await runPage({{ getElementById: () => answer }}, "model.tw");
            await runPage({{ getElementById: () => answer }}, process.argv[2] ?? "model.tw");
            console.log(answer.value);""")
        said = node(folder / "stand_in.mjs")
        assert "is largest" in said and "ms" in said, said
        (folder / "broken.tw").write_bytes((folder / "model.tw").read_bytes()[:-1])
        said = node(folder / "stand_in.mjs", "broken.tw")
        assert said.startswith("module.file.truncated"), said


def a_fleet_measures_and_tunes():
    """Tracker, tuner and agent on this machine; the worker is in Node.js. All records are right, and so is the module, here and there."""
    with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
        folder = Path(where)
        case = make_models(folder, "dqn", *VARIANTS["dqn"]) / "dqn"
        module, log = folder / "tuned.tw", folder / "tuner.db"
        tilewright("tune", case / "model.onnx", "--target", "wasm", "--trials", TRIALS, "--bridge", BRIDGE, "--log", log,
                   "--state-dir", folder / "state", "-o", module)
        records = [json.loads(line) for line in tilewright("log", "export", "--log", log).splitlines()]
        assert {r["outcome"] for r in records} <= {"OK", "EARLY_STOPPED"}, [(r["outcome"], r["error_detail"]) for r in records]
        assert {r["target_key"] for r in records} == {"cpu,arch=wasm,cpu=simd128"}, records[0]
        assert sum(r["generated_by"] != "final" for r in records) >= TRIALS, len(records)
        tensor = TensorProto.FromString((case / "test_data_set_0" / "input_0.pb").read_bytes())
        np.save(folder / "x.npy", numpy_helper.to_array(tensor))
        run_module(module, "--input", f"{tensor.name}={folder / 'x.npy'}", "--output-dir", folder / "out")
        tilewright("run", module, "--input", f"{tensor.name}={folder / 'x.npy'}", "--output-dir", folder / "bridged", "--repeat", 2,
                   "--bridge", BRIDGE)
        wanted = numpy_helper.to_array(TensorProto.FromString(Path(expected_output(case)).read_bytes()))
        bridged = numpy_helper.to_array(TensorProto.FromString((folder / "bridged" / "output_0.pb").read_bytes()))
        for found in (np.load(next((folder / "out").glob("*.npy"))), bridged):
            assert np.abs(found - wanted).max() <= MAX_ELEMENT * np.abs(wanted).max()
        said = tilewright("tune", case / "model.onnx", "--target", "wasm", "--trials", 1, "-o", module, code=1)
        assert "cli.embedded.target" in said and "--bridge" in said, said


def other_programs_say_where_it_runs():
    with tempfile.TemporaryDirectory(prefix="tilewright-javascript-") as where:
        folder = Path(where)
        onnx.save(MODELS["mlp"][0](), str(folder / "mlp.onnx"))
        for target, file in (("wasm", "wasm.tw"), ("native,threads=1", "native.tw")):
            tilewright("compile", folder / "mlp.onnx", "--target", target, "--shape", "batch=1", "-o", folder / file, "--effort", 0)
        said = tilewright("run", folder / "wasm.tw", code=1)
        assert "runtime.code.format" in said and "deploy/javascript" in said and "arch=wasm" in said, said
        np.save(folder / "x.npy", np.zeros((1, 64), np.float32))
        done = subprocess.run([NODE, JAVASCRIPT / "examples" / "run_module.js", folder / "native.tw", "--input", f"x={folder}/x.npy"],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "runtime.code.format" in done.stderr and "--target wasm" in done.stderr, done.stderr
        said = tilewright("compile", folder / "mlp.onnx", "--target", "wasm,threads=2", "--shape", "batch=1", code=1)
        assert "codegen.target.threads" in said, said


if __name__ == "__main__":
    if NODE is None:
        skip("no Node.js here (Debian: nodejs)")
    names = list(VARIANTS) if "--long" in sys.argv else QUICK
    run_checks(*map(network, names), open_sizes_give_what_native_modules_give, a_decoder_keeps_its_state,
               the_page_shows_its_answer, other_programs_say_where_it_runs, a_fleet_measures_and_tunes)
