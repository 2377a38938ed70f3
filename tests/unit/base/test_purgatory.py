from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from support.waiting import wait_until

from pybroker.base.purgatory import DelayedOperation, Purgatory
from pybroker.base.timer import Timer


class Waiting(DelayedOperation):
    def __init__(self, condition: Callable[[], bool] = lambda: False) -> None:
        self.condition = condition
        self.tests = 0
        self.ends: list[str] = []

    def try_complete(self) -> bool:
        self.tests += 1
        if self.condition():
            self.ends.append("completed")
            return True
        return False

    def on_expire(self) -> None:
        self.ends.append("expired")


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory[str]:
    return Purgatory(timer)


def test_an_operation_waits_until_its_key_is_checked_and_its_condition_holds(purgatory: Purgatory[str], timer: Timer) -> None:
    happened: list[int] = []
    operation = Waiting(lambda: bool(happened))
    assert not purgatory.watch(operation, ["a"], 100)
    assert purgatory.check("a") == 0
    assert purgatory.check("b") == 0
    happened.append(1)
    assert operation.ends == []
    assert purgatory.check("a") == 1
    assert operation.ends == ["completed"]
    assert purgatory.check("a") == 0
    timer.advance(1000)
    assert operation.ends == ["completed"]
    assert len(purgatory) == len(timer) == 0


def test_what_happened_between_the_callers_test_and_the_watch_is_not_missed(purgatory: Purgatory[str], timer: Timer) -> None:
    operation = Waiting(lambda: True)
    assert purgatory.watch(operation, ["a", "b"], 100)
    assert operation.ends == ["completed"]
    assert purgatory.watched == len(purgatory) == len(timer) == 0


def test_one_that_is_done_leaves_all_lists_at_once(purgatory: Purgatory[str]) -> None:
    happened: list[int] = []
    operation, other = Waiting(lambda: bool(happened)), Waiting()
    purgatory.watch(operation, ["a", "b", "c"], 100)
    purgatory.watch(other, ["c"], 100)
    assert purgatory.watched == 4
    assert all(map(purgatory.has_watchers, "abc"))
    happened.append(1)
    assert purgatory.check("b") == 1
    assert purgatory.watched == len(purgatory) == 1
    assert [key for key in "abc" if purgatory.has_watchers(key)] == ["c"]
    assert other.tests == 1


def test_an_operation_expires_at_its_deadline(purgatory: Purgatory[str], timer: Timer) -> None:
    operation = Waiting()
    purgatory.watch(operation, ["a"], 100)
    timer.advance(99)
    assert operation.ends == []
    timer.advance(100)
    assert operation.ends == ["expired"]
    assert not purgatory.has_watchers("a")
    assert purgatory.check("a") == 0
    assert operation.tests == 1


def test_a_key_nobody_checks_does_not_grow(purgatory: Purgatory[str]) -> None:
    happened: list[int] = [1]
    for _ in range(1000):
        happened.clear()
        purgatory.watch(Waiting(lambda: bool(happened)), ["busy", "idle"], 100)
        happened.append(1)
        purgatory.check("busy")
    assert not purgatory.has_watchers("idle")
    assert purgatory.watched == 0


def test_an_operation_may_be_watched_under_a_key_twice(purgatory: Purgatory[str]) -> None:
    happened: list[int] = []
    operation = Waiting(lambda: bool(happened))
    purgatory.watch(operation, ["a", "a"], 100)
    happened.append(1)
    assert purgatory.check("a") == 1
    assert purgatory.watched == 0


def test_an_operation_that_fails_harms_no_other_and_waits_for_its_deadline(
    purgatory: Purgatory[str], timer: Timer, caplog: pytest.LogCaptureFixture
) -> None:
    happened: list[int] = []

    def fail() -> bool:
        if happened:
            raise ValueError("no")
        return False

    broken, sound = Waiting(fail), Waiting(lambda: bool(happened))
    purgatory.watch(broken, ["a"], 100)
    purgatory.watch(sound, ["a"], 100)
    happened.append(1)
    assert purgatory.check("a") == 1
    assert "a delayed operation failed" in caplog.text
    assert sound.ends == ["completed"]
    assert broken.ends == []
    timer.advance(100)
    assert broken.ends == ["expired"]


def test_an_operation_that_fails_to_expire_is_gone_all_the_same(
    purgatory: Purgatory[str], timer: Timer, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Waiting):
        def on_expire(self) -> None:
            raise ValueError("no")

    purgatory.watch(Broken(), ["a"], 100)
    timer.advance(100)
    assert "a delayed operation failed" in caplog.text
    assert len(purgatory) == purgatory.watched == 0


def test_completing_one_may_check_the_key_again_and_watch_another(purgatory: Purgatory[str]) -> None:
    """A completed fetch may be followed by the next one on the same thread."""
    happened: list[int] = []
    following = Waiting()

    class First(Waiting):
        def try_complete(self) -> bool:
            if not happened:
                return False
            purgatory.check("a")
            purgatory.watch(following, ["a"], 100)
            return super().try_complete()

    first = First(lambda: True)
    purgatory.watch(first, ["a"], 100)
    happened.append(1)
    assert purgatory.check("a") == 1
    assert first.ends == ["completed"]
    assert following.ends == []
    assert purgatory.watched == 1


def test_a_thread_that_holds_what_a_test_needs_does_not_wait_for_the_test(purgatory: Purgatory[str]) -> None:
    """The partition's lock is wanted by a test on another thread, while we hold it and check: Kafka's known deadlock."""
    lock, testing, happened = threading.Lock(), threading.Event(), threading.Event()

    def condition() -> bool:
        if not is_watched:
            return False
        testing.set()
        with lock:
            return happened.is_set()

    is_watched = False
    operation = Waiting(condition)
    purgatory.watch(operation, ["a"], 100)
    is_watched = True
    with lock:
        other = threading.Thread(target=purgatory.check, args=("a",))
        other.start()
        assert testing.wait(10)
        assert purgatory.check("a") == 0
        happened.set()
        assert purgatory.check("a") == 0
    other.join(10)
    assert operation.ends == ["completed"]


def test_a_deadline_that_comes_while_another_thread_tests_is_not_lost(purgatory: Purgatory[str], timer: Timer) -> None:
    testing, go_on = threading.Event(), threading.Event()

    def condition() -> bool:
        if is_watched:
            testing.set()
            go_on.wait(10)
        return False

    is_watched = False
    operation = Waiting(condition)
    purgatory.watch(operation, ["a"], 100)
    is_watched = True
    other = threading.Thread(target=purgatory.check, args=("a",))
    other.start()
    assert testing.wait(10)
    timer.advance(100)
    assert operation.ends == []
    go_on.set()
    other.join(10)
    assert operation.ends == ["expired"]
    assert len(purgatory) == 0


@pytest.fixture
def threads_that_switch_often() -> Iterator[None]:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.00002)
    yield
    sys.setswitchinterval(interval_s)


class LockedTimer(Timer):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def add(self, deadline_ms, callback):  # type: ignore[no-untyped-def]
        with self.lock:
            return super().add(deadline_ms, callback)

    def advance(self, now_ms: int) -> int:
        with self.lock:
            due = self.take_due(now_ms)
        for entry in due:
            entry.run()
        return len(due)


@pytest.mark.usefixtures("threads_that_switch_often")
def test_of_many_threads_that_complete_expire_and_watch_each_operation_ends_once_and_none_is_missed() -> None:
    timer = LockedTimer()
    purgatory: Purgatory[int] = Purgatory(timer)
    counters = [0] * 8
    locks = [threading.Lock() for _ in counters]
    operations: list[list[Waiting]] = [[] for _ in range(3)]
    appending = threading.Event()
    now_ms = 0
    appending.set()

    def watch(mine: list[Waiting], seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(1500):
            keys = draw.sample(range(8), draw.randrange(1, 4))
            wanted = [(key, counters[key] + draw.randrange(1, 3)) for key in keys]
            operation = Waiting(lambda wanted=wanted: any(counters[key] >= value for key, value in wanted))
            mine.append(operation)
            # Most wait for an append for ever; some for a deadline that is near.
            purgatory.watch(operation, keys, now_ms + (5 if draw.random() < 0.2 else 1 << 40))

    def append(seed: int) -> None:
        draw = random.Random(seed)
        while appending.is_set():
            key = draw.randrange(8)
            with locks[key]:
                counters[key] += 1
            if purgatory.has_watchers(key):
                purgatory.check(key)

    def tick() -> None:
        nonlocal now_ms
        while appending.is_set():
            now_ms += 1
            timer.advance(now_ms)

    watchers = [threading.Thread(target=watch, args=(mine, seed)) for seed, mine in enumerate(operations)]
    others = [threading.Thread(target=append, args=(10,)), threading.Thread(target=append, args=(11,))]
    others.append(threading.Thread(target=tick))
    for thread in watchers + others:
        thread.start()
    for thread in watchers:
        thread.join(120)
    try:
        # The appends go on: whatever waits still is completed by one of the next, if none was forgotten.
        wait_until(lambda: len(purgatory) == 0, 30, lambda: f"{len(purgatory)} still wait")
    finally:
        appending.clear()
        for thread in others:
            thread.join(30)
    ends = [operation.ends for mine in operations for operation in mine]
    assert len(ends) == 4500
    assert all(len(end) == 1 for end in ends)
    assert purgatory.watched == len(timer) == 0
