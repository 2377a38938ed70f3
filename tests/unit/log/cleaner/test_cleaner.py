from __future__ import annotations

import threading
from pathlib import Path

import pytest
from unit.log.cleaner.compacted import CompactedLog
from unit.log.logs import PARTITION

from pybroker.log.background import Inline
from pybroker.log.cleaner.cleaner import DEATHS_ALLOWED
from pybroker.log.cleaner.job import CleanerStats, CleaningAbortedError, CleaningJob
from pybroker.log.cleaner.manager import CleaningState
from pybroker.log.cleaner.process import WorkerDiedError
from pybroker.log.cleaner.runner import InlineRunner, Swap
from pybroker.log.cleaner.threads import CleanerThread, LogCleaner
from pybroker.log.cleaner.throttle import Throttle
from pybroker.log.files import DELETED
from pybroker.log.manager.cleaner_port import Cleaner as CleanerPort

DEADLINE_S = 30


class Mortal(InlineRunner):
    def clean(self, job: CleaningJob, swap: Swap) -> CleanerStats:
        raise WorkerDiedError("the cleaning process 1 ended")


def dirty(topic: CompactedLog) -> CompactedLog:
    topic.write((b"a", b"1"), (b"a", b"2"))
    topic.roll()
    return topic


def test_a_job_goes_through_a_line_of_json_unharmed(tmp_path: Path) -> None:
    topic = dirty(CompactedLog(tmp_path))
    topic.write((b"a", b"1"), producer_id=7)
    jobs: list[CleaningJob] = []

    class Noting(InlineRunner):
        def clean(self, job: CleaningJob, swap: Swap) -> CleanerStats:
            jobs.append(job)
            return super().clean(job, swap)

    topic.cleaner._runner = Noting(topic.filesystem)
    topic.clean()
    assert CleaningJob.from_json(jobs[0].to_json()) == jobs[0]
    assert jobs[0].producers == {7: (2, 0)}


def test_a_log_whose_worker_dies_time_and_again_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topic = dirty(CompactedLog(tmp_path))
    topic.cleaner._runner = Mortal(topic.filesystem)
    for _ in range(DEATHS_ALLOWED):
        assert topic.manager.uncleanable == set()
        assert topic.clean() is None
    assert topic.manager.uncleanable == {PARTITION}
    assert "3 times" in caplog.text


def test_an_abort_between_taking_and_cleaning_is_not_lost(tmp_path: Path) -> None:
    topic = dirty(CompactedLog(tmp_path))
    topic.runner.abort()
    assert topic.clean() is None
    assert len(topic.stored()) == 2
    assert topic.manager.state(PARTITION) is CleaningState.IDLE
    assert topic.clean() is not None


def test_a_failing_disk_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def failing(count: int) -> None:
        raise OSError(5, "Input/output error")

    topic = dirty(CompactedLog(tmp_path))
    topic.cleaner._runner = InlineRunner(topic.filesystem, failing)
    assert topic.clean() is None
    assert [log_dir for log_dir, _ in topic.disk_errors] == [str(tmp_path)]
    assert not list(tmp_path.glob("*/*.cleaned"))
    assert topic.manager.checkpoint(PARTITION, str(tmp_path)) is None


def test_compact_and_delete_lets_old_segments_go(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path, {"cleanup.policy": ["compact", "delete"], "retention.ms": 1_000})
    dirty(topic)
    topic.write((b"b", b"1"), timestamp=900_000)
    assert topic.clean(900_500) is not None
    assert topic.log.log_start_offset == 2
    assert [row.key for row in topic.stored()] == [b"b"]


def test_segments_that_become_one_leave_no_producer_snapshots_behind(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    for number in range(3):
        topic.write((b"a", b"1"), producer_id=7, sequence=number)
        topic.roll()
    assert topic.clean() is not None
    assert isinstance(topic.log._background, Inline)
    topic.log._background.run_delayed()
    assert len(topic.log.segments) == 2
    assert not [path.name for path in Path(topic.log.directory).iterdir() if path.suffix == DELETED]


def test_compact_alone_deletes_only_what_is_before_the_log_start(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path, {"retention.ms": 1})
    dirty(topic)
    dirty(topic)
    topic.log.advance_log_start_offset(2)
    topic.clean()
    assert [row.offset for row in topic.stored()] == [3]


def test_a_thread_cleans_when_it_is_woken_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    rounds: list[object] = []
    done = threading.Condition()
    clean_once = topic.cleaner.clean_once

    def noted(now_ms: int) -> CleanerStats | None:
        stats = clean_once(now_ms)
        with done:
            rounds.append(stats)
            done.notify()
        return stats

    topic.cleaner.clean_once = noted  # type: ignore[method-assign]
    thread = CleanerThread("cleaner", topic.cleaner, topic.runner, lambda: 1_000_000, backoff_ms=3_600_000)
    cleaner = LogCleaner(topic.manager, [thread])
    port: CleanerPort = cleaner
    port.start()
    with done:
        assert done.wait_for(lambda: rounds == [None], DEADLINE_S)
    dirty(topic)
    thread.wake()
    with done:
        assert done.wait_for(lambda: len(rounds) == 3, DEADLINE_S)
    assert rounds[1] is not None
    assert rounds[2] is None
    port.stop()
    assert topic.manager.checkpoint(PARTITION, str(tmp_path)) == 2


def test_a_throttle_waits_until_what_went_was_due_and_saves_nothing_up() -> None:
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    throttle = Throttle(1_000, lambda: now[0], sleep)
    throttle(500)
    throttle(1_000)
    now[0] += 60
    throttle(250)
    assert slept == [0.5, 1.0, 0.25]


def test_a_runner_that_is_aborted_says_so(tmp_path: Path) -> None:
    topic = dirty(CompactedLog(tmp_path))
    runner = InlineRunner(topic.filesystem)
    taken = topic.manager.take_dirtiest(1_000_000, runner.abort)
    assert taken is not None
    job, _ = topic.cleaner._job(taken, 1_000_000)
    runner.abort()
    with pytest.raises(CleaningAbortedError):
        runner.clean(job, lambda cleaned: None)
