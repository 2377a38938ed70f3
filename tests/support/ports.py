"""Ports for servers of a test that come and go: below those that the system gives to outgoing connections, which could else
take the port of a server while it is down."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

_RANGE = range(20_000, 32_000)


def server_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, one behind the other."""
    for port in random.sample(_RANGE, 1000):
        with ExitStack() as probes:
            try:
                for number in range(port, port + count):
                    probes.enter_context(socket.create_server(("127.0.0.1", number)))
            except OSError:
                continue
            return list(range(port, port + count))
    raise AssertionError(f"no {count} ports are free")
