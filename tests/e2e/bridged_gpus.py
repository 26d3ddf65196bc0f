#!/usr/bin/env python3
"""Phones' GPUs as the fleet reaches them: an OpenCL and a Vulkan device at the far end of bridges, where a worker of its own
finds the driver. Jobs of both kinds are measured there, and a job for the GPU of a phone's maker takes neither of them."""
# Measures: a device is used in it, and no time is judged.

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from fleet import BIN, Fleet, make_models, run_checks, skip, wait_for  # noqa: E402

TRIALS = 4
KINDS = {"phone": "opencl", "tablet": "vulkan"}  # by the devices' names


def ready(fleet):
    def all_known():
        devices = {d["name"].rsplit("-", 1)[-1]: d for d in fleet.cli_json("devices", "list", *fleet.server())}
        for kind, name in (("OpenCL", "phone"), ("Vulkan", "tablet")):
            if f"no {kind} device" in str(devices.get(name)):
                skip(f"no {kind} device")
        return devices if set(devices) == set(KINDS) and all(d["health"] == "good" for d in devices.values()) else None
    return wait_for("two devices behind bridges", all_known, 120)


def devices_behind_bridges_are_tuned_for():
    # A shell between agent and worker, as adb's: the agent has no other way to the devices.
    devices = [f"{kind},name={name},bridge=sh -c 'exec {BIN / 'tilewright-worker'}'" for name, kind in KINDS.items()]
    with Fleet(devices=devices) as fleet, tempfile.TemporaryDirectory(prefix="tilewright-bridged-") as folder:
        model = make_models(folder, "dqn", "--size", 61, "--width", 0.3, "--seed", 5) / "dqn/model.onnx"
        fleet.start_all()
        found = ready(fleet)
        jobs = {}
        for name, kind in KINDS.items():
            assert found[name]["attributes"]["kind"] == kind, found[name]
            fleet.target = kind
            jobs[name] = fleet.submit(model, TRIALS)
        for name, job in jobs.items():
            ended = fleet.wait_job(job)
            assert ended["state"] == "SUCCEEDED", ended
            records = fleet.export(job=job)
            assert len({r["trial"] for r in records if r["generated_by"] != "final"}) == TRIALS, records
            assert {r["outcome"] for r in records} <= {"OK", "EARLY_STOPPED"}, records
            assert {r["device"]["name"].rsplit("-", 1)[-1] for r in records} == {name}, records
        for target in ("opencl,config=valhall", "vulkan,config=adreno"):
            fleet.target = target
            job = fleet.submit(model, TRIALS)
            wait_for("a job without a device", lambda: f"no device that satisfies {target}" in str(fleet.job(job)), 60)
            fleet.cli("jobs", "cancel", job, *fleet.server())
            assert not fleet.export(job=job)


if __name__ == "__main__":
    run_checks(devices_behind_bridges_are_tuned_for)
