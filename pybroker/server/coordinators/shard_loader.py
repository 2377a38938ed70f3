"""Reads the log of a coordinator's partition into a shard. One thread per load; the shard is nobody else's meanwhile.

Of records that supersede each other, such as the commits of one partition's offset, a log that is not compacted yet has
thousands: only the last of them before a record of another kind is decoded.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Final

from pybroker.coordinator.records import RecordTypes, decode_record
from pybroker.coordinator.shard import Producer, Shard
from pybroker.log.log import Log
from pybroker.protocol.errors import KafkaError, ProtocolError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.control import ControlType, control_type

logger = logging.getLogger(__name__)

PROGRESS_S: Final = 5.0


class LoadError(Exception):
    """The log cannot be read; the text says why."""


_loads = 0
_was_collecting = True
_loads_lock = threading.Lock()


@contextmanager
def _uncollected() -> Iterator[None]:
    """No cyclic garbage collection meanwhile. Of a million offsets nothing is garbage, and looking at all of them again and
    again is half the time that a load takes."""
    global _loads, _was_collecting
    with _loads_lock:
        if not _loads:
            _was_collecting = gc.isenabled()
        _loads += 1
        gc.disable()
    try:
        yield
    finally:
        with _loads_lock:
            _loads -= 1
            if not _loads and _was_collecting:
                gc.enable()


def load_shard(log: Log, shard: Shard, types: RecordTypes, superseding: Container[bytes] = ()) -> int:
    """Replay everything up to the end of the log, whose offset is returned. `superseding` are types of records, as the first
    two bytes of their keys, of which only the last with the same key counts."""
    begin_s = time.monotonic()
    told_s = begin_s + PROGRESS_S
    end = log.log_end_offset
    records = 0
    reader = _Reader(shard, types, superseding)
    try:
        with _uncollected():
            for batch in log.batches(None, end):
                reader.take(batch)
                records += batch.count
                if time.monotonic() >= told_s:
                    told_s = time.monotonic() + PROGRESS_S
                    logger.info("loading %s: offset %d of %d, %d so far", log.partition, batch.last_offset, end, records)
            reader.flush()
    except (OSError, KafkaError, ProtocolError) as error:
        raise LoadError(f"{log.partition}: {error}") from error
    if reader.unknown:
        logger.warning(
            "%s: %d records are of types that this release does not know; they are left alone", log.partition, reader.unknown
        )
    if records:
        took_ms = round((time.monotonic() - begin_s) * 1000)
        logger.info("loaded %s: %d records up to offset %d in %d ms", log.partition, records, end, took_ms)
    return end


class _Reader:
    def __init__(self, shard: Shard, types: RecordTypes, superseding: Container[bytes]) -> None:
        self.unknown = 0
        self._shard = shard
        self._types = types
        self._superseding = superseding
        self._latest: dict[bytes, tuple[int, bytes]] = {}  # offset and value by key

    def take(self, batch: RecordBatch) -> None:
        if batch.is_control:
            self.flush()
            _replay_control(batch, self._shard)
        elif batch.is_transactional:
            self.flush()
            producer = Producer(batch.producer_id, batch.producer_epoch)
            for record in batch.records():
                self._replay(record.offset, record.key, record.value, producer)
        else:
            latest, superseding = self._latest, self._superseding
            for offset, _, key, value, _ in batch.records():
                if key is not None and value is not None and key[:2] in superseding:
                    latest[key] = (offset, value)
                else:
                    self.flush()
                    self._replay(offset, key, value, None)

    def flush(self) -> None:
        for key, (offset, value) in self._latest.items():
            self._replay(offset, key, value, None)
        self._latest.clear()

    def _replay(self, offset: int, key: bytes | None, value: bytes | None, producer: Producer | None) -> None:
        record = decode_record(self._types, key, value)
        if record is None:
            self.unknown += 1
        else:
            self._shard.replay(offset, record, producer)


def _replay_control(batch: RecordBatch, shard: Shard) -> None:
    for record in batch.records():
        kind = control_type(record.key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            producer = Producer(batch.producer_id, batch.producer_epoch)
            shard.replay_marker(producer, commits=kind is ControlType.COMMIT)
