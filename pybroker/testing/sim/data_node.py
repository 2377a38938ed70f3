"""The nodes of a run at the data level: brokers with real replicas over logs in memory, a controller, a producer.

A broker runs the replica manager, the handlers and the fetchers of production; the network, the timer and the logs are the
simulator's. The controller is the real one, of a quorum that never fails: that is the business of the other levels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from pybroker.base.address import Address
from pybroker.base.ids import Uuid
from pybroker.base.purgatory import Purgatory
from pybroker.base.timer import Timer
from pybroker.log.background import Inline
from pybroker.log.files import TopicPartition
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages import cluster
from pybroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pybroker.protocol.messages.offsets import ListOffsetsRequest
from pybroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pybroker.replication.delayed_produce import DelayedProduce, Uncommitted
from pybroker.replication.fetch_sessions import FetchSessions
from pybroker.replication.fetcher import FetcherSettings
from pybroker.replication.fetchers import FetcherPorts, Fetchers
from pybroker.replication.isr_updates import IsrUpdates
from pybroker.replication.partition import Partition
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.handlers.fetch import FetchHandlers
from pybroker.server.handlers.offsets import OffsetHandlers
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.network import Call, Network
from pybroker.testing.sim.node import SimNode
from pybroker.testing.sim.schedule import Schedule

CONTROLLER_ID: Final = 0
PRODUCER_ID: Final = 100
CLUSTER: Final = "cluster"
TOPIC: Final = "t"
METADATA_TOPIC_ID: Final = Uuid(bytes(15) + b"\x01")
ALL_IN_SYNC: Final = -1
HEARTBEAT_MS: Final = 200
POLL_MS: Final = 20
CALL_TIMEOUT_MS: Final = 1_000
CHECKPOINT_MS: Final = 700

Done = Callable[[Any], None]


class DataSetting(Protocol):
    """What was drawn for a run."""

    max_lag_ms: int
    wait_max_ms: int
    fetchers: int

    def draw_below(self, bound: int) -> int: ...

    def config_of(self, topic: str) -> Any: ...

    def say(self, node_id: int, text: str) -> None: ...


class TalkingNode(SimNode):
    """A node that asks others, with a callback for what comes of it; None: nothing came."""

    def __init__(self, schedule: Schedule, node_id: int, clock: SimClock, network: Network) -> None:
        super().__init__(schedule, node_id, clock)
        self.network = network
        self.timer = Timer(self.now_ms())
        self._next_request = 0
        self._waiting: dict[int, Done] = {}

    def ask(
        self,
        target_id: int,
        request: Message,
        done: Done,
        timeout_ms: int = CALL_TIMEOUT_MS,
        version: int | None = None,
        *,
        may_repeat: bool = True,
        is_over_with_answer: bool = False,
    ) -> None:
        """With `version` it goes through bytes, as does its answer. The rest is as of `Network.send`."""
        self._next_request += 1
        self._waiting[self._next_request] = done
        self.network.send(
            self,
            self._next_request,
            target_id,
            request,
            timeout_ms,
            version,
            may_repeat=may_repeat,
            is_over_with_answer=is_over_with_answer,
        )

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.timer.add(self.now_ms() + delay_ms, action)

    def lose_memory(self) -> None:
        self._waiting.clear()

    def next_deadline_ms(self) -> int | None:
        return self.timer.next_deadline_ms

    def handle_deadline(self) -> None:
        for entry in self.timer.take_due(self.now_ms()):
            entry.run()

    def handle_response(self, request_id: int, message: Message) -> None:
        self._end(request_id, message)

    def handle_failure(self, request_id: int) -> None:
        self._end(request_id, None)

    def _end(self, request_id: int, answer: Message | None) -> None:
        done = self._waiting.pop(request_id, None)
        if done is not None:
            done(answer)
            self.arm()

    def handle_request_dropped(self, call: Call) -> None: ...

    def handle_node_lost(self, node_id: int) -> None: ...


class SimRequest:
    """As much of a Request as the handlers look at."""

    may_block = True

    def __init__(self, network: Network, call: Call) -> None:
        self.version = call.message.VERSIONS.high
        self.respond: Callable[[Message], None] = lambda response: network.respond(call, response)

    def make_room(self, size: int) -> None: ...


class ControllerNode(TalkingNode):
    def __init__(
        self, schedule: Schedule, clock: SimClock, network: Network, controller: Controller, first: list[Message]
    ) -> None:
        super().__init__(schedule, CONTROLLER_ID, clock, network)
        self.controller = controller
        self.log: list[Message] = []
        self._write(first)

    def boot(self) -> None:
        self.controller.start(self.now_ms())
        self._tick()

    def decide(self, request: Message) -> Message:
        result = self.controller.handle(self.now_ms(), request, request.VERSIONS.high)
        self._write(result.records)
        return result.response

    def handle_request(self, call: Call) -> None:
        if isinstance(call.message, FetchRequest):
            self.network.respond(call, self._metadata(call.message))
        else:
            self.network.respond(call, self.decide(call.message))

    def _metadata(self, request: FetchRequest) -> FetchResponse:
        start = request.topics[0].partitions[0].fetch_offset
        data = PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=len(self.log),
            aborted_transactions=None,
            records=self.log[start:],
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])])

    def _tick(self) -> None:
        result = self.controller.tick(self.now_ms())
        if result is not None:
            self._write(result.records)
        self.later(POLL_MS, self._tick)

    def _write(self, records: list[Message]) -> None:
        for record in records:
            self.controller.replay(len(self.log), 1, record)
            self.log.append(record)


class BrokerNode(TalkingNode):
    def __init__(
        self,
        schedule: Schedule,
        node_id: int,
        clock: SimClock,
        network: Network,
        logs: Any,
        setting: DataSetting,
    ) -> None:
        super().__init__(schedule, node_id, clock, network)
        self.logs = logs
        self._setting = setting
        self._incarnations = 0

    # A process.

    def boot(self) -> None:
        setting, node_id = self._setting, self.node_id
        logs: Any = self.logs
        self.logs.reopen()
        self._incarnations += 1
        self.epoch = -1
        self._is_open = False
        self.timer = Timer(self.now_ms())
        self.image: MetadataImage = EMPTY_IMAGE
        self.replicas = ReplicaManager(
            logs,
            node_id,
            setting.config_of,
            self.wall_ms,
            Purgatory[TopicPartition](self.timer),
            monotonic_ms=self.now_ms,
            max_lag_ms=setting.max_lag_ms,
            own_epoch=lambda: self.epoch,
        )
        self.start_handlers()
        ports = FetcherPorts(
            self._send,
            self.timer,
            Inline(),
            logs,
            self.wall_ms,
            self.now_ms,
            lambda: self.epoch,
            lambda broker_id: Address(str(broker_id), 0),
            self.replicas.committed_more,
        )
        self._fetchers = Fetchers(
            FetcherSettings(node_id, 1, 1000, 1000, setting.wait_max_ms, 200), setting.fetchers, CALL_TIMEOUT_MS, ports
        )
        self._updates = IsrUpdates(
            # A leader takes a refusal for the end of it, as Apache Kafka's does.
            lambda request, done: self.ask(CONTROLLER_ID, request, done, is_over_with_answer=True),
            node_id,
            lambda: self.epoch,
            self.timer,
            self.now_ms,
            self.replicas.proposal_answered,
        )
        self._poll()
        self._register()
        self._check_lag()
        self._checkpoint()

    def start_handlers(self) -> None:
        sessions = FetchSessions(100, self._setting.draw_below)
        self._fetches = FetchHandlers(self.replicas, sessions, max_bytes=lambda: 1 << 20, monotonic_ms=self.now_ms)
        self._offsets = OffsetHandlers(self.replicas)

    def wall_ms(self) -> int:
        """The clock that may be set."""
        return self.now_ms()

    def _send(self, address: Address, request: Message, timeout_ms: int, done: Done, **_: object) -> None:
        self.ask(int(address.host), request, done, timeout_ms)

    def _check_lag(self) -> None:
        self.replicas.check_lag()
        self.later(max(1, self._setting.max_lag_ms // 2), self._check_lag)

    def _checkpoint(self) -> None:
        self.logs.checkpoint()
        self.later(CHECKPOINT_MS, self._checkpoint)

    # In the cluster.

    def _register(self) -> None:
        directory = Uuid(bytes((self.node_id,)) + bytes(14) + b"\x09")
        request = cluster.BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=CLUSTER,
            incarnation_id=Uuid(bytes((self.node_id,)) + self._incarnations.to_bytes(14, "big") + b"\x08"),
            listeners=[cluster.Listener(name="PLAINTEXT", host="host", port=9092, security_protocol=0)],
            features=self._features(),
            rack=None,
            log_dirs=[directory],
        )
        self.ask(CONTROLLER_ID, request, self._registered)

    def _features(self) -> list[cluster.Feature]:
        levels = self.image.features
        return [cluster.Feature(name=name, min_supported_version=0, max_supported_version=99) for name in levels]

    def _registered(self, response: Any) -> None:
        if response is None or response.error_code or self.image is EMPTY_IMAGE:
            self.later(HEARTBEAT_MS, self._register)
            return
        self.epoch = response.broker_epoch
        self._setting.say(self.node_id, f"registered with epoch {self.epoch}")
        self.replicas.replicate(self._fetchers, self._updates.submit, lambda *_: None)
        self._heartbeat()

    def _heartbeat(self) -> None:
        request = cluster.BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self.image.offset,
            want_fence=False,
            want_shut_down=False,
        )
        self.ask(CONTROLLER_ID, request, self._heartbeat_answered)

    def _heartbeat_answered(self, response: Any) -> None:
        self.heard_of_heartbeat(response)
        self.later(HEARTBEAT_MS, self._heartbeat)

    def heard_of_heartbeat(self, response: Any) -> None: ...

    def _poll(self) -> None:
        offset = FetchPartition(partition=0, fetch_offset=self.image.offset + 1, partition_max_bytes=1)
        topic = FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[offset])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
        self.ask(CONTROLLER_ID, request, lambda response: self._heard(request, response))

    def _heard(self, request: FetchRequest, response: Any) -> None:
        if response is not None:
            start = request.topics[0].partitions[0].fetch_offset
            records: list[Message] = response.responses[0].partitions[0].records
            if records and start == self.image.offset + 1:
                delta = MetadataDelta(self.image)
                for record in records:
                    delta.replay(record)
                self.image = delta.image(self.image.offset + len(records), 1)
                self.publish(delta, self.image)
                own = self.image.brokers.get(self.node_id)
                # Whoever is let in once is served from then on, also by one that is fenced and does not know.
                self._is_open = self._is_open or (own is not None and own.epoch == self.epoch and not own.fenced)
        self.later(1 + self._setting.draw_below(2 * POLL_MS), self._poll)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.replicas.publish(delta, image)

    def log_of(self, topic: str, index: int) -> Any:
        """What this broker has of a partition, led by it or not; None: nothing."""
        return self.logs.get(TopicPartition(topic, index))

    # Requests.

    def handle_request(self, call: Call) -> None:
        if not self._is_open:
            return
        message = call.message
        request: Any = SimRequest(self.network, call)
        if isinstance(message, ProduceRequest):
            answer: Any = self._produce(request, message)
        elif isinstance(message, FetchRequest):
            answer = self._fetches.handle_fetch(request, message)
        else:
            assert isinstance(message, ListOffsetsRequest)
            answer = self._offsets.handle_list_offsets(request, message)
        if answer is not None:
            self.network.respond(call, answer)
        self.arm()

    def _produce(self, request: Any, message: ProduceRequest) -> ProduceResponse | None:
        data = message.topic_data[0].partition_data[0]
        row = PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1)
        topic = TopicProduceResponse(name=TOPIC, partition_responses=[row])
        response = ProduceResponse(responses=[topic])
        partition = self.replicas.partition(TOPIC, data.index)
        if not isinstance(partition, Partition):
            row.error_code = partition
            return response
        leadership = partition.leadership
        try:
            appended = partition.append(data.records, message.acks, self.now_ms())
        except KafkaError as error:
            row.error_code = error.code
            return response
        row.base_offset = appended.first_offset
        waiting = Uncommitted(partition, leadership, appended.last_offset + 1, row)
        self.replicas.wake(partition)
        if waiting.is_settled():
            return response
        delayed = DelayedProduce([waiting], lambda: request.respond(response))
        self.replicas.produces.watch(delayed, [partition.topic_partition], self.now_ms() + message.timeout_ms)
        return None


class ProducerNode(TalkingNode):
    """An idempotent producer with acks=all, for each partition one record at a time, sent again until it is acknowledged."""

    def __init__(
        self,
        schedule: Schedule,
        clock: SimClock,
        network: Network,
        partitions: int,
        leader_of: Callable[[int], int],
        on_acked: Callable[[int, int, int], None],
        pause_ms: int,
    ) -> None:
        """`on_acked` hears of a partition, a sequence number and its offset."""
        super().__init__(schedule, PRODUCER_ID, clock, network)
        self._partitions = range(partitions)
        self._leader_of = leader_of
        self._on_acked = on_acked
        self._pause_ms = pause_ms
        self.is_stopping = False

    def boot(self) -> None:
        for partition in self._partitions:
            self._send(partition, 0)

    def _send(self, partition: int, sequence: int) -> None:
        leader = self._leader_of(partition)
        if leader < 0:
            self.later(50, lambda: self._send(partition, sequence))
            return
        records: Any = sequence
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=500,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=records)])],
        )
        self.ask(leader, request, lambda response: self._answered(partition, sequence, response))

    def _answered(self, partition: int, sequence: int, response: Any) -> None:
        row = None if response is None else response.responses[0].partition_responses[0]
        if row is None or row.error_code != ErrorCode.NONE:
            self.later(20, lambda: self._send(partition, sequence))
            return
        self._on_acked(partition, sequence, row.base_offset)
        if not self.is_stopping:
            self.later(self._pause_ms, lambda: self._send(partition, sequence + 1))

    def handle_request(self, call: Call) -> None: ...

    def lose_memory(self) -> None: ...
