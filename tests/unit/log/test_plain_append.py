"""Several batches by one write: what each gets is what it would get alone, and a write that fails has done nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.batches import batch, sized_batch
from unit.log.logs import NOW_MS, PARTITION, opened, read_all

from pybroker.base.filesystem import OsFile
from pybroker.log.files import INDEX, LOG, TIME_INDEX
from pybroker.log.index import TimeIndex
from pybroker.log.log import NOT_PLAIN, Log
from pybroker.protocol.records.batch import MAX_SEQUENCE, RecordBatch
from pybroker.protocol.records.compression import Codec
from pybroker.testing.disk import SimDisk

EPOCH = 3


def views(batches: Sequence[bytes | bytearray]) -> list[memoryview]:
    return [memoryview(bytearray(one)) for one in batches]


def some(number: int, count: int = 1, **options: Any) -> bytearray:
    return batch([b"value %d" % number] * count, timestamp=1_000 + number, leader_epoch=-1, **options)


def started(log: Log) -> Log:
    """Its epoch is noted and its first segment begun, both of which are for the careful way."""
    log.append_as_leader(some(0), EPOCH, NOW_MS, commits=True)
    return log


def append(log: Log, *batches: bytes | bytearray) -> list[int]:
    return log.append_plain_batches(views(batches), EPOCH, NOW_MS)


def files(log: Log) -> dict[str, bytes]:
    log.close()
    return {suffix: Path(log.segments[0].path(suffix)).read_bytes() for suffix in (LOG, INDEX, TIME_INDEX)}


class Writes:
    """How many bytes each write to a segment had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        write = OsFile.write

        def counted(file: OsFile, position: int, data: Any) -> None:
            if file.path.endswith(LOG):
                self.sizes.append(len(data))
            write(file, position, data)

        monkeypatch.setattr(OsFile, "write", counted)


def test_one_write_and_an_offset_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = started(opened(tmp_path))
    writes = Writes(monkeypatch)
    batches = [some(1), some(2, 3), some(3, 2)]
    assert append(log, *batches) == [1, 2, 5]
    assert writes.sizes == [sum(map(len, batches))]
    assert (log.log_end_offset, log.high_watermark, log.producers.map_end_offset) == (7, 7, 7)
    assert [value for _, value in read_all(log)] == [b"value %d" % number for number in (0, 1, 2, 2, 2, 3, 3)]
    assert {one.partition_leader_epoch for one in log.batches()} == {EPOCH}


@pytest.mark.parametrize("interval", [0, 200, 4096])
def test_the_files_are_those_of_batches_appended_one_after_the_other(tmp_path: Path, interval: int) -> None:
    config = {"index.interval.bytes": interval}
    sizes = [100, 300, 100, 700, 90, 90, 90, 5_000, 100, 100, 100, 4_000]
    batches = [sized_batch(size, timestamp=1_000 + number % 5, leader_epoch=-1) for number, size in enumerate(sizes)]
    together, careful = started(opened(tmp_path / "a", config)), started(opened(tmp_path / "b", config))
    assert append(together, *batches[:7]) + append(together, *batches[7:]) == list(range(1, 13))
    for one in batches:
        careful.append_as_leader(bytearray(one), EPOCH, NOW_MS, commits=True)
    assert files(together) == files(careful)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(some(2)[:-1], id="cut"),
        pytest.param(b"", id="empty"),
        pytest.param(some(2, codec=Codec.GZIP), id="compressed"),
        pytest.param(some(2, base_offset=9), id="an offset of its own"),
        pytest.param(some(2, producer_id=7, producer_epoch=0, sequence=0), id="of an idempotent producer"),
    ],
)
def test_the_first_that_needs_care_and_those_behind_it_are_left_alone(tmp_path: Path, odd: bytes) -> None:
    log = started(opened(tmp_path))
    batches = views([some(1), odd, some(3)])
    before = [bytes(one) for one in batches]
    assert log.append_plain_batches(batches, EPOCH, NOW_MS) == [1]
    assert [bytes(one) for one in batches[1:]] == before[1:]
    assert log.log_end_offset == 2
    assert log.append_plain_batches(batches[2:], EPOCH, NOW_MS) == [2]


class TestIdempotentProducer:
    @staticmethod
    def own(sequence: int, count: int = 1, producer_id: int = 7, producer_epoch: int = 0) -> bytearray:
        return some(sequence % 100, count, producer_id=producer_id, producer_epoch=producer_epoch, sequence=sequence)

    @staticmethod
    def last(log: Log) -> tuple[int, list[tuple[int, int]]]:
        """Its last sequence, and (last sequence, last offset) of each batch that is known of it."""
        entry = log.producers.entry(7)
        assert entry is not None
        return entry.last_sequence, [(known[0], known[1]) for known in entry.batches]

    def test_batches_in_its_sequence_go_together(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = started(opened(tmp_path))
        writes = Writes(monkeypatch)
        assert append(log, self.own(0), self.own(1, 3), self.own(4, 2)) == [1, 2, 5]
        assert len(writes.sizes) == 1
        assert self.last(log) == (5, [(0, 1), (3, 4), (5, 6)])
        assert append(log, *(self.own(6 + number) for number in range(7))) == list(range(7, 14))
        assert self.last(log) == (12, [(number, number + 1) for number in range(8, 13)])

    def test_round_the_end_of_the_numbers(self, tmp_path: Path) -> None:
        log = started(opened(tmp_path))
        assert append(log, self.own(MAX_SEQUENCE - 1, 3), self.own(1)) == [1, 4]
        assert self.last(log) == (1, [(0, 3), (1, 4)])

    @pytest.mark.parametrize(
        "next_one", [{"sequence": 2}, {"sequence": 0}, {"sequence": 1, "producer_id": 8}, {"sequence": 0, "producer_epoch": 1}]
    )
    def test_not_with_what_does_not_follow(self, tmp_path: Path, next_one: dict[str, int]) -> None:
        log = started(opened(tmp_path))
        assert append(log, self.own(0), self.own(**next_one), self.own(1)) == [1]
        assert self.last(log) == (0, [(0, 1)])

    def test_not_with_what_is_no_ones(self, tmp_path: Path) -> None:
        log = started(opened(tmp_path))
        assert append(log, self.own(0), some(5)) == [1]
        assert append(log, some(5), self.own(1)) == [2]

    @pytest.mark.parametrize("sequences", [(0, 1), (3, 4)])
    def test_neither_a_duplicate_nor_a_gap(self, tmp_path: Path, sequences: tuple[int, int]) -> None:
        log = started(opened(tmp_path))
        assert append(log, self.own(0), self.own(1)) == [1, 2]
        assert append(log, *map(self.own, sequences)) == []
        assert self.last(log) == (1, [(0, 1), (1, 2)])

    def test_only_those_that_were_appended_are_taken_in(self, tmp_path: Path) -> None:
        log = started(opened(tmp_path, {"segment.bytes": 290}))
        assert append(log, *(self.own(number) for number in range(6))) == [1, 2]
        assert self.last(log) == (1, [(0, 1), (1, 2)])

    def test_not_while_a_transaction_is_verified(self, tmp_path: Path) -> None:
        """Then the lowest sequence that waits for it counts, too."""
        log = started(opened(tmp_path))
        log.producers.start_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
        assert append(log, self.own(0), self.own(1)) == []


class TestTransaction:
    @staticmethod
    def own(sequence: int, *, epoch: int = 0, transactional: bool = True) -> bytearray:
        return some(sequence, 1, producer_id=7, producer_epoch=epoch, sequence=sequence, transactional=transactional)

    @staticmethod
    def append(log: Log, *batches: bytearray) -> list[int]:
        return log.append_plain_batches(views(batches), EPOCH, NOW_MS, is_transactional=True)

    def begun(self, tmp_path: Path) -> Log:
        log = started(opened(tmp_path))
        guard = log.producers.start_verification(7, 0, 0, supports_epoch_bump=True, now_ms=NOW_MS)
        log.append_as_leader(self.own(0), EPOCH, NOW_MS, verification_guard=guard, commits=True)
        return log

    def test_its_batches_go_together_once_it_is_open_here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = self.begun(tmp_path)
        writes = Writes(monkeypatch)
        assert self.append(log, self.own(1), self.own(2)) == [2, 3]
        assert len(writes.sizes) == 1
        assert (log.last_stable_offset, log.high_watermark) == (1, 4)

    @pytest.mark.parametrize("verifies", [True, False])
    def test_its_first_batch_makes_the_partition_part_of_it_the_whole_way(self, tmp_path: Path, verifies: bool) -> None:
        log = started(opened(tmp_path))
        log.producers.verifies_transactions = verifies
        assert self.append(log, self.own(0), self.own(1)) == []

    def test_neither_a_duplicate_nor_a_gap_nor_another_epoch(self, tmp_path: Path) -> None:
        log = self.begun(tmp_path)
        for odd in (self.own(0), self.own(2), self.own(0, epoch=1), self.own(1, transactional=False)):
            assert self.append(log, odd) == []
        assert self.append(log, self.own(1), self.own(2, transactional=False)) == [2]

    def test_not_where_none_is_expected(self, tmp_path: Path) -> None:
        """Who names no transactional id may not write into the transaction of one."""
        log = self.begun(tmp_path)
        assert append(log, self.own(1)) == []


def test_only_what_the_segment_has_room_for(tmp_path: Path) -> None:
    log = started(opened(tmp_path, {"segment.bytes": 400}))
    batches = views([sized_batch(100, leader_epoch=-1)] * 5)
    before = bytes(batches[-1])
    assert log.append_plain_batches(batches, EPOCH, NOW_MS) == [1, 2, 3]
    assert bytes(batches[3]) == bytes(batches[4]) == before
    assert log.append_plain(batches[3], EPOCH, NOW_MS) == NOT_PLAIN
    log.append_as_leader(batches[3], EPOCH, NOW_MS, commits=True)
    assert [segment.base_offset for segment in log.segments] == [0, 4]


def test_only_what_the_indexes_have_room_for(tmp_path: Path) -> None:
    """Twelve bytes a time index entry, so three of them; each batch but the first brings one."""
    log = started(opened(tmp_path, {"index.interval.bytes": 0, "segment.index.bytes": 36}))
    batches = [some(number) for number in range(1, 6)]
    assert append(log, *batches) == [1, 2, 3]
    assert log.active.index.entry_count == log.active.time_index.entry_count == 3
    assert append(log, *batches[3:]) == []


def test_not_beyond_the_time_of_the_segment(tmp_path: Path) -> None:
    log = started(opened(tmp_path, {"segment.ms": 500}))
    assert append(log, some(100), some(500), some(501), some(100)) == [1, 2]


@pytest.mark.parametrize("room", [0, 30, 100, 130, 250])
def test_a_write_that_fails_half_way_has_appended_nothing(room: int) -> None:
    disk = SimDisk()
    log = started(opened("data", filesystem=disk))
    log.flush()
    directory = f"data/{PARTITION}"
    disk.capacity_bytes = sum(entry.size for entry in disk.scan(directory)) + room
    batches = views([sized_batch(100, timestamp=2_000 + number, leader_epoch=-1) for number in range(3)])
    before = [bytes(one) for one in batches]
    assert log.append_plain_batches(batches, EPOCH, NOW_MS) == []
    assert [bytes(one) for one in batches] == before, "the careful way must see what came in"
    assert (log.log_end_offset, log.high_watermark, log.active.highest_timestamp.timestamp) == (1, 1, 1_000)
    assert [value for _, value in read_all(log)] == [b"value 0"]
    disk.capacity_bytes = None
    assert log.append_plain_batches(batches[1:], EPOCH, NOW_MS) == [1, 2]
    assert [one.max_timestamp for one in log.batches()] == [1_000, 2_001, 2_002]
    assert all(one.crc == one.compute_crc() for one in log.batches())


def test_an_index_that_cannot_grow_keeps_no_entry_of_what_was_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = started(opened(tmp_path, {"index.interval.bytes": 100}))
    append(log, *map(some, range(1, 6)))
    segment = log.active
    entries = segment.index.entry_count, segment.time_index.entry_count
    maybe_append = TimeIndex.maybe_append
    batches = views([some(number) for number in range(6, 12)])

    def full(index: TimeIndex, timestamp: int, offset: int) -> None:
        if offset >= 9:
            raise OSError(28, "No space left on device")
        maybe_append(index, timestamp, offset)

    with monkeypatch.context() as patched:
        patched.setattr(TimeIndex, "maybe_append", full)
        assert log.append_plain_batches(batches, EPOCH, NOW_MS) == []
        assert (segment.index.entry_count, segment.time_index.entry_count) == entries
        with pytest.raises(OSError, match="No space left"):
            log.append_as_follower(b"".join(_stamped(batches, 6)), NOW_MS)
        assert (segment.index.entry_count, segment.time_index.entry_count) == entries
        assert segment.highest_timestamp.timestamp == 1_005
    assert append(log, *map(bytes, batches)) == [6, 7, 8, 9, 10, 11]
    for offset in range(12):
        assert read_all(log, offset)[0] == (offset, b"value %d" % offset)
    log.active.sanity_check()


def _stamped(batches: Sequence[memoryview], offset: int) -> list[bytearray]:
    copies = [bytearray(one) for one in batches]
    for number, one in enumerate(copies):
        RecordBatch(one).stamp(offset + number, EPOCH)
    return copies
