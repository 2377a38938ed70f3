"""Three nodes that are controllers and brokers at once, of either make, with the stock server.properties and the JVM that
Apache Kafka's own scripts start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from interop.apache_broker import ApacheBroker
from interop.apache_kafka import JVM as TEST_JVM
from interop.broker_process import BrokerProcess
from interop.cluster.mixed import COMBINED, Nodes, mixed
from interop.pybroker_node import PybrokerNode
from perf.bench.servers import STOCK_JVM, STOCK_PROPERTIES, ApacheKafka, PyBroker, Server
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.partitions import ElectLeadersRequest, TopicPartitions
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

IDS = (1, 2, 3)
WAIT_S = 120.0
_OWN = {"node.id", "listeners", "advertised.listeners", "log.dirs"}
STOCK = {key: value for key, value in STOCK_PROPERTIES.items() if key not in _OWN}


class StockApacheNode(ApacheBroker):
    DEFAULTS = STOCK

    def command(self, config: Path) -> Sequence[str]:
        return [part for part in super().command(config) if part not in TEST_JVM]


class StockPybrokerNode(PybrokerNode):
    DEFAULTS = STOCK


MAKES: dict[type[Server], type[ApacheBroker] | type[PybrokerNode]] = {
    ApacheKafka: StockApacheNode,
    PyBroker: StockPybrokerNode,
}


class Trio:
    """A running cluster; every partition of a topic has a replica on each node, and each node leads as many."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    def __getitem__(self, node_id: int) -> BrokerProcess:
        return self.nodes[node_id]

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.nodes.by_id.values())

    def controller(self) -> int:
        """The node that is the active controller."""
        return self.nodes.leader()[0]

    def create(self, topic: str) -> None:
        row = CreatableTopic(name=topic, num_partitions=len(IDS), replication_factor=3, assignments=[], configs=[])
        (created,) = self.nodes[1].ask(CreateTopicsRequest(topics=[row], timeout_ms=30_000)).topics
        assert created.error_code == ErrorCode.NONE, created
        self.settle(topic)

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int], set[int]]]:
        """The leader, the replicas and the ISR of each, as a node that runs has them; empty if none can tell."""
        for one in self.nodes.by_id.values():
            if one.pid is not None:
                try:
                    (found,) = one.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
                except OSError:
                    continue
                return {row.partition_index: (row.leader_id, row.replica_nodes, set(row.isr_nodes)) for row in found.partitions}
        return {}

    def is_gone(self, node_id: int, topic: str) -> bool:
        """Whether no partition counts on it any more."""
        rows = self.partitions(topic)
        return bool(rows) and all(node_id != leader and node_id not in isr for leader, _, isr in rows.values())

    def settle(self, topic: str) -> None:
        """Until every replica is in sync and every partition is led by its preferred replica."""

        def in_sync() -> bool:
            rows = self.partitions(topic)
            return len(rows) == len(IDS) and all(isr == set(IDS) for _, _, isr in rows.values())

        def as_preferred() -> bool:
            return in_sync() and all(leader == replicas[0] for leader, replicas, _ in self.partitions(topic).values())

        wait_until(in_sync, WAIT_S, lambda: f"{self.partitions(topic)}\n{self.nodes.last_words()}")
        if not as_preferred():
            wanted = [TopicPartitions(topic=topic, partitions=list(range(len(IDS))))]
            self.nodes[1].ask(ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=30_000))
        wait_until(as_preferred, WAIT_S, lambda: f"{self.partitions(topic)}\n{self.nodes.last_words()}")


@contextmanager
def trio(directory: Path, server: type[Server]) -> Iterator[Trio]:
    with mixed(directory, dict.fromkeys(IDS, (MAKES[server], COMBINED)), jvm=STOCK_JVM) as nodes:
        for one in nodes.by_id.values():
            one.format_options = ()  # all features of the make: there is no other in the cluster
        nodes.start()
        nodes.wait_for_brokers(*IDS)
        yield Trio(nodes)
