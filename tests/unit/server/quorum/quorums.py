"""Metadata replicas on disks in memory: one in its thread, or several in virtual time with a network that never waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from random import Random
from threading import Event
from typing import Any

from unit.config.configs import load_with

from pybroker.base.address import Address
from pybroker.base.filesystem import FileSystem
from pybroker.base.ids import Uuid
from pybroker.client.request_error import Failure, RequestError
from pybroker.config import Config
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.features import SUPPORTED
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages import cluster
from pybroker.protocol.messages.fetch import FetchResponse
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from pybroker.raft.events import (
    NodeLost,
    Recovered,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Send,
)
from pybroker.raft.quorum import Quorum
from pybroker.server.bootstrap import FormatPlan, Storage, format_if_needed, format_storage, open_storage
from pybroker.server.clocks import steady_clock
from pybroker.server.quorum.metadata_quorum import MetadataQuorum
from pybroker.server.quorum.replica import MetadataReplica, SnapshotJob
from pybroker.server.quorum.setup import first_records, open_quorum, quorum_setting, replica_settings, write_image
from pybroker.server.quorum.store import MetadataStore
from pybroker.testing.disk import SimDisk

NOW_MS = 1_800_000_000_000
WAIT_S = 20.0
CLUSTER_ID = "a-cluster-of-the-tests"
DIRECTORY = "/data/__cluster_metadata-0"
STATIC = {"controller.quorum.voters": "1@localhost:9093", "controller.quorum.bootstrap.servers": None}


def config_of(changes: Mapping[str, str | None] | None = None) -> Config:
    """A node with /data as its only directory; None takes a key away."""
    loaded = load_with({"log.dirs": "/data"} | dict(changes or {}))
    assert loaded.config is not None, loaded.problems
    return loaded.config


def formatted(filesystem: FileSystem, config: Config) -> Storage:
    numbers = count(1)
    is_alone = len(config.items_of("controller.quorum.voters")) <= 1
    return format_if_needed(
        filesystem,
        config,
        now_ms=NOW_MS,
        cluster_id=None if is_alone else "a-cluster-of-several",
        new_uuid=lambda: Uuid(b"uuid" + next(numbers).to_bytes(12, "big")),
    )


def creation(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=topics)


def registration(storage_id: Uuid, cluster_id: str, broker_id: int = 1) -> cluster.BrokerRegistrationRequest:
    return cluster.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=Uuid(b"one incarnation."),
        listeners=[cluster.Listener(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)],
        features=[
            cluster.Feature(name=name, min_supported_version=one.min_version, max_supported_version=one.max_version)
            for name, one in SUPPORTED.items()
        ],
        rack=None,
        log_dirs=[storage_id],
    )


def heartbeat(broker_epoch: int, offset: int, broker_id: int = 1) -> cluster.BrokerHeartbeatRequest:
    return cluster.BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        current_metadata_offset=offset,
        want_fence=False,
        want_shut_down=False,
    )


def code_of(response: Any) -> ErrorCode:
    return ErrorCode(response.topics[0].error_code)


# One, in its thread.


class NoPeers:
    """A client that reaches nobody, or that nobody may use."""

    def __init__(self, *, is_used: bool) -> None:
        self._is_used = is_used

    def send(self, address: Address, request: Message, timeout_ms: int, done: Callable[[Any], None], *, lane: str) -> None:
        assert self._is_used, f"a quorum of one asks nobody, but sends {request} to {address}"
        done(RequestError(Failure.NOT_CONNECTED, address, "there is nobody"))


def quorum_on(filesystem: FileSystem, config: Config | None = None, *, is_alone: bool = True) -> MetadataQuorum:
    """Not started yet. If it is not alone, the others cannot be reached."""
    config = config_of() if config is None else config
    storage = formatted(filesystem, config)
    endpoints = {"CONTROLLER": Address("localhost", 9093)}
    client: Any = NoPeers(is_used=not is_alone)
    return open_quorum(filesystem, config, storage, client, endpoints, now_ms=steady_clock())


def started_on(filesystem: FileSystem, config: Config | None = None) -> MetadataQuorum:
    """Leads, and has published what the log held."""
    quorum = quorum_on(filesystem, config)
    quorum.start()
    assert quorum.publishing.wait_until(lambda: quorum.has_caught_up, WAIT_S)
    return quorum


def with_broker(filesystem: FileSystem, config: Config | None = None) -> MetadataQuorum:
    """So that there can be topics."""
    quorum = started_on(filesystem, config)
    join(quorum, open_storage(filesystem, config_of() if config is None else config))
    return quorum


def join(quorum: MetadataQuorum, storage: Storage) -> int:
    """The broker's epoch."""
    assert storage.metadata_directory_id is not None
    registered = ask(quorum, registration(storage.metadata_directory_id, storage.cluster_id))
    assert registered.error_code == ErrorCode.NONE, registered
    assert not ask(quorum, heartbeat(registered.broker_epoch, quorum.image.offset)).is_fenced
    return int(registered.broker_epoch)


def ask(quorum: MetadataQuorum, request: Message, version: int | None = None) -> Any:
    answered = Event()
    answers: list[Message] = []

    def done(response: Message) -> None:
        answers.append(response)
        answered.set()

    quorum.submit(request, request.VERSIONS.high if version is None else version, done)
    assert answered.wait(WAIT_S), f"{request} was not answered"
    return answers[0]


# Several, in virtual time.


class Node:
    """A replica, its disk, and what came out of it. It writes snapshots when a test tells it to, or else at once."""

    def __init__(self, nodes: Nodes, node_id: int, config: Config) -> None:
        self.id = node_id
        self.config = config
        self.disk = SimDisk()
        self.published: list[tuple[MetadataDelta, MetadataImage]] = []
        self.leaders: list[tuple[int, int | None]] = []
        self.jobs: list[SnapshotJob] | None = None  # kept here, if that is a list
        self.sent: list[Send] = []
        self._nodes = nodes
        self._answers: dict[int, Callable[[Message], None]] = {}
        self._next_token = 0
        plan = FormatPlan()
        new_uuid = Random(node_id).randbytes
        format_storage(self.disk, config, CLUSTER_ID, plan, now_ms=NOW_MS, new_uuid=lambda: Uuid(new_uuid(16)))
        self.storage = open_storage(self.disk, config)
        self.is_up = False

    def start(self) -> None:
        config, random = self.config, Random(self.id)
        is_controller = config.is_controller
        self.store = MetadataStore(self.disk, config, self._nodes.now_ms)
        setting = quorum_setting(config, self.storage, {"CONTROLLER": address_of(self.id)} if is_controller else {})

        def new_quorum(recovered: Recovered) -> Quorum:
            return Quorum(setting, recovered, draw_below=random.randrange)

        def new_controller(image: MetadataImage) -> Controller:
            return Controller(
                config, CLUSTER_ID, new_uuid=lambda: Uuid(random.randbytes(16)), draw_below=random.randrange, image=image
            )

        self.replica = MetadataReplica(
            replica_settings(config),
            self.store,
            self,
            new_quorum=new_quorum,
            publish=lambda delta, image: self.published.append((delta, image)),
            new_controller=new_controller if is_controller else None,
            first_records=lambda: first_records(self.disk, config, self.storage),
            on_leader=lambda epoch, leader_id: self.leaders.append((epoch, leader_id)),
        )
        self.is_up = True
        self.replica.start(self._nodes.now_ms)
        self.replica.end_round(self._nodes.now_ms)

    def crash(self) -> None:
        """The power goes, and the others see that its connections broke."""
        self.is_up = False
        self.disk.crash()
        self._answers.clear()
        for other in self._nodes.running():
            other.replica.step(self._nodes.now_ms, NodeLost(self.id))

    def stop(self) -> None:
        self.is_up = False
        self.store.close()

    def receive(self, message: Message, done: Callable[[Message], None]) -> None:
        self._next_token += 1
        self._answers[self._next_token] = done
        self.replica.step(self._nodes.now_ms, RequestReceived(self._next_token, message))

    def submit(self, request: Message) -> list[Any]:
        """The answer is in the list when it has come."""
        answers: list[Any] = []
        self.replica.submit(self._nodes.now_ms, request, request.VERSIONS.high, answers.append)
        return answers

    def ask(self, request: Message) -> Any:
        answers = self.submit(request)
        self._nodes.run_until(lambda: bool(answers))
        return answers[0]

    def join(self) -> None:
        """Register as a broker with this node's own controller, so that there can be topics."""
        assert self.storage.metadata_directory_id is not None
        registered = self.ask(registration(self.storage.metadata_directory_id, CLUSTER_ID, self.id))
        assert registered.error_code == ErrorCode.NONE, registered
        assert not self.ask(heartbeat(registered.broker_epoch, self.replica.image.offset, self.id)).is_fenced

    # The outbox.

    def send(self, order: Send) -> None:
        self.sent.append(order)
        self._nodes.deliver(self, order)

    def respond(self, token: int, message: Message) -> None:
        if isinstance(message, FetchResponse) and message.responses:
            row = message.responses[0].partitions[0]
            if row.records:
                row.records = row.records if isinstance(row.records, bytes) else row.records.read()  # type: ignore[union-attr]
        done = self._answers.pop(token, None)
        if done is not None:
            done(message)

    def write_snapshot(self, job: SnapshotJob) -> None:
        if self.jobs is not None:
            self.jobs.append(job)
        else:
            self._nodes.later(lambda: self.finish(job))

    def finish(self, job: SnapshotJob) -> None:
        write_image(self.disk, job)
        self.replica.snapshot_written(self._nodes.now_ms, job.snapshot)


class Nodes:
    """`voters` by id, and `observers`, which are brokers. `keys` go into the configuration of all of them."""

    def __init__(self, voters: Sequence[int] = (1,), observers: Iterable[int] = (), **keys: object) -> None:
        self.now_ms = NOW_MS
        self._queue: list[Callable[[], None]] = []
        texts: dict[str, str | None] = {key.replace("_", "."): str(value) for key, value in keys.items()}
        texts |= {
            "controller.quorum.bootstrap.servers": None,
            "controller.quorum.voters": ",".join(f"{one}@{address_of(one).host}:{address_of(one).port}" for one in voters),
        }
        self.nodes: dict[int, Node] = {}
        for one in voters:
            self.nodes[one] = Node(self, one, config_of(texts | {"node.id": str(one)}))
        for one in observers:
            own = {"node.id": str(one), "process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
            self.nodes[one] = Node(self, one, config_of(texts | own))

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def start(self, *ids: int) -> Node:
        """All of them by default; the leader, once there is one that decides."""
        for one in ids or self.nodes:
            self.nodes[one].start()
        return self.leader()

    def leader(self) -> Node:
        self.run_until(lambda: any(node.replica.is_active for node in self.running()))
        return next(node for node in self.running() if node.replica.is_active)

    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up]

    def run_until(self, is_done: Callable[[], bool], within_ms: int = 60_000) -> None:
        end_ms = self.now_ms + within_ms
        self._settle()
        while not is_done():
            assert self.now_ms < end_ms, "it does not come to that"
            self._pass_time(end_ms)
            self._settle()

    def run(self, for_ms: int) -> None:
        end_ms = self.now_ms + for_ms
        self._settle()
        while self.now_ms < end_ms:
            self._pass_time(end_ms)
            self._settle()

    def _settle(self) -> None:
        """What is under way arrives, and what comes of it."""
        self._end_rounds()
        while self._queue:
            queue, self._queue = self._queue, []
            for action in queue:
                action()
            self._end_rounds()

    def _end_rounds(self) -> None:
        for node in self.running():
            node.replica.end_round(self.now_ms)

    def _pass_time(self, end_ms: int) -> None:
        """Until the next deadline."""
        self.now_ms = max(self.now_ms, min([end_ms, *(node.replica.deadline_ms for node in self.running())]))
        for node in self.running():
            if node.replica.deadline_ms <= self.now_ms:
                node.replica.deadline_passed(self.now_ms)

    def later(self, action: Callable[[], None]) -> None:
        self._queue.append(action)

    def deliver(self, source: Node, order: Send) -> None:
        target, life = self.nodes[order.address.port - 9093], source.replica.quorum

        def back(event: ResponseReceived | RequestFailed) -> None:
            if source.is_up and source.replica.quorum is life:
                source.replica.step(self.now_ms, event)

        def arrive() -> None:
            if target.is_up:
                target.receive(
                    order.message, lambda answer: self.later(lambda: back(ResponseReceived(order.request_id, answer)))
                )
            else:
                back(RequestFailed(order.request_id))

        self.later(arrive)


def address_of(node_id: int) -> Address:
    return Address("localhost", 9093 + node_id)
