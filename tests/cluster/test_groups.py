"""Groups in a cluster of real processes: the coordinator moves, and neither members nor offsets are lost."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cluster.processes import COMBINED, Cluster, Member, cluster
from interop.clients.group_members import (
    SERVER_SIDE,
    GroupMember,
    shared_ownerships,
    wait_for_even_shares,
    wait_for_records,
    wait_for_shares,
)
from support.batches import batch
from support.node_client import NodeClient
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import consumer_groups, group_offsets, groups
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

WAIT_S = 60.0
PARTITIONS = 6
ROLES = {1: COMBINED, 2: COMBINED, 3: COMBINED}
PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
}


def create_topic(nodes: Cluster, name: str) -> None:
    with nodes.running[0].client() as client:
        row = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=3, assignments=[], configs=[])
        (made,) = client.ask(CreateTopicsRequest(topics=[row])).topics
        assert made.error_code == ErrorCode.NONE, made
    wait_until(lambda: len(leaders(nodes, name)) == PARTITIONS, WAIT_S, lambda: "no leaders")


def leaders(nodes: Cluster, topic: str) -> dict[int, int]:
    """Running leaders by partition, as far as there are any."""
    running = {one.id for one in nodes.running}
    with nodes.running[0].client() as client:
        (found,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
        return {row.partition_index: row.leader_id for row in found.partitions if row.leader_id in running}


def produce(nodes: Cluster, topic: str, count: int = 5) -> set[tuple[int, int]]:
    """To every partition, at whoever leads it; the places of what was acknowledged."""
    places = set()
    for partition in range(PARTITIONS):
        data = PartitionProduceData(index=partition, records=bytes(batch([b"value"] * count)))
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
        first = wait_until(lambda: _sent(nodes, topic, partition, request), WAIT_S, lambda: "no leader takes records")  # noqa: B023
        places |= {(partition, first[0] + number) for number in range(count)}
    return places


def _sent(nodes: Cluster, topic: str, partition: int, request: ProduceRequest) -> tuple[int] | None:
    leader = leaders(nodes, topic).get(partition)
    if leader is None:
        return None
    try:
        with nodes[leader].client() as client:
            done = client.ask(request, 12).responses[0].partition_responses[0]
    except OSError:
        return None
    return (done.base_offset,) if done.error_code == ErrorCode.NONE else None


def coordinator(nodes: Cluster, group: str) -> Member:
    def found() -> Member | None:
        for member in nodes.running:
            try:
                with member.client() as client:
                    (row,) = client.ask(groups.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])).coordinators
            except OSError:
                continue
            if row.error_code == ErrorCode.NONE and nodes[row.node_id].process is not None:
                return nodes[row.node_id]
        return None

    return wait_until(found, WAIT_S, lambda: "there is no coordinator")  # type: ignore[return-value]


def ask(nodes: Cluster, group: str, request: Any, version: int | None = None) -> Any:
    """Of the group's coordinator, as soon as it is ready."""

    def answered() -> Any:
        try:
            with NodeClient(coordinator(nodes, group).broker_port) as client:
                answer = client.ask(request, version)
        except OSError:
            return None
        row = answer.groups[0]
        is_ready = row.error_code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return answer if is_ready else None

    return wait_until(answered, WAIT_S, lambda: "the coordinator does not answer")


def committed(nodes: Cluster, group: str) -> dict[int, int]:
    wanted = group_offsets.OffsetFetchRequestGroup(group_id=group, topics=None)
    (found,) = ask(nodes, group, group_offsets.OffsetFetchRequest(groups=[wanted], require_stable=True), 9).groups
    return {row.partition_index: row.committed_offset for topic in found.topics for row in topic.partitions}


def members_of(nodes: Cluster, topic: str, name: str, count: int, assignor: str = "range") -> list[GroupMember]:
    bootstrap: Any = SimpleNamespace(bootstrap=",".join(f"127.0.0.1:{one.broker_port}" for one in nodes.brokers))
    return [GroupMember(name, bootstrap, topic, session_ms=20_000, assignor=assignor) for _ in range(count)]


@pytest.mark.parametrize("name", ["kafka-python", "confluent-kafka", "aiokafka"])
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_coordinators_broker_goes_and_the_group_goes_on(tmp_path: Path, name: str, how: str) -> None:
    with cluster(tmp_path, ROLES, PROPERTIES) as nodes:
        nodes.start()
        create_topic(nodes, "t")
        first, second = members_of(nodes, "t", name, 2)
        with first, second:
            wait_for_shares(PARTITIONS, first, second)
            wait_for_records(produce(nodes, "t"), first, second)
            wait_until(lambda: committed(nodes, "t") == dict.fromkeys(range(PARTITIONS), 5), WAIT_S, lambda: "not committed")
            old = coordinator(nodes, "t")
            old.kill() if how == "kill" else old.stop()
            assert coordinator(nodes, "t").id != old.id
            before = committed(nodes, "t")
            assert all(before[partition] >= 5 for partition in range(PARTITIONS))
            wait_for_records(produce(nodes, "t"), first, second)
            wait_for_shares(PARTITIONS, first, second)
            old.start()
            old.wait_ready()
            wait_for_records(produce(nodes, "t"), first, second)
        read = sorted(place for member in (first, second) for place in member.records)
        assert set(read) >= {(partition, offset) for partition in range(PARTITIONS) for offset in range(15)}


@pytest.mark.parametrize("name", ["kafka-python", "confluent-kafka"])
def test_the_coordinator_is_killed_in_the_middle_of_a_rebalance(tmp_path: Path, name: str) -> None:
    with cluster(tmp_path, ROLES, PROPERTIES) as nodes:
        nodes.start()
        create_topic(nodes, "t")
        first, second, third = members_of(nodes, "t", name, 3)
        with first, second:
            wait_for_shares(PARTITIONS, first, second)
            wait_for_records(produce(nodes, "t"), first, second)
            wait_until(lambda: committed(nodes, "t") == dict.fromkeys(range(PARTITIONS), 5), WAIT_S, lambda: "not committed")
            with third:
                wait_until(lambda: state_of(nodes, "t") == "PreparingRebalance", WAIT_S, lambda: "there is no rebalance")
                coordinator(nodes, "t").kill()
                wait_for_shares(PARTITIONS, first, second, third)
                wait_for_records(produce(nodes, "t"), first, second, third)
                found = committed(nodes, "t")
                assert all(found[partition] >= 5 for partition in range(PARTITIONS)), found
                wait_until(lambda: state_of(nodes, "t") == "Stable", WAIT_S, lambda: f"it is {state_of(nodes, 't')}")
                assert shared_ownerships(first, second, third) == []


def state_of(nodes: Cluster, group: str) -> str:
    return str(ask(nodes, group, groups.DescribeGroupsRequest(groups=[group])).groups[0].group_state)


@pytest.mark.parametrize("round_", range(2))
def test_the_coordinator_is_killed_while_consumers_of_the_new_protocol_reconcile(tmp_path: Path, round_: int) -> None:
    """KIP-848: some have given up what others are to get when the coordinator dies; its heir knows all of it from the log."""
    with cluster(tmp_path, ROLES, PROPERTIES) as nodes:
        nodes.start()
        create_topic(nodes, "t")
        first, second, third = members = members_of(nodes, "t", "confluent-kafka", 3, SERVER_SIDE)
        with first, second:
            wait_for_even_shares(PARTITIONS, first, second)
            wait_for_records(produce(nodes, "t"), first, second)
            wait_until(lambda: committed(nodes, "t") == dict.fromkeys(range(PARTITIONS), 5), WAIT_S, lambda: "not committed")
            before = described(nodes, "t").group_epoch
            watch = Watch(nodes, "t")
            with third, watch:
                # A member more, and not everybody has come to the new epoch: at its beginning, or in the midst of it.
                states = ("Assigning", "Reconciling") if round_ == 0 else ("Reconciling",)
                wait_until(lambda: described(nodes, "t").group_state in states, WAIT_S, lambda: "it does not reconcile")
                old = coordinator(nodes, "t")
                old.kill()
                found = committed(nodes, "t")
                assert all(found[partition] >= 5 for partition in range(PARTITIONS)), found
                wait_for_even_shares(PARTITIONS, *members)
                wait_for_records(produce(nodes, "t"), *members)
                wait_until(lambda: described(nodes, "t").group_state == "Stable", WAIT_S, lambda: f"{described(nodes, 't')}")
                row = described(nodes, "t")
                assert row.group_epoch > before
                assert {one.member_epoch for one in row.members} == {row.group_epoch}
                old.start()
                old.wait_ready()
                wait_for_records(produce(nodes, "t"), *members)
            assert watch.seen > 0
            assert watch.doubly_owned == []
            assert shared_ownerships(*members) == []
        read = {place for member in members for place in member.records}
        assert read >= {(partition, offset) for partition in range(PARTITIONS) for offset in range(15)}


def described(nodes: Cluster, group: str) -> Any:
    request = consumer_groups.ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return ask(nodes, group, request).groups[0]


class Watch:
    """Looks at a consumer group all the time: which partitions its coordinator has given to two members at once."""

    def __init__(self, nodes: Cluster, group: str) -> None:
        self.seen = 0
        self.doubly_owned: list[str] = []
        self._nodes = nodes
        self._group = group
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        while not self._is_over.wait(0.05):
            row = described(self._nodes, self._group)
            owned = [one for member in row.members for topic in member.assignment.topic_partitions for one in topic.partitions]
            self.seen += 1
            if len(owned) != len(set(owned)):
                self.doubly_owned.append(str(row))
