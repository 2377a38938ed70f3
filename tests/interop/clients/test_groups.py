"""Stock clients as members of classic groups: shares, rebalances, deaths, restarts, and what was committed."""

from __future__ import annotations

import pytest
from interop.broker_process import BrokerProcess
from interop.clients.driver import Client, Program
from interop.clients.group_members import GroupMember, produce, wait_for_even_shares, wait_for_records, wait_for_shares
from support.waiting import wait_until

from pybroker.protocol.messages.groups import DescribedGroup, DescribeGroupsRequest

PARTITIONS = 6

every_member = pytest.mark.parametrize("name", ["kafka-python", "confluent-kafka", "aiokafka"])


def described(broker: BrokerProcess, group: str, state: str) -> DescribedGroup:
    """As soon as it is in that state: what a member does last, the client need not wait for."""

    def found() -> DescribedGroup:
        (row,) = broker.ask(DescribeGroupsRequest(groups=[group])).groups
        assert isinstance(row, DescribedGroup)
        return row

    return wait_until(lambda: row if (row := found()).group_state == state else None, 20, lambda: str(found()))  # type: ignore[return-value]


@every_member
def test_two_share_a_topic_a_third_joins_and_one_leaves(cluster: BrokerProcess, topic: str, name: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    with GroupMember(name, cluster, topic) as first, GroupMember(name, cluster, topic) as second:
        wait_for_shares(PARTITIONS, first, second)
        wait_for_records(produce(cluster, topic, PARTITIONS), first, second)
        with GroupMember(name, cluster, topic) as third:
            wait_for_even_shares(PARTITIONS, first, second, third)
            wait_for_records(produce(cluster, topic, PARTITIONS), first, second, third)
        wait_for_shares(PARTITIONS, first, second)
        wait_for_records(produce(cluster, topic, PARTITIONS), first, second)


@every_member
def test_one_is_killed_and_its_share_goes_to_the_other_when_its_session_is_over(
    cluster: BrokerProcess, topic: str, name: str
) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    with GroupMember(name, cluster, topic) as survivor, GroupMember(name, cluster, topic) as victim:
        wait_for_shares(PARTITIONS, survivor, victim)
        victim.kill()
        wait_for_shares(PARTITIONS, survivor)
        wait_for_records(produce(cluster, topic, PARTITIONS), survivor)


@every_member
def test_what_one_has_committed_the_next_does_not_read_again(cluster: BrokerProcess, topic: str, name: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    with GroupMember(name, cluster, topic) as first:
        wait_for_records(produce(cluster, topic, PARTITIONS), first)
    later = produce(cluster, topic, PARTITIONS)
    with GroupMember(name, cluster, topic) as second:
        wait_for_records(later, second)
    assert not set(first.records) & set(second.records)


@pytest.mark.parametrize(
    ("name", "assignor"),
    [
        ("kafka-python", "roundrobin"),
        ("kafka-python", "sticky"),
        ("kafka-python", "cooperative-sticky"),
        ("confluent-kafka", "roundrobin"),
        ("confluent-kafka", "cooperative-sticky"),
        ("aiokafka", "roundrobin"),
        ("aiokafka", "sticky"),
    ],
)
def test_each_assignor_shares_fairly(cluster: BrokerProcess, topic: str, name: str, assignor: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    with (
        GroupMember(name, cluster, topic, assignor=assignor) as first,
        GroupMember(name, cluster, topic, assignor=assignor) as second,
    ):
        wait_for_shares(PARTITIONS, first, second)
        with GroupMember(name, cluster, topic, assignor=assignor) as third:
            wait_for_even_shares(PARTITIONS, first, second, third)
            wait_for_records(produce(cluster, topic, PARTITIONS), first, second, third)
            if assignor == "cooperative-sticky":
                # Only what moved was ever taken away.
                assert len(first.revoked) + len(second.revoked) <= PARTITIONS


@every_member
def test_a_static_member_that_restarts_in_time_disturbs_nobody(cluster: BrokerProcess, topic: str, name: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    options = {"session_ms": 30_000}
    with GroupMember(name, cluster, topic, instance="a", **options) as other:
        with GroupMember(name, cluster, topic, instance="b", **options) as first_life:
            wait_for_even_shares(PARTITIONS, other, first_life)
            changes, share = other.changes, set(first_life.assignment)
            first_life.kill()
        with GroupMember(name, cluster, topic, instance="b", **options) as second_life:
            wait_until(lambda: second_life.assignment == share, 30, lambda: f"its share is {second_life.assignment}")
            wait_for_records(produce(cluster, topic, PARTITIONS), other, second_life)
            assert other.changes == changes


@every_member
def test_partitions_that_are_added_are_shared_too(cluster: BrokerProcess, topic: str, name: str) -> None:
    pytest.importorskip("kafka")
    from kafka.admin import KafkaAdminClient

    cluster.create_topic(topic, partitions=2)
    with GroupMember(name, cluster, topic) as first, GroupMember(name, cluster, topic) as second:
        wait_for_shares(2, first, second)
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        admin.create_partitions({topic: PARTITIONS})
        admin.close()
        wait_for_shares(PARTITIONS, first, second)
        cluster.wait_for_leaders(topic, PARTITIONS)
        wait_for_records(produce(cluster, topic, PARTITIONS), first, second)


@every_member
def test_the_coordinator_dies_and_the_group_goes_on_where_it_was(
    broker_class: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory, topic: str, name: str
) -> None:
    with broker_class(tmp_path_factory.mktemp("killed"), {"offsets.topic.num.partitions": "3"}) as broker:
        broker.create_topic(topic, partitions=PARTITIONS)
        with (
            GroupMember(name, broker, topic, session_ms=20_000) as first,
            GroupMember(name, broker, topic, session_ms=20_000) as second,
        ):
            wait_for_even_shares(PARTITIONS, first, second)
            before = produce(broker, topic, PARTITIONS)
            wait_for_records(before, first, second)
            # Each has committed what it read before it asks for more.
            wait_for_records(produce(broker, topic, PARTITIONS, 1), first, second)
            shares = set(first.assignment), set(second.assignment)
            broker.restart(clean=False)
            broker.wait_for_leaders(topic, PARTITIONS)
            wait_for_records(produce(broker, topic, PARTITIONS), first, second)
            assert (first.assignment, second.assignment) == shares
            assert len(described(broker, topic, "Stable").members) == 2
        repeated = [place for member in (first, second) for place in member.records if place in before]
        assert sorted(repeated) == sorted(before)


@pytest.mark.parametrize("leader", ["kafka-python", "confluent-kafka", "aiokafka"])
def test_members_of_different_libraries_form_one_group(cluster: BrokerProcess, topic: str, leader: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    others = [name for name in ("kafka-python", "confluent-kafka", "aiokafka") if name != leader]
    with GroupMember(leader, cluster, topic) as first:
        wait_for_shares(PARTITIONS, first)
        with GroupMember(others[0], cluster, topic) as second, GroupMember(others[1], cluster, topic) as third:
            wait_for_shares(PARTITIONS, first, second, third)
            wait_for_records(produce(cluster, topic, PARTITIONS), first, second, third)


@pytest.mark.parametrize("client", ["java-4", "java-3", "franz-go", "sarama", "kafka-go", "kafkajs"], indirect=True)
def test_other_languages_join_read_commit_and_leave(client: Client, cluster: BrokerProcess, topic: str) -> None:
    assert isinstance(client, Program)
    cluster.create_topic(topic, partitions=PARTITIONS)
    for _ in range(2):
        expected = produce(cluster, topic, PARTITIONS)
        assert set(client.read_as_group(topic, topic, len(expected))) == expected
        assert described(cluster, topic, "Empty").protocol_type == "consumer"
