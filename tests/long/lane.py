"""What the long lanes share: where the repository is, and which commit a result is of."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commit():
    """HEAD; with "+changes" where tracked files differ from it."""
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
