"""What the scripts that export models write next to each: inputs, what ONNX Runtime gives for them, facts.json for the lane
(../long/exported_models.py)."""

import contextlib
import json
import time

import numpy as np
import onnx

REPEATS = 5  # timed runs of ONNX Runtime, after one that is not


def runtime(path, folder, sets):
    """Writes what ONNX Runtime gives for each set of inputs; its median time in microseconds for the first, on one thread."""
    import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
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
