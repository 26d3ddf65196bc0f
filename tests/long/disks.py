#!/usr/bin/env python3
"""Ten episodes in which the disk of all daemons is full, read-only or slow for 2 to 60 s, under ten jobs: all jobs
succeed, no trial is lost, fails or counts twice, and jobs that are cancelled meanwhile end. As root, or as an ordinary
user where user namespaces are allowed; how each trouble is made: tests/support/hurt_disk.py. Writes
tests/results/disks.json, also while it runs. Promise R15 of tests/README.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import sys
import time

from lane import ROOT, commit

EPISODES = (("full", 2), ("read_only", 2), ("slow", 10), ("full", 60), ("read_only", 60), ("full", 15), ("slow", 30),
            ("read_only", 20), ("full", 5), ("full", 30))
CANCEL_AT = (3, 7)  # a job more, which is cancelled in the midst of these


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--episodes", type=int, default=len(EPISODES), help="the first so many")
    parser.add_argument("--jobs", type=int, default=10, help="open when an episode begins")
    parser.add_argument("--trials", type=int, default=60, help="of each job")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests" / "results" / "disks.json")
    args = parser.parse_args()
    os.environ["TILEWRIGHT_BUILD_DIR"] = str(args.build_dir.resolve())
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from hurt_disk import enter_mount_namespace
    user = os.environ.setdefault("TILEWRIGHT_TEST_USER", "root" if os.geteuid() == 0 else "an ordinary user")
    enter_mount_namespace()
    from disk_episodes import DiskEpisodes
    report = {"lane": "disks", "commit": commit(), "command": " ".join(["tests/long/disks.py", *sys.argv[1:]]),
              "user": user, "bar": "all jobs succeed"}
    begin = time.monotonic()

    def write():
        report["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        report["minutes"] = round((time.monotonic() - begin) / 60, 1)
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(report, indent=1) + "\n")

    with DiskEpisodes(args.jobs, args.trials) as episodes:
        for i, (kind, seconds) in enumerate(EPISODES[:args.episodes]):
            episodes.run(kind, seconds, cancel=i in CANCEL_AT)
            report["episodes"] = episodes.rows
            write()
        report["failures"] = episodes.finish()
        report["jobs"], report["cancelled"] = len(episodes.jobs), len(episodes.cancelled)
        report["trials"] = (report["jobs"] - report["cancelled"]) * args.trials
        write()
    print(json.dumps(report, indent=1))
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
