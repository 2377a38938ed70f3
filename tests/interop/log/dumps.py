"""What Apache Kafka's DumpLogSegments says of a partition's files, as values.

Any line that is not of the expected form, and anything on stderr, fails: that is where the tool reports what it dislikes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from interop.apache_kafka import DUMP_LOG_SEGMENTS, HEX_DECODER, ApacheTools

from pybroker.protocol.records.compression import Codec


class DumpedRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    header_keys: tuple[str, ...]
    sequence: int
    marker: str | None = None  # COMMIT or ABORT of a control record, whose key and value are not shown
    coordinator_epoch: int | None = None


@dataclass(slots=True)
class DumpedBatch:
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp: int
    size_bytes: int
    codec: Codec
    crc: int
    is_valid: bool
    records: list[DumpedRecord] = field(default_factory=list)


class DumpedProducer(NamedTuple):
    """A row of a .snapshot file; the last batch's part is None for a producer without batches."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int | None
    last_timestamp: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: int | None
    offset_delta: int | None
    timestamp: int | None


class DumpedAbort(NamedTuple):
    """A row of a .txnindex file."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


_BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) producerId: (-?\d+) "
    r"producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) isTransactional: (true|false) isControl: (true|false) "
    r"deleteHorizonMs: OptionalLong(?:\.empty|\[(-?\d+)\]) position: (\d+) (CreateTime|LogAppendTime): (-?\d+) size: (\d+) "
    r"magic: 2 compresscodec: (\w+) crc: (\d+) isvalid: (true|false)"
)
_RECORD = re.compile(
    r"\| offset: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+) "
    r"headerKeys: \[(.*?)\](?: endTxnMarker: (\w+) coordinatorEpoch: (-?\d+))?(?: key: ([0-9a-f]*))?(?: payload: ([0-9a-f]*))?"
)
_PRODUCER = re.compile(
    r"producerId: (\d+) producerEpoch: (-?\d+) coordinatorEpoch: (-?\d+) "
    r"currentTxnFirstOffset: Optional(?:Long)?(?:\.empty|\[(\d+)\]) lastTimestamp: (-?\d+) "
    r"(?:firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (\d+) offsetDelta: (\d+) timestamp: (-?\d+))?"
)
_ABORT = re.compile(r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)")
_INDEX_ENTRY = re.compile(r"offset: (\d+) position: (\d+)")
_TIME_INDEX_ENTRY = re.compile(r"timestamp: (-?\d+) offset: (\d+)")

_GAPS = re.compile(r"Non-consecutive offsets in .*\n(?:  \d+ is followed by \d+\n)+")
# In 4.3 the tool takes the first record of a segment that does not start at 0 for one behind a gap.
_FIRST = re.compile(r"(?<=\n)  -1 is followed by \d+\n")
_NO_GAPS = re.compile(r"Non-consecutive offsets in .*\n\Z")


def dump_log(tools: ApacheTools, file: Path, *, compacted: bool = False) -> list[DumpedBatch]:
    """Every batch of a .log with its records, keys and values included; only one that is `compacted` may have gaps."""
    decoders = ("--key-decoder-class", HEX_DECODER, "--value-decoder-class", HEX_DECODER)
    lines = _lines(tools, file, "--deep-iteration", "--print-data-log", *decoders, gaps=compacted)
    first = next(lines)
    assert first == f"Log starting offset: {int(file.name.split('.')[0])}", first
    batches: list[DumpedBatch] = []
    for line in lines:
        if match := _RECORD.fullmatch(line):
            batches[-1].records.append(_record(match))
        else:
            batches.append(_batch(_matched(_BATCH, line)))
    return batches


def dump_partition(tools: ApacheTools, directory: Path, *, compacted: bool = False) -> list[DumpedBatch]:
    """Every batch of every segment."""
    files = sorted(directory.glob("*.log"))
    return [batch for file in files for batch in dump_log(tools, file, compacted=compacted)]


def dump_index(tools: ApacheTools, file: Path) -> list[tuple[int, int]]:
    """(offset, position) of every entry of an .index that the tool finds true of the .log beside it."""
    lines = list(_lines(tools, file))
    if lines == [f"{file} is empty."]:
        return []
    return [(int(match[1]), int(match[2])) for match in (_matched(_INDEX_ENTRY, line) for line in lines)]


def dump_time_index(tools: ApacheTools, file: Path) -> list[tuple[int, int]]:
    """(timestamp, offset) of every entry of a .timeindex that the tool finds true of the .log beside it."""
    return [(int(match[1]), int(match[2])) for match in (_matched(_TIME_INDEX_ENTRY, line) for line in _lines(tools, file))]


def dump_snapshot(tools: ApacheTools, file: Path) -> list[DumpedProducer]:
    matches = (_matched(_PRODUCER, line) for line in _lines(tools, file))
    return [DumpedProducer(*(None if group is None else int(group) for group in match.groups())) for match in matches]  # type: ignore[arg-type]


def dump_transaction_index(tools: ApacheTools, file: Path) -> list[DumpedAbort]:
    return [DumpedAbort(*map(int, _matched(_ABORT, line).groups())) for line in _lines(tools, file)]


def check_indexes(tools: ApacheTools, directory: Path) -> int:
    """Both of the tool's own checks on every .index and .timeindex: the one of a broker's start, and entry by entry.

    Returns how many files it was.
    """
    files = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    for file in files:
        verdict = list(_lines(tools, file, "--index-sanity-check"))
        assert verdict in ([f"{file} passed sanity check."], [f"{file} is empty."]), verdict
        rest = list(_lines(tools, file, "--verify-index-only"))
        assert rest in ([], [f"{file} is empty."]), rest
    return len(files)


def _lines(tools: ApacheTools, file: Path, *options: str, gaps: bool = False) -> Iterator[str]:
    assert "," not in str(file), "the tool takes a comma for the end of a file's name"
    run = tools.run(DUMP_LOG_SEGMENTS, *options, "--files", str(file))
    complaints = _NO_GAPS.sub("", _FIRST.sub("", run.stderr))
    run = run._replace(stderr=_GAPS.sub("", complaints) if gaps else complaints)
    lines = run.checked().split("\n")
    assert lines[0] == f"Dumping {file}", lines[0]
    assert lines[-1] == "", lines[-1]
    return iter(lines[1:-1])


def _matched(pattern: re.Pattern[str], line: str) -> re.Match[str]:
    match = pattern.fullmatch(line)
    assert match is not None, f"DumpLogSegments says: {line}"
    return match


def _batch(match: re.Match[str]) -> DumpedBatch:
    base, last, count, base_sequence, last_sequence, producer_id, producer_epoch, leader_epoch = match.groups()[:8]
    transactional, control, horizon, position, timestamp_type, max_timestamp, size, codec, crc, valid = match.groups()[8:]
    return DumpedBatch(
        base_offset=int(base),
        last_offset=int(last),
        count=int(count),
        base_sequence=int(base_sequence),
        last_sequence=int(last_sequence),
        producer_id=int(producer_id),
        producer_epoch=int(producer_epoch),
        partition_leader_epoch=int(leader_epoch),
        is_transactional=transactional == "true",
        is_control=control == "true",
        delete_horizon_ms=None if horizon is None else int(horizon),
        position=int(position),
        timestamp_type=timestamp_type,
        max_timestamp=int(max_timestamp),
        size_bytes=int(size),
        codec=Codec[codec.upper()],
        crc=int(crc),
        is_valid=valid == "true",
    )


def _record(match: re.Match[str]) -> DumpedRecord:
    offset, timestamp, key_size, value_size, sequence, headers, marker, coordinator_epoch, key, value = match.groups()
    record = DumpedRecord(
        int(offset),
        int(timestamp),
        None if key is None else bytes.fromhex(key),
        None if value is None else bytes.fromhex(value),
        tuple(headers.split(",")) if headers else (),
        int(sequence),
        marker,
        None if coordinator_epoch is None else int(coordinator_epoch),
    )
    if marker is None:
        assert int(key_size) == (-1 if record.key is None else len(record.key)), match[0]
        assert int(value_size) == (-1 if record.value is None else len(record.value)), match[0]
    return record
