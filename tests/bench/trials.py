#!/usr/bin/env python3
"""How few trials the tuner needs: its search with the shipped cost model, without it, and chance in the same space, on
the workloads of workloads.txt, one thread, an empty log, several seeds.

    TILEWRIGHT_BUILD_DIR=build/release tests/bench/trials.py run        [--seeds 5] [--trials 64] [--mode MODE ...]
    TILEWRIGHT_BUILD_DIR=build/release tests/bench/trials.py best-known [--trials 2000]  three searches of each, a workload on each
                                                                                         core; 50 minutes on two quiet cores
    TILEWRIGHT_BUILD_DIR=build/release tests/bench/trials.py peers      the libraries beside the best-known kernels
    TILEWRIGHT_BUILD_DIR=build/release tests/bench/trials.py ablate     [--seeds 3]      each part of the search left out
    tests/bench/trials.py report

A trial is a candidate handed to the builder, those that fail included; the default schedule, which every job measures,
is not counted. What is measured is kept in --store (build/trials), so every command can be stopped and goes on; a
program has one time in all runs (trial_store.h). Every run makes results/best_known.json faster where it can, never
slower; `report` compares with it, as far as possible by the store's own clock, and writes results/trials.{json,txt}. Times are the thread's own, in turns with a
fixed kernel: neighbours on the machine matter little."""

import argparse
import concurrent.futures
import datetime
import json
import math
import os
import platform
import queue
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORKLOADS = HERE / "workloads.txt"
RESULTS = HERE / "results"
BEST_KNOWN = RESULTS / "best_known.json"
MODES = ("model", "learned", "draft", "random")
ABLATIONS = ("model", "model-no-training", "model-no-evolution", "model-full-evolution", "model-no-quota",
             "model-descent", "model-no-adapt", "model-no-owed", "model-annealing", "model-relatives",
             "model-no-shipped-model", "learned", "draft", "random")
COUNTS = (1, 2, 4, 8, 16, 32, 64)
GOOD = 0.95
LONG_SEARCHES = (("learned", 11), ("model", 12), ("model", 13))  # of best-known: mode and seed
LONG_PLACEMENTS = 21
LONG_BATCH = 32  # training once in 8 of 2,000 trials would take longer than they do
VERIFIED = 5  # sets of buffers that a best-known kernel was timed with


def build_dir():
    path = Path(os.environ.get("TILEWRIGHT_BUILD_DIR", "build/release"))
    return path if path.is_absolute() else ROOT / path


def program(name):
    path = build_dir() / "bin" / name
    if not path.exists():
        sys.exit(f"trials: {path} is not there; build the target {name} or set TILEWRIGHT_BUILD_DIR")
    return str(path)


def driver(*arguments, through=()):
    subprocess.run([*through, program("trials"), *map(str, arguments), str(WORKLOADS)], check=True)


def long_searches(flags):
    """Three long searches of every workload, the best again; a workload at a time on each core. Goes on where it stopped."""
    cores = queue.SimpleQueue()
    for core in os.sched_getaffinity(0):
        cores.put(core)

    def search(name):
        core = cores.get()
        common = ["--store", flags.store, "--only", name]
        for mode, seed in LONG_SEARCHES:
            driver("run", "--runs", flags.store / f"long-{name}.txt", "--mode", mode, "--first-seed", seed, "--trials", flags.trials,
                   "--batch", LONG_BATCH, *common, through=("taskset", "-c", str(core)))
        # The quickest of thousands are there partly by luck: only a time taken afterwards says what they are worth.
        driver("finals", "--placements", LONG_PLACEMENTS, *common, through=("taskset", "-c", str(core)))
        cores.put(core)

    with concurrent.futures.ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(search, names()))
    update_best_known(flags.store, flags.trials)


def race_peers():
    """The best library beside each best-known kernel that the libraries have, in one run."""
    table = json.loads(BEST_KNOWN.read_text())
    raced = [name for name in names() if name[0] in "GKD"]
    out = subprocess.run([program("layer_race"), "--threads", "1", "--search", "64", "--known", str(BEST_KNOWN), *raced], check=True,
                         stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    for row in json.loads(out)["rows"]:
        peer = min(row["peers"], key=lambda p: p["ratio"])
        table["workloads"][row["layer"]]["peer"] = {"name": peer["name"], "ratio": round(peer["ratio"], 4)}
    BEST_KNOWN.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")


def machine():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores, {platform.system()}"
    return platform.platform()


def names():
    return [line.strip() for line in WORKLOADS.read_text().splitlines() if line and line[0] not in "# g}"]


class Store:
    """What was measured of one workload: ratios to its baseline by program."""

    def __init__(self, folder, name):
        self.ratio, self.steps, self.us, self.placements, self.failed, self.head = {}, {}, {}, {}, 0, {}
        path = folder / f"{name}.jsonl"
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # cut off when a run was killed
            if "baseline" in row:
                self.head = row
                continue
            self.failed += row["ratio"] <= 0
            self.ratio[row["program"]] = row["ratio"] if row["ratio"] > 0 else math.inf
            self.placements[row["program"]] = row.get("placements", 1)
            self.steps[row["program"]], self.us[row["program"]] = row["steps"], row["ns"] / 1e3

    def best(self):
        surely = LONG_PLACEMENTS if max(self.placements.values(), default=0) >= LONG_PLACEMENTS else VERIFIED
        verified = [program for program in self.ratio if self.placements[program] >= surely]
        return min(verified, key=self.ratio.get, default=None)


def update_best_known(folder, trials=2000):
    """Takes what is faster into the table, whose kernels never get slower; one that was timed again more surely
    (`trials known`) gets that time. `trials`: of each of its long searches."""
    table = json.loads(BEST_KNOWN.read_text()) if BEST_KNOWN.exists() else {"workloads": {}}
    faster = []
    for name in names():
        store = Store(folder, name)
        program = store.best()
        if program is None:
            continue
        row = table["workloads"].get(name)
        entry = {"task": store.head["task"], "baseline_steps": store.head["baseline"], "steps": store.steps[program],
                 "program": program, "ratio": round(store.ratio[program], 5), "us": round(store.us[program], 2),
                 "date": datetime.date.today().isoformat(), "machine": machine()}
        # Ratios to another default schedule cannot be compared: the table's kernel must have been measured here.
        if row is not None and store.placements.get(row["program"], 0) >= LONG_PLACEMENTS:
            row["baseline_steps"] = store.head["baseline"]
            row["ratio"], row["us"] = round(store.ratio[row["program"]], 5), round(store.us[row["program"]], 2)
        rebased = row is not None and row["baseline_steps"] != store.head["baseline"]
        if rebased and entry["us"] >= row["us"]:
            print(f"{name}: the default schedule is another one and the store's best not faster than the table's "
                  f"{row['us']} us; its row stays until `trials known` has measured it here", file=sys.stderr)
            continue
        if row is None or rebased or entry["ratio"] < row["ratio"]:
            faster.append(name)
            table["workloads"][name] = {**entry, "measured": len(store.ratio)}
        else:
            row["measured"] = max(row.get("measured", 0), len(store.ratio))
        searches = read_runs(folder / f"long-{name}.txt", trials)
        if searches:  # those that end early have seen the whole space
            table["workloads"][name]["searches"] = [len(tried) for tried in searches.values()]
    table["note"] = ("ratio: time of the best kernel over the baseline's, taken in turns; measured: programs looked at, by searches and by "
                     "chance; searches: trials of each long search, fewer than 2,000 where the space has no more; peer: the best library's "
                     "time over this kernel's, in turns")
    table["target"] = store.head.get("target", table.get("target"))
    BEST_KNOWN.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    print(f"best_known.json: {len(faster)} of {len(names())} faster" + (": " + " ".join(faster) if faster else ""))


def read_runs(path, trials):
    runs = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if len(row["tried"]) <= trials and row["run"].endswith(f"/{trials}"):
            runs[row["mode"], row["workload"], row["seed"]] = row["tried"]
    return runs


def curve(tried, store, best):
    """best-known over the best so far, after each trial; the default schedule is measured in every job."""
    now, out = store.ratio.get(store.head["program"], 1.0), []
    for program in tried:
        now = min(now, store.ratio.get(program, math.inf))
        out.append(min(1, best / now))  # one set of buffers may have been lucky
    return out


def at(curve_, count):
    return curve_[min(count, len(curve_)) - 1] if curve_ else 0


def trials_to(curve_, share):
    return next((i + 1 for i, value in enumerate(curve_) if value >= share), math.inf)


def geomean(values):
    values = list(values)
    return math.exp(sum(math.log(max(v, 1e-9)) for v in values) / len(values)) if values else 0


def sign_test(wins, losses):
    """Two-sided; ties are left out."""
    n, k = wins + losses, min(wins, losses)
    return 1.0 if n == 0 else min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n)


def mark(row, store):
    """Of a best-known kernel, by this store's clock where the store has it: what searches found is compared with what the
    same kernel takes under the same neighbours (`trials known` measures it), not with another day's luck."""
    here = store.placements.get(row["program"], 0) >= VERIFIED
    verified = []
    if here or row["baseline_steps"] == store.head.get("baseline"):
        known = store.ratio[row["program"]] if here else row["ratio"]
        verified = [known, known * row.get("peer", {}).get("ratio", 1)]  # a library may be faster
    if store.best() is not None:
        verified.append(store.ratio[store.best()])
    if not verified:
        sys.exit(f"trials: the table's kernel of {row['task'][:12]} is of another default schedule: measure it with `trials known`")
    return min(verified)


def report(flags):
    stores = {name: Store(flags.store, name) for name in names()}
    best = {name: mark(row, stores[name]) for name, row in json.loads(BEST_KNOWN.read_text())["workloads"].items()}
    runs = read_runs(flags.store / flags.runs, flags.trials)
    if flags.command == "ablate":  # the same seeds for all
        runs = {key: tried for key, tried in runs.items() if key[0] in flags.mode and key[2] <= flags.seeds}
    curves = {key: curve(tried, stores[key[1]], best[key[1]]) for key, tried in runs.items() if key[1] in best}
    seeds = sorted({seed for _, _, seed in curves})
    out = {"machine": machine(), "date": datetime.date.today().isoformat(), "command": " ".join(sys.argv),
           "seeds": seeds, "workloads": len(names()), "modes": {}}
    lines = [f"# {out['machine']}, {out['date']}, one thread: {len(names())} workloads, {len(seeds)} seeds",
             "# best-known time over the best found, geometric mean over workloads and seeds, after so many trials", "",
             "%-19s" % "" + "".join(f"{c:>8}" for c in COUNTS) + "   trials to 95 %: median, for 95 % of workloads"]
    for mode in dict.fromkeys([m for m in MODES if any(k[0] == m for k in curves)] + sorted({k[0] for k in curves})):
        mine = {key[1:]: c for key, c in curves.items() if key[0] == mode}
        means = {c: geomean(at(x, c) for x in mine.values()) for c in COUNTS if c <= flags.trials}
        by_workload = {n: statistics.median(trials_to(x, GOOD) for (w, _), x in mine.items() if w == n)
                       for n in names() if any(w == n for w, _ in mine)}
        ordered = sorted(by_workload.values())
        p95 = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
        out["modes"][mode] = {"geomean": means, "median_trials_to_95": statistics.median(ordered), "p95_trials_to_95": p95,
                              "within_8": sum(v <= 8 for v in ordered), "within_32": sum(v <= 32 for v in ordered),
                              "trials_to_95": by_workload,
                              "curves": {n: [round(statistics.median(at(x, c) for (w, _), x in mine.items() if w == n), 4)
                                             for c in means] for n in by_workload}}
        lines.append("%-19s" % mode + "".join(f"{means[c]:8.3f}" for c in means) +
                     f"   {statistics.median(ordered):g}, {p95:g}; {out['modes'][mode]['within_8']} workloads within 8, "
                     f"{out['modes'][mode]['within_32']} within 32")
    lines += ["", "sign tests over workloads and seeds (wins : losses, two-sided p):"]
    parts = [("model", mode) for mode in out["modes"] if mode.startswith("model-")]  # what each part is worth
    for one, other in [("model", "random"), ("model", "learned"), ("learned", "random"), ("draft", "random"), *parts]:
        row = []
        for count in (c for c in COUNTS if c <= flags.trials):
            pairs = [(at(curves[one, w, s], count), at(curves[other, w, s], count)) for m, w, s in curves
                     if m == one and (other, w, s) in curves]
            wins, losses = sum(a > b * 1.002 for a, b in pairs), sum(b > a * 1.002 for a, b in pairs)
            if pairs:
                row.append({"trials": count, "wins": wins, "losses": losses, "p": sign_test(wins, losses)})
        if row:
            out.setdefault("sign_tests", {})[f"{one} against {other}"] = row
            lines.append(f"  {one} against {other}: " +
                         ", ".join(f"@{r['trials']} {r['wins']}:{r['losses']} p={r['p']:.1g}" for r in row))
    lines += ["", "median over seeds by workload:"]
    for mode, result in out["modes"].items():
        lines.append(f"  {mode}")
        lines += ["    %-18s" % n + "".join(f"{v:7.3f}" for v in c) + f"   95 % at {result['trials_to_95'][n]:g}"
                  for n, c in result["curves"].items()]
    return out, "\n".join(lines) + "\n"


def clean(value):
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, list):
        return [clean(v) for v in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "best-known", "peers", "ablate", "report"))
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "trials")
    parser.add_argument("--runs", default="runs.txt", help="file of runs in the store")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--mode", nargs="+", help=" ".join(dict.fromkeys(MODES + ABLATIONS)))
    parser.add_argument("--output", type=Path, help="without its ending")
    flags = parser.parse_args()
    ablate = flags.command == "ablate"
    flags.mode = flags.mode or list(ABLATIONS if ablate else MODES)
    flags.output = flags.output or RESULTS / ("ablations" if ablate else "trials")
    flags.store.mkdir(parents=True, exist_ok=True)
    flags.trials = flags.trials or (2000 if flags.command == "best-known" else 64)
    flags.seeds = flags.seeds or (3 if ablate else 5)
    if flags.command == "best-known":
        return long_searches(flags)
    if flags.command == "peers":
        return race_peers()
    if flags.command != "report":
        for mode in flags.mode:
            driver("run", "--store", flags.store, "--runs", flags.store / flags.runs, "--mode", mode, "--trials", flags.trials,
                   "--first-seed", 1, "--seeds", flags.seeds)
        driver("finals", "--store", flags.store)
        update_best_known(flags.store)
    result, text = report(flags)
    flags.output.with_suffix(".json").write_text(json.dumps(clean(result), indent=1) + "\n")
    flags.output.with_suffix(".txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
