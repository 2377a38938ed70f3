from __future__ import annotations

import threading
from pathlib import Path

from support.waiting import wait_until
from unit.log.cleaner.compacted import CompactedLog
from unit.log.logs import PARTITION
from unit.server.clusters import node_file

from pybroker.log.cleaner.cleaner import Cleaner
from pybroker.log.cleaner.job import CleanerConfig, CleanerStats, CleaningJob
from pybroker.log.cleaner.manager import CleaningState
from pybroker.log.cleaner.runner import InlineRunner, Swap
from pybroker.log.cleaner.setup import CleanerSettings, NodeLogCleaner
from pybroker.log.cleaner.threads import CleanerThread
from pybroker.log.open_segments import OpenSegments

DEADLINE_S = 30
HOUR_MS = "3600000"


def config(**values: str) -> dict[str, str]:
    return {f"log.cleaner.{name.replace('_', '.')}": value for name, value in values.items()}


def test_memory_and_rate_are_shared_by_the_threads() -> None:
    given = config(
        threads="4",
        dedupe_buffer_size="8388608",
        io_buffer_size="1048576",
        io_max_bytes_per_second="1000",
        io_buffer_load_factor="0.5",
        backoff_ms="7",
    )
    share = CleanerConfig(dedupe_buffer_bytes=2097152, load_factor=0.5, io_buffer_bytes=131072, max_bytes_per_second=250.0)
    assert CleanerSettings.of(node_file(given)) == CleanerSettings(4, 7, share)


class Node:
    """A cleaner over one compacted log; `made` has the settings of all threads there ever were."""

    def __init__(self, tmp_path: Path, **values: str) -> None:
        self.topic = CompactedLog(tmp_path)
        self.runner: type[InlineRunner] = InlineRunner
        self.made: list[CleanerSettings] = []
        self.cleaner = NodeLogCleaner(self.topic.manager, self.threads_for, CleanerSettings.of(node_file(config(**values))))

    def threads_for(self, settings: CleanerSettings) -> list[CleanerThread]:
        self.made.append(settings)
        threads = []
        for number in range(settings.threads):
            runner = self.runner(self.topic.filesystem)
            cleaner = Cleaner(self.topic.manager, runner, OpenSegments(), settings.share)
            name = f"{id(self)}-{len(self.made)}-{number}"
            threads.append(CleanerThread(name, cleaner, runner, lambda: 1_000_000, settings.backoff_ms))
        return threads

    def reconfigure(self, **values: str) -> None:
        self.cleaner.reconfigure(node_file(config(**values)))

    def running(self) -> list[str]:
        prefix = f"{id(self)}-"
        return sorted(one.name.removeprefix(prefix) for one in threading.enumerate() if one.name.startswith(prefix))

    def make_dirty(self) -> None:
        self.topic.write((b"a", b"1"), (b"a", b"2"))
        self.topic.roll()

    def is_clean(self) -> bool:
        return self.topic.manager.checkpoint(PARTITION, str(Path(self.topic.log.directory).parent)) == 2


def test_more_threads_take_over_from_fewer(tmp_path: Path) -> None:
    node = Node(tmp_path, backoff_ms=HOUR_MS)
    node.cleaner.start()
    assert node.running() == ["1-0"]
    node.reconfigure(backoff_ms=HOUR_MS, threads="2")
    assert node.running() == ["2-0", "2-1"]
    node.cleaner.stop()
    assert node.running() == []


def test_the_same_settings_leave_the_threads_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, threads="2")
    node.cleaner.start()
    node.reconfigure(threads="2", min_cleanable_ratio="0.3")
    assert node.running() == ["1-0", "1-1"]
    node.cleaner.stop()


def test_a_shorter_backoff_is_not_waited_for_behind_the_long_one(tmp_path: Path) -> None:
    node = Node(tmp_path, backoff_ms=HOUR_MS)
    node.cleaner.start()
    node.make_dirty()
    node.reconfigure(backoff_ms="1")
    wait_until(node.is_clean, DEADLINE_S, lambda: "the log was not cleaned")
    node.cleaner.stop()


def test_a_cleaning_under_way_is_given_up_and_done_by_the_new_threads(tmp_path: Path) -> None:
    begun, aborted = threading.Event(), threading.Event()

    class Slow(InlineRunner):
        def clean(self, job: CleaningJob, swap: Swap) -> CleanerStats:
            begun.set()
            assert aborted.wait(DEADLINE_S)
            return super().clean(job, swap)

        def abort(self) -> None:
            super().abort()
            aborted.set()

    node = Node(tmp_path, backoff_ms="1")
    node.make_dirty()
    node.runner = Slow
    node.reconfigure(backoff_ms="2")
    node.cleaner.start()
    assert begun.wait(DEADLINE_S)
    assert node.topic.manager.state(PARTITION) is CleaningState.IN_PROGRESS
    node.runner = InlineRunner
    node.reconfigure(backoff_ms="3")
    wait_until(node.is_clean, DEADLINE_S, lambda: "the log was not cleaned")
    node.cleaner.stop()


def test_before_the_start_and_after_the_stop_no_thread_runs(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.reconfigure(threads="2")
    assert node.running() == []
    node.cleaner.start()
    node.cleaner.stop()
    node.reconfigure(threads="1")
    assert node.running() == []
    assert [settings.threads for settings in node.made] == [1, 2, 1]
