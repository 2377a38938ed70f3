"""The network threads of one listener, and which of them gets a new connection. Run by the listener's acceptor.

While there is a GIL the first takes them all: every thread more costs switches and gains nothing. Without one, or if
pybroker.connection.placement says so, they take turns. A thread starts with its first connection.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from pybroker.network.network_thread import NetworkThread


def takes_turns(placement: str) -> bool:
    """`placement` is fill, round-robin or auto."""
    if placement == "auto":
        has_gil: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
        return not has_gil()
    return placement == "round-robin"


class NetworkThreads:
    def __init__(self, size: int, placement: str, new_thread: Callable[[int], NetworkThread]) -> None:
        self._size = size
        self._takes_turns = takes_turns(placement)
        self._new_thread = new_thread
        self._next = 0
        self.started: list[NetworkThread] = []

    @property
    def size(self) -> int:
        return self._size

    def start(self) -> NetworkThread:
        """The first, which also accepts connections."""
        return self._at(0)

    def choose(self) -> NetworkThread:
        if not self._takes_turns:
            return self.started[0]
        number = self._next % self._size
        self._next = number + 1
        return self._at(number)

    def resize(self, size: int) -> None:
        """A thread too many keeps the connections it has."""
        self._size = size

    def stop(self, timeout_s: float) -> None:
        # The last first: the first may have connections on their way to the others.
        for thread in reversed(self.started):
            thread.stop(timeout_s)

    def _at(self, number: int) -> NetworkThread:
        while len(self.started) <= number:
            thread = self._new_thread(len(self.started))
            thread.start()
            self.started.append(thread)
        return self.started[number]
