#!/usr/bin/env python3
"""The packages under a real systemd: a Debian 12 with its own kernel in an emulated machine.

Makes the machine by debootstrap, installs the packages of deploy/ops/package.sh, boots it (QEMU without KVM, so
that it runs anywhere) and runs tests/long/units_guest.sh inside: the three units start with the configurations as
they are shipped, the sandbox of the agent is whole, each worker has a control group, a job tunes and its module
computes what the NumPy evaluator says; the daemons survive a kill and a reload; the attack corpus (a dozen, or
--attacks all) runs as the agent's user in a delegated group. Writes tests/results/units.json; exit code 1 if a
check failed. Wants root, debootstrap, qemu-system-x86 and the package mirror; takes ten minutes.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

from debian_machine import add_mirrors, make_debian
from lane import ROOT, commit

PACKAGES = ("systemd-sysv", "udev", "dbus", "linux-image-cloud-amd64", "initramfs-tools", "ca-certificates")
TOOLS = ("debootstrap", "qemu-system-x86_64", "mke2fs", "chroot")
CHECK = re.compile(r"^(ok|not ok) - (.*?)\r?$", re.M)
GUEST = "tests/long/units_guest.sh"
UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
Environment=TILEWRIGHT_ATTACKS={attacks}
ExecStart=/bin/bash /opt/proof/units_guest.sh
ExecStopPost=/bin/systemctl poweroff --force --no-wall
[Install]
WantedBy=multi-user.target
"""


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.exit("%s: exit code %d\n%s" % (" ".join(map(str, words)), done.returncode, done.stdout[-3000:]))
    return done.stdout


def make_machine(args, folder):
    """The root of the machine, with packages, programs of tests and a model."""
    root = folder / "root"
    make_debian(root, args, PACKAGES)
    (root / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 0\n")
    run(ROOT / "deploy/ops/package.sh", "--build", args.build_dir, "--out", root / "opt/packages", "--only", "deb", "--no-build")
    run("chroot", root, "apt-get", "update")
    debs = ["/opt/packages/" + path.name for path in sorted((root / "opt/packages").glob("*.deb"))]
    run("chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends", *debs)
    proof = root / "opt/proof"
    (proof / "bin").mkdir(parents=True)
    (proof / "lib").mkdir()
    shutil.copy(ROOT / GUEST, proof)
    for name in ("attack_corpus_test", "control_group_test", "tilewright-worker"):
        shutil.copy(args.build_dir / "bin" / name, proof / "bin")
    for path in (args.build_dir / "lib").glob("*.so"):
        shutil.copy(path, proof / "lib")
    run("/usr/bin/python3", ROOT / "tests/models/make_models.py", proof / "models", "dqn")
    model = proof / "models/dqn"
    run("/usr/bin/python3", ROOT / "tests/models/numpy_eval.py", model / "model.onnx", model / "test_data_set_0/input_0.pb",
        "-o", model / "expected")
    unit = root / "etc/systemd/system/proof.service"
    unit.write_text(UNIT.format(attacks=args.attacks))
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / unit.name).symlink_to("../" + unit.name)
    return root


def boot(args, folder, root):
    """What the machine wrote to its serial line until it switched itself off."""
    image = folder / "image"
    run("mke2fs", "-q", "-t", "ext4", "-d", root, image, "5G")
    kernel, initrd = (next((root / "boot").glob(name)) for name in ("vmlinuz-*", "initrd.img-*"))
    # MemoryMax= of the units is a part of this.
    words = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "6144", "-nodefaults",
             "-nographic", "-serial", "stdio", "-no-reboot", "-kernel", kernel, "-initrd", initrd,
             # A login prompt would take the line from what writes to it. Without a steady counter
             # processor time moves by ticks, and honest results look forged.
             "-append", "root=/dev/vda console=ttyS0 panic=-1 quiet tsc=reliable systemd.show_status=0 systemd.mask=serial-getty@ttyS0.service",
             "-drive", "file=%s,if=virtio,format=raw,cache=unsafe" % image]
    lines, begin = [], time.monotonic()
    process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for raw in process.stdout:
            lines.append(raw.decode(errors="replace"))
            if args.verbose or CHECK.search(lines[-1]):
                print("%5.0f s  %s" % (time.monotonic() - begin, lines[-1].rstrip()), flush=True)
            if time.monotonic() - begin > args.minutes * 60:
                lines.append("not ok - the machine ends in time\n")
                break
    finally:
        process.kill()
        process.wait()
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--attacks", default="", help="all, one row of tests/support/attacks.def, or (default) a dozen")
    parser.add_argument("--minutes", type=float, default=40, help="at most, of the machine's time")
    add_mirrors(parser)
    parser.add_argument("--folder", type=pathlib.Path, help="keeps the machine here, and uses the one that is here")
    parser.add_argument("--verbose", action="store_true", help="show all that the machine writes")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests/results/units.json")
    args = parser.parse_args()
    args.build_dir = args.build_dir.resolve()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing or platform.machine() != "x86_64":
        sys.exit("wants root on x86_64 and %s: apt-get install debootstrap qemu-system-x86" % ", ".join(missing or TOOLS))
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tilewright-units-", dir="/var/tmp") as temporary:
        folder = args.folder or pathlib.Path(temporary)
        root = folder / "root" if (folder / "root").exists() else make_machine(args, folder)
        shutil.copy(ROOT / GUEST, root / "opt/proof")
        print("machine made after %.0f s" % (time.monotonic() - begin), flush=True)
        text = boot(args, folder, root)
    checks = [{"check": what, "ok": verdict == "ok"} for verdict, what in CHECK.findall(text)]
    failed = [row["check"] for row in checks if not row["ok"]]
    kernel = re.search(r"^kernel (\S+)", text, re.M)
    complete = "proof complete" in text
    report = {"lane": "units", "commit": commit(), "date": datetime.date.today().isoformat(),
              "command": " ".join(["tests/long/units.py", *sys.argv[1:]]), "kernel": kernel[1] if kernel else "",
              "seconds": round(time.monotonic() - begin, 1), "complete": complete, "checks": checks, "failures": failed}
    if failed or not complete:
        report["output"] = text[-12000:]
    args.output.write_text(json.dumps(report, indent=1) + "\n")
    print("%d checks, %d failed%s" % (len(checks), len(failed), "" if complete else ", and the machine did not reach the end"))
    return 1 if failed or not complete or not checks else 0


if __name__ == "__main__":
    sys.exit(main())
