#!/usr/bin/env python3
"""Checks that C++ is formatted as .clang-format says, that scripts parse, and that comments fit.

The formatter leaves comments alone (tables and before/after pictures keep their shape), so their
length is checked here.
"""

import ast
import os
import shutil
import subprocess
import sys

import source_files

FORMATTER = "clang-format-19"
BATCH = 40
COLUMNS = 100


def check_cpp(report, root, files):
    formatter = shutil.which(FORMATTER)
    if not formatter:
        # The rest of the lint is still worth running; the CI machine has the formatter.
        print("[SKIP] no %s here: deploy/install_packages.sh --dev installs it" % FORMATTER)
        return
    for start in range(0, len(files), BATCH):
        result = subprocess.run([formatter, "--dry-run"] + files[start:start + BATCH], cwd=root,
                                stderr=subprocess.PIPE, universal_newlines=True, check=False)
        flagged = set()
        for line in result.stderr.splitlines():
            if "[-Wclang-format-violations]" in line:
                path, number = line.split(":")[:2]
                if path not in flagged:
                    report.add("%s:%s" % (path, number), "expected the layout of %s" % FORMATTER)
                flagged.add(path)
        if result.returncode != 0:
            report.add(FORMATTER, result.stderr.strip()[-500:])


def check_comments(report, root, files):
    for path in files:
        for number, line in enumerate(source_files.read_text(path, root).splitlines(), 1):
            if len(line) > COLUMNS and line.lstrip().startswith("//"):
                report.add("%s:%d" % (path, number), "expected at most %d columns, found %d" % (
                    COLUMNS, len(line)))


def check(root):
    report = source_files.Report("check_format")
    files = source_files.repository_files(root)
    cpp = [p for p in files if p.endswith(source_files.CPP_SUFFIXES)]
    check_cpp(report, root, cpp)
    check_comments(report, root, cpp)
    for path in files:
        if path.endswith(".py"):
            try:
                ast.parse(source_files.read_text(path, root))
            except SyntaxError as error:
                report.add("%s:%s" % (path, error.lineno), str(error))
        elif path.endswith(".sh"):
            result = subprocess.run(["bash", "-n", os.path.join(root, path)],
                                    stderr=subprocess.PIPE, universal_newlines=True, check=False)
            if result.returncode != 0:
                report.add(path, result.stderr.strip())
            if not os.access(os.path.join(root, path), os.X_OK):
                report.add(path, "expected an executable file")
    return report.finish("%d files" % len(files))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
