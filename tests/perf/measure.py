"""How the measurements here are taken: the best of several rounds, so that a busy machine does not count."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_us(call: Callable[[], object], rounds: int = 7, seconds_a_round: float = 0.15) -> float:
    """Microseconds per call in the fastest round."""
    calls = 1
    while True:
        took = _timed(call, calls)
        if took > seconds_a_round / 10:
            break
        calls *= 4
    calls = max(1, int(calls * seconds_a_round / took))
    return min(_timed(call, calls) for _ in range(rounds)) / calls * 1e6


def _timed(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


def report(what: str, value: float, unit: str, bar: float | None = None) -> None:
    against = f"   (bar {bar:g} {unit})" if bar is not None else ""
    print(f"  {what:<58} {value:9.2f} {unit}{against}")
