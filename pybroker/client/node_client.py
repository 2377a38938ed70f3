"""The one place that opens connections to other Kafka nodes and sends them requests: one thread for all of them, its own or
one that it is a guest on.

Any thread may call `send`; every callback comes on the client's thread and must not block. Connections are made on demand,
one for each (address, lane), so that a Fetch that is held back over there does not hold back a Vote.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from threading import Lock, get_ident
from time import monotonic
from typing import Final

from pybroker.base.address import Address
from pybroker.client.lane import STOPS, Ask, Done, Lane, LaneSettings, State, call
from pybroker.client.request_error import Failure, RequestError
from pybroker.network.loop_thread import LoopThread
from pybroker.network.transport import PlainTransport, Transport
from pybroker.protocol.message import Message
from pybroker.protocol.schema import Versions

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 10.0
# A connection is found idle at most this share of the time too late.
IDLE_CHECKS: Final = 10
# Where no connection is ever idle, lanes without one go all the same.
FORGET_EVERY_S: Final = 60.0


class NodeClient:
    def __init__(
        self,
        *,
        client_id: str,
        connection_timeout_ms: int = 10_000,
        backoff_ms: int = 50,
        backoff_max_ms: int = 500,
        max_idle_ms: int = 600_000,
        max_in_flight: int = 100,
        max_waiting: int = 10_000,
        max_response_bytes: int = 104_857_600,
        transport_of: Callable[[socket.socket], Transport] = PlainTransport,
        on_lost: Callable[[Address], None] = lambda address: None,
        host: Callable[[], LoopThread | None] = lambda: None,
    ) -> None:
        """`connection_timeout_ms` is socket.connection.setup.timeout.ms, `max_idle_ms` connections.max.idle.ms (-1: never), and
        `max_response_bytes` socket.request.max.bytes; `max_in_flight` and `max_waiting` are numbers of requests of a lane.

        `on_lost` is called when the last connection with an address broke (not: was closed by us, for whatever reason), and
        whenever a connect is refused: the process there is likely dead. `host` gives a thread that runs already to be a guest
        on; when that one ends, or there is none, the client has a thread of its own.
        """
        self._settings = LaneSettings(
            client_id=client_id,
            connection_timeout_ms=connection_timeout_ms,
            backoff_ms=backoff_ms,
            backoff_max_ms=backoff_max_ms,
            max_idle_ms=max_idle_ms,
            max_in_flight=max_in_flight,
            max_waiting=max_waiting,
            max_response_bytes=max_response_bytes,
            transport_of=transport_of,
        )
        self._on_lost = on_lost
        self._host = host
        self._lanes: dict[tuple[Address, str], Lane] = {}
        self._versions: dict[Address, Mapping[int, Versions]] = {}
        self._lock = Lock()
        self._thread: LoopThread | None = None
        self._posted: dict[Ask, tuple[Address, str]] = {}  # to the thread, which has not come to it yet
        self._is_stopped = False

    def start(self) -> None:
        host = self._host()
        if host is None:
            self._start_own()
        else:
            self._thread = host
            host.post(self._arrive, host)

    def _start_own(self) -> None:
        thread = _ClientThread(f"node-client-{self._settings.client_id}", self)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Close every connection; what has no answer yet gets its error."""
        with self._lock:
            thread, is_first = self._thread, not self._is_stopped
            self._is_stopped = True
        if thread is None or not is_first:
            return
        if isinstance(thread, _ClientThread):
            thread.stop(STOP_TIMEOUT_S)
        elif not thread.run(self.close_all, STOP_TIMEOUT_S):
            logger.warning("%s is too busy to close the connections of %s", thread.name, self._settings.client_id)

    def send(
        self,
        address: Address,
        request: Message,
        timeout_ms: int,
        done: Done,
        *,
        lane: str = "",
        versions: Versions | None = None,
        at_once: bool = False,
    ) -> None:
        """`done` gets the response, or a RequestError, exactly once and after `timeout_ms` at the latest. With `at_once` a
        caller on the client's own thread has it sent before this returns, and may hear of an error before that, too.

        `request` must not be changed any more. It goes out in the highest version that both sides have, of `versions` if
        those are given. Records in a response are views of the frame that it came in, which is the receiver's own. After
        `stop` the error comes at once, on the caller's thread.
        """
        thread = self._thread
        assert thread is not None, "the client is not started"
        ask = Ask(request, versions, timeout_ms, done)
        if at_once and get_ident() == thread.ident and not self._is_stopped:
            self._send(address, lane, ask)
            return
        with self._lock:
            # Under the lock, so that the thread's last act comes after every request that was let in.
            if not self._is_stopped:
                self._post(ask, address, lane)
                return
        call(done, RequestError(Failure.NOT_CONNECTED, address, STOPS))

    def _post(self, ask: Ask, address: Address, lane: str) -> None:
        assert self._thread is not None
        self._posted[ask] = (address, lane)
        self._thread.post(self._send, address, lane, ask)

    def versions_of(self, address: Address) -> Mapping[int, Versions] | None:
        """The versions of each API key that the node said it serves when it was last connected to; None if it never was."""
        return self._versions.get(address)

    # On the client's thread

    def _arrive(self, host: LoopThread) -> None:
        host.host(self._on_host_ended)
        self._expire(host)

    def _on_host_ended(self) -> None:
        with self._lock:
            # First of all: they are of the host, and the thread that takes over must not find them.
            lanes, self._lanes = self._lanes, {}
            if not self._is_stopped:
                self._start_own()
                # What was posted to the host is not done any more.
                for ask, (address, name) in self._posted.copy().items():
                    self._post(ask, address, name)
        for lane in lanes.values():
            lane.stop()

    def _expire(self, thread: LoopThread) -> None:
        if thread is self._thread:
            thread.call_later(self.expire(), self._expire, thread)

    def _send(self, address: Address, lane: str, ask: Ask) -> None:
        self._posted.pop(ask, None)
        found = self._lanes.get((address, lane))
        if found is None:
            assert self._thread is not None
            found = self._lanes[address, lane] = Lane(self._thread, Address(*address), self._settings, self)
        found.send(ask)

    def greeted(self, address: Address, versions: Mapping[int, Versions]) -> None:
        self._versions[address] = versions

    def broke(self, address: Address) -> None:
        if not any(lane.address == address and lane.state is State.READY for lane in self._lanes.values()):
            call(self._on_lost, address)

    def refused(self, address: Address) -> None:
        call(self._on_lost, address)

    def expire(self) -> float:
        """Close idle connections; in how many seconds to do so again."""
        now = monotonic()
        for key, lane in list(self._lanes.items()):
            if lane.expire(now):
                del self._lanes[key]
        max_idle_ms = self._settings.max_idle_ms
        return max(0.01, max_idle_ms / 1000 / IDLE_CHECKS) if max_idle_ms >= 0 else FORGET_EVERY_S

    def close_all(self) -> None:
        for lane in list(self._lanes.values()):
            lane.stop()


class _ClientThread(LoopThread):
    def __init__(self, name: str, client: NodeClient) -> None:
        super().__init__(name)
        self._client = client

    def on_start(self) -> None:
        self._expire()

    def close_all(self) -> None:
        self._client.close_all()

    def _expire(self) -> None:
        self.call_later(self._client.expire(), self._expire)
