"""Which part of a node applies a changed broker config while it runs: one row for every key that can be changed at all.

A part subscribes to its keys with `NodeConfig.subscribe`. READERS are those that ask `NodeConfig.current` whenever they need
the value, so that nobody has to be told.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from pybroker.config.key import Update
from pybroker.config.keys import BROKER, TOPIC
from pybroker.config.reading import parse_override


class Part(Enum):
    LOGS = "the logs, as defaults of topics"
    LOG_MANAGER = "the log manager"
    CLEANER = "the log cleaner"
    SCHEDULER = "the background threads"
    SOCKET_SERVER = "the socket server"
    SECURITY = "the listeners' TLS and SASL"
    REPLICATION = "the replica fetchers"
    COORDINATORS = "the group coordinator"
    TIERED_STORAGE = "the remote log manager"
    READERS = "whoever reads it next"
    NOBODY = "nobody, since it has no effect"


_LOGS = {key.fallbacks[0].name for key in TOPIC.values() if key.fallbacks}

_ROWS = {
    Part.LOG_MANAGER: (
        "num.recovery.threads.per.data.dir",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
        "cordoned.log.dirs",
    ),
    Part.CLEANER: (
        "log.cleaner.threads",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.backoff.ms",
    ),
    Part.SCHEDULER: ("background.threads",),
    Part.SOCKET_SERVER: (
        "listeners",
        "listener.security.protocol.map",
        "num.network.threads",
        "num.io.threads",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
    ),
    Part.REPLICATION: ("num.replica.fetchers", "follower.fetch.last.tiered.offset.enable"),
    Part.COORDINATORS: ("group.consumer.assignment.interval.ms",),
    Part.READERS: ("remote.fetch.max.wait.ms", "remote.list.offsets.request.timeout.ms"),
}


def _part_of(name: str) -> Part:
    for part, names in _ROWS.items():
        if name in names:
            return part
    if name in _LOGS:
        return Part.LOGS
    if BROKER[name].ignored is not None:
        return Part.NOBODY
    if name.startswith(("ssl.", "sasl.")):
        return Part.SECURITY
    assert name.startswith("remote.log."), f"{name} can be changed while a node runs: say here who applies it"
    return Part.TIERED_STORAGE


# What counts is the effective value, so a key of a coarser unit, as log.retention.hours, needs no row: it cannot change.
PART_OF = MappingProxyType({name: _part_of(name) for name, key in BROKER.items() if key.update is not Update.READ_ONLY})


def part_of(name: str) -> Part | None:
    """Also of an override for one listener; None for a key that cannot be changed while the node runs."""
    override = parse_override(name)
    return PART_OF.get(override.key.name if override else name)
