"""A broker with the coordinators of production, their shells, handlers and shards, on real logs on a simulated disk.

Only what runs a coordinator's rounds is the simulator's: a round is run where an event comes in, or a little later where
production changes threads. All requests go through bytes, in the version that their sender speaks. As in production nobody is
let in before the broker is registered and unfenced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, Final, Protocol

from pybroker.base.address import Address
from pybroker.client.request_error import Failure, RequestError
from pybroker.config import Config, load_text
from pybroker.coordinator.runtime import CoordinatorRuntime, Event, Loaded, LoadFailed
from pybroker.coordinator.shard import Effect, Load
from pybroker.coordinator.transaction.transaction import EPOCH_BUMP
from pybroker.log.files import TopicPartition
from pybroker.log.segment import FileSlice
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pybroker.protocol.message import Message
from pybroker.protocol.messages import consumer_groups, fetch, group_offsets, groups, offsets, produce, transactions
from pybroker.server.coordinators.groups import GroupCoordinator
from pybroker.server.coordinators.marker_sender import MarkerSender
from pybroker.server.coordinators.marker_writer import MarkerWriter
from pybroker.server.coordinators.shard_loader import LoadError
from pybroker.server.coordinators.transaction_checks import TransactionChecks
from pybroker.server.coordinators.transactions import TransactionCoordinator
from pybroker.server.handlers.consumer_groups import ConsumerGroupHandlers
from pybroker.server.handlers.group_offsets import GroupOffsetHandlers
from pybroker.server.handlers.groups import GroupHandlers
from pybroker.server.handlers.produce import ProduceHandlers
from pybroker.server.handlers.producers import ProducerHandlers
from pybroker.server.handlers.transactional_offsets import TransactionalOffsetHandlers
from pybroker.server.handlers.transactional_produce import TransactionalProduce
from pybroker.server.handlers.transactions import TransactionHandlers
from pybroker.server.producer_ids import ProducerIds
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.data_node import CALL_TIMEOUT_MS, CONTROLLER_ID, HEARTBEAT_MS, BrokerNode, DataSetting, Done
from pybroker.testing.sim.disk_logs import DiskLogs
from pybroker.testing.sim.network import Call, Network
from pybroker.testing.sim.raft_checks import InvariantError
from pybroker.testing.sim.schedule import Schedule
from pybroker.testing.sim.short_produce import ShortProduce, produce_frame
from pybroker.testing.sim.trace import Trace, brief

COORDINATORS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)  # in the order in which their drivers are made
WALL_MS: Final = 1_700_000_000_000  # when a run begins, by the brokers' clocks
MAX_HOP_US: Final = 300  # from one thread to another
MAX_TURN_US: Final = 1_000  # until every socket that was ready has had its turn
MAX_LOAD_US: Final = 150_000

CONFIG: Final = """
process.roles=broker
listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
controller.quorum.voters=0@localhost:9093
log.dirs=/data
request.timeout.ms=1000
offsets.commit.timeout.ms=1000
group.min.session.timeout.ms=100
group.initial.rebalance.delay.ms=100
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=1500
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=200
transaction.abort.timed.out.transaction.cleanup.interval.ms=300
"""


@lru_cache(maxsize=64)
def broker_config(broker_id: int, more: str) -> Config:
    loaded = load_text(f"{CONFIG}node.id={broker_id}\n{more}", f"broker {broker_id}")
    assert loaded.config is not None, loaded.problems
    return loaded.config


class CoordinatorSetting(DataSetting, Protocol):
    """What was drawn for a run, and who looks on."""

    broker_config: str  # lines beside CONFIG
    max_producer_epoch: int
    publish_us: int  # from one publisher of metadata to the next, at most
    trace: Trace | None

    def new_member_id(self) -> str: ...

    def observe(self, broker: CoordinatorBroker) -> None:
        """After everything that the broker does."""

    def carries_out(self, broker: CoordinatorBroker, effect: Effect) -> None:
        """What a coordinator of the broker has decided."""


class SimDriver:
    """Runs a coordinator's rounds. A `Driver`."""

    def __init__(
        self,
        broker: CoordinatorBroker,
        name: str,
        runtime: CoordinatorRuntime[Any],
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        perform: Callable[[Effect], None],
        load: Callable[[Load], int],
    ) -> None:
        self.runtime = runtime
        self._broker = broker
        self._name = name
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._perform = perform
        self._load = load
        self._inbox: deque[Event] = deque()
        self._is_at_it = False
        self._alarm_ms: int | None = None

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def submit(self, event: Event) -> None:
        self._inbox.append(event)
        while self._inbox and not self._is_at_it:
            events = list(self._inbox)
            self._inbox.clear()
            self._round(events, fires_timers=False)

    def submit_together(self, events: Sequence[Event]) -> bool:
        if self._is_at_it:
            return False
        self._round(list(events), fires_timers=False)
        return True

    def submit_slow(self, event: Event) -> None:
        self._broker.hop(MAX_HOP_US, partial(self._slow_round, event))

    def _slow_round(self, event: Event) -> None:
        self._round([event], fires_timers=True)
        if self._inbox:
            self.submit(self._inbox.pop())

    def _round(self, events: list[Event], *, fires_timers: bool) -> None:
        self._is_at_it = True
        try:
            effects = self.runtime.run(self._now_ms(), self._wall_ms(), events, fires_timers=fires_timers)
        finally:
            self._is_at_it = False
        for effect in effects:
            if isinstance(effect, Load):
                self._broker.hop(MAX_LOAD_US, partial(self._run_load, effect))
            else:
                self._broker.tell(self._name, effect)
                self._broker.setting.carries_out(self._broker, effect)
                self._perform(effect)
        self._set_alarm()

    def _set_alarm(self) -> None:
        deadline_ms = self.runtime.deadline_ms
        if deadline_ms is not None and (self._alarm_ms is None or deadline_ms < self._alarm_ms):
            self._alarm_ms = deadline_ms
            self._broker.timer.add(deadline_ms, partial(self._ring, deadline_ms))

    def _ring(self, alarm_ms: int) -> None:
        if self._alarm_ms == alarm_ms:
            self._alarm_ms = None
            self._round([], fires_timers=True)
            self._set_alarm()

    def _run_load(self, wanted: Load) -> None:
        event: Event
        try:
            event = Loaded(wanted.partition, wanted.shard, self._load(wanted))
        except LoadError as error:
            event = LoadFailed(wanted.partition, wanted.shard, str(error))
        self.submit_slow(event)


class SimRequest:
    """As much of a Request as the handlers look at."""

    may_block = True
    client_id = "client"

    connection = SimpleNamespace(peer=("127.0.0.1", 1))

    def __init__(self, network: Network, call: Call, unanswered: dict[Call, int]) -> None:
        assert call.version is not None, call.message
        self.version = call.version
        self._network = network
        self._call = call
        self._unanswered = unanswered
        if isinstance(call.message, produce.ProduceRequest):
            self.frame, self.position = produce_frame(call.message, call.version, self.client_id)

    def make_room(self, size: int) -> None: ...

    def respond(self, response: Message) -> None:
        if isinstance(response, fetch.FetchResponse):
            for topic in response.responses:
                for data in topic.partitions:
                    if isinstance(data.records, FileSlice):
                        data.records = data.records.read()
        if self._unanswered.pop(self._call, None) is None:
            raise InvariantError(f"{brief(self._call.message)} is answered twice, the second time with {brief(response)}")
        self._network.respond(self._call, response)


class _Clock:
    """The broker's timer, with the time."""

    def __init__(self, broker: CoordinatorBroker) -> None:
        self.now_ms = broker.now_ms
        self.add = broker.timer.add


class CoordinatorBroker(BrokerNode):
    logs: DiskLogs

    def __init__(
        self,
        schedule: Schedule,
        node_id: int,
        clock: SimClock,
        network: Network,
        logs: DiskLogs,
        setting: CoordinatorSetting,
    ) -> None:
        super().__init__(schedule, node_id, clock, network, logs, setting)
        self.wall_offset_ms = 0
        self.loses_power = False  # when it crashes next
        self.setting = setting

    # A process.

    def wall_ms(self) -> int:
        return WALL_MS + self.schedule.now_us // 1000 + self.wall_offset_ms

    def boot(self) -> None:
        self.is_serving = False
        self.drivers: list[SimDriver] = []
        self._to_publish: deque[Callable[[], None]] = deque()
        self.unanswered: dict[Call, int] = {}  # and when each came
        self.seen: dict[TopicPartition, int] = {}  # up to where the world has looked at what is committed here
        super().boot()

    def start_handlers(self) -> None:
        super().start_handlers()
        config = broker_config(self.node_id, self.setting.broker_config)
        replicas = self.replicas
        timer: Any = _Clock(self)
        self.groups = GroupCoordinator(
            config,
            replicas,
            monotonic_ms=self.now_ms,
            wall_ms=self.wall_ms,
            new_uuid=self.setting.new_member_id,
            new_driver=self._new_driver,
        )
        producer_ids = ProducerIds(self, self.node_id, lambda: self.epoch)
        self.transactions = TransactionCoordinator(
            config, replicas, producer_ids, timer, wall_ms=self.wall_ms, new_driver=self._new_driver
        )
        self.transactions.settings = replace(self.transactions.settings, max_epoch=self.setting.max_producer_epoch)
        markers = MarkerWriter(replicas, self.groups, lambda: CALL_TIMEOUT_MS)
        sender = MarkerSender(
            self.node_id,
            image=lambda: self.transactions.image,
            address_of=self._address_of,
            send=self._ask_broker,
            write_here=markers.write,
            epoch_of=self.transactions.epoch_of,
            on_written=self.transactions.markers_written,
            timer=timer,
            now_ms=self.now_ms,
            timeout_ms=lambda: CALL_TIMEOUT_MS,
        )
        self.transactions.send_markers = sender.send
        checks = TransactionChecks(
            config,
            self.transactions,
            address_of=self._address_of,
            send=self._ask_broker,
            timer=timer,
            now_ms=self.now_ms,
        )
        self.transactions.on_leaders_moved += [sender.leaders_moved, checks.leaders_moved]

        def verifies() -> bool:
            return True

        def image_of() -> MetadataImage:
            return self.image

        group = GroupHandlers(self.groups)
        group_offset = GroupOffsetHandlers(self.groups, image_of)
        transaction = TransactionHandlers(self.transactions, self.groups, markers, lambda names: None, self.wall_ms)
        producer = ProducerHandlers(replicas, producer_ids, self.transactions.submit_with_id, lambda: 900_000)
        transactional_offset = TransactionalOffsetHandlers(self.groups, replicas, checks.submit, image_of, verifies)
        produces = ProduceHandlers(replicas, TransactionalProduce(replicas, checks.submit, verifies))
        self._short_produce = ShortProduce(produces.plain, partial(self.hop, MAX_TURN_US))
        self._handlers: dict[type[Message], Callable[[Any, Any], Any]] = {
            fetch.FetchRequest: self._fetches.handle_fetch,
            offsets.ListOffsetsRequest: self._offsets.handle_list_offsets,
            produce.ProduceRequest: produces.handle_produce,
            groups.JoinGroupRequest: group.handle_join_group,
            groups.SyncGroupRequest: group.handle_sync_group,
            groups.HeartbeatRequest: group.handle_heartbeat,
            groups.LeaveGroupRequest: group.handle_leave_group,
            consumer_groups.ConsumerGroupHeartbeatRequest: ConsumerGroupHandlers(
                self.groups, image_of, config
            ).handle_consumer_group_heartbeat,
            group_offsets.OffsetCommitRequest: group_offset.handle_offset_commit,
            group_offsets.OffsetFetchRequest: group_offset.handle_offset_fetch,
            transactions.InitProducerIdRequest: producer.handle_init_producer_id,
            transactions.AddPartitionsToTxnRequest: transaction.handle_add_partitions_to_txn,
            transactions.AddOffsetsToTxnRequest: transaction.handle_add_offsets_to_txn,
            transactions.EndTxnRequest: transaction.handle_end_txn,
            transactions.WriteTxnMarkersRequest: transaction.handle_write_txn_markers,
            transactions.TxnOffsetCommitRequest: transactional_offset.handle_txn_offset_commit,
        }

    def _new_driver(self, name: str, runtime: CoordinatorRuntime[Any], **named: Any) -> SimDriver:
        driver = SimDriver(self, name, runtime, **named)
        self.drivers.append(driver)
        return driver

    def lose_memory(self) -> None:
        super().lose_memory()
        self.is_serving = False
        if self.loses_power:
            self.loses_power = False
            self.logs.lose_power()
        else:
            self.logs.kill()

    def shard_of(self, topic: str, index: int) -> Any:
        """The shard that is loaded here for a partition of a coordinator's topic; None: there is none."""
        return self.drivers[COORDINATORS.index(topic)].runtime.shard_of(index)

    def hop(self, longest_us: int, action: Callable[[], None]) -> None:
        """Have it done on another thread."""
        self.after_us(self._setting.draw_below(longest_us), self._hopped, action)

    def _hopped(self, action: Callable[[], None]) -> None:
        action()
        self.arm()

    def deliver(self, life: int, action: Callable[..., None], *args: Any) -> None:
        super().deliver(life, action, *args)
        if self.is_up and not self.is_paused:
            self.setting.observe(self)

    def tell(self, name: str, effect: Effect) -> None:
        if self.setting.trace is not None:
            said = getattr(effect, "response", None) if hasattr(effect, "response") else getattr(effect, "code", effect)
            self.setting.say(self.node_id, f"{name}: {type(effect).__name__} {brief(said)}")

    # In the cluster.

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """One publisher after the other; requests and fetchers have their turn in between, as on threads of their own."""
        is_at_it = bool(self._to_publish)
        for publish in (super().publish, self.groups.publish, self.transactions.publish):
            self._to_publish.append(partial(publish, delta, image))
        if not is_at_it:
            self._publish_next()

    def _publish_next(self) -> None:
        self._to_publish.popleft()()
        if self._to_publish:
            self.hop(self.setting.publish_us, self._publish_next)

    def heard_of_heartbeat(self, response: Any) -> None:
        if response is not None and not response.error_code and not response.is_fenced:
            self.is_serving = True

    def submit(self, request: Message, version: int, done: Callable[[Message], None]) -> None:
        """To the controller, until it answers: a ControllerChannel."""

        def answered(response: Message | None) -> None:
            if response is None:
                self.later(HEARTBEAT_MS, lambda: self.submit(request, version, done))
            else:
                done(response)

        self.ask(CONTROLLER_ID, request, answered)

    # Other brokers.

    def _address_of(self, broker_id: int) -> Address | None:
        return Address(str(broker_id), 0) if broker_id in self.image.brokers else None

    def _send(self, address: Address, request: Message, timeout_ms: int, done: Done, **_: object) -> None:
        may_repeat = not isinstance(request, transactions.WriteTxnMarkersRequest) or all(
            # Before KIP-890 a marker that comes again ends whatever its producer has begun since: nothing tells them apart.
            marker.transaction_version >= EPOCH_BUMP
            for marker in request.markers
        )
        self.ask(int(address.host), request, done, timeout_ms, request.VERSIONS.high, may_repeat=may_repeat)

    def _ask_broker(
        self, address: Address, request: Message, timeout_ms: int, done: Callable[[Message | RequestError], None], /
    ) -> None:
        def answered(response: Message | None) -> None:
            done(RequestError(Failure.TIMED_OUT, address, "no answer") if response is None else response)

        self._send(address, request, timeout_ms, answered)

    # Requests.

    def handle_request(self, call: Call) -> None:
        if not self.is_serving:
            return  # nobody is let in yet
        self.unanswered[call] = self.schedule.now_us
        request = SimRequest(self.network, call, self.unanswered)
        if not (isinstance(call.message, produce.ProduceRequest) and self._short_produce.answer(request)):
            answer = self._handlers[type(call.message)](request, call.message)
            if answer is not None:
                request.respond(answer)
        self.arm()
