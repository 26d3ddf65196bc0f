#!/usr/bin/env python3
"""A board of another architecture: the worker is built for 64-bit Arm as deploy/ops/boards says, and an agent of
this machine measures with it over a bridge. The emulator in place of the board proves function, never speed."""

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BUILD, ROOT, Fleet, run_checks, skip, wait_for  # noqa: E402

BOARDS = ROOT / "deploy/ops/boards"
SYSROOT, OUT = BUILD / "sysroot-arm64", BUILD / "aarch64"
WORKER = OUT / "bin/tilewright-worker"
C_LIBRARY = "/usr/aarch64-linux-gnu"
C_LIBRARIES = {"libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1"}


def call(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}"
    return done.stdout


def build():
    for program, package in (("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu"), ("qemu-aarch64", "qemu-user")):
        if not shutil.which(program):
            skip(f"no {program} here: install {package} (deploy/install_packages.sh --test)")
    fetched = subprocess.run([BOARDS / "sysroot.sh", SYSROOT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if fetched.returncode == 75:
        skip("the package mirror does not answer: the board's libraries are not here: " + fetched.stdout.strip()[-200:])
    assert fetched.returncode == 0, fetched.stdout
    call("cmake", "-S", ROOT, "-B", OUT, "-G", "Ninja", f"-DCMAKE_TOOLCHAIN_FILE={BOARDS / 'aarch64.cmake'}",
         f"-DTILEWRIGHT_SYSROOT={SYSROOT}", "-DTILEWRIGHT_DEVICE_ONLY=ON", "-DTILEWRIGHT_BUILD_TESTS=OFF",
         "-DTILEWRIGHT_WERROR=ON")
    call("cmake", "--build", OUT)


def needs_only_the_c_library():
    for path in (WORKER, OUT / "lib/libtilewright_runtime.so", OUT / "lib/libtilewright_device_opencl.so"):
        shown = call("readelf", "-hd", path)
        assert "AArch64" in shown, path
        needed = {line.split("[")[1].rstrip("]") for line in shown.splitlines() if "(NEEDED)" in line}
        assert needed <= C_LIBRARIES, f"{path.name}: {needed}"


def agent_measures_behind_a_bridge():
    bridge = f"qemu-aarch64 -L {C_LIBRARY} {WORKER}"
    with Fleet(agent_args=["--device", f"cpu,name=board,bridge={bridge}"]) as fleet:
        fleet.start_all()

        def board():
            listed = fleet.cli_json("devices", "list", *fleet.server())
            return next((d for d in listed if d["name"].endswith("board") and d["health"] == "good"), None)
        # Healthy: it ran the self-test's kernel with the right result.
        device = wait_for("the board", board, 60)
        assert device["attributes"]["arch"] == "aarch64", device


if __name__ == "__main__":
    build()
    run_checks(needs_only_the_c_library, agent_measures_behind_a_bridge)
