"""A controller with brokers of the test's choice, driven without a log: what it decides is replayed at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from unit.config.configs import config_with

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.decisions import Result
from pybroker.metadata.controller.features import METADATA_VERSION, RELEASES
from pybroker.metadata.image import MetadataImage, PartitionState
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import BrokerHeartbeatRequest
from pybroker.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def uuid(text: str) -> Uuid:
    return Uuid(text.encode().ljust(16, b".")[:16])


def topic(name: str, partitions: int = 1, replicas: int = 1, configs: Mapping[str, str | None] | None = None) -> CreatableTopic:
    rows = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=rows)


class TestCluster:
    __test__ = False

    def __init__(
        self,
        brokers: Sequence[int] = (1,),
        *,
        racks: Mapping[int, str] | None = None,
        has_authorizer: bool = False,
        **changes: str,
    ) -> None:
        numbers = count(1)
        self.controller = Controller(
            config_with(**changes),
            CLUSTER_ID,
            new_uuid=lambda: Uuid(next(numbers).to_bytes(16, "big")),
            draw_below=lambda bound: 0,
            has_authorizer=has_authorizer,
        )
        self.replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=RELEASES["4.3-IV0"]))
        for broker_id in brokers:
            self.replay(registration(broker_id, rack=(racks or {}).get(broker_id)))
        self.now_ms = 0
        self.controller.start(self.now_ms)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def replay(self, *records: Message) -> None:
        for record in records:
            self.controller.replay(self.controller.next_offset, 1, record)

    def handle(self, request: Message, version: int | None = None) -> Result:
        """What is decided; nothing is replayed."""
        return self.controller.handle(self.now_ms, request, request.VERSIONS.high if version is None else version)

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The response; its records are replayed."""
        result = self.handle(request, version)
        self.replay(*result.records)
        return result.response

    def create(self, name: str, partitions: int = 1, replicas: int = 1, configs: Mapping[str, str] | None = None) -> Any:
        (result,) = self.ask(CreateTopicsRequest(topics=[topic(name, partitions, replicas, configs)])).topics
        return result

    def fence(self, broker_id: int) -> None:
        epoch = self.image.brokers[broker_id].epoch
        self.replay(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1))

    def heartbeat(self, *broker_ids: int, **changes: Any) -> Any:
        """All of them say that they live and have replayed everything; what is told to the last."""
        response = None
        for broker_id in broker_ids:
            broker = self.image.brokers.get(broker_id)
            fields: dict[str, Any] = {
                "broker_epoch": -1 if broker is None else broker.epoch,
                "current_metadata_offset": self.image.offset,
                "want_fence": False,
                "want_shut_down": False,
            }
            response = self.ask(BrokerHeartbeatRequest(broker_id=broker_id, **(fields | changes)))
        return response

    def pass_time(self, duration_ms: int, *living: int) -> list[Message]:
        """Time goes by, with a heartbeat of each of `living` every second; the records of what was due meanwhile."""
        end_ms = self.now_ms + duration_ms
        written: list[Message] = []
        while self.now_ms < end_ms:
            beat_ms = min(end_ms, self.now_ms + 1000)
            while (deadline_ms := self.controller.deadline_ms) is not None and deadline_ms <= beat_ms:
                self.now_ms = max(self.now_ms, deadline_ms)
                result = self.controller.tick(self.now_ms)
                if result is not None:
                    self.replay(*result.records)
                    written += result.records
            self.now_ms = beat_ms
            self.heartbeat(*living)
        return written

    def assign(self, name: str, *assignments: list[int], **configs: str) -> None:
        """A topic with these replicas; a dot in the name of a config is an underscore."""
        rows = [CreatableReplicaAssignment(partition_index=at, broker_ids=ids) for at, ids in enumerate(assignments)]
        given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows, configs=given)
        (result,) = self.ask(CreateTopicsRequest(topics=[topic])).topics
        assert result.error_code == ErrorCode.NONE, result

    def partition(self, topic: str, index: int = 0) -> PartitionState:
        return self.image.topics[topic].partitions[index]

    def leaders(self, topic: str) -> list[int]:
        return [state.leader for _index, state in sorted(self.image.topics[topic].partitions.items())]


def registration(broker_id: int, *, epoch: int = 10, rack: str | None = None, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=uuid(f"incarnation {broker_id}"),
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host=f"host-{broker_id}", port=9092, security_protocol=0)],
        features=[],
        rack=rack,
        fenced=fenced,
        log_dirs=[uuid(f"directory {broker_id}")],
    )
