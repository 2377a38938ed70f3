"""Groups as textbooks tell of them: deploys, stalls, zombies, eager and cooperative rebalances, topics that grow and appear. On
three nodes, whose topics have three replicas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from interop.broker_process import BrokerProcess
from interop.clients.group_members import (
    SERVER_SIDE,
    SETTLE_S,
    GroupMember,
    produce,
    shares_of,
    wait_for_even_shares,
    wait_for_records,
    wait_for_shares,
)
from interop.clients.three_nodes import ThreeNodes, three_nodes
from interop.groups.scripted import wait_for_coordinator
from interop.pybroker_node import PybrokerNode
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from pybroker.protocol.messages.groups import DescribeGroupsRequest
from pybroker.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

PARTITIONS = 6
LIBRDKAFKA, KAFKA_PYTHON = "confluent-kafka", "kafka-python"
# Longer than anything here takes: whoever is gone for a while is not given up.
PATIENT_MS = 45_000


@pytest.fixture(scope="module")
def cluster(
    broker_class: type[BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | ThreeNodes]:
    """Of Apache Kafka, which only tests the tests here, one node."""
    if broker_class is PybrokerNode:
        with three_nodes(tmp_path_factory.mktemp("nodes")) as nodes:
            yield nodes
    else:
        with broker_class(tmp_path_factory.mktemp("cluster")) as broker:
            yield broker


def state_of(broker: BrokerProcess, group: str) -> str:
    return str(broker.ask(DescribeGroupsRequest(groups=[group])).groups[0].group_state)


def wait_for_state(broker: BrokerProcess, group: str, state: str) -> None:
    wait_until(lambda: state_of(broker, group) == state, SETTLE_S, lambda: f"{group} is {state_of(broker, group)}")


COMING = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def committed(broker: BrokerProcess, group: str) -> dict[int, int]:
    wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
    (found,) = broker.ask(OffsetFetchRequest(groups=[wanted]), 9).groups
    return {row.partition_index: row.committed_offset for topic in found.topics for row in topic.partitions}


def wait_for_commits(broker: BrokerProcess, group: str, expected: dict[int, int]) -> None:
    wait_until(lambda: committed(broker, group) == expected, SETTLE_S, lambda: f"committed is {committed(broker, group)}")


def commit_as_admin(broker: BrokerProcess, group: str, topic: str, offsets: dict[int, int]) -> None:
    """What kafka-consumer-groups --reset-offsets does to a group without members, again while its coordinator is new to it."""
    rows = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        for partition, offset in offsets.items()
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=rows)]
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)

    def is_done() -> bool:
        (answer,) = broker.ask(request, 9).topics
        codes = {row.error_code for row in answer.partitions}
        assert codes <= {ErrorCode.NONE} | COMING, answer
        return codes == {ErrorCode.NONE}

    wait_until(is_done, SETTLE_S, lambda: f"the coordinator of {group} does not come")


# Deploys.


@pytest.mark.parametrize(("name", "assignor"), [(LIBRDKAFKA, "range"), (KAFKA_PYTHON, "range"), (LIBRDKAFKA, SERVER_SIDE)])
def test_a_rolling_deploy_of_static_members_within_the_session_timeout_costs_no_rebalance(
    cluster: BrokerProcess, topic: str, name: str, assignor: str
) -> None:
    """Classic members may even be killed. With KIP-848 a place is kept for who says that it comes back, and taken by nobody
    else before the session of one that does not."""
    cluster.create_topic(topic, partitions=PARTITIONS)

    def instance(number: int) -> GroupMember:
        return GroupMember(name, cluster, topic, assignor=assignor, instance=f"instance-{number}", session_ms=PATIENT_MS)

    running = [instance(number).__enter__() for number in range(3)]
    try:
        wait_for_even_shares(PARTITIONS, *running)
        for number, old in enumerate(running):
            share, others = set(old.assignment), [one for one in running if one is not old]
            before = [one.changes for one in others]
            old.close() if assignor == SERVER_SIDE else old.kill()
            running[number] = new = instance(number).__enter__()
            wait_until(lambda: new.assignment == share, SETTLE_S, lambda: shares_of([new]))  # noqa: B023
            wait_for_records(produce(cluster, topic, PARTITIONS, 1), *running)
            assert [one.changes for one in others] == before, "an eager member has lost and got its partitions: a rebalance"
            assert new.changes == 1
    finally:
        for one in running:
            one.close()


def test_a_rolling_deploy_of_members_without_ids_costs_at_most_two_rebalances_each(cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    running = [GroupMember(KAFKA_PYTHON, cluster, topic).__enter__() for _ in range(3)]
    try:
        wait_for_even_shares(PARTITIONS, *running)
        wait_for_state(cluster, topic, "Stable")
        before = max(one.generations[-1] for one in running)
        for number in range(3):
            running[number].close()
            running[number] = GroupMember(KAFKA_PYTHON, cluster, topic).__enter__()
            wait_for_even_shares(PARTITIONS, *running)
            wait_for_records(produce(cluster, topic, PARTITIONS, 1), *running)
        after = max(one.generations[-1] for one in running)
        assert 0 < after - before <= 2 * 3
    finally:
        for one in running:
            one.close()


@pytest.mark.parametrize("assignor", ["range", SERVER_SIDE])
def test_blue_and_green_take_turns_at_a_topic_and_nothing_is_read_twice_or_left_out(
    cluster: BrokerProcess, topic: str, assignor: str
) -> None:
    """Each version is a group of its own. The one that is to serve gets the offsets of the one that did."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    written: set[tuple[int, int]] = set()
    served: list[set[tuple[int, int]]] = []
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    wait_for_coordinator(cluster)
    for version in ("blue", "green", "blue"):
        group = f"{topic}-{version}"
        commit_as_admin(cluster, group, topic, offsets)
        members = [GroupMember(LIBRDKAFKA, cluster, topic, group=group, assignor=assignor) for _ in range(2)]
        with members[0], members[1]:
            wait_for_even_shares(PARTITIONS, *members)
            written |= produce(cluster, topic, PARTITIONS, 5)
            offsets = {one: max(offset + 1 for partition, offset in written if partition == one) for one in offsets}
            wait_for_commits(cluster, group, offsets)
        served.append({place for one in members for place in one.records})
        # What comes while nobody serves is the next version's.
        written |= produce(cluster, topic, PARTITIONS, 1)
    blue, green, blue_again = served
    assert len(blue) + len(green) + len(blue_again) == len(blue | green | blue_again)
    assert blue | green | blue_again == {(one, offset) for one, end in offsets.items() for offset in range(end)}


@pytest.mark.parametrize("assignor", ["range", SERVER_SIDE])
def test_a_canary_gets_its_share_and_gives_it_back_and_nothing_is_left_out(
    cluster: BrokerProcess, topic: str, assignor: str
) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    old = [GroupMember(LIBRDKAFKA, cluster, topic, assignor=assignor) for _ in range(2)]
    expected: set[tuple[int, int]] = set()
    # Of the classic protocol the new version may even be written with another library.
    canary = GroupMember(KAFKA_PYTHON if assignor == "range" else LIBRDKAFKA, cluster, topic, assignor=assignor)
    with old[0], old[1]:
        wait_for_even_shares(PARTITIONS, *old)
        expected |= produce(cluster, topic, PARTITIONS)
        with canary:
            wait_for_even_shares(PARTITIONS, *old, canary)
            places = produce(cluster, topic, PARTITIONS)
            expected |= places
            wait_for_records(places, *old, canary)
            assert {place for place in canary.records if place in places}, "the canary has seen nothing"
        wait_for_even_shares(PARTITIONS, *old)
        expected |= produce(cluster, topic, PARTITIONS)
        wait_for_records(expected, *old, canary)


def test_a_canary_that_speaks_another_protocol_is_turned_away_and_disturbs_nobody(cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    old = [GroupMember(LIBRDKAFKA, cluster, topic, assignor="range") for _ in range(2)]
    with old[0], old[1]:
        wait_for_even_shares(PARTITIONS, *old)
        wait_for_state(cluster, topic, "Stable")
        before = [one.changes for one in old]
        canary = GroupMember(KAFKA_PYTHON, cluster, topic, assignor="roundrobin")
        with canary:
            wait_until(lambda: canary.has_ended, SETTLE_S, lambda: shares_of([canary]))
            assert "InconsistentGroupProtocol" in str(canary)
        wait_for_records(produce(cluster, topic, PARTITIONS), *old)
        assert [one.changes for one in old] == before


# Members that stall.


@pytest.mark.parametrize("name", [LIBRDKAFKA, KAFKA_PYTHON])
def test_one_that_does_not_poll_for_max_poll_interval_loses_its_share_and_gets_one_again(
    cluster: BrokerProcess, topic: str, name: str
) -> None:
    """Its heartbeats go on: it is the client that gives up, and leaves (librdkafka not so with KIP-848, whoever the broker)."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    with (
        GroupMember(name, cluster, topic, max_poll_ms=7000) as other,
        GroupMember(name, cluster, topic, max_poll_ms=7000) as slow,
    ):
        wait_for_even_shares(PARTITIONS, other, slow)
        slow.order("stall")
        wait_until(lambda: other.assignment == {*range(PARTITIONS)}, SETTLE_S, lambda: shares_of([other, slow]))
        wait_for_records(produce(cluster, topic, PARTITIONS), other)
        slow.order("go on")
        wait_for_even_shares(PARTITIONS, other, slow)
        wait_for_records(produce(cluster, topic, PARTITIONS), other, slow)


@pytest.mark.parametrize("name", [LIBRDKAFKA, KAFKA_PYTHON])
def test_a_zombie_cannot_commit_over_the_one_that_took_its_place(cluster: BrokerProcess, topic: str, name: str) -> None:
    cluster.create_topic(topic)
    with GroupMember(name, cluster, topic) as zombie:
        wait_for_shares(1, zombie)
        zombie.order("hold")
        wait_for_records(produce(cluster, topic, 1), zombie)
        zombie.freeze()
        with GroupMember(name, cluster, topic) as heir:
            wait_for_shares(1, heir)
            wait_for_records(produce(cluster, topic, 1), heir)
            wait_for_commits(cluster, topic, {0: 20})
            zombie.order("go on")
            zombie.thaw()
            wait_until(lambda: zombie.refused, SETTLE_S, lambda: "the zombie's commit was not refused")
            assert committed(cluster, topic) == {0: 20}


# Eager and cooperative.


@pytest.mark.parametrize("name", [LIBRDKAFKA, KAFKA_PYTHON])
def test_in_an_eager_rebalance_everybody_stops_until_the_last_one_has_joined(
    cluster: BrokerProcess, topic: str, name: str
) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    options = {"assignor": "range", "session_ms": PATIENT_MS}
    with GroupMember(name, cluster, topic, **options) as first, GroupMember(name, cluster, topic, **options) as frozen:  # type: ignore[arg-type]
        wait_for_even_shares(PARTITIONS, first, frozen)
        frozen.freeze()
        try:
            with GroupMember(name, cluster, topic, **options) as third:  # type: ignore[arg-type]
                wait_until(lambda: not first.assignment, SETTLE_S, lambda: shares_of([first]))
                assert state_of(cluster, topic) == "PreparingRebalance"
                places = produce(cluster, topic, PARTITIONS)
                frozen.thaw()
                wait_for_even_shares(PARTITIONS, first, frozen, third)
                wait_for_records(places, first, frozen, third)
        finally:
            frozen.thaw()


@pytest.mark.parametrize(
    ("name", "assignor"),
    [(LIBRDKAFKA, "cooperative-sticky"), (KAFKA_PYTHON, "cooperative-sticky"), (LIBRDKAFKA, SERVER_SIDE)],
)
def test_in_a_cooperative_rebalance_the_others_keep_delivering_what_does_not_move(
    cluster: BrokerProcess, topic: str, name: str, assignor: str
) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    options = {"assignor": assignor, "session_ms": PATIENT_MS}
    with GroupMember(name, cluster, topic, **options) as first, GroupMember(name, cluster, topic, **options) as frozen:  # type: ignore[arg-type]
        wait_for_even_shares(PARTITIONS, first, frozen)
        share = set(first.assignment)
        first.revoked.clear()
        # A commit would wait behind the JoinGroup, on the same connection.
        first.order("hold")
        frozen.freeze()
        try:
            with GroupMember(name, cluster, topic, **options) as third:  # type: ignore[arg-type]
                if assignor == SERVER_SIDE:
                    # Nobody waits for the frozen one: what the first gives up, the third gets at once.
                    wait_until(lambda: len(first.assignment) == 2 and third.assignment, SETTLE_S, lambda: shares_of([first]))
                else:
                    wait_for_state(cluster, topic, "PreparingRebalance")
                kept = set(first.assignment)
                places = {place for place in produce(cluster, topic, PARTITIONS) if place[0] in kept}
                if name != KAFKA_PYTHON:  # whose poll gives nothing before its JoinGroup is answered, whoever the broker
                    wait_for_records(places, first)
                    assert assignor == SERVER_SIDE or state_of(cluster, topic) == "PreparingRebalance"
                assert not kept & set(first.revoked)
                frozen.thaw()
                wait_for_even_shares(PARTITIONS, first, frozen, third)
                wait_for_records(places, first, frozen, third)
                assert len(set(first.revoked) & share) <= 1, "more than what had to move was taken away"
        finally:
            frozen.thaw()


# Topics that change.


def test_partitions_that_are_added_are_shared_by_consumers_of_the_new_protocol_too(cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(topic, partitions=2)
    options = {"assignor": SERVER_SIDE}
    with (
        GroupMember(LIBRDKAFKA, cluster, topic, **options) as first,  # type: ignore[arg-type]
        GroupMember(LIBRDKAFKA, cluster, topic, **options) as second,  # type: ignore[arg-type]
    ):
        wait_for_even_shares(2, first, second)
        more = CreatePartitionsTopic(name=topic, count=PARTITIONS, assignments=None)
        (made,) = cluster.ask(CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=False)).results
        assert made.error_code == ErrorCode.NONE, made
        wait_for_even_shares(PARTITIONS, first, second)
        cluster.wait_for_leaders(topic, PARTITIONS)
        wait_for_records(produce(cluster, topic, PARTITIONS), first, second)


def test_a_topic_that_appears_and_matches_is_read_by_classic_members_too(cluster: BrokerProcess, topic: str) -> None:
    cluster.create_topic(f"{topic}-1", partitions=2)
    with GroupMember(LIBRDKAFKA, cluster, f"^{topic}-.*", group=topic) as one:
        wait_for_shares(2, one)
        cluster.create_topic(f"{topic}-2", partitions=4)
        wait_until(lambda: one.assignment == {0, 1, 2, 3}, SETTLE_S, lambda: shares_of([one]))
