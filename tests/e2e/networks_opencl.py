#!/usr/bin/env python3
"""Networks, narrow and small, compiled for OpenCL with default schedules and run on the machine's
device: the same bounds as on the processor (networks_quick.py). DQN again from Python; DQN tuned by a real tracker,
tuner and agent, whose records know the driver's compiler. With --long all networks, and MobileNet is tuned: minutes, in which a busy
machine may quarantine the only device. ResNet-18 runs on Vulkan without it (networks_vulkan.py)."""
# Measures: a device is used in it, and no time is judged.

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from device_networks import DeviceNetworks  # noqa: E402
from network_check import NAMES  # noqa: E402

QUICK = ("mobilenet", "lstm_lm", "bert_small", "dqn")
# Of all kernels of a network together, defaults included.
TRIALS = {"dqn": 12, "mobilenet": 40}

if __name__ == "__main__":
    is_long = "--long" in sys.argv
    DeviceNetworks("opencl", "opencl-c-1.2").run(NAMES if is_long else QUICK, TRIALS if is_long else {"dqn": TRIALS["dqn"]})
