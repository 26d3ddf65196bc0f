#!/usr/bin/env python3
"""The seven networks, narrow and small, compiled for the kinds that have no device plug-in, and run on an emulated GPU
(tests/support/simt): as Metal text, and as HIP text for warps of 64 and of 32 threads. The emulator refuses races, bad
barriers and accesses out of bounds. Outputs have the same bounds as on the processor (networks_quick.py). No GPU of these
kinds has run anything. Then what users see: what compiles without a plug-in, what does not run, and what clang makes of a
whole network. With --long the networks that take it minutes, too."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, BUILD, make_models, run_checks  # noqa: E402
from network_check import check, text  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402

EMULATED = BUILD / "tests/support/simt/emulated"
TARGETS = {"metal": ("metal", 1), "hip64": ("hip,arch=gfx90a", 1), "hip32": ("hip,arch=gfx1100", 1)}
QUICK, LONG = ("dqn",), ("resnet18", "mobilenet", "dcgan", "lstm_lm", "resnet50", "bert_small")


def network(name):
    def run():
        own = {"TILEWRIGHT_PLUGIN_DIR": str(EMULATED), "PATH": f"{EMULATED}:{os.environ['PATH']}"}
        before = {key: os.environ.get(key) for key in own}
        os.environ.update(own)
        try:
            with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
                row = check(name, VARIANTS[name], folder, targets=TARGETS)
        finally:
            for key, value in before.items():
                os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)
        print("        " + text(row))
        assert row["good"], "outputs differ from the evaluator's"
    run.__name__ = name
    return run


def tilewright(*args, code, said, **environment):
    """Runs the command; it must end with this code and say this."""
    done = subprocess.run([str(BIN / "tilewright"), *map(str, args)], capture_output=True, text=True,
                          env=dict(os.environ, **environment), check=False)
    assert done.returncode == code, f"exit {done.returncode}, expected {code}\n{done.stderr}"
    assert said in done.stdout + done.stderr, f"expected {said}, found\n{done.stdout}{done.stderr}"


def what_users_see():
    with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
        model, module = make_models(folder, "dqn", *VARIANTS["dqn"]) / "dqn/model.onnx", Path(folder) / "dqn.tw"
        dump = Path(folder) / "dump"
        tilewright("compile", model, "--target", "metal", "-o", module, "--dump-ir", dump, code=0,
                   said="no device plug-in for metal")
        assert any(dump.glob("*.metal")), "expected the text"
        tilewright("run", module, code=3, said="runtime.device.missing")
        tilewright("tune", model, "--target", "metal", "--trials", 1, code=2, said="cli.usage.no_devices")
        # Without a compiler there is still the text.
        empty = Path(folder) / "empty"
        empty.mkdir()
        tilewright("compile", model, "--target", "hip", "-o", module, "--dump-ir", dump, code=1, PATH=str(empty),
                   said="codegen.device_compiler.missing")
        assert any(dump.glob("*.hip")), "expected the text"


def code_objects():
    """What clang makes of a whole network: code objects whose kernels spill nothing."""
    if not any(shutil.which(name) for name in ("clang-19", "clang")):
        print("        [SKIP] no clang for amdgcn")
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-networks-") as folder:
        model = make_models(folder, "dqn", *VARIANTS["dqn"]) / "dqn/model.onnx"
        for arch in ("gfx90a", "gfx1100"):
            module, dump = Path(folder) / f"{arch}.tw", Path(folder) / arch
            tilewright("compile", model, "--target", f"hip,arch={arch}", "-o", module, "--dump-ir", dump, code=0,
                       said="no device plug-in for hip")
            assert f"amdgcn-amd-amdhsa--{arch}".encode() in module.read_bytes(), "expected a code object"
            lines = [line for path in dump.glob("*.resources") for line in path.read_text().splitlines()]
            assert lines and all(" spill_bytes=0 " in line for line in lines), "\n".join(lines)


if __name__ == "__main__":
    run_checks(*map(network, QUICK + (LONG if "--long" in sys.argv else ())), what_users_see, code_objects)
