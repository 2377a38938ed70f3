"""Groups in a cluster of real processes, seen from a test: the topic they read, their coordinator, what they have committed."""

from __future__ import annotations

from typing import Any

from cluster.processes import COMBINED, Cluster, Member
from interop.clients.group_members import GroupMember, produce_request
from support.node_client import NodeClient
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import consumer_groups, group_offsets, groups
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.produce import ProduceRequest
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
        request = produce_request(topic, partition, count)
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


def log_ends(nodes: Cluster, topic: str) -> dict[int, int]:
    ends = {}
    for partition, leader in leaders(nodes, topic).items():
        with nodes[leader].client() as client:
            ends[partition] = client.offset(topic, partition=partition)
    return ends


def wait_for_commits(nodes: Cluster, topic: str) -> dict[int, int]:
    """Until the group of that name has committed all that is in the topic; what that is."""
    ends = log_ends(nodes, topic)
    assert len(ends) == PARTITIONS, f"leaders are missing: {ends}"
    wait_until(lambda: committed(nodes, topic) == ends, WAIT_S, lambda: f"{committed(nodes, topic)} of {ends} is committed")
    return ends


def members_of(nodes: Cluster, topic: str, name: str, count: int, assignor: str = "range", **options: Any) -> list[GroupMember]:
    """Of the client with that name; the group has the topic's name."""
    return [GroupMember(name, nodes, topic, assignor=assignor, **({"session_ms": 20_000} | options)) for _ in range(count)]


def state_of(nodes: Cluster, group: str) -> str:
    return str(ask(nodes, group, groups.DescribeGroupsRequest(groups=[group])).groups[0].group_state)


def described(nodes: Cluster, group: str) -> Any:
    request = consumer_groups.ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    return ask(nodes, group, request).groups[0]
