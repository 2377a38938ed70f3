"""The error codes anywhere in a response, of whatever API."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct


def errors_in(message: Message) -> set[int]:
    found: set[int] = set()
    _collect(message, found)
    return found


def _collect(struct: Struct, found: set[int]) -> None:
    for column in struct.COLUMNS:
        value = getattr(struct, column.name)
        if column.name == "error_code":
            found.add(value)
        elif isinstance(value, Struct):
            _collect(value, found)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for one in value:
                _collect(one, found)
