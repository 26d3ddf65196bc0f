#!/usr/bin/env python3
"""Candidates that hang on the accelerator's cycle model, over tracker and agents: cycles say nothing about the wall, so a first
trial has minutes. When a good one is known, one that hangs has a limit that follows from it; the evidence is in the log, the
agent lives, and the choice is right. Takes minutes where first trials hang. Writes tests/results/vta_hangs.json.
"""

import datetime
import json
import sys
import tempfile
import time
from pathlib import Path

from lane import ROOT, commit

sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "support")]
from fleet import Fleet  # noqa: E402
from vta import CYCLE_MODEL, Product, outputs_on  # noqa: E402

import numpy as np  # noqa: E402
import onnx  # noqa: E402


def hang(result):
    with Fleet(devices=["vta"]) as fleet, tempfile.TemporaryDirectory(prefix="tilewright-vta-") as folder:
        product = Product(16, 128, 64, 0.001)
        model, module = Path(folder) / "m.onnx", Path(folder) / "m.tw"
        onnx.save(product.model(), model)
        fleet.start_all()
        fleet.target = "vta,config=block16"
        fleet.tune(model, 4, output=module, timeout=240)
        fleet.daemons["agent"].stop()
        fleet.agent_args = ("--test-faults", "seed=5,hang=.3")
        fleet.start_agent()
        # Drawn by the measurements' names, which differ from run to run: of 6 not one hangs in 1 of 8 runs.
        for seed in range(2, 7):
            job = fleet.submit(model, 6, seed=seed)
            start = time.monotonic()
            ended = fleet.wait_job(job, timeout=1200)
            took = time.monotonic() - start
            assert ended["state"] == "SUCCEEDED", ended
            hung = [r for r in fleet.export(job=job) if r["outcome"] == "RUN_TIMEOUT"]
            if hung:
                break
        assert hung, "nothing hung in 5 jobs"
        assert all(r["error_class"] == "TEST_FAULT" and "WALL_LIMIT" in r["error_detail"] for r in hung), hung
        assert any(r["outcome"] == "OK" for r in fleet.export(job=job)), "the agent measures no more"
        # 20 s and a hundred times some milliseconds, once a good one is known; 300 s before.
        outcomes = [r["outcome"] for r in fleet.export(job=job)]
        unlimited = outcomes[:outcomes.index("OK")].count("RUN_TIMEOUT")
        assert took < 300 * unlimited + 100 * len(hung), (took, outcomes)
        result.update(hung=len(hung), before_a_good_one=unlimited, seconds=round(took))
        print(f"{len(hung)} hung, {took / len(hung):.0f} s each")
        fleet.tune(model, 1, output=module, extra=("--pool", CYCLE_MODEL), timeout=1200)
        assert np.array_equal(outputs_on(module, folder, "", x=product.x), product.expected())


def main():
    result = {"lane": "vta_hangs", "commit": commit(), "date": datetime.date.today().isoformat()}
    hang(result)
    (ROOT / "tests" / "results" / "vta_hangs.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
