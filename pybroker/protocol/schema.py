"""The notation of messages: a typed class is the table of its fields.

    class ProduceRequest(Message, key=0, versions="3-13", flexible="9+"):
        acks:       int                    = col("int16")
        topic_data: list[TopicProduceData] = col("[]TopicProduceData")

A class body holds nothing but columns, in wire order. A column without a default must be given when an instance is made.
Making a class is cheap, since a start imports hundreds: what works on it is generated when first used.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final, NamedTuple, dataclass_transform

from pybroker.base.ids import ZERO_UUID


class Versions(NamedTuple):
    """A closed range of versions; empty when low > high."""

    low: int
    high: int

    @staticmethod
    @cache
    def parse(text: str) -> Versions:
        """From Kafka's notation: "3", "3-13", "9+" or "none"."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return Versions(int(text[:-1]), MAX_VERSION)
        low, _, high = text.partition("-")
        return Versions(int(low), int(high or low))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __str__(self) -> str:
        if self.low > self.high:
            return "none"
        if self.high == MAX_VERSION:
            return f"{self.low}+"
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"


MAX_VERSION: Final = 32767
NO_VERSIONS: Final = Versions(0, -1)
REQUIRED: Final[Any] = object()


class Column:
    """One field of a message: what the wire carries, in which versions, and what stands in where it does not."""

    __slots__ = ("default", "flexible", "ignorable", "name", "nullable", "tag", "type", "versions", "zero_copy")

    name: str  # set by the class that the column stands in
    type: str
    versions: Versions
    nullable: Versions
    default: Any
    tag: int | None
    ignorable: bool
    flexible: Versions | None
    zero_copy: bool

    @property
    def json_name(self) -> str:
        head, *rest = self.name.split("_")
        return head + "".join(part.capitalize() for part in rest)

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The type of an array's elements, or the type itself."""
        return self.type.removeprefix("[]")

    @property
    def is_struct(self) -> bool:
        return self.element[0].isupper()

    @property
    def has_struct_default(self) -> bool:
        """Whether the absence of the field means a struct of defaults rather than null, which is then written out."""
        is_nullable = self.nullable.low <= self.nullable.high
        return self.tag is not None and self.is_struct and not self.is_array and is_nullable and self.default is REQUIRED

    @property
    def stand_in(self) -> Any:
        """The value a decoder sets where the version lacks the field, and that an encoder of such a version accepts."""
        if self.default is not REQUIRED:
            return self.default
        return [] if self.is_array else IMPLICIT_DEFAULTS.get(self.type)


IMPLICIT_DEFAULTS: Final[dict[str, Any]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "uuid": ZERO_UUID,
    "records": None,
}


def col(
    type_: str,
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Any = REQUIRED,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: str | None = None,
    zero_copy: bool = False,
) -> Any:
    """A column of a message.

    `ignorable`: a version that lacks the field may drop its value in silence. `flexible`: where it differs from the
    message's (the client id of a request header). `zero_copy`: bytes that stay a view of the frame, as records do.
    """
    column = Column()
    column.type = type_
    column.versions = Versions.parse(versions)
    column.nullable = Versions.parse(nullable)
    column.default = default
    column.tag = tag
    column.ignorable = ignorable
    column.flexible = None if flexible is None else Versions.parse(flexible)
    column.zero_copy = zero_copy
    return column


@dataclass_transform(kw_only_default=True, eq_default=True, field_specifiers=(col,))
class StructMeta(type):
    """Turns the columns of a class body into slots and the words of the class line into facts about the message."""

    COLUMNS: tuple[Column, ...]
    KEY: int | None
    VERSIONS: Versions
    FLEXIBLE: Versions
    UNSTABLE: bool

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: str = "none",
        flexible: str = "none",
        unstable: bool = False,
    ) -> StructMeta:
        columns = {attribute: value for attribute, value in namespace.items() if type(value) is Column}
        for attribute, column in columns.items():
            del namespace[attribute]
            column.name = attribute
        namespace["__slots__"] = tuple(columns)
        cls = super().__new__(mcs, name, bases, namespace)
        cls.COLUMNS = tuple(columns.values())
        cls.KEY = key
        cls.VERSIONS = Versions.parse(versions)
        cls.FLEXIBLE = Versions.parse(flexible)
        cls.UNSTABLE = unstable
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, namespace)

    def stand_in_of(cls, column: Column) -> Any:
        """The column's stand-in, made anew where it can be changed."""
        if column.has_struct_default:
            struct = cls.struct_of(column)
            return struct(**{field.name: struct.stand_in_of(field) for field in struct.COLUMNS})
        return [] if column.stand_in == [] else column.stand_in

    def struct_of(cls, column: Column) -> StructMeta:
        """The class of a struct column, which stands in the same module."""
        struct = getattr(sys.modules[cls.__module__], column.element)
        assert isinstance(struct, StructMeta), f"{cls.__name__}.{column.name}: {column.element} is not a struct"
        return struct
