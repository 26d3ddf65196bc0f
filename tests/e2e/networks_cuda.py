#!/usr/bin/env python3
"""The seven networks, narrow and small, compiled for NVIDIA's GPUs with default schedules and run on an emulated one
(tests/support/simt): a driver and a compiler that stand in for the vendor's. The emulator refuses races, bad barriers and
accesses out of bounds. Outputs have the same bounds as on the processor (networks_quick.py). Then what users see where
driver, compiler or memory are missing, or a device is lost. With --long the networks that take it minutes, too."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, BUILD, make_models, run_checks  # noqa: E402
from network_check import check, text  # noqa: E402
from networks_quick import VARIANTS  # noqa: E402

FAKES = str(BUILD / "tests/support/simt/fake_cuda")
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
        tilewright("compile", model, "--target", TARGET, "-o", Path(folder) / "no.tw", code=1, FAKE_NVRTC_NEWEST="80",
                   said="codegen.device_compiler.missing")
        other = Path(folder) / "other.tw"
        tilewright("compile", model, "--target", "cuda,arch=sm_80", "-o", other, code=0, said="")
        tilewright("run", other, code=1, said="sm_80")


if __name__ == "__main__":
    os.environ["LD_LIBRARY_PATH"] = FAKES
    run_checks(*map(network, QUICK + (LONG if "--long" in sys.argv else ())), what_users_see)
