"""The row of a config table: everything pybroker knows of one key."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from pybroker.config.types import ConfigType
from pybroker.config.validators import Validator


class Update(Enum):
    """Where a running cluster takes a new value from."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    PER_RESOURCE = "per-resource"


class Required:
    """The default of a key that must be given."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = Required()


class Fallback(NamedTuple):
    """The key whose value, times `factor`, counts when the row's own key is not given."""

    name: str
    factor: int = 1

    def apply(self, value: Any) -> Any:
        # -1 hours, like -1 ms, is no limit.
        return max(-1, value * self.factor) if self.factor != 1 else value


class Key(NamedTuple):
    name: str
    type: ConfigType
    default: Any
    allowed: Validator
    update: Update
    doc: str
    fallbacks: tuple[Fallback, ...] = ()
    ignored: str | None = None
    """Why pybroker does not honour the key; None if it does."""
    internal: bool = False

    @property
    def implemented(self) -> bool:
        return self.ignored is None
