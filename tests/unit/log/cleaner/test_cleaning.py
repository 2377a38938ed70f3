from __future__ import annotations

from pathlib import Path

import pytest
from unit.log.cleaner.compacted import RETENTION_MS, CompactedLog

from pybroker.log.cleaner.cleaning import group_segments
from pybroker.log.cleaner.job import CleanerConfig, CleaningJob, SourceSegment
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType

NOW = 1_000_000
ALL_CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)


@ALL_CODECS
def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path: Path, codec: Codec) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec)
    topic.write((b"c", b"1"), (b"b", b"2"), codec=codec, timestamp=200)
    topic.roll()
    topic.write((b"a", b"active"))
    stats = topic.clean()
    assert stats is not None
    assert [row[:3] for row in topic.stored()] == [
        (2, b"a", b"2"),
        (3, b"c", b"1"),
        (4, b"b", b"2"),
        (5, b"a", b"active"),
    ]
    assert (stats.records_read, stats.records_written, stats.map_keys, stats.end_offset) == (5, 3, 3, 5)
    assert [batch.codec for batch in topic.batches()] == [codec, codec, Codec.NONE]
    assert topic.clean() is None


def test_a_batch_that_stays_whole_is_copied_byte_for_byte(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    for number in range(10):
        topic.write((b"k%d" % number, b"v"), (b"l%d" % number, b"v"))
    before = Path(topic.log.active.path(".log")).read_bytes()
    topic.roll()
    assert topic.clean() is not None
    assert Path(topic.log.segments[0].path(".log")).read_bytes() == before


def test_timestamps_stay_and_the_highest_is_that_of_what_stays(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"), (b"b", b"1"), timestamp=500)
    topic.write((b"b", b"2"), timestamp=300)
    topic.roll()
    topic.clean()
    assert [(batch.base_offset, batch.last_offset, batch.max_timestamp) for batch in topic.batches()] == [
        (0, 1, 500),
        (2, 2, 300),
    ]
    assert [(row.offset, row.timestamp) for row in topic.stored()] == [(0, 500), (2, 300)]
    assert topic.log.segments[0].highest_timestamp == (500, 1)


def test_a_tombstone_stays_until_its_horizon_and_what_it_deletes_goes_at_once(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"), (b"b", b"1"))
    topic.write((b"a", None), (b"c", b"1"))
    topic.roll()
    topic.clean(NOW)
    assert [row[:3] for row in topic.stored()] == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    assert [batch.delete_horizon_ms for batch in topic.batches()] == [None, NOW + RETENTION_MS]
    assert [row.timestamp for row in topic.stored()] == [101, 100, 101]

    def again(now_ms: int) -> list[int]:
        topic.write((b"x", b"%d" % now_ms))
        topic.roll()
        topic.clean(now_ms)
        return [row.offset for row in topic.stored() if row.key != b"x"]

    assert again(NOW + RETENTION_MS - 1) == [1, 2, 3]
    assert again(NOW + RETENTION_MS) == [1, 3]


def test_what_was_aborted_goes_and_counts_for_nothing(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"), (b"b", b"1"))
    topic.write((b"a", b"aborted"), producer_id=1, transactional=True)
    topic.end_transaction(1, ControlType.ABORT)
    topic.write((b"b", b"2"), producer_id=2, transactional=True)
    topic.end_transaction(2, ControlType.COMMIT)
    topic.roll()
    topic.clean()
    assert [row[:3] for row in topic.committed()] == [(0, b"a", b"1"), (4, b"b", b"2")]
    assert topic.table() == {b"a": b"1", b"b": b"2"}


def test_a_marker_stays_until_its_data_is_gone_and_its_horizon_past(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"), producer_id=1, transactional=True)
    marker = topic.end_transaction(1, ControlType.COMMIT)
    topic.write((b"next", b"1"), producer_id=1, epoch=1)  # a later epoch: the marker is not needed for the producer's sake

    def rounds(now_ms: int) -> tuple[bool, int | None]:
        topic.write((b"x", b"%d" % now_ms))
        topic.roll()
        topic.clean(now_ms)
        found = [batch for batch in topic.batches() if batch.base_offset == marker]
        return bool(found), found[0].delete_horizon_ms if found else None

    assert rounds(NOW) == (True, None)
    topic.write((b"a", b"2"))
    assert rounds(NOW + 1) == (True, None)  # in this round the data went
    assert rounds(NOW + 2) == (True, NOW + 2 + RETENTION_MS)
    assert rounds(NOW + 1 + RETENTION_MS) == (True, NOW + 2 + RETENTION_MS)
    assert rounds(NOW + 2 + RETENTION_MS) == (False, None)


def test_the_index_of_aborted_transactions_is_written_anew_as_long_as_their_data_was_there(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"aborted"), producer_id=1, transactional=True)
    topic.end_transaction(1, ControlType.ABORT)
    topic.roll()
    topic.clean()
    assert [row.producer_id for row in topic.log.segments[0].transaction_index.rows()] == [1]
    topic.write((b"x", b"1"))
    topic.roll()
    topic.clean()
    # The emptied batch is the last of its producer, so it is still there and so is the row.
    assert [row.producer_id for row in topic.log.segments[0].transaction_index.rows()] == [1]


def test_a_transaction_that_is_not_decided_is_not_touched_nor_is_what_follows(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"))
    topic.roll()
    topic.write((b"a", b"2"), producer_id=1, transactional=True)
    topic.roll()
    topic.write((b"a", b"3"))
    topic.roll()
    stats = topic.clean()
    assert stats is not None
    assert stats.end_offset == 1
    assert [row.value for row in topic.stored()] == [b"1", b"2", b"3"]


def test_the_sequence_of_a_producer_survives_its_last_record(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"), producer_id=7, sequence=0)
    topic.write((b"a", b"2"), (b"b", b"1"), producer_id=7, sequence=1)
    topic.write((b"a", b"3"), (b"b", b"2"))
    topic.roll()
    topic.clean()
    assert [(batch.base_offset, batch.last_offset, batch.count, batch.producer_id) for batch in topic.batches()] == [
        (1, 2, 0, 7),
        (3, 4, 2, -1),
    ]
    for path in Path(topic.log.directory).glob("*.snapshot"):
        path.unlink()
    topic.reopen()
    entry = topic.log.producers.entry(7)
    assert entry is not None
    assert (entry.last_sequence, entry.last_data_offset) == (2, 2)


def test_the_marker_with_the_epoch_of_a_producer_without_data_survives_as_an_empty_batch(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"), producer_id=7, epoch=0, transactional=True)
    topic.end_transaction(7, ControlType.ABORT, epoch=1)
    for number in range(4):
        topic.write((b"a", b"%d" % number))
        topic.roll()
        topic.clean(NOW + number * RETENTION_MS)
    (control,) = [batch for batch in topic.batches() if batch.is_control]
    assert (control.count, control.producer_id, control.producer_epoch) == (0, 7, 1)


def test_the_last_offset_of_what_was_cleaned_survives(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"))
    topic.write((b"b", b"1"), producer_id=1, transactional=True)
    topic.end_transaction(1, ControlType.ABORT)
    topic.write((b"a", b"2"), producer_id=1, transactional=True, sequence=1)
    topic.write((b"a", b"3"), producer_id=1, transactional=True, sequence=2)
    topic.roll()
    topic.end_transaction(1, ControlType.ABORT)
    topic.clean()
    last = [batch for batch in topic.batches() if batch.last_offset == 4]
    assert [(batch.count, batch.next_offset) for batch in last] == [(0, 5)]
    assert topic.table() == {b"a": b"1"}


def test_a_cleaned_segment_is_as_old_as_the_last_it_was_made_from(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    for number in range(3):
        topic.write((b"a", b"%d" % number), (b"b%d" % number, b""))
        topic.roll()
    ages_ms = [1_600_000_000_000 + number for number in (5, 9, 7)]
    for segment, modified_ms in zip(topic.log.segments, ages_ms, strict=False):
        topic.filesystem.set_modified_ms(segment.path(".log"), modified_ms)
    assert topic.clean() is not None
    cleaned = topic.log.segments[0]
    assert [segment.base_offset for segment in topic.log.segments] == [0, 6]
    assert [topic.filesystem.modified_ms(cleaned.path(kind)) for kind in (".log", ".index", ".timeindex")] == [ages_ms[2]] * 3


def test_records_without_a_key_are_dropped_and_counted(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((None, b"1"), (b"a", b"1"))
    topic.roll()
    stats = topic.clean()
    assert stats is not None
    assert stats.invalid_records == 1
    assert [row.offset for row in topic.stored()] == [1]


def test_a_map_that_is_full_cleans_as_far_as_it_goes_and_the_next_round_goes_on(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path, config=CleanerConfig(dedupe_buffer_bytes=24 * 32, load_factor=0.125))
    for round_ in range(2):
        topic.write(*((b"k%d" % number, b"%d" % round_) for number in range(6)))
    topic.roll()
    ends = []
    while stats := topic.clean():
        ends.append(stats.end_offset)
        assert topic.table() == {b"k%d" % number: b"1" for number in range(6)}
    assert ends == [4, 8, 12]
    assert [row.offset for row in topic.stored()] == [6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("buffer_bytes", [100, 300, 5_000])
def test_batches_larger_than_the_buffer_are_read_whole(tmp_path: Path, buffer_bytes: int) -> None:
    topic = CompactedLog(tmp_path, config=CleanerConfig(io_buffer_bytes=buffer_bytes))
    for number in range(20):
        topic.write((b"a", b"x" * 1_000), (b"k%d" % number, b"y" * 50))
        topic.write((b"b", b"small"))
    topic.roll()
    topic.clean()
    assert [row.offset for row in topic.stored()] == [*range(1, 58, 3), 57, 58, 59]


def test_small_segments_are_merged_and_found_through_their_new_indexes(tmp_path: Path) -> None:
    topic = CompactedLog(tmp_path, {"index.interval.bytes": 100, "segment.bytes": 1_048_576})
    for number in range(30):
        topic.write((b"k%d" % number, b"x" * 50), timestamp=1_000 + number)
        topic.write((b"again", b"x" * 50), timestamp=2_000 + number)
        topic.roll()
    assert len(topic.log.segments) == 31
    topic.clean()
    assert [segment.base_offset for segment in topic.log.segments] == [0, 60]
    merged = topic.log.segments[0]
    merged.sanity_check()
    assert merged.index.entry_count > 10
    for number in range(30):
        place = merged.locate(2 * number, merged.size_bytes)
        assert place is not None
        assert place.base_offset == 2 * number
    assert merged.highest_timestamp == (2_029, 59)


def _grouped(sizes: list[int], **limits: int) -> list[list[int]]:
    numbers = {"segment_bytes": 100, "segment_index_bytes": 10_000, "index_interval_bytes": 4_096} | limits
    step = numbers.pop("step", 10)
    segments = tuple(SourceSegment(number * step, size) for number, size in enumerate(sizes))
    job = CleaningJob(
        name="",
        directory="",
        segments=segments,
        first_dirty_offset=0,
        first_uncleanable_offset=len(sizes) * step,
        dirty_position=0,
        now_ms=0,
        delete_retention_ms=0,
        **numbers,
    )
    return [[segment.base_offset // step for segment in group] for group in group_segments(segments, job)]


def test_groups_fit_into_a_segment_by_bytes_by_index_and_by_offsets() -> None:
    assert _grouped([]) == []
    assert _grouped([50, 50, 1]) == [[0, 1], [2]]
    assert _grouped([150, 20, 70, 20]) == [[0], [1, 2], [3]]
    assert _grouped([0, 0, 100, 0]) == [[0, 1, 2, 3]]
    assert _grouped([68, 68, 68], segment_bytes=1_000, segment_index_bytes=24, index_interval_bytes=0) == [[0, 1], [2]]
    assert _grouped([1, 1, 1], step=2**30) == [[0, 1], [2]]
    assert _grouped([1, 0, 0], step=2**31) == [[0, 1, 2]]


def test_a_damaged_batch_sets_the_partition_aside_and_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topic = CompactedLog(tmp_path)
    topic.write((b"a", b"1"))
    topic.write((b"a", b"2"))
    topic.roll()
    path = Path(topic.log.segments[0].path(".log"))
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    foreign = path.parent / "my-notes.cleaned"
    foreign.touch()
    assert topic.clean() is None
    assert path.read_bytes() == data
    assert list(path.parent.glob("*.cleaned")) == [foreign], "what we did not write stays"
    assert topic.manager.uncleanable == {topic.log.partition}
    assert "orders-0 cannot be cleaned" in caplog.text
    assert "CRC" in caplog.text
    assert topic.clean() is None
