#!/usr/bin/env python3
"""Checks that documentation, registration and names keep up with the code.

- every folder with sources has a README.md, and the files that a README names exist
- functions are in the file that their class's map ("// part.cc: what") puts them into
- every C++ source is in a CMakeLists.txt at or above it, or in a table that one reads: no dead code, no dead tests
- basenames are unique, so that logs, stack traces and searches agree
- clocks, randomness, the environment, sleeping and C files only in deploy/support
- each promise of the fleet (the table in tests/README.md) has tests that are there, one of which names it, and a figure
- each threat of the threat model has a test that is there, and each named case is in that test
- no notes for later
"""

import os
import re
import sys

import source_files

# Folders that are only a part of a path; the README above tells what is in them.
DESCRIBED_ABOVE = {"proto/tilewright/v1"}

# Names that every folder has.
COMMON_NAMES = {"README.md", "CMakeLists.txt", "__init__.py"}

FORBIDDEN = [
    (r"\bsystem_clock\s*::\s*now\b|\bsteady_clock\s*::\s*now\b", "use deploy/support/clock.h"),
    (r"\b(?:std\s*::\s*)?(?:rand|srand|random)\s*\(", "use deploy/support/rng.h"),
    (r"\b(?:mt19937(?:_64)?|random_device|default_random_engine)\b", "use deploy/support/rng.h"),
    (r"\b(?:secure_)?getenv\s*\(", "use deploy/support/env.h"),
    (r"\bsleep_for\b|\busleep\s*\(|\bnanosleep\s*\(", "wait for a condition, or SleepMs in a main"),
    (r"\bfopen\s*\(|\bfreopen\s*\(", "use deploy/support/file.h"),
]
HOME = "deploy/support/"
LATER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# A backticked word of a README that claims to be one of our files.
NAMED_FILE = re.compile(r"`([\w./-]+\.(?:h|cc|c|py|sh|proto|def|sv|txt|md|json))`")

# "  // device_pool_share.cc: what devices are used for", and a function that a class declares.
PART = re.compile(r"  // (\w+\.cc): ")
METHOD = re.compile(r"  (?! |using |friend |typedef )[\w:<>*&, ]+[ *&]([A-Z]\w*)\(")

# "| R7 | promise | tests | what it shows today |"
PROMISE = re.compile(r"\| (R\d+) \|[^|]*\|([^|]*)\|(.*)\|$")

# "| threat | answer | `some_test`: `ACase`, `AnotherCase`; `script.py` |"
THREAT_MODEL = "deploy/ops/threat_model.md"
THREAT = re.compile(r"\| [^|]+ \| [^|]+ \| ([^|]+) \|$")
NAMED_TEST = re.compile(r"`(\w+(?:_test|\.py|\.mjs)|[A-Z]\w+)`")


def check_readmes(report, root, files):
    known = set(files)
    basenames = {os.path.basename(p) for p in files}
    folders = {os.path.dirname(p) for p in files if p.endswith(source_files.SOURCE_SUFFIXES)}
    for folder in sorted(folders):
        readme = os.path.join(folder, "README.md")
        if readme not in known and folder not in DESCRIBED_ABOVE:
            report.add(folder or "/", "expected a README.md")
    for readme in (p for p in files if os.path.basename(p) == "README.md"):
        folder = os.path.dirname(readme)
        for number, line in enumerate(source_files.read_text(readme, root).splitlines(), 1):
            for name in NAMED_FILE.findall(line):
                here = os.path.normpath(os.path.join(folder, name))
                if here in known or os.path.normpath(name) in known:
                    continue
                if "/" not in name and name in basenames:
                    continue
                report.add("%s:%d" % (readme, number), "names a file that is not there: %s" % name)


def check_promises(report, root, files):
    path = "tests/README.md"
    if path not in files:
        return
    known, seen = set(files), []
    for number, line in enumerate(source_files.read_text(path, root).splitlines(), 1):
        row = PROMISE.match(line)
        if not row:
            continue
        promise, tests, figure = row.groups()
        seen.append(promise)
        named = [os.path.join("tests", name) for name in NAMED_FILE.findall(tests)]
        word = re.compile(r"\b%s\b" % promise)
        if not any(name in known and word.search(source_files.read_text(name, root)) for name in named):
            report.add("%s:%d" % (path, number), "no test of its row names %s" % promise)
        if not re.search(r"\d", figure):
            report.add("%s:%d" % (path, number), "%s has no figure" % promise)
    if seen != ["R%d" % i for i in range(1, len(seen) + 1)]:
        report.add(path, "expected the promises R1, R2, ... once each, found %s" % " ".join(seen))


def check_threats(report, root, files):
    """The last column of the table of threats names tests that exist, and cases in them."""
    if THREAT_MODEL not in files:
        return
    tests = {os.path.basename(p): p for p in files if p.startswith("tests/") and p.endswith((".cc", ".py", ".mjs"))}
    text = source_files.read_text(THREAT_MODEL, root)
    table = text.split("## Threats and defences", 1)[-1].split("\n## ")[0]
    first = text[:text.find(table)].count("\n") + 1
    for number, line in enumerate(table.splitlines(), first):
        row = THREAT.match(line)
        if not row or row.group(1) in ("proof", "---"):
            continue
        where, test = "%s:%d" % (THREAT_MODEL, number), None
        named = NAMED_TEST.findall(row.group(1))
        if not any(name[0].islower() for name in named):
            report.add(where, "the threat names no test: %s" % row.group(1))
        for name in named:
            if name[0].islower():
                test = tests.get(name if "." in name else name + ".cc")
                if test is None:
                    report.add(where, "no such test: %s" % name)
            elif test is not None and not re.search(r"\b%s\b" % name, source_files.read_text(test, root)):
                report.add(where, "%s has no case %s" % (os.path.basename(test), name))


def check_file_maps(report, root, files):
    """In a class, "// part.cc: what" says in which file the functions below it are."""
    known = set(files)
    for path in (p for p in files if p.endswith(".h")):
        part = None
        for number, line in enumerate(source_files.read_text(path, root).splitlines(), 1):
            opening = PART.match(line)
            if opening:
                part = os.path.join(os.path.dirname(path), opening.group(1))
                if part not in known:
                    report.add("%s:%d" % (path, number), "no such file: %s" % opening.group(1))
                    part = None
            method = METHOD.match(line)
            if not part or not method or line.endswith(("{", "}")):
                continue
            if not re.search(r"::%s\(" % method.group(1), source_files.read_text(part, root)):
                report.add("%s:%d" % (path, number), "%s is not in %s" % (method.group(1), part))


def is_registered(path, lists):
    """Whether a CMakeLists.txt at or above the file names it, relative to itself."""
    folder = os.path.dirname(path)
    while True:
        name = os.path.relpath(path, folder or ".")
        if re.search(r"(?<![\w.-])%s(?![\w.-])" % re.escape(name), lists.get(folder, "")):
            return True
        if not folder:
            return False
        folder = os.path.dirname(folder)


def check_registration(report, root, files):
    lists = {}
    for path in files:
        if os.path.basename(path) == "CMakeLists.txt":
            tables = sum(source_files.table_sources(path, root).values(), [])
            lists[os.path.dirname(path)] = "\n".join([source_files.read_text(path, root), *tables])
    for path in files:
        is_script_test = path.startswith("tests/") and path.endswith("_test.py")
        if not path.endswith((".cc", ".c")) and not is_script_test:
            continue
        if not is_registered(path, lists):
            report.add(path, "expected in a CMakeLists.txt at or above it")


def check_names(report, files):
    seen = {}
    for path in files:
        name = os.path.basename(path)
        if name in COMMON_NAMES or not path.endswith(source_files.SOURCE_SUFFIXES):
            continue
        if name in seen:
            report.add(path, "expected a basename of its own, also taken by %s" % seen[name])
        seen.setdefault(name, path)


def check_calls(report, root, files):
    for path in files:
        if not path.endswith(source_files.CPP_SUFFIXES + (".def",)):
            continue
        text = source_files.read_text(path, root)
        for number, line in enumerate(text.splitlines(), 1):
            match = LATER.search(line)
            if match:
                report.add("%s:%d" % (path, number), "%s: do it or file an issue" % match.group(1))
        if path.startswith((HOME, "tests/")):
            continue
        code = source_files.strip_cpp(text)
        for pattern, advice in FORBIDDEN:
            for match in re.finditer(pattern, code):
                line = code.count("\n", 0, match.start()) + 1
                report.add("%s:%d" % (path, line), "%s: %s" % (match.group(0).strip(), advice))


def check(root):
    report = source_files.Report("check_docs")
    files = source_files.repository_files(root)
    check_readmes(report, root, files)
    check_promises(report, root, files)
    check_threats(report, root, files)
    check_file_maps(report, root, files)
    check_registration(report, root, files)
    check_names(report, files)
    check_calls(report, root, files)
    return report.finish("%d files" % len(files))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
