"""Records of a coordinator's topic: a key whose type says what the record is, a value behind its version, or a tombstone."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.message import Message, decoder

_INT16: Final = struct.Struct(">h")


class CoordinatorRecord(NamedTuple):
    key: Message
    value: Message | None  # None: a tombstone
    version: int = 0  # of the value

    def encoded(self) -> tuple[bytes, bytes | None]:
        assert self.key.KEY is not None, f"{self.key} is no key of a record"
        key = bytearray(_INT16.pack(self.key.KEY))
        self.key.encode_into(0, key)
        if self.value is None:
            return bytes(key), None
        value = bytearray(_INT16.pack(self.version))
        self.value.encode_into(self.version, value)
        return bytes(key), bytes(value)


# The classes of key and value by the type of the record.
RecordTypes = Mapping[int, tuple[type[Message], type[Message]]]


def decode_record(types: RecordTypes, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """None for a type that this release does not know; ProtocolError if the bytes are no record."""
    if key is None or len(key) < 2:
        raise ProtocolError("a record without the type that its key begins with")
    (kind,) = _INT16.unpack_from(key)
    classes = types.get(kind)
    if classes is None:
        return None
    key_class, value_class = classes
    # What stands behind the known fields is left alone, as Apache Kafka does.
    decoded, _ = decoder(key_class, 0)(key, 2)
    if value is None:
        return CoordinatorRecord(decoded, None)
    if len(value) < 2:
        raise ProtocolError("a value without the version that it begins with", message=value_class.__name__)
    (version,) = _INT16.unpack_from(value)
    return CoordinatorRecord(decoded, decoder(value_class, version)(value, 2)[0], version)
