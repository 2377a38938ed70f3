"""What deltas are made of: maps of an image that are copied when they are first changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class MetadataReplayError(Exception):
    """A record that does not fit what came before it, or that this release does not know."""


class Draft(Generic[K, V]):
    """A map of an image, copied when it is first changed."""

    __slots__ = ("_owned", "now")

    def __init__(self, base: Mapping[K, V]) -> None:
        self.now: Mapping[K, V] = base
        self._owned: dict[K, V] | None = None

    def own(self) -> dict[K, V]:
        if self._owned is None:
            self.now = self._owned = dict(self.now)
        return self._owned

    def give(self) -> Mapping[K, V]:
        """What is there now, for an image: the next change makes another copy."""
        self._owned = None
        return self.now


class TrackedDraft(Draft[K, V]):
    """A draft that notes the keys of what was set or removed."""

    __slots__ = ("changed",)

    def __init__(self, base: Mapping[K, V]) -> None:
        super().__init__(base)
        self.changed: set[K] = set()

    def put(self, key: K, value: V) -> None:
        self.own()[key] = value
        self.changed.add(key)

    def remove(self, key: K) -> V | None:
        """What was there, None if nothing was, which then is no change."""
        if key not in self.now:
            return None
        self.changed.add(key)
        return self.own().pop(key)
