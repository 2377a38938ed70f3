from __future__ import annotations

from pybroker.coordinator.timers import Timers


def test_keys_are_due_once_in_the_order_of_their_deadlines() -> None:
    timers = Timers()
    for key, deadline_ms in (("b", 20), ("a", 10), ("c", 30)):
        timers.set(key, deadline_ms)
    assert [*timers.take_due(9)] == []
    assert [*timers.take_due(20)] == ["a", "b"]
    assert [*timers.take_due(20)] == []
    assert [*timers.take_due(1000)] == ["c"]
    assert timers.next_deadline_ms is None


def test_a_deadline_that_is_put_off_is_not_due_before() -> None:
    timers = Timers()
    timers.set("session", 10)
    for now_ms in range(0, 100, 5):
        timers.set("session", now_ms + 10)
        assert [*timers.take_due(now_ms)] == []
    assert [*timers.take_due(104)] == []
    assert [*timers.take_due(105)] == ["session"]


def test_a_deadline_may_come_forward() -> None:
    timers = Timers()
    timers.set("a", 100)
    timers.set("a", 10)
    assert timers.next_deadline_ms == 10
    assert [*timers.take_due(10)] == ["a"]
    assert [*timers.take_due(100)] == []


def test_a_cancelled_key_is_never_due_unless_it_is_set_again() -> None:
    timers = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    assert "a" not in timers
    timers.set("a", 30)
    assert [*timers.take_due(20)] == []
    assert [*timers.take_due(30)] == ["a"]


def test_a_million_heartbeats_leave_one_entry_behind() -> None:
    timers = Timers()
    for now_ms in range(10_000):
        timers.set("session", now_ms + 45_000)
    assert len(timers) == 1
    assert len(timers._heap) == 1


def test_who_takes_a_key_may_put_others_off_and_cancel_them() -> None:
    timers = Timers()
    for key in ("a", "b", "c", "d"):
        timers.set(key, 10)
    due = timers.take_due(10)
    assert next(due) == "a"
    timers.set("b", 50)
    timers.cancel("c")
    assert [*due] == ["d"]
    assert [*timers.take_due(49)] == []
    assert [*timers.take_due(50)] == ["b"]


def test_what_is_set_for_now_while_keys_are_taken_comes_the_next_time() -> None:
    timers = Timers()
    timers.set("a", 10)
    timers.set("b", 10)
    due = timers.take_due(10)
    assert next(due) == "a"
    timers.set("a", 10)
    timers.set("b", 10)
    timers.set("c", 5)
    assert [*due] == []
    assert [*timers.take_due(10)] == ["c", "a", "b"]
