"""A cluster of real processes on loopback: `pybroker start` for each node, as an operator would."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from node.process import NodeProcess
from support.node_client import NodeClient
from support.ports import server_ports
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.raft import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from pybroker.tools.main import main

CLUSTER_ID = "a-cluster-of-processes"
WAIT_S = 60.0
COMBINED, CONTROLLER, BROKER = "broker,controller", "controller", "broker"


class Member:
    """A node of the cluster; its process may come and go."""

    def __init__(self, cluster: Cluster, node_id: int, roles: str, broker_port: int, controller_port: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.roles = roles
        self.broker_port = broker_port
        self.controller_port = controller_port
        self.directory = cluster.directory / f"node-{node_id}"
        self.file = self.directory / "server.properties"
        self.environment: dict[str, str] = {}
        self.process: NodeProcess | None = None

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    def write(self, properties: Mapping[str, str]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        listeners = []
        if self.is_broker:
            listeners.append(f"PLAINTEXT://127.0.0.1:{self.broker_port}")
        if self.is_controller:
            listeners.append(f"CONTROLLER://127.0.0.1:{self.controller_port}")
        rows = {
            "process.roles": self.roles,
            "node.id": str(self.id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            **properties,
        }
        self.file.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))

    def format(self, *options: str) -> None:
        assert main(["storage", "format", "-t", CLUSTER_ID, "-c", str(self.file), *options]) == 0

    def start(self) -> Member:
        self.process = NodeProcess(self.directory, [str(self.file)], self.environment)
        return self

    def wait_ready(self) -> Member:
        assert self.process is not None
        self.process.wait_ready()
        return self

    @property
    def said(self) -> str:
        assert self.process is not None
        return self.process.said

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process = None

    def stop(self) -> int:
        assert self.process is not None
        code = self.process.stop()
        self.process = None
        return code

    def pause(self) -> None:
        assert self.process is not None
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.signal(signal.SIGCONT)

    def client(self) -> NodeClient:
        return NodeClient(self.broker_port if self.is_broker else self.controller_port)

    def ask_controller(self, request: Message, version: int | None = None) -> Any:
        """Over its controller listener."""
        with NodeClient(self.controller_port) as client:
            return client.ask(request, version)


class Cluster:
    def __init__(self, directory: Path, roles: Mapping[int, str], properties: Mapping[str, str], *, dynamic: bool) -> None:
        ports = server_ports(2 * len(roles))
        self.directory = directory
        self.members = {
            node_id: Member(self, node_id, role, *ports[2 * number : 2 * number + 2])
            for number, (node_id, role) in enumerate(roles.items())
        }
        self.is_dynamic = dynamic
        self.properties = dict(properties)
        for member in self.members.values():
            member.write(self.quorum() | self.properties)

    def quorum(self) -> dict[str, str]:
        controllers = self.controllers
        if self.is_dynamic:
            servers = ",".join(f"127.0.0.1:{one.controller_port}" for one in controllers)
            return {"controller.quorum.bootstrap.servers": servers}
        voters = ",".join(f"{one.id}@127.0.0.1:{one.controller_port}" for one in controllers)
        return {"controller.quorum.voters": voters}

    @property
    def controllers(self) -> list[Member]:
        return [one for one in self.members.values() if one.is_controller]

    @property
    def brokers(self) -> list[Member]:
        return [one for one in self.members.values() if one.is_broker]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{one.broker_port}" for one in self.brokers)

    def __getitem__(self, node_id: int) -> Member:
        return self.members[node_id]

    def format(self) -> None:
        for member in self.members.values():
            member.format()

    def start(self) -> None:
        for member in self.members.values():
            member.start()
        for member in self.members.values():
            member.wait_ready()

    def close(self) -> None:
        for member in self.members.values():
            if member.process is not None:
                with suppress(ProcessLookupError):
                    member.process.signal(signal.SIGCONT)
                member.process.kill()

    # The quorum.

    def describe(self, member: Member) -> Any:
        """What DescribeQuorum says at that node's controller; None if it cannot be asked."""
        rows = [DescribeQuorumRequestPartitionData(partition_index=0)]
        topics = [DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=rows)]
        try:
            answer = member.ask_controller(DescribeQuorumRequest(topics=topics))
        except OSError:
            return None
        return answer.topics[0].partitions[0]

    def leader(self, *, other_than: int | None = None, newer_than: int = -1, timeout_s: float = WAIT_S) -> Member:
        """The member that leads the quorum, waiting for one that answers as such."""
        found: list[Member] = []

        def is_there() -> bool:
            for member in self.controllers:
                if member.process is None or member.id == other_than:
                    continue
                row = self.describe(member)
                if row is not None and row.error_code == ErrorCode.NONE and row.leader_epoch > newer_than:
                    found[:] = [member]
                    return True
            return False

        wait_until(is_there, timeout_s, lambda: "no leader:\n" + "\n".join(one.said for one in self.running))
        return found[0]

    @property
    def running(self) -> list[Member]:
        return [one for one in self.members.values() if one.process is not None]

    def epoch(self) -> int:
        row = self.describe(self.leader())
        return int(row.leader_epoch)


@contextmanager
def cluster(
    directory: Path, roles: Mapping[int, str], properties: Mapping[str, str] | None = None, *, dynamic: bool = False
) -> Iterator[Cluster]:
    """Formatted, not started; whatever runs at the end is killed."""
    made = Cluster(directory, roles, properties or {}, dynamic=dynamic)
    if not dynamic:
        made.format()
    try:
        yield made
    finally:
        made.close()


def monotonic_ms() -> float:
    return time.monotonic() * 1000
