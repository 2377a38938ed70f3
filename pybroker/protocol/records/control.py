"""Control records: transaction markers and the records by which a KRaft quorum speaks to itself.

A control record's key is its version and type. The marker's value is encoded here; the values of the KRaft types are
messages, taken and given as bytes. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import NO_LEADER_EPOCH
from pybroker.protocol.records.builder import BatchBuilder

_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_KEY_VERSION = 0
_MARKER_VERSION = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPES = {int(kind): kind for kind in ControlType}


def control_key(kind: ControlType) -> bytes:
    return _KEY.pack(_KEY_VERSION, kind)


def control_type(key: bytes | None) -> ControlType | None:
    """The type that a control record's key names; None for one that is not known here and is to be skipped."""
    if key is None or len(key) < _KEY.size:
        found = "no key" if key is None else f"a key of {len(key)} bytes"
        raise KafkaError(ErrorCode.INVALID_RECORD, f"A control record has {found}; expected {_KEY.size} bytes.")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"A control record's key has version {version}; expected 0 or more.")
    return _TYPES.get(kind)


def end_transaction_marker(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The batch of one COMMIT or ABORT marker."""
    assert kind in (ControlType.ABORT, ControlType.COMMIT), kind
    builder = BatchBuilder(
        base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        transactional=True,
        control=True,
    )
    builder.append(timestamp, control_key(kind), _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch))
    return builder.build()


def marker_coordinator_epoch(value: bytes | None) -> int:
    """The coordinator epoch in a COMMIT or ABORT marker's value."""
    if value is None or len(value) < _MARKER_VALUE.size:
        found = "no value" if value is None else f"a value of {len(value)} bytes"
        raise KafkaError(ErrorCode.INVALID_RECORD, f"A transaction marker has {found}; expected {_MARKER_VALUE.size} bytes.")
    version, epoch = _MARKER_VALUE.unpack_from(value)
    if version < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"A transaction marker's value has version {version}; expected 0 or more.")
    return int(epoch)


def control_batch(
    rows: Iterable[tuple[ControlType, bytes]], *, timestamp: int, base_offset: int, partition_leader_epoch: int
) -> bytearray:
    """A batch of KRaft control records, each its type and its encoded message."""
    builder = BatchBuilder(base_offset, partition_leader_epoch=partition_leader_epoch, control=True)
    for kind, value in rows:
        builder.append(timestamp, control_key(kind), value)
    return builder.build()
