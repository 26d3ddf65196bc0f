#!/usr/bin/env python3
"""The long lane of bad networks: 100 seeds of tests/fault/network_fault_test.cc, each a fleet of its own
behind links that delay, stall, narrow, refuse and cut. Writes tests/results/network_faults.json.
"""

import argparse
import sys

from lane import ROOT
import seeded_lane


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    seeded_lane.arguments(parser, "network_faults", 100, 1, 1000, ROOT)
    return seeded_lane.run(parser.parse_args(), "network_faults", "network_fault_test")


if __name__ == "__main__":
    sys.exit(main())
