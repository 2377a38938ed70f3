from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from queue import Queue

import pytest

from pybroker.log.manager.scheduler import ThreadBackground

DEADLINE_S = 10.0


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def background(clock: Clock) -> Iterator[ThreadBackground]:
    scheduler = ThreadBackground(3, now_ms=clock)
    yield scheduler
    assert scheduler.stop(DEADLINE_S)


def advance(background: ThreadBackground, clock: Clock, by_ms: int) -> None:
    clock.now_ms += by_ms
    background.wake()


def wait_for(event: threading.Event) -> None:
    event.wait(DEADLINE_S)


def settled(background: ThreadBackground) -> None:
    """Everything that was due has at least begun."""
    done = threading.Event()
    background.run(done.set)
    assert done.wait(DEADLINE_S)


def test_a_task_runs_soon_on_another_thread(background: ThreadBackground) -> None:
    ran: Queue[threading.Thread] = Queue()
    background.run(lambda: ran.put(threading.current_thread()))
    assert ran.get(timeout=DEADLINE_S) is not threading.current_thread()


def test_delayed_tasks_run_in_the_order_they_are_due(background: ThreadBackground, clock: Clock) -> None:
    ran: Queue[str] = Queue()
    background.resize(1)
    background.run(lambda: ran.put("late"), delay_ms=200)
    background.run(lambda: ran.put("early"), delay_ms=100)
    settled(background)
    assert ran.empty()
    advance(background, clock, 100)
    assert ran.get(timeout=DEADLINE_S) == "early"
    settled(background)
    assert ran.empty()
    advance(background, clock, 100)
    assert ran.get(timeout=DEADLINE_S) == "late"


def test_a_repeated_task_runs_each_interval_until_it_is_cancelled(background: ThreadBackground, clock: Clock) -> None:
    ran: Queue[int] = Queue()
    background.resize(1)
    repeated = background.every("tick", lambda: ran.put(clock.now_ms), 50, first_ms=10)
    for expected in (1010, 1060, 1110):
        settled(background)
        assert ran.empty()
        advance(background, clock, expected - clock.now_ms)
        assert ran.get(timeout=DEADLINE_S) == expected
    settled(background)
    repeated.cancel()
    advance(background, clock, 1000)
    settled(background)
    assert ran.empty()


def test_a_repeated_task_does_not_catch_up_on_what_it_missed(background: ThreadBackground, clock: Clock) -> None:
    ran: Queue[int] = Queue()
    background.resize(1)
    background.every("tick", lambda: ran.put(clock.now_ms), 50)
    assert ran.get(timeout=DEADLINE_S) == 1000
    settled(background)
    advance(background, clock, 500)
    assert ran.get(timeout=DEADLINE_S) == 1500
    settled(background)
    assert ran.empty()


def test_an_interval_of_ages_is_waited_for(background: ThreadBackground, clock: Clock) -> None:
    ran: Queue[int] = Queue()
    background.every("hardly ever", lambda: ran.put(1), 2**63 - 1, first_ms=2**63 - 1)
    advance(background, clock, 10**12)
    settled(background)
    assert ran.empty()


def failing() -> None:
    raise OSError("the disk says no")


def test_an_error_is_logged_under_the_task_s_name_and_harms_nobody(
    background: ThreadBackground, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ran: Queue[int] = Queue()

    def sometimes() -> None:
        ran.put(1)
        raise ValueError("not today")

    with caplog.at_level(logging.ERROR):
        background.resize(1)
        background.run(failing)
        background.every("the repeated one", sometimes, 50)
        assert ran.get(timeout=DEADLINE_S) == 1
        settled(background)
        advance(background, clock, 50)
        assert ran.get(timeout=DEADLINE_S) == 1
        settled(background)
    assert "failing failed" in caplog.text
    assert "the disk says no" in caplog.text
    assert caplog.text.count("the repeated one failed") == 2


def test_a_busy_thread_does_not_hold_up_the_others(background: ThreadBackground) -> None:
    release = threading.Event()
    try:
        for _ in range(2):
            background.run(partial(wait_for, release))
        settled(background)
    finally:
        release.set()


def test_tasks_that_come_due_together_do_not_wait_for_each_other(background: ThreadBackground, clock: Clock) -> None:
    meeting = threading.Barrier(3)
    met: Queue[int] = Queue()
    background.resize(1)
    for _ in range(3):
        background.run(lambda: met.put(meeting.wait(DEADLINE_S)), delay_ms=100)
    settled(background)
    background.resize(3)
    advance(background, clock, 100)
    assert sorted(met.get(timeout=DEADLINE_S) for _ in range(3)) == [0, 1, 2]


def test_no_more_threads_run_than_allowed(background: ThreadBackground) -> None:
    release = threading.Event()
    begun: Queue[int] = Queue()

    def busy() -> None:
        begun.put(1)
        release.wait(DEADLINE_S)

    try:
        for _ in range(5):
            background.run(busy)
        for _ in range(3):
            begun.get(timeout=DEADLINE_S)
        assert begun.empty()
    finally:
        release.set()
    for _ in range(2):
        begun.get(timeout=DEADLINE_S)


def test_stop_finishes_what_is_due_and_drops_what_is_not(clock: Clock) -> None:
    background = ThreadBackground(1, now_ms=clock)
    ran: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def note(what: str) -> Callable[[], None]:
        return lambda: ran.append(what)

    def busy() -> None:
        begun.set()
        release.wait(DEADLINE_S)

    background.run(busy)
    assert begun.wait(DEADLINE_S)
    background.run(note("due"))
    background.run(note("delayed"), delay_ms=1)
    background.every("repeated", note("repeated"), 1)
    stopping = threading.Thread(target=background.stop)
    stopping.start()
    release.set()
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()
    assert ran == ["due"]
    background.run(note("after the stop"))
    assert ran == ["due"]


def test_stop_says_so_if_a_task_does_not_end(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    background = ThreadBackground(1, now_ms=clock)
    release = threading.Event()
    background.run(partial(wait_for, release))
    assert not background.stop(0.01)
    assert "still at work" in caplog.text
    release.set()
    assert background.stop(DEADLINE_S)


def test_a_thread_that_cannot_be_started_leaves_its_task_to_the_others(
    background: ThreadBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release, ran = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        wait_for(release)

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    background.run(hold)
    wait_for(entered)
    monkeypatch.setattr(threading.Thread, "start", no_more)
    background.run(ran.set)
    monkeypatch.undo()
    release.set()
    assert ran.wait(DEADLINE_S)
