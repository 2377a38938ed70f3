"""How much of a log can be cleaned, and how urgent that is. Pure functions of a log, its checkpoint and the time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pybroker.log.log import Log
from pybroker.log.segment import Segment

NEVER_MS: Final = 2**63 - 1

logger = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Dirtiness:
    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int  # where a segment begins
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool  # max.compaction.lag.ms
    is_checkpoint_invalid: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def wants_cleaning(self) -> bool:
        if self.is_overdue and self.cleanable_bytes:
            return True
        return self.ratio > self.log.config.min_cleanable_dirty_ratio


def dirtiness(log: Log, checkpoint: int | None, now_ms: int) -> Dirtiness:
    first_dirty, is_invalid = _first_dirty_offset(log, checkpoint)
    segments = log.segments
    dirty = _segments_from(segments, first_dirty)[:-1]
    uncleanable = max(first_dirty, _uncleanable_offset(log, segments[-1], dirty, now_ms))
    end = _segments_from(segments, uncleanable)[0].base_offset
    return Dirtiness(
        log=log,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=end,
        clean_bytes=sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size_bytes for segment in dirty if segment.base_offset < end),
        is_overdue=_is_overdue(log, dirty, now_ms),
        is_checkpoint_invalid=is_invalid,
    )


def _first_dirty_offset(log: Log, checkpoint: int | None) -> tuple[int, bool]:
    """The offset, and whether the checkpoint was of no use and is to be set to it."""
    start = log.log_start_offset
    if checkpoint is None:
        return start, False
    if checkpoint < start:
        # With delete beside compact that is nothing unusual.
        if not log.config.is_deleted:
            logger.warning(
                "%s: cleaned up to offset %d, but the log starts at %d; it is dirty from there",
                log.partition,
                checkpoint,
                start,
            )
        return start, True
    if checkpoint > log.log_end_offset:
        logger.warning(
            "%s: cleaned up to offset %d, but the log ends at %d; all of it counts as dirty",
            log.partition,
            checkpoint,
            log.log_end_offset,
        )
        return start, True
    return checkpoint, False


def _uncleanable_offset(log: Log, active: Segment, dirty: Sequence[Segment], now_ms: int) -> int:
    """Not the active segment, nothing undecided or unreplicated, nothing younger than min.compaction.lag.ms."""
    offset = min(active.base_offset, log.last_stable_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty:
            if segment.highest_timestamp.timestamp > now_ms - lag_ms:
                return min(offset, segment.base_offset)
    return offset


def _is_overdue(log: Log, dirty: Sequence[Segment], now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= NEVER_MS:
        return False
    for segment in dirty:
        batch = segment.first_batch() if segment.size_bytes else None
        if batch is not None and 0 < batch.max_timestamp < now_ms - lag_ms:
            return True
    return False


def _segments_from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """Those that may hold `offset` or one behind it."""
    for number in range(len(segments) - 1, -1, -1):
        if segments[number].base_offset <= offset:
            return segments[number:]
    return segments
