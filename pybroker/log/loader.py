"""Opens a partition's directory: finishes what a crash left half done, and recovers what cannot be trusted.

Files that were being deleted or cleaned go, complete swaps take their place. After a clean stop the files are believed, and
only looked at; otherwise the segments from the recovery point on are read batch by batch, several at once if the caller
lends threads for it, their indexes built anew, and the log is cut at the first batch that is not whole and valid. Files that
are not ours are left alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing

from pybroker.base.filesystem import DirEntry, FileSystem
from pybroker.base.ids import Uuid
from pybroker.log.background import Background
from pybroker.log.checkpoints import CorruptFileError, read_topic_id, write_topic_id
from pybroker.log.files import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    SegmentFile,
    TopicPartition,
    file_name,
    parse_file,
)
from pybroker.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from pybroker.log.leader_epochs import LeaderEpochs
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.open_segments import OpenSegments
from pybroker.log.producer_state import ProducerStates
from pybroker.log.recovery import OrderedMap, one_by_one, scan_segment, stitch_segment
from pybroker.log.segment import Segment
from pybroker.log.stored_log import no_jitter

logger = logging.getLogger(__name__)

Progress = Callable[[int], None]

INDEX_SUFFIXES = (INDEX, TIME_INDEX, TRANSACTION_INDEX)


def open_log(
    filesystem: FileSystem,
    directory: str,
    partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    background: Background,
    open_segments: OpenSegments,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    cleaned_to: int = 0,
    is_clean: bool = False,
    topic_id: Uuid | None = None,
    draw_below: Callable[[int], int] = no_jitter,
    producer_id_expiration_ms: int = 86_400_000,
    verifies_transactions: bool = True,
    on_segment_recovered: Progress | None = None,
    map_segments: OrderedMap = one_by_one,
) -> Log:
    """The log in `directory`, which is made if it is not there.

    `is_clean`: the last stop was one, so that nothing needs recovery. Up to `cleaned_to` the log was compacted once, whatever
    its policy is now: offsets may be missing there, and what is there is on disk. `on_segment_recovered` is told how many
    remain. `map_segments` may scan several segments at once; all else happens on the thread of the caller.
    """

    def producers_of(snapshots: list[int]) -> ProducerStates:
        return ProducerStates(
            filesystem,
            directory,
            partition,
            producer_id_expiration_ms=producer_id_expiration_ms,
            verifies_transactions=verifies_transactions,
            snapshots=snapshots,
        )

    found_id = _topic_id(filesystem, directory, partition, topic_id, was_flushed=recovery_point > 0)
    loader = _Loader(
        filesystem,
        directory,
        partition,
        config,
        producers_of,
        now_ms,
        background,
        open_segments,
        on_segment_recovered,
        map_segments,
        cleaned_to,
    )
    return loader.load(log_start_offset, recovery_point, is_clean, found_id, draw_below)


def _topic_id(
    filesystem: FileSystem, directory: str, partition: TopicPartition, given: Uuid | None, *, was_flushed: bool
) -> Uuid | None:
    """The id in the directory; `given` is written there if it has none, and is on disk with the first records.

    So a crash before any were flushed may leave half a file, which says no more than none; later that is damage.
    """
    filesystem.make_dirs(directory)
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        found = read_topic_id(filesystem, path)
    except CorruptFileError as error:
        if was_flushed:
            raise
        logger.warning("%s: a crash came before the topic id was on disk; it is written anew: %s", partition, error)
        found = None
    if found is None and given is not None:
        write_topic_id(filesystem, path, given, sync=False)
    return given if found is None else found


class _Loader:
    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        producers_of: Callable[[list[int]], ProducerStates],
        now_ms: int,
        background: Background,
        open_segments: OpenSegments,
        on_segment_recovered: Progress | None,
        map_segments: OrderedMap,
        cleaned_to: int,
    ) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.partition = partition
        self.config = config
        self.producers_of = producers_of
        self.now_ms = now_ms
        self.background = background
        self.open_segments = open_segments
        self.on_segment_recovered = on_segment_recovered
        self.map_segments = map_segments
        self.cleaned_to = cleaned_to
        self.snapshots: list[int] = []
        self.index_sizes: dict[str, int] = {}
        self.has_removed = False

    def load(
        self,
        log_start_offset: int,
        recovery_point: int,
        is_clean: bool,
        topic_id: Uuid | None,
        draw_below: Callable[[int], int],
    ) -> Log:
        files = self._files()
        if any(file.state is not None for file, _ in files):
            self._finish_swaps([file for file, _ in files])
            files = self._files()
        segments = self._segments(files)
        leader_epochs = self._leader_epochs()
        recovered = len(segments) if is_clean else self._first_to_recover(segments, recovery_point)
        for number, segment in enumerate(segments):
            if not segment.size_bytes:
                self._make_missing_indexes(segment)
            elif number < recovered:
                self._check_indexes(segment, segments[:number], is_complete=is_clean or number + 1 < recovered)
        stop = len(segments) - 1 if segments and self._is_empty(segments[-1]) else len(segments)
        if recovered < stop:
            segments = self._recover(segments, recovered, stop)
            # The new indexes are not on disk before the next flush: it has to take these segments in, and so has the next
            # recovery if a crash comes first.
            recovery_point = min(recovery_point, segments[recovered].base_offset)
        producers = self.producers_of(self.snapshots)
        if segments and log_start_offset > (end := segments[-1].next_offset()):
            # What was deleted is known, what came behind it is lost: records before the start must not come back.
            logger.warning(
                "%s: the log ends at offset %d, before its start %d; starting anew there", self.partition, end, log_start_offset
            )
            for segment in segments:
                segment.delete()
            self.has_removed = True
            segments = []
            leader_epochs.clear()
        if not segments:
            segments = [self._new_segment(log_start_offset)]
        start = max(log_start_offset, segments[0].base_offset)
        end = segments[-1].next_offset()
        leader_epochs.truncate_from_end(end)
        leader_epochs.truncate_from_start(start)
        producers.snapshots.delete_strays([segment.base_offset for segment in segments])
        log = Log(
            self.filesystem,
            self.directory,
            self.partition,
            self.config,
            segments,
            leader_epochs,
            producers,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=min(recovery_point, end),
            background=self.background,
            open_segments=self.open_segments,
            now_ms=self.now_ms,
            topic_id=topic_id,
            draw_below=draw_below,
        )
        log.rebuild_producers(self.now_ms)
        if self.has_removed or producers.snapshots.offsets != sorted(self.snapshots):
            # What was removed, a snapshot of records that are lost say, must not be there again after the next crash.
            self.filesystem.sync_dir(self.directory)
        return log

    # What a crash left half done.

    def _finish_swaps(self, files: list[SegmentFile]) -> None:
        """Remove what was being deleted or written by the cleaner; rename what it had completed."""
        swaps = []
        least_cleaned = None
        for file in files:
            if file.state == DELETED:
                self._remove(file.name)
            elif file.state == CLEANED:
                least_cleaned = file.base_offset if least_cleaned is None else min(least_cleaned, file.base_offset)
                self._remove(file.name)
            elif file.state == SWAP:
                swaps.append(file)
        # The cleaner renames from the last segment to the first: one still called .cleaned means that those behind it, though
        # renamed, are part of a set that is not complete.
        complete = [file for file in swaps if least_cleaned is None or file.base_offset < least_cleaned]
        for file in swaps:
            if file not in complete:
                self._remove(file.name)
        self._take_swaps(complete)

    def _take_swaps(self, swaps: list[SegmentFile]) -> None:
        logs = [file for file in swaps if file.suffix == LOG]
        if logs:
            ranges = [(file.base_offset, self._end_of_swap(file.base_offset)) for file in logs]
            low, high = min(start for start, _ in ranges), max(end for _, end in ranges)
            for file, _ in self._files():
                if file.state is None and file.suffix != SNAPSHOT and low <= file.base_offset < max(high, low + 1):
                    self._remove(file.name)
        for file in swaps:
            path = f"{self.directory}/{file.name}"
            self.filesystem.rename(path, path.removesuffix(SWAP))
        if swaps:
            self.filesystem.sync_dir(self.directory)

    def _end_of_swap(self, base_offset: int) -> int:
        segment = self._segment(base_offset, suffix=SWAP)
        end = base_offset
        for place in segment.places(0, segment.size_bytes):
            end = place.last_offset + 1
        segment.release()
        return end

    def _remove(self, name: str) -> None:
        self.filesystem.remove(f"{self.directory}/{name}")
        self.has_removed = True

    # Segments.

    def _files(self) -> list[tuple[SegmentFile, DirEntry]]:
        return [(file, entry) for entry in self.filesystem.scan(self.directory) if (file := parse_file(entry.name))]

    def _segments(self, files: list[tuple[SegmentFile, DirEntry]]) -> list[Segment]:
        sizes = {}
        orphans = []
        for file, entry in files:
            if file.suffix == LOG:
                sizes[file.base_offset] = entry.size
            elif file.suffix == SNAPSHOT:
                self.snapshots.append(file.base_offset)
            else:
                orphans.append(file)
                self.index_sizes[file.name] = entry.size
        for file in orphans:
            if file.base_offset not in sizes:
                logger.warning("%s: removing %s, whose segment is gone", self.partition, file.name)
                self._remove(file.name)
        return [self._segment(base_offset, sizes[base_offset]) for base_offset in sorted(sizes)]

    def _is_empty(self, segment: Segment) -> bool:
        """Whether there is nothing in it to recover, nor in its indexes."""
        return not segment.size_bytes and not any(
            self.index_sizes.get(file_name(segment.base_offset, suffix)) for suffix in INDEX_SUFFIXES
        )

    def _make_missing_indexes(self, segment: Segment) -> None:
        """Of a segment that is empty: a crash may have left nothing but the file for its records."""
        for index in (segment.index, segment.time_index):
            if os.path.basename(index.path) not in self.index_sizes:
                index.create()

    def _check_indexes(self, segment: Segment, before: list[Segment], *, is_complete: bool) -> None:
        if is_complete and self._look_right(segment):
            return
        try:
            segment.sanity_check(is_complete=is_complete)
            if not is_complete:
                segment.complete_time_index()
        except CorruptIndexError as error:
            logger.warning("%s: rebuilding the indexes of segment %d: %s", self.partition, segment.base_offset, error)
            stitch_segment(segment, scan_segment(segment), self._producers_before(segment, before), sync=True)

    def _look_right(self, segment: Segment) -> bool:
        """Whether the indexes, which were flushed, may be believed by their sizes alone: that spares opening most of them.

        Every time index ends with the highest timestamp; an empty one is right only for records without any. The rows of
        aborted transactions, which few segments have, are looked at.
        """
        places, times, aborted = (self.index_sizes.get(file_name(segment.base_offset, suffix)) for suffix in INDEX_SUFFIXES)
        if places is None or places % OffsetIndex.entry.size or not times or times % TimeIndex.entry.size:
            return False
        return not aborted

    def _producers_before(self, segment: Segment, before: list[Segment]) -> ProducerStates:
        """The producers as of the start of `segment`, by a snapshot and the segments `before`: aborted transactions that
        began there end here."""
        start = segment.base_offset
        usable = [offset for offset in self.snapshots if offset <= start]
        producers = self.producers_of(usable)
        producers.truncate_and_reload(0, start, self.now_ms)
        for earlier in before:
            for _, batch in earlier.batches():
                if batch.producer_id >= 0 and batch.last_offset >= producers.map_end_offset:
                    completed = producers.update(batch)
                    if completed is not None:
                        producers.complete(completed)
        producers.map_end_offset = start
        return producers

    def _segment(self, base_offset: int, size_bytes: int | None = None, suffix: str = "") -> Segment:
        if size_bytes is None:
            file = self.filesystem.open(f"{self.directory}/{file_name(base_offset, LOG)}{suffix}", read_only=True)
            size_bytes = file.size()
            file.close()
        return Segment(
            self.filesystem,
            self.directory,
            base_offset,
            self.config,
            self.open_segments,
            size_bytes=size_bytes,
            created_ms=self.now_ms,
            suffix=suffix,
        )

    def _new_segment(self, base_offset: int) -> Segment:
        segment = self._segment(base_offset, 0)
        segment.create(self.config)
        return segment

    def _leader_epochs(self) -> LeaderEpochs:
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            return LeaderEpochs.open(self.filesystem, path)
        except CorruptFileError as error:
            logger.warning("%s: starting without leader epochs: %s", self.partition, error)
            return LeaderEpochs(self.filesystem, path)

    # Recovery.

    @staticmethod
    def _first_to_recover(segments: list[Segment], recovery_point: int) -> int:
        """The number of the first segment that may hold something at or behind the recovery point."""
        first = max(0, len(segments) - 1)
        while first and segments[first].base_offset > recovery_point:
            first -= 1
        return first

    def _recover(self, segments: list[Segment], first: int, stop: int) -> list[Segment]:
        """The segments that can be trusted; those from `first` to before `stop` are read."""
        producers = self._producers_before(segments[first], segments[:first])
        with closing(self.map_segments(scan_segment, segments[first:stop])) as scans:
            for number, scan in enumerate(scans, first):
                segment = segments[number]
                dropped = stitch_segment(segment, scan, producers, sync=False)
                if self.on_segment_recovered is not None:
                    self.on_segment_recovered(stop - number - 1)
                lost = segments[number + 1 :]
                if dropped or (lost and self._is_lost_between(segment, scan.next_offset, lost[0])):
                    break
            else:
                return segments
        # The scans of those behind the cut are over now.
        logger.warning(
            "%s: segment %d ends at offset %d, where %d bytes that are no valid batch were cut off; "
            "%d segments behind it are dropped",
            self.partition,
            segment.base_offset,
            scan.next_offset,
            dropped,
            len(lost),
        )
        for gone in reversed(lost):
            gone.delete()
        self.filesystem.sync_dir(self.directory)
        return segments[: number + 1]

    def _is_lost_between(self, segment: Segment, end: int, following: Segment) -> bool:
        """Whether offsets are missing between two segments that were put there without a gap; compaction leaves gaps, and
        puts what it leaves on disk before it takes the place of the originals."""
        return (
            self.cleaned_to <= end < following.base_offset
            and not self.config.is_compacted
            and segment.can_hold(following.base_offset)
        )
