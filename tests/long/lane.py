"""What the long lanes share: where the repository is, and which commit a result is of."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commit(result=None):
    """HEAD; with "+changes" where tracked files other than the result differ from it."""
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()
    others = ["--", ".", f":!{result.relative_to(ROOT)}"] if result else []
    return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no", *others) else "")
