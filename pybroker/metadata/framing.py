"""How a metadata record stands in the log and in snapshots: as the value of a record without a key.

The value is the version of this framing, the record's type, the record's version, each an unsigned varint, and the record.
"""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.internal import metadata_log
from pybroker.protocol.message import Message
from pybroker.protocol.wire import put_uvarint, read_uvarint

FRAME_VERSION = 1

_TYPES: Mapping[int, type[Message]] = {
    kind.KEY: kind
    for kind in vars(metadata_log).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message and kind.KEY is not None
}


def encode_record(record: Message, version: int) -> bytes:
    assert record.KEY is not None, record
    out = bytearray((FRAME_VERSION,))
    put_uvarint(out, record.KEY)
    put_uvarint(out, version)
    record.encode_into(version, out)
    return bytes(out)


def decode_record(value: bytes | None) -> Message:
    """The record in `value`; ProtocolError if it is none, or one of a later release."""
    if value is None:
        raise ProtocolError("a metadata record has no value")
    try:
        frame, position = read_uvarint(value, 0)
        key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError:
        raise ProtocolError(f"a metadata record of {len(value)} bytes ends inside its header") from None
    if frame != FRAME_VERSION:
        raise ProtocolError(f"a metadata record has framing version {frame}; expected {FRAME_VERSION}")
    kind = _TYPES.get(key)
    if kind is None:
        raise ProtocolError(f"there is no metadata record of type {key}: was it written by a later release?")
    record, end = kind.decode_from(version, value, position)
    if end != len(value):
        raise ProtocolError(f"{len(value) - end} bytes left over", message=kind.__name__, version=version, offset=end)
    return record
