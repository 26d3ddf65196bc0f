"""What the sources say that people rely on by name: error slugs, metrics, flags, environment variables.

Each function takes the root and the repository's files and returns a dictionary by name, so that two of
them can be compared. Nothing is built or run.
"""

import collections
import re

import source_files

PRODUCT = ("deploy/", "vta/", "compiler/", "cost_model/", "tracker/", "device_agent/", "tuner_server/")
ADVICE_FILE = "tuner_server/cli/cli_error.cc"

# How a status is made, and its code. ErrnoError takes the code from the system's error number.
CODES = {
    "InvalidArgument": "INVALID_ARGUMENT", "NotFound": "NOT_FOUND", "AlreadyExists": "ALREADY_EXISTS",
    "FailedPrecondition": "FAILED_PRECONDITION", "Internal": "INTERNAL", "Unavailable": "UNAVAILABLE",
    "Unimplemented": "UNIMPLEMENTED", "ResourceExhausted": "RESOURCE_EXHAUSTED", "DataLoss": "DATA_LOSS",
    "DeadlineExceeded": "DEADLINE_EXCEEDED", "Cancelled": "CANCELLED", "Aborted": "ABORTED",
    "PermissionDenied": "PERMISSION_DENIED", "Unauthenticated": "UNAUTHENTICATED", "ErrnoError": "(by errno)",
    "ParseHostPort": "INVALID_ARGUMENT",
}
# Calls whose dotted words are not slugs of errors: log events, failpoints, features, scopes, files.
OTHER_CALLS = {
    "Log", "LogInfo", "LogWarning", "LogError", "LogDebug", "TW_FAILPOINT", "TW_SCOPE", "Add", "AddLog",
    "AddVtaTransfer", "PathJoin", "level", "CheckCount", "FeatureIndex", "File", "ParseCertificates", "ParseKey",
    "set_path", "starts_with", "include",
}
# Areas of slugs that are no status by themselves: why a work item, a result or a lease ended.
REASON_AREAS = {"work", "result", "lease", "quota", "queue", "selector"}
FILE_SUFFIX = re.compile(r"\.(?:cc|h|def|pem|tw|db|json|jsonl|html|onnx|o|so|lock|lld|md|proto)$")

_STRING = r'"(?:\\.|[^"\\\n])*"'
_SLUG = re.compile(r'"([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+)(?:: ((?:\\.|[^"\\\n])*))?"')
_CALL_BEFORE = re.compile(r"([A-Za-z_]\w*)\s*[({]\s*(?:[\w:.>*&()-]+,\s*)*$")
_METRIC = re.compile(r'(\w+)\s*\(\s*"(tilewright_[a-z0-9]+(?:_[a-z0-9]+)+)"\s*,\s*((?:' + _STRING + r"\s*)+)")
_METRIC_KINDS = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram", "level": "gauge",
                 "count": "counter", "count_map": "counter"}
_FLAG_CALL = re.compile(r"\badd_(?:option|flag)(?:_function(?:<[^>]*>)?|_callback)?\(\s*(" + _STRING + r")")
_FLAG_WORD = re.compile(r"!?(--[a-z][a-z0-9-]*)")
MENTIONED_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])")

Slug = collections.namedtuple("Slug", "codes says where")
Metric = collections.namedtuple("Metric", "kind help labels where")


def is_product(path):
    return path.startswith(PRODUCT)


def _sources(root, files, suffixes=source_files.CPP_SUFFIXES):
    for path in files:
        if is_product(path) and path.endswith(suffixes):
            yield path, source_files.strip_cpp(source_files.read_text(path, root), keep_strings=True)


def _words(literals):
    """The text of C++ string literals that stand side by side."""
    text = "".join(part[1:-1] for part in re.findall(_STRING, literals))
    return text.replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\")


def _arguments(text, start):
    """The rest of the call's arguments from `start` to its closing bracket."""
    depth = 0
    for match in re.compile(_STRING + r"|[(){};]").finditer(text, start):
        token = match.group(0)
        depth += (token in "({") - (token in ")}")
        if depth < 0 or token == ";":
            return text[start:match.start()]
    return text[start:start + 400]


def _says(first, arguments):
    """What the message says, with ... for what is filled in."""
    parts = [first] if first else []
    for run in re.findall(r"(?:" + _STRING + r"\s*)+", arguments):
        words = _words(run)
        if words.strip(" \"'.:,()[]"):
            parts.append(words)
    text = re.sub(r"\s+", " ", " … ".join(part.strip() for part in parts)).strip()
    return text if len(text) <= 200 else text[:197].rstrip() + "…"


def slugs(root, files):
    """{slug: Slug}: dotted words whose area, their first word, some status or reason of the product has."""
    found = []
    for path, text in _sources(root, files):
        if path == ADVICE_FILE:
            continue  # prefixes of slugs, not slugs
        for match in _SLUG.finditer(text):
            before = text[max(0, match.start() - 160):match.start()]
            call = _CALL_BEFORE.search(before)
            name = call.group(1) if call else ""
            if name in OTHER_CALLS or FILE_SUFFIX.search(match.group(1)):
                continue
            if re.search(r"[=!]=\s*$", before):
                continue  # asked for, not made
            code = CODES.get(name, "")
            made = re.search(r"StatusCode::k(\w+),\s*$", before)
            if made:
                code = CODES.get(made.group(1), "")
            found.append((match, text, path, code))
    areas = {match.group(1).split(".")[0] for match, _, _, code in found if code} | REASON_AREAS
    result = {}
    for match, text, path, code in found:
        words = match.group(1).split(".")
        if words[0] not in areas or (words[0] == "vta" and len(words) < 3):
            continue  # vta.acc is a memory
        says = _says(match.group(2), _arguments(text, match.end())) if code or match.group(2) else ""
        old = result.get(match.group(1), Slug(frozenset(), "", frozenset()))
        result[match.group(1)] = Slug(old.codes | ({code} if code else set()), old.says or says, old.where | {path})
    return {**thrown(root, files), **result}


def thrown(root, files):
    """{slug: Slug}: what deploy/javascript throws."""
    result = {}
    for path in files:
        if not (is_product(path) and path.endswith(".js")):
            continue
        # Template literals as strings with gaps.
        text = re.sub(r"`([^`]*)`", lambda t: '"%s"' % re.sub(r"\$\{(?:[^{}]|\{[^{}]*\})*\}", '" + "', t.group(1).replace('"', "'")),
                      source_files.read_text(path, root))
        for match in re.finditer(r"\bfail\(\s*" + _SLUG.pattern, text):
            old = result.get(match.group(1), Slug(frozenset(), _says("", _arguments(text, match.end())), frozenset()))
            result[match.group(1)] = Slug(frozenset({"thrown in JavaScript"}), old.says, old.where | {path})
    return result


def advice(root):
    """([(slug prefix, text)] in order, {status code: text}) of the command line's table."""
    text = source_files.strip_cpp(source_files.read_text(ADVICE_FILE, root), keep_strings=True)
    table = text[text.index("kAdvice[]"):]
    table = table[:table.index("};")]
    rows = [(_words(prefix), _words(words))
            for prefix, words in re.findall(r"\{(%s),\s*((?:%s\s*)+)\}" % (_STRING, _STRING), table)]
    body = text[text.index("std::string Advice("):]
    body = body[:body.index("\n}\n")]
    by_code, cases = {}, []
    for case, words in re.findall(r"case absl::StatusCode::k(\w+):|return ((?:%s\s*)+);" % _STRING, body):
        if case:
            cases.append(CODES[case])
            continue
        for code in cases or ["others"]:
            by_code[code] = _words(words)
        cases = []
    return rows, by_code


def metrics(root, files):
    """{name: Metric}: declared with a help text in a call that makes a metric."""
    result = {}
    for path, text in _sources(root, files):
        for match in _METRIC.finditer(text):
            kind = _METRIC_KINDS.get(match.group(1))
            if kind is None:
                continue
            rest = _arguments(text, match.end())
            labels = set(re.findall(r'\{"([a-z_]+)",', rest))
            if match.group(1) == "count_map":
                labels |= set(re.findall(r'"([a-z_]+)"', rest)[:1])
            old = result.get(match.group(2), Metric(kind, "", frozenset(), frozenset()))
            result[match.group(2)] = Metric(kind, old.help or _words(match.group(3)), old.labels | labels,
                                            old.where | {path})
    return result


def flags(root, files):
    """{flag: sources that declare it} of the product's programs."""
    result = collections.defaultdict(set)
    for path, text in _sources(root, files):
        for names in _FLAG_CALL.findall(text):
            for flag in _FLAG_WORD.findall(names):
                result[flag].add(path)
        for names in re.findall(r'set_config\(\s*"([^"]*)"|set_version_flag\(\s*"([^"]*)"|'
                                r'k(?:Output|Format)Flag\[\] = "([^"]*)"|AddFormat\(\w+, "([^"]*)"', text):
            for flag in _FLAG_WORD.findall(" ".join(names)):
                result[flag].add(path)
    return dict(result)


def script_flags(root, files):
    """Flags that the repository's scripts and test programs take."""
    result = {"--help"}
    for path in files:
        if path.endswith(".py"):
            result.update(re.findall(r"(?:add_argument\(\s*(?:\"-\w\",\s*)?|== \[?)[\"'](--[\w-]+)",
                                     source_files.read_text(path, root)))
        elif path.endswith(".sh"):
            for case in re.findall(r"^\s*((?:-[\w-]+(?:=\*)?\s*\|\s*)*--[\w-]+(?:=\*)?(?:\s*\|\s*-[\w-]+)*)\s*\)",
                                   source_files.read_text(path, root), re.M):
                result.update(re.findall(r"--[\w-]+", case))
        elif path.startswith("tests/") and path.endswith(source_files.CPP_SUFFIXES):
            result.update(re.findall(r"\"!?(?:-\w,)?(--[a-z][\w-]*?)=?\"", source_files.read_text(path, root)))
    return result


_CONVERSION = re.compile(r'^\s+\{"([A-Z]\w*)", \w+[,}]', re.M)
_ELEMENTWISE = re.compile(r'^\s+\{"[a-z_0-9]+", "([A-Z]\w*)", \d', re.M)
_ROW_OF_ITS_OWN = re.compile(r'^\s+\w+\.onnx = \{"([A-Z]\w*)"\};', re.M)


def operators(root, files):
    """{ONNX operator: tables with its row} of what the importer converts."""
    result = collections.defaultdict(set)
    for path, row in (("compiler/onnx/onnx_ops.cc", _CONVERSION), ("compiler/onnx/onnx_microsoft_ops.cc", _CONVERSION),
                      ("compiler/op/elementwise.cc", _ELEMENTWISE), ("compiler/op/logic.cc", _ELEMENTWISE), ("compiler/op/logic.cc", _ROW_OF_ITS_OWN)):
        if path in files:
            for name in row.findall(source_files.strip_cpp(source_files.read_text(path, root), keep_strings=True)):
                result[name].add(path)
    return dict(result)


_READ_IN_CPP = re.compile(r'\b(?:GetEnv|getenv)\(\s*"([A-Z][A-Z0-9_]*)"')
_READ_IN_PYTHON = re.compile(r"(?:environ(?:\.get)?|getenv)\s*[\[(]\s*[\"'](TILEWRIGHT_[A-Z_]+)[\"']")
_READ_IN_SHELL = re.compile(r"\$\{?(TILEWRIGHT_[A-Z_]+)")
_CMAKE_NAME = re.compile(r"\bTILEWRIGHT_[A-Z][A-Z0-9_]*")


def environment(root, files):
    """{variable: files that read it}: any of the product, those of our own name in scripts and tests."""
    result = collections.defaultdict(set)
    for path in files:
        text = source_files.read_text(path, root)
        if path.endswith(source_files.CPP_SUFFIXES):
            names = _READ_IN_CPP.findall(source_files.strip_cpp(text, keep_strings=True))
            if not is_product(path):
                names = [name for name in names if name.startswith("TILEWRIGHT_")]
        elif path.endswith(".py"):
            names = _READ_IN_PYTHON.findall(text)
        elif path.endswith(".sh"):
            names = _READ_IN_SHELL.findall(text)
        else:
            continue
        for name in names:
            result[name].add(path)
    return dict(result)


def build_names(root, files):
    """Names of our own that CMake knows or defines: options, definitions; no environment variables."""
    result = set()
    for path in files:
        if path.endswith(("CMakeLists.txt", ".cmake", "CMakePresets.json", "CMakePresets.json.in")):
            result.update(_CMAKE_NAME.findall(source_files.read_text(path, root)))
    return result
