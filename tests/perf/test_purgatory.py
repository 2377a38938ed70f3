"""What it costs to let an operation wait and to complete it. Printed, not asserted: `make perf`."""

from __future__ import annotations

import heapq
import itertools

import pytest
from perf.measure import best_us, report

from pybroker.base.purgatory import DelayedOperation, Purgatory
from pybroker.base.timer import Timer
from pybroker.server.timer_thread import TimerThread

pytestmark = pytest.mark.perf


class Waiting(DelayedOperation):
    __slots__ = ("happened",)

    def __init__(self) -> None:
        self.happened = False

    def try_complete(self) -> bool:
        return self.happened

    def on_expire(self) -> None:
        pass


def watch_and_complete(purgatory: Purgatory[str], keys: list[str], deadline_ms: int) -> None:
    operation = Waiting()
    purgatory.watch(operation, keys, deadline_ms)
    operation.happened = True
    purgatory.check(keys[0])


def test_watch_and_complete() -> None:
    print()
    for keys in (1, 10, 1000):
        timer = TimerThread()
        timer.start()
        purgatory: Purgatory[str] = Purgatory(timer)
        names = [f"t-{number}" for number in range(keys)]
        took = best_us(lambda p=purgatory, n=names, t=timer: watch_and_complete(p, n, t.now_ms() + 500))
        report(f"watch + complete, {keys} keys, with the timer's thread", took, "µs")
        timer.stop()
    empty: Purgatory[str] = Purgatory(Timer())
    report("has_watchers of a key with none", best_us(lambda: empty.has_watchers("t-0")), "µs")
    report("check of a key with none", best_us(lambda: empty.check("t-0")), "µs")


def test_timer_with_100_000_entries() -> None:
    """The wheel beside a heap that leaves cancelled entries in."""
    print()
    timer, count = Timer(), itertools.count()
    for number in range(100_000):
        timer.add(30_000 + number % 30_000, lambda: None)
    report("wheel: add + cancel, 100,000 others", best_us(lambda: timer.add(30_000 + next(count) % 500, int).cancel()), "µs")
    heap: list[tuple[int, int, object]] = []
    for number in range(100_000):
        heapq.heappush(heap, (30_000 + number % 30_000, next(count), int))

    def add_to_heap() -> None:
        number = next(count)
        heapq.heappush(heap, (30_000 + number % 500, number, [int]))
        heapq.heappop(heap)

    report("heap: add + pop, 100,000 others", best_us(add_to_heap), "µs")
