"""One cleaning of one log: map the keys of its dirty part, then write its segments anew without what a later record replaced.

Pure but for the port to the disk: the time is given, and `progress(bytes)` is called for all that is read and written, to hold
it up or to end it by an exception. Sources are only read, and only their `.log` files; what is written has `.cleaned` behind
its name until the log swaps it in. No offset ever changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final

from pybroker.base.filesystem import FileSystem
from pybroker.log.cleaner.job import CleanedSegment, CleanerStats, CleaningJob, SourceSegment
from pybroker.log.cleaner.offset_map import OffsetMap
from pybroker.log.cleaner.transactions import PassedTransactions
from pybroker.log.files import CLEANED, INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX, file_name, parse_file
from pybroker.log.index import MAX_RELATIVE_OFFSET, TimeIndex
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.log.segment import Segment
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import CONTROL_BIT, HEADER_BYTES, LOG_OVERHEAD, RecordBatch
from pybroker.protocol.records.builder import rebuild
from pybroker.protocol.records.splice import Span, splice, walk_spans
from pybroker.protocol.records.validation import check_batch

Progress = Callable[[int], None]

_unpack_length = Struct(">8xi").unpack_from
_MIN_BATCH_BYTES: Final = HEADER_BYTES + 7


class Cleaning:
    """`run` it once; `stats` are complete when it is over."""

    def __init__(self, filesystem: FileSystem, job: CleaningJob, progress: Progress) -> None:
        self.stats = CleanerStats()
        self._filesystem = filesystem
        self._job = job
        self._progress = progress

    def run(self) -> Iterator[CleanedSegment]:
        """The segments that come out, each before the next is begun."""
        job, stats = self._job, self.stats
        keys = max(0, job.first_uncleanable_offset - job.first_dirty_offset)
        offsets = OffsetMap(job.config.dedupe_buffer_bytes, job.config.load_factor, max_keys=keys)
        self._fill(offsets)
        stats.end_offset = max(offsets.latest_offset + 1, job.first_dirty_offset)
        stats.map_keys, stats.map_capacity, stats.map_size_bytes = len(offsets), offsets.capacity, offsets.size_bytes
        transactions = PassedTransactions(job.aborted)
        sources = [segment for segment in job.segments if segment.base_offset < stats.end_offset]
        for group in group_segments(sources, job):
            yield self._clean_group(group, offsets, transactions)

    # The first pass.

    def _fill(self, offsets: OffsetMap) -> None:
        job = self._job
        start = job.first_dirty_offset
        transactions = PassedTransactions(row for row in job.aborted if row.last_offset >= start)
        dirty = [
            (segment, end)
            for segment, end in zip(job.segments, _ends(job.segments, job.first_uncleanable_offset), strict=True)
            if end > start
        ]
        position = job.dirty_position
        for segment, end in dirty:
            if not self._fill_from(segment, position, offsets, transactions):
                return
            # Offsets may be missing at the end of a segment; they are clean then, too.
            offsets.latest_offset = end - 1
            position = 0

    def _fill_from(self, segment: SourceSegment, position: int, offsets: OffsetMap, transactions: PassedTransactions) -> bool:
        """False if the map became full."""
        start, stats = self._job.first_dirty_offset, self.stats
        for chunk, batches in self._chunks(segment, position):
            stats.map_bytes_read += len(chunk)
            for batch in batches:
                if batch.attributes & CONTROL_BIT:
                    transactions.on_control(batch)
                elif (
                    not transactions.on_data(batch) and batch.last_offset >= start and not offsets.put_all(batch.keys(), start)
                ):
                    return False
                stats.map_records_read += batch.count
                if batch.last_offset >= start:
                    offsets.latest_offset = batch.last_offset
        return True

    # The second pass.

    def _clean_group(
        self, group: Sequence[SourceSegment], offsets: OffsetMap, transactions: PassedTransactions
    ) -> CleanedSegment:
        target = self._new_segment(group[0].base_offset)
        transactions.index = target.transaction_index
        for source in group:
            for chunk, batches in self._chunks(source, 0):
                self._clean_chunk(chunk, batches, target, offsets, transactions)
        target.became_inactive()
        target.flush()
        target.close()
        # By it retention knows the age of records without a timestamp: it counts on from where it was, as in Apache Kafka.
        modified_ms = self._filesystem.modified_ms(self._path(group[-1]))
        for kind in (LOG, INDEX, TIME_INDEX):
            self._filesystem.set_modified_ms(target.path(kind), modified_ms)
        return CleanedSegment(group[0].base_offset, target.size_bytes, tuple(source.base_offset for source in group))

    def _clean_chunk(
        self,
        chunk: memoryview,
        batches: Sequence[RecordBatch],
        target: Segment,
        offsets: OffsetMap,
        transactions: PassedTransactions,
    ) -> None:
        stats = self.stats
        kept: list[RecordBatch] = []
        parts: list[memoryview] = []
        run_start = run_end = 0  # of the bytes of `chunk` that stay as they are
        for batch in batches:
            result = self._clean_batch(batch, offsets, transactions)
            if result is batch:
                if batch.start != run_end:
                    parts.append(chunk[run_start:run_end])
                    run_start = batch.start
                run_end = batch.start + batch.size_bytes
                kept.append(batch)
            elif result is not None:
                parts += (chunk[run_start:run_end], result.buffer)
                run_start = run_end = batch.start + batch.size_bytes
                kept.append(result)
        parts.append(chunk[run_start:run_end])
        stats.bytes_read += len(chunk)
        if kept:
            parts = [part for part in parts if part]
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            target.append(data, kept)
            stats.bytes_written += len(data)
            stats.records_written += sum(batch.count for batch in kept)
            self._progress(len(data))

    def _clean_batch(self, batch: RecordBatch, offsets: OffsetMap, transactions: PassedTransactions) -> RecordBatch | None:
        """The batch itself if nothing of it goes, a smaller one, or None."""
        job, stats = self._job, self.stats
        check_batch(batch)
        stats.records_read += batch.count
        horizon = batch.delete_horizon_ms
        is_control = batch.attributes & CONTROL_BIT
        if is_control:
            can_go = transactions.on_control(batch)
            if batch.count and not (can_go and horizon is not None and horizon <= job.now_ms):
                return self._with_horizon(batch, set()) if can_go and horizon is None else batch
        elif not transactions.on_data(batch):
            if batch.base_offset > offsets.latest_offset:
                return batch
            payload = batch.payload()
            past_horizon = horizon is not None and horizon <= job.now_ms
            spans, has_tombstones = self._survivors(batch, payload, offsets, past_horizon=past_horizon)
            if spans and has_tombstones and horizon is None:
                return self._with_horizon(batch, {span.offset for span in spans})
            if spans:
                return batch if len(spans) == batch.count else splice(batch, payload, spans)
        if not self._stays_when_empty(batch):
            return None
        return batch if not batch.count else RecordBatch(rebuild(batch, ()))

    def _survivors(
        self, batch: RecordBatch, payload: bytes, offsets: OffsetMap, *, past_horizon: bool
    ) -> tuple[list[Span], bool]:
        """The records that stay, and whether a tombstone is among them."""
        latest, get = offsets.latest_offset, offsets.get
        spans: list[Span] = []
        has_tombstones = False
        for span in walk_spans(payload, batch.count, batch.base_offset):
            offset, key, is_tombstone, _, _, _ = span
            if offset <= latest:
                if key is None:
                    self.stats.invalid_records += 1
                    continue
                if offset < get(key) or (is_tombstone and past_horizon):
                    continue
            if is_tombstone:
                has_tombstones = True
            spans.append(span)
        return spans, has_tombstones

    def _with_horizon(self, batch: RecordBatch, offsets: set[int]) -> RecordBatch:
        """The batch, with only the records at `offsets` if it is not a marker's, and with its delete horizon (KIP-534)."""
        records = (record for record in batch.records() if batch.is_control or record.offset in offsets)
        return RecordBatch(rebuild(batch, records, delete_horizon_ms=self._job.now_ms + self._job.delete_retention_ms))

    def _stays_when_empty(self, batch: RecordBatch) -> bool:
        """The end of the cleaned range stays known, and so do the last sequence and the epoch of every active producer."""
        if batch.next_offset == self._job.first_uncleanable_offset:
            return True
        last = self._job.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.epoch

    # Files.

    def _chunks(self, segment: SourceSegment, position: int) -> Iterator[tuple[memoryview, list[RecordBatch]]]:
        """Whole batches, as many as the buffer takes; a larger one comes alone."""
        path = self._path(segment)
        limit = segment.size_bytes
        file = self._filesystem.open(path, read_only=True)
        try:
            while position < limit:
                wanted = min(self._job.config.io_buffer_bytes, limit - position)
                data = file.read(position, wanted)
                size = _first_size(data, path, position, limit)
                if size > len(data):
                    data = file.read(position, size)
                chunk = memoryview(data)
                batches = []
                at = 0
                while at + HEADER_BYTES <= len(chunk) and at + _unpack_length(chunk, at)[0] + LOG_OVERHEAD <= len(chunk):
                    batch = RecordBatch(chunk, at)
                    batches.append(batch)
                    at += batch.size_bytes
                if not batches:
                    raise _corrupt(path, position, f"{len(data)} bytes are no whole batch of {size} bytes")
                self._progress(at)
                yield chunk[:at], batches
                position += at
        finally:
            file.close()

    def _path(self, segment: SourceSegment) -> str:
        return f"{self._job.directory}/{file_name(segment.base_offset, LOG)}"

    def _new_segment(self, base_offset: int) -> Segment:
        job = self._job
        for kind in SEGMENT_SUFFIXES:
            path = f"{job.directory}/{file_name(base_offset, kind)}{CLEANED}"
            if self._filesystem.exists(path):
                self._filesystem.remove(path)
        config = LogConfig.of(
            {"segment.index.bytes": job.segment_index_bytes, "index.interval.bytes": job.index_interval_bytes}
        )
        segment = Segment(self._filesystem, job.directory, base_offset, config, OpenSegments(), suffix=CLEANED)
        segment.create(config)
        return segment


def group_segments(segments: Sequence[SourceSegment], job: CleaningJob) -> Iterator[list[SourceSegment]]:
    """Neighbours that fit into one segment by their bytes, their indexes and their offsets."""
    # An index gets at most an entry every so many bytes; it is not looked at, since the log has it mapped and may cut it.
    entry_bytes = max(job.index_interval_bytes, _MIN_BATCH_BYTES)
    most_bytes = min(job.segment_bytes, job.segment_index_bytes // TimeIndex.entry.size * entry_bytes)
    group: list[SourceSegment] = []
    size = 0
    for segment, end in zip(segments, _ends(segments, job.first_uncleanable_offset), strict=True):
        fits_bytes = size + segment.size_bytes <= most_bytes
        # An empty one needs no room for its offsets: otherwise one would be left for every 2^31 offsets.
        fits_offsets = not group or not segment.size_bytes or end - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
        if group and not (fits_bytes and fits_offsets):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size_bytes
    if group:
        yield group


def remove_cleaned(filesystem: FileSystem, directory: str) -> None:
    """What a cleaning that failed left behind."""
    for entry in list(filesystem.scan(directory)):
        file = parse_file(entry.name)
        if file is not None and file.state == CLEANED:
            filesystem.remove(f"{directory}/{entry.name}")


def _ends(segments: Sequence[SourceSegment], end: int) -> list[int]:
    """Where each segment ends at the latest: where the next begins."""
    return [segment.base_offset for segment in segments[1:]] + ([end] if segments else [])


def _first_size(data: bytes, path: str, position: int, limit: int) -> int:
    if len(data) < HEADER_BYTES:
        raise _corrupt(path, position, f"{len(data)} bytes are no whole batch")
    size: int = _unpack_length(data)[0] + LOG_OVERHEAD
    if not HEADER_BYTES <= size <= limit - position:
        raise _corrupt(path, position, f"a batch states {size} bytes; expected {HEADER_BYTES} to {limit - position}")
    return size


def _corrupt(path: str, position: int, problem: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}, at byte {position}: {problem}")
