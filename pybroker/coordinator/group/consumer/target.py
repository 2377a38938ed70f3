"""The target assignment: who is to read what in the group's present epoch, once the assignment interval allows it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.cluster import ClusterView
from pybroker.coordinator.group.consumer.assignors import ASSIGNORS, NOTHING, Assignment, MemberSpec
from pybroker.coordinator.group.consumer.group import ConsumerGroup
from pybroker.coordinator.group.consumer.member import ConsumerMember
from pybroker.coordinator.group.consumer.records import target_epoch_record, target_record
from pybroker.coordinator.group.consumer.subscriptions import Subscribed, topic_ids, topics_read_by
from pybroker.coordinator.hashing import in_table_order, java_hash
from pybroker.coordinator.shard import Result

logger = logging.getLogger(__name__)


def assignment_due_ms(group: ConsumerGroup, now_ms: int, interval_ms: int) -> int:
    """In how long the group may be assigned again. The clock may have been set back, or the last coordinator's was ahead:
    nobody waits for it to catch up."""
    since_ms = now_ms - group.target_timestamp_ms
    return interval_ms - since_ms if 0 <= since_ms < interval_ms else 0


def retarget(
    now_ms: int,
    group: ConsumerGroup,
    member: ConsumerMember,
    subscribed: Subscribed,
    cluster: ClusterView,
    default_assignor: str,
    out: Result,
) -> tuple[int, Assignment]:
    """Assign the group with `member` as it is now; the epoch of the target and the member's share."""
    members = dict(group.members)
    former_id = None if member.instance_id is None else group.static_members.get(member.instance_id)
    if former_id is not None:
        members.pop(former_id, None)
    members[member.member_id] = member
    specs: dict[str, MemberSpec] = {}
    counts: dict[Uuid, int] = {}
    for one in members.values():
        ids = topic_ids(topics_read_by(one, subscribed.regexes), cluster)
        assigned = group.target_of(one) if one is member else group.targets.get(one.member_id, NOTHING)
        for topic_id in ids:
            if topic_id not in counts:
                topic = cluster.topic_by_id(topic_id)
                assert topic is not None
                counts[topic_id] = topic.partitions
        specs[one.member_id] = MemberSpec(one.instance_id, ids, _existing(assigned, counts))
    name = _preferred(group, member, former_id) or default_assignor
    assignor = ASSIGNORS.get(name, ASSIGNORS["uniform"])
    targets = assignor(specs, counts, _is_homogeneous(members))
    for member_id in in_table_order(specs, java_hash):
        target = targets.get(member_id, NOTHING)
        if target != group.targets.get(member_id):
            out.records.append(target_record(group.group_id, member_id, target))
    out.records.append(target_epoch_record(group.group_id, subscribed.epoch, now_ms))
    logger.info("group %s: assigned by %s for epoch %d, %d members", group.group_id, name, subscribed.epoch, len(members))
    return subscribed.epoch, targets.get(member.member_id, NOTHING)


def _existing(assigned: Assignment, counts: Mapping[Uuid, int]) -> Assignment:
    """Without partitions that this broker has not heard of yet: whoever assigned before, such as a classic member that led the
    group, may know newer metadata."""
    if all(
        topic_id not in counts or max(partitions, default=0) < counts[topic_id] for topic_id, partitions in assigned.items()
    ):
        return assigned
    return {
        topic_id: [one for one in partitions if one < counts.get(topic_id, one + 1)]
        for topic_id, partitions in assigned.items()
    }


def _is_homogeneous(members: Mapping[str, ConsumerMember]) -> bool:
    subscriptions = {(member.topic_names, member.topic_regex or "") for member in members.values()}
    names, regex = next(iter(subscriptions))
    return len(subscriptions) == 1 and not (names and regex)


def _preferred(group: ConsumerGroup, member: ConsumerMember, former_id: str | None) -> str | None:
    """The assignor that most members ask for."""
    votes = group.assignors.copy()
    former = group.members.get(former_id or member.member_id)
    if former is not None and former.server_assignor is not None:
        votes[former.server_assignor] -= 1
    if member.server_assignor is not None:
        votes[member.server_assignor] += 1
    return max(in_table_order(+votes, java_hash), key=votes.__getitem__, default=None)
