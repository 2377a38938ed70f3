"""Holds up the cleaner's reading and writing to log.cleaner.io.max.bytes.per.second. Clock and sleep are given. One thread."""

from __future__ import annotations

from collections.abc import Callable


class Throttle:
    __slots__ = ("_bytes_per_second", "_clock", "_due", "_sleep")

    def __init__(self, bytes_per_second: float, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def __call__(self, count: int) -> None:
        """`count` bytes went: wait until they were due. Time not used is not saved up for later."""
        now = self._clock()
        self._due = max(self._due, now) + count / self._bytes_per_second
        if self._due > now:
            self._sleep(self._due - now)
