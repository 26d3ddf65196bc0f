#!/usr/bin/env python3
"""The long lane of the sanitizers: the tests of the services (tracker, agent, tuner, daemon frame, security,
simulated fleet, faults) built with ASan and UBSan and with TSan (the presets asan and tsan), each run on
its own. A report of a sanitizer ends the program that it is of; daemons that a test starts are of the same
build, and what is reported of them fails the test, too. sanitizer_control_test shows that each sanitizer finds what is planted,
also between threads of the system's gRPC (tests/support/tsan_interposers.cc). Builds what is missing; --wrap
runs each step on machines that are shared. Adds its rows to tests/results/sanitizers.json.
Promise R17 of tests/README.md.
"""

import argparse
import datetime
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

TESTS = """sanitizer_control_test
agent_core_test certs_test daemon_test device_admin_test device_health_test device_pool_sim_test device_pool_test
device_spec_test enrolment_test fair_share_test fingerprint_test job_core_test job_finals_test job_queue_test
job_waits_test manifest_test measure_test module_file_test module_signature_test module_store_test proto_test
referee_test reset_hook_test runtime_c_api_test security_test server_security_test session_gate_test spool_test
sql_test support_file_test support_process_test support_test tracker_rounds_test tracker_service_test
tracker_store_test tuner_service_test tuning_log_test
fleet_sim_test planted_bugs_test agent_devices_test agent_sync_test agent_tracker_test daemon_faults_test
enrolment_fleet_test failpoint_test fleet_load_test fleet_times_test kill_test network_fault_test
secure_change_test secure_fleet_test tracker_kill_test trial_overhead_test tuner_death_test""".split()
# Not worker_sandbox_test: in a candidate's process the runtime of a sanitizer takes signals and memory for itself,
# so how candidates end is judged in ordinary builds; what their parent makes of it, in the tests of agents.
# Everything is five to twenty times slower: fewer rounds of what is repeated.
ROUNDS = {"fleet_sim_test": "10", "kill_test": "50", "network_fault_test": "2", "tuner_death_test": "1"}
OPTIONS = {
    "asan": {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
    "tsan": {},  # compiled in, see tests/support/tsan_interposers.cc
}
SANITIZERS = {"asan": ["ASAN_OPTIONS", "UBSAN_OPTIONS"], "tsan": ["TSAN_OPTIONS"]}
CONTROL = "sanitizer_control_test"


# What a sanitizer says of our own code; a candidate that crashes on purpose is a signal to it, no finding.
FINDING = re.compile(r"WARNING: ThreadSanitizer|runtime error:|"
                     r"ERROR: AddressSanitizer: (?!SEGV|ILL|FPE|BUS|ABRT|TRAP|stack-overflow|unknown-crash)")


def reports(folder):
    texts = [path.read_text(errors="replace") for path in sorted(pathlib.Path(folder).iterdir())]
    return "".join(text for text in texts if FINDING.search(text))


def run_test(args, preset, test):
    with tempfile.TemporaryDirectory() as folder:
        row = run_with_reports(args, preset, test, folder)
        found = reports(folder)
    if found:
        row["exit_code"] = row["exit_code"] or 1
        row["output"] = (row.get("output", "") + found)[-12000:]
    return row


def run_with_reports(args, preset, test, folder):
    env = {**os.environ, **OPTIONS[preset]}
    if test != CONTROL:  # which reads what is reported of what it plants
        for name in SANITIZERS[preset]:
            env[name] = ":".join(filter(None, [env.get(name), f"log_path={folder}/report"]))
    if test in ROUNDS:
        env["TILEWRIGHT_ROUNDS"] = ROUNDS[test]
    start = time.monotonic()
    command = [*shlex.split(args.wrap), str(ROOT / "build" / preset / "bin" / test)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace",
                              timeout=args.timeout)
        code, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        code, output = 124, f"no end within {args.timeout:.0f} s"
    row = {"commit": commit(), "exit_code": code, "seconds": round(time.monotonic() - start, 1),
           "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
    if code != 0:
        row["output"] = output[-12000:]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", action="append", choices=sorted(OPTIONS), help="default: all")
    parser.add_argument("--only", action="append", choices=TESTS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the build")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for each test")
    parser.add_argument("--wrap", default="", metavar="COMMAND")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "sanitizers.json")
    args = parser.parse_args()
    report = {"lane": "sanitizers", "tests": {}}
    if args.output.exists():
        report = json.loads(args.output.read_text())
    failed = 0
    for preset in args.preset or sorted(OPTIONS):
        folder = ROOT / "build" / preset
        if not (folder / "build.ninja").exists():
            subprocess.run(["cmake", "--preset", preset], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        for test in args.only or TESTS:
            subprocess.run([*shlex.split(args.wrap), "ninja", "-C", str(folder), "-j", str(args.jobs), test],
                           check=True, stdout=subprocess.DEVNULL)
            row = run_test(args, preset, test)
            report["tests"].setdefault(preset, {})[test] = row
            failed += row["exit_code"] != 0
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
            print(f"{preset} {test}: {'ok' if row['exit_code'] == 0 else 'FAILED'}, {row['seconds']} s", flush=True)
            print(row.get("output", ""), end="", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
