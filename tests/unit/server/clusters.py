"""A cluster's metadata made by hand, a node's configuration, and a controller that says what a test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pybroker.base.ids import Uuid
from pybroker.base.timer import Timer
from pybroker.config import Config, load_text
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.protocol.internal.metadata_log import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pybroker.protocol.message import Message

CLUSTER_ID = "a-cluster-of-the-tests"
DIRECTORY = Uuid(b"d" * 16)

_FILE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.quorum.voters": "1@127.0.0.1:19093",
    "log.dirs": "/nowhere",
}


def node_file(properties: Mapping[str, str] | None = None) -> Config:
    texts = _FILE | dict(properties or {})
    loaded = load_text("".join(f"{key}={value}\n" for key, value in texts.items()), "server.properties")
    assert loaded.config is not None, loaded.problems
    return loaded.config


def topic_id_of(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"-")[:16])


class Cluster:
    """`image` after the records so far; publishers see each change as on a node."""

    def __init__(self, *publishers: Callable[[MetadataDelta, MetadataImage], None]) -> None:
        self.image = EMPTY_IMAGE
        self._publishers = publishers

    def image_of(self) -> MetadataImage:
        return self.image

    def apply(self, *records: Message) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.image(self.image.offset + len(records), 1)
        for publish in self._publishers:
            publish(delta, self.image)

    def broker(
        self,
        broker_id: int,
        listeners: tuple[str, ...] = ("PLAINTEXT",),
        *,
        fenced: bool = False,
        rack: str | None = None,
        log_dirs: tuple[Uuid, ...] = (DIRECTORY,),
    ) -> None:
        endpoints = [
            BrokerEndpoint(name=name, host=f"host{broker_id}", port=9092 + number, security_protocol=0)
            for number, name in enumerate(listeners)
        ]
        self.apply(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=Uuid(bytes(16)),
                broker_epoch=1,
                end_points=endpoints,
                features=[],
                rack=rack,
                fenced=fenced,
                log_dirs=list(log_dirs),
            )
        )

    def topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: tuple[int, ...] = (1,),
        isr: tuple[int, ...] | None = None,
        leader: int = 1,
        directories: tuple[Uuid, ...] | None = None,
        **more: Any,
    ) -> Uuid:
        topic_id = topic_id_of(name)
        rows = [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=list(replicas if isr is None else isr),
                removing_replicas=[],
                adding_replicas=[],
                leader=leader,
                leader_epoch=5,
                partition_epoch=7,
                directories=list((DIRECTORY,) * len(replicas) if directories is None else directories),
                **more,
            )
            for index in range(partitions)
        ]
        self.apply(TopicRecord(name=name, topic_id=topic_id), *rows)
        return topic_id

    def delete(self, name: str) -> None:
        self.apply(RemoveTopicRecord(topic_id=topic_id_of(name)))

    def config(self, resource_type: int, name: str, values: Mapping[str, str | None]) -> None:
        self.apply(
            *(
                ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
                for key, value in values.items()
            )
        )


class Controller:
    """Keeps what it is asked; `answer` lets it answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[Message, int, Callable[[Message], None]]] = []

    def submit(self, request: Message, version: int, done: Callable[[Message], None]) -> None:
        self.asked.append((request, version, done))

    @property
    def request(self) -> Any:
        ((request, _, _),) = self.asked
        return request

    def answer(self, response: Message) -> None:
        _, _, done = self.asked.pop(0)
        done(response)


class Clock:
    """A timer and the time it goes by."""

    def __init__(self) -> None:
        self.now = 1000
        self.timer = Timer(self.now)

    def now_ms(self) -> int:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms
        self.timer.advance(self.now)
