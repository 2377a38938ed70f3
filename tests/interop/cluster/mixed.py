"""Clusters of nodes of both makes: each is an ApacheBroker or a PybrokerNode, with roles of its own.

with mixed(tmp_path, {1: (OURS, CONTROLLER), 11: (APACHE, BROKER)}) as nodes:
    nodes.start()
    nodes[11].create_topic("t")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from interop.apache_broker import ApacheBroker
from interop.broker_process import BrokerProcess, ask, free_ports
from interop.pybroker_node import PybrokerNode
from support.waiting import wait_until

from pybroker.metadata.controller.feature_levels import LEVELS
from pybroker.metadata.controller.features import SUPPORTED
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import MetadataRequest
from pybroker.protocol.messages.raft import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)

Make = type[ApacheBroker] | type[PybrokerNode]
APACHE: Make = ApacheBroker
OURS: Make = PybrokerNode
CONTROLLER, BROKER, COMBINED = "controller", "broker", "broker,controller"
WAIT_S: Final = 60.0
# What Apache Kafka would finalize by itself and ours does not claim: its nodes are formatted without.
WITHOUT: Final = [word for name in LEVELS if name not in SUPPORTED for word in ("--feature", f"{name}=0")]


class Nodes:
    def __init__(
        self,
        directory: Path,
        kinds: Mapping[int, tuple[Make, str]],
        properties: Mapping[str, str],
        *,
        is_dynamic: bool,
        jvm: Sequence[str] = ("-Xmx256m",),
    ) -> None:
        ports: set[int] = set()
        while len(ports) < 2 * len(kinds):
            ports |= set(free_ports())
        pairs = {node_id: (ports.pop(), ports.pop()) for node_id in kinds}
        controllers = [node_id for node_id, (_, roles) in kinds.items() if "controller" in roles]
        at = {node_id: f"127.0.0.1:{pairs[node_id][1]}" for node_id in controllers}
        if is_dynamic:
            quorum = {"controller.quorum.bootstrap.servers": ",".join(at.values())}
        else:
            quorum = {"controller.quorum.voters": ",".join(f"{node_id}@{one}" for node_id, one in at.items())}
        self.by_id: dict[int, BrokerProcess] = {}
        for node_id, (make, roles) in kinds.items():
            rows = {"process.roles": roles, "node.id": str(node_id), **quorum, **properties}
            path, own_ports = directory / f"node-{node_id}", pairs[node_id]
            options = WITHOUT if issubclass(make, ApacheBroker) else []
            if is_dynamic and node_id in controllers:
                options = [*options, "--standalone" if node_id == controllers[0] else "--no-initial-controllers"]
            if issubclass(make, ApacheBroker):
                self.by_id[node_id] = make(path, rows, ports=own_ports, format_options=options, jvm=jvm)
            else:
                self.by_id[node_id] = make(path, rows, ports=own_ports, format_options=options)

    def __getitem__(self, node_id: int) -> BrokerProcess:
        return self.by_id[node_id]

    @property
    def controllers(self) -> dict[int, BrokerProcess]:
        return {node_id: one for node_id, one in self.by_id.items() if one.is_controller}

    @property
    def brokers(self) -> dict[int, BrokerProcess]:
        return {node_id: one for node_id, one in self.by_id.items() if one.is_broker}

    @property
    def controller_servers(self) -> str:
        """For --bootstrap-controller."""
        return ",".join(one.controller for one in self.controllers.values())

    def start(self) -> None:
        """All at once, since none of a quorum gets anywhere alone."""
        for one in self.by_id.values():
            one.launch()
        for one in self.by_id.values():
            one.wait_until_it_serves()

    def close(self) -> None:
        for one in self.by_id.values():
            one.stop(clean=False)

    # What the nodes say.

    def quorum_seen_by(self, node_id: int) -> Any:
        """DescribeQuorum's row of the partition, as this controller has it; None if it cannot be asked."""
        row = DescribeQuorumRequestTopicData(
            topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
        )
        try:
            answer = ask(self[node_id].controller, DescribeQuorumRequest(topics=[row]), timeout_s=5)
        except OSError:
            return None
        return answer.topics[0].partitions[0]

    def leader(self, *, newer_than: int = -1) -> tuple[int, int]:
        """(id, epoch) of the controller that leads."""
        found: list[tuple[int, int]] = []

        def is_there() -> bool:
            for node_id, one in self.controllers.items():
                row = self.quorum_seen_by(node_id) if one.pid is not None else None
                if row is not None and row.error_code == ErrorCode.NONE and row.leader_epoch > newer_than:
                    found[:] = [(int(row.leader_id), int(row.leader_epoch))]
            return bool(found)

        wait_until(is_there, WAIT_S, lambda: "no leader:\n" + self.last_words())
        return found[0]

    def topics_at(self, node_id: int) -> set[str]:
        return {topic.name for topic in self[node_id].ask(MetadataRequest(topics=None)).topics}

    def wait_for_topic(self, name: str) -> None:
        """At all brokers that run."""
        for node_id, one in self.brokers.items():
            if one.pid is not None:
                wait_until(lambda: name in self.topics_at(node_id), WAIT_S, one.last_words)  # noqa: B023

    def wait_for_brokers(self, *ids: int) -> None:
        """Until each running broker lists exactly these as alive."""

        def listed() -> dict[int, set[int]]:
            return {node_id: one.living_brokers() for node_id, one in self.brokers.items() if one.pid is not None}

        wait_until(
            lambda: all(one == set(ids) for one in listed().values()), WAIT_S, lambda: f"{listed()}\n{self.last_words()}"
        )

    def last_words(self) -> str:
        return "\n".join(one.last_words() for one in self.by_id.values())


@contextmanager
def mixed(
    directory: Path,
    kinds: Mapping[int, tuple[Make, str]],
    properties: Mapping[str, str] | None = None,
    *,
    is_dynamic: bool = False,
    jvm: Sequence[str] = ("-Xmx256m",),
) -> Iterator[Nodes]:
    """Not started; whatever runs at the end is killed. With `is_dynamic` the first controller is the only voter at first. `jvm`
    are the options of Apache Kafka's nodes."""
    nodes = Nodes(directory, kinds, properties or {}, is_dynamic=is_dynamic, jvm=jvm)
    try:
        yield nodes
    finally:
        nodes.close()
