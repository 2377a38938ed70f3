"""Groups that change their type while they have members: a classic group that a consumer of the new protocol joins, and a
consumer group whose last such consumer leaves (KIP-848, group.consumer.migration.policy).

What one type knows is told to the other in records; replay makes the group anew.
"""

from __future__ import annotations

from collections.abc import Collection

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.classic.group import ClassicGroup, State
from pybroker.coordinator.group.classic.member import ClassicMember
from pybroker.coordinator.group.classic.rebalance import join_refusal
from pybroker.coordinator.group.cluster import ClusterView
from pybroker.coordinator.group.consumer.assignors import Assignment
from pybroker.coordinator.group.consumer.group import CONSUMER_PROTOCOL, ConsumerGroup
from pybroker.coordinator.group.consumer.member import ClassicProtocols, ConsumerMember
from pybroker.coordinator.group.consumer.records import (
    current_assignment_record,
    group_epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from pybroker.coordinator.group.consumer.subscriptions import hash_of_topics
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.coordinator.shard import Effect, Refuse, Reply
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pybroker.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

# Subscription and assignment stand behind their version, an int16.
_VERSION_BYTES = 2
_NEWEST = 3


def _version_of(data: bytes) -> int:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise ProtocolError("what a consumer has sent does not begin with a version")
    return min(version, _NEWEST)


def decoded_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """ProtocolError if it is none."""
    return ConsumerProtocolSubscription.decode_from(_version_of(data), data, _VERSION_BYTES)[0]


def encoded_assignment(target: Assignment, subscription: bytes, cluster: ClusterView) -> bytes:
    """As a classic consumer reads it, in the version that it speaks."""
    version = _version_of(subscription)
    rows = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic.name, partitions=sorted(partitions))
        for topic_id, partitions in target.items()
        if (topic := cluster.topic_by_id(topic_id)) is not None
    ]
    out = bytearray(version.to_bytes(_VERSION_BYTES, "big"))
    ConsumerProtocolAssignment(assigned_partitions=rows).encode_into(version, out)
    return bytes(out)


# Upgrade.


def upgraded(
    group: ClassicGroup, cluster: ClusterView, settings: GroupSettings
) -> tuple[ConsumerGroup, list[CoordinatorRecord], list[Effect]]:
    """The group as one of consumers, the records that make it one, and what those are told who wait for a rebalance."""
    problem = _upgrade_problem(group, settings)
    if problem is not None:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group.group_id} to consumer group because {problem}."
        )
    protocol = group.protocol_name or group.elected_protocol()
    try:
        members = [_upgraded_member(group, member, protocol, cluster) for member in group.members.values()]
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded consumer protocol is "
            "malformed.",
        ) from error
    group_id, epoch = group.group_id, group.generation
    topics = frozenset[str]().union(*(member.topic_names for member in members))
    records = [
        *[member_record(group_id, member) for member in members],
        group_epoch_record(group_id, epoch, hash_of_topics(topics, cluster)),
        *[target_record(group_id, member.member_id, _plain(member)) for member in members],
        target_epoch_record(group_id, epoch, 0),
        *[current_assignment_record(group_id, member) for member in members],
    ]
    consumers = ConsumerGroup(group_id)
    for record in records:
        consumers.replay(record.key, record.value)
    waiting: list[Effect] = []
    for one in group.members.values():
        if one.join is not None:
            waiting.append(Reply(one.join, join_refusal(ErrorCode.REBALANCE_IN_PROGRESS, one.member_id)))
        if one.sync is not None:
            waiting.append(Refuse(one.sync, ErrorCode.REBALANCE_IN_PROGRESS))
    return consumers, [*group.tombstones(), *records], waiting


def _upgrade_problem(group: ClassicGroup, settings: GroupSettings) -> str | None:
    if not settings.can_upgrade:
        return "online upgrade is disabled"
    if not group.is_for_consumers:
        return "the group does not use the consumer embedded protocol"
    if len(group.members) > settings.consumer_max_size:
        return "the group size exceeds the consumer group maximum size"
    return None


def _upgraded_member(group: ClassicGroup, member: ClassicMember, protocol: str, cluster: ClusterView) -> ConsumerMember:
    subscription = decoded_subscription(member.metadata(protocol))
    assigned: dict[Uuid, dict[int, int]] = {}
    if member.assignment:
        data = member.assignment
        assignment, _ = ConsumerProtocolAssignment.decode_from(_version_of(data), data, _VERSION_BYTES)
        if assignment.user_data:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to consumer group because an unsupported custom assignor is in "
                "use. Switch to one of the default assignors before the upgrade.",
            )
        for row in assignment.assigned_partitions:
            topic = cluster.topic(row.topic)
            if topic is not None and row.partitions:
                assigned[topic.topic_id] = dict.fromkeys(row.partitions, group.generation)
    return ConsumerMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
    )


def _plain(member: ConsumerMember) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}


def _held(member: ConsumerMember) -> Assignment:
    """What it has, and what it has not given up yet."""
    held = {topic_id: set(partitions) for topic_id, partitions in member.assigned.items()}
    for topic_id, partitions in member.pending_revocation.items():
        held.setdefault(topic_id, set()).update(partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in held.items()}


# Downgrade.


def can_downgrade(group: ConsumerGroup, gone: Collection[ConsumerMember], staying: int, settings: GroupSettings) -> bool:
    """Whether the group is a classic one without `gone`, who leave or come back as classic members."""
    return settings.can_downgrade and 0 < staying <= settings.max_size and group.all_classic_without(gone)


def downgraded(
    now_ms: int,
    group: ConsumerGroup,
    gone: Collection[ConsumerMember],
    joining: ConsumerMember | None,
    cluster: ClusterView,
) -> list[CoordinatorRecord]:
    """The records that make it a classic group. `joining` is a static member that takes the place of one of `gone`, and whose
    own records have been written. Each has what it holds, not what it is to have: nobody else may get it before it has let go,
    and the group may be one of consumers again before that."""
    gone_ids = {member.member_id for member in gone}
    staying = [member for member in group.members.values() if member.member_id not in gone_ids]
    ids = [*group.members]
    if joining is not None:
        staying.append(joining)
        ids = [one for one in ids if one not in gone_ids] + [joining.member_id]
    classic = ClassicGroup(group.group_id, now_ms, State.STABLE)
    classic.generation = group.epoch
    for member in staying:
        assert member.classic is not None, f"{member} does not speak the classic protocol"
        one = ClassicMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.classic.session_timeout_ms,
            member.classic.protocols,
        )
        classic.add(one, CONSUMER_PROTOCOL)
    classic.protocol_name = classic.elected_protocol()
    for member in staying:
        one = classic.members[member.member_id]
        one.assignment = encoded_assignment(_held(member), one.metadata(classic.protocol_name), cluster)
    return [*group_tombstones(group.group_id, ids, group.regexes), classic.as_record(lambda one: one.assignment)]
