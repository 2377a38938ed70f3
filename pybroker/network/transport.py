"""How the bytes of a connection come and go: the seam where TLS takes its place beside the plain socket.

Run by the connection's network thread only. Nothing blocks: BlockingIOError says that the socket is not ready.
"""

from __future__ import annotations

import os
import select
import socket
from typing import Any, Final, Protocol

from pybroker.network.answers import Slice

_MORE: Final = getattr(socket, "MSG_MORE", 0)  # where there is none, an answer may leave in one packet more

_ENDED: Final[int] = getattr(select, "POLLRDHUP", 0)


class Transport(Protocol):
    fd: int

    def receive_into(self, buffer: memoryview, /) -> int: ...
    def receive_scattered(self, buffers: list[memoryview], /) -> int: ...
    def send(self, data: Any, /) -> int: ...
    def send_slice(self, part: Slice, start: int, /) -> int:
        """Of `part`, from its byte `start` on, as much as goes now; 0 when the file has fewer bytes than it should."""
        ...

    def send_more(self, data: Any, /) -> int:
        """Like `send`, of what need not leave before the next bytes, which follow at once."""
        ...

    def make_room(self, size: int) -> None:
        """Let the system take at least so many bytes that the peer has not taken yet, if it can."""
        ...

    def error(self) -> int:
        """What the system found wrong with the connection, as an errno; 0 for nothing."""
        ...

    def has_ended(self) -> bool:
        """Whether nothing more will come from the peer but what has come already; reads nothing."""
        ...

    def close(self) -> None: ...


class PlainTransport:
    __slots__ = ("_socket", "fd", "receive_into", "send")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.fd = sock.fileno()
        # Bound once: on these two every request passes.
        self.receive_into = sock.recv_into
        self.send = sock.send

    def receive_scattered(self, buffers: list[memoryview]) -> int:
        return os.readv(self.fd, buffers)

    def send_slice(self, part: Slice, start: int) -> int:
        return os.sendfile(self.fd, part.file.fileno(), part.position + start, part.length - start)

    def send_more(self, data: Any) -> int:
        return self.send(data, _MORE)

    def make_room(self, size: int) -> None:
        # The system takes twice what it is told, for its own needs, and tells that.
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 2 * size:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    def error(self) -> int:
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def has_ended(self) -> bool:
        if _ENDED:
            poll = select.poll()
            poll.register(self.fd, _ENDED)
            return bool(poll.poll(0))
        # Where the system cannot tell, an end behind bytes that are not read yet is not seen.
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()
