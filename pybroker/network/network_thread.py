"""A network thread: an event loop with its connections, one receive buffer for all of them, and a queue of posted calls.

Everything but `post` and the counters runs on the thread itself. Posts are what other threads have for it, answers above
all; however many come while it is busy, it is woken once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from pybroker.network.answers import Gather
from pybroker.network.connection import Connection
from pybroker.network.framing import Spares
from pybroker.network.loop_thread import LoopThread
from pybroker.network.request_queue import RequestQueue

# A connection is found idle at most this share of connections.max.idle.ms too late.
IDLE_CHECKS: Final = 10


class NetworkThread(LoopThread):
    def __init__(
        self,
        name: str,
        queue: RequestQueue,
        max_idle_ms: int,
        on_closed: Callable[[Connection], None],
        on_ended: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        """`on_closed` hears of every connection that is gone, `on_ended` before of one whose peer has ended while its request
        waits for an answer."""
        super().__init__(name)
        self.on_ended = on_ended
        self.queue = queue
        self.spares = Spares()
        self.gather = Gather(0)
        self.connections: set[Connection] = set()
        self._starved: list[Connection] = []
        self._max_idle_ms = max_idle_ms
        self._on_closed = on_closed

    def adopt(self, connection: Connection) -> None:
        self.connections.add(connection)
        connection.start()

    def on_closed(self, connection: Connection, fd: int) -> None:
        """Its descriptor is still open."""
        self.unwatch(fd)
        self.connections.discard(connection)
        self._on_closed(connection)

    def close_idlest(self, reason: str) -> None:
        idlest = min(self.connections, key=lambda connection: connection.last_active_ns, default=None)
        if idlest is not None:
            idlest.close(reason, logging.INFO)

    def wait_for_room(self, connection: Connection) -> bool:
        """Whether the request queue is full; `connection` then reads on when it no longer is."""
        if not self.queue.wait_for_room(self._wake_starved):
            return False
        self._starved.append(connection)
        return True

    def on_start(self) -> None:
        self.gather.ident = self.ident
        if self._max_idle_ms >= 0:
            self.call_later(self._max_idle_ms / 1000 / IDLE_CHECKS, self._expire)

    def close_all(self) -> None:
        for connection in list(self.connections):
            connection.close("the node stops", logging.DEBUG)

    def _wake_starved(self) -> None:
        self.post(self._on_room)

    def _on_room(self) -> None:
        starved, self._starved = self._starved, []
        for connection in starved:
            connection.on_room()

    def _expire(self) -> None:
        before_ns = monotonic_ns() - self._max_idle_ms * 1_000_000
        for connection in list(self.connections):
            connection.expire(before_ns, self._max_idle_ms)
        self.call_later(max(0.01, self._max_idle_ms / 1000 / IDLE_CHECKS), self._expire)
