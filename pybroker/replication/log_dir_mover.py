"""Moves replicas between the log directories of this broker: a future log is filled beside the current one, then takes over.

A move goes on in steps on the background threads, a chunk each, one step at a time; appends wait only for the last one. When
the future log has it all, the controller is asked to count the replica as in its directory, and only then it takes over: if
a disk fails in between, the controller knows of it, whichever it is. A move that a stop interrupts goes on at the next start.
`_lock` is taken before the log manager's, that before a log's.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Final

from pybroker.log.background import Background
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.replication.partition import Partition
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.replication.throttle import UNTHROTTLED, ReplicationThrottle

CHUNK_BYTES: Final = 1024 * 1024
THROTTLED_MS: Final = 100

logger = logging.getLogger(__name__)


class Claim(Enum):
    """How far the controller is with the new directory of a replica."""

    NOT_MADE = "not made"
    MADE = "made"
    ACCEPTED = "accepted"


class Next(Enum):
    STEP = "another step"
    WAIT = "wait for the controller"
    END = "it is over"


class LogDirMover:
    def __init__(
        self,
        replicas: ReplicaManager,
        background: Background,
        now_ms: Callable[[], int],
        throttle: ReplicationThrottle = UNTHROTTLED,
    ) -> None:
        self._replicas = replicas
        self._logs = replicas.logs
        self._background = background
        self._now_ms = now_ms
        self._throttle = throttle
        self._lock = threading.Lock()
        self._moving: dict[TopicPartition, Claim] = {}

    def resume(self) -> None:
        """At the start: go on with the moves whose future logs were found."""
        with self._lock:
            for log in self._logs.all_logs():
                if self._logs.get(log.partition, is_future=True) is log:
                    self._begin(log.partition)

    def move(self, moved: Partition, destination: str) -> None:
        """Have the replica in the log directory `destination`; a move to elsewhere that is under way ends.

        KafkaError if the move cannot begin. Where the replica is already, nothing happens.
        """
        name = moved.topic_partition
        with self._lock:
            log = moved.log  # which a move that just ended has replaced
            future = self._logs.get(name, is_future=True)
            if future is not None and os.path.dirname(future.directory) != destination:
                self._give_up(name, f"it is to be in {destination} now")
            if os.path.dirname(log.directory) == destination:
                return
            self._logs.get_or_create(name, moved.topic_id, log.config, is_new=False, is_future=True, preferred=destination)
            if name not in self._moving:
                logger.info("%s moves from %s to %s", name, os.path.dirname(log.directory), destination)
                self._begin(name)

    def _begin(self, name: TopicPartition) -> None:
        # The cleaner would swap segments under the copying, and must not be waited for when the future log takes over.
        if self._logs.cleaner is not None:
            self._logs.cleaner.pause(name)
        self._moving[name] = Claim.NOT_MADE
        self._background.run(partial(self._step, name))

    def _end(self, name: TopicPartition) -> None:
        if name in self._moving:
            del self._moving[name]
            if self._logs.cleaner is not None:
                self._logs.cleaner.resume(name)
            moved = self._replicas.partition(name.topic, name.partition)
            if isinstance(moved, Partition):
                # Whatever it was asked for: that is where the replica is now.
                self._replicas.tell_directory(moved)

    def _give_up(self, name: TopicPartition, reason: str) -> None:
        logger.warning("%s: its move between log directories ends: %s", name, reason)
        self._end(name)
        if self._logs.get(name, is_future=True) is not None:
            self._logs.async_delete(name, is_future=True)

    def _step(self, name: TopicPartition) -> None:
        with self._lock:
            if name not in self._moving:
                return
            if self._throttle.is_exceeded():
                self._background.run(partial(self._step, name), delay_ms=THROTTLED_MS)
                return
            try:
                following = self._advance(name)
            except KafkaError as error:
                self._give_up(name, error.message)
                return
            except Exception:
                self._give_up(name, "an error of the broker's own")
                raise
            if following is Next.END:
                self._end(name)
        if following is Next.STEP:
            self._background.run(partial(self._step, name))

    def _advance(self, name: TopicPartition) -> Next:
        """Copy a chunk, or finish if there is nothing left to copy and the controller agrees."""
        current, future = self._logs.get(name), self._logs.get(name, is_future=True)
        moved = self._replicas.partition(name.topic, name.partition)
        if current is None or future is None or not isinstance(moved, Partition):
            return Next.END  # deleted, or its directory has failed
        if self._copy_chunk(current, future):
            return Next.STEP
        with self._storage(future, "flushing a future log"):
            future.flush()
        if not self._is_accepted(moved, future):
            return Next.WAIT
        with moved.lock, self._logs.changes, current.lock:
            if self._logs.get(name) is current and self._logs.get(name, is_future=True) is future:
                while self._copy_chunk(current, future):
                    pass
                self._take_over(moved, current, future)
        return Next.END

    def _is_accepted(self, moved: Partition, future: Log) -> bool:
        name = moved.topic_partition
        if self._moving[name] is Claim.NOT_MADE:
            self._moving[name] = Claim.MADE

            def answered(is_accepted: bool) -> None:
                self._background.run(partial(self._answered, name, future, is_accepted))

            if self._replicas.claim_directory(moved, future, answered):
                self._moving[name] = Claim.ACCEPTED
        return self._moving[name] is Claim.ACCEPTED

    def _answered(self, name: TopicPartition, future: Log, is_accepted: bool) -> None:
        with self._lock:
            found = self._logs.get(name, is_future=True)
            if name not in self._moving or (found is not None and found is not future):
                return  # that move has ended
            if found is None:
                self._end(name)
                return
            if not is_accepted:
                self._give_up(name, f"the controller does not count it as in {os.path.dirname(future.directory)}")
                return
            self._moving[name] = Claim.ACCEPTED
        self._step(name)

    def _take_over(self, moved: Partition, current: Log, future: Log) -> None:
        name = moved.topic_partition
        if future.log_end_offset != current.log_end_offset:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{name} ends at {current.log_end_offset} in {current.directory}, its copy at {future.log_end_offset}.",
            )
        with self._storage(future, "finishing a future log"):
            # An epoch in which nothing was written is in no batch.
            latest = current.leader_epochs.latest
            if latest is not None and latest.epoch != future.leader_epochs.latest_epoch:
                future.leader_epochs.assign(latest.epoch, latest.start_offset)
            future.set_high_watermark(current.high_watermark)
            future.advance_log_start_offset(current.log_start_offset)
            future.flush()
        self._logs.replace_current_with_future(name)
        moved.replace_log(future)

    def _copy_chunk(self, current: Log, future: Log) -> bool:
        """False if the future log has all that the current one has."""
        seen = current.truncations, current.log_start_offset
        try:
            return self._copy(current, future)
        except KafkaError:
            # Retention, or a truncation, may take away what is just being read: then the next step finds the log as it is now.
            if seen == (current.truncations, current.log_start_offset):
                raise
            return True

    def _copy(self, current: Log, future: Log) -> bool:
        name, now_ms = current.partition, self._now_ms()
        common_end = _common_end(current, future)
        if common_end < future.log_end_offset:
            self._logs.truncate_to({name: common_end}, is_future=True)
        start, end = current.log_start_offset, future.log_end_offset
        with self._storage(current, "reading a log that moves"):
            fetched = current.read(max(start, end), CHUNK_BYTES)
            records = b"" if fetched.slice is None else fetched.slice.read()
        with self._storage(future, "filling a future log"):
            # A future log that has nothing yet, or lies before what was deleted meanwhile, starts anew with that batch.
            first = fetched.offset
            if end < start or first < end or (first > end and not future.size_bytes):
                future.truncate_fully_and_start_at(first, now_ms, log_start_offset=start)
            if records:
                future.append_as_follower(records, now_ms)
                self._throttle.record(name, len(records))
        return bool(records)

    @contextmanager
    def _storage(self, log: Log, doing: str) -> Iterator[None]:
        """An I/O error counts against the log's directory, and ends the move."""
        directory = log.directory
        try:
            yield
        except OSError as error:
            self._logs.on_io_error(directory, error, doing=doing)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} failed in {directory}: {error}") from error


def _common_end(current: Log, future: Log) -> int:
    """Up to where the two hold the same records: the current log may have been truncated since they were copied."""
    current_end = current.log_end_offset
    epoch = future.leader_epochs.latest_epoch
    if epoch is None:
        return current_end
    known, end = current.leader_epochs.end_offset_for(epoch, current_end)
    if known == epoch:
        return end
    latest = current.leader_epochs.latest_epoch if known < 0 else known
    _, end_in_future = future.leader_epochs.end_offset_for(-1 if latest is None else latest, future.log_end_offset)
    return max(0, min(end_in_future, current_end if known < 0 else end))
