#!/usr/bin/env python3
"""The attack lane: hostile candidates and hostile clients against the release binaries.

Candidates: every row of tests/support/attacks.def, while its code is loaded and when it runs, under
both profiles of the sandbox, as root and as an ordinary user (tests/fault/attack_corpus_test.cc). Each
must end as an outcome of the protocol. Nothing may be read, changed or ended, memory is bounded, and
the worker measures the next candidate. Clients: tests/long/hostile_clients.py, if it is there. Writes
tests/results/attacks.json; exit code 1 if a row failed.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

from lane import ROOT, commit

ROW = re.compile(r"^attack: (?P<name>\S+) (?P<when>[LK]) (?P<profile>\S+) uid=(?P<uid>\d+) "
                 r"(?P<outcome>\S+) (?P<error_class>\S+) (?P<verdict>ok$|FAILED .*)", re.M)
LEAST_CANDIDATES = 60
LEAST_CLIENTS = 30


def candidates(binary, attacks, wrap):
    """The rows of one run of the test, which is root's and then, if it can be, a user's."""
    env = dict(os.environ, TILEWRIGHT_ATTACKS=attacks)
    done = subprocess.run([*shlex.split(wrap), str(binary)], env=env, capture_output=True, text=True,
                          errors="replace")
    rows = [{**found.groupdict(), "uid": int(found["uid"]), "ok": found["verdict"] == "ok"}
            for found in ROW.finditer(done.stdout)]
    for row in rows:
        row["when"] = {"L": "load", "K": "kernel"}[row["when"]]
    skipped = sorted(set(re.findall(r"^.*\[SKIP\].*$", done.stdout, re.M)))
    return rows, skipped, done.returncode, (done.stdout + done.stderr)[-4000:]


def clients(build_dir):
    """The rows of the hostile clients; None without them."""
    path = pathlib.Path(__file__).with_name("hostile_clients.py")
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location("hostile_clients", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory(prefix="tw_attacks") as folder:
        return module.run(pathlib.Path(folder), build_dir / "bin")


def summary(rows):
    counts = {}
    for row in rows:
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    return {"rows": len(rows), "names": len({row["name"] for row in rows}),
            "failed": sum(not row["ok"] for row in rows), "outcomes": dict(sorted(counts.items()))}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--attacks", default="all", help="all, or one row of attacks.def")
    parser.add_argument("--wrap", default="", metavar="COMMAND", help="runs the tests, on machines that are shared")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "attacks.json")
    args = parser.parse_args()
    binary = args.build_dir.resolve() / "bin" / "attack_corpus_test"
    if not binary.exists():
        sys.exit(f"{binary} is not there: build it first")
    start = time.monotonic()
    rows, skipped, code, tail = candidates(binary, args.attacks, args.wrap)
    client_rows = clients(args.build_dir.resolve())
    failures = [row for row in rows + (client_rows or []) if not row["ok"]]
    if code != 0 and not failures:
        failures.append({"name": "attack_corpus_test", "exit_code": code, "output": tail})
    if args.attacks == "all":
        names = len({row["name"] for row in rows})
        if names < LEAST_CANDIDATES:
            failures.append({"name": "corpus", "output": f"expected {LEAST_CANDIDATES} candidates, found {names}"})
        if client_rows is not None and len(client_rows) < LEAST_CLIENTS:
            failures.append({"name": "clients", "output": f"expected {LEAST_CLIENTS} clients, found {len(client_rows)}"})
    report = {"lane": "attacks", "commit": commit(),
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "command": " ".join(["tests/long/attacks.py", *sys.argv[1:]]), "kernel": os.uname().release,
              "seconds": round(time.monotonic() - start, 1), "skipped": skipped,
              "candidates": {"users": sorted({row["uid"] for row in rows}), **summary(rows)},
              "clients": None if client_rows is None else
              {"rows": len(client_rows), "failed": sum(not row["ok"] for row in client_rows), "each": client_rows},
              "failures": failures}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({key: report[key] for key in ("seconds", "candidates", "skipped")}, indent=1))
    for failure in failures:
        print("FAILED", json.dumps(failure))
    return 1 if failures or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
