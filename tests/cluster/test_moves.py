"""Replicas of real processes move: to a broker that is new, no faster than a throttle allows, between log directories; and
leadership goes back to where it belongs. A producer writes meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.processes import BROKER, COMBINED, CONTROLLER, Cluster, Member, cluster
from support.waiting import wait_until

from pybroker.metadata.image import ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from pybroker.protocol.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

confluent_kafka = pytest.importorskip("confluent_kafka")

from cluster.traffic import PARTITIONS, WAIT_S, create, partition_rows, read_all, wait_in_sync, writing  # noqa: E402

ROLES = {9: CONTROLLER, 1: BROKER, 2: BROKER, 3: BROKER}
PROPERTIES = {"log.cleaner.dedupe.buffer.size": "4194304"}
RECORD = bytes(100_000)
FETCH_BYTES = 1_048_576  # replica.fetch.max.bytes


def reassign(nodes: Cluster, topic: str, replicas: dict[int, list[int]]) -> None:
    rows = [ReassignablePartition(partition_index=index, replicas=ids) for index, ids in replicas.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=rows)], timeout_ms=10_000)
    answer = nodes.leader().ask_controller(request)
    assert {row.error_code for one in answer.responses for row in one.partitions} == {ErrorCode.NONE}, answer


def wait_replicas(nodes: Cluster, topic: str, replicas: dict[int, set[int]]) -> None:
    """Until just these are in sync."""
    wait_until(
        lambda: {index: isr for index, (_, isr) in partition_rows(nodes, topic).items()} == replicas,
        WAIT_S,
        lambda: f"{partition_rows(nodes, topic)}, expected {replicas}",
    )


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    """Broker 3 is not started yet."""
    with cluster(tmp_path, ROLES, PROPERTIES) as made:
        for node_id in (9, 1, 2):
            made[node_id].start()
        for node_id in (9, 1, 2):
            made[node_id].wait_ready()
        yield made


def test_a_new_broker_takes_its_share_while_a_producer_writes(nodes: Cluster) -> None:
    create(nodes, "t", replication_factor=2)
    with writing(nodes, "t") as written:
        written.wait_for_more()
        nodes[3].start().wait_ready()
        reassign(nodes, "t", {0: [3, 1], 1: [2, 3], 2: [3, 2]})
        wait_replicas(nodes, "t", {0: {1, 3}, 1: {2, 3}, 2: {2, 3}})
        written.wait_for_more()
    assert written.errors == []
    found = read_all(nodes, "t", len(written.acked))
    assert {value for value, place in written.acked.items() if found.get(value) != [place]} == set()
    # Who has no replica any more has no files of it either.
    gone = [nodes[1].directory / "data" / "t-1", nodes[1].directory / "data" / "t-2", nodes[2].directory / "data" / "t-0"]
    wait_until(lambda: not any(path.exists() for path in gone), WAIT_S, lambda: f"one of {gone} is still there")


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_comes_no_faster_than_its_throttle_and_then_at_once_without(nodes: Cluster, side: str) -> None:
    size_bytes, rate = 60 * len(RECORD), 1_000_000
    with nodes[1].client() as client:
        client.create_topic("t")
    wait_until(lambda: 0 in partition_rows(nodes, "t"), WAIT_S, lambda: "t is not known")
    leader, _ = partition_rows(nodes, "t")[0]
    with nodes[leader].client() as client:
        for _ in range(size_bytes // len(RECORD)):
            client.produce("t", [RECORD])
    nodes[3].start().wait_ready()
    throttled = leader if side == "leader" else 3
    with nodes[throttled].client() as client:
        client.configure(ResourceType.TOPIC, "t", {f"{side}.replication.throttled.replicas": f"0:{throttled}"})
        client.configure(ResourceType.BROKER, str(throttled), {f"{side}.replication.throttled.rate": str(rate)})
    began = time.monotonic()
    reassign(nodes, "t", {0: [3]})
    log = nodes[3].directory / "data" / "t-0"

    def copied_bytes() -> int:
        return sum(file.stat().st_size for file in log.glob("*.log"))

    most = size_bytes * 5 // 6
    wait_until(lambda: copied_bytes() >= most, WAIT_S, lambda: f"{copied_bytes()} copied\n{nodes[3].said[-2000:]}")
    took_s = time.monotonic() - began
    # The first fetch comes at once, and one may be under way when the throttle bites.
    assert took_s > (most - 2 * FETCH_BYTES) / rate, took_s
    with nodes[throttled].client() as client:
        client.configure(ResourceType.BROKER, str(throttled), {f"{side}.replication.throttled.rate": str(10**12)})
    wait_replicas(nodes, "t", {0: {3}})
    assert copied_bytes() >= size_bytes
    assert "not a known key" not in nodes[3].said


def test_a_replica_moves_to_the_other_log_directory_of_its_broker_while_a_producer_writes(tmp_path: Path) -> None:
    with cluster(tmp_path, {1: COMBINED}, PROPERTIES) as nodes:
        member = nodes[1]
        paths = [str(member.directory / "data"), str(member.directory / "other")]
        member.write(nodes.quorum() | PROPERTIES | {"log.dirs": ",".join(paths)})
        member.format("--ignore-formatted")
        nodes.start()
        create(nodes, "t", replication_factor=1)
        with writing(nodes, "t") as written:
            written.wait_for_more()
            before = directories(member, "t")
            wanted = {index: paths[1 - paths.index(before[index])] for index in range(PARTITIONS)}
            for index, path in wanted.items():
                topics = [AlterReplicaLogDirTopic(name="t", partitions=[index])]
                with member.client() as client:
                    answer = client.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)]))
                assert answer.results[0].partitions[0].error_code == ErrorCode.NONE, answer
            wait_until(lambda: directories(member, "t") == wanted, WAIT_S, lambda: f"{directories(member, 't')}, not {wanted}")
            written.wait_for_more()
        assert written.errors == []
        found = read_all(nodes, "t", len(written.acked))
        assert {value for value, place in written.acked.items() if found.get(value) != [place]} == set()


def directories(member: Member, topic: str) -> dict[int, str]:
    """Where the replicas are, those that are just being copied left out."""
    with member.client() as client:
        answer = client.ask(DescribeLogDirsRequest(topics=None))
    return {
        row.partition_index: result.log_dir
        for result in answer.results
        for one in result.topics
        for row in one.partitions
        if one.name == topic and not row.is_future_key
    }


@pytest.mark.parametrize("by_itself", [True, False], ids=["by itself", "on demand"])
def test_the_preferred_replica_leads_again_after_it_was_killed(tmp_path: Path, by_itself: bool) -> None:
    properties = PROPERTIES | {
        "auto.leader.rebalance.enable": str(by_itself).lower(),
        "leader.imbalance.check.interval.seconds": "1",
    }
    with cluster(tmp_path, dict.fromkeys((1, 2, 3), COMBINED), properties) as nodes:
        nodes.start()
        create(nodes, "t")
        wait_in_sync(nodes, "t", {1, 2, 3})
        leaders = {index: leader for index, (leader, _) in partition_rows(nodes, "t").items()}
        with writing(nodes, "t") as written:
            written.wait_for_more()
            victim = leaders[0]
            nodes[victim].kill()
            wait_until(
                lambda: all(leader not in (victim, -1) for leader, _ in partition_rows(nodes, "t").values()),
                WAIT_S,
                lambda: f"{partition_rows(nodes, 't')}",
            )
            nodes[victim].start().wait_ready()
            wait_in_sync(nodes, "t", {1, 2, 3})
            if not by_itself:
                wanted = [TopicPartitions(topic="t", partitions=list(range(PARTITIONS)))]
                with nodes[victim].client() as client:
                    client.ask(ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=10_000))
            wait_until(
                lambda: {index: leader for index, (leader, _) in partition_rows(nodes, "t").items()} == leaders,
                WAIT_S,
                lambda: f"{partition_rows(nodes, 't')}, expected {leaders}",
            )
            written.wait_for_more()
        assert written.errors == []
