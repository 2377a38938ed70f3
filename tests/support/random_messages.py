"""Random valid messages, drawn from the tables alone: edge values, nulls, unicode, long arrays, tagged fields on and off."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

from pybroker.base.ids import Uuid
from pybroker.protocol.catalog import message_classes
from pybroker.protocol.message import Message
from pybroker.protocol.schema import REQUIRED, Column, StructMeta

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UNSIGNED_BITS = {"uint16": 16, "uint32": 32}
ALPHABET = 'abcXYZ019.-_ \t"\\/äß€語😀\x00\x7f'


def message_versions() -> Iterator[tuple[type[Message], int]]:
    for _, cls in sorted(message_classes().items()):
        for version in range(cls.VERSIONS.low, cls.VERSIONS.high + 1):
            yield cls, version


def random_message(rng: random.Random, cls: type[Message], version: int) -> Message:
    message = random_struct(rng, cls, version)
    assert isinstance(message, Message)
    return message


def random_struct(rng: random.Random, cls: StructMeta, version: int) -> Any:
    return cls(**{column.name: random_field(rng, cls, column, version) for column in cls.COLUMNS})


def random_field(rng: random.Random, cls: StructMeta, column: Column, version: int) -> Any:
    absent = version not in column.versions
    if absent and not (column.ignorable and rng.random() < 0.1):
        return column.stand_in
    if column.tag is not None and rng.random() < 0.5:
        return column.stand_in
    if version in column.nullable and rng.random() < 0.2:
        return None
    if column.default not in (None, [], REQUIRED) and rng.random() < 0.2:
        return column.stand_in
    if not column.is_array:
        return random_value(rng, cls, column, version)
    count = rng.choice((0, 1, 1, 2, 3))
    if not column.is_struct and rng.random() < 0.05:
        count = rng.randrange(120, 400)
    return [random_value(rng, cls, column, version) for _ in range(count)]


def random_value(rng: random.Random, cls: StructMeta, column: Column, version: int) -> Any:
    type_ = column.element
    if column.is_struct:
        # Not every version that has an ignorable field's container has the struct in it: what is absent stays at rest.
        return random_struct(rng, cls.struct_of(column), version)
    if type_ in INTEGER_BITS:
        bound = 1 << INTEGER_BITS[type_] - 1
        return rng.choice((0, 1, -1, bound - 1, -bound, rng.randrange(-bound, bound), rng.randrange(-100, 100)))
    if type_ in UNSIGNED_BITS:
        bound = 1 << UNSIGNED_BITS[type_]
        return rng.choice((0, 1, bound - 1, bound >> 1, rng.randrange(bound)))
    if type_ == "bool":
        return rng.random() < 0.5
    if type_ == "float64":
        return rng.choice((0.0, -1.5, 1e300, 0.1, rng.uniform(-1e6, 1e6)))
    if type_ == "uuid":
        return Uuid(rng.choice((bytes(16), rng.randbytes(16))))
    if type_ == "string":
        length = rng.choice((0, 1, 5, 20, 127, 128, 300)) if rng.random() < 0.9 else rng.randrange(2000)
        return "".join(rng.choices(ALPHABET, k=length))
    if type_ == "records":
        return random_batch(rng)
    assert type_ == "bytes", type_
    return rng.randbytes(rng.choice((0, 1, 10, 126, 127, 128, 1000)))


def random_batch(rng: random.Random) -> bytes:
    """Bytes with the frame of a record batch: an offset, a length, and that many bytes behind it."""
    body = bytearray(rng.randbytes(rng.choice((49, 60, 200))))
    body[4] = 2
    return struct.pack(">qi", rng.randrange(1 << 40), len(body)) + bytes(body)
