from __future__ import annotations

from unit.metadata.clusters import TestCluster

from pybroker.metadata.controller.elections import MAX_ELECTIONS, ElectionType
from pybroker.metadata.image import UNASSIGNED_DIRECTORY, ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import ConfigRecord, PartitionChangeRecord
from pybroker.protocol.messages.partitions import ElectLeadersRequest, TopicPartitions

BALANCE_MS = 300_000


def elect(cluster: TestCluster, kind: int, topic: str | None, *indexes: int) -> dict[tuple[str, int], ErrorCode]:
    wanted = None if topic is None else [TopicPartitions(topic=topic, partitions=[*indexes])]
    response = cluster.ask(ElectLeadersRequest(election_type=kind, topic_partitions=wanted))
    assert response.error_code == ErrorCode.NONE
    return {
        (one.topic, row.partition_id): ErrorCode(row.error_code)
        for one in response.replica_election_results
        for row in one.partition_result
    }


def moved(cluster: TestCluster, topic: str, index: int, leader: int) -> None:
    topic_id = cluster.image.topics[topic].topic_id
    cluster.replay(PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader))


def test_a_preferred_leader_is_elected_if_it_can_lead() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2], [1, 2], [2, 1])
    moved(cluster, "t", 0, 2)
    assert elect(cluster, ElectionType.PREFERRED, "t", 0, 1, 7) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert cluster.leaders("t") == [1, 1, 2]
    cluster.heartbeat(1, want_fence=True)
    assert elect(cluster, ElectionType.PREFERRED, "t", 0) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(cluster, ElectionType.PREFERRED, "nobody", 0) == {("nobody", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_the_end_of_a_reassignment_is_no_election() -> None:
    """Seeds 852 and 856 of the cluster's simulation: all was set for it to end, but for the preferred leader."""
    cluster = TestCluster((1, 2, 3))
    cluster.assign("t", [1, 2])
    cluster.heartbeat(1, want_fence=True)
    moving = PartitionChangeRecord(
        partition_id=0,
        topic_id=cluster.image.topics["t"].topic_id,
        replicas=[1, 3, 2],
        isr=[3],
        leader=3,
        adding_replicas=[3],
        removing_replicas=[2],
        directories=[UNASSIGNED_DIRECTORY] * 3,
    )
    cluster.replay(moving)
    assert elect(cluster, ElectionType.PREFERRED, None) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    state = cluster.partition("t")
    assert (state.replicas, state.adding_replicas, state.removing_replicas, state.leader) == ((1, 3), (), (), 3)


def test_asked_of_all_only_those_are_told_of_that_it_was_for() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2], [1, 2])
    cluster.assign("u", [2, 1])
    moved(cluster, "t", 1, 2)
    assert elect(cluster, ElectionType.PREFERRED, None) == {("t", 1): ErrorCode.NONE}
    assert cluster.leaders("t") == [1, 1]


def test_an_operator_may_elect_uncleanly() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2])
    assert elect(cluster, ElectionType.UNCLEAN, "t", 0) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    cluster.heartbeat(2, 1, want_fence=True)
    assert elect(cluster, ElectionType.UNCLEAN, "t", 0) == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    cluster.heartbeat(2)
    assert elect(cluster, ElectionType.UNCLEAN, "t", 0) == {("t", 0): ErrorCode.NONE}
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


def test_an_election_of_no_known_type_is_refused() -> None:
    cluster = TestCluster()
    cluster.assign("t", [1])
    wanted = [TopicPartitions(topic="t", partitions=[0])]
    response = cluster.ask(ElectLeadersRequest(election_type=5, topic_partitions=wanted))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST


def test_leaders_are_balanced_every_five_minutes() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2], [2, 1])
    moved(cluster, "t", 0, 2)
    assert cluster.pass_time(BALANCE_MS - 1, 1, 2) == []
    assert len(cluster.pass_time(1, 1, 2)) == 1
    assert cluster.leaders("t") == [1, 2]


def test_leaders_are_not_balanced_where_it_is_switched_off() -> None:
    cluster = TestCluster((1, 2), auto_leader_rebalance_enable="false")
    cluster.assign("t", [1, 2])
    moved(cluster, "t", 0, 2)
    assert cluster.pass_time(2 * BALANCE_MS, 1, 2) == []


def test_many_are_balanced_in_portions_one_right_after_the_other() -> None:
    cluster = TestCluster((1, 2))
    count = 2 * MAX_ELECTIONS + 1
    cluster.assign("t", *([1, 2] for _ in range(count)))
    for index in range(count):
        moved(cluster, "t", index, 2)
    cluster.pass_time(BALANCE_MS - 1, 1, 2)
    portions = []
    cluster.now_ms += 1
    while (result := cluster.controller.tick(cluster.now_ms)) is not None:
        portions.append(len(result.records))
        cluster.replay(*result.records)
    assert portions == [MAX_ELECTIONS, MAX_ELECTIONS, 1]
    assert set(cluster.leaders("t")) == {1}


def test_a_leaderless_partition_is_led_uncleanly_once_its_topic_allows_it() -> None:
    cluster = TestCluster((1, 2), unclean_leader_election_interval_ms="60000")
    cluster.assign("t", [1, 2])
    cluster.heartbeat(2, 1, want_fence=True)
    cluster.heartbeat(2)
    assert cluster.leaders("t") == [-1]
    assert cluster.pass_time(60_000, 2) == []
    name = "unclean.leader.election.enable"
    cluster.replay(ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name=name, value="true"))
    cluster.pass_time(60_000, 2)
    assert cluster.leaders("t") == [2]
