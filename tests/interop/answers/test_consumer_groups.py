"""ConsumerGroupHeartbeat 0-1, ConsumerGroupDescribe 0-1, and the offsets of such groups: the same answer as Apache Kafka's.

Every version has groups of its own ("g%"). Members choose their ids, except where a case leaves that to the broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from interop.answers.case import Case, Pair, Step, family
from interop.answers.group_steps import commit, committed, delete_groups, join, joined, leave, list_groups, member_id, stable
from interop.answers.side import Side
from interop.answers.steps import asks, eventually, on, pause, topic

from pybroker.protocol.message import Message
from pybroker.protocol.messages import consumer_groups

beating, describing, committing = family(68), family(69), family(8)


def beat(
    member: str = "=a",
    group: str = "g%",
    epoch: int = 0,
    *,
    topics: Sequence[str] | None = None,
    regex: str | None = None,
    owned: Mapping[str, Sequence[int]] | None = None,
    instance: str | None = None,
    rack: str | None = None,
    assignor: str | None = None,
    rebalance_ms: int = -1,
    version: int | None = None,
) -> Step:
    def build(side: Side, chosen: int) -> Message:
        rows = None
        if owned is not None:
            rows = [
                consumer_groups.ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=side.topic_id(symbol), partitions=list(partitions)
                )
                for symbol, partitions in owned.items()
            ]
        fields: dict[str, Any] = {} if chosen < 1 else {"subscribed_topic_regex": regex}
        return consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=side.name(group),
            member_id=member_id(side, member),
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else [side.name(one) for one in topics],
            server_assignor=assignor,
            topic_partitions=rows,
            **fields,
        )

    return asks(68, build, f"{member} in epoch {epoch}", version=version)


def enter(member: str = "=a", group: str = "g%", **options: Any) -> Step:
    fields: dict[str, Any] = {"topics": ("t",), "owned": {}, "rebalance_ms": 60_000}
    return beat(member, group, 0, **(fields | options))


def see(*names: str, operations: bool = False, version: int | None = None) -> Step:
    def build(side: Side, _: int) -> Message:
        return consumer_groups.ConsumerGroupDescribeRequest(
            group_ids=[side.name(name) for name in names], include_authorized_operations=operations
        )

    return asks(69, build, f"describe {names}", version=version)


T = topic("t", partitions=4)
ASSIGNED_AGAIN = pause(1.1)  # consumer.assignment.interval.ms

BEAT = [
    beating("a new group", T, enter(), beat(epoch=2), see("g%"), beat(epoch=2, owned={"t": (0, 1, 2, 3)}), list_groups()),
    beating("no member id", T, enter("="), ignore="member_id$"),
    beating("a blank member id", T, enter("= ")),
    beating("no group id", T, enter(group="=")),
    beating("a blank group id", T, enter(group="= ")),
    beating("an empty instance id", T, enter(instance="")),
    beating("an empty rack", T, enter(rack="")),
    beating("a rack", T, enter(rack="r1"), see("g%")),
    beating("no rebalance timeout", T, enter(rebalance_ms=-1)),
    beating("partitions with the first", T, enter(owned={"t": (0,)})),
    beating("no list of partitions with the first", T, enter(owned=None)),
    beating("no topics", T, enter(topics=None)),
    beating("no topics at all", T, enter(topics=()), see("g%"), beat(epoch=0), beat(epoch=2)),
    beating("a topic that is not there", T, enter(topics=("never",)), see("g%"), beat(epoch=2)),
    beating("an unknown assignor", T, enter(assignor="best")),
    beating("range", T, enter(assignor="range"), see("g%")),
    beating("epoch -3", T, enter(), beat(epoch=-3)),
    beating("no group", beat(epoch=2), beat(epoch=-1), beat(epoch=-2, instance="i"), beat(epoch=-2)),
    beating("an unknown member", T, enter(), beat("=b", epoch=2), beat("=b", epoch=-1), beat("=b", epoch=-2, instance="i")),
    beating("a later epoch", T, enter(), beat(epoch=3)),
    beating("in epoch 0 again", T, enter(), enter(), see("g%")),
    beating("the same topics again", T, enter(), beat(epoch=2, topics=("t",), owned={"t": (0, 1, 2, 3)}, rebalance_ms=60_000)),
    beating("other topics", T, topic("u"), enter(), ASSIGNED_AGAIN, beat(epoch=2, topics=("u",), owned={"t": (0, 1, 2, 3)}),
            see("g%"), beat(epoch=2, owned={}), see("g%"), beat(epoch=3)),
    beating("a second member", T, enter(), ASSIGNED_AGAIN, enter("=b"), see("g%"), beat(epoch=2), see("g%"),
            beat("=b", epoch=3), beat(epoch=2, owned={"t": (0, 1, 2, 3)}), beat(epoch=2, owned={"t": (0, 1)}),
            beat(epoch=2, owned={"t": (2, 3)}), beat("=b", epoch=3), beat("=b", epoch=3), see("g%"), list_groups()),
    beating("a third member with range", T, enter(assignor="range"), ASSIGNED_AGAIN, enter("=b", assignor="range"),
            ASSIGNED_AGAIN, enter("=c", assignor="range"), see("g%"), beat(epoch=2), beat("=b", epoch=3), see("g%")),
    beating("within the assignment interval", T, enter(), enter("=b"), see("g%"), ASSIGNED_AGAIN, beat("=b", epoch=2),
            see("g%")),
    beating("leaves", T, enter(), beat(epoch=-1), beat(epoch=-1), see("g%"), list_groups(), enter("=b"), see("g%")),
    beating("one of two leaves", T, enter(), ASSIGNED_AGAIN, enter("=b"), beat("=b", epoch=-1), see("g%"), beat(epoch=2),
            ASSIGNED_AGAIN, beat(epoch=2), see("g%")),
    beating("a static member", T, enter(instance="i"), beat(epoch=2, instance="i"), beat("=b", epoch=2, instance="i"),
            enter("=b", instance="i"), see("g%"), beat(epoch=-2, instance="i"), see("g%"), beat(epoch=2, instance="i"),
            enter("=b", instance="i"), see("g%"), beat(epoch=2, instance="i"), beat("=b", epoch=-1, instance="i"), see("g%")),
    beating("a static member without its instance id", T, enter(instance="i"), beat(epoch=2), beat(epoch=-2), beat(epoch=-1)),
    beating("a static member is away, then gone", T, enter(instance="i"), beat(epoch=-2, instance="i"),
            beat(epoch=-1, instance="i"), see("g%")),
    beating("no expression", T, enter(topics=None, regex="("), enter(topics=None, regex="a**"),
            enter(topics=None, regex="[z-a]"), enter(topics=None, regex=r"(a)\1"), enter(topics=None, regex="(?=a)"),
            enter(topics=None, regex="a{1001}"),
            versions="1"),
    beating("an empty classic group", T, enter("=x", "other%"), join(version=9), joined(version=9), leave("m", version=5),
            enter(), see("g%"), list_groups()),
    beating("a classic group of Connect", T, enter("=x", "other%"), *stable(protocol_type="connect"), enter(), list_groups()),
    beating("a group of simple consumers", T, enter("=x", "other%"), commit(on("t", 0, offset=3), version=8), enter(),
            committed(on("t", 0), version=8), list_groups()),
    # Apache Kafka asks for a member id before the change of the group is committed, and lists what is.
    beating("a classic member in an emptied group", T, enter(), beat(epoch=-1), join(version=9),
            eventually(list_groups(), lambda answer: "'classic'" in repr(answer))),
]  # fmt: skip

DESCRIBE = [
    describing("no group", see("never"), see("=")),
    describing("nothing", see()),
    describing("a classic group", see("x%"), *stable(), see("g%")),
    describing("with operations", T, see("x%"), enter(version=1), see("g%", "never", operations=True)),
    describing("deleted", T, see("x%"), enter(version=1), delete_groups("g%"), beat(epoch=-1, version=1), delete_groups("g%"),
               see("g%")),
]  # fmt: skip

OFFSETS = [
    committing("a member of a consumer group", T, commit(on("t", 0, offset=1), group="x%"), enter(version=1),
               commit(on("t", 0, offset=3), member="=a", generation=2), commit(on("t", 0, offset=3), member="=a", generation=3),
               commit(on("t", 0, offset=3), member="=b", generation=2), commit(on("t", 0, offset=3)),
               commit(on("t", 0, offset=3), member="=a", generation=1), committed(on("t", 0), version=8)),
    committing("an emptied consumer group", T, commit(on("t", 0, offset=1), group="x%"), enter(version=1),
               beat(epoch=-1, version=1), commit(on("t", 0, offset=3)),
               commit(on("t", 0, offset=3), member="=a", generation=2), committed(on("t", 0), version=8)),
]  # fmt: skip


@pytest.mark.parametrize("case", [*BEAT, *DESCRIBE, *OFFSETS], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
