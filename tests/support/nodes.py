"""A whole node in the test's own process, on loopback and with ports of the system's choice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.node_client import NodeClient

from pybroker.base.filesystem import FileSystem
from pybroker.config import Config, load_text
from pybroker.server.broker_role import BrokerRole
from pybroker.server.node import Node

PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
auto.create.topics.enable=false
num.network.threads=1
num.io.threads=2
log.cleaner.dedupe.buffer.size=4194304
"""


def config(data: Path, **settings: object) -> Config:
    """`log_dirs=…` sets log.dirs, which is `data` else."""
    given = {"log_dirs": data} | settings
    loaded = load_text(PROPERTIES, "test", [f"{name.replace('_', '.')}={value}" for name, value in given.items()])
    assert loaded.config is not None, loaded.problems
    return loaded.config


class RunningNode:
    def __init__(self, node: Node) -> None:
        self.node = node
        self._clients: list[NodeClient] = []

    @property
    def broker(self) -> BrokerRole:
        assert self.node.broker is not None
        return self.node.broker

    @property
    def controller_port(self) -> int:
        assert self.node.controller is not None
        return self.node.controller.sockets.ports()["CONTROLLER"]

    @property
    def port(self) -> int:
        return self.node.sockets.ports()["PLAINTEXT"]

    def client(self) -> NodeClient:
        client = NodeClient(self.port)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.node.stop()


@contextmanager
def running(data: Path, filesystem: FileSystem | None = None, **settings: object) -> Iterator[RunningNode]:
    """A started node, which formats its directories; stopped at the end."""
    node = Node(config(data, **settings), formats=True, filesystem=filesystem)
    node.start()
    started = RunningNode(node)
    try:
        yield started
    finally:
        started.close()
