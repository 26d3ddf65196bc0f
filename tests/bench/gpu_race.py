#!/usr/bin/env python3
"""Kernels and networks on an NVIDIA GPU beside the vendor's libraries (through PyTorch), in one run on one machine.

    gpu_race.py [--ways default,predicted,tuned] [--trials N] [--groups NAME,...] [--cases NAME,...] [--list] [-o RESULTS.json]

Groups: products (fp32, tf32, fp16, int8), odd products, convolutions (those of the seven networks), networks (batch 1 and 16).
A case is compiled in several ways: by default schedules, by those that the estimate predicts, and tuned by `tilewright tune` with
N trials. Each runs, and is compared with the peer's result in double precision. The peer is PyTorch with cuBLAS and cuDNN, its
calls in a CUDA graph; of networks also what torch.compile makes of them, and the faster one counts. Products and convolutions
are timed on the device, networks from their input on the host to their output there; times are medians of several rounds in
which both take turns. A ratio above 1 is ours being faster. RESULTS.html, next to RESULTS.json, has the pictures. Without a GPU,
its driver or PyTorch it says [SKIP].
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("models", "support")]

ROUNDS, REPEAT = 3, 20
ARCHITECTURES = {(8, 0): "sm_80", (9, 0): "sm_90a"}


def missing():
    """Why there is no race here; None if there is one."""
    try:
        import torch
    except ImportError:
        return "no PyTorch to race against"
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() not in ARCHITECTURES:
        return "no NVIDIA GPU of a kind that a target names"
    try:
        import numpy  # noqa: F401
        import onnx  # noqa: F401
    except ImportError as error:
        return f"{error}; models are made with it"
    return None


def tilewright(*words):
    from fleet import BIN
    done = subprocess.run([BIN / "tilewright", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"tilewright {' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def captured(torch, function, on_device, times):
    """So many calls as one graph, and what the last one returns."""
    for _ in range(3):
        function(*on_device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            output = function(*on_device)
    return graph, output


class Peer:
    """Times a function of PyTorch by events, many calls in one graph."""

    def __init__(self, torch, function, feeds):
        self.torch = torch
        self.graph, _ = captured(torch, function, [feed.cuda() for feed in feeds], REPEAT)

    def ns(self):
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.graph.replay()
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e6 / REPEAT


class WholePeer:
    """Times runs of a network, a graph each, with the copies of input and output."""

    def __init__(self, torch, function, feeds):
        self.feeds, self.on_device = [feed.pin_memory() for feed in feeds], [feed.cuda() for feed in feeds]
        self.graph, self.output = captured(torch, function, self.on_device, 1)

    def run(self):
        for target, feed in zip(self.on_device, self.feeds):
            target.copy_(feed, non_blocking=True)
        self.graph.replay()
        return self.output.cpu()

    def ns(self):
        self.run()
        times = []
        for _ in range(REPEAT):
            start = time.perf_counter_ns()
            self.run()
            times.append(time.perf_counter_ns() - start)
        return statistics.median(times)


def peers_of(torch, case, model, feeds):
    """By name. torch.compile may lack what it needs (a C++ compiler, Triton); then PyTorch alone is the peer."""
    from torch_graph import TorchGraph
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.dtype == "tf32"
    torch.backends.cudnn.benchmark = True  # the fastest of cuDNN's algorithms
    function = TorchGraph(torch, model, "cuda")
    if not case.is_network:
        return {"torch": Peer(torch, function, feeds)}
    peers = {"torch": WholePeer(torch, function, feeds)}
    try:
        peers["torch.compile"] = WholePeer(torch, torch.compile(function), feeds)
    except Exception as error:  # of any kind: its compilers' own
        print(f"        {case.name}: no torch.compile: {str(error).splitlines()[0][:160]}", file=sys.stderr)
    return peers


def ours_ns(case, module, inputs):
    """Device time of all kernels of a run; of a network the time of a run."""
    if case.is_network:
        return 1e6 * json.loads(tilewright("run", module, *inputs, "--repeat", REPEAT, "-o", "json"))["latency_ms"]["median"]
    report = json.loads(tilewright("run", module, *inputs, "--repeat", REPEAT, "--profile", "-o", "json"))
    return 1e3 * sum(k["median_us"] for k in report["kernels"])


def race(torch, case, options, folder):
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from torch_graph import TorchGraph
    model = case.model(folder)
    feeds, path, inputs = case.inputs(np.random.default_rng(1)), folder / "model.onnx", []
    onnx.save(model, str(path))
    for name, value in feeds.items():
        file = folder / f"{name}.pb"
        file.write_bytes(numpy_helper.from_array(value, name).SerializeToString())
        inputs += ["--input", f"{name}={file}"]
    tensors = [torch.from_numpy(value) for value in feeds.values()]
    exact = TorchGraph(torch, model, "cuda", exact=True)
    expected = exact(*(exact.tensor(value).cuda() for value in feeds.values())).cpu().numpy()
    (folder / "expected.pb").write_bytes(numpy_helper.from_array(expected).SerializeToString())
    peers = peers_of(torch, case, model, tensors)
    target = f"cuda,arch={ARCHITECTURES[torch.cuda.get_device_capability()]}" + (",tf32=on" if case.dtype == "tf32" else "")
    return [race_way(way, case, options, folder, target, inputs, peers) for way in options.ways.split(",")]


def race_way(way, case, options, folder, target, inputs, peers):
    from gpu_cases import LIMIT
    from network_check import errors
    module, model, start = folder / f"{way}.tw", folder / "model.onnx", time.monotonic()
    if way == "tuned":
        tilewright("tune", model, "--target", target, "--trials", options.trials, "-o", module, "--log", folder / "log.db",
                   "--state-dir", folder / "state")
    else:
        tilewright("compile", model, "--target", target, "--effort", 0 if way == "default" else 20, "-o", module)
    seconds = time.monotonic() - start
    tilewright("run", module, *inputs, "--repeat", 1, "--output-dir", folder / "out")
    error, _ = errors(folder / "out/output_0.pb", folder / "expected.pb")
    ours, theirs = [], {name: [] for name in peers}
    for _ in range(ROUNDS):
        ours.append(ours_ns(case, module, inputs))
        for name, peer in peers.items():
            theirs[name].append(peer.ns())
    mine = statistics.median(ours)
    name, best = min(((name, statistics.median(times)) for name, times in theirs.items()), key=lambda pair: pair[1])
    row = {"case": case.name, "group": case.group, "way": way, "seconds": round(seconds, 1), "good": error <= LIMIT[case.dtype], "error": error,
           "peer": name, "ours_ns": mine, "peer_ns": best, "ratio": best / mine, "low": best / max(ours), "high": best / min(ours)}
    if case.flops is not None:
        row.update(ours_tflops=case.flops / mine * 1e-3, peer_tflops=case.flops / best * 1e-3)
    return row


def text_of(row):
    if "failed" in row:
        return f"{row['case']:44s} failed: {row['failed']}"
    speed = f"ours {row['ours_ns'] / 1e3:9.1f} us {row['peer']} {row['peer_ns'] / 1e3:9.1f} us"
    if "ours_tflops" in row:
        speed += f"  {row['ours_tflops']:6.1f} and {row['peer_tflops']:6.1f} TFLOP/s"
    return f"{row['case']:44s} {row['way']:10s} {row['ratio']:5.2f}x  {speed}  error {row['error']:.1e}{'' if row['good'] else '  WRONG'}"


def means_of(rows):
    """A line for each group and way."""
    from render import geometric_mean
    for group, way in sorted({(row["group"], row["way"]) for row in rows if "ratio" in row}):
        ratios = [row["ratio"] for row in rows if row.get("way") == way and row["group"] == group]
        yield f"{group}, {way}: {geometric_mean(ratios):.3f}x of {len(ratios)}, least {min(ratios):.2f}x"


def page_of(document):
    from render import bars, page
    rows = [row for row in document["rows"] if "ratio" in row]
    pictures = [bars(f"{group}, {way}", [(r["case"], r["ratio"], r["low"], r["high"], r["peer"]) for r in rows if (r["group"], r["way"]) == (group, way)],
                     label_width=320) for group, way in sorted({(r["group"], r["way"]) for r in rows})]
    return page(f"Tilewright on {document['gpu']}", f"PyTorch {document['torch']}, {document['trials']} trials.", pictures,
                "\n".join([*map(text_of, document["rows"]), "", *means_of(rows)]))


def parse():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--ways", default="default,predicted,tuned")
    flags.add_argument("--trials", type=int, default=64)
    flags.add_argument("--groups", default="", help="default: all")
    flags.add_argument("--cases", default="", help="default: all of the groups")
    flags.add_argument("--list", action="store_true", help="print the cases' names and end")
    flags.add_argument("-o", "--output", type=Path)
    return flags.parse_args()


def main():
    options = parse()
    why = None if options.list else missing()
    if why is not None:
        print(f"[SKIP] gpu_race: {why}")
        return 0
    from gpu_cases import cases
    with tempfile.TemporaryDirectory(prefix="tilewright-gpu-") as folder:
        known = cases(folder)
    names = options.cases.split(",") if options.cases else [n for n, case in known.items() if case.group in (options.groups or case.group).split(",")]
    if options.list:
        print("\n".join(names))
        return 0
    import torch
    document = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "trials": options.trials, "rows": []}
    for name in names:
        with tempfile.TemporaryDirectory(prefix="tilewright-gpu-") as folder:
            try:
                found = race(torch, known[name], options, Path(folder))
            except (RuntimeError, NotImplementedError) as failed:
                found = [{"case": name, "group": known[name].group, "good": False, "failed": str(failed)}]
        for row in found:
            print(text_of(row), flush=True)
        document["rows"] += found
        if options.output:  # a run of hours that ends early leaves what it has
            options.output.write_text(json.dumps(document, indent=1) + "\n")
            options.output.with_suffix(".html").write_text(page_of(document))
    print("\n".join(means_of(document["rows"])))
    return 0 if all(row["good"] for row in document["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
