#!/usr/bin/env python3
"""Checks the RTL of the accelerator: Verilator's lint with every warning on, for each configuration.

- every .sv file has one module or package with its name, and the build compiles it
- verilator --lint-only -Wall says nothing, for simulation and for synthesis. Without verilator this part is left out loudly
  (deploy/install_packages.sh --rtl)
"""

import os
import re
import shutil
import subprocess
import sys

import source_files

FOLDER, ISA, LISTS = "vta/rtl", "vta/isa/vta_isa.sv", "vta/rtl/CMakeLists.txt"
TOP = "vta_core"
DECLARED = re.compile(r"^(?:module|package) (\w+)", re.M)
CONFIG = re.compile(r"VTA_CONFIG_(\w+)$", re.M)
PACKAGE = "vta_rtl.sv"  # before what uses it
# The widest memory has 128 banks, which Verilator would not unroll.
LINT = ["verilator", "--lint-only", "-Wall", "--unroll-count", "256", "--top-module", TOP]


def check_files(report, root, sources):
    listed = set(re.findall(r"[\w./]+\.sv", source_files.read_text(LISTS, root)))
    for path in sources:
        name = os.path.basename(path)
        declared = set(DECLARED.findall(source_files.read_text(path, root)))
        if declared != {name[:-len(".sv")]}:
            report.add(path, "expected one module with the file's name, found %s" % sorted(declared))
        if name not in listed and os.path.relpath(path, FOLDER) not in listed:
            report.add(path, "expected it in %s" % LISTS)


def lint(root, sources, config):
    """What Verilator says about one configuration; the first has no macro."""
    macro = ["-DVTA_CONFIG_" + config] if config else []
    said = []
    for purpose in [], ["-DSYNTHESIS"]:
        done = subprocess.run(LINT + macro + purpose + sources, cwd=root, capture_output=True, text=True)
        said += [] if done.returncode == 0 else (done.stdout + done.stderr).splitlines()
    return said


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT
    report = source_files.Report("check_rtl")
    modules = [p for p in source_files.repository_files(root)
               if p.startswith(FOLDER + "/") and p.endswith(".sv")]
    modules.sort(key=lambda p: os.path.basename(p) != PACKAGE)
    sources = [ISA] + modules
    check_files(report, root, sources)
    configs = [""] + CONFIG.findall(source_files.read_text(ISA, root))
    if shutil.which("verilator") is None:
        return report.finish("%d files; [SKIP] verilator is not installed" % len(sources))
    for config in configs:
        for line in lint(root, sources, config)[:20]:
            report.add(config or "default", line)
    return report.finish("%d files, %d configurations" % (len(sources), len(configs)))


if __name__ == "__main__":
    sys.exit(main())
