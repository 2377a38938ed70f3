"""A node's own clock: it runs a little fast or slow, and jumps when somebody sets it."""

from __future__ import annotations

_PER_MS = 1_000_000_000  # a millisecond in microseconds times parts per million


class SimClock:
    __slots__ = ("_anchor_ms", "_anchor_us", "_rate_ppm")

    def __init__(self, start_ms: int) -> None:
        self._anchor_us = 0
        self._anchor_ms = start_ms
        self._rate_ppm = 1_000_000

    def now_ms(self, now_us: int) -> int:
        return self._anchor_ms + (now_us - self._anchor_us) * self._rate_ppm // _PER_MS

    def due_us(self, due_ms: int) -> int:
        """The first moment at which this clock shows `due_ms`, if nobody touches it."""
        return self._anchor_us - (self._anchor_ms - due_ms) * _PER_MS // self._rate_ppm + 1

    def span_us(self, span_ms: int) -> int:
        return span_ms * _PER_MS // self._rate_ppm

    def set_rate(self, now_us: int, rate_ppm: int) -> None:
        self.jump(now_us, 0)
        self._rate_ppm = rate_ppm

    def jump(self, now_us: int, delta_ms: int) -> None:
        self._anchor_ms = self.now_ms(now_us) + delta_ms
        self._anchor_us = now_us
