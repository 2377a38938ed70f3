"""The words that cases are written in, third part: groups and their offsets.

A group is named as a topic is: "g%" is another one in every version. A member is known by a name of the case, "m"; its member
id is what the broker gave it last, none at first, and "=x" is x itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from interop.answers.case import Step
from interop.answers.plain import plain
from interop.answers.side import Side
from interop.answers.steps import On, asks, by_topic, version_of

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from pybroker.protocol.message import Message
from pybroker.protocol.messages import group_offsets, groups

GROUP, TRANSACTION, SHARE = range(3)


def member_id(side: Side, member: str) -> str:
    return member[1:] if member.startswith("=") else side.values.get(f"{member} {side.version}", "")


def subscription(side: Side, *symbols: str) -> bytes:
    topics = ConsumerProtocolSubscription(topics=[side.name(symbol) for symbol in symbols])
    return b"\0\0" + topics.encode(0)


def _join_request(side: Side, member: str, group: str, options: Mapping[str, Any]) -> groups.JoinGroupRequest:
    protocols = options.get("protocols", ("range",))
    metadata = options.get("metadata")
    rows = [
        groups.JoinGroupRequestProtocol(
            name=name, metadata=subscription(side, *options.get("topics", ("t",))) if metadata is None else metadata
        )
        for name in protocols
    ]
    return groups.JoinGroupRequest(
        group_id=side.name(group),
        session_timeout_ms=options.get("session_ms", 10_000),
        rebalance_timeout_ms=options.get("rebalance_ms", 10_000),
        member_id=member_id(side, member),
        group_instance_id=options.get("instance"),
        protocol_type=options.get("protocol_type", "consumer"),
        protocols=rows,
        reason=options.get("reason"),
    )


def join(member: str = "m", group: str = "g%", *, version: int | None = None, **options: Any) -> Step:
    def do(side: Side, swept: int | None) -> Any:
        chosen = version_of(11, version, swept)
        answer = side.ask(_join_request(side, member, group, options), chosen)
        if getattr(answer, "member_id", "") and not member.startswith("="):
            side.values[f"{member} {side.version}"] = answer.member_id
        return plain(side, answer, chosen)

    return Step(f"join {member}", do, None if version is not None else 11)


def joined(member: str = "m", group: str = "g%", *, version: int = 9, **options: Any) -> Step:
    """All the way in, whatever it takes."""
    step = join(member, group, version=version, **options)

    def do(side: Side, swept: int | None) -> Any:
        answer = step.do(side, swept)
        if answer["error_code"] == "MEMBER_ID_REQUIRED":
            answer = step.do(side, swept)
        assert answer["error_code"] == "NONE", answer
        return answer

    return replace(step, text=f"{member} has joined", do=do)


def sync(
    member: str = "m",
    group: str = "g%",
    generation: int = 1,
    assignments: Mapping[str, bytes] | None = None,
    *,
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol: str | None = "range",
    version: int | None = None,
) -> Step:
    def build(side: Side, _: int) -> Message:
        rows = [
            groups.SyncGroupRequestAssignment(member_id=member_id(side, one), assignment=assignment)
            for one, assignment in (assignments or {}).items()
        ]
        return groups.SyncGroupRequest(
            group_id=side.name(group),
            generation_id=generation,
            member_id=member_id(side, member),
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=rows,
        )

    return asks(14, build, f"sync {member}", version=version)


def stable(member: str = "m", group: str = "g%", generation: int = 1, **options: Any) -> tuple[Step, Step]:
    """A group of one member with an assignment."""
    instance = options.get("instance")
    return joined(member, group, **options), sync(member, group, generation, {member: b"mine"}, instance=instance, version=5)


def heartbeat(
    member: str = "m", group: str = "g%", generation: int = 1, *, instance: str | None = None, version: int | None = None
) -> Step:
    def build(side: Side, _: int) -> Message:
        return groups.HeartbeatRequest(
            group_id=side.name(group),
            generation_id=generation,
            member_id=member_id(side, member),
            group_instance_id=instance,
        )

    return asks(12, build, f"heartbeat of {member}", version=version)


def leave(*members: str | tuple[str, str], group: str = "g%", version: int | None = None) -> Step:
    """Members by name, or by (name, instance id)."""

    def build(side: Side, chosen: int) -> Message:
        pairs = [(one, None) if isinstance(one, str) else one for one in members]
        if chosen < 3:
            return groups.LeaveGroupRequest(group_id=side.name(group), member_id=member_id(side, pairs[0][0]))
        rows = [
            groups.MemberIdentity(member_id=member_id(side, name), group_instance_id=instance, reason="case")
            for name, instance in pairs
        ]
        return groups.LeaveGroupRequest(group_id=side.name(group), members=rows)

    return asks(13, build, f"leave {members}", version=version)


# From outside.


def find(*keys: str, kind: int = GROUP, version: int | None = None) -> Step:
    def build(side: Side, chosen: int) -> Message:
        fields = {"key_type": kind} if chosen >= 1 else {}
        if chosen >= 4:
            return groups.FindCoordinatorRequest(coordinator_keys=list(keys), **fields)
        return groups.FindCoordinatorRequest(key=keys[0] if keys else "", **fields)

    return asks(10, build, f"find {keys}", version=version)


def list_groups(states: Sequence[str] = (), types: Sequence[str] = (), *, version: int | None = None) -> Step:
    """Only the case's own groups are looked at."""

    def build(side: Side, _: int) -> Message:
        return groups.ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def see(side: Side, answer: Any) -> Any:
        rows = answer["groups"] or {}
        return answer | {"groups": {name: row for name, row in rows.items() if side.is_own(name)}}

    return asks(16, build, f"list {states} {types}", version=version, see=see)


def describe(*names: str, operations: bool = False, version: int | None = None) -> Step:
    def build(side: Side, _: int) -> Message:
        return groups.DescribeGroupsRequest(
            groups=[side.name(name) for name in names], include_authorized_operations=operations
        )

    return asks(15, build, f"describe {names}", version=version)


def delete_groups(*names: str, version: int | None = None) -> Step:
    def build(side: Side, _: int) -> Message:
        return groups.DeleteGroupsRequest(groups_names=[side.name(name) for name in names])

    return asks(42, build, f"delete {names}", version=version)


# Offsets.


def commit(
    *rows: On,
    group: str = "g%",
    member: str = "=",
    generation: int = -1,
    instance: str | None = None,
    retention_ms: int = -1,
    version: int | None = None,
) -> Step:
    """Rows are `on("t", 0, offset=3, epoch=…, metadata=…)`."""

    def build(side: Side, _: int) -> Message:
        topics = [
            group_offsets.OffsetCommitRequestTopic(
                name=side.name(symbol),
                topic_id=side.topic_id(symbol),
                partitions=[
                    group_offsets.OffsetCommitRequestPartition(
                        partition_index=row.partition,
                        committed_offset=row.fields.get("offset", 0),
                        committed_leader_epoch=row.fields.get("epoch", -1),
                        committed_metadata=row.fields.get("metadata", ""),
                    )
                    for row in group_rows
                ],
            )
            for symbol, group_rows in by_topic(rows)
        ]
        return group_offsets.OffsetCommitRequest(
            group_id=side.name(group),
            generation_id_or_member_epoch=generation,
            member_id=member_id(side, member),
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=topics,
        )

    return asks(8, build, "commit", version=version)


def committed(
    *rows: On, group: str = "g%", everything: bool = False, stable_only: bool = False, version: int | None = None
) -> Step:
    """What is committed of `rows`, or of everything."""

    def build(side: Side, chosen: int) -> Message:
        if chosen < 8:
            old = [
                group_offsets.OffsetFetchRequestTopic(
                    name=side.name(symbol), partition_indexes=[row.partition for row in group_rows]
                )
                for symbol, group_rows in by_topic(rows)
            ]
            return group_offsets.OffsetFetchRequest(
                group_id=side.name(group), topics=None if everything else old, require_stable=stable_only
            )
        return group_offsets.OffsetFetchRequest(
            groups=[_fetch_group(side, group, None if everything else rows)], require_stable=stable_only
        )

    return asks(9, build, "committed", version=version)


def committed_of(*pairs: tuple[str, Sequence[On] | None]) -> Step:
    """Of several groups at once; None for everything."""

    def build(side: Side, _: int) -> Message:
        return group_offsets.OffsetFetchRequest(groups=[_fetch_group(side, group, rows) for group, rows in pairs])

    return asks(9, build, "committed of several")


def _fetch_group(side: Side, group: str, rows: Sequence[On] | None) -> group_offsets.OffsetFetchRequestGroup:
    topics = None
    if rows is not None:
        topics = [
            group_offsets.OffsetFetchRequestTopics(
                name=side.name(symbol),
                topic_id=side.topic_id(symbol),
                partition_indexes=[row.partition for row in group_rows],
            )
            for symbol, group_rows in by_topic(rows)
        ]
    return group_offsets.OffsetFetchRequestGroup(group_id=side.name(group), topics=topics)


def delete_offsets(*rows: On, group: str = "g%", version: int | None = None) -> Step:
    def build(side: Side, _: int) -> Message:
        topics = [
            group_offsets.OffsetDeleteRequestTopic(
                name=side.name(symbol),
                partitions=[group_offsets.OffsetDeleteRequestPartition(partition_index=row.partition) for row in group_rows],
            )
            for symbol, group_rows in by_topic(rows)
        ]
        return group_offsets.OffsetDeleteRequest(group_id=side.name(group), topics=topics)

    return asks(47, build, "delete offsets", version=version)


def answers_for_groups(broker: Any) -> bool:
    """Whether the coordinator is there and loaded; the topic of its groups is created by asking."""
    found = broker.ask(groups.FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["anybody"]))
    if found.coordinators[0].error_code != ErrorCode.NONE:
        return False
    described = broker.ask(groups.DescribeGroupsRequest(groups=["anybody"]))
    return described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
