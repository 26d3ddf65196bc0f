#!/usr/bin/env python3
"""Checks that a build depends on options alone, and that optional parts compile in each combination.

- what CMake looks for is REQUIRED: an optional part is an option, off unless asked for
- every macro of an optional part is an option of CMakeLists.txt, and the other way round
- the files that know of optional parts compile without warnings in each combination of them; a part whose
  library is not installed is left out loudly (CI installs all: deploy/install_packages.sh --bench)
"""

import concurrent.futures
import itertools
import os
import re
import shutil
import subprocess
import sys

import source_files

FIND = re.compile(r"^\s*(?:find_package|find_library|find_path|find_file|pkg_check_modules)\(([^)]*)\)", re.M)
# What may be missing, with the reason.
MAY_BE_MISSING = {
    "TILEWRIGHT_ARCHIVE_${stem} lib${stem}.a": "what is missing is an error two lines below, header-only parts excepted",
}
OPTION = re.compile(r"^option\((TILEWRIGHT_(\w+))", re.M)
PEER = re.compile(r"#ifdef (TILEWRIGHT_BENCH_\w+)")
LISTS, SWITCH = "CMakeLists.txt", "tests/bench/peers.cc"
# option -> source of the part, header that says whether its library is installed
PARTS = {
    "TILEWRIGHT_BENCH_CLBLAST": ("tests/bench/peer_clblast.cc", "clblast.h"),
    "TILEWRIGHT_BENCH_ONEDNN": ("tests/bench/peer_onednn.cc", "dnnl.hpp"),
    "TILEWRIGHT_BENCH_OPENBLAS": ("tests/bench/peer_openblas.cc", "cblas-openblas.h"),
    "TILEWRIGHT_BENCH_XNNPACK": ("tests/bench/peer_xnnpack.cc", "xnnpack.h"),
}
COMPILE = ["g++", "-std=c++20", "-O0", "-c", "-o", "/dev/null", "-Wall", "-Wextra", "-Werror", "-I."]


def check_searches(report, root, files):
    for path in files:
        if os.path.basename(path) != "CMakeLists.txt":
            continue
        text = re.sub(r"#[^\n]*", "", source_files.read_text(path, root))
        for match in FIND.finditer(text):
            words = " ".join(match[1].split())
            # The components of a package that was required are there.
            if not re.search(r"\bREQUIRED\b", words) and words not in MAY_BE_MISSING:
                report.add("%s:%d" % (path, text.count("\n", 0, match.start(1)) + 1),
                           "expected REQUIRED: %s (make an optional part an option)" % words)


def check_macros(report, root):
    options = {name for name, _ in OPTION.findall(source_files.read_text(LISTS, root))}
    used = set(PEER.findall(source_files.read_text(SWITCH, root)))
    for name in sorted(used ^ (set(PARTS) & options)):
        report.add(SWITCH, "%s: expected an option, a part in check_options.py and an #ifdef" % name)


def compile_one(root, source, macros):
    done = subprocess.run(COMPILE + ["-D" + m for m in macros] + [source], cwd=root, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    return source, macros, done


def has_header(header):
    return subprocess.run(["g++", "-E", "-x", "c++", "-"], input="#include <%s>\n" % header, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, universal_newlines=True, check=False).returncode == 0


def check_combinations(report, root):
    if not shutil.which("g++"):
        print("[SKIP] no g++ here: deploy/install_packages.sh installs it")
        return 0
    work = [(SWITCH, list(macros)) for n in range(len(PARTS) + 1) for macros in itertools.combinations(sorted(PARTS), n)]
    for source, header in PARTS.values():
        if has_header(header):
            work.append((source, []))
        else:
            print("[SKIP] %s: no %s here (deploy/install_packages.sh --bench)" % (source, header))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, macros, done in pool.map(lambda w: compile_one(root, *w), work):
            if done.returncode != 0:
                report.add(source, "with %s: %s" % (" ".join(macros) or "no part", done.stdout.strip()[:600]))
    return len(work)


def check(root):
    report = source_files.Report("check_options")
    check_searches(report, root, source_files.repository_files(root))
    count = 0
    if os.path.isfile(os.path.join(root, SWITCH)):
        check_macros(report, root)
        count = check_combinations(report, root)
    return report.finish("%d combinations" % count)


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
