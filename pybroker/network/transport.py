"""How the bytes of a connection come and go: the seam where TLS takes its place beside the plain socket.

Run by the connection's network thread only. Nothing blocks: BlockingIOError says that the socket is not ready.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import Any, Final, Protocol

from pybroker.network.answers import Slice

_MORE: Final = getattr(socket, "MSG_MORE", 0)  # where there is none, an answer may leave in one packet more

_ENDED: Final[int] = getattr(select, "POLLRDHUP", 0)

# What the system holds for one connection at most, until it is read here.
MAX_RECEIVE_ROOM: Final = 1024 * 1024
_WINDOW_CLAMP: Final[int] = getattr(socket, "TCP_WINDOW_CLAMP", 0)

_CONGESTION: Final[int] = getattr(socket, "TCP_CONGESTION", 0)
_NAME_BYTES: Final = 16
PACING: Final = b"bbr"
NOT_PACING: Final = b"reno"  # every Linux has it, and lets everybody choose it


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

    def make_receive_room(self, size: int) -> None:
        """Let the system hold at least so many bytes that have not been received here yet, if it can, within bounds."""
        ...

    def error(self) -> int:
        """What the system found wrong with the connection, as an errno; 0 for nothing."""
        ...

    def has_ended(self) -> bool:
        """Whether nothing more will come from the peer but what has come already; reads nothing."""
        ...

    def close(self) -> None: ...


class PlainTransport:
    __slots__ = ("_receive_room", "_socket", "fd", "receive_into", "send")

    def __init__(self, sock: socket.socket, receive_room: int = MAX_RECEIVE_ROOM) -> None:
        """`receive_room` is what the system was told to hold so far; what it was not told it finds out itself."""
        self._socket = sock
        self._receive_room = receive_room
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

    def make_receive_room(self, size: int) -> None:
        size = min(size, MAX_RECEIVE_ROOM)
        if size > self._receive_room:
            self._receive_room = size
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
                if _WINDOW_CLAMP:
                    # What the peer is told it may send was bounded when the connection began.
                    self._socket.setsockopt(socket.IPPROTO_TCP, _WINDOW_CLAMP, size)

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


def do_not_pace_at_home(sock: socket.socket, host: str) -> None:
    """Before `sock` listens at or connects to the address `host`. Where both ends are on this machine there is no path whose
    speed could be found out: a congestion control that paces what it sends, if the system chose one, does nothing but set
    timers. Without them a tenth less CPU goes into replication among nodes of one machine, and into fetches of several
    consumers. Other connections are left as the system wants them."""
    if not _CONGESTION or not (host == "::1" or host.startswith("127.")):
        return
    with suppress(OSError):  # it costs a little more then
        chosen = sock.getsockopt(socket.IPPROTO_TCP, _CONGESTION, _NAME_BYTES)
        if chosen.rstrip(b"\0") == PACING:
            sock.setsockopt(socket.IPPROTO_TCP, _CONGESTION, NOT_PACING)
