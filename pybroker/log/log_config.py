"""What a log must know of its topic's configs, as plain typed fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pybroker.config.keys import TOPIC
from pybroker.config.types import LONG_MAX
from pybroker.protocol.records.compression import Codec

_CODECS = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
_LEVEL_KEYS = {Codec.GZIP: "compression.gzip.level", Codec.LZ4: "compression.lz4.level", Codec.ZSTD: "compression.zstd.level"}


@dataclass(slots=True, frozen=True)
class LogConfig:
    segment_bytes: int
    roll_ms: int  # segment.ms, or less where the active segment would keep max.compaction.lag.ms from being held
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    flush_messages: int
    flush_ms: int
    retention_bytes: int
    retention_ms: int
    max_message_bytes: int
    is_deleted: bool
    is_compacted: bool
    codec: Codec | None  # None: what the producer chose
    codec_level: int | None
    is_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    file_delete_delay_ms: int
    preallocate: bool
    min_insync_replicas: int

    @property
    def takes_batches_as_they_are(self) -> bool:
        """Whether no rule looks into the records of a client's batch, changes it, or has it flushed."""
        return (
            self.codec is None
            and not self.is_compacted
            and not self.is_append_time
            and self.timestamp_before_max_ms >= LONG_MAX
            and self.flush_messages >= LONG_MAX
        )

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None) -> Self:
        """From a topic's effective configs by their keys; what is not given stands at its default."""
        given = {name: key.default for name, key in TOPIC.items()} | dict(values or {})
        codec = _CODECS.get(given["compression.type"])
        is_compacted = "compact" in given["cleanup.policy"]
        return cls(
            segment_bytes=given["segment.bytes"],
            roll_ms=min(given["segment.ms"], given["max.compaction.lag.ms"]) if is_compacted else given["segment.ms"],
            segment_jitter_ms=given["segment.jitter.ms"],
            segment_index_bytes=given["segment.index.bytes"],
            index_interval_bytes=given["index.interval.bytes"],
            flush_messages=given["flush.messages"],
            flush_ms=given["flush.ms"],
            retention_bytes=given["retention.bytes"],
            retention_ms=given["retention.ms"],
            max_message_bytes=given["max.message.bytes"],
            is_deleted="delete" in given["cleanup.policy"],
            is_compacted=is_compacted,
            codec=codec,
            codec_level=given[_LEVEL_KEYS[codec]] if codec in _LEVEL_KEYS else None,
            is_append_time=given["message.timestamp.type"] == "LogAppendTime",
            timestamp_before_max_ms=given["message.timestamp.before.max.ms"],
            timestamp_after_max_ms=given["message.timestamp.after.max.ms"],
            delete_retention_ms=given["delete.retention.ms"],
            min_compaction_lag_ms=given["min.compaction.lag.ms"],
            max_compaction_lag_ms=given["max.compaction.lag.ms"],
            min_cleanable_dirty_ratio=given["min.cleanable.dirty.ratio"],
            file_delete_delay_ms=given["file.delete.delay.ms"],
            preallocate=given["preallocate"],
            min_insync_replicas=given["min.insync.replicas"],
        )
