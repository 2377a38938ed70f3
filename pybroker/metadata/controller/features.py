"""Feature levels: what this release supports, what the names of releases mean, which record versions a level allows.

Only what works is claimed. A cluster that Apache Kafka formatted may have finalized features that are not known here: they
stay in the image, and are not answered for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from pybroker.metadata.image import MetadataImage, VersionRange
from pybroker.protocol.internal.metadata_log import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from pybroker.protocol.message import Message

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"

# metadata.version by the names that kafka-storage takes.
# fmt: off
_NAMES = (
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2",
    "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0",
    "4.2-IV1", "4.3-IV0",
)
# fmt: on
RELEASES: Mapping[str, int] = MappingProxyType({name: level for level, name in enumerate(_NAMES, 7)})
LATEST_RELEASE = "4.3-IV0"

SUPPORTED: Mapping[str, VersionRange] = MappingProxyType(
    {
        METADATA_VERSION: VersionRange(min(RELEASES.values()), RELEASES[LATEST_RELEASE]),
        KRAFT_VERSION: VersionRange(0, 1),
        TRANSACTION_VERSION: VersionRange(0, 2),
        GROUP_VERSION: VersionRange(0, 1),
        ELR_VERSION: VersionRange(0, 1),
    }
)

TRANSACTIONS = RELEASES["3.6-IV1"]
CONTROLLER_REGISTRATION = RELEASES["3.7-IV0"]
SCRAM = RELEASES["3.5-IV2"]
DELEGATION_TOKENS = RELEASES["3.6-IV2"]
DIRECTORIES = RELEASES["3.7-IV2"]
ELR = RELEASES["4.0-IV1"]
SHRINK_KEEPS_EPOCH = RELEASES["3.6-IV0"]  # before, a shrinking ISR needed a new leader epoch (KAFKA-15021)
CORDONED = RELEASES["4.3-IV0"]
_MIGRATION = RELEASES["3.4-IV0"]

# The levels that brought records, or fields of them, that the one before has no place for.
STORES_MORE: Collection[int] = frozenset(
    RELEASES[name] for name in ("3.4-IV0", "3.5-IV2", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV2", "4.0-IV1", "4.3-IV0")
)

# From which metadata.version on a record has which version; lower levels write the one before, at last 0.
_VERSIONS: Mapping[type[Message], tuple[tuple[int, int], ...]] = {
    RegisterBrokerRecord: ((CORDONED, 4), (DIRECTORIES, 3), (_MIGRATION, 2), (0, 1)),
    BrokerRegistrationChangeRecord: ((CORDONED, 3), (DIRECTORIES, 2), (0, 1)),
    PartitionRecord: ((ELR, 2), (DIRECTORIES, 1)),
    PartitionChangeRecord: ((ELR, 2), (DIRECTORIES, 1)),
}


def level_of_release(name: str) -> int | None:
    """The metadata.version of `4.1-IV0`, or for `4.1` the last of that release; None if there is no such release."""
    if name in RELEASES:
        return RELEASES[name]
    levels = [level for release, level in RELEASES.items() if release.partition("-")[0] == name]
    return max(levels, default=None)


def name_of_level(level: int) -> str:
    return next((name for name, one in RELEASES.items() if one == level), f"level {level}")


def metadata_version(image: MetadataImage) -> int:
    return image.features.get(METADATA_VERSION, SUPPORTED[METADATA_VERSION].min_version)


def transaction_version(image: MetadataImage) -> int:
    return image.features.get(TRANSACTION_VERSION, 0)


def group_version(image: MetadataImage) -> int:
    """From 1 on there are groups of the KIP-848 protocol."""
    return image.features.get(GROUP_VERSION, 0)


def is_elr_enabled(image: MetadataImage) -> bool:
    """Whether partitions remember eligible leader replicas (KIP-966)."""
    return image.features.get(ELR_VERSION, 0) > 0


def record_version(kind: type[Message], level: int) -> int:
    """The version in which a record is written at this metadata.version."""
    return next((version for since, version in _VERSIONS.get(kind, ()) if level >= since), 0)


def unsupported(features: Mapping[str, int]) -> dict[str, int]:
    """The finalized features that this release does not know, or not at that level."""
    return {
        name: level
        for name, level in features.items()
        if name not in SUPPORTED or not SUPPORTED[name].min_version <= level <= SUPPORTED[name].max_version
    }
