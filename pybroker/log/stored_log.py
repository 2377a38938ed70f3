"""The side of a log that lies on disk: its segments, how they are begun, flushed, replaced and removed, and its directory.

Under the log's lock, but for the syncs of a flush. Everything slow (flushing what was rolled, removing files) goes to the
background port.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

from pybroker.base.filesystem import FileSystem, remove_tree, sync_file
from pybroker.base.ids import Uuid
from pybroker.log.background import Background
from pybroker.log.files import DELETED, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SWAP, TopicPartition
from pybroker.log.index import MAX_RELATIVE_OFFSET
from pybroker.log.leader_epochs import LeaderEpochs
from pybroker.log.log_config import LogConfig
from pybroker.log.log_reader import LogReader
from pybroker.log.open_segments import OpenSegments
from pybroker.log.producer_state import ProducerStates
from pybroker.log.segment import Segment
from pybroker.protocol.errors import ErrorCode, KafkaError

_base_offset = attrgetter("base_offset")


def no_jitter(bound: int) -> int:
    return 0


class StoredLog(LogReader):
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
        super().__init__(
            partition,
            segments,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            first_unstable_offset=producers.first_unstable_offset,
        )
        self.filesystem = filesystem
        self.directory = directory
        self.topic_id = topic_id
        self.config = config
        # The same, if it has no rule that looks into batches.
        self._plain = config if config.takes_batches_as_they_are else None
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.recovery_point = recovery_point
        self.last_flush_ms = now_ms
        self.lock = threading.RLock()
        self._background = background
        self._open_segments = open_segments
        self._draw_below = draw_below
        self._jitter_ms = self._new_jitter()
        self._is_closed = False
        self._has_new_segment = True  # whose name may not be on disk yet
        self._is_anchored = False  # nor, as far as this life knows, the name of the directory and the topic id in it
        self._naming = threading.Lock()
        # Where the data ends: before the end of the log, if that was truncated to where no batch begins.
        self._data_end = log_end_offset
        self.truncations = 0  # so far: whoever looked at the log without its lock knows by it that there was one meanwhile

    # Segments come.

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
        """How much earlier than otherwise the segment rolls, so that many logs do not roll at once."""
        bound = min(self.config.segment_jitter_ms, self.config.roll_ms)
        return self._draw_below(bound) if bound > 0 else 0

    def flush(self, upto: int | None = None, *, now_ms: int | None = None) -> None:
        """Put everything below the offset `upto`, or the end of the log, on disk, and move the recovery point there."""
        with self.lock:
            end, segments, start, truncations = self._end[0], self.segments, self.recovery_point, self.truncations
            if self._is_closed:
                return
        upto = end if upto is None else min(upto, end)
        if upto > start:
            first = max(0, bisect_right(segments, start, key=_base_offset) - 1)
            for segment in segments[first:]:
                if segment.base_offset < upto:
                    segment.flush()
            self._sync_names()
            with self.lock:
                # What a truncation meanwhile dropped may be there again, written anew and not on disk.
                if self.truncations == truncations:
                    self.recovery_point = max(self.recovery_point, upto)
        if now_ms is not None:
            self.last_flush_ms = now_ms

    def _sync_names(self) -> None:
        """What records on disk need to be found again: the names in the directory, its own name, and the topic id.

        None of it is synced when a log is made, so that thousands can be; the first flush of every life does it. Another one
        at the same time waits for it.
        """
        with self._naming:
            if not self._has_new_segment:
                return
            self._has_new_segment = False
            try:
                if not self._is_anchored:
                    if self.topic_id is not None:
                        sync_file(self.filesystem, f"{self.directory}/{PARTITION_METADATA}")
                    self.filesystem.sync_dir(os.path.dirname(self.directory))
                    self._is_anchored = True
                self.filesystem.sync_dir(self.directory)
            except BaseException:
                self._has_new_segment = True
                raise

    # Segments go.

    def _delete_segments(self, segments: Sequence[Segment], *, at_once: bool = False) -> None:
        """In two steps: renamed now, removed when whoever still reads them has had time to finish.

        In the order given, so that a crash on the way leaves a log without a hole.
        """
        if not segments:
            return
        snapshots = [self.producers.snapshots.mark_deleted(segment.base_offset) for segment in segments]
        for segment in segments:
            segment.change_suffix(DELETED)
        self._remove_later(segments, snapshots, 0 if at_once else self.config.file_delete_delay_ms)

    def _remove_later(self, segments: Sequence[Segment], snapshots: Sequence[str | None], delay_ms: int) -> None:
        def remove() -> None:
            for segment in segments:
                segment.delete()
            for path in snapshots:
                if path is not None and self.filesystem.exists(path):
                    self.filesystem.remove(path)

        self._background.run(remove, delay_ms=delay_ms)

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
            self._forget_places()
            starts = {segment.base_offset for segment in new}
            snapshots = []
            for segment in old:
                segment.change_suffix(DELETED)
                if segment.base_offset not in starts:
                    snapshots.append(self.producers.snapshots.mark_deleted(segment.base_offset))
            for segment in new:
                segment.change_suffix("")
            self.filesystem.sync_dir(self.directory)
        self._remove_later(old, snapshots, self.config.file_delete_delay_ms)

    # The whole.

    def update_config(self, config: LogConfig) -> None:
        with self.lock:
            self.config = config
            self._plain = config if config.takes_batches_as_they_are else None
            for segment in self.segments:
                segment.update_config(config)

    def rename_directory(self, name: str, *, sync: bool = True) -> None:
        """Another name in the same log directory; on disk when this returns, unless the caller syncs that for many at once."""
        with self.lock:
            new = f"{os.path.dirname(self.directory)}/{name}"
            self.filesystem.rename(self.directory, new)
            self.directory = new
            self.leader_epochs.moved(f"{new}/{LEADER_EPOCH_CHECKPOINT}")
            self.producers.snapshots.directory = new
            for segment in self.segments:
                segment.directory_moved(new)
            if sync:
                self.filesystem.sync_dir(os.path.dirname(new))

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
