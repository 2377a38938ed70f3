from __future__ import annotations

import random
import sys

import pytest

from pybroker.base.timer import Timer, TimerEntry


def fired_by(timer: Timer, deadlines_ms: list[int]) -> tuple[list[int], list[TimerEntry]]:
    fired: list[int] = []
    return fired, [timer.add(deadline, lambda deadline=deadline: fired.append(deadline)) for deadline in deadlines_ms]


def test_runs_what_is_due_and_nothing_else() -> None:
    timer = Timer(1000)
    fired, _ = fired_by(timer, [1001, 1063, 1064, 1500, 100_000, 10**9])
    assert timer.advance(1000) == 0
    assert timer.advance(1063) == 2
    assert fired == [1001, 1063]
    assert timer.advance(1499) == 1
    assert timer.advance(1500) == 1
    timer.advance(99_999)
    assert fired == [1001, 1063, 1064, 1500]
    timer.advance(10**9)
    assert fired[-2:] == [100_000, 10**9]
    assert len(timer) == 0


def test_runs_in_the_order_of_the_deadlines_though_the_clock_jumps_over_many() -> None:
    timer = Timer()
    deadlines = [random.Random(5).randrange(1, 10**7) for _ in range(3000)]
    fired, _ = fired_by(timer, deadlines)
    assert timer.advance(10**7) == 3000
    assert fired == sorted(deadlines)


@pytest.mark.parametrize("seed", range(5))
def test_each_entry_runs_at_the_first_advance_at_or_behind_its_deadline(seed: int) -> None:
    draw = random.Random(seed)
    timer, now_ms = Timer(), 0
    pending: dict[int, tuple[int, TimerEntry]] = {}
    fired: list[int] = []
    for number in range(4000):
        deadline = now_ms + draw.choice([0, -5, draw.randrange(70), draw.randrange(5000), draw.randrange(10**6)])
        pending[number] = (deadline, timer.add(deadline, lambda number=number: fired.append(number)))
        if draw.random() < 0.5:
            number, (_, entry) = draw.choice(list(pending.items())) if len(pending) < 50 else (number, pending[number])
            entry.cancel()
            del pending[number]
        if draw.random() < 0.3:
            now_ms += draw.choice([1, 50, 70, 900, 30_000])
            expected = {number for number, (deadline, _) in pending.items() if deadline <= now_ms}
            fired.clear()
            timer.advance(now_ms)
            assert set(fired) == expected
            assert len(fired) == len(expected)
            for number in expected:
                del pending[number]
        assert len(timer) == len(pending)


def test_next_deadline_is_never_later_than_the_first_entry_and_leads_to_it() -> None:
    timer = Timer()
    assert timer.next_deadline_ms is None
    fired, (entry,) = fired_by(timer, [123_456])
    steps = 0
    while not fired:
        due = timer.next_deadline_ms
        assert due is not None
        assert due <= 123_456
        timer.advance(due)
        steps += 1
    assert steps <= 4
    assert timer.next_deadline_ms is None
    entry.cancel()


def test_a_cancelled_entry_does_not_run_and_is_no_deadline_any_more() -> None:
    timer = Timer()
    fired, entries = fired_by(timer, [10, 500, 500])
    entries[0].cancel()
    entries[1].cancel()
    entries[1].cancel()
    assert timer.next_deadline_ms is not None
    assert timer.next_deadline_ms > 10
    timer.advance(1000)
    assert fired == [500]


def test_an_entry_cancelled_by_one_that_is_due_with_it_does_not_run() -> None:
    timer = Timer()
    fired: list[str] = []
    entries: list[TimerEntry] = []
    timer.add(5, lambda: entries[0].cancel())
    entries.append(timer.add(5, lambda: fired.append("cancelled")))
    timer.advance(5)
    assert fired == []


def test_an_entry_cancelled_while_it_moves_to_a_finer_bucket_is_gone() -> None:
    """On another thread `cancel` has looked at the old bucket, the timer has not set the new one yet."""
    timer = Timer()
    fired, (entry,) = fired_by(timer, [200])
    entry.callback = None
    timer.advance(199)
    assert len(timer) == 0
    timer.advance(200)
    assert fired == []


def test_an_entry_added_by_a_callback_runs_when_it_is_due() -> None:
    timer = Timer()
    fired: list[str] = []
    timer.add(5, lambda: timer.add(6, lambda: fired.append("second")) and None)
    timer.advance(5)
    assert fired == []
    timer.advance(6)
    assert fired == ["second"]


def test_memory_does_not_grow_by_cancelled_entries() -> None:
    timer = Timer()
    for now_ms in range(100_000):
        timer.add(now_ms + 30_000, lambda: None).cancel()
        if now_ms % 1000 == 0:
            timer.advance(now_ms)
    assert len(timer) == 0
    assert len(timer._buckets) <= 64 * 3
    assert sum(map(sys.getsizeof, timer._buckets.values())) < 200_000
    assert len(timer._dues) == len(timer._buckets)
