from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from unit.log.cleaner.compacted import CompactedLog

from pybroker.base.filesystem import OsFileSystem
from pybroker.log.cleaner.job import CleanerConfig, CleaningAbortedError
from pybroker.log.cleaner.manager import CleaningState
from pybroker.log.cleaner.process import CleanerProcess

SLOW = CleanerConfig(max_bytes_per_second=1.0)
DEADLINE_S = 30


@pytest.fixture
def process() -> object:
    process = CleanerProcess(OsFileSystem())
    yield process
    process.close()


def filled(directory: Path, process: CleanerProcess, config: CleanerConfig | None = None) -> CompactedLog:
    topic = CompactedLog(directory, runner=process, config=config)
    for number in range(50):
        topic.write((b"k%d" % (number % 5), b"%d" % number), producer_id=1, sequence=number)
    topic.roll()
    return topic


def cleaned_files(topic: CompactedLog) -> list[str]:
    return [path.name for path in Path(topic.log.directory).iterdir() if path.name.endswith((".cleaned", ".swap"))]


def test_another_process_does_the_work_and_is_kept_for_the_next_job(tmp_path: Path, process: CleanerProcess) -> None:
    topic = filled(tmp_path, process)
    stats = topic.clean()
    assert stats is not None
    assert (stats.records_read, stats.records_written, stats.end_offset) == (50, 5, 50)
    assert stats.max_rss_bytes > stats.map_size_bytes > 0
    assert stats.seconds > 0
    assert [row.value for row in topic.stored()] == [b"45", b"46", b"47", b"48", b"49"]
    first = process.pid
    assert first not in (None, os.getpid())
    topic.write((b"k0", b"new"))
    topic.roll()
    assert topic.clean() is not None
    assert process.pid == first


def started(topic: CompactedLog, process: CleanerProcess) -> threading.Thread:
    """A cleaning under way in another thread, which will not end by itself: its disk gives a byte a second."""
    thread = threading.Thread(target=topic.clean)
    thread.start()
    pause = threading.Event()
    while process.pid is None or topic.manager.state(topic.log.partition) is not CleaningState.IN_PROGRESS:
        pause.wait(0.001)
        assert thread.is_alive()
    return thread


def test_a_worker_that_is_killed_leaves_the_log_as_it_was_and_the_next_one_does_it(
    tmp_path: Path, process: CleanerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled(tmp_path, process, SLOW)
    before = topic.stored()
    Path(topic.log.directory, "00000000000000000000.log.cleaned").write_bytes(b"half a segment")
    thread = started(topic, process)
    killed = process.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert "in the middle of its work; it is tried again" in caplog.text
    assert topic.stored() == before
    assert cleaned_files(topic) == []
    topic.cleaner.config = CleanerConfig()
    assert topic.clean() is not None
    assert process.pid != killed
    assert len(topic.stored()) == 5


def test_an_abort_kills_the_worker_and_the_next_job_gets_a_new_one(tmp_path: Path, process: CleanerProcess) -> None:
    topic = filled(tmp_path, process, SLOW)
    partition = topic.log.partition
    before = topic.stored()
    thread = started(topic, process)
    topic.manager.pause(partition)
    assert topic.manager.state(partition) is CleaningState.PAUSED
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert topic.stored() == before
    assert cleaned_files(topic) == []
    assert topic.manager.uncleanable == set()
    assert topic.clean() is None
    topic.manager.resume(partition)
    topic.cleaner.config = CleanerConfig()
    assert topic.clean() is not None
    assert len(topic.stored()) == 5


def test_a_disk_error_in_the_worker_is_one_in_the_broker(tmp_path: Path, process: CleanerProcess) -> None:
    topic = filled(tmp_path, process)
    os.rename(topic.log.segments[0].path(".log"), tmp_path / "gone")
    assert topic.clean() is None
    ((log_dir, error),) = topic.disk_errors
    assert log_dir == str(tmp_path)
    assert isinstance(error, FileNotFoundError)
    assert topic.manager.uncleanable == set()


def test_damage_found_by_the_worker_sets_the_partition_aside(
    tmp_path: Path, process: CleanerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled(tmp_path, process)
    path = Path(topic.log.segments[0].path(".log"))
    path.write_bytes(path.read_bytes()[:-2] + b"xx")
    assert topic.clean() is None
    assert topic.manager.uncleanable == {topic.log.partition}
    assert "CRC" in caplog.text


def test_the_worker_ends_when_its_stdin_closes() -> None:
    worker = subprocess.Popen([sys.executable, "-m", "pybroker.log.cleaner.worker"], stdin=subprocess.PIPE)
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(DEADLINE_S) == 0


def test_a_closed_one_takes_no_job(tmp_path: Path, process: CleanerProcess) -> None:
    topic = filled(tmp_path, process)
    process.close()
    assert topic.clean() is None
    assert topic.manager.state(topic.log.partition) is CleaningState.IDLE
    with pytest.raises(CleaningAbortedError):
        process._started()
