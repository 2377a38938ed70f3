"""What the reactor costs the broker's process per request, over real sockets: CPU of user and system together. Printed.

SECONDS is how long each row is measured (2 unless told).
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from perf.measure import report

pytestmark = pytest.mark.perf

SECONDS = float(os.environ.get("SECONDS", "2"))
CONNECTIONS = 10
IN_FLIGHT = 5
CLIENT_ID = b"measurement"


def frame(key: int, version: int, body: bytes, *, is_flexible: bool) -> bytes:
    header = struct.pack(">hhih", key, version, 7, len(CLIENT_ID)) + CLIENT_ID + (b"\0" if is_flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


SMALL = frame(18, 2, b"", is_flexible=False)
PRODUCE_1K = frame(0, 9, bytes(1024), is_flexible=True)
PRODUCE_16K = frame(0, 9, bytes(16 * 1024), is_flexible=True)
FETCH_16K = frame(1, 12, bytes(60), is_flexible=True)


@contextmanager
def serving(loop: str, placement: str = "auto", hops: str = "inline") -> Iterator[tuple[int, int]]:
    script = Path(__file__).with_name("network_server.py")
    environment = {**os.environ, "PYBROKER_EVENT_LOOP": loop}
    with subprocess.Popen(
        [sys.executable, str(script), placement, hops], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.pid, int(process.stdout.readline())
        process.stdin.close()
        assert process.wait(20) == 0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drive(port: int, request: bytes, seconds: float) -> int:
    """Keeps IN_FLIGHT requests on each of CONNECTIONS; how many were answered."""
    selector = selectors.DefaultSelector()
    batch = request * IN_FLIGHT
    buffer = bytearray(1 << 20)
    clients = []
    for _ in range(CONNECTIONS):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(request)
        answer = 4 + struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))[0]
        client.recv_into(buffer, answer - 4, socket.MSG_WAITALL)
        client.sendall(batch)
        selector.register(client, selectors.EVENT_READ, [answer * IN_FLIGHT])
        clients.append(client)
    answered = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for key, _ in selector.select():
            left: list[int] = key.data
            client = key.fileobj  # type: ignore[assignment]
            left[0] -= client.recv_into(buffer)
            if left[0] == 0:
                left[0] = answer * IN_FLIGHT
                answered += IN_FLIGHT
                client.sendall(batch)
    for client in clients:
        client.close()
    selector.close()
    return answered


def measure(what: str, request: bytes, loop: str, bar: float | None = None, **options: str) -> None:
    with serving(loop, **options) as (pid, port):
        drive(port, request, 0.3)
        best = float("inf")
        rate = 0.0
        for _ in range(3):
            before = cpu_seconds(pid)
            start = time.monotonic()
            answered = drive(port, request, SECONDS / 2)
            rate = max(rate, answered / (time.monotonic() - start))
            best = min(best, (cpu_seconds(pid) - before) / answered * 1e6)
    report(f"{what}, {loop}, {rate:,.0f}/s", best, "µs CPU", bar)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_cpu_of_a_request_handled_on_the_network_thread(loop: str) -> None:
    print(f"\n  {CONNECTIONS} connections, {IN_FLIGHT} in flight each")
    measure("ApiVersions", SMALL, loop, bar=8)
    measure("1 KiB request", PRODUCE_1K, loop)
    measure("16 KiB request", PRODUCE_16K, loop)
    measure("answer with 16 KiB of a file", FETCH_16K, loop)


def test_cpu_of_a_request_that_hops() -> None:
    print()
    measure("ApiVersions by a handler thread", SMALL, "uvloop", hops="hops")


def test_cpu_with_three_network_threads() -> None:
    print()
    measure("ApiVersions, three network threads", SMALL, "uvloop", placement="round-robin")
