"""The connection limits as all acceptors share them: the pure rules under a lock, and who waits for a connection to end."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import monotonic_ns

from pybroker.network.limits import UNTIL_ONE_ENDS, ConnectionLimits, Limits, Wait


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000


class Gate:
    def __init__(self, limits: Limits, displace: Callable[[], None]) -> None:
        self._lock = Lock()
        self._limits = ConnectionLimits(limits, _now_ms())
        self._displace = displace  # makes room for a connection of the protected listener
        self._waiting: set[Callable[[], None]] = set()

    def must_wait(self, listener: str, wake: Callable[[], None]) -> Wait | None:
        """`wake` is called once, from any thread, when a connection has ended or the limits have changed."""
        with self._lock:
            wait = self._limits.must_wait(listener, _now_ms())
            if wait is not None and wait.delay_ms == UNTIL_ONE_ENDS:
                self._waiting.add(wake)
            return wait

    def enter(self, listener: str, ip: str) -> str | None:
        """Why it may not; or None, and then `leave` is owed."""
        with self._lock:
            refusal = self._limits.refusal(ip)
            if refusal is not None:
                return refusal
            must_displace = self._limits.open(listener, ip, _now_ms())
        if must_displace:
            self._displace()
        return None

    def leave(self, listener: str, ip: str) -> None:
        with self._lock:
            self._limits.close(listener, ip)
            waiting, self._waiting = self._waiting, set()
        for wake in waiting:
            wake()

    def change(self, limits: Limits) -> None:
        with self._lock:
            self._limits.change(limits, _now_ms())
            waiting, self._waiting = self._waiting, set()
        for wake in waiting:
            wake()

    def connections(self, listener: str) -> int:
        with self._lock:
            return self._limits.by_listener[listener]
