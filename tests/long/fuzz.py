#!/usr/bin/env python3
"""The long lane of the fuzzers: libFuzzer with ASan and UBSan on every parser of tests/fuzz.
Promise R16 of tests/README.md.

Each fuzzer runs for `--minutes`, starting from inputs that are in the repository (golden files,
schedules in their comments) or made here (a model for each operator), in chunks of `--chunk`
seconds that go on from each other's corpus; `--wrap` names a command that runs each chunk. Writes
seeds, runs, coverage and failing inputs to tests/results/fuzz.json. tests/fuzz/README.md says how to
build.
"""

import argparse
import base64
import concurrent.futures
import datetime
import hashlib
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

from lane import ROOT, commit

GOLDEN = ROOT / "tests" / "golden"
SHARED = pathlib.Path(os.environ.get("TILEWRIGHT_SHARED", ROOT.parent / "shared"))
MOST_BYTES = 8192
RUNS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
COVERAGE = re.compile(r"cov: (\d+)")


def texts(*folders):
    return [p.read_bytes() for f in folders for p in sorted((GOLDEN / f).iterdir())]


def definitions():
    """The definitions of the manual, and some that only the test has."""
    for page in ("deploy/docs/custom_operators.md", "tests/e2e/custom_operators.py"):
        yield from re.findall(rb"^operator .*?^}", (ROOT / page).read_bytes(), re.M | re.S)


def graphs():
    """The graphs of golden files: each may hold several, of a pass before and after."""
    for text in texts("graph"):
        yield text
        yield from re.findall(rb"^graph .*?^}\n", text, re.M | re.S)


def schedules():
    for text in texts("programs", "schedule"):
        steps = [line.split(b" ", 2)[2] for line in text.splitlines() if line.startswith(b"#: steps ")]
        if steps:
            yield b"; ".join(steps)
    for test in ("schedule_test.cc", "bind_threads_test.cc"):
        source = (ROOT / "tests" / "unit" / test).read_text()
        for steps in re.findall(r'"([a-z_]+ %[^"\\]*)"', source):
            yield steps.encode()


# Operator, shapes of its inputs (the second and later ones are constants), attributes.
OPERATORS = [
    ("Conv", [(1, 2, 5, 5), (4, 2, 3, 3), (4,)], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("ConvTranspose", [(1, 2, 3, 3), (2, 3, 2, 2)], {"strides": [2, 2]}),
    ("BatchNormalization", [(1, 2, 3, 3), (2,), (2,), (2,), (2,)], {}),
    ("Gemm", [(2, 3), (4, 3), (4,)], {"transB": 1}),
    ("MatMul", [(2, 2, 3), (2, 3, 2)], {}),
    ("MaxPool", [(1, 2, 4, 4)], {"kernel_shape": [2, 2], "ceil_mode": 1}),
    ("AveragePool", [(1, 2, 4, 4)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("GlobalAveragePool", [(1, 2, 3, 3)], {}),
    ("Softmax", [(2, 5)], {"axis": -1}),
    ("Transpose", [(2, 3, 4)], {"perm": [2, 0, 1]}),
    ("Concat", [(2, 3), (2, 1)], {"axis": 1}),
    ("Flatten", [(2, 3, 4)], {"axis": 1}),
    ("ReduceMean", [(2, 3, 4)], {"axes": [1], "keepdims": 0}),
    ("LeakyRelu", [(3, 4)], {"alpha": 0.1}),
    ("Add", [(3, 4), (4,)], {}), ("Div", [(3, 4), (1,)], {}), ("Pow", [(3,), (1,)], {}),
    ("Erf", [(4,)], {}), ("Sigmoid", [(4,)], {}), ("Clip", [(4,), (), ()], {}),
]


# Sequences of open length: split, read, appended to by branches in a loop, mapped, joined.
LISTS = '''<ir_version: 8, opset_import: ["" : 17]>
lists (float[t,2] x, int64 trips, bool c) => (float[n] y, int64 count) {
  zero = Constant <value = int64 {0}> ()
  one = Constant <value = int64 {1}> ()
  parts = SplitToSequence <axis = 0, keepdims = 0> (x, one)
  none = SequenceEmpty ()
  first = SequenceAt (parts, zero)
  last, all = Loop (trips, c, first, none) <body = trip (int64 i, bool going, float[2] v, s) => (bool more, float[2] next, longer) {
    part = SequenceAt (parts, i)
    next = Add (part, v)
    sum = ReduceSum <keepdims = 0> (next)
    bound = Constant <value = float {9.0}> ()
    more = Less (sum, bound)
    longer = If (more) <then_branch = yes () => (a) { a = SequenceInsert (s, next) }, else_branch = no () => (b) { b = SequenceInsert (s, v) }>
  }>
  mapped = SequenceMap (all, last) <body = each (p, q) => (r) { r = Mul (p, q) }>
  longest = SequenceInsert (mapped, last)
  y = ConcatFromSequence <axis = 0> (longest)
  count = SequenceLength (longest)
}'''


# Ways that cost enough for a run to choose between them, bits, a reshape known in part, a loss.
WAYS = '''<ir_version: 8, opset_import: ["" : 26]>
ways (float[64,64] x, bool c, int64[1] rows, int64[64] target) => (float y, float[n,m] z, int32[64,64] bits) {
  around = Neg (x)
  w, z = If (c) <then_branch = yes () => (a, around) { p = MatMul (around, x)  a = MatMul (p, x) },
                 else_branch = no () => (b, d) { b = MatMul (x, around)  first = Constant <value = int64[1] {0}> ()
                   end = Constant <value = int64[1] {3}> ()  d = Slice (b, first, end) }>
  bits = BitCast <to = 6> (w)
  rest = Constant <value = int64[1] {64}> ()
  shape = Concat <axis = 0> (rows, rest)
  scores = Reshape (w, shape)
  y = SoftmaxCrossEntropyLoss <ignore_index = 3> (scores, target)
}'''


def sequences():
    """A model whose input and outputs are sequences."""
    from onnx import TensorProto, helper
    rows = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    longer = helper.make_tensor_sequence_value_info("longer", TensorProto.FLOAT, [2])
    given = helper.make_value_info("o", helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2])))
    graph = helper.make_graph(
        [helper.make_node("OptionalGetElement", ["o"], ["e"]), helper.make_node("SequenceInsert", ["s", "e"], ["longer"]),
         helper.make_node("SequenceLength", ["longer"], ["n"])], "g", [rows, given],
        [longer, helper.make_tensor_value_info("n", TensorProto.INT64, [])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def models():
    """One small model for each operator, and the small ones of the shared cases where those are; needs the onnx package
    of Debian's own Python."""
    from onnx import TensorProto, helper, parser
    for text in (LISTS, WAYS):
        yield parser.parse_model(text).SerializeToString()
    yield sequences().SerializeToString()
    for name, shapes, attributes in OPERATORS:
        names = [f"x{i}" for i in range(len(shapes))]
        constants = [helper.make_tensor(n, TensorProto.FLOAT, s, [0.5] * math.prod(s))
                     for n, s in zip(names[1:], shapes[1:])]
        graph = helper.make_graph(
            [helper.make_node(name, names, ["t"], **attributes), helper.make_node("Relu", ["t"], ["y"])],
            "g", [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shapes[0])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        model.ir_version = 7
        yield model.SerializeToString()
    cases = sorted((SHARED / "onnx").glob("node*/*/model.onnx"))
    if not cases:
        print(f"[SKIP] no models of {SHARED}/onnx among the seeds")
    yield from (case.read_bytes() for case in cases)


def credentials():
    """Certificate and key, what is asked to be signed, a token and a ticket of the right form, their
    files, a signature of a module, names of peers."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", "key", "-out", "cert", "-subj", "/CN=fuzz",
                        "-addext", "subjectAltName=URI:spiffe://tilewright/agent/a,IP:127.0.0.1,DNS:localhost"],
                       cwd=folder, check=True, capture_output=True)
        subprocess.run(["openssl", "req", "-new", "-key", "key", "-subj", "/CN=fuzz", "-out", "csr"],
                       cwd=folder, check=True, capture_output=True)
        cert, key, csr = (pathlib.Path(folder, name).read_bytes() for name in ("cert", "key", "csr"))
    token_id, secret = "3f9a0c2b71de", "0123456789abcdef" * 4
    check = hashlib.sha256(f"tilewright token {token_id} {secret}".encode()).hexdigest()[:8]
    yield b"c" + cert
    yield b"c" + cert + key
    yield f"btwt_{token_id}_{secret}_{check}".encode()
    yield f"t# tilewright tokens 1\n{token_id} engineer ana {'00' * 32} 1 2 0\n".encode()
    authority = "0" * 64
    check = hashlib.sha256(f"tilewright ticket {token_id} {secret} {authority}".encode()).hexdigest()[:8]
    yield f"ktwe_{token_id}_{secret}_{authority}_{check}".encode()
    yield f"e# tilewright tickets 1\n{token_id} bench-3 {'00' * 32} 1 2 - 0\n".encode()
    yield b"r" + csr
    yield b"r" + cert
    yield b"g" + json.dumps({"schema": 1, "algorithm": "ed25519", "key_id": "0" * 16,
                             "sha256": "a" * 64, "signature": "00" * 64}).encode()
    yield b"uspiffe://tilewright/agent/bench-3"
    yield b"m/tilewright.v1.AgentService/Sync"


def message(kind, file, text):
    """A protobuf of our protocol from its text form."""
    return subprocess.run(["protoc", f"--encode=tilewright.v1.{kind}", "-I", str(ROOT / "proto"), file],
                          input=text.encode(), check=True, capture_output=True, cwd=ROOT / "proto").stdout


def requests():
    """What an agent and a consumer say to the tracker, in an order in which work is granted."""
    agent, dispatch = "tilewright/v1/agent.proto", "tilewright/v1/dispatch.proto"
    device = """agent: "agents/a" session_id: "s" sequence: %d protocol_revision: 1 max_wait { seconds: 1 }
        devices { device: "devices/d" key: "board" fingerprint: "f" health: HEALTH_GOOD activity: ACTIVITY_IDLE
                  labels { key: "site" value: "lab" }
                  attributes { key: "kind" value { s: "cpu" } } attributes { key: "arch" value { s: "x86_64" } }
                  attributes { key: "cpu" value { s: "znver4" } } attributes { key: "cores" value { i: 2 } } }"""
    item = """name: "w" job: "j" pool: "board" target: "cpu,arch=x86_64,threads=2" selector: "site=lab"
        work { work_item: "w" artifact { algorithm: "sha256" hash: "%s" size_bytes: 3 } }""" % ("x" * 32)
    result = """work_item: "w" attempt: 1 measurement_id: "w/1" fencing_token: 1 device: "devices/d" outcome: OK
        valid: true median: 5 samples: 5"""
    parts = [(b"s", message("SyncRequest", agent, device % 1)), (b"w", message("WorkItem", dispatch, item)),
             (b"s", message("SyncRequest", agent, device % 2)), (b"r", message("MeasurementResult", agent, result)),
             (b"p", message("PullResultsRequest", dispatch, 'consumer: "tuner"')),
             (b"a", message("AckResultsRequest", dispatch, 'consumer: "tuner" cursor: "1"')),
             (b"c", message("CancelWorkRequest", dispatch, 'consumer: "tuner" job: "j" kill_running: true'))]
    return b"".join(kind + len(data).to_bytes(2, "little") + data for kind, data in parts)


def worker_messages():
    """What a worker says, what it is to make, the flag that names a device."""
    worker, common = "tilewright/v1/worker.proto", "tilewright/v1/common.proto"
    answers = ["""measured { outcome: OK value_kind: VALUE_KIND_WALL_NS samples: [1000, 1100, 990]
                  inner_loops: 100 baseline_before: 5 baseline_after: 5.1 clock: "thread_cpu" }""",
               'measured { outcome: RUN_CRASH error_class: "SIGNAL" error_detail: "x" phase: WORKER_PHASE_TIMED signal: 11 }',
               "phase { phase: WORKER_PHASE_LOAD monotonic_ns: 7 }", 'error { slug: "a" detail: "b" }',
               """ready { protocol_revision: 1 attributes { key: "kind" value { s: "cpu" } }
                  attributes { key: "cores" value { i: 2 } } attributes { key: "ghz" value { d: 2.5 } } }"""]
    for answer in answers:
        yield b"r" + message("WorkerReply", worker, "id: 1 " + answer)
    for law in ("uniform { low: -1 high: 1 }", "normal { standard_deviation: 1 }", "integers { low: -8 high: 7 }"):
        for dtype in ("f32", "i8", "bf16"):
            yield b"i" + message("InputSpec", common,
                                 'tensors { name: "x" dtype: "%s" shape: [2, 3] seed: 1 distribution { %s } }' % (dtype, law))
    yield b"dcpu,name=b,cores=0-3+8,threads=2,pool=lab,memory=1000000,label.rack=7,profile=strict"
    yield b"dopencl,index=1,nodes=/dev/nvidia0+/dev/nvidiactl,profile=driver"
    yield b"dcpu,bridge=ssh board tilewright-worker"


def open_sizes_manifest():
    """The manifest of y = f(f(x)) for x of N rows and of 4."""
    def tensor(index, kind, name, rows, places):
        return {"id": index, "name": name, "dtype": "float32", "shape": [rows, 2], "kind": kind, "offset": 0,
                "bytes": 8 * (16 if rows == "N" else 4), **places}

    def function(name, first, rows, more):
        count = f"2*{rows}" if rows == "N" else 2 * rows
        launches = [{"symbol": "tw_kernel_f", "code": 0, "args": [first + i, first + i + 1], "num_outputs": 1,
                     "sizes": [rows, count], "workspace_bytes": 0, "name": "", "task": "", "steps": "",
                     "program_hash": "", "flops": count} for i in range(3)]
        return {"name": name, "inputs": [first], "outputs": [first + 3], "prepare": [], "launches": launches, **more}

    tensors = []
    for rows in ("N", 4):
        first = len(tensors)
        tensors += [tensor(first, "input", "x", rows, {}), tensor(first + 1, "intermediate", "", rows, {}),
                    tensor(first + 2, "intermediate", "", rows, {"after": [first + 1]}),
                    tensor(first + 3, "output", "y", rows, {})]
    manifest = {"format_version": 2, "name": "", "producer": {}, "target": "", "cpu_features": [], "tensors": tensors,
                "size_vars": [{"name": "N", "min": 1, "max": 16}], "arena_bytes": 256, "workspace_bytes": 0,
                "constants_bytes": 0, "constants_digest": "",
                "functions": [function("main", 0, "N", {}), function("four", 4, 4, {"at": {"N": 4}})],
                "code": [{"format": "elf-x86_64", "abi_version": 1, "size": 1, "digest": "0" * 64}], "provenance": {}}
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()


def fleet_files():
    """One small valid example for each parser of fleet_fuzzer, where Python can make one."""
    yield b"w" + requests()
    yield b"sTWSPOOL1"
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".ljust(117) + b"\n"
    yield b"n\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24)
    yield b"tcpu,arch=x86_64,cpu=x86-64,threads=2"
    yield b"fseed=3,wrong=.1,crash=.1,hang=.05"
    yield b'c# a daemon\nlisten = "127.0.0.1:0"\nlease-ttl-ms = 3000\nweight = 0.5\ninsecure = true\ndevice = ["cpu", "cpu,name=b"]\n'
    yield b"g" + bytes(8)
    yield b"g" + b"0" * 16 + b"0" * 15 + b"7"
    yield b'a{"seq":1,"at":"2026-01-01T00:00:00Z","who":"engineer/ana","previous":"","hash":"00"}\n'
    yield b'j{"format":1,"functions":[],"constants":[],"provenance":{}}'
    yield b"j" + open_sizes_manifest()
    job = """target: "cpu,arch=x86_64" pool: "p" selector: "site=lab" cost_model: "xgboost"
        budget { max_trials: 64 max_wall { seconds: 60 } stop_if_no_gain: 0.01 patience_trials: 9 }
        plan { min_repeats: 3 max_repeats: 9 warmup { nanos: 5 } budget_per_candidate { seconds: 1 } }
        input_shapes { key: "x" value { dims: [1, 3] } } search_parts: "model=off" priority: 2 seed: 7"""
    data = message("Job", "tilewright/v1/job.proto", job)
    yield b"o" + data
    yield b'o{"target":"cpu","budget":{"max_trials":"64","max_wall":"60s"},"seed":"7"}'
    yield b'b{"format":1,"daemon":"d","created":"now","files":[{"path":"tracker.db","bytes":7,"sha256":"ab"}]}'
    for name in ("projects/default/jobs/j/tasks/t", "projects/default/modules/m", "j.1/conv/7/2", "ipv4:10.0.0.2:5123",
                 "[::1]:80"):
        yield b"r" + name.encode()
    for opcode in range(8):
        yield b"v" + bytes([opcode]) + bytes(range(15))
    yield b'l{"schema":1,"fields":["job"]}\n{"job":"j1"}\n'


SEEDS = {
    "fleet_fuzzer": fleet_files,
    "graph_text_fuzzer": graphs,
    "ir_text_fuzzer": lambda: texts("programs", "transform"),
    "onnx_import_fuzzer": models,
    "operator_text_fuzzer": definitions,
    "schedule_text_fuzzer": schedules,
    "security_fuzzer": credentials,
    "task_text_fuzzer": graphs,
    "worker_fuzzer": worker_messages,
}


def run_fuzzer(args, name, folder):
    corpus = folder / name
    corpus.mkdir()
    for i, seed in enumerate(SEEDS[name]()):
        if len(seed) <= MOST_BYTES:
            (corpus / f"seed{i}").write_bytes(seed)
    result = {"seed": args.seed, "seeds": len(list(corpus.iterdir())), "runs": 0, "seconds": 0.0,
              "coverage": 0, "failures": []}
    chunk = 0
    while result["seconds"] < args.minutes * 60 - 1 and not result["failures"]:
        left = min(args.chunk, args.minutes * 60 - result["seconds"])
        command = [*shlex.split(args.wrap), str(args.build_dir / "bin" / name), str(corpus),
                   f"-max_total_time={max(1, round(left))}", f"-seed={args.seed + chunk}",
                   f"-max_len={MOST_BYTES}", "-rss_limit_mb=3000", "-timeout=60",
                   "-print_final_stats=1", f"-artifact_prefix={folder}/{name}-"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        runs = RUNS.search(done.stderr)
        covered = COVERAGE.findall(done.stderr)
        result["runs"] += int(runs[1]) if runs else 0
        result["coverage"] = max([result["coverage"], *map(int, covered)])
        result["seconds"] += left
        chunk += 1
        if done.returncode != 0:
            inputs = {p.name: base64.b64encode(p.read_bytes()).decode()
                      for p in folder.glob(f"{name}-*")}
            result["failures"].append({"seed": args.seed + chunk - 1, "inputs": inputs,
                                       "output": done.stderr[-8000:]})
    result["corpus"] = len(list(corpus.iterdir()))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--minutes", type=float, default=10, help="for each fuzzer")
    parser.add_argument("--chunk", type=float, default=120, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="fuzzers at a time")
    parser.add_argument("--only", action="append", choices=sorted(SEEDS))
    parser.add_argument("--wrap", default="", metavar="COMMAND")
    parser.add_argument("--output", type=pathlib.Path,
                        default=ROOT / "tests" / "results" / "fuzz.json")
    args = parser.parse_args()
    names = args.only or sorted(SEEDS)
    for name in names:
        if not (args.build_dir / "bin" / name).exists():
            sys.exit(f"{args.build_dir / 'bin' / name} is not there: build it first")
    made = {"commit": commit(), "minutes": args.minutes,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
    report = {"lane": "fuzz", "fuzzers": {}}
    if args.only and args.output.exists():  # the others as they were run before
        report["fuzzers"] = json.loads(args.output.read_text())["fuzzers"]
    start = time.monotonic()
    failed = 0
    with (tempfile.TemporaryDirectory() as folder,
          concurrent.futures.ThreadPoolExecutor(args.jobs) as pool):
        running = [(name, pool.submit(run_fuzzer, args, name, pathlib.Path(folder))) for name in names]
        for name, future in running:
            result = future.result()
            report["fuzzers"][name] = made | result
            failed += len(result["failures"])
            print(f"{name}: {result['runs']} runs, {result['coverage']} edges, "
                  f"{len(result['failures'])} failures", flush=True)
            for failure in result["failures"]:
                print(failure["output"], file=sys.stderr)
    report["wall_seconds"] = round(time.monotonic() - start, 1)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
