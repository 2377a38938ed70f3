from __future__ import annotations

import threading
from pathlib import Path

import pytest
from unit.log.manager.helpers import Node, crash, partition, values

from pybroker.log import loader
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.parallel import Crew
from pybroker.log.recovery import SegmentScan, scan_segment
from pybroker.log.segment import Segment

DEADLINE_SECONDS = 10


class Busy:
    """Work that counts how many are at it."""

    def __init__(self, meeting: threading.Barrier | None = None) -> None:
        self.meeting = meeting
        self.threads: set[int] = set()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.threads.add(threading.get_ident())
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        if self.meeting is not None:
            self.meeting.wait(DEADLINE_SECONDS)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.at_once -= 1


def test_the_parts_of_one_item_are_done_by_all_threads_and_come_in_order() -> None:
    busy = Busy(threading.Barrier(3))
    results: list[int] = []

    def part(number: int) -> int:
        with busy:
            return number * number

    crew = Crew("test", 3)
    crew.run(lambda _: results.extend(crew.map(part, range(9))), ["item"])
    assert results == [number * number for number in range(9)]
    assert len(busy.threads) == 3


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_divided_items_end_with_no_more_threads_than_asked_for(threads: int) -> None:
    busy = Busy()
    done: list[tuple[int, list[int]]] = []

    def part(number: int) -> int:
        with busy:
            return number

    crew = Crew("test", threads)
    crew.run(lambda item: done.append((item, list(crew.map(part, range(item))))), range(30))
    assert sorted(done) == [(item, list(range(item))) for item in range(30)]
    assert busy.most_at_once <= threads
    assert len(busy.threads) <= threads


def test_an_error_in_a_part_comes_where_its_result_is_due() -> None:
    seen: list[int] = []

    def part(number: int) -> int:
        if number == 3:
            raise ValueError("part 3")
        return number

    def work(_: str) -> None:
        for result in crew.map(part, range(6)):
            seen.append(result)

    crew = Crew("test", 2)
    with pytest.raises(ValueError, match="part 3"):
        crew.run(work, ["item"])
    assert seen == [0, 1, 2]


def test_parts_that_are_not_wanted_any_more_are_not_begun_and_those_under_way_are_waited_for() -> None:
    owner = threading.current_thread()
    begun = threading.Event()
    leave = threading.Event()
    held: list[int] = []
    ended: list[int] = []
    count = 100

    def part(number: int) -> int:
        if threading.current_thread() is owner:
            # Not before the other thread has one that it keeps.
            assert begun.wait(DEADLINE_SECONDS)
        elif number > 0 and not held:
            held.append(number)
            begun.set()
            assert leave.wait(DEADLINE_SECONDS)
        ended.append(number)
        return number

    def work(_: str) -> None:
        parts = crew.map(part, range(count))
        assert next(parts) == 0
        threading.Timer(0.05, leave.set).start()
        parts.close()
        assert held[0] in ended
        assert len(ended) < count

    crew = Crew("test", 2)
    crew.run(work, ["item"])


def crashed_node(tmp_path: Path, logs: int, threads: int) -> Node:
    """Logs of ten segments each, none of them flushed."""
    node = Node(tmp_path, recovery_threads=threads)
    node.config = LogConfig.of({"segment.bytes": 1_048_576})
    manager = node.loaded()
    for number in range(logs):
        log = node.create(manager, number)
        for turn in range(10):
            node.append(log, b"%d" % turn)
            if turn < 9:
                log.roll(node.scheduler.now_ms)
    for log in manager.all_logs():
        assert len(log.segments) == 10
    for path in node.paths:
        (path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    crash(manager)
    return node


def watch(monkeypatch: pytest.MonkeyPatch, busy: Busy) -> None:
    def scan(segment: Segment) -> SegmentScan:
        with busy:
            return scan_segment(segment)

    monkeypatch.setattr(loader, "scan_segment", scan)


def test_the_segments_of_one_log_are_recovered_by_all_recovery_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = crashed_node(tmp_path, logs=1, threads=5)
    busy = Busy(threading.Barrier(5))
    watch(monkeypatch, busy)
    found = node.loaded().get(partition(0))
    assert found is not None
    assert values(found) == [b"%d" % turn for turn in range(10)]
    assert len(busy.threads) == 5


@pytest.mark.parametrize("threads", [1, 3])
def test_recovery_takes_no_more_threads_than_num_recovery_threads_per_data_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    node = crashed_node(tmp_path, logs=8, threads=threads)
    busy = Busy()
    watch(monkeypatch, busy)
    manager = node.loaded()
    assert [values(log) for log in manager.all_logs()] == [[b"%d" % turn for turn in range(10)]] * 8
    assert busy.most_at_once <= threads
    assert 1 <= len(busy.threads) <= threads
