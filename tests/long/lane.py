"""What the long lanes share: where the repository is, and which commit a result is of."""

import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commit(result=None, folder=ROOT):
    """HEAD of the checkout that has the folder; with "+changes" where tracked files other than the result differ from it."""
    def git(*words):
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True).stdout.strip()
    others = ["--", ".", f":!{result.relative_to(ROOT)}"] if result else []
    return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no", *others) else "")


def paired(figure_of, older, newer, rounds):
    """Runs two builds in turns A B B A ..., so that a slow minute meets both. `figure_of(build)` returns one
    figure of one run, smaller is better. Returns the pairs and the median of newer / older."""
    pairs = []
    for turn in range(rounds):
        order = (older, newer) if turn % 2 == 0 else (newer, older)
        figures = {build: figure_of(build) for build in order}
        pairs.append({"older": figures[older], "newer": figures[newer],
                      "ratio": round(figures[newer] / figures[older], 3)})
        print(f"pair {turn + 1} of {rounds}: {pairs[-1]}", file=sys.stderr, flush=True)
    return {"pairs": pairs, "median_ratio": statistics.median(pair["ratio"] for pair in pairs)}
