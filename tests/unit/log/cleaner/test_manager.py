from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from unit.log.cleaner.compacted import CompactedLog
from unit.log.logs import PARTITION

from pybroker.log.checkpoints import CLEANER_CHECKPOINT, read_offsets, write_offsets
from pybroker.log.cleaner.dirtiness import dirtiness
from pybroker.log.cleaner.manager import CleanerManager, CleaningState
from pybroker.log.files import TopicPartition
from pybroker.log.segment import Segment

NOW = 1_000_000
OTHER = TopicPartition("other", 0)
DEADLINE_S = 30


def nothing() -> None:
    pass


def rolled(directory: Path, segments: int = 3, **overrides: object) -> CompactedLog:
    """Segments of three records; the active one is empty."""
    topic = CompactedLog(directory, overrides)
    for number in range(segments):
        topic.write((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), timestamp=1_000 * number + 1)
        topic.roll()
    return topic


def checkpointed(topic: CompactedLog) -> dict[TopicPartition, int]:
    return read_offsets(topic.filesystem, f"{topic.directory}/{CLEANER_CHECKPOINT}")


# How dirty a log is.


def test_all_but_the_active_segment_is_dirty_at_first(tmp_path: Path) -> None:
    topic = rolled(tmp_path)
    topic.write((b"a", b"4"))
    found = dirtiness(topic.log, None, NOW)
    assert (found.first_dirty_offset, found.first_uncleanable_offset, found.ratio) == (0, 9, 1.0)
    assert found.cleanable_bytes == sum(segment.size_bytes for segment in topic.log.segments[:-1])


def test_the_ratio_is_of_what_could_be_cleaned_to_what_is_clean_besides(tmp_path: Path) -> None:
    topic = rolled(tmp_path, 4, **{"min.cleanable.dirty.ratio": 0.5})
    found = dirtiness(topic.log, 6, NOW)
    assert found.clean_bytes == found.cleanable_bytes
    assert (found.ratio, found.wants_cleaning) == (0.5, False)
    assert dirtiness(topic.log, 3, NOW).wants_cleaning
    clean = dirtiness(topic.log, 12, NOW)
    assert (clean.cleanable_bytes, clean.wants_cleaning) == (0, False)


def test_what_is_not_replicated_cannot_be_cleaned(tmp_path: Path) -> None:
    topic = rolled(tmp_path)
    topic.log.high_watermark = 7
    assert dirtiness(topic.log, None, NOW).first_uncleanable_offset == 6


def test_what_is_too_young_cannot_be_cleaned(tmp_path: Path) -> None:
    topic = rolled(tmp_path, **{"min.compaction.lag.ms": 500})
    assert dirtiness(topic.log, None, 1_503).first_uncleanable_offset == 6
    assert dirtiness(topic.log, None, 1_502).first_uncleanable_offset == 3
    assert dirtiness(topic.log, None, 502).first_uncleanable_offset == 0
    assert dirtiness(topic.log, None, 2_600).first_uncleanable_offset == 9


def test_what_waits_too_long_is_cleaned_however_little_it_is(tmp_path: Path) -> None:
    topic = rolled(tmp_path, 4, **{"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 10_000})
    assert not dirtiness(topic.log, 9, 13_003).wants_cleaning
    assert dirtiness(topic.log, 9, 13_004).wants_cleaning
    assert not dirtiness(topic.log, 12, 10**12).wants_cleaning


@pytest.mark.parametrize(("checkpoint", "start"), [(2, 4), (10, 4)])
def test_a_checkpoint_outside_of_the_log_is_reset(
    tmp_path: Path, checkpoint: int, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    topic = rolled(tmp_path)
    topic.log.advance_log_start_offset(start)
    write_offsets(topic.filesystem, f"{tmp_path}/{CLEANER_CHECKPOINT}", {PARTITION: checkpoint})
    taken = topic.manager.take_dirtiest(NOW, nothing)
    assert taken is not None
    assert taken.first_dirty_offset == start
    assert checkpointed(topic) == {PARTITION: start}
    assert f"cleaned up to offset {checkpoint}" in caplog.text


def test_a_reset_that_one_full_disk_does_not_take_leaves_the_cleaning_of_others_alone(tmp_path: Path) -> None:
    disk = FaultyDisk()
    topic, other = rolled(tmp_path / "1"), rolled(tmp_path / "2")
    other.log.partition = OTHER
    topic.log.advance_log_start_offset(4)
    dirs = [topic.directory, other.directory]
    write_offsets(disk, f"{dirs[0]}/{CLEANER_CHECKPOINT}", {PARTITION: 2})
    errors: list[tuple[str, OSError]] = []
    logs = {PARTITION: topic.log, OTHER: other.log}
    manager = CleanerManager(disk, dirs, lambda: logs, lambda *error: errors.append(error))
    disk.full.add(dirs[0])
    taken = [manager.take_dirtiest(NOW, nothing) for _ in range(2)]
    assert {found and found.log.partition for found in taken} == {PARTITION, OTHER}
    assert {log_dir for log_dir, _ in errors} == {dirs[0]}
    assert manager.checkpoint(PARTITION, dirs[0]) == 4
    disk.full.clear()
    manager.take_dirtiest(NOW, nothing)
    assert checkpointed(topic) == {PARTITION: 4}


def test_a_log_that_found_no_descriptor_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = rolled(tmp_path, **{"max.compaction.lag.ms": 10})

    def short(segment: Segment) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "first_batch", short)
        assert topic.manager.take_dirtiest(NOW, nothing) is None
    assert [error.errno for _, error in topic.disk_errors] == [errno.EMFILE]
    assert topic.manager.uncleanable == set()
    assert topic.manager.take_dirtiest(NOW, nothing) is not None


# Which is taken.


def test_the_dirtiest_is_taken_and_only_once(tmp_path: Path) -> None:
    topic, other = rolled(tmp_path / "1"), rolled(tmp_path / "2")
    other.log.partition = OTHER
    dirs = [topic.directory, other.directory]
    write_offsets(topic.filesystem, f"{dirs[0]}/{CLEANER_CHECKPOINT}", {PARTITION: 3})
    manager = CleanerManager(topic.filesystem, dirs, lambda: {PARTITION: topic.log, OTHER: other.log})
    taken = [manager.take_dirtiest(NOW, nothing) for _ in range(3)]
    assert [found and found.log.partition for found in taken] == [OTHER, PARTITION, None]
    assert manager.max_dirty_ratio == 0.0
    assert manager.state(OTHER) is CleaningState.IN_PROGRESS
    manager.cleaned(other.log, 9)
    assert manager.state(OTHER) is CleaningState.IDLE
    assert manager.take_dirtiest(NOW, nothing) is None
    assert manager.checkpoint(OTHER, dirs[1]) == 9


def test_a_log_that_is_not_compacted_is_not_taken(tmp_path: Path) -> None:
    topic = rolled(tmp_path, **{"cleanup.policy": ["delete"]})
    assert topic.manager.take_dirtiest(NOW, nothing) is None


def test_one_that_was_set_aside_is_not_taken_until_it_was_removed(tmp_path: Path) -> None:
    topic = rolled(tmp_path)
    topic.manager.set_aside(PARTITION, "it is broken")
    assert topic.manager.take_dirtiest(NOW, nothing) is None
    topic.manager.removed(PARTITION, topic.directory)
    assert topic.manager.take_dirtiest(NOW, nothing) is not None


def test_a_damaged_checkpoint_means_that_all_is_dirty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topic = rolled(tmp_path)
    (tmp_path / CLEANER_CHECKPOINT).write_text("nonsense")
    assert topic.clean() is not None
    assert checkpointed(topic) == {PARTITION: 9}
    assert "count as dirty" in caplog.text


# Pausing.


def test_pauses_count(tmp_path: Path) -> None:
    topic = rolled(tmp_path)
    topic.manager.pause(PARTITION)
    topic.manager.pause(PARTITION)
    topic.manager.resume(PARTITION)
    assert topic.manager.take_dirtiest(NOW, nothing) is None
    topic.manager.resume(PARTITION)
    assert topic.manager.take_dirtiest(NOW, nothing) is not None


def test_a_pause_aborts_what_is_under_way_and_waits_for_its_end(tmp_path: Path) -> None:
    topic = rolled(tmp_path)
    aborted = threading.Event()
    assert topic.manager.take_dirtiest(NOW, aborted.set) is not None
    pausing = threading.Thread(target=topic.manager.pause, args=(PARTITION,))
    pausing.start()
    assert aborted.wait(DEADLINE_S)
    assert topic.manager.state(PARTITION) is CleaningState.ABORTED
    assert pausing.is_alive()
    topic.manager.cleaned(topic.log, 9)
    pausing.join(DEADLINE_S)
    assert topic.manager.state(PARTITION) is CleaningState.PAUSED
    assert topic.manager.checkpoint(PARTITION, topic.directory) is None


# Checkpoints.


def test_a_truncation_moves_the_checkpoint_back_never_forward(tmp_path: Path) -> None:
    topic = rolled(tmp_path)
    topic.clean()
    topic.manager.truncated(PARTITION, topic.directory, 20)
    assert checkpointed(topic) == {PARTITION: 9}
    topic.manager.truncated(PARTITION, topic.directory, 5)
    assert checkpointed(topic) == {PARTITION: 5}


def test_a_log_that_moves_takes_its_checkpoint_along(tmp_path: Path) -> None:
    topic = rolled(tmp_path / "1")
    destination = tmp_path / "2"
    destination.mkdir()
    manager = CleanerManager(topic.filesystem, [topic.directory, str(destination)], lambda: {PARTITION: topic.log})
    manager.take_dirtiest(NOW, nothing)
    manager.cleaned(topic.log, 7)
    manager.moved(PARTITION, topic.directory, str(destination))
    assert checkpointed(topic) == {}
    assert read_offsets(topic.filesystem, f"{destination}/{CLEANER_CHECKPOINT}") == {PARTITION: 7}


def test_what_is_known_of_logs_that_are_gone_goes(tmp_path: Path) -> None:
    topic = rolled(tmp_path)
    write_offsets(topic.filesystem, f"{tmp_path}/{CLEANER_CHECKPOINT}", {OTHER: 4})
    topic.clean()
    assert checkpointed(topic) == {PARTITION: 9}
    topic.manager.removed(PARTITION, topic.directory)
    assert checkpointed(topic) == {}


def test_a_failed_directory_is_not_written_any_more(tmp_path: Path) -> None:
    topic = rolled(tmp_path)
    topic.clean()
    topic.manager.dir_failed(topic.directory)
    topic.manager.truncated(PARTITION, topic.directory, 1)
    assert checkpointed(topic) == {PARTITION: 9}
