#!/usr/bin/env python3
"""What the binaries link: the runtime, the worker and the agent no LLVM, the worker no gRPC, nothing a
library of kernels; and a compiled module needs only libc and libm."""
# Measures: a device is used in it, and no time is judged.

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, BUILD, make_models, run_checks  # noqa: E402

KERNEL_LIBRARIES = ("blas", "mkl", "dnnl", "onednn", "xnnpack", "cublas", "cudnn", "openvino", "onnxruntime")


def closure(path):
    """Every shared library that the loader would load, lower case."""
    return subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout.lower()


def runtime_worker_and_agent_link_no_llvm():
    for path in (BUILD / "lib/libtilewright_runtime.so", BIN / "tilewright-worker", BIN / "tilewright-agent"):
        assert "llvm" not in closure(path), path


def worker_links_no_grpc():
    assert "grpc" not in closure(BIN / "tilewright-worker")


def services_link_no_llvm():
    for name in ("tilewright", "tilewright-tuner", "tilewright-tracker"):
        assert "llvm" not in closure(BIN / name), name


def nothing_links_a_library_of_kernels():
    for path in sorted(BIN.glob("tilewright*")):
        libraries = closure(path)
        for name in KERNEL_LIBRARIES:
            assert name not in libraries, f"{path} links {name}"


def thread_local_parts_are_aligned():
    """With a smaller alignment lld lays some programs out so that they cannot start (deploy/runtime/thread_pool.cc)."""
    for path in [*sorted(BIN.iterdir()), *sorted((BUILD / "lib").glob("*.so"))]:
        shown = subprocess.run(["readelf", "-lW", str(path)], capture_output=True, text=True, check=False).stdout
        for line in shown.splitlines():
            if line.split()[:1] == ["TLS"]:
                assert int(line.split()[-1], 16) >= 8, f"{path}: {line}"


def modules_hold_no_library_kernels():
    with tempfile.TemporaryDirectory() as folder:
        case = make_models(folder, "dqn") / "dqn"
        module = Path(folder) / "dqn.tw"
        subprocess.run([str(BIN / "tilewright"), "compile", str(case / "model.onnx"), "--target", "native,threads=1",
                        "-o", str(module)], check=True, stdout=subprocess.DEVNULL)
        data = module.read_bytes()
        start = data.index(b"\x7fELF")
        code = Path(folder) / "code.so"
        code.write_bytes(data[start:])
        symbols = subprocess.run(["nm", "-D", str(code)], capture_output=True, text=True, check=True).stdout
        undefined = {line.split()[-1].split("@")[0] for line in symbols.splitlines() if " U " in line}
        allowed = {"memcpy", "memset", "memmove", "expf", "logf", "tanhf", "erff", "powf", "exp", "log", "tanh", "erf",
                   "pow", "floorf", "ceilf", "rintf", "nearbyintf", "roundevenf", "sqrtf"}
        assert undefined <= allowed, f"undefined symbols: {sorted(undefined - allowed)}"
        defined = [line.split()[-1] for line in symbols.splitlines() if " T " in line]
        assert defined and all(name.startswith("tw_kernel_") for name in defined), defined
        for name in (b"cblas_", b"dnnl_", b"sgemm", b"mkl_"):
            assert name not in data, name


if __name__ == "__main__":
    run_checks(runtime_worker_and_agent_link_no_llvm, worker_links_no_grpc, services_link_no_llvm,
               nothing_links_a_library_of_kernels, thread_local_parts_are_aligned, modules_hold_no_library_kernels)
