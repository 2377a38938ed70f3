"""Brokers with real logs and no network: a request waits until the test has it answered, so that a scenario goes step by step.

brokers = Brokers(tmp_path, 1, 2)
brokers.lead(1, epoch=0, isr=(1, 2))     # the metadata says so, and all of them hear it
brokers.produce(1, b"a")                 # with acks=1
brokers.fetch(2)                         # one fetch of broker 2, answered and taken in
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from support.batches import batch
from support.faulty_disk import FaultyDisk

from pybroker.base.address import Address
from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.base.purgatory import Purgatory
from pybroker.base.timer import Timer
from pybroker.log.background import Inline
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.directories import Owner
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.settings import ManagerSettings
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.protocol.internal.metadata_log import (
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchRequest, FetchResponse
from pybroker.protocol.messages.offsets import ListOffsetsRequest
from pybroker.protocol.messages.partitions import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from pybroker.replication.fetch_sessions import FetchSessions
from pybroker.replication.fetcher import FetcherSettings
from pybroker.replication.fetchers import FetcherPorts, Fetchers
from pybroker.replication.isr_updates import IsrUpdates
from pybroker.replication.partition import Partition
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.handlers.fetch import FetchHandlers
from pybroker.server.handlers.offsets import OffsetHandlers

TOPIC = "orders"
TOPIC_ID = Uuid(b"orders-topic-id-")
NAME = TopicPartition(TOPIC, 0)
MAX_LAG_MS = 30_000


class FakeRequest:
    """As much of a Request as the handlers look at."""

    may_block = True
    frame, position = memoryview(b""), 0

    def __init__(self, version: int, done: Callable[[Message], None]) -> None:
        self.version = version
        self.respond = done

    def make_room(self, size: int) -> None: ...


class Broker:
    def __init__(self, brokers: Brokers, broker_id: int) -> None:
        self._brokers = brokers
        self.id = broker_id
        self.epoch = 10 * broker_id
        self.asked: list[tuple[int, Message, Callable[[object], None]]] = []
        self.proposed: list[tuple[AlterPartitionRequest, Callable[[Message | None], None]]] = []
        self.start()

    def start(self) -> None:
        brokers = self._brokers
        self.timer = Timer(0)
        self.logs = LogManager(
            brokers.disk,
            ManagerSettings(log_dirs=(str(brokers.path / f"broker-{self.id}"),)),
            Inline(),  # type: ignore[arg-type]
            now_ms=lambda: 0,
            owner=Owner("cluster", self.id, writes_meta=True),
        )
        self.logs.load(lambda topic: brokers.config)
        self.replicas = ReplicaManager(
            self.logs,
            self.id,
            lambda topic: brokers.config,
            lambda: 1_000,
            Purgatory(self.timer),
            monotonic_ms=lambda: brokers.now_ms,
            max_lag_ms=MAX_LAG_MS,
            own_epoch=lambda: self.epoch,
            picks_by_rack=brokers.picks_by_rack,
        )
        sessions = FetchSessions(10, lambda bound: next(brokers.session_ids))
        self.fetches = FetchHandlers(self.replicas, sessions, max_bytes=lambda: 1 << 20, monotonic_ms=lambda: brokers.now_ms)
        self.offsets = OffsetHandlers(self.replicas)
        settings = FetcherSettings(self.id, 1, 1 << 20, 1 << 20, 0, 1000)
        ports = FetcherPorts(
            self._send,
            self.timer,
            Inline(),
            self.logs,
            lambda: 1_000,
            lambda: brokers.now_ms,
            lambda: self.epoch,
            lambda broker_id: Address(str(broker_id), 0),
            self.replicas.committed_more,
        )
        self.fetchers = Fetchers(settings, 1, 1000, ports)
        self.updates = IsrUpdates(
            lambda request, done: self.proposed.append((request, done)),  # type: ignore[arg-type]
            self.id,
            lambda: self.epoch,
            self.timer,
            lambda: brokers.now_ms,
            self.replicas.proposal_answered,
        )
        self.image: MetadataImage = EMPTY_IMAGE
        self.hear(brokers.records)
        self.replicas.replicate(self.fetchers, self.updates.submit, lambda *_: None)

    def hear(self, records: list[Message]) -> None:
        """The metadata log up to here."""
        delta = MetadataDelta(self.image)
        for record in records[self.image.offset + 1 :]:
            delta.replay(record)
        self.image = delta.image(len(records) - 1, 1)
        self.replicas.publish(delta, self.image)

    def crash(self) -> None:
        """What was written is in the page cache; the high watermark is as it was checkpointed last."""
        self.fetchers.stop()
        self.asked.clear()
        self.proposed.clear()
        for log in self.logs.all_logs():
            log.close_files()
        for log_dir in self.logs.dirs:
            log_dir.unlock()

    def _send(
        self, address: Address, request: Message, timeout_ms: int, done: Callable[[object], None], **options: Any
    ) -> None:
        self.asked.append((int(address.host), request, done))

    @property
    def partition(self) -> Partition:
        found = self.replicas.partition(TOPIC, 0)
        assert isinstance(found, Partition), found
        return found

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def values(self) -> list[str]:
        return [record.value.decode() for one in self.log.batches() for record in one.records() if record.value is not None]


class Brokers:
    def __init__(self, path: Path, *ids: int, min_insync_replicas: int = 1, picks_by_rack: bool = False) -> None:
        self.path = path
        self.disk = FaultyDisk()
        self.picks_by_rack = picks_by_rack
        self.now_ms = 0
        self.session_ids = itertools.count(1)
        self.config = LogConfig.of({"min.insync.replicas": min_insync_replicas})
        self.records: list[Message] = []
        self._is_made = False
        for broker_id in ids:
            self.records += _registration(broker_id, 10 * broker_id)
        self._all = {broker_id: Broker(self, broker_id) for broker_id in ids}

    def __getitem__(self, broker_id: int) -> Broker:
        return self._all[broker_id]

    def __enter__(self) -> Self:
        return self

    def lead(self, leader: int, *, isr: tuple[int, ...], heard_by: tuple[int, ...] | None = None) -> None:
        """The controller makes `leader` lead, in the next epoch; all brokers hear it, or those given."""
        if self._is_made:
            self.records.append(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=leader, isr=list(isr)))
        else:
            replicas = sorted(self._all)
            self.records += [
                TopicRecord(name=TOPIC, topic_id=TOPIC_ID),
                PartitionRecord(
                    partition_id=0,
                    topic_id=TOPIC_ID,
                    replicas=replicas,
                    isr=list(isr),
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                ),
            ]
        self._is_made = True
        for broker_id in self._all if heard_by is None else heard_by:
            self._all[broker_id].hear(self.records)

    def register(self, broker_id: int, epoch: int) -> None:
        """The broker comes anew, and all hear of it."""
        self.records += _registration(broker_id, epoch)
        self.hear(*self._all)

    def hear(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self._all[broker_id].hear(self.records)

    def produce(self, leader: int, *values: bytes, acks: int = 1) -> int:
        broker = self._all[leader]
        offset = 0
        for value in values:
            offset = broker.replicas.append(broker.partition, batch([value]), acks).last_offset
        broker.replicas.wake(broker.partition)
        return offset

    def fetch(self, follower: int, times: int = 1, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        """One request of `follower` is answered by its leader, and the answer taken in; then the next one. `meanwhile` happens
        when the answer is made, and what lies in files not sent yet."""
        broker = self._all[follower]
        for _ in range(times):
            self.due(follower)
            assert broker.asked, f"broker {follower} asks for nothing"
            source, request, done = broker.asked.pop(0)
            done(self.answer(source, request, meanwhile))

    def due(self, broker_id: int) -> None:
        """Run what the time has come for."""
        for entry in self._all[broker_id].timer.take_due(self.now_ms):
            entry.run()

    def answer(self, source: int, request: Message, meanwhile: Callable[[], None] = lambda: None) -> Message:
        """What broker `source` says to it."""
        answers: list[Message] = []
        broker = self._all[source]
        fake: Any = FakeRequest(request.VERSIONS.high, answers.append)
        if isinstance(request, ListOffsetsRequest):
            return broker.offsets.handle_list_offsets(fake, request)
        assert isinstance(request, FetchRequest)
        answer = broker.fetches.handle_fetch(fake, request)
        response = answer if isinstance(answer, FetchResponse) else answers[0]
        assert isinstance(response, FetchResponse)
        meanwhile()
        # As it would come over the network.
        return FetchResponse.decode(request.VERSIONS.high, _with_bytes(response).encode(request.VERSIONS.high))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    def proposal_of(self, leader: int) -> list[int] | None:
        """The ISR that the leader has asked the controller for."""
        proposed = self._all[leader].proposed
        if not proposed:
            return None
        return [member.broker_id for member in proposed[0][0].topics[0].partitions[0].new_isr_with_epochs]

    def decide(self, leader: int, error: int = 0) -> None:
        """The controller answers: it does as proposed, or refuses."""
        request, done = self._all[leader].proposed.pop(0)
        asked = request.topics[0].partitions[0]
        done(
            AlterPartitionResponse(
                error_code=0,
                topics=[
                    AlterPartitionResponseTopicData(
                        topic_id=TOPIC_ID,
                        partitions=[
                            AlterPartitionResponsePartitionData(
                                partition_index=0,
                                error_code=error,
                                leader_id=leader,
                                leader_epoch=asked.leader_epoch,
                                isr=[member.broker_id for member in asked.new_isr_with_epochs],
                                partition_epoch=asked.partition_epoch + 1,
                            )
                        ],
                    )
                ],
            )
        )

    def restart(self, broker_id: int) -> None:
        self._all[broker_id].start()

    def __exit__(self, *_: object) -> None:
        for broker in self._all.values():
            broker.fetchers.stop()
            broker.logs.shutdown()


def _registration(broker_id: int, epoch: int) -> list[Message]:
    return [
        RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=ZERO_UUID,
            broker_epoch=epoch,
            end_points=[],
            features=[],
            rack=f"rack-{broker_id}",
        ),
        UnfenceBrokerRecord(id=broker_id, epoch=epoch),
    ]


def committed(brokers: Brokers, broker: int) -> int:
    return brokers[broker].log.high_watermark


def _with_bytes(response: FetchResponse) -> FetchResponse:
    for topic in response.responses:
        for data in topic.partitions:
            if data.records:
                data.records = data.records.read()
    return response
