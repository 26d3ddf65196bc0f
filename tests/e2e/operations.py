#!/usr/bin/env python3
"""What operators rely on, with real daemons: metrics by Prometheus' conventions, dashboards and alarms that name only metrics that
exist, systemd units and configuration files that are good, the watchdog, the log level at run time, backups taken under load.

    operations.py [--build DIR]        DIR (default: TILEWRIGHT_BUILD_DIR or build/release) has bin/
"""
# Measures: a device is used in it, and no time is judged.

import glob
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import cli_case  # noqa: E402
from cli_case import FAILED, OK  # noqa: E402

OPS = Path(cli_case.ROOT) / "deploy/ops"
METRICS_PAGE = Path(cli_case.ROOT) / "deploy/docs/reference/metrics.md"
NAME = re.compile(r"tilewright_[a-z0-9_]+")
SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
UNITS = ("_seconds", "_bytes", "_ratio", "_celsius", "_info")
COUNTED = ("devices_online", "devices_dispatchable", "devices_quarantined", "leased_work_items", "queue_work_items", "leases",
           "outbox_updates", "waiting_calls", "jobs_running", "jobs_open", "jobs_waiting")  # plain counts have no unit
MAX_SERIES = 200  # of one name: labels with ids would go far beyond


def scrape(address, tls=None, token=""):
    request = urllib.request.Request("%s://%s/metrics" % ("https" if tls else "http", address))
    if token:
        request.add_header("Authorization", "Bearer " + token)
    with urllib.request.urlopen(request, timeout=10, context=tls) as answer:
        return answer.read().decode()


def parse(text):
    """{family: (type, help)}, [(sample name, labels, value)]."""
    families, samples = {}, []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, _, words = line[7:].partition(" ")
            families[name] = (families.get(name, ("", ""))[0], words)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split()
            families[name] = (kind, families.get(name, ("", ""))[1])
        elif line:
            name, labels, value = SAMPLE.match(line).groups()
            samples.append((name, dict(LABEL.findall(labels or "")), float(value)))
    return families, samples


def family_of(name, families):
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if families.get(base, ("",))[0] == "histogram" else name


class Secure(cli_case.Case):
    """A fleet with TLS, for what only such a fleet exports, after a job."""

    def setUp(self):
        super().setUp()
        onnx.save(cli_case.dense_model(rows=4, inner=256, columns=96), self.path("m.onnx"))
        self.good("certs", "init", "pki")
        for kind, name in (("tracker", "lab"), ("tuner", "main"), ("agent", "bench"), ("client", "ana")):
            self.good("certs", "issue", "pki", kind, name)
        for file, role, name in (("tracker-tokens", "tuner", "main"), ("tracker-tokens", "agent", "bench"),
                                 ("tuner-tokens", "engineer", "ana")):
            self.good("tokens", "create", role, name, "--file", file, "--identity", "pki/issued/" + name)
        metrics = ["--metrics", "127.0.0.1:0"]
        Path(self.path("metrics-token")).write_text("0123456789abcdef\n")
        os.chmod(self.path("metrics-token"), 0o600)
        self.tracker = cli_case.Daemon(self, "tracker", *self.identity("lab"), "--tokens", self.path("tracker-tokens"), *metrics,
                                       "--metrics-identity", self.path("pki/issued/lab"), "--metrics-token", self.path("metrics-token"))
        self.tuner = cli_case.Daemon(self, "tuner", "--tracker", self.tracker.address, *self.identity("main"),
                                     "--tokens", self.path("tuner-tokens"), *metrics)
        self.agent = cli_case.Daemon(self, "agent", "--tracker", self.tracker.address, "--name", "bench", "--device", "cpu",
                                     *self.identity("bench"), *metrics)
        self.ana = ["--server", self.tuner.address, *self.identity("ana")]

    def identity(self, name):
        return ["--identity", self.path("pki/issued/" + name)]

    def metrics_of(self, name):
        with open(self.path(name + ".log")) as log:
            lines = [json.loads(line) for line in log if line.startswith("{") and line.endswith("\n")]
        address = [line["address"] for line in lines if line["event"] == "daemon.metrics"][-1]
        if name != "tracker":
            return scrape(address)
        return scrape(address, ssl.create_default_context(cafile=self.path("pki/ca.pem")), "0123456789abcdef")

    def check_conventions(self, daemon, families, samples):
        for name, (kind, words) in families.items():
            if not name.startswith("tilewright_"):
                self.assertRegex(name, "^process_", "%s: %s" % (daemon, name))
                continue
            where = "%s of %s" % (name, daemon)
            self.assertRegex(name, r"^tilewright_[a-z][a-z0-9]*(_[a-z0-9]+)+$", where)
            self.assertTrue(words.strip(), where + ": no help")
            self.assertIn("| `%s` | %s |" % (name, kind), METRICS_PAGE.read_text(), where)
            self.assertEqual(kind == "counter", name.endswith("_total"), "%s: counters end with _total, nothing else" % where)
            self.assertNotRegex(name, "_(ms|us|ns|millis|micros|kb|mb|gb|percent)(_|$)", where + ": base units")
            if kind == "histogram" or kind == "gauge" and not name.endswith(COUNTED):
                self.assertTrue(name.endswith(UNITS), where + ": no unit")
        series = {}
        for name, labels, _ in samples:
            if not name.startswith("tilewright_"):
                continue
            family = family_of(name, families)
            self.assertIn(family, families, daemon)
            series.setdefault(family, set()).add(tuple(sorted(item for item in labels.items() if item[0] != "le")))
            for label, value in labels.items():
                self.assertRegex(label, "^[a-z_]+$", name)
                self.assertNotIn(label, ("job", "instance", "job_id", "work_item", "measurement_id", "lease", "device", "agent",
                                         "user", "token"), name + ": labels never carry ids")
                self.assertNotRegex(value, "(devices|agents|jobs|leases)/", name)
        for family, rows in series.items():
            self.assertLess(len(rows), MAX_SERIES, "%s of %s: labels without bound" % (family, daemon))
        return set(series)

    def test_metrics_are_conventional_and_all_that_dashboard_and_alarms_name(self):
        self.good("tune", "m.onnx", "--target", "native,threads=1", "--trials", "8", "-o", "m.tw", "--fresh",
                  *self.ana)
        env = {"TILEWRIGHT_TOKEN": "twt_x"}
        self.assertEqual(self.call("jobs", "list", *self.ana, env=env).returncode, FAILED)
        named = set()
        for file in ("monitoring/alerts.yml", "monitoring/dashboard.json"):
            found = {re.sub("_bucket$", "", name) for name in NAME.findall((OPS / file).read_text())}
            self.assertGreater(len(found), 5, file)
            named |= found
        # Counters of what is rare appear when it happens first; their names stand in the source.
        source = "".join(path.read_text() for folder in ("tracker", "tuner_server", "device_agent", "deploy/daemon")
                         for path in (Path(cli_case.ROOT) / folder).rglob("*.cc"))
        rare = {"tilewright_tracker_commit_failures_total", "tilewright_tuner_model_trainings_total"}
        end = time.monotonic() + cli_case.PATIENCE  # daemons count into their metrics now and then, not at each event
        missing = named
        while missing and time.monotonic() < end:
            exported = set()
            for daemon in ("tracker", "tuner", "agent"):
                names = self.check_conventions(daemon, *parse(self.metrics_of(daemon)))
                self.assertIn("tilewright_build_info", names)
                exported |= names
            missing = {name for name in named - exported if not (name in rare and '"%s"' % name in source)}
            time.sleep(0.2)
        self.assertEqual(missing, set(), "named in deploy/ops/monitoring, exported by no daemon")
        self.assertNotIn("tilewright_nothing_of_the_kind_total", exported)


    def certificate_end(self, daemon):
        _, samples = parse(self.metrics_of(daemon))
        return [value for name, _, value in samples if name == "tilewright_certificate_expiry_timestamp_seconds"]

    def test_each_daemon_says_when_its_certificate_ends_and_metrics_want_their_token(self):
        for daemon, identity in (("tracker", "lab"), ("tuner", "main"), ("agent", "bench")):
            before = self.certificate_end(daemon)
            self.assertEqual(len(before), 1, daemon)
            self.good("certs", "renew", "pki", "pki/issued/" + identity, "--days", "200")
            self.wait_for("the new date of the " + daemon, lambda d=daemon, b=before: self.certificate_end(d)[0] > b[0], seconds=60)
        with open(self.path("tracker.log")) as log:
            address = [json.loads(line)["address"] for line in log if '"daemon.metrics"' in line][-1]
        trusted = ssl.create_default_context(cafile=self.path("pki/ca.pem"))
        for token in ("", "0123456789abcdeX"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                scrape(address, trusted, token)
            self.assertEqual(refused.exception.code, 401)
        with self.assertRaises(OSError):
            scrape(address)  # plain text
        with self.assertRaises(OSError):
            scrape(address, ssl.create_default_context(), "0123456789abcdef")  # another authority

    def test_tickets_are_for_their_owner_and_inventories_name_everybody(self):
        with open(self.path("ticket"), "w") as ticket:  # as a shell does: 0644
            subprocess.run([cli_case.binary("tilewright"), "certs", "ticket", "pki", "bench-9", "--file", "tickets"], cwd=self.folder,
                           stdout=ticket, check=True)
        self.assertEqual(os.stat(self.path("ticket")).st_mode & 0o777, 0o600)
        self.assertTrue(Path(self.path("ticket")).read_text().startswith("twe_"))
        self.good("certs", "revoke", "pki", "pki/issued/bench")
        listed = json.loads(self.good("certs", "list", "pki", "-o", "json"))
        self.assertEqual({(row["kind"], row["name"], row["state"]) for row in listed},
                         {("tracker", "lab", "valid"), ("tuner", "main", "valid"), ("agent", "bench", "revoked"), ("client", "ana", "valid")})
        self.assertIn("bench", self.good("certs", "list", "pki"))
        self.good("jobs", "list", *self.ana)
        self.good("log", "export", *self.ana)  # audited
        tokens = json.loads(self.good("tokens", "list", "--file", "tuner-tokens", "--audit", self.path("tuner/audit.jsonl"), "-o", "json"))
        self.assertRegex(tokens[0]["last_audited_use"], r"^\d{4}-\d\d-\d\dT")
        roles = {row["method"]: row for row in json.loads(self.good("tokens", "roles", "-o", "json"))}
        self.assertEqual(roles["/tilewright.v1.AgentService/Sync"]["tracker"], ["agent"])
        self.assertEqual(roles["/tilewright.v1.JobService/CreateJob"]["tuner"], ["engineer", "admin"])


class Plain(cli_case.Case):
    def start(self, name, *flags, env=None):
        os.environ.update(env or {})
        try:
            return cli_case.Daemon(self, name, *flags)
        finally:
            for key in env or {}:
                del os.environ[key]

    def test_what_cannot_be_printed_is_a_failure(self):
        for name in ("tracker", "tuner", "agent"):
            daemon = cli_case.binary("tilewright-" + name)
            for flag in ("--help", "--version"):
                for shell in ('"$@" >/dev/full', '"$@" >&-'):
                    done = subprocess.run(["/bin/sh", "-c", shell, "sh", daemon, flag], capture_output=True, text=True, timeout=60)
                    self.assertEqual(done.returncode, 74, (name, flag, shell, done.stderr))
                    self.assertIn("daemon.stdout.failed", done.stderr)

    def test_the_watchdog_is_fed_by_living_daemons_only(self):
        path = self.path("notify")
        systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(systemd.close)
        systemd.bind(path)
        systemd.settimeout(cli_case.PATIENCE)
        env = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"}

        def drain():
            systemd.setblocking(False)
            try:
                while True:
                    systemd.recv(100)
            except BlockingIOError:
                systemd.settimeout(cli_case.PATIENCE)

        def stopped(pid):
            """Whether no thread of the process runs any more."""
            return all(Path(stat).read_text().rpartition(")")[2].split()[0] in "Tt"
                       for stat in glob.glob("/proc/%d/task/*/stat" % pid))

        tracker = cli_case.Daemon(self, "tracker")
        to_tracker = ["--tracker", tracker.address]
        for name, flags in (("tuner", to_tracker), ("agent", [*to_tracker, "--device", "cpu", "--allow-weak-sandbox"]), ("tracker", [])):
            if name == "tracker":
                tracker.stop()
            drain()
            daemon = self.start(name, *flags, env=env)
            while systemd.recv(100) != b"READY=1":  # fed meanwhile, too, where the start takes its time
                pass
            for _ in range(5):  # and goes on
                self.assertEqual(systemd.recv(100), b"WATCHDOG=1", name)
            daemon.child.send_signal(signal.SIGSTOP)
            self.wait_for(name + " to stand still", lambda pid=daemon.child.pid: stopped(pid))
            drain()
            systemd.settimeout(1.5)
            with self.assertRaises(socket.timeout, msg=name + " hangs and is said to live"):
                systemd.recv(100)
            systemd.settimeout(cli_case.PATIENCE)
            daemon.child.send_signal(signal.SIGCONT)
            self.assertEqual(systemd.recv(100), b"WATCHDOG=1", name)
            daemon.stop()

    def test_example_configurations_are_good_and_the_log_level_changes_at_run_time(self):
        for name in ("tracker", "tuner", "agent"):
            done = subprocess.run([cli_case.binary("tilewright-" + name), "--config", OPS / "config" / (name + ".conf"),
                                   "--state-dir", self.path(name), "--check-config"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, "ok\n"), done.stderr)
            done = subprocess.run([cli_case.binary("tilewright-" + name), "--no-such-flag"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 64, done.stderr)
        config = Path(self.path("tracker.conf"))
        config.write_text('log-level = "error"\nlisen = "127.0.0.1:0"\n')
        done = subprocess.run([cli_case.binary("tilewright-tracker"), "--config", config, "--state-dir", self.path("x")],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("daemon.config.unknown", done.stderr)
        self.assertIn('"lisen" is no setting; the nearest one is "listen"', done.stderr)
        config.write_text('log-level = "error"\n')
        daemon = cli_case.Daemon(self, "tracker", "--config", str(config))
        self.assertNotIn("tracker.serving", daemon.log())
        config.write_text('log-level = "info"\n')
        daemon.child.send_signal(signal.SIGHUP)
        self.wait_for("the new level", lambda: '"log_level":"info"' in daemon.log())
        daemon.stop()
        self.assertIn("daemon.stop", daemon.log())

    def test_units_are_what_systemd_accepts_and_hardened(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze here")
        root = self.path("units")
        os.makedirs(root)
        for unit in sorted((OPS / "systemd").glob("*.service")):
            text = unit.read_text().replace("/usr/bin/tilewright", cli_case.binary("tilewright"))
            text = re.sub("^User=.*\nGroup=.*\n", "", text, flags=re.M)  # not made on this machine
            text = re.sub("^Documentation=.*\n", "", text, flags=re.M)
            path = os.path.join(root, unit.name)
            Path(path).write_text(text)
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
            self.assertEqual([line for line in done.stderr.splitlines() if unit.name in line], [], unit.name)
            done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=50", path],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout[-300:] + done.stderr)
            broken = path.replace(".service", "-broken.service")
            Path(broken).write_text(text.replace("[Service]", "[Service]\nNoSuchSetting=yes"))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", broken], capture_output=True, text=True)
            self.assertIn("NoSuchSetting", done.stderr, "the check would notice")


class Backup(cli_case.Fleet):
    """R20: a backup taken under load restores."""

    def rows(self, path, table_sql):
        db = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
        try:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            return db.execute(table_sql).fetchall()
        finally:
            db.close()

    def measurements(self):
        lines = self.good("log", "export", *self.server).splitlines()
        return {json.loads(line)["measurement_id"] for line in lines}

    def test_backups_under_load_are_whole_and_hold_all_that_was_acknowledged_before(self):
        job = self.good("jobs", "submit", "m.onnx", "--target", "native,threads=1", "--trials", "100000", *self.server).split()[0]
        self.wait_for("some trials", lambda: len(self.measurements()) > 10)
        taken = []
        for i in range(4):
            known = self.measurements()
            for name in ("tracker", "tuner"):
                self.good("backup", "create", name, "backup-%s-%d" % (name, i))
                self.good("backup", "verify", "backup-%s-%d" % (name, i))
            taken.append(known)
            self.wait_for("progress beside the backups", lambda n=len(known): len(self.measurements()) > n)
        self.assertEqual(self.state(job), "RUNNING", "the load was there to the end")
        self.refused_backups()
        self.check_private("backup-tuner-3")
        for daemon in (self.agent, self.tuner, self.tracker):
            daemon.kill()
        # The disk is lost; the newest backup takes its place.
        for name in ("tracker", "tuner"):
            shutil.rmtree(self.path(name))
            self.good("backup", "restore", "backup-%s-3" % name, name)
        self.check_private("tuner")
        for daemon in (self.tracker, self.tuner, self.agent):
            daemon.start()
        back = self.measurements()
        self.assertEqual(taken[-1] - back, set(), "acknowledged before the backup, and lost")
        self.wait_for("trials after the restore", lambda: len(self.measurements()) > len(back))
        self.good("jobs", "cancel", job, *self.server)
        # The backup does not know which numbers of modules came after it: no number is used again.
        self.good("tune", "m.onnx", "--target", "native,threads=1", "--trials", "1", "-o", "m.tw", *self.server)
        number = json.loads(self.good("modules", "list", *self.server, "-o", "json"))[0]["number"]
        self.assertGreater(number, 1_700_000_000)
        self.assertIn("modules.numbers.restarted", self.tuner.log())

    def check_private(self, folder):
        """Whatever the umask is, a backup and what is restored from it are for their owner alone."""
        found = [Path(self.path(folder)), *Path(self.path(folder)).rglob("*")]
        self.assertGreater(len(found), 3)
        for path in found:
            self.assertEqual(path.stat().st_mode & 0o777, 0o700 if path.is_dir() else 0o600, path)

    def restored(self, older, newer):
        """A job runs while `older`, then `newer` is backed up, with at least 20 trials between; both are restored. It goes on within
        a minute, and each trial has one accepted result."""
        job = self.good("jobs", "submit", "m.onnx", "--target", "native,threads=1", "--trials", "100000", *self.server).split()[0]
        ended = lambda: json.loads(self.good("jobs", "get", job, *self.server, "-o", "json"))["progress"].get("measured", 0)
        for name in (older, newer):
            before = ended()
            self.wait_for("trials before the backup of the " + name, lambda: ended() >= before + 20)
            self.good("backup", "create", name, "backup-" + name)
            self.wait_for("a backup with open trials", lambda: name == "tracker" or self.backup_has_open_trials())
        before = ended()
        self.wait_for("trials that no backup has", lambda: ended() >= before + 20)
        for daemon in (self.agent, self.tuner, self.tracker):
            daemon.kill()
        for name in ("tracker", "tuner"):
            shutil.rmtree(self.path(name))
            self.good("backup", "restore", "backup-" + name, name)
        for daemon in (self.tracker, self.tuner, self.agent):
            daemon.start()
        started = time.monotonic()
        back = ended()
        self.wait_for("trials within a minute of the restore", lambda: ended() >= back + 5, seconds=60)
        self.wait_for("all that was open to end", lambda: not self.open_before(back), seconds=60 - (time.monotonic() - started))
        self.good("jobs", "cancel", job, *self.server)
        self.wait_for("the end of the job", lambda: self.state(job) == "CANCELLED")
        self.measured_trials(*self.server, cancelled=self.cancelled_trials())
        return [json.loads(line) for line in self.tuner.log().splitlines() if '"event":"job.reconciled"' in line]

    def backup_has_open_trials(self):
        """Whether the tracker had trials of the tuner's backup. Between two batches of a fast device it has none, a trial that is BUILT is not
        known to be there, and nothing is to be reconciled: then makes another backup."""
        db = sqlite3.connect("file:%s?mode=ro&immutable=1" % self.path("backup-tuner/tuner.db"), uri=True)
        try:
            if db.execute("SELECT count(*) FROM trials WHERE state = 'QUEUED'").fetchone()[0] > 0:
                return True
        finally:
            db.close()
        shutil.rmtree(self.path("backup-tuner"))
        self.good("backup", "create", "tuner", "backup-tuner")
        return False

    def state(self, job):
        return json.loads(self.good("jobs", "get", job, *self.server, "-o", "json"))["state"]

    def cancelled_trials(self):
        """Trials (job, number) that a cancelled job cut off, some of them between a noisy attempt and the next."""
        return set(self.rows(self.path("tuner/tuner.db"), "SELECT job, number FROM trials WHERE state = 'CANCELLED'"))

    def open_before(self, number):
        """Trials up to `number` that are still open: a backup's that wait for what will never come."""
        db = sqlite3.connect("file:%s?mode=ro" % self.path("tuner/tuner.db"), uri=True)
        try:
            return db.execute("SELECT count(*) FROM trials WHERE number <= ? AND state IN ('BUILT', 'QUEUED')", (number,)).fetchone()[0]
        finally:
            db.close()

    def test_a_job_goes_on_when_the_tuners_backup_is_older(self):
        events = self.restored("tuner", "tracker")
        self.assertGreater(sum(event["ended"] for event in events), 0, events)
        ended = " ".join(event["ended_ids"] for event in events).split()
        self.assertTrue(ended and all(re.fullmatch(r"\S+/\S+/\d+(\+\d+)?", name) for name in ended), ended)
        self.assertIn('"event":"work.delivered.again"', self.tracker.log())

    def test_a_job_goes_on_when_the_trackers_backup_is_older(self):
        events = self.restored("tracker", "tuner")
        self.assertGreater(sum(event["unknown"] for event in events), 0, events)

    def refused_backups(self):
        def refused(slug, *args):
            done = self.call("backup", *args)
            self.assertNotEqual(done.returncode, OK)
            self.assertIn(slug, done.stderr)

        refused("backup.exists", "create", "tuner", "backup-tuner-0")
        refused("backup.state.unknown", "create", "agent", "backup-agent")
        refused("backup.state.exists", "restore", "backup-tuner-0", "tuner")
        shutil.copytree(self.path("backup-tuner-0"), self.path("bad"))
        with open(self.path("bad/tuner.db"), "r+b") as file:
            file.seek(5000)
            file.write(b"\xff\xff")
        refused("backup.file.damaged", "verify", "bad")
        refused("backup.file.damaged", "restore", "bad", "fresh")
        self.assertFalse(os.path.exists(self.path("fresh")))
        os.remove(self.path("bad/tuner.db"))
        refused("backup.file.missing", "verify", "bad")
        with open(self.path("bad/backup.json"), "w") as file:
            json.dump({"format": 1, "files": [{"path": "../out", "bytes": 0, "sha256": ""}]}, file)
        refused("backup.manifest.invalid", "restore", "bad", "fresh")


if __name__ == "__main__":
    sys.exit(cli_case.run_cases(sys.modules[__name__]))
