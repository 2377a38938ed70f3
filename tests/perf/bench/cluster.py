"""Three nodes of one kind as one server: started together, their topics on all of them, their costs summed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from perf.bench.process import Memory
from perf.bench.servers import LATEST, Server

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

NODES = 3
MIN_INSYNC = "2"


class ClusterTopic(NamedTuple):
    name: str
    topic_id: Uuid
    leaders: list[str]
    """The address of each partition's."""


class Cluster:
    def __init__(self, kind: type[Server], directory: Path) -> None:
        self.name, self.label = kind.name, kind.label
        self.directory = directory
        self.nodes = [kind(directory / f"node{number}") for number in range(1, NODES + 1)]
        voters = ",".join(f"{number}@127.0.0.1:{node.ports[1]}" for number, node in enumerate(self.nodes, 1))
        for number, node in enumerate(self.nodes, 1):
            node.properties = {"node.id": str(number), "controller.quorum.voters": voters}
        self._topics = 0

    def prepare(self) -> None:
        for node in self.nodes:
            node.prepare()

    def start(self) -> float:
        """Seconds until each node knows all of them."""
        began = min([node.spawn() for node in self.nodes])
        for node in self.nodes:
            node.wait(lambda node=node: self._has_company(node), "does not know the others")
        return time.monotonic() - began

    def kill(self) -> None:
        """The only end there is: one after the other they could not leave in peace, since the last has no quorum."""
        for node in self.nodes:
            node.kill()

    def cpu_s(self) -> float:
        return sum(node.cpu_s() for node in self.nodes)

    def memory(self) -> Memory:
        found = [node.memory() for node in self.nodes]
        return Memory(sum(one.rss_mb for one in found), sum(one.peak_mb for one in found))

    def create_topic(self, partitions: int) -> ClusterTopic:
        """Three replicas of each partition, all in sync; the leaders in turn."""
        self._topics += 1
        name = f"bench{self._topics:03}"
        assignments = [
            CreatableReplicaAssignment(
                partition_index=number, broker_ids=[(number + place) % NODES + 1 for place in range(NODES)]
            )
            for number in range(partitions)
        ]
        config = CreatableTopicConfig(name="min.insync.replicas", value=MIN_INSYNC)
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[config])
        first = self.nodes[0]
        created = first.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics[0]
        assert created.error_code == ErrorCode.NONE, f"{self.label} refuses to create {name}: {created}"
        made = ClusterTopic(
            name, Uuid(bytes(created.topic_id)), [self.nodes[number % NODES].address for number in range(partitions)]
        )
        for node in self.nodes:
            node.wait(lambda node=node: node.has_directories(name, partitions), f"does not make {name}")
            node.wait(lambda node=node: self._is_served(node, made), f"does not serve {name}")
        return made

    def delete_topic(self, topic: ClusterTopic) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name, topic_id=ZERO_UUID)], timeout_ms=60_000)
        deleted = self.nodes[0].ask(request).responses[0]
        assert deleted.error_code == ErrorCode.NONE, f"{self.label} refuses to delete {topic.name}: {deleted}"
        for node in self.nodes:
            node.wait(lambda node=node: node.has_directories(topic.name, 0), f"does not delete {topic.name}")

    def end_offsets(self, topic: ClusterTopic) -> list[tuple[int, int]]:
        """(error code, high watermark) of each partition, from its leader."""
        found = []
        for node in self.nodes:
            numbers = [number for number, leader in enumerate(topic.leaders) if leader == node.address]
            rows = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in numbers]
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic.name, partitions=rows)], timeout_ms=30_000
            )
            if rows:
                found += [(row.error_code, row.offset) for row in node.ask(request, 9).topics[0].partitions]
        return found

    def _has_company(self, node: Server) -> bool:
        try:
            return len(node.ask(MetadataRequest(topics=[]), 12).brokers) == NODES
        except OSError:
            return False

    def _is_served(self, node: Server, topic: ClusterTopic) -> bool:
        """Whether `node` knows of all replicas to be in sync, and the leaders are at it."""
        found = node.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]), 12).topics[0]
        if found.error_code or len(found.partitions) != len(topic.leaders):
            return False
        if any(row.error_code or len(row.isr_nodes) != NODES for row in found.partitions):
            return False
        return all(error == ErrorCode.NONE for error, _ in self.end_offsets(topic))
