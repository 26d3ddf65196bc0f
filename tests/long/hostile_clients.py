#!/usr/bin/env python3
"""Hostile clients against the ports of tracker and tuner: abuse of HTTP/2 (hostile_http2.py), of TLS and tokens, of many connections and of
the metrics port. After each, the daemon is alive, answers a good client within two seconds, and holds at most 250 MB more than before.
Writes tests/results/hostile_clients.json.

    hostile_clients.py [--build-dir DIR] [--quick] [--only WORDS] [--output FILE]

`--quick` runs the few that found something (a minute). attacks.py calls run().
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from http2_client import END_HEADERS, HEADERS, Http2Client, data, dial, error_text, frame, head, message, tls_context  # noqa: E402
from hostile_http2 import ABUSES, KEPT, QUICK, REFUSED, SHUT, call, finish  # noqa: E402
from lane import ROOT, commit  # noqa: E402

MAX_MORE_MB = 250  # of deploy/ops/threat_model.md
KEPT_MB = 40  # what the heap may keep of an attack before the next one wants a fresh daemon
MAX_ANSWER_S = 2.0
PACKAGE = "/tilewright.v1."
HEALTH = "/grpc.health.v1.Health/Check"
PAUSE_S = 0.02  # between two looks at the memory of a daemon
LATE = {"unexpected outcome", "no answer to a good client", "slow answer"}  # what a busy machine does, too
TRIES = 3  # of a row with such problems only


class Target:
    """A port of a daemon, and how a client gets in. `work` is a method that the client may call. `good` is the same port for another
    client, whose limits the attack does not use up."""

    def __init__(self, name, daemon, address, tls=None, token="", work="", good=None, quick=False):
        self.name, self.daemon, self.address, self.tls, self.token, self.work = name, daemon, address, tls, token, work
        self.good, self.quick = good, quick

    def head(self, more=b"", path=HEALTH, token=None, **words):
        return head(path, more, token=self.token if token is None else token, **words)

    def answers(self):
        """Seconds that a good client waits for its answer; None if it gets none."""
        start = time.monotonic()
        with contextlib.suppress(OSError):
            outcome = call(self.good or self, message(b""))
            return time.monotonic() - start if outcome == "status 0" else None
        return None


class Daemon:
    """A daemon that is replaced by a fresh one on the same ports when an attack has left it large."""

    def __init__(self, binaries, folder, name, *flags):
        self.name, self.folder, self.port = name, folder, folder / (name + ".port")
        self.words = [binaries / ("tilewright-" + name.split(".")[0]), "--state-dir", folder / name, "--port-file", self.port, *flags]
        self.log_path = folder / (name + ".log")
        self.start()

    def start(self):
        self.port.unlink(missing_ok=True)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log)
        wait_for("port of " + self.name, lambda: self.alive() and self.port.exists() and self.port.read_text().strip())
        self.address, self.start_mb = self.port.read_text().strip(), self.memory_mb()

    def refresh(self):
        if self.alive() and self.memory_mb() - self.start_mb < KEPT_MB:
            return
        for flag, address in (("--listen", self.address), *((words, self.extra[words]) for words in self.extra)):
            self.words[self.words.index(flag) + 1] = address
        self.stop()
        self.start()

    @property
    def extra(self):
        """Addresses of other ports than the first, by their flags."""
        found = {"--metrics": self.metrics_address()} if "--metrics" in self.words else {}
        if "--enrol-port-file" in self.words:
            found["--enrol-listen"] = self.words[self.words.index("--enrol-port-file") + 1].read_text().strip()
        return found

    def alive(self):
        return self.process.poll() is None

    def memory_mb(self):
        with contextlib.suppress(OSError, StopIteration):
            lines = pathlib.Path("/proc/%d/status" % self.process.pid).read_text().splitlines()
            return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024
        return 0.0

    def metrics_address(self):
        lines = [json.loads(line) for line in self.log_path.read_text().splitlines() if line.startswith("{")]
        return [line["address"] for line in lines if line["event"] == "daemon.metrics"][-1]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait_for(what, condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("no " + what)
        time.sleep(0.02)


class Watch:
    """The most memory that a daemon holds while this lives, in MB more than when it began to serve."""

    def __init__(self, daemon):
        self.daemon, self.start, self.most, self.over = daemon, daemon.start_mb, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        while not self.over.wait(PAUSE_S):
            self.most = max(self.most, self.daemon.memory_mb() - self.start)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Fleet:
    """Tracker with enrolment and tuner over TLS, and a tracker in plain text."""

    def __init__(self, folder, binaries, quick):
        self.folder, self.binaries, self.quick = pathlib.Path(folder), pathlib.Path(binaries), quick
        self.pki = self.folder / "pki"
        self.cli("certs", "init", self.pki)
        for kind, name in (("tracker", "lab"), ("tuner", "main"), ("tuner", "good"), ("agent", "bench"), ("client", "ana")):
            self.cli("certs", "issue", self.pki, kind, name)
        self.tokens = {}
        for file, role, name in (("tracker-tokens", "tuner", "main"), ("tracker-tokens", "tuner", "good"),
                                 ("tracker-tokens", "agent", "bench"), ("tuner-tokens", "engineer", "ana"),
                                 ("tuner-tokens", "ci", "nightly")):
            self.cli("tokens", "create", role, name, "--file", self.folder / file, "--identity", self.folder / ("token-of-" + name))
            self.tokens[name] = (self.folder / ("token-of-" + name) / "token").read_text().strip()
        self.daemons = []

    def cli(self, *words):
        done = subprocess.run([self.binaries / "tilewright", *words], capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            raise AssertionError("%s: %s" % (words, done.stderr))

    def identity(self, name):
        return self.pki / "issued" / name

    def start(self, name, *flags):
        self.daemons.append(Daemon(self.binaries, self.folder, name, "--listen", "127.0.0.1:0", *flags))
        return self.daemons[-1]

    def targets(self):
        def member(name):
            return tls_context(self.identity(name))
        enrol = self.folder / "enrol.port"
        tracker = self.start("tracker", "--identity", self.identity("lab"), "--tokens", self.folder / "tracker-tokens",
                             "--enrol-listen", "127.0.0.1:0", "--enrol-authority", self.pki, "--enrol-tickets", self.folder / "tickets",
                             "--enrol-port-file", enrol, "--metrics", "127.0.0.1:0")
        plain = self.start("tracker.plain")
        tuner = self.start("tuner", "--tracker", tracker.address, "--identity", self.identity("main"),
                           "--tokens", self.folder / "tuner-tokens", "--metrics", "127.0.0.1:0")
        submit, create, enrol_in = (PACKAGE + name for name in ("DispatchService/SubmitWork", "JobService/CreateJob", "EnrolmentService/Enrol"))
        good_tuner = Target("tracker", tracker, tracker.address, member("good"), self.tokens["good"])
        good_ci = Target("tuner", tuner, tuner.address, member("ana"), self.tokens["nightly"])
        return [Target("tracker", tracker, tracker.address, member("main"), self.tokens["main"], submit, good_tuner, self.quick),
                Target("enrolment", tracker, enrol.read_text().strip(), tls_context(), work=enrol_in, quick=self.quick),
                Target("tuner", tuner, tuner.address, member("ana"), self.tokens["ana"], create, good_ci, self.quick),
                Target("plain tracker", plain, plain.address, work=submit, quick=self.quick)]

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.stop()


def judge(name, target, attack, good):
    """A row: what became of an attack, and of the daemon."""
    target.daemon.refresh()
    with Watch(target.daemon) as watch:
        try:
            outcome = attack(target)
        except OSError as error:  # also ssl.SSLError: the server refused the connection
            outcome = error_text(error)
        answer_s = target.answers() if target.daemon.alive() else None
    problems = [what for what, bad in (
        ("unexpected outcome", not re.fullmatch(good, outcome)), ("daemon dead", not target.daemon.alive()),
        ("no answer to a good client", answer_s is None), ("slow answer", (answer_s or 0) > MAX_ANSWER_S),
        ("memory", watch.most > MAX_MORE_MB)) if bad]
    return {"name": name, "target": target.name, "outcome": outcome, "ok": not problems, "more_mb": round(watch.most, 1),
            "answer_ms": answer_s and round(answer_s * 1000), "problems": problems}


# --- TLS, certificates and tokens

def greet(target, tls, token=None):
    """A call with another certificate or another token."""
    client = Http2Client(target.address, tls or target.tls)
    client.send(frame(HEADERS, END_HEADERS, 1, target.head(token=token)) + data(1, message(b"")))
    return finish(client)


def make_identity(folder, name, *, days="30", start=None, end=None, subject="/CN=x", uri="spiffe://tilewright/client/ana", authority=None):
    """A certificate by openssl: of `authority` (a folder with ca.pem and ca-key.pem), or signed by itself."""
    out = pathlib.Path(folder) / name
    out.mkdir()
    key, request, extensions = out / "key.pem", out / "request.pem", out / "extensions"
    extensions.write_text("[v3]\n" + ("subjectAltName=URI:%s\n" % uri if uri else "") + "extendedKeyUsage=clientAuth\n")
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request, "-subj", subject)
    if not authority:
        openssl("x509", "-req", "-in", request, "-signkey", key, "-days", days, "-out", out / "cert.pem", "-extfile", extensions, "-extensions", "v3")
        return out
    (out / "index").write_text("")
    (out / "ca.conf").write_text("[ca]\ndefault_ca=d\n[d]\ndatabase=%s/index\nnew_certs_dir=%s\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n"
                                 "unique_subject=no\n[p]\ncommonName=optional\n" % (out, out))
    dates = ["-startdate", start, "-enddate", end] if start else ["-days", days]
    openssl("ca", "-batch", "-notext", "-config", out / "ca.conf", "-cert", authority / "ca.pem", "-keyfile", authority / "ca-key.pem",
            "-in", request, "-out", out / "cert.pem", *dates, "-extfile", extensions, "-extensions", "v3")
    return out


def openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError("openssl %s: %s" % (words[0], done.stderr))


def half_open(target, count, first=b""):
    """Connections that begin and stop; the daemon must not wait for them."""
    links = [dial(target.address) for _ in range(count)]
    for link in links:
        link.sendall(first)
    target.seconds = target.answers()
    for link in links:
        link.close()
    return "open" if target.seconds is not None else "no answer"


def idle_members(target, count):
    """Connections that have shaken hands and then say nothing."""
    clients = [Http2Client(target.address, target.tls) for _ in range(count)]
    outcome = "open" if target.answers() is not None else "no answer"
    for client in clients:
        client.close()
    return outcome


def slow_hello(target):
    link, deadline = dial(target.address), time.monotonic() + 3
    with contextlib.suppress(OSError):
        for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(400):
            link.sendall(bytes([byte]))
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
    link.close()
    return "closed"


def broken_record(target):
    """Garbage under the encryption, after a good handshake."""
    client = Http2Client(target.address, target.tls)
    descriptor = os.dup(client.link.fileno())
    with socket.socket(fileno=descriptor) as raw:
        raw.setblocking(True)
        raw.sendall(b"\x17\x03\x03\x40\x00" + b"\xaa" * 16_384)
    return finish(client)


def old_tls(target):
    context = tls_context()
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return finish(Http2Client(target.address, context))


def tls_rows(fleet, targets):
    """(name, target, attack, good outcomes) of clients that should not get in, or only some way."""
    tracker, enrolment, tuner, _ = targets
    other = fleet.folder / "other-pki"
    fleet.cli("certs", "init", other)
    fleet.cli("certs", "issue", other, "client", "ana")
    contexts = {
        "no certificate": tls_context(), "certificate of another authority": tls_context(other / "issued" / "ana"),
        "certificate signed by itself": tls_context(make_identity(fleet.folder, "self")),
        "expired certificate": tls_context(make_identity(fleet.folder, "expired", authority=fleet.pki, start="20240101000000Z", end="20240201000000Z")),
        "certificate without a name of the fleet": tls_context(make_identity(fleet.folder, "nameless", authority=fleet.pki, uri="")),
        "certificate of an unknown kind": tls_context(make_identity(fleet.folder, "king", authority=fleet.pki, uri="spiffe://tilewright/king/ana"))}
    for words, context in contexts.items():
        for target in (tracker, tuner):
            yield words, target, lambda t, c=context: greet(t, c), REFUSED
    agent = tls_context(fleet.identity("bench"))
    yield "agent with a tuner's token", tracker, lambda t: greet(t, agent), REFUSED
    yield "agent asks for an administrator's method", tracker, lambda t: call(
        Target(t.name, t.daemon, t.address, agent, fleet.tokens["bench"]), message(b""), path=PACKAGE + "FleetAdminService/ResetDevice"), REFUSED
    for target in (tracker, tuner):
        yield "no token", target, lambda t: greet(t, None, ""), REFUSED
        yield "wrong token", target, lambda t: greet(t, None, "0" * 64), REFUSED
        yield "token of 6,000 characters", target, lambda t: greet(t, None, "0" * 6000), REFUSED
    yield "1,000 wrong tokens", tracker, lambda t: [greet(t, None, "%064d" % i) for i in range(50 if t.quick else 1000)][-1], REFUSED
    for target in (tracker, enrolment, tuner):
        yield "plain text to TLS", target, lambda t: finish(Http2Client(t.address)), SHUT
        yield "200 connections that say nothing", target, lambda t: half_open(t, 200), "open"
        yield "200 half greetings", target, lambda t: half_open(t, 200, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"), "open"
        yield "a greeting byte by byte", target, slow_hello, SHUT
        yield "garbage under the encryption", target, broken_record, SHUT
        yield "TLS 1.1", target, old_tls, SHUT
        yield "another protocol than h2", target, lambda t: finish(Http2Client(t.address, tls_context(
            fleet.identity("main" if t is tracker else "ana") if t is not enrolment else None, ("spdy/1",)))), SHUT
    for target in targets:
        yield "1,000 idle connections", target, lambda t: idle_members(t, 100 if t.quick else 1000), "open"


# --- metrics

def scrape(address):
    link, page = dial(address), b""
    link.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    while piece := link.recv(1 << 16):
        page += piece
    return page


class MetricsTarget(Target):
    def answers(self):
        start = time.monotonic()
        with contextlib.suppress(OSError):
            if b" 200 OK" in scrape(self.address):
                return time.monotonic() - start
        return None


def endless_request(target, first, seconds=3.0):
    link, deadline = dial(target.address, 1), time.monotonic() + seconds
    try:
        link.sendall(first)
        while time.monotonic() < deadline:
            link.sendall(b"x" * 65_536)
    except OSError:
        return "closed"
    return "open"


def metrics_rows(targets):
    line = b"GET /metrics HTTP/1.1\r\n"
    for target in targets:
        yield "two half requests", target, lambda t: half_open(t, 2, line), "open"
        yield "200 half requests", target, lambda t: half_open(t, 200, line), "open"
        yield "200 readers that do not read", target, lambda t: half_open(t, 200, line + b"\r\n"), "open"
        yield "a head without end", target, lambda t: endless_request(t, line + b"x: "), "open|closed"
        yield "an upload after the answer", target, lambda t: endless_request(t, line + b"\r\n"), "open|closed"


def rows_of(fleet, targets):
    for name, attack, good in ABUSES:
        for target in targets:
            yield name, target, attack, good
    yield from tls_rows(fleet, targets)
    pairs = [(targets[0], "metrics of the tracker"), (targets[2], "metrics of the tuner")]
    yield from metrics_rows([MetricsTarget(name, target.daemon, target.daemon.metrics_address()) for target, name in pairs])


QUICK_OTHERS = re.compile("no certificate|expired|wrong token$|say nothing|half requests")


def run(folder, binaries, quick=False, only=""):
    """One row for each attack on each port: {name, target, outcome, ok, more_mb, answer_ms, problems}. `folder` is empty, `binaries` holds
    the daemons."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(limit[0], 4096), limit[1]), limit[1]))
    fleet, rows = Fleet(folder, binaries, quick), []
    try:
        targets = fleet.targets()
        for name, target, attack, good in rows_of(fleet, targets):
            if only not in name or quick and not (QUICK.search(name) or QUICK_OTHERS.search(name)):
                continue
            for row in (judge(name, target, attack, good) for _ in range(TRIES)):
                if not row["problems"] or not LATE.issuperset(row["problems"]):
                    break
                print("again  %-46s %-22s %s: %s" % (name, target.name, row["outcome"], ", ".join(row["problems"])), flush=True)
            rows.append(row)
            print("%-6s %-46s %-22s %-12s %6.1f MB %s" % ("ok" if row["ok"] else "FAILED", name, target.name, row["outcome"], row["more_mb"],
                                                          ", ".join(row["problems"])), flush=True)
    finally:
        fleet.stop()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=pathlib.Path(os.environ.get("TILEWRIGHT_BUILD_DIR", ROOT / "build" / "release")))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="attacks whose names contain this")
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        rows = run(folder, args.build_dir.resolve() / "bin", args.quick, args.only)
    failed = [row for row in rows if not row["ok"]]
    report = {"lane": "hostile_clients", "commit": commit(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "seconds": round(time.monotonic() - start), "clients": len({row["name"] for row in rows}), "attacks": len(rows),
              "most_more_mb": max((row["more_mb"] for row in rows), default=0), "failed": len(failed), "rows": rows}
    output = args.output or (None if args.quick or args.only else ROOT / "tests" / "results" / "hostile_clients.json")
    if output:
        output.write_text(json.dumps(report, indent=1) + "\n")
    print("%d passed, %d failed" % (len(rows) - len(failed), len(failed)))
    sys.exit(1 if failed or not rows else 0)


if __name__ == "__main__":
    main()
