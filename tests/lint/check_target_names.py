#!/usr/bin/env python3
"""Checks that a name of a target, vendor or instruction set is only in the folder of its target.

Counts the words of WORDS in code (not in comments) of the product outside the folders of HOMES. A part
of an identifier is a word, too: BlockAvx512, VtaPipeline. "Arm" is not: it is an English verb.
A file has as many as its row of ALLOWED says, no more and no fewer, so that rows only shrink. A row is
there because a file format, a processor's own registers or a plug-in of a device needs the word.
"""

import re
import sys

import source_files

# A target's own folders, and its files where no compiler is: the plug-in of a device, and the facts that
# a program asks the processor for which it was built.
HOMES = (
    "compiler/targets/", "vta/",
    "deploy/runtime/device_cuda.cc", "deploy/runtime/cuda_",  # the plug-ins
    "deploy/runtime/device_opencl.cc", "deploy/runtime/opencl_abi.h",
    "deploy/runtime/device_vulkan.cc", "deploy/runtime/spirv_abi.h", "deploy/runtime/vulkan_",
    "deploy/runtime/cpu_info.cc",  # features, by LLVM's names, and how each processor says that it has them
    "deploy/peaks/fma_peak.cc", "deploy/peaks/read_bandwidth.cc",  # the best loop of each instruction set, timed
    "device_agent/qemu_board.c",   # a plug-in of an emulator: instructions of one processor
)
WORDS = re.compile(
    r"(?<![A-Za-z])("
    r"x86|amd64|avx\w*|sse\d?\w*|vnni|vpdp\w*|vpmadd\w*|[xyz]mm|intel|amd|epyc|znver\w*|haswell|skylake"
    r"|a_?arch64|arm64|(?-i:arm|ARM)|neon|sve2?|[us]dot|usdot|i8mm|cortex|neoverse"
    r"|open_?cl|cl_khr\w*|cuda|nvidia|ptx|metal|msl|hip|gfx\d\w*|hsaco|vulkan|spir_?v|wasm|risc_?v\w*|rvv|vta)(?![A-Za-z])", re.I)
# Where a part of an identifier begins: BlockAvx512, VTAPipeline.
PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# file -> (words, why)
ALLOWED = {
    "compiler/ir/scopes.def": (10, "texts of the tensor IR name memories"),
    "compiler/schedule/steps.def": (7, "texts of schedule steps name memories"),
    "deploy/runtime/cache_evict.cc": (3, "an instruction of each processor"),
    "deploy/runtime/code_loader.cc": (6, "the code format of the machine that it is built for"),
    "deploy/runtime/dlpack_abi.h": (2, "devices of another interface, by its names"),
    "deploy/runtime/thread_pool.cc": (2, "the pause instruction of each processor"),
    "deploy/support/hash.cc": (5, "an instruction of one processor"),
    "device_agent/device_spec.cc": (1, "a device's plug-in"),
    "device_agent/driver_profile.cc": (10, "files of drivers"),
    "tuner_server/cli/check_flags.cc": (2, "an example in the help"),
    "tuner_server/cli/cli_main.cc": (4, "examples in the help"),
    "tuner_server/search/builder_main.cc": (2, "the default of a flag of tests"),
}


def row_of(path):
    return next((name for name in sorted(ALLOWED, reverse=True) if path.startswith(name)), path)


def check(root):
    report = source_files.Report("check_target_names")
    found = {}  # row -> [(file:line, word)]
    files = source_files.repository_files(root)
    for path in files:
        if not path.endswith(source_files.CPP_SUFFIXES + (".def",)) or path.startswith(HOMES + ("tests/",)):
            continue
        code = source_files.strip_cpp(source_files.read_text(path, root), keep_strings=True)
        code = PARTS.sub("_", code)
        for match in WORDS.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            found.setdefault(row_of(path), []).append(("%s:%d" % (path, line), match.group(1)))
    for row in sorted(ALLOWED):
        if row in files and len(found.get(row, [])) < ALLOWED[row][0]:
            report.add(row, "has %d names of targets, ALLOWED says %d: lower the row" % (
                len(found.get(row, [])), ALLOWED[row][0]))
    for row, words in sorted(found.items()):
        most = ALLOWED.get(row, (0, ""))[0]
        for where, word in words[most:]:
            report.add(where, "%s: a name of a target, vendor or instruction set belongs into its folder "
                              "(%s may have %d)" % (word, row, most))
    return report.finish("%d words outside of their folders, in %d files" % (
        sum(len(words) for words in found.values()), len(found)))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
