"""Three nodes that a scenario asks as if they were one broker: what it asks goes to whoever leads or coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.groups import PROPERTIES, ROLES, WAIT_S, coordinator, leaders
from cluster.processes import Cluster, Member, cluster
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker.protocol.messages.produce import ProduceRequest
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest


class ThreeNodes:
    """As much of a BrokerProcess as scenarios of groups ask for."""

    def __init__(self, nodes: Cluster) -> None:
        self.nodes = nodes

    @property
    def bootstrap(self) -> str:
        return self.nodes.bootstrap

    def ask(self, request: Message, version: int | None = None) -> Any:
        with self._whom(request).client() as client:
            return client.ask(request, version)

    def _whom(self, request: Any) -> Member:
        if isinstance(request, ProduceRequest):
            (topic,) = request.topic_data
            return self.nodes[leaders(self.nodes, topic.name)[topic.partition_data[0].index]]
        groups = getattr(request, "groups", None) or getattr(request, "group_ids", None) or [request]
        group = groups[0] if isinstance(groups[0], str) else getattr(groups[0], "group_id", "")
        return coordinator(self.nodes, group) if group else self.nodes.running[0]

    def create_topic(self, name: str, partitions: int = 1) -> None:
        row = CreatableTopic(name=name, num_partitions=partitions, replication_factor=3, assignments=[], configs=[])
        (made,) = self.ask(CreateTopicsRequest(topics=[row])).topics
        assert made.error_code == ErrorCode.NONE, made
        self.wait_for_leaders(name, partitions)

    def wait_for_leaders(self, topic: str, partitions: int = 1) -> None:
        def are_there() -> bool:
            found = leaders(self.nodes, topic)
            return len(found) == partitions and all(self._serves(node, topic, one) for one, node in found.items())

        wait_until(are_there, WAIT_S, lambda: f"{topic} has no leaders")

    def _serves(self, node: int, topic: str, partition: int) -> bool:
        rows = [ListOffsetsPartition(partition_index=partition, timestamp=-1)]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=rows)], timeout_ms=10_000
        )
        with self.nodes[node].client() as client:
            return bool(client.ask(request).topics[0].partitions[0].error_code == ErrorCode.NONE)


@contextmanager
def three_nodes(directory: Path) -> Iterator[ThreeNodes]:
    with cluster(directory, ROLES, PROPERTIES) as nodes:
        nodes.start()
        yield ThreeNodes(nodes)
