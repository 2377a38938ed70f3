"""The way from network threads to handler threads: connections whose requests wait for a handler, first come first served.

An item is a connection with all its whole frames. `put` always takes it, since its bytes are in memory already; what keeps
memory flat is that network threads read nothing more while `is_full` (queued.max.requests, queued.max.request.bytes), and go
on when half of it is done. Counters change under the lock; `waiting` and `is_full` are read without it.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock
from typing import Final

from pybroker.network.connection import Connection

UNLIMITED: Final = -1


class RequestQueue:
    __slots__ = (
        "_bytes",
        "_idle",
        "_items",
        "_lock",
        "_max_bytes",
        "_max_requests",
        "_need_handler",
        "_sizes",
        "_starved",
        "is_full",
        "waiting",
    )

    def __init__(self, max_requests: int, max_bytes: int, need_handler: Callable[[], None]) -> None:
        self.waiting = 0  # requests
        self.is_full = False
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._need_handler = need_handler  # called when an item finds no handler thread waiting for it
        self._lock = Lock()
        self._items: SimpleQueue[Connection | None] = SimpleQueue()
        self._sizes: dict[Connection, tuple[int, int]] = {}  # requests and bytes of what is queued
        self._bytes = 0
        self._idle = 0  # handler threads that wait
        self._starved: set[Callable[[], None]] = set()

    def put(self, connection: Connection) -> None:
        """RuntimeError, and it is not in the queue, if nobody would ever take it out again."""
        requests = len(connection.pending)
        size = sum(map(len, connection.pending))
        with self._lock:
            self.waiting += requests
            self._bytes += size
            self._sizes[connection] = (requests, size)
            self.is_full = self.waiting >= self._max_requests or self._has_max_bytes()
            needs_handler = len(self._sizes) > self._idle
        if needs_handler:
            try:
                self._need_handler()
            except RuntimeError:
                with self._lock:
                    awakened = self._take_off(connection)
                for wake in awakened:
                    wake()
                raise
        self._items.put(connection)

    def get(self) -> Connection | None:
        """Blocks until there is an item; None tells the handler thread to end."""
        with self._lock:
            self._idle += 1
        connection = self._items.get()
        awakened: set[Callable[[], None]] = set()
        with self._lock:
            self._idle -= 1
            if connection is not None:
                awakened = self._take_off(connection)
        for wake in awakened:
            wake()
        return connection

    def dismiss(self) -> None:
        """One handler thread ends, when all that was put before is done."""
        self._items.put(None)

    def wait_for_room(self, wake: Callable[[], None]) -> bool:
        """Whether it is full; `wake` is then called once, from any thread, when it no longer is."""
        with self._lock:
            if self.is_full:
                self._starved.add(wake)
            return self.is_full

    def _take_off(self, connection: Connection) -> set[Callable[[], None]]:
        """Under the lock. Who is to be woken, since there is room again."""
        requests, size = self._sizes.pop(connection)
        self.waiting -= requests
        self._bytes -= size
        if not self.is_full or self.waiting > self._max_requests // 2 or self._has_max_bytes():
            return set()
        self.is_full = False
        awakened, self._starved = self._starved, set()
        return awakened

    def _has_max_bytes(self) -> bool:
        return self._max_bytes != UNLIMITED and self._bytes >= max(1, self._max_bytes)
