"""The features of Kafka 4.3 beside metadata.version: from which release on a level is the default, and what it requires.

These are facts about the cluster's protocol; which of the features this release works with says `features.SUPPORTED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pybroker.metadata.controller.features import (
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    RELEASES,
    SUPPORTED,
    TRANSACTION_VERSION,
)
from pybroker.metadata.image import EMPTY


class Level(NamedTuple):
    since: str
    requires: Mapping[str, int] = EMPTY


_NONE = Level("3.3-IV3")

# One row per level, from 0 on, in the order in which kafka-storage lists the features.
LEVELS: Mapping[str, tuple[Level, ...]] = MappingProxyType(
    {
        KRAFT_VERSION: (_NONE, Level("3.9-IV0")),
        TRANSACTION_VERSION: (_NONE, Level("4.0-IV2"), Level("4.0-IV2")),
        GROUP_VERSION: (_NONE, Level("4.0-IV0")),
        "eligible.leader.replicas.version": (_NONE, Level("4.1-IV0", {METADATA_VERSION: RELEASES["4.0-IV1"]})),
        "share.version": (_NONE, Level("4.2-IV0")),
        "streams.version": (_NONE, Level("4.2-IV1")),
    }
)


def default_levels(metadata_version: int) -> dict[str, int]:
    """The supported features as a cluster of that level begins with them, those at level 0 too."""
    return {
        name: max(number for number, level in enumerate(levels) if RELEASES[level.since] <= metadata_version)
        for name, levels in LEVELS.items()
        if name in SUPPORTED
    }


def requirements(name: str, level: int) -> Mapping[str, int] | None:
    """What a level requires of other features; None if there is no such level."""
    if name == METADATA_VERSION:
        return EMPTY if level in RELEASES.values() else None
    levels = LEVELS.get(name, ())
    return levels[level].requires if 0 <= level < len(levels) else None


def unmet(name: str, level: int, finalized: Mapping[str, int]) -> tuple[str, int] | None:
    """A feature that is too low for this one, with the level it should have."""
    for other, least in (requirements(name, level) or EMPTY).items():
        if finalized.get(other, 0) < least:
            return other, least
    return None
