"""Other nodes as a test wants them: each connection is served by a function that may do everything wrong."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pybroker.base.address import Address
from pybroker.network.answers import encode_answer
from pybroker.network.headers import read_header, table_of
from pybroker.protocol.api_table import API_VERSIONS_KEY, APIS
from pybroker.protocol.message import Message
from pybroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

TIMEOUT_S = 10.0
TABLE = table_of({api.key: (api, api.versions) for api in APIS})


class Received(NamedTuple):
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Message


class Peer:
    """The far end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(TIMEOUT_S)

    def receive(self) -> Received:
        """The next request; EOFError if there is none."""
        frame = memoryview(self._exactly(struct.unpack(">i", self._exactly(4))[0]))
        served, correlation_id, client_id, position = read_header(TABLE, frame)
        message = served.api.request.decode(served.version, frame[position:])
        return Received(served.api.key, served.version, correlation_id, client_id, message)

    def answer(self, received: Received, message: Message) -> None:
        self.socket.sendall(encoded(received, message))

    def greet(self) -> None:
        """Answer the first request of a connection, ApiVersions: everything is served here."""
        received = self.receive()
        assert received.key == API_VERSIONS_KEY, received
        self.answer(received, everything())

    def wait_for_end(self) -> None:
        """Until the other side has closed the connection."""
        try:
            while self.socket.recv(4096):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError(f"the connection ended after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)


def encoded(received: Received, message: Message) -> bytes:
    out = bytearray()
    encode_answer(message, received.version, received.correlation_id, out, [])
    return bytes(out)


def everything() -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=api.key, min_version=api.versions.low, max_version=api.versions.high) for api in APIS]
    return ApiVersionsResponse(error_code=0, api_keys=keys)


class PeerNode:
    """A listening socket; `serve` runs on a thread for each connection, and its first failure is the test's."""

    def __init__(self, serve: Callable[[Peer], None]) -> None:
        self.connections = 0
        self.failure: BaseException | None = None
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._socket.getsockname())
        self._peers: list[Peer] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        # A thread inside accept is not woken by close.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for peer in self._peers:
            peer.socket.close()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        if self.failure is not None:
            raise self.failure

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            peer = Peer(sock)
            self._peers.append(peer)
            thread = threading.Thread(target=self._run, args=(peer,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, peer: Peer) -> None:
        try:
            self._serve(peer)
        except (EOFError, OSError):
            pass
        except BaseException as error:
            self.failure = self.failure or error
        finally:
            peer.socket.close()


@contextmanager
def peer_node(serve: Callable[[Peer], None]) -> Iterator[PeerNode]:
    node = PeerNode(serve)
    try:
        yield node
    finally:
        node.close()


def free_address() -> Address:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return Address(*sock.getsockname())
