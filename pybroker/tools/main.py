"""The `pybroker` command line. A subcommand's module is imported only when it is the one that runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from pybroker import __version__

COMMANDS = {
    "start": "start a node",
    "cluster": "start a cluster of nodes on this machine, for development",
    "storage": "format the directories of a node, or show what they are",
    "config": "describe the keys of server.properties, or check a file",
    "ping": "ask a node whether it serves clients",
    "transactions": "list and describe transactions, find and abort those that hang",
    "protocol": "list the APIs, encode and decode their messages",
}


def main(argv: Sequence[str] | None = None) -> int:
    args = sys.argv[1:] if argv is None else list(argv)
    name = next((arg for arg in args if not arg.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="pybroker", description="A Kafka-compatible broker.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"pybroker {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command, summary in COMMANDS.items():
        subparser = commands.add_parser(command, help=summary, description=summary, allow_abbrev=False)
        if command == name:
            tool = import_module(f"pybroker.tools.{command}")
            tool.add_arguments(subparser)
            subparser.set_defaults(run=tool.run)
    options = parser.parse_args(args)
    try:
        return int(options.run(options))
    except BrokenPipeError:
        # The reader of our pipe (head, grep -q) has seen enough.
        sys.stderr.close()
        return 141
    except KeyboardInterrupt:
        return 130
