from __future__ import annotations

import pytest

from pybroker.base.metrics import IdleMeter, Metrics

SECOND_NS = 1_000_000_000


class Threads:
    def __init__(self, count: int) -> None:
        self.count = count
        self.busy_ns = 0
        self.meter = IdleMeter(lambda: self.busy_ns, lambda: self.count, 0)


def test_threads_that_were_never_busy_are_wholly_idle() -> None:
    threads = Threads(8)
    assert threads.meter.one_minute() == 1.0
    threads.meter.tick(5 * SECOND_NS)
    assert threads.meter.one_minute() == 1.0


def test_one_busy_thread_of_four_leaves_three_quarters() -> None:
    threads = Threads(4)
    for number in range(1, 100):
        threads.busy_ns = number * 5 * SECOND_NS
        threads.meter.tick(number * 5 * SECOND_NS)
    assert threads.meter.one_minute() == pytest.approx(0.75)
    assert threads.meter.fifteen_minutes() == pytest.approx(0.75)


def test_the_last_minute_forgets_sooner_than_the_last_fifteen() -> None:
    threads = Threads(1)
    now_ns = 0
    for _ in range(200):
        now_ns += 5 * SECOND_NS
        threads.busy_ns += 5 * SECOND_NS
        threads.meter.tick(now_ns)
    assert threads.meter.one_minute() == pytest.approx(0)
    for _ in range(12):
        now_ns += 5 * SECOND_NS
        threads.meter.tick(now_ns)
    assert threads.meter.one_minute() == pytest.approx(1 - 0.3679, abs=0.001)
    assert threads.meter.one_minute() > threads.meter.five_minutes() > threads.meter.fifteen_minutes()


def test_a_long_request_counted_at_its_end_does_not_make_it_negative() -> None:
    threads = Threads(1)
    threads.busy_ns = 60 * SECOND_NS
    threads.meter.tick(5 * SECOND_NS)
    assert threads.meter.one_minute() == 0.0


def test_a_second_look_at_the_same_moment_changes_nothing() -> None:
    threads = Threads(1)
    threads.busy_ns = SECOND_NS
    threads.meter.tick(2 * SECOND_NS)
    threads.meter.tick(2 * SECOND_NS)
    assert threads.meter.one_minute() == 0.5


def test_the_registry_asks_its_gauges_and_moves_its_meters() -> None:
    metrics = Metrics()
    threads = Threads(1)
    metrics.gauge("size", lambda: 7)
    metrics.idle_meter("idle", threads.meter)
    threads.busy_ns = SECOND_NS
    metrics.tick(4 * SECOND_NS)
    assert metrics.values() == {"size": 7, "idle": 0.75}
    metrics.remove("size")
    assert metrics.values() == {"idle": 0.75}
