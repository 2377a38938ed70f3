"""How many segments are open at once."""

from __future__ import annotations

from pybroker.log.open_segments import OpenSegments


class Idle:
    def __init__(self, open_segments: OpenSegments) -> None:
        self.used = False
        self.is_open = False
        self.open_segments = open_segments

    def use(self) -> None:
        self.used = True
        if not self.is_open:
            self.is_open = True
            self.open_segments.opened(self)

    def release(self) -> None:
        self.is_open = False


def some(count: int, limit: int) -> tuple[OpenSegments, list[Idle]]:
    open_segments = OpenSegments(limit)
    return open_segments, [Idle(open_segments) for _ in range(count)]


def test_up_to_the_limit_all_stay_open() -> None:
    open_segments, segments = some(5, limit=5)
    for segment in segments:
        segment.use()
    assert all(segment.is_open for segment in segments)
    assert len(open_segments) == 5


def test_beyond_it_one_lets_go_but_never_the_one_that_opens() -> None:
    open_segments, segments = some(50, limit=5)
    for segment in segments:
        segment.use()
        assert segment.is_open
        assert sum(each.is_open for each in segments) <= 5
        assert len(open_segments) == sum(each.is_open for each in segments)


def test_one_that_is_used_gets_a_second_chance() -> None:
    _, segments = some(40, limit=4)
    busy, others = segments[0], segments[1:]
    busy.use()
    reopened = 0
    for segment in others:
        segment.use()
        reopened += not busy.is_open
        busy.use()
    assert reopened <= 1, "the first round finds all used"


def test_a_closed_one_is_forgotten() -> None:
    open_segments, segments = some(3, limit=2)
    segments[0].use()
    open_segments.closed(segments[0])
    open_segments.closed(segments[0])
    segments[0].is_open = False
    assert len(open_segments) == 0
    segments[1].use()
    segments[2].use()
    assert segments[1].is_open
    assert segments[2].is_open


def test_a_limit_of_one() -> None:
    open_segments, segments = some(3, limit=1)
    for segment in segments * 2:
        segment.use()
        assert [each.is_open for each in segments].count(True) == 1
    assert len(open_segments) == 1
