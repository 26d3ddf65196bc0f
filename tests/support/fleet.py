"""A fleet of real daemons on loopback for the end-to-end tests: starts them with fresh state, waits
until they are ready, kills and restarts them, and stops what it started.

    with Fleet() as fleet:
        fleet.start_all()
        fleet.cli("tune", model, "--target", fleet.target, "--server", fleet.tuner_address)

Binaries come from $TILEWRIGHT_BUILD_DIR (default build/release). Nothing here sleeps for luck: every
wait is for a condition, with a deadline. Standard library only.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TILEWRIGHT_BUILD_DIR", ROOT / "build" / "release"))
BIN = BUILD / "bin"
PYTHON = "/usr/bin/python3"
SKIP_EXIT_CODE = 77


def wait_for(what, condition, timeout=300.0, pause=0.05):
    """Polls until condition() is truthy and returns its value; fails with `what` after timeout."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {timeout:g} s")
        time.sleep(pause)


class Daemon:
    def __init__(self, name, args, state, port_file=None, prefix=(), folder=BIN, env=None):
        self.name, self.args, self.port_file, self.folder = name, list(args), port_file, folder
        self.env = env or {}
        self.prefix, self.log_path, self.process = list(prefix), state / f"{name}.log", None

    def start(self):
        if self.port_file and self.port_file.exists():
            self.port_file.unlink()
        log = open(self.log_path, "ab")
        self.process = subprocess.Popen(
            self.prefix + [str(self.folder / f"tilewright-{self.name.split('.')[0]}"), *map(str, self.args)],
            stdout=log, stderr=log, start_new_session=True, env={**os.environ, **self.env})
        log.close()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def address(self, timeout=300):
        def read():
            if not self.alive():
                raise AssertionError(f"{self.name} ended: {self.tail()}")
            return self.port_file.exists() and self.port_file.read_text().strip()
        return wait_for(f"port file of {self.name}", read, timeout)

    def kill9(self):
        if self.alive():
            self.process.kill()
            self.process.wait()

    def stop(self, timeout=40):
        if not self.alive():
            return
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def tail(self, lines=15):
        try:
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"


class Fleet:
    """Tracker, tuner and one agent with `devices`; state under one temporary folder. `folders`: where the binary of a daemon
    ("tracker") comes from, if not from BIN. `disk`: where the daemons' own state lies, if not there. `env`: what is
    added to a daemon's environment."""

    def __init__(self, threads=1, agent_args=(), tuner_args=(), keep=False, folders=None, disk=None, env=None,
                 devices=("cpu",)):
        self.devices = [word for device in devices for word in ("--device", device)]
        self.folders, self.disk, self.env = folders or {}, disk, env or {}
        self.state = Path(tempfile.mkdtemp(prefix="tilewright-e2e-"))
        self.threads, self.agent_args, self.tuner_args, self.keep = threads, agent_args, tuner_args, keep
        self.target = f"native,threads={threads}"
        self.daemons = {}

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            for daemon in self.daemons.values():
                print(f"--- {daemon.name}\n{daemon.tail()}", file=sys.stderr)
        for name in ("agent", "tuner", "tracker"):
            for daemon in self.daemons.values():
                if daemon.name.split(".")[0] == name:
                    daemon.stop()
        if not self.keep:
            shutil.rmtree(self.state, ignore_errors=True)


    def start_tracker(self, listen="127.0.0.1:0", prefix=(), extra=()):
        port_file = self.state / "tracker.port"
        self._start("tracker", ["--listen", listen, "--port-file", port_file, *extra], port_file, prefix)
        self.tracker_address = self.daemons["tracker"].address()

    def start_tuner(self, listen="127.0.0.1:0"):
        port_file = self.state / "tuner.port"
        self._start("tuner", ["--listen", listen, "--port-file", port_file,
                              "--tracker", self.tracker_address, *self.tuner_args], port_file)
        self.tuner_address = self.daemons["tuner"].address()

    def start_agent(self, tracker=None, prefix=(), name="agent"):
        # Where tests run (a container), the kernel may permit a part of the sandbox only.
        self._start(name, ["--tracker", tracker or self.tracker_address, *self.devices, "--allow-weak-sandbox",
                           *self.agent_args], None, prefix)

    def _start(self, name, args, port_file, prefix=()):
        folder = self.folders.get(name.split(".")[0], BIN)
        args = ["--state-dir", (self.disk or self.state) / name, *args]
        daemon = Daemon(name, args, self.state, port_file, prefix, folder, self.env.get(name))
        self.daemons[name] = daemon
        daemon.start()

    def start_all(self):
        self.start_tracker()
        self.start_tuner()
        self.start_agent()

    def restart(self, name):
        """Starts a killed daemon again with the same state and the same address."""
        if name == "tracker":
            self.start_tracker(listen=self.tracker_address)
        elif name == "tuner":
            self.start_tuner(listen=self.tuner_address)
        else:
            self.start_agent(name=name)

    def kill9(self, name):
        self.daemons[name].kill9()

    def cli(self, *args, check=True, timeout=900, env=None):
        done = subprocess.run([str(BIN / "tilewright"), *map(str, args)], capture_output=True, text=True,
                              timeout=timeout, env={**os.environ, **(env or {})})
        if check and done.returncode != 0:
            raise AssertionError(f"tilewright {' '.join(map(str, args))}: exit {done.returncode}\n"
                                 f"{done.stdout}\n{done.stderr}")
        return done

    def cli_json(self, *args, **kw):
        return json.loads(self.cli(*args, "-o", "json", **kw).stdout)

    def server(self):
        return ("--server", self.tuner_address)

    def tune(self, model, trials, seed=1, output=None, extra=(), timeout=900):
        output = output or self.state / "tuned.tw"
        self.cli("tune", model, "--target", self.target, "--trials", trials, "--seed", seed,
                 *self.server(), "-o", output, *extra, timeout=timeout)
        return output

    def submit(self, model, trials, seed=1, extra=()):
        done = self.cli("jobs", "submit", model, "--target", self.target, "--trials", trials,
                        "--seed", seed, *self.server(), *extra)
        return done.stdout.split()[0]

    def job(self, name):
        return self.cli_json("jobs", "get", name, *self.server())

    def wait_job(self, name, timeout=900, states=("SUCCEEDED", "FAILED", "CANCELLED")):
        def ended():
            job = self.job(name)
            return job if job["state"] in states else None
        return wait_for(f"end of {name}", ended, timeout, 0.3)

    def export(self, *flags, job=None):
        done = self.cli("log", "export", *([job] if job else []), *flags, *self.server())
        return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]


def make_models(folder, *args):
    """make_models(folder, "dqn", "--size", 61): names first, as argparse wants them."""
    subprocess.run([PYTHON, str(ROOT / "tests/models/make_models.py"), str(folder), *map(str, args)], check=True,
                   stdout=subprocess.DEVNULL)
    return Path(folder)


def tune_alone(model, folder, module, *arguments):
    """`tilewright tune` with daemons of its own, whose log and state stay in `folder`: (the command's seconds, its answer)."""
    start = time.monotonic()
    done = subprocess.run([BIN / "tilewright", "tune", model, "--log", folder / "tuner.db", "--state-dir", folder / "state",
                           "-o", module, "--format", "json", *map(str, arguments)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return time.monotonic() - start, json.loads(done.stdout)


def expected_output(case):
    """Outputs of the independent evaluator for a model folder made by make_models."""
    inputs = sorted((case / "test_data_set_0").glob("input_*.pb"))
    out = case / "expected"
    subprocess.run([PYTHON, str(ROOT / "tests/models/numpy_eval.py"), str(case / "model.onnx"),
                    *map(str, inputs), "-o", str(out)], check=True, stdout=subprocess.DEVNULL)
    return out / "output_0.pb"


def skip(reason):
    """Ends the script as skipped, loudly."""
    print(f"[SKIP] {Path(sys.argv[0]).name}: {reason}")
    sys.exit(SKIP_EXIT_CODE)


def run_checks(*checks):
    """Runs functions as checks; prints 'N passed, N failed' last and exits accordingly."""
    passed = failed = 0
    for check in checks:
        try:
            check()
            passed += 1
            print(f"ok      {check.__name__}")
        except Exception as error:  # a check may fail in any way; the others still run
            failed += 1
            print(f"FAILED  {check.__name__}: {error}")
        sys.stdout.flush()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
