"""Virtual time, and the clocks of nodes in it."""

from __future__ import annotations

import pytest

from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.schedule import EndlessError, Schedule


def test_what_is_due_runs_in_time_and_then_in_the_order_it_was_asked_for() -> None:
    schedule, seen = Schedule(), []
    schedule.after(20, seen.append, "late")
    schedule.after(10, seen.append, "first")
    schedule.at(10, seen.append, "second")
    schedule.after(10, schedule.after, 0, seen.append, "third, asked for on the way")
    schedule.run_until(20)
    assert seen == ["first", "second", "third, asked for on the way"]
    assert schedule.now_us == 20
    schedule.run_until(21)
    assert seen[-1] == "late"


def test_what_is_due_in_the_past_is_due_now() -> None:
    schedule, seen = Schedule(), []
    schedule.run_until(50)
    schedule.at(10, lambda: seen.append(schedule.now_us))
    schedule.run_until(51)
    assert seen == [50]


def test_what_goes_round_in_circles_is_ended() -> None:
    schedule = Schedule()

    def again() -> None:
        schedule.after(0, again)

    again()
    with pytest.raises(EndlessError, match="steps in 0 ms"):
        schedule.run_until(1)


def test_a_clock_shows_a_deadline_at_the_moment_it_says() -> None:
    for rate_ppm in (900_000, 1_000_000, 1_099_999):
        clock = SimClock(5_000)
        clock.set_rate(123_456, rate_ppm)
        for deadline_ms in (5_124, 6_000, 17_001):
            due_us = clock.due_us(deadline_ms)
            assert clock.now_ms(due_us) == deadline_ms
            assert clock.now_ms(due_us - 2_500) < deadline_ms


def test_a_clock_that_runs_fast_is_ahead_and_a_jump_stays() -> None:
    clock = SimClock(0)
    clock.set_rate(0, 1_100_000)
    assert clock.now_ms(1_000_000) == 1_100
    clock.jump(1_000_000, -600)
    assert clock.now_ms(1_000_000) == 500
    assert clock.now_ms(2_000_000) == 1_600
