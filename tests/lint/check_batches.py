#!/usr/bin/env python3
"""Checks that the sources of a target can be compiled as one (tw_batch in CMakeLists.txt).

Types, constants and functions of equal parameters that stand in anonymous namespaces have names of their
own throughout a target. Two of one name are mostly one thing said twice: share it, or say how they differ.
"""

import os
import re
import sys

import source_files

TARGET = re.compile(r"tw_(?:library|executable)\(([\w-]+)\s+SRCS\s+(.*?)(?:\bAPART\b|\bDEPS\b|\))", re.S)
TYPE = re.compile(r"^(?:struct|class|enum(?: class)?) (\w+)\b[^;]*?\{", re.M)
CONSTANT = re.compile(r"^(?:static |inline )?(?:constexpr|const) [^;=({]*?\b(k[A-Z]\w*)\b", re.M)
USING = re.compile(r"^using (?:[\w:]+::(?=\w+;))?(\w+)(?:;| = )", re.M)
FUNCTION = re.compile(r"^[\w:][\w:<>,&* \n]*?[ *&](\w+)\(([^;{}()]*(?:\([^()]*\)[^;{}()]*)*)\)\s*(?:const )?\{", re.M)


def anonymous(text):
    """The text of the anonymous namespaces of a formatted source."""
    return "\n".join(re.findall(r"^namespace \{\n(.*?)^\}  // namespace$", text, re.M | re.S))


def parameter_types(text):
    """A function's parameters without their names, so that equal ones are equal texts."""
    words = []
    for parameter in re.sub(r"\s+", " ", text).split(","):
        words.append(re.sub(r"( ?[&*] ?| )\w+$", lambda m: m[1].strip(), parameter.strip().split("=")[0].strip()))
    return ",".join(words)


def names_of(text):
    """Pairs of name and what tells it from others of that name."""
    found = [(name, "") for pattern in (TYPE, CONSTANT) for name in pattern.findall(text)]
    found += [(name, parameter_types(parameters)) for name, parameters in FUNCTION.findall(text)]
    return found


def check_target(report, root, folder, sources):
    seen, used = {}, {}
    for source in sources:
        path = os.path.normpath(os.path.join(folder, source))
        if not os.path.isfile(os.path.join(root, path)):
            continue
        code = source_files.read_text(path, root)
        # Comments go, except the ones that close namespaces.
        text = re.sub(r"//(?! namespace$)[^\n]*", "", code, flags=re.M)
        for key in names_of(anonymous(text)):
            if key in seen and seen[key] != path:
                report.add(path, "%s is also defined by %s, a source of the same target" % (key[0], seen[key]))
            seen.setdefault(key, path)
        for name in USING.findall(text):
            used.setdefault(name, path)
    for (name, _), path in seen.items():
        if used.get(name, path) != path:
            report.add(path, "%s means something else in %s, a source of the same target" % (name, used[name]))


def check(root):
    report = source_files.Report("check_batches")
    count = 0
    for path in source_files.repository_files(root):
        if os.path.basename(path) != "CMakeLists.txt":
            continue
        tables = source_files.table_sources(path, root)
        for _, sources in TARGET.findall(source_files.read_text(path, root)):
            count += 1
            names = [name for word in sources.split() for name in tables.get(word.strip("${}"), [word])]
            check_target(report, root, os.path.dirname(path), names)
    return report.finish("%d targets" % count)


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
