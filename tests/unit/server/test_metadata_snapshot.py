from __future__ import annotations

from collections.abc import Iterator

import pytest

from pybroker.base.filesystem import read_file, write_file
from pybroker.protocol.internal.control_records import VotersRecord
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord, NoOpRecord
from pybroker.protocol.message import Message
from pybroker.protocol.records.batch import iter_batches
from pybroker.raft.events import SnapshotId
from pybroker.server.metadata_snapshot import (
    PART,
    Snapshot,
    SnapshotError,
    SnapshotReader,
    list_snapshots,
    read_snapshot,
    record_batches,
    snapshot_name,
    write_snapshot,
)
from pybroker.testing.disk import SimDisk

PATH = "/data/snapshot"
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/data")
    disk.sync_dir("/")
    return disk


def test_what_is_written_is_read(disk: SimDisk) -> None:
    write_snapshot(disk, PATH, [(LEVEL, 0), (NoOpRecord(), 0)], now_ms=5)
    assert read_snapshot(disk, PATH) == Snapshot((LEVEL, NoOpRecord()))


def test_the_batches_are_those_of_apache_kafka(disk: SimDisk) -> None:
    write_snapshot(disk, PATH, [(LEVEL, 0)] * 6, now_ms=5)
    batches = list(iter_batches(read_file(disk, PATH)))
    assert [(one.base_offset, one.count, one.is_control) for one in batches] == [(0, 1, True), (1, 6, False), (7, 1, True)]


def test_voters_make_it_a_snapshot_of_kraft_version_1(disk: SimDisk) -> None:
    voters = VotersRecord(version=0, voters=[])
    write_snapshot(disk, PATH, [], now_ms=5, voters=voters)
    assert read_snapshot(disk, PATH) == Snapshot((), 1, voters)


def test_a_snapshot_that_is_not_whole(disk: SimDisk) -> None:
    write_snapshot(disk, PATH, [(LEVEL, 0)], now_ms=5)
    data = read_file(disk, PATH)
    ends = [batch.end for batch in iter_batches(data)]
    for cut in (data[: ends[1]], data[ends[0] :], b"", data[:-1], data[:160] + b"x" + data[161:]):
        write_file(disk, PATH, cut)
        with pytest.raises(SnapshotError, match="/data/snapshot is no whole snapshot"):
            read_snapshot(disk, PATH)
        with pytest.raises(SnapshotError, match="/data/snapshot is no whole snapshot"):
            SnapshotReader(disk, PATH).check()
    write_file(disk, PATH, data)
    SnapshotReader(disk, PATH).check()


def test_it_is_read_batch_by_batch_and_again(disk: SimDisk) -> None:
    voters = VotersRecord(version=0, voters=[])
    many = [FeatureLevelRecord(name="f" * 1000, feature_level=level % 100) for level in range(3000)]
    write_snapshot(disk, PATH, ((one, 0) for one in many), now_ms=5, voters=voters)
    with SnapshotReader(disk, PATH) as reader:
        assert (reader.kraft_version, reader.voters) == (1, voters)
        assert list(reader.records()) == many
        assert next(reader.records()) == many[0]
    assert len(list(iter_batches(read_file(disk, PATH)))) >= 5


def test_the_name_is_there_when_the_whole_is(disk: SimDisk) -> None:
    def records() -> Iterator[tuple[Message, int]]:
        yield LEVEL, 0
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_snapshot(disk, PATH, records(), now_ms=5)
    assert not disk.exists(PATH)
    write_snapshot(disk, PATH, [(LEVEL, 0)], now_ms=5)
    assert not disk.exists(PATH + PART)
    disk.crash()
    assert read_snapshot(disk, PATH).records == (LEVEL,)


def test_nothing_stands_behind_the_footer(disk: SimDisk) -> None:
    write_snapshot(disk, PATH, [(LEVEL, 0)], now_ms=5)
    write_file(disk, PATH, read_file(disk, PATH) * 2)
    with pytest.raises(SnapshotError, match="behind its footer"):
        read_snapshot(disk, PATH)


def test_the_latest_is_the_one_that_ends_last(disk: SimDisk) -> None:
    assert list_snapshots(disk, "/data") == []
    for name in (
        *map(snapshot_name, (SnapshotId(100, 2), SnapshotId(7, 1))),
        "bootstrap.checkpoint",
        f"{SnapshotId(900, 2)}.part",
    ):
        write_file(disk, f"/data/{name}", b"")
    assert list_snapshots(disk, "/data") == [SnapshotId(7, 1), SnapshotId(100, 2)]
    assert snapshot_name(SnapshotId(100, 2)) == "00000000000000000100-0000000002.checkpoint"


def test_batches_are_limited_in_size() -> None:
    batches = [next(iter_batches(one)) for one in record_batches([(LEVEL, 0)] * 100, 10, 3, 5, 1000)]
    assert len(batches) > 2
    assert batches[0].base_offset == 10
    assert sum(batch.count for batch in batches) == 100
    assert all(batch.size_bytes < 1100 and batch.partition_leader_epoch == 3 for batch in batches)
    assert [batch.base_offset for batch in batches[1:]] == [batch.next_offset for batch in batches[:-1]]
