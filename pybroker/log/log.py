"""A partition's log: an append-only run of segments, with the state that is rebuilt from them.

Whoever changes the log holds its lock; an append does one write and never waits for the disk. Readers take no lock, see
`log_reader`; what becomes of the files is in `stored_log`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from pybroker.base.filesystem import Buffer
from pybroker.config.types import LONG_MAX
from pybroker.log.appending import fetched_batches, plain_batches, prepare_batch
from pybroker.log.producer_entry import AppendOrigin
from pybroker.log.retention import expired_segments
from pybroker.log.segment import Segment, StampedBatch
from pybroker.log.stored_log import StoredLog
from pybroker.log.transaction_index import AbortedTransaction
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import NO_LEADER_EPOCH, TRANSACTIONAL_BIT, RecordBatch, iter_batches, pack_place
from pybroker.protocol.records.validation import check_batch

logger = logging.getLogger(__name__)

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5

NOT_PLAIN: Final = -1
ANY_EPOCH: Final = 2**31 - 1


class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time: int  # -1 where records keep their own timestamps; of a duplicate, when it was first sent
    log_start_offset: int
    size_bytes: int
    is_duplicate: bool = False


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int  # -1 where it is not known


class Log(StoredLog):
    # What `lead` and `follow` said: the epoch that appends must be of, None as long as nobody said, and whether an append is
    # committed by itself.
    _led_epoch: int | None = None
    _commits_at_once = True

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
        commits: bool = False,
    ) -> Appended:
        """Give the batch in `records`, which is written to, the next offsets and append it.

        A batch that its producer sent before is answered with the offsets it got then. `commits`: no other replica has to
        be waited for, unless `lead` said otherwise.
        """
        config = self.config
        batch = prepare_batch(records, config, now_ms, origin)
        append_time = now_ms if config.is_append_time else -1
        with self.lock:
            if self._is_closed:
                self._check_open()
            if leader_epoch != self._led_epoch is not None:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.partition} is not led here in epoch {leader_epoch} any more."
                )
            if batch.producer_id >= 0:
                known = self.producers.check(
                    batch, origin, verification_guard=verification_guard, transaction_version=transaction_version
                )
                if known is not None:
                    return Appended(known.first_offset, known.last_offset, known.timestamp, self.log_start_offset, 0, True)
            first_offset = self._end[0]
            batch.stamp(first_offset, leader_epoch)
            self._append(batch.view(), (batch,), now_ms)
            if commits and self._commits_at_once:
                self._commit_all()
        return Appended(
            first_offset, first_offset + batch.last_offset_delta, append_time, self.log_start_offset, batch.size_bytes
        )

    def append_plain(self, data: memoryview, leader_epoch: int, now_ms: int, *, is_transactional: bool = False) -> int:
        """`append_plain_batches` of one batch: its first offset, or NOT_PLAIN."""
        offsets = self.append_plain_batches((data,), leader_epoch, now_ms, is_transactional=is_transactional)
        return offsets[0] if offsets else NOT_PLAIN

    def append_plain_batches(
        self,
        batches: Sequence[memoryview],
        leader_epoch: int,
        now_ms: int,
        *,
        is_transactional: bool = False,
        commits: bool = True,
    ) -> list[int]:
        """The usual append in few steps: batches as their producers made them, to a topic without rules that look into them;
        with `is_transactional` those of a transaction that is open here. One write for all. Returns their first offsets.
        `commits`: only if no other replica has to be waited for.

        Where a batch needs more care the list ends, with nothing done to that one and those behind it: `append_as_leader`
        then does it, or says what is wrong.
        """
        config = self._plain
        if config is None:
            return []
        plain = plain_batches(batches, config, now_ms, TRANSACTIONAL_BIT if is_transactional else 0)
        if not plain:
            return []
        with self.lock:
            if (
                self._is_closed
                or (commits and not self._commits_at_once)
                or leader_epoch != self._led_epoch is not None
                or self.leader_epochs.latest_epoch != leader_epoch
            ):
                return []
            own: list[RecordBatch] = []
            if is_transactional or plain[0][-1] >= 0:
                # Of an idempotent producer, all of them: it has to be told of them.
                own = [RecordBatch(one[0]) for one in plain]
                if not self._is_fresh(own[0]):
                    return []
            offset, segment, position = self._end
            offsets: list[int] = []
            stamped: list[StampedBatch] = []
            for data, length, count, max_timestamp, _ in plain:
                pack_place(data, 0, offset, length, leader_epoch)
                offsets.append(offset)
                offset += count
                stamped.append((data, offset - 1, max_timestamp))
            try:
                done = segment.append_plain(stamped, offsets[0], config.segment_bytes, config.roll_ms - self._jitter_ms)
            except OSError:
                # The careful way meets it again and tells of it.
                done = 0
            if done < len(plain):
                for data, length, _, _, _ in plain[done:]:
                    pack_place(data, 0, 0, length, NO_LEADER_EPOCH)
                if not done:
                    return []
                del offsets[done:]
            for batch, first_offset in zip(own, offsets, strict=False):
                batch.base_offset, batch.partition_leader_epoch = first_offset, leader_epoch
                self._take_in(batch, segment)
            self.producers.map_end_offset = self._data_end = end = stamped[done - 1][1] + 1
            if self._commits_at_once:
                self._end = (end, segment, segment.size_bytes)
                self.high_watermark = end
                if self._first_unstable_offset is not None:
                    self._commit_all()
            else:
                self._remember_append(offsets[0], segment, position)
                self._end = (end, segment, segment.size_bytes)
        return offsets

    def _is_fresh(self, batch: RecordBatch) -> bool:
        """Whether its producer may append it now, has not done so before, and nothing else counts for what follows it."""
        try:
            producers = self.producers
            return (
                batch.base_sequence >= 0
                and producers.verification(batch.producer_id) is None
                and (
                    not batch.attributes & TRANSACTIONAL_BIT
                    or producers.has_ongoing_transaction(batch.producer_id, batch.producer_epoch)
                )
                and producers.check(batch) is None
            )
        except KafkaError:
            return False

    def append_as_follower(self, records: Buffer, now_ms: int, leader_epoch: int = ANY_EPOCH) -> Appended:
        """Append the whole batches in `records` with the offsets and epochs that the leader gave them, up to the first of a
        later epoch than `leader_epoch`, the one they were asked for in: a leader that was deposed while its answer was on the
        way may have sent what it has from its successor by then, for a place where the two logs had parted (KAFKA-18723)."""
        appended = self._append_plain_as_follower(memoryview(records), leader_epoch)
        if appended is not None:
            return appended
        batches: list[RecordBatch] = []
        for batch in iter_batches(records):
            epoch = batch.partition_leader_epoch
            if epoch > leader_epoch:
                logger.info("%s: asked in epoch %d, left out as of epoch %d: %r", self.partition, leader_epoch, epoch, batch)
                break
            check_batch(batch)
            batches.append(batch)
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

    def _append_plain_as_follower(self, records: memoryview, leader_epoch: int) -> Appended | None:
        """In few steps, as it is under load: whole batches, in the epoch of the last one, that the active segment has room for.
        None, with nothing done, where that is not so."""
        last_epoch = self.leader_epochs.latest_epoch
        config = self.config
        if last_epoch is None or last_epoch > leader_epoch or config.flush_messages < LONG_MAX:
            return None
        first_offset = self._end[0]
        batches, of_producers = fetched_batches(records, first_offset, last_epoch)
        if not batches:
            return None
        with self.lock:
            end, segment, _ = self._end
            if self._is_closed or end != first_offset or self.leader_epochs.latest_epoch != last_epoch:
                return None
            for batch in of_producers:
                self.producers.check(batch, AppendOrigin.REPLICATION)
            roll_ms = config.roll_ms - self._jitter_ms
            if not segment.append_plain(batches, first_offset, config.segment_bytes, roll_ms, records):
                return None
            for batch in of_producers:
                self._take_in(batch, segment)
            self.producers.map_end_offset = self._data_end = end = batches[-1][1] + 1
            self._end = (end, segment, segment.size_bytes)
        return Appended(first_offset, end - 1, -1, self.log_start_offset, len(records))

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

    # Reading.

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

    def lead(self, leader_epoch: int, *, commits_at_once: bool) -> None:
        """From now on appends are of this epoch; with `commits_at_once` no other replica has to be waited for."""
        with self.lock:
            self._led_epoch = leader_epoch
            self._commits_at_once = commits_at_once
            if commits_at_once:
                self._commit_all()

    def is_led_in(self, leader_epoch: int) -> bool:
        return self._led_epoch == leader_epoch

    def follow(self) -> None:
        """From now on only what the leader sends is appended."""
        with self.lock:
            self._led_epoch = NO_LEADER_EPOCH
            self._commits_at_once = False

    def set_high_watermark(self, offset: int) -> None:
        """Bounded by the log's start and end; transactions decided below it become stable."""
        with self.lock:
            self.high_watermark = max(self.log_start_offset, min(offset, self._end[0]))
            if self._first_unstable_offset is not None:
                self.producers.on_high_watermark_updated(self.high_watermark)
                self._first_unstable_offset = self.producers.first_unstable_offset

    def _commit_all(self) -> None:
        """No other replica has to be waited for: the high watermark is the end of the log."""
        self.high_watermark = end = self._end[0]
        if self._first_unstable_offset is not None:
            self.producers.on_high_watermark_updated(end)
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
                # An epoch that began at the end and in which nothing was written may be unknown to the leader.
                self.leader_epochs.truncate_from_end(offset)
                return False
            logger.info("%s: truncating to offset %d from %d", self.partition, offset, self._end[0])
            self.truncations += 1
            if offset < self.segments[0].base_offset:
                self.truncate_fully_and_start_at(offset, now_ms)
                return True
            kept = [segment for segment in self.segments if segment.base_offset <= offset]
            dropped = self.segments[len(kept) :]
            self.segments = tuple(kept)
            self._forget_places()
            active = kept[-1]
            # On disk from the end backwards, and before anything is appended: what was dropped must not come back behind it.
            self._delete_segments(dropped[::-1])
            self.filesystem.sync_dir(self.directory)
            active.truncate_to(offset)
            self._end = (offset, active, active.size_bytes)
            self._data_end = active.next_offset()
            self.log_start_offset = min(self.log_start_offset, offset)
            self.recovery_point = min(self.recovery_point, offset)
            self.high_watermark = min(self.high_watermark, offset)
            has_lost_epochs = self.leader_epochs.truncate_from_end(offset, flush=False)
            self.rebuild_producers(now_ms)
            self.filesystem.sync_dir(self.directory)
            if has_lost_epochs:
                # Last: a full disk may not take it, and whoever then truncates again finds the rest done.
                self.leader_epochs.flush()
            return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int, *, log_start_offset: int | None = None) -> None:
        """Drop everything; the next record gets `offset`."""
        with self.lock:
            self._check_open()
            logger.info("%s: dropping everything to start anew at offset %d", self.partition, offset)
            self.truncations += 1
            # Readers see one log or the other, never none.
            dropped = self.segments
            self._delete_segments(dropped[::-1], at_once=True)
            segment = self._new_segment(offset, now_ms)
            self.segments = (segment,)
            self._forget_places()
            self._end = (offset, segment, 0)
            self._data_end = offset
            self.leader_epochs.clear(flush=False)
            self.producers.truncate_fully_and_start_at(offset)
            self._first_unstable_offset = None
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self.recovery_point = min(self.recovery_point, offset)
            self.high_watermark = self.log_start_offset
            self.filesystem.sync_dir(self.directory)
            self.leader_epochs.flush()

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

    # Retention.

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
            self._forget_places()
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
