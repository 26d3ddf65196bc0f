#!/usr/bin/env python3
"""One fleet with a processor, an OpenCL device and a board of another architecture, and jobs for all three at the same
time: each trial is measured by a device of its job's kind, in that device's unit, and no record crosses classes."""
# Measures: a device is used in it, and no time is judged.

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import board  # noqa: E402
from fleet import Fleet, make_models, run_checks, skip, wait_for  # noqa: E402

TRIALS = 6
UNITS = {"cpu": "wall_ns", "gpu": "device_ns", "board": "virtual_cycles"}  # by the devices' names


def ready(fleet):
    """The agent's devices that answer, by name, once all three are known."""
    def all_known():
        devices = {d["name"].rsplit("-", 1)[-1]: d for d in fleet.cli_json("devices", "list", *fleet.server())}
        if "no OpenCL device" in str(devices.get("gpu")):
            skip("no OpenCL device")
        return devices if set(devices) == set(UNITS) and all(d["health"] == "good" for d in devices.values()) else None
    return wait_for("three devices", all_known, 120)


def no_record_crosses_classes():
    devices = ["cpu,name=cpu,cores=0", "opencl,name=gpu,cores=1", board.device(board.counting_bridge())]
    with Fleet(devices=devices) as fleet, tempfile.TemporaryDirectory(prefix="tilewright-mixed-") as folder:
        model = make_models(folder, "dqn", "--size", 61, "--width", 0.3, "--seed", 3) / "dqn/model.onnx"
        fleet.start_all()
        ready(fleet)
        jobs = {}
        for name, target in (("cpu", fleet.target), ("gpu", "opencl"), ("board", board.TARGET)):
            fleet.target = target
            jobs[name] = fleet.submit(model, TRIALS)
        classes = {}
        for name, job in jobs.items():
            ended = fleet.wait_job(job)
            assert ended["state"] == "SUCCEEDED", ended
            records = fleet.export(job=job)
            searched = {r["trial"] for r in records if r["generated_by"] != "final"}
            assert len(searched) == TRIALS, records  # a noisy one has several records
            assert {r["outcome"] for r in records} <= {"OK", "EARLY_STOPPED"}, records
            assert {r["device"]["name"].rsplit("-", 1)[-1] for r in records} == {name}, records
            assert {r["value_kind"] for r in records if r["outcome"] == "OK"} == {UNITS[name]}, records
            (classes[name],) = {r["device"]["class"] for r in records}
        assert len(set(classes.values())) == len(jobs), classes


if __name__ == "__main__":
    board.build()
    run_checks(no_record_crosses_classes)
