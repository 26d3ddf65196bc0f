"""A board of another architecture that is not there: worker and runtime built for 64-bit Arm as deploy/ops/boards says, in
QEMU with our plug-in, which counts virtual cycles. It proves function and orders candidates; it says nothing of a board's
time. Used by tests/e2e/boards.py and tests/long/aarch64.py.
"""

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fleet import BUILD, ROOT, skip  # noqa: E402

BOARDS = ROOT / "deploy/ops/boards"
SYSROOT, OUT = BUILD / "sysroot-arm64", BUILD / "aarch64"
WORKER = OUT / "bin/tilewright-worker"
PLUGIN = BUILD / "lib/libtilewright_qemu_board.so"
C_LIBRARY = "/usr/aarch64-linux-gnu"
COUNTER = "0x545743000000"
CPU = "cortex-a76"
TARGET = f"cpu,arch=aarch64,cpu={CPU},threads=1"


def call(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}"
    return done.stdout


def build():
    """Cross-builds worker and runtime; skips the script, loudly, where that cannot be done."""
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


# The emulator's processors for targets that it has no model of, and how many bits its SVE has then.
MODELS = {"neoverse-v1": ("max,sve-max-vq=2", 256), "a64fx": ("a64fx", 512)}


def emulated(*flags, cpu=CPU):
    return ["qemu-aarch64", "-cpu", cpu, "-L", C_LIBRARY, *flags]


def bridge():
    """The shell command that runs the worker in the plain emulator: it has no clock that counts."""
    return " ".join(map(str, [*emulated(), WORKER]))


def counting_bridge(cpu=CPU):
    """The same with the plug-in: the worker measures virtual cycles. `cpu`: as targets name it."""
    model, bits = MODELS.get(cpu, (cpu, 128))
    flags = "-plugin", f"{PLUGIN},at={COUNTER},sve={bits}"
    return " ".join(map(str, [*emulated(*flags, cpu=model), WORKER, f"--cycle-counter={COUNTER}"]))


def device(command, name="board"):
    """An agent's device: a board behind that bridge."""
    return f"cpu,name={name},threads=1,bridge={command}"


# --- two logs of one seed ---

# What differs between two equal jobs: names that are random, when and where it happened, and how long the host took.
DIFFERS = {"stored_us", "started_us", "created_us", "ended_us", "device", "fetch_s", "load_s", "run_s", "lower_s", "codegen_s", "link_s", "load_average",
           "clock_mhz", "temperature_celsius", "steal_fraction", "voluntary_context_switches", "involuntary_context_switches"}


def transcript(records):
    """What two jobs of one seed must agree on, a line of text for each record, in the order of the trials."""
    lines = []
    for record in sorted(records, key=lambda r: (r["trial"], r["attempt"])):
        kept = repr({key: value for key, value in sorted(record.items()) if key not in DIFFERS} | {"class": record["device"]["class"]})
        for name in (record["measurement_id"].split("/")[0], record["job"]):
            kept = kept.replace(name, "JOB")
        lines.append(kept)
    return lines


def first_difference(one, two):
    """Where two transcripts part, for people; empty if they are equal."""
    for number, (a, b) in enumerate(zip(one, two)):
        if a != b:
            at = next(i for i, (x, y) in enumerate(zip(a + " ", b + " ")) if x != y)
            return f"record {number}: ...{a[max(0, at - 80):at + 80]}... and ...{b[max(0, at - 80):at + 80]}..."
    return "" if len(one) == len(two) else f"{len(one)} and {len(two)} records"
