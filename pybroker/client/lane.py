"""One outgoing connection and the requests that wait for it: connected when there is something to send, and again after a loss.

Runs on the client's thread alone. A request fails as soon as it is known that the connection it needs is not to be had; it
does not wait for a later attempt. A request that is not answered in time takes the connection with it, as in Apache Kafka:
answers come in order, so whatever was asked after it would wait for the same answer. Between two attempts there is a pause
that grows, in which requests wait for the next attempt.

`transport_of` is where TLS goes. A SASL exchange has its place between the versions' being known and the first request.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import socket
import struct
from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from threading import Thread
from time import monotonic
from typing import Any, Final, Protocol

from pybroker.base.address import Address
from pybroker.client.exchange import Answered, AskAgain, BadResponseError, Exchange, UnsupportedError
from pybroker.client.request_error import Failure, RequestError
from pybroker.network.framing import Framer, Spares
from pybroker.network.loop_thread import LoopThread
from pybroker.network.transport import Transport, do_not_pace_at_home
from pybroker.protocol.message import Message
from pybroker.protocol.schema import Versions

logger = logging.getLogger(__name__)

JITTER: Final = 0.2
STOPS: Final = "this node stops"
ABORT: Final = struct.pack("ii", 1, 0)  # SO_LINGER, for no time

Done = Callable[[Message | RequestError], None]


class State(Enum):
    DOWN = "not connected"
    PAUSING = "waiting to connect again"
    RESOLVING = "looking up its address"
    CONNECTING = "connecting"
    GREETING = "agreeing on versions"
    READY = "connected"


@dataclass(slots=True, frozen=True)
class LaneSettings:
    client_id: str
    connection_timeout_ms: int  # from the first step of an attempt until the versions are known
    backoff_ms: int
    backoff_max_ms: int
    max_idle_ms: int
    max_in_flight: int
    max_waiting: int
    max_response_bytes: int
    transport_of: Callable[[socket.socket], Transport]


class Owner(Protocol):
    """What a lane tells its client."""

    def greeted(self, address: Address, versions: Mapping[int, Versions]) -> None: ...
    def broke(self, address: Address) -> None:
        """A connection that was ready is gone, and not because we closed it."""
        ...

    def refused(self, address: Address) -> None:
        """Nobody listens there."""
        ...


class Ask:
    """A request on its way; its `done` is called once."""

    __slots__ = ("_done", "deadline", "is_sent", "request", "timeout_ms", "versions")

    def __init__(self, request: Message, versions: Versions | None, timeout_ms: int, done: Done) -> None:
        self.request = request
        self.versions = versions
        self.timeout_ms = timeout_ms
        self.deadline = 0.0
        self.is_sent = False
        self._done = done

    def end(self, outcome: Message | RequestError) -> None:
        call(self._done, outcome)


def call(done: Callable[..., None], *arguments: object) -> None:
    """What is called back belongs to others: its failure is not the connection's."""
    try:
        done(*arguments)
    except Exception:
        logger.exception("%r failed", done)


class Lane:
    def __init__(self, thread: LoopThread, address: Address, settings: LaneSettings, owner: Owner) -> None:
        self.address = address
        self.state = State.DOWN
        self._thread = thread
        self._settings = settings
        self._owner = owner
        self._waiting: deque[Ask] = deque()
        self._attempt = 0  # counts them, so that what a former one began is known as such
        self._failures = 0  # in a row
        self._retry_at = 0.0
        self._timer: TimerHandle | None = None  # of the state
        self._candidates: list[tuple[int, Any]] = []  # family and address of the sockets to try yet
        self._was_refused = False
        self._last_active = 0.0
        # One alarm for the requests of all times, since hardly any is late: not after the first deadline among them.
        self._alarm: TimerHandle | None = None
        self._alarm_at = 0.0
        # Of the connection there is; all new with each.
        self._socket: socket.socket | None = None
        self._transport: Transport | None = None
        self._exchange: Exchange[Ask] = Exchange(settings.client_id)
        self._spares = Spares()
        self._framer = Framer(settings.max_response_bytes, self._spares, "response", believes=True)
        self._unsent = bytearray()

    # Sending

    def send(self, ask: Ask) -> None:
        ask.deadline = deadline = monotonic() + ask.timeout_ms / 1000
        if self._alarm is None or deadline < self._alarm_at:
            self._set_alarm(deadline)
        if len(self._waiting) >= self._settings.max_waiting:
            ask.end(self._error(Failure.REFUSED, f"{len(self._waiting)} requests wait for this node already"))
            return
        self._waiting.append(ask)
        if self.state is State.READY:
            self._pump()
        elif self.state is State.DOWN:
            self._connect_when_due()

    def _pump(self) -> None:
        """Send what may be sent now."""
        exchange, waiting = self._exchange, self._waiting
        out = bytearray()
        while waiting and exchange.in_flight < self._settings.max_in_flight:
            ask = waiting.popleft()
            try:
                out += exchange.ask(ask.request, ask.versions, ask)
            except UnsupportedError as error:
                ask.end(self._error(Failure.UNSUPPORTED_VERSION, str(error)))
                continue
            ask.is_sent = True
        if out:
            self._write(out)

    def _write(self, data: bytearray) -> None:
        assert self._transport is not None
        self._last_active = monotonic()
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._transport.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._on_lost(error.strerror or str(error))
            return
        if sent < len(data):
            self._unsent += memoryview(data)[sent:]
            self._thread.add_writer(self._transport.fd, self._on_writable)

    def _on_writable(self) -> None:
        assert self._transport is not None
        try:
            sent = self._transport.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._on_lost(error.strerror or str(error))
            return
        self._last_active = monotonic()
        del self._unsent[:sent]
        if not self._unsent:
            self._thread.remove_writer(self._transport.fd)

    # Connecting

    def _connect_when_due(self) -> None:
        delay = self._retry_at - monotonic()
        if delay > 0:
            self.state = State.PAUSING
            self._timer = self._thread.call_later(delay, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        settings = self._settings
        self._attempt += 1
        self._was_refused = False
        self._timer = self._thread.call_later(settings.connection_timeout_ms / 1000, self._on_attempt_too_long)
        host, port = self.address
        try:
            found = _resolve(host, port, socket.AI_NUMERICHOST)
        except OSError:
            # A name: to look it up may take long, and must not keep the other connections waiting.
            self.state = State.RESOLVING
            Thread(target=self._look_up, args=(self._attempt,), name=f"resolver-{host}", daemon=True).start()
        else:
            self._connect(found)

    def _look_up(self, attempt: int) -> None:
        """On a thread of its own."""
        found: list[tuple[int, Any]] | str
        try:
            found = _resolve(*self.address)
        except OSError as error:
            found = error.strerror or str(error)
        self._thread.post(self._on_looked_up, attempt, found)

    def _on_looked_up(self, attempt: int, found: list[tuple[int, Any]] | str) -> None:
        if self.state is not State.RESOLVING or attempt != self._attempt:
            return
        if isinstance(found, str):
            self._fail(f"the host name is not known: {found}")
        else:
            self._connect(found)

    def _connect(self, candidates: list[tuple[int, Any]]) -> None:
        (family, address), *self._candidates = candidates
        self.state = State.CONNECTING
        self._socket = sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        do_not_pace_at_home(sock, address[0])
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            self._thread.watch(sock.fileno(), self)
            self._thread.add_writer(sock.fileno(), self._on_connectable)
        else:
            self._on_connected(code)

    def _on_connectable(self) -> None:
        if self.state is not State.CONNECTING:
            return
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and not _has_peer(self._socket):
            # Meant for a socket that had the same number before.
            return
        self._thread.remove_writer(self._socket.fileno())
        self._on_connected(code)

    def _on_connected(self, code: int) -> None:
        sock = self._socket
        assert sock is not None
        if code == 0 and sock.getsockname() == sock.getpeername():
            # The system may choose the very port that nobody listens on as the local one.
            code = errno.ECONNREFUSED
        if code:
            self._was_refused |= code == errno.ECONNREFUSED
            self._close_socket()
            if self._candidates:
                self._connect(self._candidates)
            else:
                self._fail(os.strerror(code))
            return
        settings = self._settings
        self._thread.unwatch(sock.fileno())
        self._transport = transport = settings.transport_of(sock)
        self._thread.watch(transport.fd, self)
        self._thread.add_reader(transport.fd, self.on_readable)
        self._exchange = Exchange(settings.client_id)
        self._framer = Framer(settings.max_response_bytes, self._spares, "response", believes=True)
        self.state = State.GREETING
        self._write(self._exchange.hello())

    def _on_attempt_too_long(self) -> None:
        self._fail(f"still {self.state.value} after {self._settings.connection_timeout_ms:,} ms")

    def _on_greeted(self, versions: Mapping[int, Versions]) -> None:
        assert self._timer is not None
        self._timer.cancel()
        if self._failures:
            logger.info("connected to %s after %d vain attempts", self.address, self._failures)
        self._failures = 0
        self.state = State.READY
        self._owner.greeted(self.address, versions)

    # Reading

    def on_readable(self) -> None:
        transport, framer, buffer = self._transport, self._framer, self._thread.buffer
        assert transport is not None
        try:
            if framer.reads_plainly:
                count = transport.receive_into(buffer)
            else:
                count = transport.receive_scattered(framer.spaces(buffer))
            if count == 0:
                progress = framer.progress()
                self._on_lost("it was closed there" if progress is None else f"it was closed there after {progress}")
                return
            frames = framer.feed(buffer, count)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._on_lost(error.strerror or str(error))
            return
        except MemoryError:
            self._give_up(f"no memory for the rest after {framer.progress()}")
            return
        self._last_active = began = monotonic()
        thread = self._thread
        # Whoever is answered may hold locks meanwhile.
        was_handling, thread.is_handling = thread.is_handling, True
        try:
            while frames:
                frame = frames.pop(0)
                own: Any = frame.obj
                if own is buffer.obj:
                    # The next read overwrites the shared buffer, and whoever is answered may keep what it gets.
                    self._receive(memoryview(bytearray(frame)))
                else:
                    self._receive(frame)
                    del frame
                    self._spares.give_if_free(own)
                if self._transport is not transport:
                    return
        except BadResponseError as error:
            self._give_up(str(error))
            return
        finally:
            thread.is_handling = was_handling
            thread.busy_ns += int((monotonic() - began) * 1e9)
        if framer.error is not None:
            self._give_up(framer.error)
        elif self.state is State.READY:
            self._pump()

    def _receive(self, frame: memoryview) -> None:
        outcome = self._exchange.receive(frame)
        if isinstance(outcome, Answered):
            outcome.token.end(outcome.response)
        elif isinstance(outcome, AskAgain):
            self._write(outcome.hello)
        else:
            self._on_greeted(outcome.versions)

    # Ending

    def on_broken(self) -> None:
        """The system found something wrong with the socket."""
        if self.state is State.CONNECTING:
            self._on_connectable()
        elif self._transport is not None:
            # What came before the end is still there to be read; the end itself is read after it.
            self.on_readable()

    def expire(self, now: float) -> bool:
        """Close the connection if nothing went over it for long; whether there is nothing here any more."""
        max_idle_ms = self._settings.max_idle_ms
        is_idle = self.state is State.READY and not self._waiting and not self._exchange.in_flight
        if is_idle and 0 <= max_idle_ms <= (now - self._last_active) * 1000:
            logger.debug("closing the connection to %s: idle", self.address)
            self._close_socket()
            self.state = State.DOWN
        return self.state is State.DOWN and now >= self._retry_at

    def stop(self) -> None:
        self._close(STOPS)

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._thread.call_later(max(0.0, at - monotonic()), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        # The clock of the loop may be a little ahead.
        now = max(monotonic(), self._alarm_at)
        # One at a time: what one that is late brings about may end others.
        while late := next((ask for ask in self._unanswered() if ask.deadline <= now), None):
            self._on_time_out(late)
        deadlines = [ask.deadline for ask in self._unanswered()]
        if deadlines and self._alarm is None:
            self._set_alarm(min(deadlines))

    def _unanswered(self) -> list[Ask]:
        return [*self._exchange.unanswered(), *self._waiting]

    def _on_time_out(self, ask: Ask) -> None:
        name, timeout_ms = type(ask.request).__name__, ask.timeout_ms
        if not ask.is_sent:
            self._waiting.remove(ask)
            ask.end(self._error(Failure.TIMED_OUT, f"{name} was not sent within {timeout_ms:,} ms: {self.state.value}"))
            return
        ask.end(self._error(Failure.TIMED_OUT, f"no answer to {name} within {timeout_ms:,} ms"))
        self._give_up(f"no answer to {name} within {timeout_ms:,} ms", but=ask)

    def _on_lost(self, reason: str) -> None:
        was_ready = self.state is State.READY
        self._fail(reason)
        if was_ready:
            self._owner.broke(self.address)

    def _give_up(self, reason: str, but: Ask | None = None) -> None:
        """Close a connection that may be whole but is of no use any more, and have the kernel forget what it has not
        delivered: a request must not arrive behind the one that is sent in its place, over another connection."""
        logger.warning("closing the connection to %s: %s", self.address, reason)
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        self._pause()
        self._close(reason, but)

    def _fail(self, reason: str) -> None:
        """The connection is gone, or cannot be had."""
        self._pause()
        # A node that is down is said once, not with every attempt.
        level = logging.INFO if self._failures == 1 else logging.DEBUG
        what = "lost the connection to" if self.state is State.READY else "cannot connect to"
        logger.log(level, "%s %s: %s", what, self.address, reason)
        was_refused, self._was_refused = self._was_refused, False
        self._close(reason)
        if was_refused:
            self._owner.refused(self.address)

    def _pause(self) -> None:
        """Leave the other node alone for a while."""
        settings = self._settings
        pause_ms = min(settings.backoff_max_ms, settings.backoff_ms << min(self._failures, 20))
        self._failures += 1
        self._retry_at = monotonic() + pause_ms / 1000 * random.uniform(1 - JITTER, 1 + JITTER)

    def _close(self, reason: str, but: Ask | None = None) -> None:
        """Every request but `but` gets its error."""
        if self._timer is not None:
            self._timer.cancel()
        self._close_socket()
        self.state = State.DOWN
        in_flight = self._exchange.unanswered()
        self._exchange = Exchange(self._settings.client_id)
        waiting, self._waiting = self._waiting, deque()
        for ask in in_flight:
            if ask is not but:
                ask.end(self._error(Failure.DISCONNECTED, reason))
        for ask in waiting:
            ask.end(self._error(Failure.NOT_CONNECTED, reason))

    def _close_socket(self) -> None:
        sock, self._socket = self._socket, None
        transport, self._transport = self._transport, None
        self._unsent.clear()
        if sock is None:
            return
        fd = sock.fileno()
        self._thread.remove_reader(fd)
        self._thread.remove_writer(fd)
        self._thread.unwatch(fd)
        if transport is not None:
            transport.close()
        sock.close()

    def _error(self, failure: Failure, reason: str) -> RequestError:
        return RequestError(failure, self.address, reason)


def _resolve(host: str, port: int, flags: int = 0) -> list[tuple[int, Any]]:
    """Family and address of the sockets to try; as Java does, IPv4 first where a name has both."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    return [(family, address) for family, _, _, _, address in found]


def _has_peer(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True
