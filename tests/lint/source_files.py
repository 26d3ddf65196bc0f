"""What the lint checks share: which files belong to the repository, and C++ text without comments."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

CPP_SUFFIXES = (".h", ".cc", ".c")
SOURCE_SUFFIXES = CPP_SUFFIXES + (".py", ".sh", ".proto", ".sv", ".def", ".js")


def repository_files(root=ROOT):
    """Paths relative to the root, sorted: tracked files and new ones that git does not ignore."""
    if os.path.exists(os.path.join(root, ".git")):  # a file in a work tree of its own
        output = subprocess.run(
            ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
            check=True, stdout=subprocess.PIPE).stdout.decode()
        paths = [p for p in output.split("\0") if p]
    else:
        # An unpacked archive has no git; there, build trees and caches are left out by name.
        paths = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith((".", "build", "__pycache__"))
                          and f != "shared"]
            paths += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(p for p in set(paths) if os.path.isfile(os.path.join(root, p)))


def read_text(path, root=ROOT):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\ ]{0,16})\(.*?\)(?P=d)"'
    r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S)


_TABLE = re.compile(r"^tw_table_sources\((\w+) ([\w./]+)\)", re.M)


def table_sources(path, root=ROOT):
    """What the tables of a CMakeLists.txt name (tw_table_sources): variable -> sources, relative to its folder."""
    found = {}
    for variable, table in _TABLE.findall(read_text(path, root)):
        folder = os.path.dirname(table)
        text = strip_cpp(read_text(os.path.join(os.path.dirname(path), table), root), keep_strings=True)
        found[variable] = [os.path.join(folder, name) for name in re.findall(r'"(\w+\.cc)"', text)]
    return found


def strip_cpp(text, keep_strings=False):
    """The text with comments (and, unless kept, string contents) blanked; lines keep their numbers."""

    def blank(match):
        token = match.group(0)
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        if keep_strings:
            return token
        return '"' + re.sub(r"[^\n]", " ", token)[1:-1] + '"'

    return _TOKEN.sub(blank, text)


class Report:
    """Collects findings; `finish` prints them and gives the exit code."""

    def __init__(self, name):
        self.name = name
        self.findings = []

    def add(self, where, text):
        self.findings.append("%s: %s" % (where, text))

    def finish(self, summary):
        for finding in self.findings:
            print(finding)
        print("%s: %s, %s" % (self.name, summary,
                              "%d findings" % len(self.findings) if self.findings else "ok"))
        sys.stdout.flush()
        return 1 if self.findings else 0
