#!/usr/bin/env python3
"""OpenCL in full, on the machine's device:

    random      random programs, random schedules for groups of threads, and random points of the search's spaces against the
                interpreter (../differential/random_opencl_test.cc); 25 chunks, in each 20 of each kind
    networks    the seven networks in full size, compiled and run, against NumPy (and the golden outputs of ../shared)
    tuning      ../e2e/networks_opencl.py --long: small networks; DQN and MobileNet tuned by real daemons

    TILEWRIGHT_BUILD_DIR=build/release tests/long/opencl.py [--rounds N] [--again] [PART[:ROW] ...]

PART:ROW is one row of a part, as in networks:dqn or random:07. Each row is written to tests/results/opencl.json when it is
done. A run continues where an earlier one of the same commit ended; --again measures rows anew. The driver compiles every
kernel for a second: all takes about an hour. Exit code 1 when a bar is missed."""

import device_lane

if __name__ == "__main__":
    device_lane.main("opencl", __doc__, {}, rounds=20)
