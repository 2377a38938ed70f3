"""`pybroker start`: the node itself, which is not built yet."""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("properties", nargs="?", metavar="FILE", help="a server.properties file")


def run(args: argparse.Namespace) -> int:
    print("pybroker: the broker is not built yet; README.md lists what works today", file=sys.stderr)
    return 1
