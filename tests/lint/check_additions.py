#!/usr/bin/env python3
"""Checks what READMEs claim about adding an operator, a family of them, a rule of the space, a layout, a primitive, a pass, a target or a device.

- the tables of worked examples: every file is there and names the example, and each kind has as many
  files as the claim says
- no other code of the product names the operator, the family's operator or the rule of an example, but for the
  ONNX import
- the toy, a target with a device that lives in the tests: every file of its folder is one of those of
  an example, and no other code names it, so a target that needs one file more fails this check
- the host's code names no kind of device that has a plug-in, but for the files of its example
- every primitive of steps.def has its body in one source, declared in primitives.h: the row does
  the rest
- every row of pipelines.cc has its pass in one source, declared in passes.h
- code with layouts in blocks, quoted, is where graph passes choose them: nothing else interprets their text
"""

import re
import sys

import source_files

CLAIMED = {
    "compiler/README.md": {"operator": 2, "operators": 3, "rule": 3, "primitive": 4, "layout": 2, "pass": 5},
    "compiler/targets/README.md": {"family": 4, "kind": 4, "machine": 1, "intrinsic": 2},
    "deploy/runtime/README.md": {"device": 3},
}
# The folder and the name of the toy. Its files may be built and described elsewhere, never named in code.
TOY, TOY_NAME = "tests/toy/", re.compile(r"(?<![A-Za-z])toy(?![A-Za-z])", re.I)
TOY_STRANGERS = re.compile(r"(compiler|cost_model|deploy|device_agent|proto|tracker|tuner_server|vta)/.*"
                           r"\.(cc|h|c|def|proto|py|sh|txt)$|tests/(?!lint/|toy/|CMakeLists).*\.(cc|h|c|def|txt)$")
EXAMPLE = re.compile(r"^\| (\w+) \| `(\w+)` \| (.*) \|$", re.M)
# What the table of a kind says is enough: nobody else asks for the row by its name.
ROWS_ALONE = ("operator", "operators", "rule")
# ONNX says some operators in several ways, and some by others.
KNOWS_ROWS = re.compile(r"compiler/(?!onnx/).*\.(cc|h|def)$|(tuner_server|cost_model|deploy|vta)/.*\.(cc|h)$")
# What knows no device: agent and worker reach all of them through the table of plug-ins.
DEVICE_CODE = re.compile(r"(device_agent/.*\.(cc|h|c)|device_agent/CMakeLists\.txt|deploy/.*\.cc|deploy/.*CMakeLists\.txt)$")


def check_examples(report, root, known, readme):
    text = source_files.read_text(readme, root)
    claimed = CLAIMED[readme]
    rows = [(kind, name, re.findall(r"`([^`]+)`", files)) for kind, name, files in EXAMPLE.findall(text) if kind in claimed]
    for kind in sorted(set(claimed) - {kind for kind, _, _ in rows}):
        report.add(readme, "expected a worked example of a new %s" % kind)
    for kind, name, files in rows:
        if len(files) != claimed[kind]:
            report.add(readme, "%s: expected %d files, found %d" % (kind, claimed[kind], len(files)))
        # `prune_sync`, PruneSync or "prune_sync": the same words.
        words = re.compile("_?".join(name.split("_")), re.I)
        for path in files:
            if path not in known:
                report.add(readme, "names a file that is not there: %s" % path)
            elif not words.search(source_files.read_text(path, root)):
                report.add(path, "expected %s, which %s says it has" % (name, readme))
        if kind in ROWS_ALONE:
            check_others(report, root, known, name, files)
        if kind == "device":
            check_strangers(report, root, known, name, files)


def check_others(report, root, known, name, files):
    """No other code asks whether a node or a sketch is of this row."""
    for path in known:
        if path in files or not KNOWS_ROWS.match(path):
            continue
        for number, line in enumerate(source_files.read_text(path, root).splitlines(), 1):
            if '"%s"' % name in re.sub(r"//.*", "", line):
                report.add("%s:%d" % (path, number), "names %s: a new row would need this file, too" % name)


def check_strangers(report, root, known, name, files):
    """No other code of the device's side has the device's name in it, comments and names of files to open excepted."""
    named = re.compile(r"\b%s\b|[\"_]%s[\"_]" % (name, name))
    for path in known:
        if path in files or not DEVICE_CODE.match(path):
            continue
        for number, line in enumerate(source_files.read_text(path, root).splitlines(), 1):
            if named.search(re.sub(r"(//|#).*", "", line)):
                report.add("%s:%d" % (path, number), "names the device %s: what differs goes into its plug-in" % name)


def examples_of(root, known):
    """The files of all worked examples."""
    return {path for readme in CLAIMED if readme in known
            for kind, _, files in EXAMPLE.findall(source_files.read_text(readme, root)) if kind in CLAIMED[readme]
            for path in re.findall(r"`([^`]+)`", files)}


def check_toy(report, root, known):
    """The toy is the files of its examples, and nothing else."""
    examples = examples_of(root, known)
    for path in known:
        if path.startswith(TOY) and not path.endswith("README.md") and path not in examples:
            report.add(path, "a file of the toy that no worked example counts: a target, an intrinsic or a device "
                             "would need one more")
        if not TOY_STRANGERS.match(path):
            continue
        for number, line in enumerate(source_files.read_text(path, root).splitlines(), 1):
            if TOY_NAME.search(re.sub(r"(//|#(?!include)).*", "", line)):
                report.add("%s:%d" % (path, number), "names the toy: a target would need this file, too")


def check_owner(report, root, known, folder, name, declared_in):
    """`name` is declared in that header and defined in one source of the folder."""
    defined = re.compile(r"^[\w:<>]+ %s\(" % name, re.M)
    sources = [p for p in known if p.startswith(folder) and p.endswith(".cc") and
               defined.search(source_files.read_text(p, root))]
    if len(sources) != 1:
        report.add(folder, "%s: expected one source, found %s" % (name, " ".join(sources) or "none"))
    if not re.search(r"\b%s\(" % name, source_files.read_text(declared_in, root)):
        report.add(declared_in, "expected a declaration of %s" % name)


# "OIHW16o": axes and a block. Operators and passes ask op::Layout what it means.
BLOCKED_LAYOUT = re.compile(r'"[A-Z]{2,5}\d+[a-z]')
CHOOSES_LAYOUTS = ("compiler/graph/weight_layouts.cc", "compiler/graph/block_layouts.cc")


def check_layouts(report, root, known):
    for path in known:
        if not re.match(r"(compiler|tuner_server|vta)/.*\.(cc|h)$", path) or path in CHOOSES_LAYOUTS:
            continue
        for number, line in enumerate(source_files.read_text(path, root).splitlines(), 1):
            if BLOCKED_LAYOUT.search(re.sub(r"//.*", "", line)):
                report.add("%s:%d" % (path, number), "names a layout in blocks: a new layout would need this file, too")


def check_tables(report, root, known):
    steps = re.findall(r"^TW_STEP\((\w+),", source_files.read_text("compiler/schedule/steps.def", root), re.M)
    for name in steps:
        check_owner(report, root, known, "compiler/schedule/", "Apply" + name,
                    "compiler/schedule/primitives.h")
    table = source_files.read_text("compiler/transform/pipelines.cc", root)
    passes = re.findall(r'^constexpr PassRow \w+\{"\w+", (\w+)\};', table, re.M)
    for name in passes:
        check_owner(report, root, known, "compiler/transform/", name, "compiler/transform/passes.h")
    if not steps or not passes:
        report.add("compiler", "expected tables of primitives and passes, found %d and %d rows" %
                   (len(steps), len(passes)))


def check(root):
    report = source_files.Report("check_additions")
    known = source_files.repository_files(root)
    for readme in CLAIMED:
        if readme in known:  # a small tree of a test has no compiler
            check_examples(report, root, known, readme)
    check_toy(report, root, known)
    if "compiler/README.md" in known:
        check_tables(report, root, known)
        check_layouts(report, root, known)
    return report.finish("%d files" % len(known))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
