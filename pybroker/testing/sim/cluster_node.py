"""A whole node in the simulator, as far as it is pure: its metadata replica with real files on a simulated disk, the active
controller while it leads, and the machines by which a broker and a controller make themselves known.

It stands in for the threads and sockets of `server`: what those do with the machines is done here, in virtual time. The power
may go in the middle of a step, and a write may fail: then the replica begins anew a little later, as in `server`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, Final

from pybroker.base.filesystem import FileSystem
from pybroker.base.ids import Uuid
from pybroker.config import Config, load_text
from pybroker.log.segment import FileSlice
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.features import SUPPORTED, metadata_version
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages import cluster
from pybroker.protocol.messages.api_versions import ApiVersionsRequest
from pybroker.protocol.messages.fetch import FetchResponse
from pybroker.protocol.records.batch import RecordBatch, iter_batches
from pybroker.raft.events import (
    Effect,
    Event,
    NodeLost,
    Recovered,
    RequestDropped,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    Send,
    SnapshotId,
)
from pybroker.raft.events import Trace as TraceEffect
from pybroker.raft.quorum import Quorum
from pybroker.raft.setting import QuorumSetting
from pybroker.server import broker_lifecycle as lifecycle
from pybroker.server import controller_registration as registration
from pybroker.server.bootstrap import FormatPlan, Storage, format_storage, open_storage
from pybroker.server.quorum.metadata_quorum import RETRY_MS
from pybroker.server.quorum.replica import MetadataReplica, SnapshotJob
from pybroker.server.quorum.setup import first_records, quorum_setting, replica_settings, write_image
from pybroker.server.quorum.store import Entry, MetadataStore
from pybroker.server.response_errors import errors_in
from pybroker.testing.disk import PowerCutError, SimDisk
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.cluster_checks import QuorumChecks, StoredBatch
from pybroker.testing.sim.faults import DiskFaults
from pybroker.testing.sim.network import Call, Network
from pybroker.testing.sim.node import SimNode
from pybroker.testing.sim.raft_node import API_VERSIONS, address_of, node_at
from pybroker.testing.sim.schedule import Schedule
from pybroker.testing.sim.trace import Trace, brief

CONTROLLER: Final = "CONTROLLER"
RETRY_US: Final = RETRY_MS * 1000
BROKER_PORT: Final = 9092


def node_config(node_id: int, *, is_controller: bool, is_broker: bool, keys: Mapping[str, object]) -> Config:
    roles = [name for name, is_it in (("broker", is_broker), ("controller", is_controller)) if is_it]
    listeners = [f"PLAINTEXT://node{node_id}:{BROKER_PORT}"] if is_broker else []
    if is_controller:
        at = address_of(node_id)
        listeners.append(f"{CONTROLLER}://{at.host}:{at.port}")
    texts = {
        "process.roles": ",".join(roles),
        "node.id": node_id,
        "listeners": ",".join(listeners),
        "controller.listener.names": CONTROLLER,
        "log.dirs": "/data",
        **keys,
    }
    loaded = load_text("".join(f"{key}={value}\n" for key, value in texts.items()), "server.properties")
    assert loaded.config is not None, loaded.problems
    return loaded.config


def stored(batches: Iterable[RecordBatch]) -> list[StoredBatch]:
    return [StoredBatch(batch.base_offset, batch.partition_leader_epoch, batch.crc) for batch in batches]


class CheckedStore(MetadataStore):
    """Tells what is done to the log."""

    def __init__(self, filesystem: FileSystem, config: Config, now_ms: int, checks: QuorumChecks) -> None:
        super().__init__(filesystem, config, now_ms)
        self._checks = checks
        self._node_id = config.int("node.id")
        self._high_watermark = 0

    def reopen(self, now_ms: int) -> None:
        super().reopen(now_ms)
        self._high_watermark = 0

    def append(self, data: bytes, now_ms: int) -> None:
        epoch_before = self._log.leader_epochs.latest_epoch
        super().append(data, now_ms)
        self._checks.appended(self._node_id, epoch_before, stored(iter_batches(data)))

    def truncate_to(self, end_offset: int, now_ms: int) -> None:
        self._checks.truncated(self._node_id, stored(self._log.batches(end_offset)))
        super().truncate_to(end_offset, now_ms)

    def set_high_watermark(self, offset: int) -> None:
        self._checks.advanced(self._node_id, self._high_watermark, offset)
        self._high_watermark = offset
        super().set_high_watermark(offset)

    def loaded(self, start: int, end: int) -> None:
        """What the log has of it is committed."""
        self._checks.committed(self._node_id, stored(self._log.batches(start, end)))


class SpokenQuorum(Quorum):
    """Says what happens to it, and what it wants done."""

    __slots__ = ("_say",)

    def __init__(
        self, setting: QuorumSetting, recovered: Recovered, *, draw_below: Callable[[int], int], say: Callable[[str], None]
    ) -> None:
        super().__init__(setting, recovered, draw_below=draw_below)
        self._say = say

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        self._say(f"> {brief(event)}")
        effects = super().step(now_ms, event)
        for effect in effects:
            self._say(f"    # {effect.text}" if isinstance(effect, TraceEffect) else f"    < {brief(effect)}")
        return effects


class ClusterNode(SimNode):
    def __init__(
        self,
        schedule: Schedule,
        config: Config,
        clock: SimClock,
        *,
        random: Random,
        network: Network,
        disk_faults: DiskFaults,
        cluster_id: str,
        plan: FormatPlan,
        checks: QuorumChecks,
        on_image: Callable[[ClusterNode, MetadataImage], None],
        on_answer: Callable[[ClusterNode, Message, Message], None],
        trace: Trace | None,
    ) -> None:
        """Its disk is formatted by `plan`. `on_image` hears of every image that is published here, `on_answer` of what this
        node's controller answered."""
        super().__init__(schedule, config.int("node.id"), clock)
        self.config = config
        self.disk = SimDisk(random)
        self.replica: MetadataReplica | None = None
        self.broker: lifecycle.BrokerLifecycle | None = None
        self.incarnation_id = Uuid(bytes(16))
        self.image = EMPTY_IMAGE
        self.leader_id: int | None = None
        self.power_cuts = 0  # in the middle of a step
        self.failed_writes = 0
        self.loses_power = False  # at the next crash: else the machine goes on, and with it whatever was written
        self.on_crash: Callable[[ClusterNode], None] = lambda node: None
        self._random = random
        self._network = network
        self._disk_faults = disk_faults
        self._cluster_id = cluster_id
        self._checks = checks
        self._on_image = on_image
        self._on_answer = on_answer
        self._trace = trace
        self._registration: registration.ControllerRegistration | None = None
        self._previous_epoch = -1
        self._calls: dict[int, Call] = {}
        self._waiting: dict[int, Callable[[Message | None], None]] = {}
        self._next_id = 0
        self._connected: dict[int, None] = {}  # brokers, as they reach this controller
        self._flush_due = self._retry_due = False
        self._storage = self._formatted(plan)
        self._store: CheckedStore | None = None

    def _formatted(self, plan: FormatPlan) -> Storage:
        format_storage(self.disk, self.config, self._cluster_id, plan, now_ms=self.now_ms(), new_uuid=self._new_uuid)
        return open_storage(self.disk, self.config)

    @property
    def directory_id(self) -> Uuid | None:
        return self._storage.metadata_directory_id

    def replace_disk(self) -> None:
        """It comes back with an empty one, as another replica that knows no voters."""
        self.crash()
        self.disk = SimDisk(self._random)
        self._storage = self._formatted(FormatPlan(no_initial_controllers=True))

    # The process.

    def start(self) -> None:
        try:
            super().start()
        except PowerCutError:
            self._lose_power_in_a_step()
        except OSError as error:
            self.say(f"cannot start: {error}")
            self.crash()

    def deliver(self, life: int, action: Callable[..., None], *args: Any) -> None:
        try:
            super().deliver(life, action, *args)
        except PowerCutError:
            self._lose_power_in_a_step()

    def act(self, action: Callable[..., None], *args: Any) -> None:
        """What somebody makes this node do now."""
        self.deliver(self.life, action, *args)

    def _lose_power_in_a_step(self) -> None:
        self.power_cuts += 1
        self.loses_power = True
        self.crash()

    def _guarded(self, work: Callable[[int], None]) -> None:
        """Something that the replica does: a write that fails is the end of it, until it is tried anew."""
        replica = self.replica
        assert replica is not None
        try:
            work(self.now_ms())
        except OSError as error:
            self.say(f"a write failed: {error}")
            self.failed_writes += 1
            replica.fail(str(error))
            self._calls.clear()
            if not self._retry_due:
                self._retry_due = True
                self.after_us(RETRY_US, self._retry)

    def _retry(self) -> None:
        assert self.replica is not None
        self._retry_due = False
        self._guarded(self.replica.restart)
        self._settle()

    def _step(self, event: Event) -> None:
        replica = self.replica
        assert replica is not None
        self._guarded(lambda now_ms: replica.step(now_ms, event))

    def resign(self, *, is_final: bool) -> None:
        self._step(ResignRequested(is_final))
        self._settle()

    def boot(self) -> None:
        config, now_ms = self.config, self.now_ms()
        self.incarnation_id = self._new_uuid()
        self._store = store = CheckedStore(self.disk, config, now_ms, self._checks)
        endpoints = {CONTROLLER: address_of(self.node_id)} if config.is_controller else {}
        setting = quorum_setting(config, self._storage, endpoints)

        def new_quorum(recovered: Recovered) -> Quorum:
            if self._trace is None:
                return Quorum(setting, recovered, draw_below=self._random.randrange)
            return SpokenQuorum(setting, recovered, draw_below=self._random.randrange, say=self.say)

        def new_controller(image: MetadataImage) -> Controller:
            return Controller(
                config,
                self._cluster_id,
                new_uuid=self._new_uuid,
                draw_below=self._random.randrange,
                image=image,
                kraft_version=lambda: replica.quorum.kraft_version,
                check_kraft_version=check_kraft_version,
            )

        def check_kraft_version(level: int) -> KafkaError | None:
            refusal = replica.quorum.refuses_upgrade(level)
            return None if refusal is None else KafkaError(refusal.error, refusal.message or "")

        self.replica = replica = MetadataReplica(
            replica_settings(config),
            store,
            self,
            new_quorum=new_quorum,
            publish=self._published,
            new_controller=new_controller if config.is_controller else None,
            first_records=lambda: first_records(self.disk, config, self._storage),
            on_leader=self._leader_changed,
        )
        if config.is_controller:
            identity = registration.ControllerIdentity(
                self.node_id, self.incarnation_id, self._listeners(is_controller=True), self._features()
            )
            self._registration = registration.ControllerRegistration(identity, draw_below=self._random.randrange)
        if config.is_broker:
            self._start_broker()
        replica.start(now_ms)
        self._settle()

    def _start_broker(self) -> None:
        identity = lifecycle.BrokerIdentity(
            broker_id=self.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=self._listeners(is_controller=False),
            features=self._features(),
            rack=None,
            log_dirs=[self._storage.metadata_directory_id] if self._storage.metadata_directory_id else [],
            previous_broker_epoch=self._previous_epoch,
        )
        self._previous_epoch = -1
        settings = lifecycle.LifecycleSettings.of(self.config)
        self.broker = lifecycle.BrokerLifecycle(identity, settings, draw_below=self._random.randrange)
        self.after_us(0, self._tell_broker, lifecycle.Started())
        self.after_us(1 + self._random.randrange(50_000), self._tell_broker, lifecycle.Recovered())

    def lose_memory(self) -> None:
        self.say("loses power" if self.loses_power else "is killed")
        if self.loses_power:
            self.disk.crash()
        else:
            self.disk.kill()
        self.loses_power = False
        self.replica = self.broker = self._registration = self._store = None
        self.image = EMPTY_IMAGE
        self.leader_id = None
        self._calls.clear()
        self._waiting.clear()
        self._connected.clear()
        self._flush_due = self._retry_due = False
        self._network.process_ended(self)
        self.on_crash(self)

    def next_deadline_ms(self) -> int | None:
        if self.replica is None:
            return None
        due = [self.replica.deadline_ms]
        for machine in (self.broker, self._registration):
            if machine is not None and machine.deadline_ms is not None:
                due.append(machine.deadline_ms)
        return min(due)

    def handle_deadline(self) -> None:
        assert self.replica is not None
        now_ms = self.now_ms()
        self._guarded(self.replica.deadline_passed)
        if self.broker is not None and self.broker.deadline_ms is not None and self.broker.deadline_ms <= now_ms:
            self._tell_broker(lifecycle.DeadlinePassed())
        machine = self._registration
        if machine is not None and machine.deadline_ms is not None and machine.deadline_ms <= now_ms:
            self._tell_registration(registration.DeadlinePassed())
        self._settle()

    def _settle(self) -> None:
        """After whatever happened: one flush for all that was written, which takes its time."""
        if not self.is_up:
            return
        if not self._flush_due:
            self._flush_due = True
            faults, draw = self._disk_faults, self._random.random
            took_us = int(draw() * faults.max_flush_us)
            if draw() < faults.slow_flush:
                took_us += int(draw() * faults.slow_flush_us)
            self.after_us(took_us, self._flush)
        self.arm()

    def _flush(self) -> None:
        assert self.replica is not None
        self._flush_due = False
        try:
            self.replica.end_round(self.now_ms())
        except OSError as error:
            # Nobody knows what is on disk now: only another process, which reads it, can tell.
            self.say(f"a flush failed: {error}")
            self.crash()
        self.arm()

    # The network.

    def handle_request(self, call: Call) -> None:
        assert self.replica is not None
        message = call.message
        if isinstance(message, ApiVersionsRequest):
            self._network.respond(call, API_VERSIONS)
            return
        if isinstance(message, cluster.BrokerRegistrationRequest | cluster.BrokerHeartbeatRequest):
            self._broker_seen(message.broker_id)
        if Controller.handles(message):
            self._decide(message, partial(self._network.respond, call))
        elif not self.replica.is_failed:
            self._next_id += 1
            call.token = self._next_id
            self._calls[call.token] = call
            self._step(RequestReceived(call.token, message))
        self._settle()

    def _decide(self, message: Message, done: Callable[[Message], None]) -> None:
        replica = self.replica
        assert replica is not None

        def answered(response: Message) -> None:
            self._on_answer(self, message, response)
            done(response)

        self._guarded(lambda now_ms: replica.submit(now_ms, message, message.VERSIONS.high, answered))

    def handle_request_dropped(self, call: Call) -> None:
        if self._calls.pop(call.token, None) is not None and self.replica is not None:
            self._step(RequestDropped(call.token))
            self._settle()

    def handle_response(self, request_id: int, message: Message) -> None:
        # Of a copy, or too late: a client's connection would not give it to anybody.
        done = self._waiting.pop(request_id, None)
        if done is not None:
            done(message)
            self._settle()

    def handle_failure(self, request_id: int) -> None:
        done = self._waiting.pop(request_id, None)
        if done is not None:
            done(None)
            self._settle()

    def handle_node_lost(self, node_id: int) -> None:
        replica = self.replica
        assert replica is not None
        now_ms = self.now_ms()
        self._step(NodeLost(node_id))
        if node_id in self._connected:
            del self._connected[node_id]
            if replica.controller is not None:
                replica.controller.broker_connection_lost(now_ms, node_id)
        if node_id == self.leader_id and self.broker is not None:
            self._tell_broker(lifecycle.ConnectionLost())
        self._settle()

    def _broker_seen(self, broker_id: int) -> None:
        if broker_id not in self._connected:
            self._connected[broker_id] = None
            if self.replica is not None and self.replica.controller is not None:
                self.replica.controller.broker_connection_made(self.now_ms(), broker_id)

    def ask(self, target_id: int, message: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        self._next_id += 1
        self._waiting[self._next_id] = done
        self._network.send(self, self._next_id, target_id, message, timeout_ms)

    def ask_controller(self, message: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        """The active one, once: this node's own, or that of the leader it knows."""
        assert self.replica is not None
        if self.replica.is_active:
            if isinstance(message, cluster.BrokerRegistrationRequest | cluster.BrokerHeartbeatRequest):
                self._broker_seen(self.node_id)
            self._decide(message, done)
        elif self.leader_id is None or self.leader_id == self.node_id:
            self.after_us(0, done, None)
        else:
            self.ask(self.leader_id, message, timeout_ms, done)

    # The replica's outbox.

    def send(self, order: Send) -> None:
        assert self.replica is not None
        asker = self.replica.quorum

        def done(message: Message | None) -> None:
            assert self.replica is not None
            event = RequestFailed(order.request_id) if message is None else ResponseReceived(order.request_id, message)
            if asker is self.replica.quorum:  # one that began anew since counts its requests anew, too
                self._step(event)

        self.ask(node_at(order.address), order.message, order.timeout_ms, done)

    def respond(self, token: int, message: Message) -> None:
        call = self._calls.pop(token, None)
        if call is not None:
            if isinstance(message, FetchResponse) and message.responses:
                partition = message.responses[0].partitions[0]
                if isinstance(partition.records, FileSlice):
                    partition.records = partition.records.read()
            self._network.respond(call, message)

    def write_snapshot(self, job: SnapshotJob) -> None:
        self.after_us(self._random.randrange(50_000), self._write_snapshot, job)

    def _write_snapshot(self, job: SnapshotJob) -> None:
        try:
            write_image(self.disk, job)
        except OSError as error:
            assert self.replica is not None
            self.say(f"snapshot {job.snapshot} could not be written: {error}")
            self.replica.snapshot_failed(job.snapshot)
            return
        self.after_us(self._random.randrange(5_000), self._snapshot_written, job.snapshot)

    def _snapshot_written(self, snapshot: SnapshotId) -> None:
        replica = self.replica
        assert replica is not None
        self.say(f"wrote snapshot {snapshot}")
        self._guarded(lambda now_ms: replica.snapshot_written(now_ms, snapshot))
        self._settle()

    # What the replica says.

    def _leader_changed(self, epoch: int, leader_id: int | None) -> None:
        self.leader_id = leader_id
        self.say(f"leader of epoch {epoch} is {leader_id}")
        if leader_id is not None:
            self._checks.announced(self.node_id, epoch, leader_id)
        if leader_id is not None and self.broker is not None:
            self.after_us(0, self._tell_broker, lifecycle.ControllerChanged())

    def _published(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert self._store is not None
        self._store.loaded(self.image.offset + 1, image.offset + 1)
        self.image = image
        self._on_image(self, image)
        self.after_us(0, self._tell_published, image)

    def _tell_published(self, image: MetadataImage) -> None:
        if self.broker is not None:
            self._tell_broker(lifecycle.MetadataPublished(image.offset))
        if self._registration is not None:
            known = image.controllers.get(self.node_id)
            incarnation_id = None if known is None else known.incarnation_id
            self._tell_registration(registration.MetadataPublished(metadata_version(image), incarnation_id))

    # Broker and controller make themselves known.

    def _tell_broker(self, event: lifecycle.Event) -> None:
        broker = self.broker
        if broker is None or (broker.state is lifecycle.BrokerState.NOT_RUNNING and not isinstance(event, lifecycle.Started)):
            return
        for effect in broker.step(self.now_ms(), event):
            match effect:
                case lifecycle.SendToController(request_id, message, timeout_ms):
                    self.ask_controller(message, timeout_ms, partial(self._broker_answered, request_id))
                case lifecycle.StopBroker(reason):
                    self.say(f"stops: {reason}")
                case lifecycle.AnnounceState(lifecycle.BrokerState.SHUTTING_DOWN):
                    self._previous_epoch = broker.broker_epoch
                    self.after_us(1_000, self.crash)
                case lifecycle.AnnounceState() | lifecycle.AnnounceEpoch() | lifecycle.AnnounceFenced() | lifecycle.Trace():
                    self.say(f"broker: {brief(effect)}")
        self._settle()

    def _broker_answered(self, request_id: int, answer: Message | None) -> None:
        if answer is None:
            self._tell_broker(lifecycle.RequestFailed(request_id, "no answer"))
        else:
            self._tell_broker(lifecycle.ResponseReceived(request_id, answer))

    def begin_controlled_shutdown(self) -> None:
        self._tell_broker(lifecycle.ControlledShutdownRequested())

    def _tell_registration(self, event: registration.Event) -> None:
        machine = self._registration
        if machine is None:
            return
        for effect in machine.step(self.now_ms(), event):
            if isinstance(effect, registration.SendToController):
                self.ask_controller(effect.message, effect.timeout_ms, self._registration_answered)
        self._settle()

    def _registration_answered(self, answer: Message | None) -> None:
        failed = answer is None or ErrorCode.NOT_CONTROLLER in errors_in(answer)
        self._tell_registration(
            registration.RequestFailed() if failed or answer is None else registration.ResponseReceived(answer)
        )

    def _listeners(self, *, is_controller: bool) -> list[cluster.Listener]:
        name, port = (CONTROLLER, address_of(self.node_id).port) if is_controller else ("PLAINTEXT", BROKER_PORT)
        return [cluster.Listener(name=name, host=f"node{self.node_id}", port=port, security_protocol=0)]

    def _features(self) -> list[cluster.Feature]:
        return [
            cluster.Feature(name=name, min_supported_version=one.min_version, max_supported_version=one.max_version)
            for name, one in SUPPORTED.items()
        ]

    def _new_uuid(self) -> Uuid:
        return Uuid(self._random.randbytes(16))

    def entries(self, start: int, end: int) -> Iterator[Entry]:
        assert self._store is not None
        return self._store.entries(start, end)

    # For people.

    def say(self, text: str) -> None:
        if self._trace is not None:
            self._trace.add(self.schedule.now_us, self.describe(), text)

    def describe(self) -> str:
        replica = self.replica
        if replica is None:
            return f"node {self.node_id} down"
        active = " active" if replica.is_active else ""
        return f"node {self.node_id} {replica.quorum.role.value} e{replica.quorum.epoch}{active} ..{self.image.offset}"
