"""What every message can do: be made, compared, shown, encoded and decoded.

`encode` and `decode` look up a function generated for the (message, version); hot paths bind it once with `encoder` and
`decoder`. Whatever is wrong with bytes or values comes out as one ProtocolError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

from pybroker.protocol import codegen
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.schema import Column, StructMeta, Versions, col
from pybroker.protocol.wire import Buffer

__all__ = ["Buffer", "Encoded", "Message", "Records", "Splices", "Struct", "col", "decoder", "encoder"]

# Record batches: bytes or a view of a frame; in a response to be spliced, whatever has a len() and can be sent.
Records = Any

# What an encoder left out of its bytes: (where in the bytes it belongs, the records value).
Splices = list[tuple[int, Any]]

M = TypeVar("M", bound="Message")


class Struct(metaclass=StructMeta):
    """A part of a message. Instances are plain, mutable, compared by value."""

    COLUMNS: ClassVar[tuple[Column, ...]]

    unknown_tagged_fields: dict[int, bytes] | None = col("tags", default=None)

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = codegen.constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tagged_fields == other.unknown_tagged_fields and all(
            getattr(self, column.name) == getattr(other, column.name) for column in self.COLUMNS
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = [f"{column.name}={getattr(self, column.name)!r}" for column in self.COLUMNS]
        if self.unknown_tagged_fields:
            fields.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__name__}({', '.join(fields)})"


class Message(Struct):
    """A struct with versions of its own: a request, a response, a header, or a record of an internal topic."""

    KEY: ClassVar[int | None]
    VERSIONS: ClassVar[Versions]
    FLEXIBLE: ClassVar[Versions]
    UNSTABLE: ClassVar[bool]

    def encode(self, version: int) -> bytes:
        out = bytearray()
        encoder(type(self), version)(self, out, None)
        return bytes(out)

    def encode_into(self, version: int, out: bytearray, splices: Splices | None = None) -> None:
        """Append to `out`. With `splices`, records that are not bytes but only know their len() are left out of it, and
        noted there with the position in `out` where they belong."""
        encoder(type(self), version)(self, out, splices)

    @classmethod
    def decode(cls, version: int, buffer: Buffer) -> Self:
        """The message that is the whole of `buffer`. Records are views of it, everything else is copied out."""
        message, position = decoder(cls, version)(buffer, 0)
        if position != len(buffer):
            raise ProtocolError(
                f"{len(buffer) - position} bytes left over", message=cls.__name__, version=version, offset=position
            )
        return message

    @classmethod
    def decode_from(cls, version: int, buffer: Buffer, position: int) -> tuple[Self, int]:
        """The message that starts at `position`, and the position after it."""
        return decoder(cls, version)(buffer, position)


class Encoded(Message):
    """A message that was encoded before, in the version that it is sent in: for answers that many clients get.

    A subclass stands for one message, whose key, versions and flexible versions it has, and declares `body` as its column.
    """

    body: bytes


_encoders: dict[tuple[type[Message], int], Callable[[Any, bytearray, Splices | None], None]] = {}
_decoders: dict[tuple[type[Message], int], Callable[[Buffer, int], tuple[Any, int]]] = {}


def encoder(cls: type[M], version: int) -> Callable[[M, bytearray, Splices | None], None]:
    """The function that appends a `cls` of `version` to a bytearray."""
    function = _encoders.get((cls, version))
    if function is None:
        function = _put_body if issubclass(cls, Encoded) else codegen.encoder(cls, _checked(cls, version))
        _encoders[cls, version] = function
    return function


def decoder(cls: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """The function that takes (buffer, position) and returns (message, position after it)."""
    function = _decoders.get((cls, version))
    if function is None:
        function = _decoders[cls, version] = codegen.decoder(cls, _checked(cls, version))
    return function


def _put_body(message: Any, out: bytearray, _: Splices | None) -> None:
    out += message.body


def _checked(cls: type[Message], version: int) -> int:
    if version not in cls.VERSIONS:
        raise ProtocolError(f"no such version, there are {cls.VERSIONS}", message=cls.__name__, version=version)
    return version
