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


def random_message(rng: random.Random, cls: type[Message], version: int, *, unknown_tags: bool = False) -> Message:
    """With `unknown_tags`, some structs carry tagged fields that no version of the tables knows."""
    may_have_tags = unknown_tags and version in cls.FLEXIBLE
    message = random_struct(rng, cls, version, may_have_tags)
    assert isinstance(message, Message)
    return message


def random_struct(rng: random.Random, cls: StructMeta, version: int, may_have_tags: bool) -> Any:
    struct = cls(**{column.name: random_field(rng, cls, column, version, may_have_tags) for column in cls.COLUMNS})
    if may_have_tags and rng.random() < 0.2:
        tags = sorted(rng.sample(range(50, 100_000), k=rng.randrange(1, 4)))
        struct.unknown_tagged_fields = {tag: rng.randbytes(rng.choice((0, 1, 200))) for tag in tags}
    return struct


def random_field(rng: random.Random, cls: StructMeta, column: Column, version: int, may_have_tags: bool) -> Any:
    absent = version not in column.versions
    if absent and not (column.ignorable and rng.random() < 0.1):
        return cls.stand_in_of(column)
    if column.tag is not None and rng.random() < 0.5:
        return cls.stand_in_of(column)
    if version in column.nullable and rng.random() < 0.2:
        return None
    if column.default not in (None, [], REQUIRED) and rng.random() < 0.2:
        return cls.stand_in_of(column)
    if not column.is_array:
        return random_value(rng, cls, column, version, may_have_tags)
    count = rng.choice((0, 1, 1, 2, 3))
    if not column.is_struct and rng.random() < 0.05:
        count = rng.randrange(120, 400)
    return [random_value(rng, cls, column, version, may_have_tags) for _ in range(count)]


def random_value(rng: random.Random, cls: StructMeta, column: Column, version: int, may_have_tags: bool) -> Any:
    type_ = column.element
    if column.is_struct:
        return random_struct(rng, cls.struct_of(column), version, may_have_tags)
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
