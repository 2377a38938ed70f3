"""Stock clients as members of consumer groups (KIP-848): shares, joins, deaths, restarts, expressions, a rolling upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.broker_process import BrokerProcess
from interop.clients.driver import Client, Program
from interop.clients.group_members import (
    SERVER_SIDE,
    GroupMember,
    produce,
    wait_for_even_shares,
    wait_for_records,
    wait_for_shares,
)
from interop.pybroker_node import PybrokerNode
from support.waiting import wait_until

from pybroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, DescribedGroup
from pybroker.protocol.messages.groups import ListGroupsRequest

pytest.importorskip("confluent_kafka")

PARTITIONS = 6
CLIENT = "confluent-kafka"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Whose sessions are short, for members that are killed."""
    timeouts = {"group.consumer.min.session.timeout.ms": "2000", "group.consumer.session.timeout.ms": "6000"}
    with PybrokerNode(Path(tmp_path_factory.mktemp("consumers")), {"offsets.topic.num.partitions": "3", **timeouts}) as node:
        yield node


def member(broker: BrokerProcess, topic: str, *, client: str = CLIENT, **options: str) -> GroupMember:
    return GroupMember(client, broker, topic, **({"assignor": SERVER_SIDE} | options))  # type: ignore[arg-type]


def described(broker: BrokerProcess, group: str) -> DescribedGroup:
    (row,) = broker.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)).groups
    assert isinstance(row, DescribedGroup)
    return row


def test_two_share_a_topic_a_third_joins_and_one_leaves(broker: BrokerProcess, topic: str) -> None:
    broker.create_topic(topic, partitions=PARTITIONS)
    with member(broker, topic) as first, member(broker, topic) as second:
        wait_for_shares(PARTITIONS, first, second)
        wait_for_records(produce(broker, topic, PARTITIONS), first, second)
        with member(broker, topic) as third:
            wait_for_even_shares(PARTITIONS, first, second, third)
            # Only what moved was ever taken away.
            assert len(first.revoked) + len(second.revoked) <= PARTITIONS
            wait_for_records(produce(broker, topic, PARTITIONS), first, second, third)
        wait_for_shares(PARTITIONS, first, second)
        wait_for_records(produce(broker, topic, PARTITIONS), first, second)
        wait_until(lambda: described(broker, topic).group_state == "Stable", 20, lambda: str(described(broker, topic)))
        listed = broker.ask(ListGroupsRequest(states_filter=[], types_filter=["consumer"])).groups
        assert topic in [row.group_id for row in listed]


def test_one_is_killed_and_its_share_goes_to_the_other(broker: BrokerProcess, topic: str) -> None:
    broker.create_topic(topic, partitions=PARTITIONS)
    with member(broker, topic) as survivor, member(broker, topic) as victim:
        wait_for_shares(PARTITIONS, survivor, victim)
        victim.kill()
        wait_for_shares(PARTITIONS, survivor)
        wait_for_records(produce(broker, topic, PARTITIONS), survivor)


def test_what_one_has_committed_the_next_does_not_read_again(broker: BrokerProcess, topic: str) -> None:
    broker.create_topic(topic, partitions=PARTITIONS)
    with member(broker, topic) as first:
        wait_for_records(produce(broker, topic, PARTITIONS), first)
    later = produce(broker, topic, PARTITIONS)
    with member(broker, topic) as second:
        wait_for_records(later, second)
    assert not set(first.records) & set(second.records)


def test_a_static_member_that_restarts_disturbs_nobody(broker: BrokerProcess, topic: str) -> None:
    broker.create_topic(topic, partitions=PARTITIONS)
    with member(broker, topic, instance="a") as other:
        with member(broker, topic, instance="b") as first_life:
            wait_for_even_shares(PARTITIONS, other, first_life)
            changes, share = other.changes, set(first_life.assignment)
        with member(broker, topic, instance="b") as second_life:
            wait_until(lambda: second_life.assignment == share, 30, lambda: f"its share is {second_life.assignment}")
            wait_for_records(produce(broker, topic, PARTITIONS), other, second_life)
            assert other.changes == changes


def test_topics_that_match_an_expression_are_read_when_they_come(broker: BrokerProcess, topic: str) -> None:
    broker.create_topic(f"{topic}-1", partitions=2)
    with member(broker, f"^{topic}-.*", group=topic) as one:
        wait_for_shares(2, one)
        broker.create_topic(f"{topic}-2", partitions=4)
        wait_until(lambda: one.assignment == {0, 1, 2, 3}, 60, lambda: f"it reads {one.assignment}")


def test_a_rolling_upgrade_and_the_way_back(broker: BrokerProcess, topic: str) -> None:
    broker.create_topic(topic, partitions=PARTITIONS)
    with member(broker, topic, assignor="cooperative-sticky") as old:
        wait_for_shares(PARTITIONS, old)
        with member(broker, topic) as new:
            wait_for_shares(PARTITIONS, old, new)
            assert {row.member_type for row in described(broker, topic).members} == {0, 1}
            wait_for_records(produce(broker, topic, PARTITIONS), old, new)
        wait_for_shares(PARTITIONS, old)
        wait_for_records(produce(broker, topic, PARTITIONS), old)
        listed = {
            row.group_id: row.group_type for row in broker.ask(ListGroupsRequest(states_filter=[], types_filter=[])).groups
        }
        assert listed[topic] == "classic"


@pytest.mark.parametrize("client", ["java-4"], indirect=True)
def test_the_java_consumer_joins_reads_commits_and_leaves(client: Client, cluster: BrokerProcess, topic: str) -> None:
    assert isinstance(client, Program)
    cluster.create_topic(topic, partitions=PARTITIONS)
    for _ in range(2):
        expected = produce(cluster, topic, PARTITIONS)
        read = client.call("read_as_group", topic=topic, group=topic, count=len(expected), group_protocol="consumer")
        assert {(partition, offset) for partition, offset in read} == expected
        wait_until(lambda: described(cluster, topic).group_state == "Empty", 20, lambda: str(described(cluster, topic)))
        assert described(cluster, topic).members == []
