"""A proxy before a broker's clients' listener: it notes every request that passes and whether it was answered, and may hold
requests back. The broker has to advertise the proxy's address, or clients go past it.

A thread accepts, and two a connection copy frames, one each way. What is noted is read by the test's thread at any time.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from typing import NamedTuple, Self

from pybroker.protocol.api_table import APIS

_NAMES = {api.key: api.name for api in APIS}


class Request(NamedTuple):
    api: str
    version: int


class RecordingProxy:
    """`sent` and `answered` count requests by API and version, `answers` are all frames that came back, without their length.
    It listens from the start, for a broker that comes later."""

    def __init__(self) -> None:
        self.sent: Counter[Request] = Counter()
        self.answered: Counter[Request] = Counter()
        self.answers: list[tuple[Request, bytes]] = []
        self._held_api: str | None = None
        self._still_pass = 0
        self._waiting = 0
        self._lock = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: set[socket.socket] = set()
        self._target: tuple[str, int] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            _shut(connection)

    def lead_to(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))

    def hold(self, api: str, after: int) -> None:
        """Let `after` more requests of `api` pass. The connections of later ones stand still until `release` breaks them."""
        with self._lock:
            self._held_api, self._still_pass = api, after

    def release(self) -> None:
        with self._lock:
            self._held_api = None
            self._lock.notify_all()

    def holds_back(self) -> bool:
        """Whether a request waits here, and all of its kind that passed have been answered."""
        with self._lock:
            open_requests = self.sent - self.answered
            return 0 < self._waiting == sum(count for asked, count in open_requests.items() if asked.api == self._held_api)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(self._target or ("127.0.0.1", 0))
        except OSError:
            client.close()
            return
        with self._lock:
            self._connections |= {client, broker}
        asked: dict[int, Request] = {}
        back = threading.Thread(target=self._copy_answers, args=(broker, client, asked), daemon=True)
        back.start()
        self._copy_requests(client, broker, asked)
        back.join()
        with self._lock:
            self._connections -= {client, broker}
        client.close()
        broker.close()

    def _copy_requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, Request]) -> None:
        with suppress(OSError):
            while frame := _frame(client):
                key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
                request = Request(_NAMES.get(key, str(key)), version)
                with self._lock:
                    asked[correlation_id] = request
                    self.sent[request] += 1
                if self._was_held(request.api):
                    break  # what was held back never arrives
                broker.sendall(frame)
        _shut(broker)

    def _was_held(self, api: str) -> bool:
        """Waits where `api` is to be held."""
        with self._lock:
            if api != self._held_api:
                return False
            if self._still_pass > 0:
                self._still_pass -= 1
                return False
            self._waiting += 1
            self._lock.wait_for(lambda: self._held_api is None)
            self._waiting -= 1
            return True

    def _copy_answers(self, broker: socket.socket, client: socket.socket, asked: dict[int, Request]) -> None:
        with suppress(OSError):
            while frame := _frame(broker):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                with self._lock:
                    request = asked.pop(correlation_id)
                    self.answered[request] += 1
                    self.answers.append((request, frame[4:]))
                client.sendall(frame)
        _shut(client)


def _frame(connection: socket.socket) -> bytes:
    """The next frame with its length in front; nothing at the end."""
    head = _exactly(connection, 4)
    return head + _exactly(connection, struct.unpack(">i", head)[0]) if head else b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts, missing = [], size
    while missing:
        part = connection.recv(min(missing, 1 << 16))
        if not part:
            return b""
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
