"""What a run did, for people. Seeds run without one; a failing seed runs again with one, since it does the same again."""

from __future__ import annotations

from collections import deque
from dataclasses import is_dataclass
from typing import Any

from pybroker.base.value import Value
from pybroker.protocol.message import Struct

_MAX_TEXT = 40


class Trace:
    def __init__(self, last: int) -> None:
        self._lines: deque[str] = deque(maxlen=last)

    def add(self, now_us: int, who: str, text: str) -> None:
        self._lines.append(f"{now_us / 1000:12.3f} ms  {who:<34} {text}")

    def lines(self) -> list[str]:
        return list(self._lines)


def brief(value: Any) -> str:
    """A message, event or effect in one line, without what stands at its default and without bulk."""
    match value:
        case bytes() | bytearray() | memoryview():
            return f"{len(value)} bytes" if len(value) != 16 else bytes(value[-2:]).hex()
        case Struct():
            fields = ((column.name, getattr(value, column.name), column.default) for column in value.COLUMNS)
            shown = ", ".join(f"{name}={brief(field)}" for name, field, default in fields if field != default)
            return f"{type(value).__name__}({shown})"
        case list() | tuple() if not hasattr(value, "_fields"):
            return f"[{', '.join(map(brief, value))}]"
        case _ if isinstance(value, Value) or is_dataclass(value):
            names: tuple[str, ...] = vars(type(value))["__match_args__"]
            shown = ", ".join(f"{name}={brief(getattr(value, name))}" for name in names)
            return f"{type(value).__name__}({shown})"
        case _ if hasattr(value, "_fields"):
            return f"{type(value).__name__}({', '.join(map(brief, value))})"
        case str() if len(value) > _MAX_TEXT:
            return repr(value[:_MAX_TEXT] + "...")
    return repr(value)
