#!/usr/bin/env python3
"""10,000 random graphs of every operator (../differential/random_graph_test.cc): the passes, each pass alone, some of them left
out, and compiled modules compute what the graph interpreter computes; and as many of which one size is open
(../differential/random_open_graph_test.cc), at sizes from 0 or 1 on. Writes tests/results/random_graphs.json; exit code 1 after a
difference, which the test has shrunk."""

import argparse
import sys

import seeded_lane
from lane import ROOT


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    seeded_lane.arguments(parser, "random_graphs", 10_000, 500, 1000, ROOT)
    return seeded_lane.run(parser.parse_args(), "random_graphs", "random_graph_test", "random_open_graph_test")


if __name__ == "__main__":
    sys.exit(main())
