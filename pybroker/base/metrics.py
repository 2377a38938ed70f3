"""Meters and gauges by their Kafka names, for whoever shows them.

A gauge is a function that is asked when somebody looks. Meters follow something over the last minute, five and fifteen, as
Kafka's do; `tick` moves them on and must be called every TICK_S seconds or so.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from threading import Lock
from typing import Final

TICK_S: Final = 5.0
_MINUTES: Final = (1, 5, 15)


class IdleMeter:
    """Which part of their time some threads had nothing to do: 0 none, 1 all of it.

    `busy_ns` says how long they have been busy since they began, all together, and `threads` how many there are; a thread
    that was not needed yet counts as idle.
    """

    def __init__(self, busy_ns: Callable[[], int], threads: Callable[[], int], now_ns: int) -> None:
        self._busy_ns = busy_ns
        self._threads = threads
        self._then_ns = now_ns
        self._busy_then_ns = busy_ns()
        self._rates: list[float] | None = None

    def tick(self, now_ns: int) -> None:
        elapsed_ns = now_ns - self._then_ns
        if elapsed_ns <= 0:
            return
        busy_ns = self._busy_ns()
        available_ns = elapsed_ns * max(1, self._threads())
        # What takes long is counted when it is over, and may then be more than the time since the last look.
        idle = 1 - min(1.0, max(0.0, (busy_ns - self._busy_then_ns) / available_ns))
        self._then_ns, self._busy_then_ns = now_ns, busy_ns
        if self._rates is None:
            self._rates = [idle] * len(_MINUTES)
        else:
            for place, minutes in enumerate(_MINUTES):
                weight = 1 - exp(-elapsed_ns / (minutes * 60e9))
                self._rates[place] += weight * (idle - self._rates[place])

    def one_minute(self) -> float:
        return self._rates[0] if self._rates else 1.0

    def five_minutes(self) -> float:
        return self._rates[1] if self._rates else 1.0

    def fifteen_minutes(self) -> float:
        return self._rates[2] if self._rates else 1.0


class Metrics:
    """The registry: one per node. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._gauges: dict[str, Callable[[], float]] = {}
        self._meters: list[IdleMeter] = []

    def gauge(self, name: str, value: Callable[[], float]) -> None:
        """`name` as Kafka has it: `kafka.network:type=RequestChannel,name=RequestQueueSize`."""
        with self._lock:
            assert name not in self._gauges, f"{name} is there already"
            self._gauges[name] = value

    def idle_meter(self, name: str, meter: IdleMeter) -> None:
        self.gauge(name, meter.one_minute)
        with self._lock:
            self._meters.append(meter)

    def remove(self, name: str) -> None:
        with self._lock:
            self._gauges.pop(name, None)

    def tick(self, now_ns: int) -> None:
        with self._lock:
            meters = list(self._meters)
        for meter in meters:
            meter.tick(now_ns)

    def values(self) -> dict[str, float]:
        with self._lock:
            gauges = dict(self._gauges)
        return {name: value() for name, value in gauges.items()}
