"""What the tests of the reactor share: a server on loopback with a service made of functions, and a client of raw bytes."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from support.waiting import wait_until

from pybroker.config.broker import Config, load_text
from pybroker.network.answers import Gather
from pybroker.network.connection import Connection, Owed
from pybroker.network.loop_thread import new_event_loop
from pybroker.network.request import Request
from pybroker.network.socket_server import SocketServer
from pybroker.protocol.api_table import APIS
from pybroker.protocol.messages.api_versions import ApiVersionsResponse
from pybroker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

PROPERTIES = """
process.roles=broker
node.id=1
controller.quorum.voters=2@localhost:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:0
log.dirs=/nothing/is/written
socket.listen.backlog.size=1024
"""
TIMEOUT_S = 10.0
API_VERSIONS = 18
FETCH = 1

# The first event loop of a process takes descriptors that stay.
new_event_loop().close()


def config(**settings: object) -> Config:
    """`max_connections=3` sets max.connections."""
    overrides = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    return loaded(overrides)


def loaded(overrides: list[str]) -> Config:
    result = load_text(PROPERTIES, "test", overrides)
    assert result.config is not None, result.problems
    return result.config


def all_apis(listener: str) -> dict[int, Any]:
    return {api.key: (api, api.stable_versions) for api in APIS}


def answer(request: Request) -> None:
    request.respond(ApiVersionsResponse(error_code=0, api_keys=[]))


def fetched(*records: object) -> FetchResponse:
    """A partition for each."""
    partitions = [
        PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=0,
            last_stable_offset=0,
            log_start_offset=0,
            aborted_transactions=None,
            records=one,
        )
        for index, one in enumerate(records)
    ]
    topic = FetchableTopicResponse(topic="t", partitions=partitions)
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])


class FakeService:
    """Answers at once, unless a test puts another function in its place; remembers what it has seen."""

    def __init__(self, handle: Callable[[Request], bool | None] | None = None) -> None:
        self._handle = handle
        self.seen: list[tuple[int, bool, str]] = []  # correlation id, may_block, name of the thread

    def handle_pipelined(self, *_: object) -> int:
        return 0

    def handle(self, request: Request) -> bool:
        self.seen.append((request.correlation_id, request.may_block, threading.current_thread().name))
        if self._handle is None:
            answer(request)
            return True
        return self._handle(request) is not False


class Owing(FakeService):
    """Owes the answer to every even correlation id until the test settles it; answers the odd ones at once."""

    def __init__(self) -> None:
        super().__init__()
        self.owed: dict[int, Owed] = {}

    def handle_pipelined(self, connection: Connection, frames: Sequence[memoryview], start: int, gather: Gather) -> int:  # type: ignore[override]
        (correlation_id,) = struct.unpack_from(">i", frames[start], 4)
        if correlation_id % 2 or gather.ident != connection.thread.ident:
            return 0
        self.owed[correlation_id] = connection.owe(gather)
        return 1

    def wait_for(self, *correlation_ids: int) -> None:
        wait_until(lambda: set(correlation_ids) <= set(self.owed), TIMEOUT_S, lambda: f"handled are {list(self.owed)}")

    def settle(self, *correlation_ids: int) -> None:
        for one in correlation_ids:
            self.owed.pop(one).settle(struct.pack(">iihi", 10, one, 0, 0))


class Later:
    """Keeps requests to be answered by the test."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> bool:
        self.requests.append(request)
        return True

    def wait(self, count: int) -> None:
        wait_until(lambda: len(self.requests) >= count, TIMEOUT_S, lambda: f"{len(self.requests)} of {count} requests came")


class Client:
    def __init__(self, port: int, host: str = "127.0.0.1", receive_buffer_bytes: int | None = None) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((host, port))

    def send(self, *correlation_ids: int) -> None:
        self.socket.sendall(b"".join(map(frame, correlation_ids)))

    def receive(self) -> tuple[int, bytes]:
        """Correlation id and body of the next response."""
        size, correlation_id = struct.unpack(">ii", self._exactly(8))
        return correlation_id, self._exactly(size - 4)

    def receive_ids(self, count: int) -> list[int]:
        return [self.receive()[0] for _ in range(count)]

    def is_closed_by_server(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError(f"the connection ended after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def frame(
    correlation_id: int, key: int = API_VERSIONS, version: int = 0, client_id: bytes | None = b"test", body: bytes = b""
) -> bytes:
    """A request; the default is one whose header has no tags."""
    length = -1 if client_id is None else len(client_id)
    payload = struct.pack(">hhih", key, version, correlation_id, length) + (client_id or b"") + body
    return struct.pack(">i", len(payload)) + payload


class Running:
    def __init__(self, server: SocketServer, service: Any) -> None:
        self.server = server
        self.service = service
        self._clients: list[Client] = []

    @property
    def port(self) -> int:
        return self.server.ports()["PLAINTEXT"]

    def client(self, **options: Any) -> Client:
        client = Client(self.port, **options)
        self._clients.append(client)
        return client

    def connections(self, listener: str = "PLAINTEXT") -> int:
        return self.server.connection_count(listener)

    def queue_size(self) -> int:
        """Requests that wait for a handler thread."""
        return self.server.request_queue.waiting

    def is_full(self) -> bool:
        return self.server.request_queue.is_full

    def wait_for_connections(self, count: int) -> None:
        wait_until(lambda: self.connections() == count, TIMEOUT_S, lambda: f"{self.connections()} connections, not {count}")

    def close(self) -> None:
        self.server.stop()
        for client in self._clients:
            client.close()


@contextmanager
def running(service: Any = None, settings: Config | None = None, apis_of: Callable[[str], Any] = all_apis) -> Iterator[Running]:
    """A started server; at its end every descriptor and thread that it took is gone."""
    descriptors, threads = open_descriptors(), threading.active_count()
    service = service or FakeService()
    server = SocketServer(settings or config(), service, apis_of)
    server.bind()
    server.start()
    node = Running(server, service)
    try:
        yield node
    finally:
        node.close()
    wait_until(lambda: threading.active_count() <= threads, TIMEOUT_S, lambda: f"threads left: {threading.enumerate()}")
    wait_until(lambda: open_descriptors() <= descriptors, TIMEOUT_S, lambda: f"{open_descriptors()} fds, not {descriptors}")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def closing_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "closing the connection" in record.getMessage()]
