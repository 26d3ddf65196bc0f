#!/usr/bin/env python3
"""The long lane of OpenCL: random programs, random schedules for groups of threads, and random points of the
search's spaces, on the machine's device against the interpreter (../differential/random_opencl_test.cc). A round is
one of each. The driver compiles every kernel for a second: 500 rounds take about half an hour."""

import argparse
import sys

import seeded_lane
from lane import ROOT


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    seeded_lane.arguments(parser, "opencl", rounds=500, chunk=20, first_seed=50_000_000, root=ROOT)
    return seeded_lane.run(parser.parse_args(), "opencl", "random_opencl_test")


if __name__ == "__main__":
    sys.exit(main())
