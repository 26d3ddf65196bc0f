#!/usr/bin/env python3
"""The disk of all daemons is full, read-only and slow for 2 s each under three jobs: all jobs succeed, no trial is
lost, fails or counts twice, and a job that is cancelled meanwhile ends. Longer, with ten jobs: tests/long/disks.py."""
# Measures: a device is used in it, and no time is judged.

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import run_checks  # noqa: E402
from disk_episodes import DiskEpisodes  # noqa: E402
from hurt_disk import KINDS, enter_mount_namespace  # noqa: E402

JOBS, TRIALS, SECONDS = 3, 24, 2


def jobs_outlast_a_disk_in_trouble():
    with DiskEpisodes(JOBS, TRIALS) as episodes:
        for kind in KINDS:
            episodes.run(kind, SECONDS, cancel=kind == "full")
        failures = episodes.finish()
        assert not failures, failures


if __name__ == "__main__":
    enter_mount_namespace()
    run_checks(jobs_outlast_a_disk_in_trouble)
