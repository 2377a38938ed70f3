"""The cluster as the metadata log says it is, up to one offset.

All values here are immutable and replaced as a whole: any thread may hold an image and read it without a lock. Images are
made by `MetadataDelta`; consecutive ones share whatever did not change between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.metadata.acls import Acls
from pybroker.metadata.quotas import ClientQuotas
from pybroker.metadata.scram import ScramCredentials
from pybroker.metadata.tokens import DelegationTokens

NO_LEADER = -1

# Directory ids that name no directory: not known yet, lost, and the one that a partition of a former release stayed in.
UNASSIGNED_DIRECTORY = ZERO_UUID
LOST_DIRECTORY = Uuid(bytes(15) + b"\x01")
MIGRATING_DIRECTORY = Uuid(bytes(15) + b"\x02")

EMPTY: Mapping[Any, Any] = MappingProxyType({})


def _empty() -> Mapping[Any, Any]:
    return EMPTY


class ResourceType(IntEnum):
    """What configs can belong to; the numbers are those of the protocol and of ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class LeaderRecoveryState(IntEnum):
    RECOVERED = 0
    RECOVERING = 1


class ConfigResource(NamedTuple):
    """Whose configs. A broker's name is its id; "" is the default of all brokers."""

    type: int
    name: str


@dataclass(slots=True, frozen=True)
class PartitionState:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    # One per replica, in the same order.
    directories: tuple[Uuid, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory_of(self, broker_id: int) -> Uuid:
        """The directory that holds the replica of `broker_id`, as far as the controller knows."""
        return self.directories[self.replicas.index(broker_id)]


@dataclass(slots=True, frozen=True)
class TopicImage:
    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionState] = field(default_factory=_empty)


@dataclass(slots=True, frozen=True)
class Endpoint:
    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(slots=True, frozen=True)
class VersionRange:
    min_version: int
    max_version: int


@dataclass(slots=True, frozen=True)
class BrokerState:
    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint] = field(default_factory=_empty)
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] = ()
    features: Mapping[str, VersionRange] = field(default_factory=_empty)

    @property
    def is_active(self) -> bool:
        """Whether it can lead, and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(slots=True, frozen=True)
class ControllerState:
    id: int
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint] = field(default_factory=_empty)
    features: Mapping[str, VersionRange] = field(default_factory=_empty)


@dataclass(slots=True, frozen=True)
class MetadataImage:
    """`offset` is that of the last record in it, -1 for none; `epoch` the leader epoch of that record."""

    offset: int = -1
    epoch: int = 0
    topics: Mapping[str, TopicImage] = field(default_factory=_empty)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=_empty)
    brokers: Mapping[int, BrokerState] = field(default_factory=_empty)
    controllers: Mapping[int, ControllerState] = field(default_factory=_empty)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=_empty)
    # Finalized levels; a feature that is not there is at level 0.
    features: Mapping[str, int] = field(default_factory=_empty)
    next_producer_id: int = 0
    acls: Acls = field(default_factory=_empty)
    scram_credentials: ScramCredentials = field(default_factory=_empty)
    client_quotas: ClientQuotas = field(default_factory=_empty)
    delegation_tokens: DelegationTokens = field(default_factory=_empty)

    def config_of(self, type: int, name: str) -> Mapping[str, str]:
        """The overrides of one resource; empty if it has none."""
        return self.configs.get(ConfigResource(type, name), EMPTY)

    def partition(self, topic: str, index: int) -> PartitionState | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)


EMPTY_IMAGE = MetadataImage()
