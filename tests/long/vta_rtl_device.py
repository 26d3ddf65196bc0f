"""A layer on the RTL device of the accelerator's plug-in, for the lane vta_rtl.py: `tilewright run` on it gives the outputs of
the cycle model and of NumPy, bit for bit; agents measure on both, and equal programs take cycles that differ by 2 % at most.
TILEWRIGHT_PLUGIN_DIR names the folder of a plug-in with the RTL.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "e2e")]
from fleet import Fleet, wait_for  # noqa: E402
from network_check import command  # noqa: E402
from vta import CYCLE_MODEL, Convolution, outputs_on  # noqa: E402

import numpy as np  # noqa: E402
import onnx  # noqa: E402

RTL, RTL_CLASS, RTL_INDEX = "vta rtl", "vta-vta-rtl@rtl_cycles", 2
TRIALS, MOST_DIFFERENCE = 4, 0.02
LAYERS = (("block8", Convolution(24, 32, 9, 2, 0.0004)), ("block16", Convolution(32, 48, 12, 1, 0.0004)),
          ("block32", Convolution(64, 32, 8, 2, 0.0012, kernel=1)))


def check_outputs(model, folder, config, convolution):
    module = Path(folder) / "m.tw"
    command("compile", model, "--target", f"vta,config={config}", "-o", module)
    expected = convolution.expected()
    assert len(np.unique(expected)) > 12, "outputs that hardly differ tell nothing"
    for device in (RTL, "vta cycle model"):
        assert np.array_equal(outputs_on(module, folder, device, x=convolution.x), expected), (config, device)


def cycles_of(fleet, model, config, pool):
    """The measured cycles of each program of the layer."""
    fleet.target = f"vta,config={config}"
    job = fleet.submit(model, TRIALS, extra=("--pool", pool))
    ended = fleet.wait_job(job, timeout=240)
    assert ended["state"] == "SUCCEEDED", ended
    records = fleet.export(job=job)
    assert {r["device"]["class"] for r in records} == {pool}, records
    assert {r["outcome"] for r in records} <= {"OK", "EARLY_STOPPED"}, records
    found = {}
    for record in records:
        found.setdefault(record["program_hash"], set()).update(record["samples"])
    assert all(len(values) == 1 for values in found.values()), f"equal programs take equal cycles: {found}"
    return {program: values.pop() for program, values in found.items()}


def layers_agree():
    """A row for each configuration; AssertionError at a difference."""
    rows = []
    devices = ["vta,name=cycles,cores=0", f"vta,name=rtl,index={RTL_INDEX},cores=1"]
    with Fleet(devices=devices) as fleet, tempfile.TemporaryDirectory(prefix="tilewright-vta-") as folder:
        fleet.start_all()

        def both_good():
            known = fleet.cli_json("devices", "list", *fleet.server())
            return known if len(known) == 2 and all(d["health"] == "good" for d in known) else None

        classes = {d["pool"] for d in wait_for("two devices", both_good, 120)}
        assert classes == {CYCLE_MODEL, RTL_CLASS}, classes
        for config, convolution in LAYERS:
            model = Path(folder) / f"{config}.onnx"
            onnx.save(convolution.model(), model)
            check_outputs(model, folder, config, convolution)
            modelled, real = (cycles_of(fleet, model, config, pool) for pool in (CYCLE_MODEL, RTL_CLASS))
            both = modelled.keys() & real.keys()
            assert both, "both devices measure the default schedule"
            differences = [abs(modelled[p] - real[p]) / real[p] for p in both]
            assert max(differences) <= MOST_DIFFERENCE, (config, modelled, real)
            rows.append({"config": config, "programs": len(both), "cycles": min(real.values()),
                         "most_difference": round(max(differences), 5)})
            print(f"{config}: {rows[-1]}", flush=True)
    return rows


if __name__ == "__main__":
    layers_agree()
