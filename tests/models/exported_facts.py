"""What the scripts that export models write next to each: inputs, what ONNX Runtime gives for them, facts.json for the lane
(../long/exported_models.py)."""

import contextlib
import json
import pathlib
import sys
import time

import numpy as np
import onnx

REPEATS = 5  # timed runs of ONNX Runtime, after one that is not


def open_session(path):
    """A session of ONNX Runtime on one thread."""
    import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def runtime(path, folder, sets):
    """Writes what ONNX Runtime gives for each set of inputs; its median time in microseconds for the first, on one thread."""
    session = open_session(path)
    names = [one.name for one in session.get_inputs()]
    for label, feeds in sets.items():
        for i, value in enumerate(feeds):
            np.save(folder / f"input{label}_{i}.npy", value)
        for i, value in enumerate(session.run(None, dict(zip(names, feeds)))):
            np.save(folder / f"expected{label}_{i}.npy", np.asarray(value))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        session.run(None, dict(zip(names, sets[""])))
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)[REPEATS // 2]


def difference(actual, expected):
    """The largest difference in units of the spread of what is expected; words where they cannot be compared."""
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if expected.size == 0:
        return 0.0
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    if not (finite == np.isfinite(actual)).all() or not (np.isnan(actual) == np.isnan(expected)).all():
        return "other elements are finite"
    actual, expected = actual[finite], expected[finite]
    if expected.size == 0:
        return 0.0
    spread = expected.std() if expected.std() > 1e-6 * np.abs(expected).max() else np.abs(expected).max()
    return float(np.abs(actual - expected).max() / (spread or 1.0))


def steadiness(folder, label, runs):
    """How far ONNX Runtime's own results move, as difference() has it, when each number of the inputs of a set moves to a
    neighbour: the largest of several runs per output. A model amplifies roundings as much, whoever makes them."""
    facts = json.loads((folder / "facts.json").read_text())
    session, rng = open_session(folder / "model.onnx"), np.random.default_rng(1)
    moved = [0.0] * facts["outputs"]
    for _ in range(runs):
        feeds = {}
        for i, given in enumerate(facts["inputs"]):
            value = np.load(folder / f"input{label}_{i}.npy")
            if value.dtype.kind == "f":
                value = np.nextafter(value, np.where(rng.random(value.shape) < 0.5, -np.inf, np.inf).astype(value.dtype))
            feeds[given["name"]] = value
        for i, value in enumerate(session.run(None, feeds)):
            far = difference(np.asarray(value), np.load(folder / f"expected{label}_{i}.npy"))
            moved[i] = max(moved[i], far) if isinstance(far, float) else moved[i]
    return moved


def about(path):
    """The facts that the model's file says."""
    graph = onnx.load(path).graph
    return {"operators": sorted({node.op_type for node in graph.node}), "nodes": len(graph.node), "outputs": len(graph.output),
            "inputs": [{"name": i.name, "shape": [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]}
                       for i in graph.input]}


@contextlib.contextmanager
def exporting(folder, name, form):
    """The facts of an export: whatever a package throws in it is one of them. Writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"name": name, "form": form}
    try:
        yield facts
    except Exception as error:
        facts["failure"] = f"{type(error).__name__}: {str(error)[-600:]}"
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))


def export_rows(rows, folder, make):
    """Says of each NAME:FORM what came of make(name, form, folder of the row), which gives its facts."""
    for row in rows:
        name, form = row.split(":")
        start = time.monotonic()
        facts = make(name, form, folder / f"{name}.{form}")
        print(f"{row}: {facts.get('failure', 'exported')[:160]!r} in {time.monotonic() - start:.1f} s", flush=True)


def main():
    """exported_facts.py FOLDER LABEL RUNS: steadiness() as a list in JSON, for the lane, whose Python has no ONNX Runtime."""
    folder, label, runs = sys.argv[1:]
    print(json.dumps(steadiness(pathlib.Path(folder), label, int(runs))))


if __name__ == "__main__":
    main()
