#!/usr/bin/env python3
"""Checks that what people rely on by name is documented, and that what is documented exists.

- error slugs, metrics and ONNX operators of the sources have a row on their generated page, and no row is left over
- the pages that sources alone make are what they would be now, to the letter
- the flags that programs declare are on the pages of flags, and no page shows one that is gone
- alarms and dashboards name metrics that exist
- each environment variable that is read has a row in deploy/docs/environment.md, and each row is read
- flags and TILEWRIGHT_ variables that documents, units, configurations and messages mention exist
- every page and operator list that another page links to is there
"""

import json
import os
import re
import sys

import generate_reference
import reference_scan
import source_files

ENVIRONMENT = "deploy/docs/environment.md"
MONITORING = ("deploy/ops/monitoring/alerts.yml", "deploy/ops/monitoring/dashboard.json")
REFRESH = "run %s, and commit what it writes" % generate_reference.COMMAND
REFRESH_FLAGS = "build the programs that changed and " + REFRESH

OPERATOR_ROW = re.compile(r"^\| ([A-Z]\w*) \|", re.M)
ROW = re.compile(r"^\| `([^`]+)` \|", re.M)
METRIC_NAME = re.compile(r"\btilewright_[a-z0-9]+(?:_[a-z0-9]+)+\b")
HELP_ROW = re.compile(r"^  (?:-\w, ?)?((?:!?--[\w-]+)(?:, ?!?--[\w-]+)*)", re.M)
OUR_VARIABLE = re.compile(r"\bTILEWRIGHT_[A-Z][A-Z_]*[A-Z]\b")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CONFIGURATION_KEY = re.compile(r"^#? ?([a-z][a-z-]*) = ", re.M)

# Flags of other people's programs that our texts name.
FOREIGN_FLAGS = {
    "--cycle-counter": "tilewright-worker, which links no parser of flags",
    "--preset": "cmake", "--build-dir": "cmake", "--now": "systemctl", "--user": "systemctl", "--group": "install",
    "--system": "useradd", "--home": "useradd", "--no-create-home": "useradd", "--owner": "tar", "--mtime": "tar",
    "--numeric-owner": "tar", "--sort": "tar", "--exclude": "tar", "--no-install-recommends": "apt-get", "--rm": "podman", "--security-opt": "podman",
    "--network": "podman", "--root-owner-group": "dpkg-deb", "--print-architecture": "dpkg",
    "--install": "cmake", "--component": "cmake", "--prefix": "cmake", "--cflags": "pkg-config", "--libs": "pkg-config",
    "--ignore-missing-info": "dpkg-shlibdeps", "--strip-unneeded": "strip",
    "--initial-memory": "wasm-ld", "--no-entry": "wasm-ld", "--import-memory": "wasm-ld", "--stack-first": "wasm-ld",
    "--strip-all": "wasm-ld", "--allow-undefined": "wasm-ld", "--export": "wasm-ld", "--experimental-wasm-relaxed-simd": "node",
    "--build-id": "ld.lld", "--hash-style": "ld.lld", "--strip-debug": "ld.lld", "--flag": "any", "--plugin": "protoc", "--cacert": "curl",
    "--cuda-device-only": "clang", "--no-gpu-bundle-output": "clang", "--offload-arch": "clang", "--rocm-device-lib-path": "clang",
}
# Variables that only one test knows of.
PRIVATE_VARIABLES = {"TILEWRIGHT_NO_SUCH_VARIABLE"}


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def compare(report, page, documented, found, refresh):
    """Names that the page lacks, with where they are, and names that are gone."""
    for name in sorted(set(found) - documented):
        report.add(page, "lacks %s of %s: %s" % (name, min(found[name]), refresh))
    for name in sorted(documented - set(found)):
        report.add(page, "names %s, which exists nowhere: %s" % (name, refresh))


def check_generated(report, root, files):
    if generate_reference.ERRORS in files:
        rows = set(ROW.findall(source_files.read_text(generate_reference.ERRORS, root)))
        found = {slug: row.where for slug, row in reference_scan.slugs(root, files).items()}
        compare(report, generate_reference.ERRORS, {name for name in rows if "." in name}, found, REFRESH)
    if generate_reference.METRICS in files:
        rows = set(ROW.findall(source_files.read_text(generate_reference.METRICS, root)))
        found = {name: row.where for name, row in reference_scan.metrics(root, files).items()}
        compare(report, generate_reference.METRICS, rows, found, REFRESH)
    if generate_reference.OPERATORS in files:
        rows = set(OPERATOR_ROW.findall(source_files.read_text(generate_reference.OPERATORS, root)))
        compare(report, generate_reference.OPERATORS, rows, reference_scan.operators(root, files), REFRESH_FLAGS)


def check_letters(report, root, files):
    """A row can be there with an old text: only the whole page tells."""
    for path, page in generate_reference.FROM_SOURCES.items():
        written = source_files.read_text(path, root) if path in files else ""
        if written.startswith(generate_reference.MADE_BY) and written != page(root, files):
            report.add(path, "is out of date: " + REFRESH)


def check_flags(report, root, files):
    shown = {}
    for program in generate_reference.PROGRAMS:
        page = generate_reference.page_of(program)
        if page in files:
            for names in HELP_ROW.findall(source_files.read_text(page, root)):
                shown.update({flag: page for flag in re.findall(r"--[\w-]+", names)})
    declared = reference_scan.flags(root, files)
    if shown:
        compare(report, generate_reference.FOLDER, set(shown) - {"--help", "--version"},
                {flag: where for flag, where in declared.items() if flag != "--version"}, REFRESH_FLAGS)
    return set(declared)


def check_monitoring(report, root, files):
    known = reference_scan.metrics(root, files)
    for path in MONITORING:
        if path not in files:
            continue
        text = source_files.read_text(path, root)
        for match in METRIC_NAME.finditer(text):
            name = re.sub("_(bucket|sum|count)$", "", match.group(0))
            if name not in known and match.group(0) not in known:
                report.add("%s:%d" % (path, line_of(text, match.start())), "no daemon exports %s" % match.group(0))
        if path.endswith(".json"):
            json.loads(text)


def check_environment(report, root, files):
    read = {name: where for name, where in reference_scan.environment(root, files).items() if name not in PRIVATE_VARIABLES}
    if ENVIRONMENT in files:
        documented = set(name for name in ROW.findall(source_files.read_text(ENVIRONMENT, root)) if name.isupper())
        compare(report, ENVIRONMENT, documented, read, "correct the table by hand")
    known = set(read) | reference_scan.build_names(root, files) | PRIVATE_VARIABLES
    for path in files:
        if not path.endswith((".md", ".service", ".conf", ".yml")):
            continue
        text = source_files.read_text(path, root)
        for match in OUR_VARIABLE.finditer(text):
            if match.group(0) not in known:
                report.add("%s:%d" % (path, line_of(text, match.start())), "nothing reads %s" % match.group(0))


def mentions(root, path):
    """What people read of a file: all of a document, the strings of a source."""
    text = source_files.read_text(path, root)
    if path.endswith(source_files.CPP_SUFFIXES):
        if not reference_scan.is_product(path):
            return ""
        text = source_files.strip_cpp(text, keep_strings=True)
        blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))  # noqa: E731
        kept, at = [], 0
        for match in re.finditer(r'"(?:\\.|[^"\\\n])*"', text):
            kept += [blank(re.match(r"(?s).*", text[at:match.start()])), match.group(0)]
            at = match.end()
        return "".join(kept)
    return text


def check_mentions(report, root, files, declared):
    """`declared`: flags of our programs. Nothing is checked in a tree that declares none."""
    if not declared:
        return
    known = declared | reference_scan.script_flags(root, files) | set(FOREIGN_FLAGS) | {"--help", "--version"}
    for path in files:
        if path.startswith(generate_reference.FOLDER) or not (
                path.endswith((".md", ".service", ".proto", *source_files.CPP_SUFFIXES)) or
                (path.startswith("deploy/") and path.endswith((".sh", ".yml")))):
            continue
        text = mentions(root, path)
        for match in reference_scan.MENTIONED_FLAG.finditer(text):
            if match.group(0) not in known:
                report.add("%s:%d" % (path, line_of(text, match.start())), "no program takes %s" % match.group(0))
    for path in files:
        if path.startswith("deploy/ops/config/") and path.endswith(".conf"):
            text = source_files.read_text(path, root)
            for match in CONFIGURATION_KEY.finditer(text):
                if "--" + match.group(1) not in declared:
                    report.add("%s:%d" % (path, line_of(text, match.start())), "no daemon knows the key " + match.group(1))


def check_links(report, root, files):
    known = set(files) | {os.path.dirname(path) for path in files}
    for path in files:
        if not path.endswith(".md"):
            continue
        text = source_files.read_text(path, root)
        for match in LINK.finditer(text):
            if re.match(r"[a-z]+:", match.group(1)):
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(path), match.group(1)))
            if target not in known:
                report.add("%s:%d" % (path, line_of(text, match.start())), "links to %s, which is not there" % match.group(1))


def check(root):
    report = source_files.Report("check_reference")
    files = source_files.repository_files(root)
    check_generated(report, root, files)
    check_letters(report, root, files)
    declared = check_flags(report, root, files)
    check_monitoring(report, root, files)
    check_environment(report, root, files)
    check_mentions(report, root, files, declared)
    check_links(report, root, files)
    return report.finish("%d flags" % len(declared))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
