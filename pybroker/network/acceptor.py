"""The listening socket of one listener: accepts connections within the limits and hands them to network threads.

It runs on the loop of the listener's first network thread: a thread of its own would only wake to wake another. What may
not be accepted yet waits in the system's backlog (socket.listen.backlog.size), with the socket taken out of the loop.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from time import monotonic, monotonic_ns
from typing import Any, Final

from pybroker.config.listeners import Listener
from pybroker.network.gate import Gate
from pybroker.network.limits import UNTIL_ONE_ENDS
from pybroker.network.network_thread import NetworkThread
from pybroker.network.transport import do_not_pace_at_home

logger = logging.getLogger(__name__)

OS_DEFAULT: Final = -1
ACCEPTS_A_TURN: Final = 64
# How long to leave it when the process has no descriptors left, and how often to say that connections wait.
OUT_OF_RESOURCES_S: Final = 1.0
WARN_EVERY_S: Final = 10.0
_MAPPED_IPV4: Final = "::ffff:"


class ListenerError(Exception):
    """A listener that cannot be opened; the text names it and says why."""


def bind(listener: Listener, backlog: int, receive_buffer_bytes: int) -> socket.socket:
    """A listening socket; an empty host means all interfaces, of both families where the system has both."""
    family, address = _resolve(listener)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, bool(listener.host))
        if receive_buffer_bytes != OS_DEFAULT:
            # Accepted sockets inherit it; set later it would come too late for the window of the handshake.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        do_not_pace_at_home(sock, address[0])  # those that are accepted inherit it
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            reason = f"port {listener.port} is in use by another process"
        elif error.errno == errno.EACCES:
            reason = f"this user may not listen on port {listener.port}"
        elif error.errno == errno.EADDRNOTAVAIL:
            reason = f"{listener.host} is no address of this machine"
        else:
            reason = error.strerror or str(error)
        raise ListenerError(f"cannot listen on {listener}: {reason}") from error
    return sock


def _resolve(listener: Listener) -> tuple[int, Any]:
    if not listener.host:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", listener.port)
        return socket.AF_INET, ("0.0.0.0", listener.port)
    try:
        found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ListenerError(f"cannot listen on {listener}: {listener.host}: {error.strerror}") from error
    # As Java does, IPv4 first where a name has both.
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    family, _, _, _, address = found[0]
    return family, address


def peer_of(address: Any) -> tuple[str, int]:
    """Host and port; an IPv4 peer on a socket of both families is known by its IPv4 address."""
    host: str = address[0]
    return host.removeprefix(_MAPPED_IPV4) if "." in host else host, address[1]


class Acceptor:
    def __init__(
        self,
        listener: Listener,
        sock: socket.socket,
        gate: Gate,
        send_buffer_bytes: int,
        take: Callable[[socket.socket, tuple[str, int]], None],
    ) -> None:
        self.listener = listener
        self.port: int = sock.getsockname()[1]
        self._socket = sock
        self._gate = gate
        self._send_buffer_bytes = send_buffer_bytes
        self._take = take
        self._thread: NetworkThread | None = None
        self._is_listening = False
        self.is_closed = False
        self._warned_at = float("-inf")

    def start(self, thread: NetworkThread) -> None:
        """From any thread; `thread` accepts from now on."""
        self._thread = thread
        thread.post(self._listen)

    def close(self) -> None:
        """On the network thread, or before the start."""
        if not self.is_closed:
            self.is_closed = True
            self._pause()
            self._socket.close()

    def _listen(self) -> None:
        if not self._is_listening and not self.is_closed:
            assert self._thread is not None
            self._is_listening = True
            self._thread.add_reader(self._socket.fileno(), self._on_acceptable)

    def _pause(self) -> None:
        if self._is_listening:
            assert self._thread is not None
            self._is_listening = False
            self._thread.remove_reader(self._socket.fileno())

    def _on_acceptable(self) -> None:
        assert self._thread is not None
        start_ns = monotonic_ns()
        self._accept()
        self._thread.busy_ns += monotonic_ns() - start_ns

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            wait = self._gate.must_wait(self.listener.name, self._on_one_ended)
            if wait is not None:
                self._hold_back(wait.reason, None if wait.delay_ms == UNTIL_ONE_ENDS else wait.delay_ms / 1000)
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._hold_back(f"accept failed: {error.strerror}", OUT_OF_RESOURCES_S)
                return
            self._admit(sock, peer_of(address))

    def _admit(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        refusal = self._gate.enter(self.listener.name, peer[0])
        if refusal is not None:
            logger.info("refused a connection of %s:%d on %s: %s", *peer, self.listener.name, refusal)
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes != OS_DEFAULT:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        except OSError as error:
            logger.info("lost a connection of %s:%d on %s: %s", *peer, self.listener.name, error.strerror)
            sock.close()
            self._gate.leave(self.listener.name, peer[0])
            return
        self._take(sock, peer)

    def _hold_back(self, reason: str, delay_s: float | None) -> None:
        self._pause()
        if monotonic() - self._warned_at > WARN_EVERY_S:
            self._warned_at = monotonic()
            logger.warning("new connections on %s wait: %s", self.listener.name, reason)
        if delay_s is not None:
            assert self._thread is not None
            self._thread.call_later(delay_s, self._listen)

    def _on_one_ended(self) -> None:
        """From any thread."""
        assert self._thread is not None
        self._thread.post(self._listen)
