"""Which segments of a log are past their time: by log start offset, by size, by age. Pure: it only chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pybroker.log.log_config import LogConfig
from pybroker.log.segment import Segment


class Expired(NamedTuple):
    segments: int  # how many of the oldest go
    reason: str


def expired_segments(
    segments: Sequence[Segment], config: LogConfig, *, log_start_offset: int, log_end_offset: int, limit: int, now_ms: int
) -> Expired:
    """How many of the oldest segments may go; none that reaches beyond the offset `limit`.

    An empty active segment never goes; a wholly expired one does, once the log has rolled.
    """
    excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    reason = ""
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        end = log_end_offset if following is None else following.base_offset
        if end > limit or (following is None and segment.size_bytes == 0):
            break
        if following is not None and end <= log_start_offset:
            reason = f"they end at or before the log start offset {log_start_offset}"
        elif config.is_deleted and config.retention_ms >= 0 and now_ms - segment.retention_timestamp() > config.retention_ms:
            reason = f"they are older than {config.retention_ms} ms (retention.ms)"
        elif config.is_deleted and config.retention_bytes >= 0 and excess >= segment.size_bytes:
            reason = f"the log is larger than {config.retention_bytes} bytes (retention.bytes)"
        else:
            break
        excess -= segment.size_bytes
        count += 1
    return Expired(count, reason)
