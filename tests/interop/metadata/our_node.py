"""Our node on a real directory, and an Apache Kafka that is started on the same."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

from interop.apache_broker import ApacheBroker
from interop.broker_process import CLUSTER_ID, NODE_ID, free_ports
from interop.metadata.our_cluster import config_of
from support.waiting import wait_until

from pybroker.base.filesystem import OsFileSystem
from pybroker.config import Config
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from pybroker.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest
from pybroker.server.bootstrap import FormatPlan, format_storage
from pybroker.server.node import Node

DYNAMIC, STATIC = "dynamic", "static"


def node_config(data: Path, quorum: str = STATIC, **changes: str) -> Config:
    broker_port, controller_port = free_ports()
    voters = {
        STATIC: {"controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}"},
        DYNAMIC: {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}"},
    }[quorum]
    listeners = f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}"
    own = {"process.roles": "broker,controller", "node.id": str(NODE_ID), "controller.listener.names": "CONTROLLER"}
    return config_of({**own, **voters, "listeners": listeners, "log.dirs": str(data), **changes})


class OurNode:
    """One in this process, its directory formatted if need be; it registers itself, and leads the quorum."""

    def __init__(self, config: Config, quorum: str = STATIC) -> None:
        if not (Path(config["log.dirs"][0]) / "meta.properties").exists():
            plan = FormatPlan(standalone=quorum == DYNAMIC)
            format_storage(OsFileSystem(), config, CLUSTER_ID, plan, now_ms=time.time_ns() // 1_000_000)
        self._node = Node(config)
        self._node.start()
        wait_until(lambda: NODE_ID in self.image.controllers, 30, lambda: "the controller did not register itself")

    @property
    def image(self) -> MetadataImage:
        return self._node.quorum.image

    @property
    def leader_epoch(self) -> int:
        return self._node.quorum.leader.epoch

    def finalized_features(self) -> Mapping[str, int]:
        return self._node.quorum.finalized_features()

    def ask(self, request: Message, version: int | None = None) -> Any:
        answered = Event()
        answers: list[Message] = []

        def done(response: Message) -> None:
            answers.append(response)
            answered.set()

        self._node.quorum.submit(request, request.VERSIONS.high if version is None else version, done)
        assert answered.wait(30)
        return answers[0]

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=rows)
        (result,) = self.ask(CreateTopicsRequest(topics=[topic])).topics
        assert result.error_code == ErrorCode.NONE, result

    def live(self) -> None:
        """A bit of everything that a single node writes."""
        self.create("kept", 3, retention_ms="123456")
        self.create("gone", 2)
        self.create("grown")
        rows = [CreatePartitionsTopic(name="grown", count=4, assignments=None)]
        self.ask(CreatePartitionsRequest(topics=rows, timeout_ms=1, validate_only=False))
        self.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1), 5)
        change = IncrementalAlterConfigsRequestAlterableConfig(name="log.retention.ms", config_operation=0, value="99999")
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        self.ask(AllocateProducerIdsRequest(broker_id=NODE_ID, broker_epoch=self.image.brokers[NODE_ID].epoch))

    def stop(self) -> None:
        self._node.stop()


def apache_on(directory: Path, config: Config, quorum: str) -> ApacheBroker:
    """Apache Kafka on a directory that is formatted, with the addresses and voters of `config`."""
    properties = {"listeners": ",".join(map(str, config.listeners))}
    if quorum == DYNAMIC:
        properties |= {
            "controller.quorum.voters": "",
            "controller.quorum.bootstrap.servers": ",".join(config["controller.quorum.bootstrap.servers"]),
        }
    broker = ApacheBroker(directory, properties)
    broker._ports = (config.broker_listeners[0].port, config.controller_listeners[0].port)
    return broker
