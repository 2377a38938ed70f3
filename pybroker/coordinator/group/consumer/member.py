"""A member of a consumer group: who it is, what it subscribes to, how far it has come. A value; replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from pybroker.base.ids import Uuid
from pybroker.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

# Epochs that a member sends, or has, in place of one.
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_STATIC: Final = -2  # a static member that means to come back


class MemberState(IntEnum):
    STABLE = 0  # it has what it should have in its epoch
    UNREVOKED_PARTITIONS = 1  # it has to give partitions up first
    UNRELEASED_PARTITIONS = 2  # others have not given up yet what it is to get
    UNKNOWN = 127  # of a newer release


# Partitions by topic, each with the epoch in which the member was assigned it.
EpochedPartitions = Mapping[Uuid, Mapping[int, int]]
NO_PARTITIONS: Final[EpochedPartitions] = {}


class ClassicProtocols(NamedTuple):
    """Of a member that speaks the classic protocol, in a group that is being migrated."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(slots=True, frozen=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicProtocols | None = None
    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: EpochedPartitions = field(default_factory=dict)
    pending_revocation: EpochedPartitions = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Since when it has the partition, or has had it and not given it up yet."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    # From the log.

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        classic = value.classic_member_metadata
        return ConsumerMember(
            self.member_id,
            value.instance_id,
            value.rack_id,
            value.client_id,
            value.client_host,
            frozenset(value.subscribed_topic_names),
            value.subscribed_topic_regex,
            value.rebalance_timeout_ms,
            value.server_assignor,
            None
            if classic is None
            else ClassicProtocols(
                classic.session_timeout_ms, tuple((one.name, bytes(one.metadata)) for one in classic.supported_protocols)
            ),
            self.epoch,
            self.previous_epoch,
            self.state,
            self.assigned,
            self.pending_revocation,
        )


def epoched_partitions(rows: list[TopicPartitions], member_epoch: int) -> EpochedPartitions:
    """Those of a record; in one of an older release all have the epoch of the member."""
    out: dict[Uuid, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = [max(member_epoch, 0)] * len(row.partitions)
        out[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return out


def state_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> MemberState:
    return MemberState(value.state) if value.state in MemberState.__members__.values() else MemberState.UNKNOWN
