"""How an answer becomes bytes: size, response header, message; records that lie in files stay there. Pure.

A gather belongs to one thread. While that thread is inside `handle` with a request, the answer is appended to it, so that
the answers to requests which came together leave together; a late answer gets a buffer of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from pybroker.protocol.api_table import API_VERSIONS_KEY
from pybroker.protocol.message import Message, Splices, encoder

_PREFIX_V0: Final = struct.Struct(">ii").pack  # size, correlation id
_PREFIX_V1: Final = struct.Struct(">iiB").pack  # and no tagged fields
_put_size: Final = struct.Struct(">i").pack_into


class Slice(Protocol):
    """Bytes of a file, to be sent without reading them."""

    file: Any  # has fileno()
    position: int
    length: int

    def __len__(self) -> int: ...
    def read(self) -> bytes: ...


Chunk = bytes | bytearray | memoryview | Slice


class Gather:
    __slots__ = ("ident", "out", "splices")

    def __init__(self, ident: int) -> None:
        self.ident = ident  # of the thread that owns it
        self.out = bytearray()
        self.splices: Splices = []

    def take(self) -> list[Chunk]:
        """What was gathered, which is then gone from here."""
        chunks = chunks_of(self.out, self.splices) if self.out else []
        self.drop()
        return chunks

    def drop(self) -> None:
        self.out = bytearray()
        self.splices = []


# Per class of response and version: its encoder, and whether its header has tagged fields.
_encoders: dict[tuple[type[Message], int], tuple[Callable[[Any, bytearray, Splices], None], bool]] = {}


def encode_answer(message: Message, version: int, correlation_id: int, out: bytearray, splices: Splices) -> None:
    """Append a whole response. If the message cannot be encoded, `out` and `splices` are as before."""
    cls = type(message)
    found = _encoders.get((cls, version))
    if found is None:
        # ApiVersions is answered under header v0 always, see `Api.response_header_version`.
        found = encoder(cls, version), version in cls.FLEXIBLE and cls.KEY != API_VERSIONS_KEY
        _encoders[cls, version] = found
    encode, is_tagged = found
    start = len(out)
    spliced = len(splices)
    out += _PREFIX_V1(0, correlation_id, 0) if is_tagged else _PREFIX_V0(0, correlation_id)
    try:
        encode(message, out, splices)
    except Exception:
        del out[start:]
        del splices[spliced:]
        raise
    size = len(out) - start - 4
    if len(splices) != spliced:
        for _, records in splices[spliced:]:
            size += len(records)
    _put_size(out, start, size)


def chunks_of(out: bytearray, splices: Splices) -> list[Chunk]:
    """The bytes of `out` with the spliced records between them; `out` must not be written to again."""
    if not splices:
        return [out]
    chunks: list[Chunk] = []
    view = memoryview(out)
    start = 0
    for position, records in splices:
        if position > start:
            chunks.append(view[start:position])
            start = position
        if len(records):
            chunks.append(records)
    if start < len(out):
        chunks.append(view[start:])
    return chunks
