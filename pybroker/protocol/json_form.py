"""Messages as JSON, in the form that Kafka's own converters use.

Names are camel-case, bytes and records base64, a uuid its 22 characters. A version's fields must all be there but the tagged
ones, which are left out at their defaults; unknown tagged fields have no JSON form and are dropped.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final, TypeVar

from pybroker.base.ids import uuid_from_text, uuid_to_text
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.message import Message
from pybroker.protocol.schema import Column, StructMeta

M = TypeVar("M", bound=Message)

ToJson = Callable[[Any], Any]
FromJson = Callable[[Any, str, int], Any]  # the value, the path of its field, the version


def to_json(message: Message, version: int) -> dict[str, Any]:
    writer = _struct_writer(type(message), version)
    return writer(message)


def from_json(cls: type[M], version: int, value: Any) -> M:
    """The message that `value` says; fields that only other versions have may be given too."""
    try:
        message: M = _struct_reader(cls)(value, "", version)
    except ProtocolError as error:
        error.message, error.version = cls.__name__, version
        raise
    return message


@cache
def _struct_writer(cls: StructMeta, version: int) -> Callable[[Any], dict[str, Any]]:
    always = []
    sometimes = []
    for column in cls.COLUMNS:
        if version in column.versions:
            row = (column.json_name, column.name, _writer(cls, column, version))
            if column.tag is None:
                always.append(row)
            else:
                sometimes.append((*row, _defaults(cls, column, version)))

    def write(struct: Any) -> dict[str, Any]:
        out = {json_name: to(getattr(struct, name)) for json_name, name, to in always}
        for json_name, name, to, defaults in sometimes:
            value = getattr(struct, name)
            if value not in defaults:
                out[json_name] = to(value)
        return out

    return write


def _defaults(cls: StructMeta, column: Column, version: int) -> list[Any]:
    """The values at which a tagged field is left out: for a struct, both its absence and one that is all defaults."""
    if column.is_struct and not column.is_array and version not in column.nullable:
        struct = cls.struct_of(column)
        return [None, struct(**{field.name: struct.stand_in_of(field) for field in struct.COLUMNS})]
    return [cls.stand_in_of(column)]


def _writer(cls: StructMeta, column: Column, version: int) -> ToJson:
    element = _struct_writer(cls.struct_of(column), version) if column.is_struct else _TO_JSON.get(column.element)
    if column.is_array:
        return partial(_write_array, element)
    if element is None:
        return _same
    return partial(_write_nullable, element)


def _same(value: Any) -> Any:
    return value


def _write_nullable(element: ToJson, value: Any) -> Any:
    return None if value is None else element(value)


def _write_array(element: ToJson | None, value: Any) -> Any:
    if value is None or element is None:
        return value
    return [element(item) for item in value]


def _float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_TO_JSON: Final[dict[str, ToJson]] = {
    "uuid": uuid_to_text,
    "bytes": lambda value: b64encode(value).decode("ascii"),
    "records": lambda value: b64encode(value).decode("ascii"),
    "float64": _float_to_json,
}


@cache
def _struct_reader(cls: StructMeta) -> FromJson:
    columns = [(column, column.json_name, _reader(cls, column)) for column in cls.COLUMNS]
    known = {json_name for _, json_name, _ in columns}

    def read(value: Any, path: str, version: int) -> Any:
        if type(value) is not dict:
            raise _expected("an object", value, path)
        prefix = path + "." if path else ""
        if not known.issuperset(value):
            name = next(name for name in value if name not in known)
            from difflib import get_close_matches  # for a mistake only: every start would load it

            nearest = get_close_matches(name, known, 1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise ProtocolError(f"{cls.__name__} has no such field{hint}", field=prefix + name)
        fields = {}
        for column, json_name, to in columns:
            if json_name in value:
                fields[column.name] = to(value[json_name], prefix + json_name, version)
            elif version in column.versions and column.tag is None:
                raise ProtocolError("missing", field=prefix + json_name)
            else:
                fields[column.name] = cls.stand_in_of(column)
        return cls(**fields)

    return read


def _reader(cls: StructMeta, column: Column) -> FromJson:
    element = _struct_reader(cls.struct_of(column)) if column.is_struct else _FROM_JSON[column.element]
    is_array = column.is_array
    nullable = column.nullable.low <= column.nullable.high

    def read(value: Any, path: str, version: int) -> Any:
        if value is None and nullable:
            return None
        if not is_array:
            return element(value, path, version)
        if type(value) is not list:
            raise _expected("an array", value, path)
        return [element(item, f"{path}[{index}]", version) for index, item in enumerate(value)]

    return read


def _integer(low: int, high: int) -> FromJson:
    def read(value: Any, path: str, version: int) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _expected(f"an integer from {low} to {high}", value, path)
        return value

    return read


def _bool_from_json(value: Any, path: str, version: int) -> bool:
    if type(value) is not bool:
        raise _expected("true or false", value, path)
    return value


def _float_from_json(value: Any, path: str, version: int) -> float:
    if type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise _expected("a number", value, path)


def _string_from_json(value: Any, path: str, version: int) -> str:
    if type(value) is not str:
        raise _expected("a string", value, path)
    return value


def _uuid_from_json(value: Any, path: str, version: int) -> bytes:
    try:
        return uuid_from_text(_string_from_json(value, path, version))
    except ValueError as error:
        raise ProtocolError(str(error), field=path) from None


def _bytes_from_json(value: Any, path: str, version: int) -> bytes:
    try:
        return b64decode(_string_from_json(value, path, version), validate=True)
    except Base64Error:
        raise _expected("base64", value, path) from None


def _expected(what: str, value: Any, path: str) -> ProtocolError:
    shown = repr(value)
    return ProtocolError(f"expected {what}, got {shown if len(shown) <= 60 else shown[:57] + '...'}", field=path)


_FROM_JSON: Final[dict[str, FromJson]] = {
    "bool": _bool_from_json,
    "int8": _integer(-(1 << 7), (1 << 7) - 1),
    "int16": _integer(-(1 << 15), (1 << 15) - 1),
    "uint16": _integer(0, (1 << 16) - 1),
    "int32": _integer(-(1 << 31), (1 << 31) - 1),
    "uint32": _integer(0, (1 << 32) - 1),
    "int64": _integer(-(1 << 63), (1 << 63) - 1),
    "float64": _float_from_json,
    "string": _string_from_json,
    "uuid": _uuid_from_json,
    "bytes": _bytes_from_json,
    "records": _bytes_from_json,
}
