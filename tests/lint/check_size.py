#!/usr/bin/env python3
"""Prints how large the code is, and fails on files and functions over the limits.

Aim at 400 lines per file and 40 per function; the limits below are for the tail. An exception is a
row in ALLOWED with its reason.
"""

import ast
import os
import re
import sys

import source_files

FILE_LIMIT = 900
FUNCTION_LIMIT = 120
SHOWN = 5

# "path" or "path:function" -> why it may be larger.
ALLOWED = {}

SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b|\bextern\s*\"")
NAME = re.compile(r"([~\w:]+|operator\s*[^\s(]+)\s*\($")


def header_of_scope(header):
    """Whether the text before a brace opens a namespace or a type rather than a function."""
    match = SCOPE.search(header)
    if not match:
        return False
    if match.group(0).startswith(("namespace", "extern")):
        return True
    # 'struct X f() {' is a function, 'struct alignas(8) X {' and 'class X : public Y<Z()> {' are not.
    rest = re.sub(r"\b(alignas|__attribute__|TW_\w+)\s*\((?:[^()]|\([^()]*\))*\)", "",
                  header[match.start():])
    return "(" not in rest.split(":")[0] if ":" in rest else "(" not in rest


def cpp_functions(text):
    """(name, first line, lines) of every function body that is not inside another."""
    text = source_files.strip_cpp(text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                  text, flags=re.M)
    functions = []
    stack = []  # "scope", "other" or (name, start line, start of its header)
    header_start = 0
    for match in re.finditer(r"[{};]", text):
        char, at = match.group(0), match.start()
        inside = any(entry != "scope" for entry in stack)
        if char == "{":
            header = text[header_start:at]
            if not inside and header_of_scope(header):
                stack.append("scope")
            elif not inside and "(" in header and not re.search(r"=\s*$", header):
                name = NAME.search(header[:header.index("(") + 1])
                start = header_start + len(header) - len(header.lstrip())
                stack.append((name.group(1) if name else "?", text.count("\n", 0, start) + 1,
                              header_start))
            else:
                stack.append("other")
        elif char == "}" and stack:
            entry = stack.pop()
            if isinstance(entry, tuple):
                if text[at + 1:].lstrip()[:1] in (",", "{"):
                    # A member's braced initializer, not yet the constructor's body.
                    header_start = entry[2]
                    continue
                line = text.count("\n", 0, at) + 1
                functions.append((entry[0], entry[1], line - entry[1] + 1))
        header_start = at + 1
    return functions


def python_functions(text):
    functions = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append((node.name, node.lineno, node.end_lineno - node.lineno + 1))
    return functions


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0


def show(title, rows):
    print("%s: %d, median %d, p90 %d" % (title, len(rows), percentile([r[0] for r in rows], 0.5),
                                         percentile([r[0] for r in rows], 0.9)))
    for size, where in sorted(rows, key=lambda r: (-r[0], r[1]))[:SHOWN]:
        print("  %5d  %s" % (size, where))


def check(root):
    report = source_files.Report("check_size")
    files = []
    functions = []
    variables = set()
    lines_by_area = {}
    for path in source_files.repository_files(root):
        if not path.endswith(source_files.SOURCE_SUFFIXES):
            continue
        text = source_files.read_text(path, root)
        lines = text.count("\n")
        files.append((lines, path))
        area = path.split("/")[0]
        lines_by_area[area] = lines_by_area.get(area, 0) + lines
        if lines > FILE_LIMIT and path not in ALLOWED:
            report.add(path, "expected at most %d lines, found %d" % (FILE_LIMIT, lines))
        found = []
        if path.endswith(source_files.CPP_SUFFIXES):
            found = cpp_functions(text)
            if not path.startswith("tests/"):
                variables |= set(re.findall(r'GetEnv\(\s*"(\w+)"', text))
        elif path.endswith(".py"):
            found = python_functions(text)
        for name, line, size in found:
            functions.append((size, "%s:%d %s" % (path, line, name)))
            if size > FUNCTION_LIMIT and "%s:%s" % (path, name) not in ALLOWED:
                report.add("%s:%d" % (path, line), "expected at most %d lines in %s, found %d" % (
                    FUNCTION_LIMIT, name, size))
    for entry in ALLOWED:
        if not os.path.exists(os.path.join(root, entry.split(":")[0])):
            report.add("check_size.py", "allowed but gone: %s" % entry)
    show("files", files)
    show("functions", functions)
    print("lines by area: " + ", ".join("%s %d" % a for a in sorted(lines_by_area.items())))
    print("environment variables: %s" % (", ".join(sorted(variables)) or "none"))
    return report.finish("%d lines" % sum(f[0] for f in files))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
