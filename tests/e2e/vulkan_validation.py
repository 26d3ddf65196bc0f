#!/usr/bin/env python3
"""The Vulkan plug-in under the validation layer of Vulkan's makers, which checks each call and the order of memory accesses:
the conformance suite of plug-ins and some random programs break no rule. The words of the plug-in's self-test are those of its
text. Skips without the layer or without a device."""
# Runs alone: a device's times are compared in it.

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, PYTHON, ROOT, run_checks, skip  # noqa: E402

SETTINGS = """khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,info
khronos_validation.log_filename = stdout
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
"""
ACTIVE = "Khronos Validation Layer Active"
BROKEN = ("Validation Error", "Validation Warning")


def under_the_layer(program, *arguments, rounds=12):
    with tempfile.TemporaryDirectory(prefix="tilewright-vulkan-") as folder:
        settings = Path(folder) / "vk_layer_settings.txt"
        settings.write_text(SETTINGS)
        environment = dict(os.environ, VK_LAYER_SETTINGS_PATH=str(settings), TILEWRIGHT_ROUNDS=str(rounds),
                           VK_INSTANCE_LAYERS="VK_LAYER_KHRONOS_validation")
        done = subprocess.run([BIN.resolve() / program, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
    if "[SKIP] no" in done.stdout and "evice" in done.stdout and "OK ]" not in done.stdout:
        skip("no Vulkan device")
    if ACTIVE not in done.stdout:
        skip("no validation layer (Debian's vulkan-validationlayers)")
    broken = [line for line in done.stdout.splitlines() if any(word in line for word in BROKEN)]
    assert done.returncode == 0 and not broken, "\n".join(broken or done.stdout.splitlines()[-20:])


def plugin_suite():
    under_the_layer("device_plugin_test", "--gtest_filter=*/vulkan:*/poor:-*TakeTheTime*")


def random_programs():
    under_the_layer("random_vulkan_test")


def self_test_words():
    done = subprocess.run([PYTHON, ROOT / "deploy/runtime/vulkan_self_test.py", "--check"], stdout=subprocess.PIPE, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout


if __name__ == "__main__":
    run_checks(self_test_words, plugin_suite, random_programs)
