#!/usr/bin/env python3
"""Counts test cases in ctest's JUnit file: prints "passed failed skipped".

A GoogleTest or unittest program counts its cases, any other program counts as one. A program that
failed counts at least one failure whatever it printed. Skipped cases are appended to the file named
second, with the program and the reason; what failed cases printed, to the file named third.
"""

import re
import sys
import xml.etree.ElementTree

LINES_OF_CASE = 40


def count_gtest(output):
    passed = sum(int(n) for n in re.findall(r"^\[  PASSED  \] (\d+) test", output, re.M))
    failed = sum(int(n) for n in re.findall(r"^\[  FAILED  \] (\d+) test", output, re.M))
    skipped = sum(int(n) for n in re.findall(r"^\[  SKIPPED \] (\d+) test", output, re.M))
    return passed, failed, skipped


def count_unittest(output):
    ran = re.findall(r"^Ran (\d+) tests? in", output, re.M)
    if not ran:
        return None
    failed = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", output))
    skipped = sum(int(n) for n in re.findall(r"skipped=(\d+)", output))
    return sum(int(n) for n in ran) - failed - skipped, failed, skipped


def failure_text(output):
    """What the failed cases of a GoogleTest program printed; of any other program, its last lines."""
    texts, lines = [], []
    for line in output.splitlines():
        if line.startswith("[ RUN      ]"):
            lines = []
        lines.append(line)
        if re.match(r"\[  FAILED  \] .*\(\d+ ms\)$", line):
            texts += lines if len(lines) <= LINES_OF_CASE else lines[:LINES_OF_CASE] + ["..."]
    # A crash ends a case without that line.
    return texts or output.splitlines()[-LINES_OF_CASE:]


def count_case(case):
    name = case.get("name")
    output = case.findtext("system-out") or ""
    ok = case.get("status") == "run" and case.find("failure") is None
    counts = (0, 0, 0)
    if "[==========]" in output:
        counts = count_gtest(output)
    else:
        counts = count_unittest(output) or (1 if ok else 0, 0, 0)
    passed, failed, skipped = counts
    if not ok and failed == 0:
        failed = 1
    reasons = ["%s: %s" % (name, line.strip()) for line in output.splitlines() if "[SKIP]" in line]
    if skipped and not reasons:
        reasons = ["%s: %d cases without a reason" % (name, skipped)]
    failures = ["== " + name, *failure_text(output)] if failed else []
    return (passed, failed, skipped), reasons, failures


def append(path, lines):
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def main(junit_path, skipped_path, failures_path):
    totals = [0, 0, 0]
    for case in xml.etree.ElementTree.parse(junit_path).getroot().iter("testcase"):
        counts, reasons, failures = count_case(case)
        totals = [total + count for total, count in zip(totals, counts)]
        append(skipped_path, reasons)
        append(failures_path, failures)
    print(*totals)


if __name__ == "__main__":
    main(*sys.argv[1:])
