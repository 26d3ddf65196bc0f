#!/usr/bin/python3
"""Assembles vulkan_self_test.spvasm into vulkan_self_test.def, by spirv-as (Debian package spirv-tools).
With --check it writes nothing and exits with 1 where the two differ."""

import struct
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAGIC = 0x4C505354  # TW_SPIRV_MAGIC of spirv_abi.h
LOOPS = 8192 + 16 + 2  # what its loops cost
PER_LINE = 8


def text():
    done = subprocess.run(["spirv-as", "--target-env", "spv1.3", "-o", "-", HERE / "vulkan_self_test.spvasm"],
                          stdout=subprocess.PIPE, check=True)
    module = struct.unpack("<%dI" % (len(done.stdout) // 4), done.stdout)
    words = ["0x%08x," % word for word in (MAGIC, len(module), LOOPS) + module]
    lines = [" ".join(words[i:i + PER_LINE]) for i in range(0, len(words), PER_LINE)]
    return "// Made by vulkan_self_test.py of vulkan_self_test.spvasm.\n" + "\n".join(lines) + "\n"


def main():
    target = HERE / "vulkan_self_test.def"
    if "--check" in sys.argv:
        if target.read_text() != text():
            print("%s: expected what vulkan_self_test.py makes, found other words; run it" % target)
            return 1
        return 0
    target.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
