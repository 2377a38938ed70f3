"""What a value may be, beyond its type. A validator is asked with the typed value and says in `text` what it allows.

The text is what the documentation lists and what a problem report quotes, so it completes "allowed: ...".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pybroker.config import listeners
from pybroker.config.types import EXPECTED, ConfigType


class Validator:
    __slots__ = ("accepts", "choices", "high", "low", "text")

    def __init__(
        self,
        text: str,
        accepts: Callable[[Any], bool],
        *,
        low: float | None = None,
        high: float | None = None,
        choices: tuple[str, ...] = (),
    ) -> None:
        self.text = text
        self.accepts = accepts
        self.low = low
        self.high = high
        self.choices = choices

    def __repr__(self) -> str:
        return f"Validator({self.text!r})"


ANY = Validator("", lambda value: True)


def at_least(low: float) -> Validator:
    return Validator(f"at least {low}", lambda value: bool(value >= low), low=low)


def between(low: float, high: float) -> Validator:
    return Validator(f"{low} to {high}", lambda value: bool(low <= value <= high), low=low, high=high)


def one_of(*choices: str) -> Validator:
    return Validator(f"one of {', '.join(choices)}", frozenset(choices).__contains__, choices=choices)


def one_of_any_case(*choices: str) -> Validator:
    folded = frozenset(choice.lower() for choice in choices)
    text = f"one of {', '.join(choices)}, in any case"
    return Validator(text, lambda value: value.lower() in folded, choices=choices)


def items_of(*choices: str, empty: bool = False) -> Validator:
    allowed = frozenset(choices)
    text = f"a list of {', '.join(choices)}" + (", or nothing" if empty else "")
    return Validator(text, lambda items: (empty or bool(items)) and allowed.issuperset(items), choices=choices)


def _each(what: str, accepts: Callable[[str], object], *, empty: bool = False) -> Validator:
    return Validator(what, lambda items: (empty or bool(items)) and all(accepts(item) for item in items))


def _reads(parse: Callable[[Any], object]) -> Callable[[Any], bool]:
    def reads(value: Any) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return reads


_HOST_PORT = r"(\[[0-9a-zA-Z:%.]+\]|[^\[\]:@/\s]+):[0-9]{1,5}"
_ISO_DURATION = re.compile(r"by_duration:P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?")
_ADDRESS_COUNT = re.compile(r"[^,:\s]+:[0-9]{1,9}|\[?[0-9a-fA-F:.]+\]?:[0-9]{1,9}")


def _all_replicas_or_pairs(items: tuple[str, ...]) -> bool:
    return items in ((), ("*",)) or all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in items)


def _mechanisms_are_sasl(items: tuple[str, ...]) -> bool:
    return all(re.fullmatch(r"[A-Z0-9_-]{1,20}", item) for item in items)


SASL_SUPPORTED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
NON_EMPTY = Validator("text that is not empty", bool)
NON_EMPTY_LIST = Validator("a list that is not empty", bool)
GZIP_LEVEL = Validator("1 to 9, or -1 for the library's default", lambda level: level == -1 or 1 <= level <= 9)
CODEC = Validator("0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd", lambda codec: 0 <= codec <= 4)
LISTENERS = _each("a list of name://host:port", _reads(listeners.parse_listener))
PROTOCOL_MAP = Validator("a list of name:protocol", _reads(listeners.parse_protocol_map))
HOST_PORTS = _each("a list of host:port", re.compile(_HOST_PORT).fullmatch)
VOTERS = _each("a list of id@host:port", re.compile(r"[0-9]{1,10}@" + _HOST_PORT).fullmatch)
SASL_MECHANISMS = Validator("a list of SASL mechanisms", _mechanisms_are_sasl)
THROTTLED_REPLICAS = Validator("a list of partition:broker, or *", _all_replicas_or_pairs)
CONNECTIONS_PER_IP = Validator(
    "a list of address:count",
    lambda text: not text or all(_ADDRESS_COUNT.fullmatch(item.strip()) for item in text.split(",")),
)
OFFSET_RESET = Validator(
    "latest, earliest, or by_duration:PnDTnHnMn.nS",
    lambda text: text in ("latest", "earliest") or bool(_ISO_DURATION.fullmatch(text)),
)


def expectation(config_type: ConfigType, validator: Validator) -> str:
    """What is allowed, in words, for a value of this type under this validator."""
    return validator.text or EXPECTED[config_type]
