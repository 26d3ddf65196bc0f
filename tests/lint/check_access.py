#!/usr/bin/env python3
"""Checks that every RPC of proto/ has its row in the table of who may call what, and every row its RPC.

A method without a row is refused on a fleet with TLS, so a new RPC that lacks one works in the tests
on loopback and fails its users. Rows of grpc.* are the standard services that every daemon serves.
"""

import re
import sys

import source_files

TABLE = "deploy/security/access.cc"
ROW = re.compile(r'^\s*\{"/([\w.]+)/(\w+)",', re.M)
PACKAGE = re.compile(r"^package ([\w.]+);", re.M)
SERVICE = re.compile(r"^service (\w+) \{(.*?)^\}", re.M | re.S)
RPC = re.compile(r"^\s*rpc (\w+)\(", re.M)


def rpcs(root, files):
    """"package.Service/Method" -> its file."""
    found = {}
    for path in (p for p in files if p.startswith("proto/") and p.endswith(".proto")):
        text = source_files.strip_cpp(source_files.read_text(path, root), keep_strings=True)
        package = PACKAGE.search(text)
        for name, body in SERVICE.findall(text):
            for method in RPC.findall(body):
                found["%s.%s/%s" % (package.group(1) if package else "", name, method)] = path
    return found


def check(root):
    report = source_files.Report("check_access")
    files = source_files.repository_files(root)
    declared = rpcs(root, files)
    rows = ["/".join(row) for row in ROW.findall(source_files.read_text(TABLE, root))] if TABLE in files else []
    for method in sorted(set(declared) - set(rows)):
        report.add(declared[method], "expected a row for %s in %s: who may call it?" % (method, TABLE))
    for method in sorted(set(rows) - set(declared)):
        if not method.startswith("grpc."):
            report.add(TABLE, "names an RPC that is not there: " + method)
    for method in sorted({m for m in rows if rows.count(m) > 1}):
        report.add(TABLE, "has two rows for " + method)
    return report.finish("%d RPCs, %d rows" % (len(declared), len(rows)))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
