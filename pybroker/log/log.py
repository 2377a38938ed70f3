"""A partition's log: an append-only run of segments, with the state that is rebuilt from them.

Whoever changes the log holds its lock; an append does one write and never waits for the disk. Readers take no lock: the
tuple of segments and the `_end` of the log are replaced as a whole, and bytes below the end do not change. Everything slow
(flushing what was rolled, removing files) goes to the background port.
"""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from pybroker.base.filesystem import Buffer, FileSystem, remove_tree
from pybroker.base.ids import Uuid
from pybroker.log.appending import prepare_batch
from pybroker.log.background import Background
from pybroker.log.files import DELETED, LEADER_EPOCH_CHECKPOINT, SWAP, TopicPartition
from pybroker.log.index import MAX_RELATIVE_OFFSET
from pybroker.log.leader_epochs import LeaderEpochs
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.log.producer_entry import AppendOrigin
from pybroker.log.producer_state import ProducerStates
from pybroker.log.retention import expired_segments
from pybroker.log.segment import BatchPlace, FileSlice, Segment
from pybroker.log.transaction_index import AbortedTransaction
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch, iter_batches
from pybroker.protocol.records.validation import check_batch

logger = logging.getLogger(__name__)

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5

REMEMBERED_READS: Final = 16

_base_offset = attrgetter("base_offset")


def no_jitter(bound: int) -> int:
    return 0


class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time: int  # -1 where records keep their own timestamps
    log_start_offset: int
    size_bytes: int
    is_duplicate: bool = False


class Fetched(NamedTuple):
    """Whole batches from the first that reaches the offset asked for; no slice where there are none yet."""

    slice: FileSlice | None
    offset: int
    log_start_offset: int
    first_batch_is_larger: bool = False  # than the limit; it is there all the same


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int  # -1 where it is not known


class Log:
    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        segments: Sequence[Segment],
        leader_epochs: LeaderEpochs,
        producers: ProducerStates,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        background: Background,
        open_segments: OpenSegments,
        now_ms: int,
        topic_id: Uuid | None = None,
        draw_below: Callable[[int], int] = no_jitter,
    ) -> None:
        """`loader.open_log` makes one from a directory. `draw_below` gives a random number from 0 to below its argument."""
        self.filesystem = filesystem
        self.directory = directory
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.segments = tuple(segments)
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self.recovery_point = recovery_point
        self.last_flush_ms = now_ms
        self.lock = threading.RLock()
        self._background = background
        self._open_segments = open_segments
        self._draw_below = draw_below
        self._jitter_ms = self._new_jitter()
        self._is_closed = False
        self._has_new_segment = True  # whose name may not be on disk yet
        self._first_unstable_offset = producers.first_unstable_offset
        # The end as readers see it: (next offset, active segment, its size), replaced as one.
        self._end = (log_end_offset, self.segments[-1], self.segments[-1].size_bytes)
        # Where the data ends: before the end of the log, if that was truncated to where no batch begins.
        self._data_end = log_end_offset
        # Where recent reads ended, since the next fetch of that consumer begins there: offset to (segment, position).
        self._reads: dict[int, tuple[Segment, int]] = {}

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def log_end_offset(self) -> int:
        return self._end[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is undecided; never above the high watermark."""
        unstable = self._first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    # Appending.

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: int = 0,
        transaction_version: int = -1,
    ) -> Appended:
        """Give the batch in `records`, which is written to, the next offsets and append it.

        A batch that its producer sent before is answered with the offsets it got then.
        """
        config = self.config
        batch = prepare_batch(records, config, now_ms, origin)
        append_time = now_ms if config.is_append_time else -1
        with self.lock:
            self._check_open()
            known = self.producers.check(
                batch, origin, verification_guard=verification_guard, transaction_version=transaction_version
            )
            if known is not None:
                return Appended(known.first_offset, known.last_offset, append_time, self.log_start_offset, 0, True)
            first_offset = self._end[0]
            batch.stamp(first_offset, leader_epoch)
            self._append(batch.view(), (batch,), now_ms)
        return Appended(
            first_offset, first_offset + batch.last_offset_delta, append_time, self.log_start_offset, batch.size_bytes
        )

    def append_as_follower(self, records: Buffer, now_ms: int) -> Appended:
        """Append the whole batches in `records` with the offsets and epochs that the leader gave them."""
        batches = list(iter_batches(records))
        for batch in batches:
            check_batch(batch)
        with self.lock:
            self._check_open()
            end = self._end[0]
            if not batches:
                return Appended(end, end - 1, -1, self.log_start_offset, 0)
            expected = end
            for batch in batches:
                if batch.base_offset < expected or batch.last_offset_delta < 0:
                    raise KafkaError(
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        f"{self.partition}: the leader's batch begins at {batch.base_offset}; expected {expected} or more.",
                    )
                expected = batch.next_offset
                self.producers.check(batch, AppendOrigin.REPLICATION)
            size = batches[-1].end
            self._append(memoryview(records)[:size], batches, now_ms)
        return Appended(batches[0].base_offset, batches[-1].last_offset, -1, self.log_start_offset, size)

    def _append(self, data: Buffer, batches: Sequence[RecordBatch], now_ms: int) -> None:
        config = self.config
        first, last = batches[0], batches[-1]
        last_offset = last.base_offset + last.last_offset_delta
        max_timestamp = first.max_timestamp if last is first else max(batch.max_timestamp for batch in batches)
        segment = self._end[1]
        if segment.should_roll(len(data), max_timestamp, last_offset, now_ms, config, self._jitter_ms):
            segment = self.roll(now_ms, incoming=(first.base_offset, last_offset))
        for batch in batches:
            epoch = batch.partition_leader_epoch
            if epoch != self.leader_epochs.latest_epoch and epoch >= 0:
                self.leader_epochs.assign(epoch, batch.base_offset)
        segment.append(data, batches)
        producers = self.producers
        for batch in batches:
            if batch.producer_id >= 0:
                self._take_in(batch, segment)
        producers.map_end_offset = last_offset + 1
        self._end = (last_offset + 1, segment, segment.size_bytes)
        self._data_end = last_offset + 1
        if last_offset + 1 - self.recovery_point >= config.flush_messages:
            self.flush(now_ms=now_ms)

    def _take_in(self, batch: RecordBatch, segment: Segment) -> None:
        """The producer's side of a batch that is in `segment` now."""
        completed = self.producers.update(batch)
        if completed is not None:
            if completed.is_aborted:
                stable = self.producers.last_stable_offset(completed)
                segment.transaction_index.append(
                    AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
                )
            self.producers.complete(completed)
        self._first_unstable_offset = self.producers.first_unstable_offset

    def roll(self, now_ms: int, *, incoming: tuple[int, int] | None = None) -> Segment:
        """Begin a new segment, unless the active one is empty; `incoming` are the first and last offset of what comes next.

        It is called by the offset at which the data before it ends, even if the log goes on further up: by a gap between
        segments recovery knows that something was lost. Only one too wide for an index to span is left open.
        """
        with self.lock:
            end = self._end[0]
            active = self.active
            base_offset = self._data_end
            if incoming is not None and incoming[1] - base_offset > MAX_RELATIVE_OFFSET:
                base_offset = incoming[0]
            elif active.size_bytes == 0:
                return active
            active.became_inactive()
            self.producers.map_end_offset = base_offset
            self.producers.take_snapshot(sync=False)
            segment = self._new_segment(base_offset, now_ms)
            self.segments = (*self.segments, segment)
            self._end = (end, segment, 0)
            self._background.run(lambda: self._flush_rolled(active, base_offset))
            return segment

    def _flush_rolled(self, segment: Segment, end: int) -> None:
        """Its records may be on disk already; the last entries of its indexes are not."""
        if not self._is_closed:
            segment.flush()
        self.flush(end)

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment(self.filesystem, self.directory, base_offset, self.config, self._open_segments, created_ms=now_ms)
        segment.create(self.config)
        self._has_new_segment = True
        self._jitter_ms = self._new_jitter()
        return segment

    def _new_jitter(self) -> int:
        """How much earlier than segment.ms the segment rolls, so that many logs do not roll at once."""
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self._draw_below(bound) if bound > 0 else 0

    def flush(self, upto: int | None = None, *, now_ms: int | None = None) -> None:
        """Put everything below the offset `upto`, or the end of the log, on disk, and move the recovery point there."""
        end, segments = self._end[0], self.segments
        if self._is_closed:
            return
        upto = end if upto is None else min(upto, end)
        start = self.recovery_point
        if upto > start:
            first = max(0, bisect_right(segments, start, key=_base_offset) - 1)
            for segment in segments[first:]:
                if segment.base_offset < upto:
                    segment.flush()
            if self._has_new_segment:
                self._has_new_segment = False
                self.filesystem.sync_dir(self.directory)
            with self.lock:
                # A truncation meanwhile took the recovery point down with it, and the end of the log.
                if self._end[0] >= upto and upto > self.recovery_point >= start:
                    self.recovery_point = upto
        if now_ms is not None:
            self.last_flush_ms = now_ms

    # Reading.

    def read(self, offset: int, max_bytes: int, *, upper: int | None = None, min_one: bool = True) -> Fetched:
        """Batches from `offset` on that lie below the offset `upper`, or the end of the log.

        At most `max_bytes` of them, but with `min_one` the first in any case.
        """
        end, active, active_size = self._end
        start = self.log_start_offset
        if not start <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.partition} has offsets {start} to {end}; {offset} was asked for."
            )
        bound = end if upper is None or upper > end else upper
        if offset >= bound:
            return Fetched(None, offset, start)
        segments = self.segments
        number = max(0, bisect_right(segments, offset, key=_base_offset) - 1)
        for segment, following in zip(segments[number:], (*segments[number + 1 :], None), strict=True):
            if segment.base_offset >= bound:
                break
            limit = active_size if segment is active else segment.size_bytes
            holds_bound = following is None or bound < following.base_offset
            if holds_bound and bound < end:
                limit = self._limit_in(segment, bound, limit)
            first = self._remembered(segment, offset, limit) or segment.locate(offset, limit)
            if first is None:
                continue
            is_larger = first.size_bytes > max_bytes
            if is_larger and not min_one:
                return Fetched(None, offset, start, True)
            found = segment.slice_from(first, max_bytes, limit)
            if holds_bound and found.position + found.length == limit:
                self._remember(bound, segment, limit)
            return Fetched(found, first.base_offset, start, is_larger)
        return Fetched(None, offset, start)

    def _limit_in(self, segment: Segment, bound: int, limit: int) -> int:
        """The position in `segment` before which every batch lies below the offset `bound`."""
        place = self._remembered(segment, bound, limit) or segment.locate(bound, limit)
        return limit if place is None else place.position

    def _remembered(self, segment: Segment, offset: int, limit: int) -> BatchPlace | None:
        """The batch that begins at `offset`, if a read ended there: its header tells whether that still holds."""
        known = self._reads.get(offset)
        if known is None or known[0] is not segment:
            return None
        place = next(segment.places(known[1], limit), None)
        return place if place is not None and place.base_offset == offset else None

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        reads = self._reads
        if len(reads) >= REMEMBERED_READS:
            self._reads = reads = {}
        reads[offset] = (segment, position)

    def aborted_transactions(self, fetch_offset: int, upper: int) -> list[AbortedTransaction]:
        """Those that a read_committed consumer must leave out of the offsets from `fetch_offset` to before `upper`."""
        segments = self.segments
        found: list[AbortedTransaction] = []
        for segment in segments[max(0, bisect_right(segments, fetch_offset, key=_base_offset) - 1) :]:
            aborted, is_complete = segment.transaction_index.collect(fetch_offset, upper)
            found += aborted
            if is_complete:
                break
        return found

    def batches(self, start: int | None = None, end: int | None = None) -> Iterator[RecordBatch]:
        """Every batch that reaches into the offsets from `start` to before `end`, bytes and all."""
        start = self.log_start_offset if start is None else start
        log_end, active, active_size = self._end
        end = log_end if end is None else end
        segments = self.segments
        for segment in segments[max(0, bisect_right(segments, start, key=_base_offset) - 1) :]:
            if segment.base_offset >= end:
                return
            limit = active_size if segment is active else segment.size_bytes
            for _, batch in segment.batches(segment.index.lookup(start).position, limit):
                if batch.base_offset >= end:
                    return
                if batch.last_offset >= start:
                    yield batch

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record at or behind `timestamp`, or what ListOffsets means by a negative one; None if there is none."""
        if timestamp == LATEST_TIMESTAMP:
            return TimestampedOffset(self.log_end_offset, -1, self._epoch_or_none(self.leader_epochs.latest_epoch))
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = self.log_start_offset
            return TimestampedOffset(start, -1, self._epoch_or_none(self.leader_epochs.epoch_for_offset(start)))
        if timestamp == LATEST_TIERED_TIMESTAMP:
            return None
        if timestamp == MAX_TIMESTAMP:
            return self._offset_of_max_timestamp()
        for segment in self.segments:
            if segment.highest_timestamp.timestamp >= timestamp:
                found = self._first_record_at(segment, timestamp, segment.time_index.lookup(timestamp).offset)
                if found is not None:
                    return found
        return None

    def _first_record_at(self, segment: Segment, timestamp: int, from_offset: int) -> TimestampedOffset | None:
        _, active, active_size = self._end
        limit = active_size if segment is active else segment.size_bytes
        start = self.log_start_offset
        for _, batch in segment.batches(segment.index.lookup(from_offset).position, limit):
            if batch.max_timestamp >= timestamp and batch.last_offset >= start:
                for record in batch.records():
                    if record.timestamp >= timestamp and record.offset >= start:
                        return TimestampedOffset(record.offset, record.timestamp, batch.partition_leader_epoch)
        return None

    def _offset_of_max_timestamp(self) -> TimestampedOffset | None:
        highest = max(self.segments, key=lambda segment: segment.highest_timestamp.timestamp)
        timestamp, last_offset = highest.highest_timestamp
        if timestamp < 0:
            return None
        return self._first_record_at(highest, timestamp, last_offset)

    def _epoch_or_none(self, epoch: int | None) -> int:
        return -1 if epoch is None else epoch

    # High watermark and start.

    def set_high_watermark(self, offset: int) -> None:
        """Bounded by the log's start and end; transactions decided below it become stable."""
        with self.lock:
            self.high_watermark = max(self.log_start_offset, min(offset, self._end[0]))
            self.producers.on_high_watermark_updated(self.high_watermark)
            self._first_unstable_offset = self.producers.first_unstable_offset

    def advance_log_start_offset(self, offset: int) -> bool:
        """What lies before `offset` is deleted: unreadable at once, its segments removed at the next retention check."""
        with self.lock:
            if offset > self.high_watermark:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.partition}: cannot delete before offset {offset}; the high watermark is {self.high_watermark}.",
                )
            if offset <= self.log_start_offset:
                return False
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            self.producers.on_log_start_offset_incremented(offset)
            self._first_unstable_offset = self.producers.first_unstable_offset
            return True

    # Truncation.

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop everything from `offset` on; False if there is nothing there."""
        with self.lock:
            self._check_open()
            if offset >= self._end[0]:
                return False
            logger.info("%s: truncating to offset %d from %d", self.partition, offset, self._end[0])
            if offset < self.segments[0].base_offset:
                self.truncate_fully_and_start_at(offset, now_ms)
                return True
            kept = [segment for segment in self.segments if segment.base_offset <= offset]
            dropped = self.segments[len(kept) :]
            self.segments = tuple(kept)
            self._reads = {}
            active = kept[-1]
            # On disk from the end backwards, and before anything is appended: what was dropped must not come back behind it.
            self._delete_segments(dropped[::-1])
            self.filesystem.sync_dir(self.directory)
            active.truncate_to(offset)
            self._end = (offset, active, active.size_bytes)
            self._data_end = active.next_offset()
            self.leader_epochs.truncate_from_end(offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self.recovery_point = min(self.recovery_point, offset)
            self.high_watermark = min(self.high_watermark, offset)
            self.rebuild_producers(now_ms)
            self.filesystem.sync_dir(self.directory)
            return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int, *, log_start_offset: int | None = None) -> None:
        """Drop everything; the next record gets `offset`."""
        with self.lock:
            self._check_open()
            logger.info("%s: dropping everything to start anew at offset %d", self.partition, offset)
            dropped, self.segments = self.segments, ()
            self._delete_segments(dropped[::-1], at_once=True)
            segment = self._new_segment(offset, now_ms)
            self.segments = (segment,)
            self._reads = {}
            self._end = (offset, segment, 0)
            self._data_end = offset
            self.leader_epochs.clear()
            self.producers.truncate_fully_and_start_at(offset)
            self._first_unstable_offset = None
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self.recovery_point = min(self.recovery_point, offset)
            self.high_watermark = self.log_start_offset
            self.filesystem.sync_dir(self.directory)

    def rebuild_producers(self, now_ms: int) -> None:
        """The producers as of the end of the log, from the newest snapshot and what was written behind it."""
        with self.lock:
            end = self._end[0]
            producers = self.producers
            producers.truncate_and_reload(self.log_start_offset, end, now_ms)
            if producers.map_end_offset < end:
                for batch in self.batches(producers.map_end_offset, end):
                    if batch.producer_id >= 0:
                        completed = producers.update(batch)
                        if completed is not None:
                            producers.complete(completed)
                producers.map_end_offset = end
            producers.on_high_watermark_updated(self.high_watermark)
            self._first_unstable_offset = producers.first_unstable_offset

    # Deletion.

    def delete_old_segments(self, now_ms: int) -> int:
        """Drop the segments that retention or the log start offset gives up; returns how many."""
        with self.lock:
            self._check_open()
            count, reason = expired_segments(
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self._end[0],
                limit=self.high_watermark,
                now_ms=now_ms,
            )
            if not count:
                return 0
            if count == len(self.segments):
                self.roll(now_ms)
            dropped, self.segments = self.segments[:count], self.segments[count:]
            self._reads = {}
            logger.info(
                "%s: deleting %d segments up to offset %d: %s", self.partition, count, self.segments[0].base_offset, reason
            )
            self._delete_segments(dropped)
            start = self.segments[0].base_offset
            if start > self.log_start_offset:
                self.log_start_offset = start
                self.leader_epochs.truncate_from_start(start)
                self.producers.on_log_start_offset_incremented(start)
                self._first_unstable_offset = self.producers.first_unstable_offset
            return count

    def _delete_segments(self, segments: Sequence[Segment], *, at_once: bool = False) -> None:
        """In two steps: renamed now, removed when whoever still reads them has had time to finish.

        In the order given, so that a crash on the way leaves a log without a hole.
        """
        if not segments:
            return
        snapshots = [self.producers.snapshots.mark_deleted(segment.base_offset) for segment in segments]
        for segment in segments:
            segment.change_suffix(DELETED)

        def remove() -> None:
            for segment in segments:
                segment.delete()
            for path in snapshots:
                if path is not None and self.filesystem.exists(path):
                    self.filesystem.remove(path)

        self._background.run(remove, delay_ms=0 if at_once else self.config.file_delete_delay_ms)

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Put what the cleaner wrote, complete and synced, in the place of what it read.

        A crash before the last `.swap` name stands leaves the old ones; after it, the loader finishes the change.
        """
        with self.lock:
            self._check_open()
            for segment in reversed(new):
                segment.change_suffix(SWAP)
            self.filesystem.sync_dir(self.directory)
            gone = set(map(id, old))
            kept = [segment for segment in self.segments if id(segment) not in gone]
            self.segments = tuple(sorted([*kept, *new], key=_base_offset))
            self._reads = {}
            starts = {segment.base_offset for segment in new}
            for segment in old:
                segment.change_suffix(DELETED)
                if segment.base_offset not in starts:
                    self.producers.snapshots.mark_deleted(segment.base_offset)
            for segment in new:
                segment.change_suffix("")
            self.filesystem.sync_dir(self.directory)

        def remove() -> None:
            for segment in old:
                segment.delete()

        self._background.run(remove, delay_ms=self.config.file_delete_delay_ms)

    # The whole.

    def update_config(self, config: LogConfig) -> None:
        with self.lock:
            self.config = config
            for segment in self.segments:
                segment.update_config(config)

    def rename_directory(self, name: str) -> None:
        """Another name in the same log directory."""
        with self.lock:
            new = f"{os.path.dirname(self.directory)}/{name}"
            self.filesystem.rename(self.directory, new)
            self.filesystem.sync_dir(os.path.dirname(new))
            self.directory = new
            self.leader_epochs.moved(f"{new}/{LEADER_EPOCH_CHECKPOINT}")
            self.producers.snapshots.directory = new
            for segment in self.segments:
                segment.directory_moved(new)

    def close(self) -> None:
        """A snapshot of the producers spares the next start a replay. Nothing can be appended after it."""
        with self.lock:
            if not self._is_closed:
                self._is_closed = True
                self.producers.take_snapshot()
                for segment in self.segments:
                    segment.close()

    def close_files(self) -> None:
        """Let go of everything without writing: the disk has failed."""
        with self.lock:
            self._is_closed = True
            for segment in self.segments:
                segment.forget()

    def delete(self) -> None:
        """Remove the directory and all in it. Takes long: not on a thread that serves."""
        with self.lock:
            self._is_closed = True
            for segment in self.segments:
                segment.forget()
            remove_tree(self.filesystem, self.directory)

    def _check_open(self) -> None:
        if self._is_closed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.partition}: the log in {self.directory} is closed.")

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start_offset}..{self.log_end_offset})"
