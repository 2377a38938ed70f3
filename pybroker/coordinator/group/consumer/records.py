"""Records of consumer groups, as Apache Kafka 4.3 writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pybroker.coordinator.group.consumer.assignors import Assignment
from pybroker.coordinator.group.consumer.member import ConsumerMember, EpochedPartitions
from pybroker.coordinator.hashing import in_table_order, uuid_hash
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.protocol.internal.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched, in which version of the metadata, and when that was found out."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
        ),
    )
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def current_assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_rows(member.assigned),
        partitions_pending_revocation=_rows(member.pending_revocation),
    )
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def _rows(partitions: EpochedPartitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions[topic_id]),
            assignment_epochs=[partitions[topic_id][one] for one in sorted(partitions[topic_id])],
        )
        for topic_id in in_table_order(partitions, uuid_hash)
    ]


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    rows = [
        TopicPartition(topic_id=topic_id, partitions=sorted(target[topic_id])) for topic_id in in_table_order(target, uuid_hash)
    ]
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


# Tombstones.


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Of what older releases stored in place of a hash."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Sequence[str], regexes: Iterable[str]) -> list[CoordinatorRecord]:
    return [
        *[
            CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one), None)
            for one in member_ids
        ],
        *[
            CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one), None)
            for one in member_ids
        ],
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *[CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=one), None) for one in member_ids],
        *[regex_tombstone(group_id, one) for one in regexes],
        partition_metadata_tombstone(group_id),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
