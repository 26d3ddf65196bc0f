#!/usr/bin/env python3
"""Reads the pages of deploy/docs as their readers do: runs each command, in order, and compares what it prints. The convention of
the blocks is in deploy/docs/README.md. Also compares the generated pages with what would be generated now.

    docs_pages.py [--build DIR] [Pages.test_engineer ...]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Measures: a device is used in it, and no time is judged.

import collections
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lint"))
import cli_case  # noqa: E402
import generate_reference  # noqa: E402

DOCS = Path(cli_case.ROOT) / "deploy/docs"
FENCE = re.compile(r"^(`{3,})\s*(.*)$")
ANYTHING = "…"
BLOCK_SECONDS = 2 * cli_case.PATIENCE

Block = collections.namedtuple("Block", "language words text line")


def blocks_of(page):
    """The fenced blocks of a page, in order. A block that is not closed is an error."""
    found, fence, lines, first = [], None, [], 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        match = FENCE.match(line)
        if fence is None and match:
            fence, lines, first = match, [], number
        elif fence is not None and line.strip() == fence.group(1):
            language, _, words = fence.group(2).partition(" ")
            found.append(Block(language, words.strip(), "\n".join(lines) + "\n", first))
            fence = None
        elif fence is not None:
            lines.append(line)
    if fence is not None:
        raise AssertionError("%s:%d: the block is not closed" % (page.name, first))
    return found


def pattern_of(line):
    """What an expected line stands for: blanks count as one, … is any text."""
    parts = [re.escape(" ".join(part.split())) for part in line.split(ANYTHING)]
    return re.compile(r"\s*" + r".*".join(part.replace(r"\ ", r"\s+") for part in parts) + r"\s*")


def first_missing(expected, printed):
    """The first expected line that does not follow the ones before it, or None."""
    rest = iter(printed.splitlines())
    for line in expected.splitlines():
        if line.strip() in ("", ANYTHING):
            continue
        pattern = pattern_of(line)
        if not any(pattern.fullmatch(found) for found in rest):
            return line
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Reader:
    """Runs the blocks of one page in `folder`. What blocks left running ends with `stop`."""

    def __init__(self, folder, replace, variables):
        self.folder, self.replace, self.groups = Path(folder), replace, []
        self.exported = self.folder / ".exported"
        path = os.path.join(cli_case.BUILD, "bin") + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        self.first = {"PATH": path, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "LC_ALL": "C.UTF-8", **variables}

    def text(self, block):
        text = block.text
        for pattern, value in self.replace:
            text = re.sub(pattern, value, text)
        return text

    def run(self, where, block):
        """What the block printed, on both streams; an error if it fails."""
        load = ". %s\n" % self.exported if self.exported.exists() else ""
        script = self.folder / ".block.sh"
        script.write_text("%strap 'export -p > %s' EXIT\nset -eo pipefail\n%s" % (load, self.exported, self.text(block)))
        with open(self.folder / ".printed", "w+") as printed:  # a file: what stays in the background may keep it open
            child = subprocess.Popen(["bash", script], cwd=self.folder, env=self.first, stdin=subprocess.DEVNULL, stdout=printed,
                                     stderr=subprocess.STDOUT, start_new_session=True)
            self.groups.append(child.pid)
            try:
                code = child.wait(BLOCK_SECONDS)
            except subprocess.TimeoutExpired:
                code = "none after %d s" % BLOCK_SECONDS
            printed.seek(0)
            text = printed.read()
        if code != 0:
            logs = "".join("%s:\n%s" % (log.name, log.read_text(errors="replace")[-1500:]) for log in sorted(self.folder.glob("*.log")))
            raise AssertionError("%s: exit code %s\n%s\n%s\n%s" % (where, code, self.text(block), text, logs))
        return text

    def alive(self):
        """Whether any process that a block started still runs; it is in its block's process group."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue  # it has just ended
            if int(group) in self.groups and state != "Z":
                return True
        return False

    def stop(self):
        """Daemons get a moment to write what they have."""
        for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 20)):
            end = time.monotonic() + patience
            while self.alive() and time.monotonic() < end:
                for group in self.groups:
                    try:
                        os.killpg(group, number)
                    except ProcessLookupError:
                        pass
                time.sleep(0.05)

    def read(self, page):
        """Runs the page; how many blocks were run."""
        printed, count = None, 0
        for block in blocks_of(page):
            where = "%s:%d" % (page.name, block.line)
            name = re.match(r"file=(\S+)$", block.words)
            if name:
                path = self.folder / name.group(1)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.text(block))
                printed = None
            elif block.language == "sh" and block.words.startswith("no-run"):
                reason = block.words[len("no-run"):].strip()
                if not reason:
                    raise AssertionError(where + ": no-run needs a reason")
                print("not run: %s: %s" % (where, reason))
                printed = None
            elif block.language == "sh" and not block.words:
                printed = self.run(where, block)
                count += 1
            elif block.language == "text" and not block.words:
                if printed is None:
                    raise AssertionError(where + ": expected output without a command")
                missing = first_missing(block.text, printed)
                if missing is not None:
                    raise AssertionError("%s: expected the line\n  %s\nprinted was\n%s" % (where, missing, printed))
            else:
                raise AssertionError("%s: a block is sh, sh no-run REASON, text or LANGUAGE file=NAME, found '%s %s'" % (
                    where, block.language, block.words))
        return count


class Pages(cli_case.Case):
    def setUp(self):
        super().setUp()
        # A reader sits in a checkout that was built.
        for name in ("proto", "deploy"):
            os.symlink(os.path.join(cli_case.ROOT, name), self.path(name))
        os.makedirs(self.path("build"))
        os.symlink(cli_case.BUILD, self.path("build/release"))

    def read(self, name, replace=(), variables=None):
        reader = Reader(Path(self.folder), [*replace, (r"\b[a-z0-9-]+\.example\.org\b", "localhost")], variables or {})
        self.addCleanup(reader.stop)
        self.assertGreater(reader.read(DOCS / name), 3, name)

    def daemon(self, name, *flags):
        return cli_case.Daemon(self, name, *flags)

    def test_engineer(self):
        tracker = self.daemon("tracker")
        tuner = self.daemon("tuner", "--tracker", tracker.address)
        self.daemon("agent", "--tracker", tracker.address, "--device", "cpu")
        self.read("engineer.md", [(r"tuner\.example\.org:7000", tuner.address)])

    def test_custom_operators(self):
        self.read("custom_operators.md")

    def test_ci_author(self):
        """With what an operator gives: an address, an identity, the public key, and a module that is released."""
        self.good("certs", "init", "pki")
        for kind, name in (("tracker", "lab"), ("tuner", "main"), ("agent", "bench"), ("client", "ana"), ("client", "ci"),
                           ("client", "root")):
            self.good("certs", "issue", "pki", kind, name)
        for file, role, name in (("tracker-tokens", "tuner", "main"), ("tracker-tokens", "agent", "bench"),
                                 ("tuner-tokens", "engineer", "ana"), ("tuner-tokens", "ci", "ci"), ("tuner-tokens", "admin", "root")):
            self.good("tokens", "create", role, name, "--file", file, "--identity", "pki/issued/" + name)
        issued = self.path("pki/issued/")
        tracker = self.daemon("tracker", "--identity", issued + "lab", "--tokens", self.path("tracker-tokens"))
        tuner = self.daemon("tuner", "--tracker", tracker.address, "--identity", issued + "main", "--tokens", self.path("tuner-tokens"))
        self.daemon("agent", "--tracker", tracker.address, "--identity", issued + "bench", "--device", "cpu")
        ana = ["--server", tuner.address, "--identity", issued + "ana"]
        model = cli_case.dense_model(rows=4, inner=256, columns=96)
        model.graph.name = "dqn"
        onnx.save(model, self.path("dqn.onnx"))
        self.good("tune", "dqn.onnx", "--target", "native,threads=1", "--trials", "4", "-o", "dqn.tw", *ana)
        self.good("modules", "keygen", "release.key")
        self.good("modules", "keys", "add", "release.key.pub", "--server", tuner.address, "--identity", issued + "root")
        self.good("modules", "release", "dqn/1", "--key", "release.key", "--file", "dqn.tw", *ana)
        self.good("modules", "alias", "set", "dqn/1", "stable", *ana)
        os.rename(issued + "ci", self.path("identity"))
        os.rename(issued + "ana", self.path("engineer"))
        os.rename(issued + "root", self.path("admin"))
        self.read("ci_author.md", [(r"tuner\.example\.org:7000", tuner.address)])

    def test_operator(self):
        ports = {port: str(free_port()) for port in ("7000", "7001", "7003", "9101", "9102", "9103")}
        onnx.save(cli_case.dense_model(rows=4, inner=256, columns=96), self.path("model.onnx"))
        self.read("operator.md", [(r"\b(%s)\b" % "|".join(ports), lambda match: ports[match.group(1)]), (r"\b0\.0\.0\.0:", "127.0.0.1:")])


class Convention(cli_case.Case):
    """The runner itself: what must fail does."""

    def page(self, text):
        path = Path(self.path("page.md"))
        path.write_text(text)
        reader = Reader(Path(self.folder), [("7000", "7777")], {})
        self.addCleanup(reader.stop)
        return reader.read(path)

    def test_blocks_are_run_and_compared(self):
        self.assertEqual(self.page("```sh\nexport A=7000\n```\n```python file=a/b.py\nprint(3)\n```\n"
                                   "```sh\npython3 a/b.py; echo one two $A; sleep 100 &\n```\n```text\n3\n…\none …  7777\n```\n"
                                   "```sh no-run needs the moon\nfalse\n```\n"), 2)
        for bad in ("```sh\nfalse\n```\n", "```sh\ntrue | false | true\n```\n", "```sh no-run\ntrue\n```\n", "```\ntrue\n```\n",
                    "```sh\necho a; echo b\n```\n```text\nb\na\n```\n", "```sh\necho ab\n```\n```text\na\n```\n", "```text\na\n```\n",
                    "```sh\ntrue\n"):
            with self.assertRaises(AssertionError, msg=bad):
                self.page(bad)


class Reference(cli_case.Case):
    def test_generated_pages_are_current(self):
        made, missing = generate_reference.pages(cli_case.ROOT, cli_case.BUILD)
        self.assertEqual(missing, [], "programs that are not built")
        for path, text in made.items():
            self.assertEqual((Path(cli_case.ROOT) / path).read_text(), text,
                             "%s is out of date: run %s" % (path, generate_reference.COMMAND))


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
