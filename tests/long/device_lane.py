"""The lanes of devices whose driver compiles: random programs, schedules and points of the search's spaces on the machine's
device, whole networks in full size, and small ones tuned by real daemons."""

import subprocess
import sys
import tempfile

import row_lane
import seeded_lane
from lane import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))
from fleet import BIN, PYTHON  # noqa: E402
from network_check import NAMES, SHARED, check, text  # noqa: E402

CHUNKS = 25
FIRST_SEED = 50_000_000  # the CI lane's are small


class DeviceLane:
    """The parts of a lane of the kind's name."""

    def __init__(self, kind):
        self.kind = kind

    def random_chunk(self, name, flags):
        seed, counts = FIRST_SEED + int(name), {}
        failure = seeded_lane.run_chunk(BIN / f"random_{self.kind}_test", seed, flags.rounds, counts, "")
        row = {"good": failure is None, "seed": seed, "rounds": flags.rounds, "counts": counts}
        return row if failure is None else dict(row, failure=failure)

    def network(self, name, _):
        if not (SHARED / "models/golden").is_dir():
            print(f"[SKIP] {SHARED}/models/golden is not there: golden outputs are NOT compared")
        with tempfile.TemporaryDirectory(prefix=f"tilewright-{self.kind}-") as folder:
            row = check(name, (), folder, targets={self.kind: (self.kind, 1)})
        print(text(row), flush=True)
        return row

    @staticmethod
    def tuning(name, _):
        done = subprocess.run([PYTHON, ROOT / "tests/e2e" / f"{name}.py", "--long"], capture_output=True, text=True, check=False)
        print(done.stdout, end="", flush=True)
        row = {"good": done.returncode == 0, "result": (done.stdout.strip().splitlines() or [""])[-1]}
        return row if row["good"] else dict(row, failure=(done.stdout + done.stderr)[-5000:])

    def parts(self):
        return {"random": (tuple(f"{i:02d}" for i in range(CHUNKS)), self.random_chunk), "networks": (NAMES, self.network),
                "tuning": ((f"networks_{self.kind}",), self.tuning)}


def main(kind, description, more_parts, rounds):
    """Runs the lane; `more_parts` are those that only this kind has."""
    row_lane.main(kind, description, {**DeviceLane(kind).parts(), **more_parts},
                  lambda parser: parser.add_argument("--rounds", type=int, default=rounds))
