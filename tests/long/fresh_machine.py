#!/usr/bin/env python3
"""Both commands of the README on a machine that has nothing: a Debian 12 made by debootstrap, without a
compiler, a compiler cache or the folder ../shared. Writes wall time and processor time of each step to
tests/results/fresh_machine.json. Needs root, debootstrap and the package mirror; takes half an hour."""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from debian_machine import SUITE, add_mirrors, make_debian
from lane import ROOT, commit

COMMANDS = {"quickstart": "./deploy/quickstart.sh", "tests": "./tests/run.sh"}
HOME = "root/tilewright"  # of the clone, inside the machine
# What starts a step: "==> [1:23] build ..." of quickstart.sh, "=== unit" of run.sh.
STEP = re.compile(r"^==> \[\d+:\d\d\] (\w[\w ]*)|^=== (\w+)$")
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)
# What failed: a test program of ctest's list, a case of a script, a check of a script.
FAILURE = re.compile(r"^\s*\d+ - (\S+) \((?:Failed|Timeout|SEGFAULT|Child aborted|Not Run).*$|^(?:FAIL|ERROR): (\S+)|^not ok\s+(\S+)"
                     r"|^\[  FAILED  \] (\D[^\s,]*)", re.M)
# A private mount, process and host name space: whatever is left running or mounted ends with it. The machine's
# folder becomes the root by pivot_root: in a chroot the kernel refuses namespaces, and so the whole sandbox.
ENTER = """set -e
mount --bind {root} {root}
mount -t proc proc {root}/proc
mount --rbind /sys {root}/sys
mount --rbind /dev {root}/dev
mount -t tmpfs tmpfs {root}/dev/shm
hostname fresh
cd {root}
pivot_root . .
umount -l .
exec chroot . /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 {ci} \\
  /bin/bash -c {command}
"""


class ProcessorTime:
    """Seconds of processor time of a process and all that it starts, while they run: by a control group,
    or, where none can be made, of those that have ended."""

    def __init__(self):
        self.group = self.file = None
        for base, file in (("/sys/fs/cgroup", "cpu.stat"), ("/sys/fs/cgroup/cpuacct", "cpuacct.usage")):
            group = pathlib.Path(base) / f"tilewright-fresh-{os.getpid()}"
            with contextlib.suppress(OSError):
                group.mkdir()
                if (group / file).exists() and (group / "cgroup.procs").exists():
                    self.group, self.file = group, file
                    return
                group.rmdir()

    def join(self):
        if self.group:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def seconds(self):
        if not self.group:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            return used.ru_utime + used.ru_stime
        text = (self.group / self.file).read_text()
        found = re.search(r"usage_usec (\d+)", text)
        return int(found[1]) / 1e6 if found else int(text) / 1e9

    def close(self):
        for _ in range(50):  # its processes are reaped soon after they ended
            if not self.group or not self.group.exists():
                return
            with contextlib.suppress(OSError):
                self.group.rmdir()
            time.sleep(0.1)


def make_machine(args, root):
    """A minimal Debian with a clean clone of HEAD; returns how many packages it has."""
    make_debian(root, args)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(root / HOME)], check=True)
    wanted = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=True, capture_output=True,
                            text=True).stdout.strip()
    subprocess.run(["git", "-C", str(root / HOME), "checkout", "--quiet", wanted], check=True)
    installed = subprocess.run(["chroot", str(root), "dpkg-query", "-f", "${Package}\n", "-W"], check=True,
                               capture_output=True, text=True).stdout.split()
    unwanted = {"g++", "gcc", "ccache", "cmake", "python3", "git"} & set(installed)
    if unwanted:
        sys.exit(f"expected a machine without {sorted(unwanted)}")
    return len(installed)


def read_steps(name, process, begin, processor, log, steps, output):
    """Copies what the command writes to the log, and notes when each step starts."""
    for line in process.stdout:
        log.write(line)
        log.flush()
        output.append(line)
        found = STEP.match(line)
        if found:
            now = (time.monotonic(), processor.seconds())
            steps.append(((found[1] or found[2]).strip(), *now))
            print(f"{name}: {now[0] - begin:6.0f} s  {steps[-1][0]}", flush=True)


def run_command(name, root, log, ci):
    """Runs one command of the README inside the machine; returns its row of the report."""
    script = ENTER.format(root=shlex.quote(str(root)), ci="CI=true" if ci else "",
                          command=shlex.quote(f"cd /{HOME} && {COMMANDS[name]}"))
    processor = ProcessorTime()
    begin = time.monotonic()
    # --kill-child: what runs in the machine ends when this script does, in any way.
    process = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--propagation", "private", "bash", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        preexec_fn=processor.join)
    steps, output = [], []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        read_steps(name, process, begin, processor, log, steps, output)
        code = process.wait()
    end = (time.monotonic(), processor.seconds())
    processor.close()
    row = {"command": COMMANDS[name], "exit_code": code, "wall_s": round(end[0] - begin, 1),
           "processor_s": round(end[1], 1), "steps": []}
    for (what, wall, used), (_, next_wall, next_used) in zip(steps, [*steps[1:], ("", *end)]):
        row["steps"].append({"step": what, "wall_s": round(next_wall - wall, 1),
                             "processor_s": round(next_used - used, 1)})
    text = "".join(output)
    counts = COUNTS.findall(text)
    if counts:  # the last is of the whole
        row["passed"], row["failed"] = map(int, counts[-1])
        row["skipped"] = re.findall(r"^\s*\[SKIP\] (.*)$", text, re.M)
    if code != 0:
        row["failures"] = sorted({"".join(names) for names in FAILURE.findall(text)})
        row["excerpts"] = [text[found.start():found.start() + 2000] for found in FAILURE.finditer(text)][:10]
        row["output"] = text[-6000:]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, help="where the machine is made (default: a temporary folder)")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="which, in this order")
    add_mirrors(parser)
    parser.add_argument("--keep", action="store_true", help="leave the machine's folder there")
    parser.add_argument("--ci", action="store_true", help="set CI=true, as .ci/run does")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests/results/fresh_machine.json")
    args = parser.parse_args()
    missing = [tool for tool in ("debootstrap", "unshare", "chroot") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing:
        sys.exit(f"wants root and {', '.join(missing or ['debootstrap'])}: apt-get install debootstrap")

    folder = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="tilewright-fresh-", dir="/var/tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / "machine"
    report = {"lane": "fresh_machine", "commit": commit(), "date": datetime.date.today().isoformat(),
              "cores": os.cpu_count(), "machine": platform.machine(), "suite": SUITE, "commands": []}
    begin = time.monotonic()
    try:
        report["packages_before"] = make_machine(args, root)
        print(f"a machine of {report['packages_before']} packages after {time.monotonic() - begin:.0f} s", flush=True)
        with open(folder / "log.txt", "w", encoding="utf-8") as log:
            for name in args.commands:
                report["commands"].append(run_command(name, root, log, args.ci))
                args.output.write_text(json.dumps(report, indent=1) + "\n")
                if report["commands"][-1]["exit_code"] != 0:
                    log.flush()
                    print("log of all:", shutil.copy(log.name, tempfile.gettempdir() + "/tilewright-fresh-machine.log"))
                    break
    finally:
        if args.keep:
            print(f"left in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    bad = [row for row in report["commands"] if row["exit_code"] != 0]
    for row in report["commands"]:
        print(f"{row['command']}: exit code {row['exit_code']}, {row['wall_s']:.0f} s, "
              f"{row['processor_s'] / 60:.1f} minutes of processor time")
        for step in row["steps"]:
            print(f"  {step['step']:40s} {step['wall_s']:7.1f} s {step['processor_s']:7.1f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
