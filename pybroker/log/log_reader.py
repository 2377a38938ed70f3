"""The side of a log that readers see: batches from an offset on, as slices of files.

Any thread, without a lock: the tuple of segments and the `_end` of the log are replaced as a whole by whoever changes the log,
and bytes below the end do not change. What readers remember for each other is a hint, checked before it is believed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from pybroker.log.files import TopicPartition
from pybroker.log.segment import BatchPlace, FileSlice, Segment
from pybroker.log.transaction_index import AbortedTransaction
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch

REMEMBERED_READS: Final = 16
REMEMBERED_APPENDS: Final = 64
UNKNOWN_END: Final = 2**63 - 1

_base_offset = attrgetter("base_offset")


class Fetched(NamedTuple):
    """Whole batches from the first that reaches the offset asked for; no slice where there are none yet."""

    slice: FileSlice | None
    offset: int
    log_start_offset: int
    first_batch_is_larger: bool = False  # than the limit; it is there all the same
    end_offset: int = UNKNOWN_END  # no record of the slice lies at or behind it


class LogReader:
    def __init__(
        self,
        partition: TopicPartition,
        segments: Sequence[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        first_unstable_offset: int | None,
    ) -> None:
        self.partition = partition
        self.segments = tuple(segments)
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self._first_unstable_offset = first_unstable_offset
        # The end as readers see it: (next offset, active segment, its size), replaced as one.
        self._end = (log_end_offset, self.segments[-1], self.segments[-1].size_bytes)
        # Where recent reads ended, since the next fetch of that consumer begins there: offset to (segment, position).
        self._reads: dict[int, tuple[Segment, int]] = {}
        # Where the last appends to the active segment began, offset to position, of a log that has followers. Replaced before
        # the end of the log whenever positions lose their meaning, so that whoever looks at the end first is never misled.
        self._tail: tuple[Segment, dict[int, int]] = (self.segments[-1], {})

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
        # In this order, since the log is written to meanwhile. A transaction below the high watermark was unstable before that
        # passed its begin: whoever looks afterwards sees it, or that it is decided, with its aborted ones in the index. The
        # other way round it might begin, and be replicated, in between.
        high_watermark = self.high_watermark
        unstable = self._first_unstable_offset
        return high_watermark if unstable is None or unstable > high_watermark else unstable

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
        following: Segment | None = segments[number] if segments else None
        while following is not None and following.base_offset < bound:
            segment = following
            number += 1
            following = segments[number] if number < len(segments) else None
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
            if found.next_offset is not None:
                self._remember(found.next_offset, segment, found.position + found.length)
            elif holds_bound and found.position + found.length == limit:
                self._remember(bound, segment, limit)
            return Fetched(found, first.base_offset, start, is_larger, _end_of(found, first, bound, following))
        return Fetched(None, offset, start)

    def tail(self, offset: int, max_bytes: int) -> FileSlice | None:
        """All from `offset` to the end of the log, if one of the last appends began there; None if not, or if it is more than
        `max_bytes`: `read` then looks for it."""
        _, active, size = self._end
        segment, starts = self._tail
        position = starts.get(offset)
        if position is None or segment is not active or not 0 < size - position <= max_bytes:
            return None
        return FileSlice(active.file, position, size - position)

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

    def _remember_append(self, offset: int, segment: Segment, position: int) -> None:
        """By whoever appends, with the log's lock."""
        tail, starts = self._tail
        if tail is not segment or len(starts) >= REMEMBERED_APPENDS:
            self._tail = (segment, {offset: position})
        else:
            starts[offset] = position

    def _forget_places(self) -> None:
        """Other batches will lie where some did. Before the end of the log changes."""
        self._reads = {}
        self._tail = (self.segments[-1], {})

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


def _end_of(found: FileSlice, first: BatchPlace, bound: int, following: Segment | None) -> int:
    """The offset behind what `found`, which begins with `first`, can have; as near as it is known without reading on."""
    if found.next_offset is not None:
        return found.next_offset
    if found.length == first.size_bytes:
        return first.last_offset + 1
    return bound if following is None else min(bound, following.base_offset)
