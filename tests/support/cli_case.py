"""What the scripts that test the command line (tests/e2e/cli_*.py) share: the binaries under test, small models, running commands and
daemons, the closing line. Import with

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    import cli_case
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = ""  # set by run_cases
OK, FAILED, USAGE, NOT_FOUND, UNAVAILABLE, MISMATCH = range(6)
# How long a condition may take, however slow the machine: a device whose measurements were too noisy is
# looked at again after a minute only.
PATIENCE = 300
# Finals that a job measures of a task (tuner_server/log/schedule_rule.h); if they confirmed no winner, there is none.
FINALS_OF_TASK = 6


def binary(name):
    return os.path.join(BUILD, "bin", name)


def dense_model(op="MatMul", rows=1, inner=8, columns=4, shape=None, seed=1):
    """x[rows, inner] -> `op` with w[inner, columns] -> y; w by the seed."""
    rng = numpy.random.default_rng(seed)
    weight = rng.standard_normal((inner, columns)).astype(numpy.float32)
    node = helper.make_node(op, ["x", "w"], ["y"], name="node_of_y")
    graph = helper.make_graph(
        [node], "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape or (rows, inner)))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def fastest_program(lines, usable):
    """The record of the program whose time is the shortest: the median of its records, the slower one of two that differ
    by more than noise. Finals may be too noisy: two of them without a time end a program that was measured once, and where
    FINALS_OF_TASK confirmed none, only what was measured twice counts. None: no program is left."""
    programs = {}
    for line in sorted(usable, key=lambda line: line["median"]):
        programs.setdefault(line["program_hash"], []).append(line)
    finals = [line for line in lines if line["accepted"] and line["generated_by"] == "final"]
    silent = [line["program_hash"] for line in finals if line not in usable]
    middles = []
    for program, of_it in programs.items():
        if len(of_it) == 1 and of_it[0]["generated_by"] != "default" and (len(finals) >= FINALS_OF_TASK or silent.count(program) >= 2):
            continue
        faster, slower = of_it[(len(of_it) - 1) // 2], of_it[len(of_it) // 2]
        noise = min(max(faster["ci_rel"] + slower["ci_rel"], 0.01), 0.1)
        middles.append(slower if faster["median"] < slower["median"] * (1 - noise) else faster)
    return min(middles, key=lambda line: line["median"], default=None)


def environment(state_home, extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TILEWRIGHT_")}
    env["XDG_STATE_HOME"] = state_home
    env.update(extra or {})
    return env


class Case(unittest.TestCase):
    """A folder of its own for each test; no process of it may be left at the end."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tilewright-e2e-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def call(self, *args, timeout=900, env=None):
        """Runs `tilewright` in the folder, with `env` added to the environment."""
        return subprocess.run([binary("tilewright"), *args], cwd=self.folder,
                              env=environment(self.path("state"), env), capture_output=True, text=True,
                              timeout=timeout)

    def good(self, *args, timeout=900):
        done = self.call(*args, timeout=timeout)
        self.assertEqual(done.returncode, OK, "%s\n%s\n%s" % (args, done.stdout, done.stderr))
        return done.stdout

    def records(self, *export):
        return [json.loads(line) for line in self.good("log", "export", *export).splitlines()]

    def known_programs(self, *export):
        """The programs that a later job need not measure: the last attempt may have been too noisy, too, and
        then its trial has ended without telling anything."""
        return {record["program_hash"] for record in self.records(*export) if record["accepted"] and record["valid"]}

    def measured_trials(self, *export, cancelled=frozenset()):
        """The candidates that a log holds a result of. A noisy measurement is made again, and both are records:
        of each trial exactly one is accepted, of one in `cancelled` (job, trial) perhaps none. Winners are measured again: trials that
        are no candidates."""
        records = self.records(*export)
        ids = [record["measurement_id"] for record in records]
        self.assertEqual(len(ids), len(set(ids)))
        trials = [(record["job"], record["trial"]) for record in records if record["accepted"]]
        self.assertEqual(len(trials), len(set(trials)))
        self.assertEqual({(record["job"], record["trial"]) for record in records} - cancelled, set(trials) - cancelled)
        return set(trials) - {(record["job"], record["trial"]) for record in records if record["generated_by"] == "final"}

    def start(self, *args):
        """`tilewright` in the background; its standard error goes to the file err."""
        with open(self.path("err"), "w") as err:
            child = subprocess.Popen([binary("tilewright"), *args], cwd=self.folder,
                                     env=environment(self.path("state")), stderr=err,
                                     stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def err(self):
        with open(self.path("err")) as f:
            return f.read()

    def wait_for(self, what, condition, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self.fail("%s not within %d s\n%s" % (
                    what, seconds, self.err() if os.path.exists(self.path("err")) else ""))
            time.sleep(0.05)

    def processes(self, word=""):
        """Ids of the processes that name this test's folder (and `word`) on their command line."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                with open("/proc/%s/cmdline" % entry, "rb") as f:
                    line = f.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if self.folder in line and word in line:
                found.append(int(entry))
        return found


class Daemon:
    """tilewright-NAME with a state folder in `case`'s folder; start again after kill."""

    def __init__(self, case, name, *flags):
        # Where tests run (a container), the kernel may permit a part of the sandbox only.
        weak = ["--allow-weak-sandbox"] if name == "agent" else []
        self.case, self.name, self.flags = case, name, [*weak, *flags]
        self.port_file = case.path(name + ".port")
        self.address = ""
        self.start()

    def start(self):
        listen = ["--listen", self.address] if self.address else []
        if os.path.exists(self.port_file):
            os.remove(self.port_file)
        with open(self.case.path(self.name + ".log"), "a") as log:
            self.child = subprocess.Popen(
                [binary("tilewright-" + self.name), "--state-dir", self.case.path(self.name),
                 "--port-file", self.port_file, *self.flags, *listen], stderr=log, stdout=log)
        self.case.addCleanup(self.stop)
        self.case.wait_for(self.name + " ready", self.ready)
        if self.name != "agent":
            with open(self.port_file) as f:
                self.address = f.read().strip()

    def ready(self):
        self.case.assertIsNone(self.child.poll(), self.name + " ended: " + self.log()[-2000:])
        return os.path.exists(self.port_file) and os.path.getsize(self.port_file) > 0

    def log(self):
        with open(self.case.path(self.name + ".log")) as f:
            return f.read()

    def kill(self):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()


class Fleet(Case):
    """With a tracker, a tuner and an agent with one device on loopback, and a small model, m.onnx."""

    INNER = 256  # columns of the model's input

    def tracker_flags(self):
        return []

    def tuner_flags(self):
        return []

    def agent_flags(self):
        return []

    def setUp(self):
        super().setUp()
        onnx.save(dense_model(rows=4, inner=self.INNER, columns=96), self.path("m.onnx"))
        self.tracker = Daemon(self, "tracker", *self.tracker_flags())
        self.tuner = Daemon(self, "tuner", "--tracker", self.tracker.address, *self.tuner_flags())
        self.agent = Daemon(self, "agent", "--tracker", self.tracker.address, "--device", "cpu", *self.agent_flags())
        self.server = ["--server", self.tuner.address]
        self.wait_for("a device", self.devices)

    def devices(self):
        done = self.call("devices", "list", *self.server, "-o", "json")
        return json.loads(done.stdout) if done.returncode == OK else []


def run_cases(module):
    """Runs the test cases of `module`; prints "N passed, N failed"; the exit code."""
    global BUILD
    parser = argparse.ArgumentParser(description=module.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.environ.get(
        "TILEWRIGHT_BUILD_DIR", os.path.join(ROOT, "build", "release")))
    parser.add_argument("names", nargs="*", help="test classes or methods, as for unittest")
    args = parser.parse_args()
    BUILD = os.path.abspath(args.build)
    loader = unittest.defaultTestLoader
    suite = (loader.loadTestsFromNames(args.names, module) if args.names
             else loader.loadTestsFromModule(module))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    failed = len(result.failures) + len(result.errors)
    for test, why in result.skipped:
        print("[SKIP] %s: %s" % (test, why))
    sys.stderr.flush()
    print("%d passed, %d failed" % (result.testsRun - failed - len(result.skipped), failed))
    return 1 if failed else 0
