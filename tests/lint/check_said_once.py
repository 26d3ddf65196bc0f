#!/usr/bin/env python3
"""Checks that knowledge has one home.

- no two functions of the product have the same body
- the facts of HOMES are written down in the file that is their home and nowhere else
"""

import re
import sys

import check_size
import source_files

# Shorter bodies are alike by chance.
BODY_LINES = 3
BODY_CHARS = 80

# Functions that are alike, with the reason why each keeps its own.
ALIKE = {
    "OutOfRange": "two device plug-ins: separate shared objects, each with a TwDevice of its own",
}

# (what, pattern in code, home, what to use instead)
HOMES = [
    ("a version", r'"%(version)s"', "CMakeLists.txt", "deploy/support/version.h"),
    ("the macro of the version", r"\bTILEWRIGHT_VERSION\b", "deploy/support/version.cc", "deploy/support/version.h"),
    ("the name of a cost model", r'"xgboost"', "tuner_server/log/cost_models.h", "its constants"),
    ("a list of device kinds", r'\{[^{}]*"cpu"[^{}]*"(?:cuda|opencl|vulkan|vta)"',
     "compiler/targets/kind_table.cc", "target::Kinds()"),
    ("an enum of the protocol by number", r"static_cast<(?:tilewright::)?v1::",
     "tracker/tracker_store.cc", "tuner_server/jobs/row_enums.h"),
    ("a duration or time in parts", r"\bset_nanos\(\s*static_cast<", None,
     "google::protobuf::util::TimeUtil"),
]


def functions_with_bodies(text):
    code = source_files.strip_cpp(text, keep_strings=True).splitlines()
    for name, line, size in check_size.cpp_functions(text):
        body = "\n".join(code[line - 1:line - 1 + size])
        body = " ".join(body[body.find("{"):].split())
        if size >= BODY_LINES and len(body) >= BODY_CHARS:
            yield name, line, body


def check_bodies(report, sources):
    seen = {}
    for path, text in sources:
        for name, line, body in functions_with_bodies(text):
            first = seen.setdefault(body, (path, name))
            if first[0] != path and name not in ALIKE:
                report.add("%s:%d" % (path, line), "%s has the body of %s in %s" % (
                    name, first[1], first[0]))


def check_homes(report, sources, version):
    for path, text in sources:
        code = source_files.strip_cpp(text, keep_strings=True)
        for what, pattern, home, instead in HOMES:
            if path == home or ("%(version)s" in pattern and not version):
                continue
            for match in re.finditer(pattern.replace("%(version)s", re.escape(version)), code):
                line = code.count("\n", 0, match.start()) + 1
                report.add("%s:%d" % (path, line), "%s: use %s" % (what, instead))


def check(root):
    report = source_files.Report("check_said_once")
    files = source_files.repository_files(root)
    sources = [(path, source_files.read_text(path, root)) for path in files
               if path.endswith(source_files.CPP_SUFFIXES) and not path.startswith("tests/")]
    project = source_files.read_text("CMakeLists.txt", root) if "CMakeLists.txt" in files else ""
    version = re.search(r"project\(\w+ VERSION ([\d.]+)", project)
    check_bodies(report, sources)
    check_homes(report, sources, version.group(1) if version else "")
    return report.finish("%d files" % len(sources))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
