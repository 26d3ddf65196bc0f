#!/usr/bin/env python3
"""Checks that documents, protos and public headers keep to plain English, in the folders that were mended.

- none of the words to avoid: idioms that readers whose language is another one have to guess
- no part of a sentence (up to a full stop, colon or semicolon) of more than WORDS words

The words are checked in the messages of all programs, too. Code in backticks and in fences does not count, nor do names with
dots, underscores or capitals inside.
"""

import os
import re
import sys

import source_files

WORDS = 30

# Folders whose .h, .proto and .md are checked; a folder joins when it has been mended.
MENDED = {
    "", "deploy", "deploy/bindings", "deploy/bindings/examples", "deploy/bindings/python", "deploy/daemon",
    "deploy/docs", "deploy/module", "deploy/ops", "deploy/ops/ci", "deploy/runtime", "deploy/sql", "deploy/support",
    "device_agent", "proto", "proto/tilewright/v1", "tests", "tests/bench", "tests/conformance", "tests/differential",
    "tests/e2e", "tests/fault", "tests/fuzz", "tests/golden", "tests/lint", "tests/long", "tests/models", "tests/sim",
    "tests/support", "tests/unit", "tracker", "tuner_server", "tuner_server/cli", "tuner_server/jobs",
    "tuner_server/log", "tuner_server/modules", "tuner_server/search", "compiler/estimate", "compiler/space", "compiler/space/rules", "tuner_server/service",
    "cost_model", "deploy/ops/boards", "deploy/security",
}
# Terms of the field: where a word to avoid is right. A search is asked for candidates and told results (ask and tell).
TERMS = {"told": ("tuner_server/search", "tuner_server/jobs", "proto/tilewright/v1/builder.proto")}

# Words to avoid -> what to say.
AVOID = {
    r"besides?": "next to, in addition to, at the same time",
    r"whoever|nobody(?:'s)?": "name the person or program",
    r"whatever": "any, all, or what exactly",
    r"go(?:es|ing)? on": "continue",
    r"no matter": "for any",
    r"at once": "immediately, or at the same time",
    r"a word about": "say it",
    r"stands?": "is",
    r"lies": "is",
    r"told": "name the message",
    r"news": "event",
}
AVOIDED = [(re.compile(r"(?<![\w./-])(?:%s)(?![\w(-]|\.\w)" % words, re.I), instead) for words, instead in AVOID.items()]

CODE = re.compile(r"`[^`]*`|\"[^\"]*\"|\]\([^)]*\)")
STRUCTURE = re.compile(r"^\s*(?:[-*|#>]|\d+\.\s|\s{2,}|[A-Z]\d\s\s)")
END = re.compile(r"[.:;?!](?=\s|$)|\s\|\s|\|$")
MESSAGE = re.compile(r'"((?:[^"\\]|\\.)*)"')
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
TABLE_GAP = re.compile(r"\S {2,}\S")


def paragraphs_of_document(text):
    """(line, text) of each paragraph, list item and table row outside of fences."""
    fenced, start, part = False, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        ends = fenced or not line.strip() or line.lstrip().startswith(("```", "|", "#", "- ", "* ")) or (
            not part and line.startswith("    "))
        if ends and part:
            yield start, " ".join(part)
            part = []
        if fenced or line.startswith("    ") or line.lstrip().startswith("```") or not line.strip():
            continue
        if not part:
            start = number
        part.append(line.strip())
    if part:
        yield start, " ".join(part)


def paragraphs_of_comments(text):
    """(line, text) of each paragraph of comments; tables and pictures a line at a time."""
    start, part, indent = 0, [], ""
    for number, line in enumerate(text.splitlines() + [""], 1):
        whole = re.match(r"(\s*)// ?(.*)", line)
        trailing = None if whole else re.search(r"[;,{}]\s+// (.*)", line)
        body = whole.group(2) if whole else ""
        joins = whole and part and whole.group(1) == indent and body.strip() and not STRUCTURE.match(body) and \
            not TABLE_GAP.search(body)
        if part and not joins:
            yield start, " ".join(part)
            part = []
        if trailing:
            yield number, trailing.group(1)
        elif whole and body.strip():
            if not part:
                start, indent = number, whole.group(1)
            part.append(body.strip())


def is_term(word, path):
    return path.startswith(TERMS.get(word.lower(), ()))


def findings(text, path):
    prose = CODE.sub("X", text)
    for pattern, instead in AVOIDED:
        for match in pattern.finditer(prose):
            if is_term(match.group(0), path):
                continue
            yield "avoid \"%s\": %s" % (match.group(0), instead)
    for sentence in END.split(prose):
        count = len(WORD.findall(sentence))
        if count > WORDS:
            yield "a sentence of %d words; at most %d: \"%s...\"" % (count, WORDS, sentence.strip()[:50])


def check_messages(report, root, files):
    """The words only: what is put together from several texts has no sentences here."""
    for path in files:
        if not path.endswith(".cc") or path.startswith("tests/"):
            continue
        code = source_files.strip_cpp(source_files.read_text(path, root), keep_strings=True)
        for number, line in enumerate(code.splitlines(), 1):
            for text in MESSAGE.findall(line):
                for pattern, instead in AVOIDED:
                    if " " in text and pattern.search(text):
                        report.add("%s:%d" % (path, number), "avoid \"%s\": %s" % (pattern.search(text).group(0), instead))


def check(root):
    report = source_files.Report("check_english")
    count = 0
    files = source_files.repository_files(root)
    check_messages(report, root, files)
    for path in files:
        if os.path.dirname(path) not in MENDED:
            continue
        document = path.endswith(".md")
        if not document and (not path.endswith((".h", ".proto")) or path.startswith("tests/")):
            continue
        count += 1
        text = source_files.read_text(path, root)
        for line, part in (paragraphs_of_document if document else paragraphs_of_comments)(text):
            for finding in findings(part, path):
                report.add("%s:%d" % (path, line), finding)
    return report.finish("%d texts" % count)


if __name__ == "__main__":
    sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else source_files.ROOT))
