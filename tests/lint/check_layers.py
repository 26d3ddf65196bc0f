#!/usr/bin/env python3
"""Checks the include graph against the layers of the house.

An include may only point to a folder that the including folder's row names (deploy/support is open
to everybody), the folders must form no cycle, and outside libraries stay where their row allows.
Prints file:line for each include that breaks a rule; exit code 1 if there is any.
"""

import os
import re
import sys

import source_files

# Folders that the rows below may name together.
DEPLOY = ["deploy/support", "deploy/sql", "deploy/module", "deploy/runtime", "deploy/peaks",
          "deploy/security", "deploy/daemon"]
COMPILER = ["compiler/target", "compiler/ir", "compiler/analysis", "compiler/estimate",
            "compiler/schedule", "compiler/transform", "compiler/space", "compiler/codegen", "compiler/targets", "compiler/op",
            "compiler/graph", "compiler/onnx", "compiler/driver"]
TUNER = ["tuner_server/log", "tuner_server/modules", "tuner_server/search", "tuner_server/jobs",
         "tuner_server/service"]

# folder -> folders (or single headers) that its files may include, besides its own.
LAYERS = {
    "proto": [],
    "deploy/support": [],
    "deploy/sql": [],
    "deploy/module": [],
    "deploy/runtime": ["deploy/module"],
    "deploy/peaks": ["deploy/module", "deploy/runtime"],
    "deploy/images": ["deploy/runtime/external_kernel.h"],
    "deploy/security": [],
    "deploy/daemon": ["proto", "deploy/security"],
    "deploy/bindings": ["deploy/runtime", "deploy/module"],
    "vta/isa": [],
    "vta/sim": ["vta/isa"],
    "vta/rtl": ["vta/isa"],
    "vta/driver": ["vta/isa", "vta/sim", "vta/rtl/rtl_sim.h", "deploy/runtime/device_plugin.h"],
    "compiler/target": [],
    "compiler/ir": [],
    "compiler/analysis": ["compiler/ir"],
    "compiler/schedule": ["compiler/target", "compiler/ir", "compiler/analysis"],
    "compiler/estimate": ["compiler/target", "compiler/ir", "compiler/analysis"],
    "compiler/transform": ["compiler/target", "compiler/ir", "compiler/analysis"],
    "compiler/space": ["compiler/target", "compiler/ir", "compiler/analysis", "compiler/estimate",
                       "compiler/schedule", "compiler/transform"],
    "compiler/codegen": ["compiler/target", "compiler/ir", "compiler/analysis",
                         "deploy/runtime/c_abi.h"],
    "compiler/targets": ["compiler/target", "compiler/ir", "compiler/analysis", "compiler/transform",
                         "compiler/codegen", "deploy/module/manifest.h",
                         "deploy/runtime/c_abi.h", "deploy/runtime/phone_gpu.h", "deploy/runtime/spirv_abi.h", "vta/isa"],
    "compiler/op": ["compiler/ir"],
    "compiler/graph": ["compiler/op", "compiler/ir"],
    "compiler/onnx": ["compiler/op", "compiler/ir", "compiler/graph"],
    "compiler/quantize": ["compiler/graph", "compiler/onnx"],
    "compiler/driver": COMPILER + ["deploy/module", "deploy/runtime"],
    "cost_model": ["compiler/target", "compiler/ir", "compiler/analysis", "compiler/estimate"],
    "tracker": ["proto"] + DEPLOY,
    "device_agent": ["proto", "compiler/target"] + DEPLOY,
    "tuner_server/log": DEPLOY + ["compiler/target"],
    "tuner_server/modules": DEPLOY + ["tuner_server/log"],
    "tuner_server/search": COMPILER + DEPLOY + ["cost_model", "tuner_server/log", "proto"],
    "tuner_server/jobs": DEPLOY + ["proto", "tuner_server/search", "tuner_server/log",
                                   "tuner_server/modules"],
    "tuner_server/service": DEPLOY + ["proto", "tuner_server/jobs", "tuner_server/search",
                                      "tuner_server/modules", "tuner_server/log"],
    "tuner_server/cli": COMPILER + ["compiler/quantize"] + DEPLOY + TUNER + ["cost_model", "proto"],
}
FOR_EVERYBODY = "deploy/support"
# Tests see everything, and nothing sees tests.
UNCHECKED = "tests"

# Outside libraries that only some folders may see: (include prefix, folders, why).
LIBRARIES = [
    ("llvm/", ["compiler/codegen", "compiler/targets"], "LLVM stays behind code generation"),
    ("lld/", ["compiler/codegen"], "LLVM stays behind code generation"),
    ("grpcpp/", ["deploy/daemon", "tracker", "device_agent", "tuner_server/jobs",
                 "tuner_server/service", "tuner_server/cli"], "transport stays at the edge"),
    ("openssl/", ["deploy/security"], "keys and certificates go through deploy/security"),
    ("V", ["vta/rtl"], "models of Verilator go through vta/rtl/rtl_sim.h"),
    ("verilated", ["vta/rtl"], "models of Verilator go through vta/rtl/rtl_sim.h"),
    ("magick/", ["deploy/images"], "images are decoded in a library of its own"),
    ("sqlite3.h", ["deploy/sql"], "SQL goes through deploy/sql"),
    ("xgboost/", ["cost_model"], "the learned model is one folder"),
    ("spdlog/", ["deploy/daemon", "tracker", "device_agent", "tuner_server/jobs",
                 "tuner_server/service"], "only daemons log"),
    ("tilewright_onnx.pb.h", ["compiler/onnx", "compiler/quantize"],
     "the ONNX format ends at the importer, and at what writes models"),
    ("absl/synchronization/", [], "use deploy/support/mutex.h"),
    ("absl/log/", [], "Debian's Abseil has none"),
]

# Headers that are also installed into one flat folder, so they include their siblings by name.
SHIPPED_HEADERS = {"deploy/runtime/external_kernel.h", "deploy/runtime/tilewright.h"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
GENERATED = re.compile(r"^tilewright/v1/\w+(\.grpc)?\.pb\.h$")


def folder_of(path):
    """The row that a path belongs to: the longest one that is a prefix; else its folder."""
    folder = os.path.dirname(path)
    parts = folder.split("/")
    for length in range(len(parts), 0, -1):
        prefix = "/".join(parts[:length])
        if prefix in LAYERS or prefix == UNCHECKED:
            return prefix
    return folder


def includes_of(path, text):
    for match in INCLUDE.finditer(source_files.strip_cpp(text, keep_strings=True)):
        yield text.count("\n", 0, match.start(2)) + 1, match.group(1), match.group(2)


def check_library(report, where, folder, target):
    for prefix, folders, why in LIBRARIES:
        grpc_code = prefix == "grpcpp/" and target.endswith(".grpc.pb.h")
        if (target.startswith(prefix) or grpc_code) and folder not in folders:
            report.add(where, "%s may not include %s (%s)" % (folder, target, why))


def check_include(report, edges, known, tops, path, line, quote, target):
    folder = folder_of(path)
    where = "%s:%d" % (path, line)
    if folder != UNCHECKED:
        check_library(report, where, folder, target)
    if GENERATED.match(target):
        target_folder = "proto"
    elif target.split("/")[0] in tops:
        if quote == "<":
            report.add(where, 'expected "%s" in quotes' % target)
        if target not in known:
            report.add(where, "no such file %s" % target)
            return
        target_folder = folder_of(target)
    else:
        flat = quote == '"' and "/" not in target and not target.endswith(".pb.h")
        if flat and path not in SHIPPED_HEADERS:
            report.add(where, 'expected an include from the root, found "%s"' % target)
        return
    if target_folder == folder or folder == UNCHECKED:
        return
    edges.setdefault((folder, target_folder), where)
    if target_folder == UNCHECKED:
        report.add(where, "product code may not include tests: %s" % target)
        return
    allowed = LAYERS.get(folder, [])
    if target_folder != FOR_EVERYBODY and target_folder not in allowed and target not in allowed:
        report.add(where, "%s may not include %s (%s)" % (folder, target_folder, target))


def find_cycle(edges):
    """A list of folders that form a cycle, or None."""
    successors = {}
    for source, target in edges:
        successors.setdefault(source, set()).add(target)
    state = {}

    def visit(folder, trail):
        state[folder] = "open"
        for successor in sorted(successors.get(folder, ())):
            if state.get(successor) == "open":
                return trail[trail.index(successor):] + [successor]
            if successor not in state:
                cycle = visit(successor, trail + [successor])
                if cycle:
                    return cycle
        state[folder] = "done"
        return None

    for folder in sorted(successors):
        if folder not in state:
            cycle = visit(folder, [folder])
            if cycle:
                return cycle
    return None


def check(root):
    report = source_files.Report("check_layers")
    files = [p for p in source_files.repository_files(root)
             if p.endswith(source_files.CPP_SUFFIXES + (".def",))]
    known = set(files)
    tops = {p.split("/")[0] for p in LAYERS} | {UNCHECKED}
    edges = {}
    for path in files:
        folder = folder_of(path)
        if folder not in LAYERS and folder != UNCHECKED:
            report.add(path, "no row in LAYERS for the folder %s" % (folder or "/"))
        for line, quote, target in includes_of(path, source_files.read_text(path, root)):
            check_include(report, edges, known, tops, path, line, quote, target)
    cycle = find_cycle(edges)
    if cycle:
        report.add(edges[(cycle[0], cycle[1])], "folder cycle: " + " -> ".join(cycle))
    return report.finish("%d files, %d arrows between folders" % (len(files), len(edges)))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
