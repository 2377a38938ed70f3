"""What a cleaning is asked for and what it gives back: plain values, which also go through a pipe as a line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from pybroker.log.transaction_index import AbortedTransaction

NO_LIMIT: Final = float("inf")


class SourceSegment(NamedTuple):
    base_offset: int
    size_bytes: int


class LastRecord(NamedTuple):
    """Where an active producer stands."""

    last_data_offset: int  # -1 if the producer wrote none in its epoch
    epoch: int


class CleanedSegment(NamedTuple):
    """A segment in `.cleaned` files, complete and synced, that is to take the place of its sources."""

    base_offset: int
    size_bytes: int
    sources: tuple[int, ...]  # their base offsets


@dataclass(slots=True, frozen=True)
class CleanerConfig:
    """One cleaner's share of log.cleaner.*"""

    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    io_buffer_bytes: int = 256 * 1024
    max_bytes_per_second: float = NO_LIMIT


@dataclass(slots=True, frozen=True)
class CleaningJob:
    name: str
    directory: str
    segments: tuple[SourceSegment, ...]  # from the first of the log to the last that may be cleaned
    first_dirty_offset: int
    first_uncleanable_offset: int  # where the segment behind the last of `segments` begins
    dirty_position: int  # at or before the first dirty offset, where a batch starts in the segment that holds it
    now_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    config: CleanerConfig = field(default_factory=CleanerConfig)
    aborted: tuple[AbortedTransaction, ...] = ()  # those that reach into the segments
    producers: dict[int, LastRecord] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"producers": list(self.producers.items())}, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> CleaningJob:
        values: dict[str, Any] = json.loads(line)
        values["config"] = CleanerConfig(**values["config"])
        values["segments"] = tuple(SourceSegment(*row) for row in values["segments"])
        values["aborted"] = tuple(AbortedTransaction(*row) for row in values["aborted"])
        values["producers"] = {producer_id: LastRecord(*row) for producer_id, row in values["producers"]}
        return cls(**values)


@dataclass(slots=True)
class CleanerStats:
    """What a cleaning did. The clock's fields and the memory are filled in by whoever runs it."""

    end_offset: int = 0  # the first that is still dirty
    map_bytes_read: int = 0
    map_records_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    invalid_records: int = 0
    map_keys: int = 0
    map_capacity: int = 0
    map_size_bytes: int = 0
    seconds: float = 0.0
    max_rss_bytes: int = 0

    @property
    def map_use(self) -> float:
        return self.map_keys / self.map_capacity if self.map_capacity else 0.0


class CleaningAbortedError(Exception):
    """Somebody wants the log for himself: a truncation, a move, a deletion, a shutdown."""
