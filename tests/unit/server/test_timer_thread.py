from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pybroker.server.timer_thread import TimerThread


@pytest.fixture
def timer() -> Iterator[TimerThread]:
    timer = TimerThread()
    timer.start()
    yield timer
    timer.stop()


def test_runs_what_is_due_near_its_time_and_not_before(timer: TimerThread) -> None:
    done = threading.Event()
    deadline = timer.now_ms() + 120
    at: list[int] = []

    def note() -> None:
        at.append(timer.now_ms())
        done.set()

    timer.add(deadline, note)
    assert done.wait(10)
    assert deadline <= at[0] < deadline + 5000
    assert len(timer) == 0


def test_an_entry_that_is_due_before_what_it_sleeps_for_wakes_the_thread(timer: TimerThread) -> None:
    done = threading.Event()
    far = timer.add(timer.now_ms() + 3_600_000, lambda: None)
    timer.add(timer.now_ms() + 20, done.set)
    assert done.wait(10)
    far.cancel()


def test_an_entry_in_the_past_runs_at_once(timer: TimerThread) -> None:
    done = threading.Event()
    timer.add(0, done.set)
    assert done.wait(10)


def test_a_callback_that_fails_ends_neither_the_thread_nor_the_others(
    timer: TimerThread, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("no")

    done = threading.Event()
    now_ms = timer.now_ms()
    timer.add(now_ms, fail)
    timer.add(now_ms + 1, done.set)
    assert done.wait(10)
    assert "a callback of the timer failed" in caplog.text


def test_a_callback_may_add_and_cancel(timer: TimerThread) -> None:
    done = threading.Event()
    cancelled = threading.Event()
    later = timer.add(timer.now_ms() + 60, cancelled.set)

    def first() -> None:
        later.cancel()
        timer.add(timer.now_ms() + 100, done.set)

    timer.add(timer.now_ms(), first)
    assert done.wait(10)
    assert not cancelled.is_set()


def test_what_is_not_due_at_the_stop_never_runs() -> None:
    timer = TimerThread()
    timer.start()
    ran = threading.Event()
    timer.add(timer.now_ms() + 3_600_000, ran.set)
    timer.stop()
    assert not ran.is_set()
    timer.stop()
