from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from support.waiting import wait_until

from pybroker.coordinator.runtime import HighWatermarkAdvanced, Loaded, LoadFailed
from pybroker.coordinator.shard import Load
from pybroker.server.coordinators.driver import CoordinatorDriver
from pybroker.server.coordinators.shard_loader import LoadError

WAIT_S = 10


class FakeRuntime:
    """Notes who runs what; `answer` makes the effects of a round."""

    def __init__(self) -> None:
        self.rounds: list[tuple[str, list[Any], bool]] = []
        self.deadline_ms: int | None = None
        self.answer: Callable[[Sequence[Any]], list[Any]] = list

    def run(self, now_ms: int, wall_ms: int, events: Sequence[Any], *, fires_timers: bool = True) -> list[Any]:
        if events or (fires_timers and self.deadline_ms is not None and self.deadline_ms <= now_ms):
            self.rounds.append((threading.current_thread().name, list(events), fires_timers))
        if fires_timers and self.deadline_ms is not None and self.deadline_ms <= now_ms:
            self.deadline_ms = None
        return self.answer(events)

    @property
    def seen(self) -> list[Any]:
        return [event for _, events, _ in self.rounds for event in events]


@contextmanager
def driving(
    runtime: FakeRuntime, load: Callable[[Load], int] = lambda load: 0, now_ms: Callable[[], int] = lambda: 0
) -> Iterator[tuple[CoordinatorDriver, list[Any]]]:
    performed: list[Any] = []

    def perform(effect: Any) -> None:
        if effect == "broken":
            raise ValueError(effect)
        performed.append(effect)

    driver = CoordinatorDriver(
        "driver",
        runtime,  # type: ignore[arg-type]
        now_ms=now_ms,
        wall_ms=lambda: 0,
        perform=perform,
        load=load,
    )
    driver.start()
    try:
        yield driver, performed
    finally:
        driver.stop()


def test_an_event_is_decided_on_the_thread_that_brings_it() -> None:
    runtime = FakeRuntime()
    with driving(runtime) as (driver, performed):
        driver.submit(HighWatermarkAdvanced(1))
        assert runtime.rounds == [(threading.current_thread().name, [HighWatermarkAdvanced(1)], False)]
        assert performed == [HighWatermarkAdvanced(1)]


def test_who_comes_during_a_round_leaves_its_event_and_goes_on() -> None:
    runtime = FakeRuntime()
    is_inside, may_go_on = threading.Event(), threading.Event()

    def answer(events: Sequence[Any]) -> list[Any]:
        if events == [HighWatermarkAdvanced(1)]:
            is_inside.set()
            assert may_go_on.wait(WAIT_S)
        return list(events)

    runtime.answer = answer
    with driving(runtime) as (driver, performed):
        first = threading.Thread(target=driver.submit, args=(HighWatermarkAdvanced(1),), name="first")
        first.start()
        assert is_inside.wait(WAIT_S)
        for partition in (2, 3):
            driver.submit(HighWatermarkAdvanced(partition))
        assert performed == []
        may_go_on.set()
        first.join(WAIT_S)
        wait_until(lambda: len(performed) == 3, WAIT_S, lambda: f"performed: {performed}")
    assert runtime.rounds[:2] == [
        ("first", [HighWatermarkAdvanced(1)], False),
        ("first", [HighWatermarkAdvanced(2), HighWatermarkAdvanced(3)], False),
    ]


def test_what_is_submitted_together_is_a_round_of_its_own_on_the_thread_that_brings_it() -> None:
    runtime = FakeRuntime()
    with driving(runtime) as (driver, performed):
        events = [HighWatermarkAdvanced(1), HighWatermarkAdvanced(2)]
        assert driver.submit_together(events)
        assert runtime.rounds == [(threading.current_thread().name, events, False)]
        assert performed == events


def test_what_is_submitted_together_during_another_round_is_given_back() -> None:
    runtime = FakeRuntime()
    with driving(runtime) as (driver, performed):
        with driver._round_lock:
            assert not driver.submit_together([HighWatermarkAdvanced(1)])
        assert runtime.seen == performed == []


def test_what_is_left_in_the_inbox_during_a_round_of_its_own_is_decided_afterwards() -> None:
    runtime = FakeRuntime()
    with driving(runtime) as (driver, performed):

        def answer(events: Sequence[Any]) -> list[Any]:
            if events == [HighWatermarkAdvanced(1)]:
                other = threading.Thread(target=driver.submit, args=(HighWatermarkAdvanced(2),))
                other.start()
                other.join(WAIT_S)
            return list(events)

        runtime.answer = answer
        assert driver.submit_together([HighWatermarkAdvanced(1)])
        wait_until(lambda: len(performed) == 2, WAIT_S, lambda: f"performed: {performed}")


def test_what_may_wait_for_the_disk_is_for_the_drivers_own_thread() -> None:
    runtime = FakeRuntime()
    with driving(runtime) as (driver, performed):
        driver.submit_slow(HighWatermarkAdvanced(1))
        wait_until(lambda: performed, WAIT_S, lambda: "nothing was done")
        assert runtime.rounds == [("driver", [HighWatermarkAdvanced(1)], True)]


def test_timers_come_on_the_drivers_own_thread_when_they_are_due() -> None:
    runtime = FakeRuntime()
    now_ms = 0
    with driving(runtime, now_ms=lambda: now_ms) as (driver, _):
        runtime.deadline_ms = 20
        driver.submit(HighWatermarkAdvanced(1))
        now_ms = 20
        wait_until(lambda: runtime.deadline_ms is None, WAIT_S, lambda: "the timer has not come")
        assert runtime.rounds[-1] == ("driver", [], True)


def test_a_deadline_that_comes_earlier_than_the_driver_meant_to_wake_wakes_it() -> None:
    runtime = FakeRuntime()
    now_ms = 0
    with driving(runtime, now_ms=lambda: now_ms) as (driver, _):
        runtime.deadline_ms = 3_600_000
        driver.submit(HighWatermarkAdvanced(1))
        runtime.deadline_ms = 5
        now_ms = 5
        driver.submit(HighWatermarkAdvanced(2))
        wait_until(lambda: runtime.deadline_ms is None, WAIT_S, lambda: "the driver sleeps on")


def test_a_load_is_carried_out_apart_and_its_end_is_an_event() -> None:
    runtime = FakeRuntime()
    wanted = [Load(1, 0, "shard 1"), Load(2, 0, "shard 2"), Load(3, 0, "shard 3")]
    runtime.answer = lambda events: list(wanted) if events == [HighWatermarkAdvanced(0)] else []
    threads = []

    def load(effect: Load) -> int:
        threads.append(threading.current_thread().name)
        if effect.partition == 2:
            raise LoadError("the disk")
        if effect.partition == 3:
            raise RuntimeError("a bug")
        return 77

    with driving(runtime, load) as (driver, _):
        driver.submit(HighWatermarkAdvanced(0))
        wait_until(lambda: len(runtime.seen) == 4, WAIT_S, lambda: f"seen: {runtime.seen}")
    assert set(threads) == {"driver-loader"}
    assert runtime.seen[1:] == [
        Loaded(1, "shard 1", 77),
        LoadFailed(2, "shard 2", "the disk"),
        LoadFailed(3, "shard 3", "RuntimeError('a bug')"),
    ]


def test_an_effect_that_fails_costs_nobody_else_anything() -> None:
    runtime = FakeRuntime()
    runtime.answer = lambda events: ["one", "broken", "other"] if events else []
    with driving(runtime) as (driver, performed):
        driver.submit(HighWatermarkAdvanced(0))
        assert performed == ["one", "other"]


def test_a_round_that_fails_is_not_the_last() -> None:
    runtime = FakeRuntime()

    def answer(events: Sequence[Any]) -> list[Any]:
        if events == [HighWatermarkAdvanced(0)]:
            raise ValueError("a bug")
        return list(events)

    runtime.answer = answer
    with driving(runtime) as (driver, performed):
        driver.submit(HighWatermarkAdvanced(0))
        driver.submit(HighWatermarkAdvanced(1))
        assert performed == [HighWatermarkAdvanced(1)]


def test_many_threads_lose_no_event() -> None:
    runtime = FakeRuntime()
    with driving(runtime) as (driver, performed):

        def bring(first: int) -> None:
            for number in range(500):
                (driver.submit_slow if number % 50 == 0 else driver.submit)(HighWatermarkAdvanced(first + number))

        threads = [threading.Thread(target=bring, args=(1000 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: len(performed) == 2000, WAIT_S, lambda: f"{len(performed)} of 2000 were done")
    assert len({event.partition for event in performed}) == 2000


def test_what_waited_in_the_inbox_comes_before_the_timers_however_much_it_is() -> None:
    """A heartbeat that was there in time does not lose to its session because somebody was at a long round."""
    runtime = FakeRuntime()
    now_ms = 0
    with driving(runtime, now_ms=lambda: now_ms) as (driver, _):
        with driver._round_lock:
            runtime.deadline_ms = 20
            now_ms = 30
            events = [HighWatermarkAdvanced(number) for number in range(2500)]
            for event in events[:-1]:
                driver.submit(event)
            driver.submit_slow(events[-1])
        wait_until(lambda: runtime.deadline_ms is None, WAIT_S, lambda: "the timer has not come")
    fired = next(place for place, (_, _, fires_timers) in enumerate(runtime.rounds) if fires_timers)
    heard = [event for _, some, _ in runtime.rounds[: fired + 1] for event in some]
    assert len(heard) == len(events)
    assert set(heard) == set(events)
