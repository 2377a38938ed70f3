"""Apache Kafka's DumpLogSegments over every kind of file that our log writes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from interop.apache_kafka import ApacheTools
from interop.log.clients import Row
from interop.log.dumps import (
    DumpedBatch,
    check_indexes,
    dump_index,
    dump_log,
    dump_partition,
    dump_snapshot,
    dump_time_index,
    dump_transaction_index,
)
from interop.log.our_log import compact, opened
from interop.log.workload import IDEMPOTENT, TRANSACTIONAL, Workload, everything

from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType, control_type

NOW_MS = time.time_ns() // 1_000_000
LEADER_EPOCH = 5
ONE_SEGMENT: dict[str, Any] = {"index.interval.bytes": 1000}
MANY_SEGMENTS: dict[str, Any] = {"segment.bytes": 16_000, "index.interval.bytes": 300}


@dataclass(slots=True, frozen=True)
class Written:
    path: Path
    workload: Workload
    config: dict[str, Any]

    @property
    def logs(self) -> list[Path]:
        return sorted(self.path.glob("*.log"))


@pytest.fixture(params=[ONE_SEGMENT, MANY_SEGMENTS], ids=["one-segment", "many-segments"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    made = Written(tmp_path / "ours-0", everything(NOW_MS, open_transaction=True), request.param)
    with opened(made.path, made.config) as ours:
        made.workload.write(ours, LEADER_EPOCH)
    return made


def agree(dumped: DumpedBatch, batch: RecordBatch) -> None:
    """The tool reads out of a batch what we put in."""
    for name in ("base_offset", "last_offset", "count", "base_sequence", "last_sequence", "producer_id", "producer_epoch"):
        assert getattr(dumped, name) == getattr(batch, name), name
    for name in ("partition_leader_epoch", "is_transactional", "is_control", "max_timestamp", "size_bytes", "codec", "crc"):
        assert getattr(dumped, name) == getattr(batch, name), name
    assert dumped.is_valid
    assert dumped.delete_horizon_ms == batch.delete_horizon_ms
    records = list(batch.records())
    assert [(r.offset, r.timestamp) for r in dumped.records] == [(r.offset, r.timestamp) for r in records]
    if batch.is_control:
        (marker,) = records
        kind = control_type(marker.key)
        assert kind in (ControlType.COMMIT, ControlType.ABORT)
        assert dumped.records[0].marker == kind.name
        return
    assert [(r.key, r.value) for r in dumped.records] == [(r.key, r.value) for r in records]
    assert [r.header_keys for r in dumped.records] == [tuple(name for name, _ in r.headers) for r in records]
    if batch.base_sequence >= 0:
        assert [r.sequence for r in dumped.records] == list(range(batch.base_sequence, batch.last_sequence + 1))


def test_every_batch_and_record(written: Written, tools: ApacheTools) -> None:
    stamped = written.workload.stamped(LEADER_EPOCH)
    dumped = dump_partition(tools, written.path)
    assert len(dumped) == len(stamped)
    for found, batch in zip(dumped, stamped, strict=True):
        agree(found, batch)
    assert b"".join(file.read_bytes() for file in written.logs) == b"".join(batch.view() for batch in stamped)


def test_segments_are_called_by_their_first_offset_and_full(written: Written, tools: ApacheTools) -> None:
    sizes = [file.stat().st_size for file in written.logs]
    firsts = [dump_log(tools, file)[0] for file in written.logs]
    assert [int(file.stem) for file in written.logs] == [batch.base_offset for batch in firsts]
    if written.config is ONE_SEGMENT:
        assert len(sizes) == 1
        return
    limit = MANY_SEGMENTS["segment.bytes"]
    assert len(sizes) >= 5
    assert max(sizes) <= limit
    for size, following in zip(sizes, firsts[1:], strict=False):
        assert size + following.size_bytes > limit


def test_the_tool_passes_our_indexes(written: Written, tools: ApacheTools) -> None:
    assert check_indexes(tools, written.path) == 2 * len(written.logs)


def test_offset_indexes_are_sparse_and_true(written: Written, tools: ApacheTools) -> None:
    interval = written.config["index.interval.bytes"]
    for file in written.logs:
        # Kafka's rule: an entry for a batch if more than the interval lies before it since the last entry.
        expected, since = [], 0
        for batch in dump_log(tools, file):
            if since > interval:
                expected.append((batch.last_offset, batch.position))
                since = 0
            since += batch.size_bytes
        assert dump_index(tools, file.with_suffix(".index")) == expected
        assert file.with_suffix(".index").stat().st_size == 8 * len(expected)


def test_time_indexes_know_the_newest(written: Written, tools: ApacheTools) -> None:
    for file in written.logs:
        entries = dump_time_index(tools, file.with_suffix(".timeindex"))
        batches = dump_log(tools, file)
        newest = max(batch.max_timestamp for batch in batches)
        first = next(batch for batch in batches if batch.max_timestamp == newest)
        assert entries[-1] == (newest, first.last_offset)
        assert file.with_suffix(".timeindex").stat().st_size == 12 * len(entries)


def test_snapshots_of_producers(written: Written, tools: ApacheTools) -> None:
    workload = written.workload
    files = sorted(written.path.glob("*.snapshot"))
    at = dict(zip([*workload.base_offsets, workload.end_offset], workload.snapshots, strict=True))
    found = {int(file.stem): sorted(dump_snapshot(tools, file)) for file in files}
    assert found == {offset: at[offset] for offset in found}
    # One at each segment's start but the first's, and one at the end.
    assert {int(file.stem) for file in written.logs if int(file.stem)} | {workload.end_offset} <= set(found)


def test_transaction_indexes(written: Written, tools: ApacheTools) -> None:
    found = []
    for file in sorted(written.path.glob("*.txnindex")):
        rows = dump_transaction_index(tools, file)
        batches = dump_log(tools, file.with_suffix(".log"))
        assert all(batches[0].base_offset <= row.last_offset <= batches[-1].last_offset for row in rows)
        found += rows
    assert found == written.workload.aborts
    assert len(found) == 4


def test_written_in_two_sittings(tools: ApacheTools, tmp_path: Path) -> None:
    """A log once closed and opened again goes on where it was, in the middle of transactions too."""
    path, workload = tmp_path / "ours-0", everything(NOW_MS)
    markers = [number for number, batch in enumerate(workload.stamped(LEADER_EPOCH)) if batch.is_control]
    half = markers[len(markers) // 2]
    for start, end in ((0, half), (half, None)):
        with opened(path, MANY_SEGMENTS) as ours:
            workload.write(ours, LEADER_EPOCH, start, end)
    for found, batch in zip(dump_partition(tools, path), workload.stamped(LEADER_EPOCH), strict=True):
        agree(found, batch)
    check_indexes(tools, path)
    files = sorted(path.glob("*.txnindex"))
    assert [row for file in files for row in dump_transaction_index(tools, file)] == workload.aborts
    assert sorted(dump_snapshot(tools, path / f"{workload.end_offset:020d}.snapshot")) == workload.snapshots[-1]


def test_log_append_time(tools: ApacheTools, tmp_path: Path) -> None:
    path, workload = tmp_path / "ours-0", everything(NOW_MS)
    with opened(path, {"message.timestamp.type": "LogAppendTime", **MANY_SEGMENTS}) as ours:
        workload.write(ours, LEADER_EPOCH)
    dumped = dump_partition(tools, path)
    assert all(batch.is_valid for batch in dumped)
    assert {batch.timestamp_type for batch in dumped} == {"LogAppendTime"}
    records = [record for batch in dumped if not batch.is_control for record in batch.records]
    assert {record.timestamp for record in records} == {NOW_MS}
    assert [(r.offset, r.key, r.value) for r in records] == [(r.offset, r.key, r.value) for r in workload.records]
    check_indexes(tools, path)


@pytest.mark.parametrize("codec", Codec)
def test_a_topics_own_codec(tools: ApacheTools, tmp_path: Path, codec: Codec) -> None:
    path, workload = tmp_path / "ours-0", everything(NOW_MS)
    name = "uncompressed" if codec is Codec.NONE else codec.name.lower()
    with opened(path, {"compression.type": name, **MANY_SEGMENTS}) as ours:
        workload.write(ours, LEADER_EPOCH)
    dumped = dump_partition(tools, path)
    assert all(batch.is_valid for batch in dumped)
    assert {batch.codec for batch in dumped if not batch.is_control} == {codec}
    records = [record for batch in dumped if not batch.is_control for record in batch.records]
    assert [r[:4] for r in records] == [r[:4] for r in workload.records]
    assert [r.header_keys for r in records] == [tuple(name for name, _ in r.headers) for r in workload.records]
    check_indexes(tools, path)


def test_a_torn_tail_and_lost_indexes_are_mended(written: Written, tools: ApacheTools) -> None:
    """After a crash the tool finds what it would have found before."""
    before = {
        **{file.name: dump_index(tools, file) for file in written.path.glob("*.index")},
        **{file.name: dump_time_index(tools, file) for file in written.path.glob("*.timeindex")},
        **{file.name: dump_transaction_index(tools, file) for file in written.path.glob("*.txnindex")},
    }
    end = written.path / f"{written.workload.end_offset:020d}.snapshot"
    producers = dump_snapshot(tools, end)
    for file in [*written.path.glob("*.index"), *written.path.glob("*.timeindex")]:
        file.unlink()
    end.unlink()
    torn = written.workload.stamped(LEADER_EPOCH)[0]
    torn.stamp(written.workload.end_offset, LEADER_EPOCH)
    with written.logs[-1].open("ab") as out:
        out.write(torn.view()[:-1])
    with opened(written.path, written.config, clean=False) as ours:
        assert ours.end_offset == written.workload.end_offset
    test_every_batch_and_record(written, tools)
    check_indexes(tools, written.path)
    after = {
        **{file.name: dump_index(tools, file) for file in written.path.glob("*.index")},
        **{file.name: dump_time_index(tools, file) for file in written.path.glob("*.timeindex")},
        **{file.name: dump_transaction_index(tools, file) for file in written.path.glob("*.txnindex")},
    }
    assert after == before
    assert dump_snapshot(tools, end) == producers


def test_a_compacted_log(tools: ApacheTools, tmp_path: Path) -> None:
    """Keys over and over, tombstones, a producer whose every record is superseded, an aborted transaction."""
    path, workload = tmp_path / "ours-0", Workload(NOW_MS)
    config = {"cleanup.policy": ["compact"], "min.cleanable.dirty.ratio": 0.0, **MANY_SEGMENTS}
    for turn in range(30):
        codec = Codec(turn % 5)
        workload.add(_keyed(turn, 30, keys=20), codec, producer_id=IDEMPOTENT + turn % 3)
        workload.add(_keyed(turn, 30, keys=25), codec, producer_id=TRANSACTIONAL, transactional=True)
        workload.end(TRANSACTIONAL, commit=turn % 4 != 1)
        workload.add([Row(NOW_MS + turn, b"key-%d" % turn, None)], codec)
    with opened(path, config) as ours:
        workload.write(ours, LEADER_EPOCH)
    active = int(max(path.glob("*.log")).stem)
    compact(path, config, now_ms=NOW_MS)
    dumped = dump_partition(tools, path, compacted=True)
    assert all(batch.is_valid for batch in dumped)
    check_indexes(tools, path)
    clean = [record for batch in dumped if not batch.is_control for record in batch.records if record.offset < active]
    latest = {record.key: record for record in workload.committed if record.offset < active}
    assert [r[:4] for r in clean] == sorted(r[:4] for r in latest.values())
    tombstones = [batch for batch in dumped if batch.last_offset < active and has_tombstone(batch)]
    assert tombstones
    assert all(batch.delete_horizon_ms is not None for batch in tombstones)
    with opened(path, config) as ours:
        assert (ours.end_offset, ours.producers()) == (workload.end_offset, workload.producers)
        assert [r[:4] for r in ours.records(committed=True) if r.offset < active] == [r[:4] for r in clean]


def has_tombstone(batch: DumpedBatch) -> bool:
    return not batch.is_control and any(record.value is None for record in batch.records)


def _keyed(turn: int, count: int, keys: int) -> list[Row]:
    return [Row(NOW_MS + turn, b"key-%d" % ((turn + n) % keys), b"value %d.%d " % (turn, n) * 5) for n in range(count)]
