"""`pybroker ping`: does a node serve clients? For the health checks of containers and services, and for people.

One ApiVersions request, the one that every client begins with; exit code 0 if it is answered in time.
"""

from __future__ import annotations

import argparse
import sys
import time

from pybroker import __version__
from pybroker.client.blocking_client import BlockingClient, ClientError, check, parse_address
from pybroker.protocol.messages.api_versions import ApiVersionsRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", nargs="?", metavar="HOST:PORT", default="localhost:9092", help="(localhost:9092)")
    parser.add_argument("--timeout-ms", type=int, default=5_000, metavar="MS", help="how long to wait for an answer (5000)")


def run(args: argparse.Namespace) -> int:
    started = time.monotonic()
    try:
        address = parse_address(args.address)
        with BlockingClient(args.address, "pybroker-ping", args.timeout_ms) as client:
            request = ApiVersionsRequest(client_software_name="pybroker", client_software_version=__version__)
            answer = client.ask(address, request)
        check(answer.error_code, str(address))
    except ClientError as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 1
    print(f"{address} serves {len(answer.api_keys)} APIs, answered in {(time.monotonic() - started) * 1000:.0f} ms")
    return 0
