from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from support.batches import batch, marker, sized_batch
from support.faulty_disk import FaultyDisk
from unit.log.logs import NOW_MS, opened, read_all

from pybroker.base.filesystem import OsFile, OsFileSystem
from pybroker.base.ids import Uuid
from pybroker.log.background import Inline
from pybroker.log.log import Appended, Log
from pybroker.log.log_config import LogConfig
from pybroker.log.log_reader import LogReader
from pybroker.log.open_segments import OpenSegments
from pybroker.log.producer_entry import AppendOrigin
from pybroker.log.segment import BatchPlace, Segment
from pybroker.log.transaction_index import AbortedTransaction
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType
from pybroker.testing.disk import SimDisk

SMALL = {"segment.bytes": 1000, "index.interval.bytes": 100}


def append(log: Log, *values: bytes, epoch: int = 0, timestamp: int = NOW_MS) -> int:
    return log.append_as_leader(batch(values, timestamp=timestamp), epoch, NOW_MS).first_offset


def filled(directory: object, count: int = 30, **options: object) -> Log:
    """Records of 100 bytes one by one, ten to a segment."""
    log = opened(directory, SMALL, **options)  # type: ignore[arg-type]
    for number in range(count):
        log.append_as_leader(sized_batch(100, timestamp=NOW_MS + number), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    return log


# Appending.


def test_a_leader_gives_offsets_and_its_epoch_and_writes_the_bytes_that_came(tmp_path: Path) -> None:
    log = opened(tmp_path)
    sent = batch([b"a", b"b"])
    assert log.append_as_leader(sent, 7, NOW_MS) == (0, 1, -1, 0, len(sent), False)
    assert append(log, b"c", epoch=7) == 2
    stored = RecordBatch(Path(log.active.path(".log")).read_bytes())
    assert (stored.base_offset, stored.partition_leader_epoch, stored.view()) == (0, 7, memoryview(sent))
    assert log.log_end_offset == 3
    assert log.leader_epochs.entries == ((7, 0),)
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_read_only_bytes_are_appended_from_a_copy(tmp_path: Path) -> None:
    log = opened(tmp_path)
    sent = bytes(batch([b"a"]))
    append(log, b"first")
    assert log.append_as_leader(sent, 3, NOW_MS).first_offset == 1
    assert RecordBatch(sent).base_offset == 0


def test_a_follower_keeps_offsets_and_epochs_as_they_come(tmp_path: Path) -> None:
    log = opened(tmp_path)
    run = batch([b"a"], base_offset=5, leader_epoch=1) + batch([b"b"], base_offset=9, leader_epoch=2)
    appended = log.append_as_follower(run, NOW_MS)
    assert (appended.first_offset, appended.last_offset, log.log_end_offset) == (5, 9, 10)
    assert log.leader_epochs.entries == ((1, 5), (2, 9))
    assert read_all(log, 0) == [(5, b"a"), (9, b"b")]


@pytest.mark.parametrize("last_epoch", [0, 1, 2])
def test_a_follower_takes_nothing_of_a_later_epoch_than_it_asked_in(tmp_path: Path, last_epoch: int) -> None:
    log = opened(tmp_path)
    log.append_as_follower(batch([b"first"], base_offset=0, leader_epoch=last_epoch), NOW_MS)
    run = [batch([value], base_offset=1 + epoch, leader_epoch=epoch) for epoch, value in enumerate([b"0", b"1", b"2"])]
    appended = log.append_as_follower(b"".join(run[last_epoch:]), NOW_MS, 1)
    taken = [(1 + epoch, b"%d" % epoch) for epoch in range(last_epoch, 2)]
    assert read_all(log, 0) == [(0, b"first"), *taken]
    assert appended.last_offset + 1 == log.log_end_offset == (taken[-1][0] if taken else 0) + 1


def test_a_follower_takes_no_offset_twice_and_leaves_half_a_batch_alone(tmp_path: Path) -> None:
    log = opened(tmp_path)
    run = batch([b"a"], base_offset=5)
    log.append_as_follower(run + batch([b"b"], base_offset=6)[:40], NOW_MS)
    assert log.log_end_offset == 6
    with pytest.raises(KafkaError, match="begins at 5; expected 6 or more"):
        log.append_as_follower(run, NOW_MS)


def test_log_append_time_and_another_codec_rewrite_the_batch(tmp_path: Path) -> None:
    log = opened(tmp_path, {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"})
    appended = log.append_as_leader(batch([b"a" * 200, b"b"], timestamp=5), 0, NOW_MS)
    assert appended.log_append_time == NOW_MS
    (stored,) = log.batches()
    assert stored.codec is Codec.ZSTD
    assert [(record.timestamp, record.value) for record in stored.records()] == [(NOW_MS, b"a" * 200), (NOW_MS, b"b")]


@pytest.mark.parametrize(
    ("overrides", "sent", "code", "text"),
    [
        ({"max.message.bytes": 99}, sized_batch(100), ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes"),
        ({"segment.bytes": 99}, sized_batch(100), ErrorCode.RECORD_LIST_TOO_LARGE, "segment.bytes"),
        ({"cleanup.policy": ("compact",)}, batch([b"a"]), ErrorCode.INVALID_RECORD, "Record 0 of the batch has no key"),
        ({"message.timestamp.after.max.ms": 10}, batch(timestamp=NOW_MS + 11), ErrorCode.INVALID_TIMESTAMP, "11 ms ahead"),
        ({"message.timestamp.before.max.ms": 10}, batch(timestamp=NOW_MS - 11), ErrorCode.INVALID_TIMESTAMP, "11 ms behind"),
        ({}, batch()[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE, "CRC"),
    ],
)
def test_what_the_topic_does_not_take_is_refused(
    tmp_path: Path, overrides: dict[str, object], sent: bytearray, code: ErrorCode, text: str
) -> None:
    log = opened(tmp_path, overrides)
    with pytest.raises(KafkaError, match=text) as caught:
        log.append_as_leader(sent, 0, NOW_MS)
    assert caught.value.code is code
    assert log.log_end_offset == log.size_bytes == 0


def test_a_batch_sent_twice_is_answered_with_its_old_offset_and_a_gap_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, b"other")
    first = log.append_as_leader(batch([b"a", b"b"], producer_id=9, producer_epoch=0, sequence=0), 0, NOW_MS)
    again = log.append_as_leader(batch([b"a", b"b"], producer_id=9, producer_epoch=0, sequence=0), 0, NOW_MS)
    assert (first.first_offset, first.is_duplicate) == (1, False)
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (1, 2, True)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch([b"x"], producer_id=9, producer_epoch=0, sequence=5), 0, NOW_MS)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 3


# Segments.


def test_segments_roll_by_size_and_leave_their_files_trimmed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert [segment.base_offset for segment in log.segments] == [0, 10, 20]
    first = log.segments[0]
    assert Path(first.path(".log")).stat().st_size == 1000
    assert Path(first.path(".index")).stat().st_size == first.index.entry_count * 8 > 0
    assert Path(first.path(".timeindex")).stat().st_size == first.time_index.entry_count * 12 > 0
    assert Path(f"{log.directory}/00000000000000000020.snapshot").exists()


def test_segments_roll_by_the_time_of_their_records(tmp_path: Path) -> None:
    log = opened(tmp_path, {"segment.ms": 100})
    for timestamp in (1000, 1100, 1101):
        append(log, b"a", timestamp=timestamp)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_each_segment_rolls_earlier_by_a_jitter_of_its_own(tmp_path: Path) -> None:
    draws = iter((60, 99, 0))
    log = opened(tmp_path, {"segment.ms": 100, "segment.jitter.ms": 100}, draw_below=lambda bound: min(bound - 1, next(draws)))
    for timestamp in (1000, 1040, 1041, 1042, 1044):
        append(log, b"a", timestamp=timestamp)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_segments_roll_when_their_index_is_full(tmp_path: Path) -> None:
    log = opened(tmp_path, {"segment.index.bytes": 24, "index.interval.bytes": 0})
    for number in range(6):
        append(log, b"a", timestamp=NOW_MS + number)
    assert len(log.segments) > 1


def test_segments_roll_before_an_offset_that_their_index_cannot_hold(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append_as_follower(batch([b"a"], base_offset=0), NOW_MS)
    log.append_as_follower(batch([b"b", b"c"], base_offset=2**31), NOW_MS)
    log.append_as_follower(batch([b"d", b"e"], base_offset=2**40), NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31, 2**40]
    log.close_files()
    again = opened(tmp_path)
    assert [offset for offset, _ in read_all(again)] == [0, 2**31, 2**31 + 1, 2**40, 2**40 + 1]


# Reading.


def test_a_read_ends_on_a_batch_and_brings_one_at_least(tmp_path: Path) -> None:
    log = filled(tmp_path)
    for limit, expected in ((1, 100), (99, 100), (100, 100), (299, 200), (5000, 900)):
        fetched = log.read(1, limit)
        assert fetched.slice is not None
        assert len(fetched.slice) == expected
    refused = log.read(1, 99, min_one=False)
    assert (refused.slice, refused.first_batch_is_larger) == (None, True)


def test_a_read_ends_before_the_bound_it_is_given(tmp_path: Path) -> None:
    log = filled(tmp_path)
    for upper in range(31):
        assert [offset for offset, _ in read_all(log, 0, upper=upper)] == list(range(upper))


def test_a_read_outside_of_the_log_is_out_of_range(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.advance_log_start_offset(5)
    for offset in (4, 31):
        with pytest.raises(KafkaError, match="orders-0 has offsets 5 to 30") as caught:
            log.read(offset, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(30, 100).slice is None


def test_a_reader_that_follows_the_end_sees_every_batch_once(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    for number in range(40):
        append(log, b"%d" % number)
        assert read_all(log, number) == [(number, b"%d" % number)]


def test_a_reader_that_goes_on_where_it_ended_is_not_searched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path)
    searched = []
    locate = Segment.locate

    def noted(segment: Segment, offset: int, limit: int) -> BatchPlace | None:
        searched.append(offset)
        return locate(segment, offset, limit)

    monkeypatch.setattr(Segment, "locate", noted)
    offset = 0
    while (fetched := log.read(offset, 350)).slice is not None:
        assert fetched.offset == offset
        offset += len(fetched.slice) // 100
    assert offset == 30
    # Only the first batch of each of the three segments.
    assert searched == [0, 10, 20]


def test_what_a_read_remembers_is_not_believed_when_other_batches_lie_there(tmp_path: Path) -> None:
    log = filled(tmp_path, 9)
    assert log.read(0, 500).slice is not None
    remembered = dict(log._reads)
    assert remembered
    log.truncate_to(2, NOW_MS)
    for number in range(6):
        log.append_as_leader(sized_batch(130, timestamp=NOW_MS + number), 0, NOW_MS)
    # As a read would leave it that was under way at the time.
    log._reads = remembered
    for offset in range(2, 8):
        fetched = log.read(offset, 130)
        assert fetched.slice is not None
        assert (fetched.offset, fetched.slice.position, len(fetched.slice)) == (offset, 200 + (offset - 2) * 130, 130)


def test_what_was_appended_last_is_found_without_looking(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append_as_leader(sized_batch(100, timestamp=NOW_MS), 0, NOW_MS)
    log.lead(0, commits_at_once=False)
    for number in range(5):
        assert log.append_plain_batches([memoryview(sized_batch(100 + number))], 0, NOW_MS, commits=False) == [number + 1]
    tail = log.tail(3, 1000)
    assert tail is not None
    assert tail.read() == log.read(3, 1000).slice.read()  # type: ignore[union-attr]
    assert log.tail(3, len(tail) - 1) is None, "a part of it would have to be looked for"
    assert log.tail(0, 1000) is None, "nobody had to be told of that one"
    assert log.tail(log.log_end_offset, 1000) is None
    log.truncate_to(4, NOW_MS)
    assert log.tail(3, 1000) is None, "other batches may lie there soon"


def test_batches_of_a_leader_are_appended_alike_in_few_steps_and_in_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: list[object] = []
    way = Log._append_plain_as_follower

    def noted(log: Log, records: memoryview, leader_epoch: int) -> Appended | None:
        short.append(found := way(log, records, leader_epoch))
        return found

    monkeypatch.setattr(Log, "_append_plain_as_follower", noted)
    by_few = replicated(tmp_path / "few")
    assert len(short) > 40 > sum(one is None for one in short) > 0
    monkeypatch.setattr(Log, "_append_plain_as_follower", lambda *_: None)
    assert replicated(tmp_path / "many") == by_few


def replicated(directory: Path) -> list[object]:
    """All that there is of a log after batches of several epochs, some of producers, with a gap, over several segments."""
    directory.mkdir()
    log = opened(directory, SMALL)
    offset = 0
    for number in range(50):
        offset += 3 if number == 30 else 0
        run = bytearray()
        for place in (0, 1):
            run += batch(
                [b"a", b"b" * number],
                base_offset=offset,
                leader_epoch=number // 15,
                timestamp=NOW_MS + number,
                producer_id=number if number < 3 else -1,
                producer_epoch=0 if number < 3 else -1,
                sequence=2 * place if number < 3 else -1,
            )
            offset += 2
        appended = log.append_as_follower(run, NOW_MS)
        assert (appended.last_offset, appended.size_bytes) == (offset - 1, len(run))
    producers = [(one.producer_id, one.last_sequence, one.batches) for one in log.producers.entries()]
    assert len(producers) == 3
    files = [
        (segment.base_offset, segment.file.read(0, 10_000), segment.highest_timestamp, segment.index.entry_count)
        for segment in log.segments
    ]
    assert len(files) > 3
    return [files, producers, log.leader_epochs.entries, log.log_end_offset]


def test_offsets_by_time(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    assert log.offset_for_timestamp(-3) is None
    for timestamp in (100, 300, 200, 400, 400, 350):
        log.append_as_leader(sized_batch(500, timestamp=timestamp), 4, NOW_MS)
    found = {at: log.offset_for_timestamp(at) for at in (0, 100, 101, 300, 301, 400)}
    assert {at: each and each[:2] for at, each in found.items()} == {
        0: (0, 100), 100: (0, 100), 101: (1, 300), 300: (1, 300), 301: (3, 400), 400: (3, 400),
    }  # fmt: skip
    assert log.offset_for_timestamp(401) is None
    assert log.offset_for_timestamp(-1) == (6, -1, 4)
    assert log.offset_for_timestamp(-2) == (0, -1, 4)
    assert log.offset_for_timestamp(-3) == (3, 400, 4)
    assert log.offset_for_timestamp(-4) == (0, -1, 4)
    assert log.offset_for_timestamp(-5) is None


# Transactions.


def transactional(log: Log, producer_id: int, sequence: int = 0) -> int:
    sent = batch([b"t"], producer_id=producer_id, producer_epoch=0, sequence=sequence, transactional=True)
    guard = log.producers.start_verification(producer_id, sequence, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    return log.append_as_leader(sent, 0, NOW_MS, verification_guard=guard).first_offset


def end(log: Log, kind: ControlType, producer_id: int) -> None:
    log.append_as_leader(marker(kind, producer_id), 0, NOW_MS, origin=AppendOrigin.COORDINATOR, transaction_version=1)


def test_the_last_stable_offset_waits_for_the_oldest_transaction_and_the_high_watermark(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, b"plain")
    transactional(log, 1)
    transactional(log, 2)
    log.set_high_watermark(3)
    assert log.last_stable_offset == 1
    end(log, ControlType.COMMIT, 1)
    log.set_high_watermark(4)
    assert log.last_stable_offset == 2
    end(log, ControlType.ABORT, 2)
    assert log.last_stable_offset == 2, "the marker is not behind the high watermark yet"
    log.set_high_watermark(5)
    assert log.last_stable_offset == 5
    assert log.aborted_transactions(0, 5) == [AbortedTransaction(2, 2, 4, 5)]
    assert log.aborted_transactions(0, 2) == []


def test_the_last_stable_offset_does_not_pass_a_transaction_that_begins_and_is_replicated_while_it_is_asked_for(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    append(log, b"plain")
    log.set_high_watermark(1)

    class Meanwhile:
        """The log, to which another thread appends after the first look at it."""

        def __getattr__(self, name: str) -> object:
            seen = getattr(log, name)
            if log.log_end_offset == 1:
                transactional(log, 1)
                log.set_high_watermark(2)
            return seen

    last_stable_offset = LogReader.__dict__["last_stable_offset"].fget
    assert last_stable_offset(Meanwhile()) == 1


def test_aborted_transactions_are_found_again_by_recovery(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    transactional(log, 1)
    for _ in range(10):
        append(log, bytes(100))
    end(log, ControlType.ABORT, 1)
    log.set_high_watermark(log.log_end_offset)
    aborted = log.aborted_transactions(0, 12)
    assert len(log.segments) > 1
    assert aborted == [AbortedTransaction(1, 0, 11, 12)]
    log.close_files()
    for path in Path(log.directory).glob("*.txnindex"):
        path.unlink()
    again = opened(tmp_path, SMALL, recovery_point=log.segments[-1].base_offset)
    assert again.aborted_transactions(0, 12) == aborted


# Truncation.


def test_truncation_takes_offsets_epochs_and_producers_back(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    for number in range(20):
        sent = batch([bytes(30)], producer_id=3, producer_epoch=0, sequence=number, timestamp=NOW_MS + number)
        log.append_as_leader(sent, number // 5, NOW_MS)
    log.set_high_watermark(15)
    log.flush()
    assert len(log.segments) > 1
    assert log.truncate_to(7, NOW_MS)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (7, 7, 7)
    assert log.leader_epochs.entries == ((0, 0), (1, 5))
    assert log.offset_for_timestamp(-3) == (6, NOW_MS + 6, 1)
    assert [offset for offset, _ in read_all(log)] == list(range(7))
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(producer_id=3, producer_epoch=0, sequence=20), 4, NOW_MS)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(batch(producer_id=3, producer_epoch=0, sequence=7), 4, NOW_MS).first_offset == 7
    assert not log.truncate_to(8, NOW_MS)


def test_truncation_below_the_first_segment_starts_anew_there(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.config = LogConfig.of({**SMALL, "retention.bytes": 1000})
    assert log.delete_old_segments(NOW_MS) > 0
    assert log.truncate_to(3, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
    assert append(log, b"a") == 3


def test_a_log_truncated_fully_begins_where_it_is_told(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncate_fully_and_start_at(500, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    assert append(log, b"a") == 500
    assert sorted(path.name for path in Path(log.directory).glob("*.log")) == ["00000000000000000500.log"]


# Deletion.


def test_retention_by_size_goes_as_far_as_the_log_stays_large_enough(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.update_config(LogConfig.of({**SMALL, "retention.bytes": 1500}))
    assert log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start_offset, log.size_bytes) == (10, 2000)
    assert log.delete_old_segments(NOW_MS) == 0


def test_retention_by_time_may_take_the_active_segment_too(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.update_config(LogConfig.of({**SMALL, "retention.ms": 100}))
    assert log.delete_old_segments(NOW_MS + 100) == 0
    assert log.delete_old_segments(NOW_MS + 115) == 1
    assert log.delete_old_segments(NOW_MS + 1000) == 2
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (30, 30, 0)
    assert append(log, b"a") == 30
    assert log.leader_epochs.entries == ((0, 30),)


def test_retention_takes_nothing_that_is_not_committed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.high_watermark = 19
    log.update_config(LogConfig.of({**SMALL, "retention.ms": 0}))
    assert log.delete_old_segments(NOW_MS + 1000) == 1


def test_a_compacted_log_loses_only_what_its_start_offset_gave_up(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.update_config(LogConfig.of({**SMALL, "cleanup.policy": ("compact",), "retention.ms": 1, "retention.bytes": 1}))
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    log.advance_log_start_offset(19)
    assert log.delete_old_segments(NOW_MS + 1000) == 1
    with pytest.raises(KafkaError, match="high watermark is 30"):
        log.advance_log_start_offset(31)


def test_files_are_deleted_in_two_steps_and_readers_keep_what_they_hold(tmp_path: Path) -> None:
    background = Inline()
    log = filled(tmp_path, background=background)
    held = log.read(0, 300).slice
    assert held is not None
    before = held.read()
    log.update_config(LogConfig.of({**SMALL, "retention.bytes": 1500}))
    log.delete_old_segments(NOW_MS)
    names = {path.name for path in Path(log.directory).glob("0000000000000000000?.*")}
    assert names
    assert all(name.endswith(".deleted") for name in names if not name.endswith(".snapshot"))
    background.run_delayed()
    assert not list(Path(log.directory).glob("*.deleted"))
    assert held.read() == before


# The whole.


def test_flushing_moves_the_recovery_point(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.recovery_point == 20, "what was rolled has been flushed"
    log.flush(now_ms=77)
    assert (log.recovery_point, log.last_flush_ms) == (30, 77)


def test_a_number_of_records_can_force_a_flush(tmp_path: Path) -> None:
    log = opened(tmp_path, {"flush.messages": 3})
    for expected in (0, 0, 3, 3):
        append(log, b"a")
        assert log.recovery_point == expected


def test_a_renamed_directory_is_still_read_and_written(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.rename_directory("orders-0.abc-delete")
    for segment in log.segments:
        segment.release()
    append(log, b"last", epoch=3)
    assert read_all(log)[-1] == (30, b"last")
    assert {path.name for path in tmp_path.iterdir()} == {"orders-0.abc-delete"}
    log.delete()
    assert not list(tmp_path.iterdir())


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    with pytest.raises(KafkaError) as caught:
        append(log, b"a")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_full_disk_fails_the_append_and_nothing_else() -> None:
    disk = SimDisk()
    log = opened("data", filesystem=disk)
    append(log, b"before")
    disk.capacity_bytes = 0
    with pytest.raises(OSError, match="No space left") as caught:
        append(log, bytes(5000))
    assert caught.value.errno == errno.ENOSPC
    assert read_all(log) == [(0, b"before")]
    disk.capacity_bytes = None
    assert append(log, b"after") == 1
    assert read_all(log) == [(0, b"before"), (1, b"after")]
    log.close()
    assert read_all(opened("data", filesystem=disk, is_clean=True)) == [(0, b"before"), (1, b"after")]


@pytest.mark.parametrize("is_plain", [False, True])
def test_half_a_batch_that_a_full_disk_took_is_gone_after_a_clean_stop_though_its_file_was_let_go_of(is_plain: bool) -> None:
    disk = SimDisk()
    open_segments = OpenSegments(limit=1)
    log = opened("data", filesystem=disk, open_segments=open_segments)
    append(log, b"before")
    log.flush()
    disk.capacity_bytes = sum(entry.size for entry in disk.scan(log.directory)) + 200
    append_too_much = partial(append, log, bytes(5000))
    if is_plain:
        append_too_much = partial(log.active.append_plain, [(memoryview(bytes(5000)), 1, NOW_MS)], 1, 10**6, 10**6)
    with pytest.raises(OSError, match="No space left"):
        append_too_much()
    disk.capacity_bytes = None
    opened("other", filesystem=disk, open_segments=open_segments)
    log.close()
    again = opened("data", filesystem=disk, is_clean=True, recovery_point=1)
    assert append(again, b"after") == 1
    assert read_all(again) == [(0, b"before"), (1, b"after")]


def test_room_taken_in_advance_is_given_back_by_a_clean_stop_though_the_file_was_let_go_of(tmp_path: Path) -> None:
    settings = {"preallocate": True, "segment.bytes": 10_000}
    open_segments = OpenSegments(limit=1)
    log = opened(tmp_path / "data", settings, open_segments=open_segments)
    append(log, b"before")
    opened(tmp_path / "other", open_segments=open_segments)
    log.close()
    assert Path(log.active.path(".log")).stat().st_size == log.active.size_bytes < 100


@pytest.mark.skipif(sys.platform != "linux", reason="room is taken ahead of the writes on Linux only")
@pytest.mark.parametrize("is_plain", [False, True])
def test_a_large_segment_takes_room_ahead_of_its_writes_and_gives_back_what_it_did_not_need(
    tmp_path: Path, is_plain: bool
) -> None:
    if not _takes_room_ahead(tmp_path / "probe"):
        pytest.skip("this file system takes no room ahead, or the command fallocate is not installed")
    log = opened(tmp_path, {"segment.bytes": 5_000_000})
    append(log, bytes(1_000_000))
    path = Path(log.active.path(".log"))
    page = 65_536  # the largest there is; a block is no more than that
    assert _on_disk(path) <= path.stat().st_size + page, "a small segment takes what it needs"
    if is_plain:
        more = memoryview(sized_batch(500_000, timestamp=NOW_MS))
        assert log.append_plain_batches([more], 0, NOW_MS) == [1]
    else:
        append(log, bytes(500_000))
    assert path.stat().st_size == log.active.size_bytes < 1_510_000
    assert _on_disk(path) > path.stat().st_size + page
    assert _on_disk(path) <= log.active.size_bytes * 9 // 8 + page
    log.truncate_to(1, NOW_MS)
    assert _on_disk(path) <= path.stat().st_size + page
    append(log, bytes(800_000))
    assert _on_disk(path) > path.stat().st_size + page
    log.roll(NOW_MS)
    assert _on_disk(path) <= path.stat().st_size + page
    log.close()
    assert [len(value) for _, value in read_all(opened(tmp_path, is_clean=True))] == [1_000_000, 800_000]


def _takes_room_ahead(probe: Path) -> bool:
    """Asked of the system by another way than ours, which is what is tested."""
    command = shutil.which("fallocate")
    probe.touch()
    if command is None or subprocess.run([command, "--keep-size", "--length", "1MiB", probe], check=False).returncode:
        return False
    taken = _on_disk(probe)
    probe.unlink()
    return taken >= 1024 * 1024


def _on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_a_flush_vouches_for_nothing_that_a_truncation_meanwhile_had_written_anew(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(10):
        append(log, b"kept")
    log.flush()
    for _ in range(10):
        append(log, b"dropped")
    flush = Segment.flush

    def truncated_meanwhile(flushed: Segment) -> None:
        flush(flushed)
        patched.undo()
        log.truncate_to(15, NOW_MS)
        for _ in range(20):
            append(log, b"new")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Segment, "flush", truncated_meanwhile)
        log.flush()
    assert (log.recovery_point, log.log_end_offset) == (10, 35)
    log.flush()
    assert log.recovery_point == 35


def test_a_compacted_log_rolls_in_time_for_its_max_compaction_lag(tmp_path: Path) -> None:
    settings = {"cleanup.policy": ["compact"], "segment.ms": 1000, "max.compaction.lag.ms": 100}
    log = opened(tmp_path, settings)
    for timestamp in (0, 100, 101):
        log.append_as_leader(batch([b"value"], keys=[b"key"], timestamp=NOW_MS + timestamp), 0, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert LogConfig.of(settings | {"cleanup.policy": ["delete"]}).roll_ms == 1000
    assert LogConfig.of(settings | {"segment.ms": 50}).roll_ms == 50


class SyncedFile(OsFile):
    __slots__ = ("synced",)
    synced: list[str]

    def sync(self) -> None:
        super().sync()
        self.synced.append(self.path)


class Syncs(OsFileSystem):
    """Remembers what was synced; the directories in `full` cannot be."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.full: set[str] = set()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SyncedFile:
        file = SyncedFile(path, os.O_RDONLY if read_only else os.O_RDWR | (os.O_CREAT if create else 0))
        file.synced = self.synced
        return file

    def sync_dir(self, path: str) -> None:
        if path in self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().sync_dir(path)
        self.synced.append(path)

    def taken(self) -> set[str]:
        taken = set(self.synced)
        self.synced.clear()
        return taken


def test_a_new_log_waits_for_no_disk_and_its_first_flush_puts_all_there_that_its_records_need(tmp_path: Path) -> None:
    disk = Syncs()
    log = opened(tmp_path, filesystem=disk, topic_id=Uuid(b"some-topic's--id"))
    assert disk.taken() == set()
    append(log, b"first")
    disk.taken()
    log.flush()
    assert {str(tmp_path), log.directory, f"{log.directory}/partition.metadata", log.active.path(".log")} <= disk.taken()
    append(log, b"second")
    log.flush()
    assert disk.taken() == {log.active.path(".log")}
    log.roll(NOW_MS)
    append(log, b"third")
    log.flush()
    synced = disk.taken()
    assert log.directory in synced
    assert str(tmp_path) not in synced


def test_names_that_could_not_be_synced_are_the_next_flush_s_business(tmp_path: Path) -> None:
    disk = Syncs()
    log = opened(tmp_path, filesystem=disk)
    append(log, b"value")
    disk.full = {str(tmp_path)}
    with pytest.raises(OSError, match="No space left"):
        log.flush()
    assert log.recovery_point == 0
    disk.full.clear()
    disk.taken()
    log.flush()
    assert log.recovery_point == 1
    assert {str(tmp_path), log.directory} <= disk.taken()


def test_an_abort_on_a_disk_without_room_for_its_index_gives_no_offset_twice(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, filesystem=disk)
    transactional(log, 1)
    disk.full.add(log.active.path(".txnindex"))
    end(log, ControlType.ABORT, 1)
    assert append(log, b"after") == 2
    log.set_high_watermark(3)
    aborted = [AbortedTransaction(1, 0, 1, 2)]
    assert (log.last_stable_offset, log.aborted_transactions(0, 3)) == (3, aborted)
    assert [found.base_offset for found in log.batches()] == [0, 1, 2]
    with pytest.raises(OSError, match="No space left"):
        log.flush()
    assert log.recovery_point == 0, "the row is not on disk"
    disk.full.clear()
    log.flush()
    assert log.recovery_point == 3
    log.close()
    assert opened(tmp_path, is_clean=True, recovery_point=3).aborted_transactions(0, 3) == aborted


def test_an_epoch_that_a_full_disk_did_not_take_is_written_by_the_next_append(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, filesystem=disk)
    append(log, b"before", epoch=1)
    disk.full.add(f"{log.directory}/leader-epoch-checkpoint")
    with pytest.raises(OSError, match="No space left"):
        append(log, b"lost", epoch=2)
    disk.full.clear()
    append(log, b"after", epoch=2)
    log.flush()
    log.close_files()
    again = opened(tmp_path, recovery_point=2)
    assert again.leader_epochs.entries == ((1, 0), (2, 1))


def test_a_truncation_whose_epochs_found_no_room_is_whole_but_for_them_and_they_follow(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, filesystem=disk)
    append(log, b"kept", epoch=1)
    append(log, b"dropped", epoch=2)
    log.set_high_watermark(2)
    log.flush()
    disk.full.add(f"{log.directory}/leader-epoch-checkpoint")
    with pytest.raises(OSError, match="No space left"):
        log.truncate_to(1, NOW_MS)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (1, 1, 1)
    disk.full.clear()
    assert not log.truncate_to(1, NOW_MS), "there is nothing left to drop"
    append(log, b"other", epoch=1)
    log.flush()
    log.close_files()
    assert opened(tmp_path, recovery_point=2).leader_epochs.entries == ((1, 0),)
