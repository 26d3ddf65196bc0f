#!/usr/bin/env python3
"""The benchmark suite: layers against hand-tuned libraries, models against other runtimes, one picture.

    suite.py [--only layers models] [--threads 1 2] [--layers C1 D1 ...] [--models dqn ...] [--search 64]
             [--light DIR] [--trials 300] [--block-s 0.5] [--build DIR] [-o DIR]
    suite.py --render DIR          the table and the picture of results that are there

Runs layer_race (tests/bench/layer_race.cc) and models_race.py, and writes suite.json, suite.txt and suite.html
to -o (default: tests/bench/results). A ratio is the peer's time over ours, above 1 we are faster. Leave the
machine alone meanwhile; the whole takes about an hour on two cores.

OpenBLAS gets OPENBLAS_CORETYPE=Cooperlake where the CPU has AVX-512 and it does not know the CPU.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
from render import html, text  # noqa: E402


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["layers", "models"], default=["layers", "models"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--layers", nargs="+", default=[])
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--light", type=Path, default=ROOT.parent / "shared/onnx/light", metavar="DIR")
    parser.add_argument("--search", type=int, default=64, help="candidates per layer")
    parser.add_argument("--trials", type=int, default=300, help="trials per model")
    parser.add_argument("--block-s", type=float, default=0.5)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--work", type=Path, default=Path("/tmp/models_race"))
    parser.add_argument("--render", type=Path, metavar="DIR")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tests/bench/results")
    return parser.parse_args()


def environment(threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    if "avx512f" in Path("/proc/cpuinfo").read_text():
        env.setdefault("OPENBLAS_CORETYPE", "Cooperlake")
    return env


def race_layers(flags, threads):
    command = [flags.build / "bin/layer_race", "--threads", threads, "--search", flags.search, "--block-s",
               flags.block_s, *flags.layers]
    done = subprocess.run([str(c) for c in command], env=environment(threads), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"layer_race: exit {done.returncode}")
    return json.loads(done.stdout)


def race_models(flags):
    out = flags.work / "models.json"
    command = [sys.executable, ROOT / "tests/bench/models_race.py", *flags.models, "--threads", *flags.threads,
               "--trials", flags.trials, "--block-s", flags.block_s, "--build", flags.build, "--work", flags.work,
               "--light", flags.light, "-o", out]
    if subprocess.run([str(c) for c in command]).returncode != 0:
        sys.exit("models_race.py failed")
    return json.loads(out.read_text())


def write(results, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "suite.txt").write_text(text(results))
    (folder / "suite.html").write_text(html(results))
    print(text(results), end="")


def main():
    flags = parse_flags()
    if flags.render:
        write(json.loads((flags.render / "suite.json").read_text()), flags.render)
        return
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    results = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit.stdout.strip(),
               "command": " ".join(["tests/bench/suite.py", *sys.argv[1:]]), "layers": [], "models": None}
    kept = flags.output / "suite.json"
    if len(flags.only) < 2 and kept.exists():  # the other half as it was measured before
        results = json.loads(kept.read_text()) | {k: results[k] for k in ("date", "commit", "command")}
    if "layers" in flags.only:
        results["layers"] = [race_layers(flags, threads) for threads in flags.threads]
    if "models" in flags.only:
        results["models"] = race_models(flags)
    write(results, flags.output)


if __name__ == "__main__":
    main()
