"""Consumer groups as ConsumerGroupDescribe shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.cluster import ClusterView
from pybroker.coordinator.group.consumer.assignors import NOTHING
from pybroker.coordinator.group.consumer.group import ConsumerGroup
from pybroker.coordinator.group.consumer.member import ConsumerMember
from pybroker.coordinator.hashing import in_table_order, java_hash
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseTopicPartitions,
    DescribedGroup,
    Member,
)

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def described(group: ConsumerGroup, cluster: ClusterView, default_assignor: str) -> DescribedGroup:
    preferred = max(in_table_order(group.assignors, java_hash), key=group.assignors.__getitem__, default=default_assignor)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred,
        members=[_member(group, member, cluster) for member in group.members.values()],
    )


def not_described(group_id: str, code: ErrorCode, problem: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=problem,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, cluster: ClusterView) -> Member:
    """What it has still to give up, it has."""
    has: dict[Uuid, list[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, some in partitions.items():
            has.setdefault(topic_id, []).extend(some)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(has, cluster),
        target_assignment=_assignment(group.targets.get(member.member_id, NOTHING), cluster),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[Uuid, Collection[int]], cluster: ClusterView) -> ConsumerGroupDescribeResponseAssignment:
    return ConsumerGroupDescribeResponseAssignment(
        topic_partitions=[
            ConsumerGroupDescribeResponseTopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(some))
            for topic_id, some in partitions.items()
            if (topic := cluster.topic_by_id(topic_id)) is not None
        ]
    )
