"""The types a config value can have, how their text is read, and how they are written back.

`parse` and `to_text` follow Apache Kafka's ConfigDef: blanks around a value do not count, numbers have Java's ranges,
lists are split at commas. A Password never shows its value: not in str, not in repr, not in an error message.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any


class ConfigType(IntEnum):
    """The numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @property
    def label(self) -> str:
        return self.name.lower()


HIDDEN = "[hidden]"


class Password:
    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a password is not pickled")


INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?|Infinity)")
_JAVA_BLANKS = "".join(map(chr, range(33)))

EXPECTED = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "text",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a decimal number",
    ConfigType.LIST: "items separated by commas, none of them empty",
    ConfigType.CLASS: "the name of a class",
    ConfigType.PASSWORD: "text",
}


def parse(config_type: ConfigType, text: str) -> Any:
    """The value that `text` spells; ValueError, without the text, if it spells none of this type."""
    text = text.strip(_JAVA_BLANKS)
    if config_type in _BITS:
        return _parse_whole(config_type, text)
    if config_type is ConfigType.BOOLEAN and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if config_type is ConfigType.DOUBLE and _DECIMAL.fullmatch(text):
        return float(text if text.endswith("y") else text.rstrip("fFdD"))
    if config_type is ConfigType.LIST:
        items = tuple(item.strip() for item in text.split(",")) if text else ()
        if all(items):
            return items
    if config_type is ConfigType.PASSWORD:
        return Password(text)
    if config_type is ConfigType.STRING or (config_type is ConfigType.CLASS and text):
        return text
    raise ValueError(EXPECTED[config_type])


def _parse_whole(config_type: ConfigType, text: str) -> int:
    bits = _BITS[config_type]
    # The length is checked first: int() of a million digits takes its time.
    if _WHOLE.fullmatch(text) and len(text) < 1000:
        value = int(text)
        if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            return value
    raise ValueError(EXPECTED[config_type])


def to_text(value: Any) -> str | None:
    """The value as Apache Kafka's tools show it; a password shows as hidden, and no value as None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _double_text(value: float) -> str:
    """Double.toString of Java, which changes to an exponent at other places than repr and writes it another way."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, exponent = f"{value:.17e}".split("e")
    for precision in range(1, 17):
        shorter = f"{value:.{precision}e}"
        if float(shorter) == value:
            digits, exponent = shorter.split("e")
            break
    return f"{digits}E{int(exponent)}"
