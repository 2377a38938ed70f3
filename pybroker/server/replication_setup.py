"""Puts the replication of a broker together: its replicas, the fetchers that follow leaders, what goes to the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pybroker.base.address import Address
from pybroker.base.purgatory import Purgatory
from pybroker.client.node_client import NodeClient
from pybroker.config import Config
from pybroker.log.files import TopicPartition
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.scheduler import ThreadBackground
from pybroker.metadata.image import MetadataImage, ResourceType
from pybroker.network.loop_thread import LoopThread
from pybroker.protocol.message import Message
from pybroker.replication.directory_assignments import DirectoryAssignments
from pybroker.replication.fetcher import FetcherSettings
from pybroker.replication.fetchers import FetcherPorts, Fetchers
from pybroker.replication.isr_updates import IsrUpdates
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.replication.replica_selector import RACK_AWARE
from pybroker.replication.throttle import ALL, NO_LIMIT, ReplicationThrottle
from pybroker.server.active_controller import ActiveController
from pybroker.server.clocks import wall_clock_ms
from pybroker.server.config_parts import Part
from pybroker.server.dynamic_config import NodeConfig
from pybroker.server.timer_thread import TimerThread

LEADER: Final = "leader"
FOLLOWER: Final = "follower"


def open_replicas(
    logs: LogManager, config: Config, node_config: NodeConfig, timer: TimerThread, own_epoch: Callable[[], int]
) -> ReplicaManager:
    """The replicas of a broker, which know of no other broker yet."""
    replicas = ReplicaManager(
        logs,
        config.int("node.id"),
        node_config.config_of,
        wall_clock_ms,
        Purgatory[TopicPartition](timer),
        monotonic_ms=timer.now_ms,
        max_lag_ms=config.int("replica.lag.time.max.ms"),
        own_epoch=own_epoch,
        picks_by_rack=config["replica.selector.class"] == RACK_AWARE,
    )
    replicas.leader_throttle = _throttle(LEADER, replicas, node_config, config)
    return replicas


def start_replication(
    replicas: ReplicaManager,
    config: Config,
    node_config: NodeConfig,
    controller: ActiveController,
    timer: TimerThread,
    scheduler: ThreadBackground,
    own_epoch: Callable[[], int],
    host: Callable[[], LoopThread | None] = lambda: None,
) -> Callable[[], None]:
    """Follow and be followed; returns what ends that. The broker is registered. `host` gives the thread, if one serves all
    requests of other brokers: what they fetch from us and we from them go hand in hand, and with a GIL a second thread would
    only take turns with it."""
    broker_id, timeout_ms = config.int("node.id"), config.int("controller.socket.timeout.ms")
    client = NodeClient(
        client_id=f"broker-{broker_id}-fetcher",
        max_response_bytes=config.int("socket.request.max.bytes"),
        connection_timeout_ms=config.int("socket.connection.setup.timeout.ms"),
        host=host,
    )

    def ask(request: Message, done: Callable[[Message | None], None]) -> None:
        controller.ask(request, timeout_ms, done)

    updates = IsrUpdates(ask, broker_id, own_epoch, timer, timer.now_ms, replicas.proposal_answered)
    assignments = DirectoryAssignments(ask, broker_id, own_epoch, timer, timer.now_ms)
    ports = FetcherPorts(
        send=partial(client.send, at_once=True),
        timer=timer,
        background=scheduler,
        logs=replicas.logs,
        now_ms=wall_clock_ms,
        monotonic_ms=timer.now_ms,
        own_epoch=own_epoch,
        address_of=partial(address_of, lambda: replicas.image, config["inter.broker.listener.name"]),
        on_committed=replicas.committed_more,
        throttle=_throttle(FOLLOWER, replicas, node_config, config),
    )
    settings = FetcherSettings(
        broker_id=broker_id,
        min_bytes=config.int("replica.fetch.min.bytes"),
        max_bytes=config.int("replica.fetch.max.bytes"),
        response_max_bytes=config.int("replica.fetch.response.max.bytes"),
        wait_max_ms=config.int("replica.fetch.wait.max.ms"),
        backoff_ms=config.int("replica.fetch.backoff.ms"),
    )
    fetchers = Fetchers(settings, config.int("num.replica.fetchers"), config.int("replica.socket.timeout.ms"), ports)
    client.start()
    replicas.replicate(fetchers, updates.submit, assignments.submit)
    node_config.subscribe(lambda _, new: replicas.resize_fetchers(new.int("num.replica.fetchers")), Part.REPLICATION)
    scheduler.every("ISR check", replicas.check_lag, max(1, config.int("replica.lag.time.max.ms") // 2))

    def stop() -> None:
        replicas.stop_replicating()
        client.stop()

    return stop


def address_of(image: Callable[[], MetadataImage], listener: str, broker_id: int) -> Address | None:
    """Of a broker's listener for other brokers; None while it is not registered, or without it."""
    broker = image().brokers.get(broker_id)
    endpoint = None if broker is None else broker.endpoints.get(listener)
    return None if endpoint is None else Address(endpoint.host, endpoint.port)


def _throttle(side: str, replicas: ReplicaManager, node_config: NodeConfig, config: Config) -> ReplicationThrottle:
    def replicas_of(topic: str) -> Sequence[str]:
        values: Sequence[str] = node_config.topic_value(replicas.image, topic, f"{side}.replication.throttled.replicas")
        return values

    return ReplicationThrottle(
        replicas.broker_id,
        _rate(replicas, f"{side}.replication.throttled.rate"),
        replicas_of,
        replicas.monotonic_ms,
        windows=config.int("replication.quota.window.num"),
        window_ms=1000 * config.int("replication.quota.window.size.seconds"),
    )


def moving_throttle(replicas: ReplicaManager, config: Config) -> ReplicationThrottle:
    """Of moves between log directories, which holds back every replica."""
    return ReplicationThrottle(
        replicas.broker_id,
        _rate(replicas, "replica.alter.log.dirs.io.max.bytes.per.second"),
        lambda topic: (ALL,),
        replicas.monotonic_ms,
        windows=config.int("alter.log.dirs.replication.quota.window.num"),
        window_ms=1000 * config.int("alter.log.dirs.replication.quota.window.size.seconds"),
    )


def _rate(replicas: ReplicaManager, key: str) -> Callable[[], int]:
    """Bytes a second, of this broker or of all, as the metadata has it."""
    known: tuple[MetadataImage, int] = (replicas.image, NO_LIMIT)

    def bytes_a_second() -> int:
        nonlocal known
        image = replicas.image
        if known[0] is not image:
            configs = image.config_of(ResourceType.BROKER, str(replicas.broker_id))
            text = configs.get(key) or image.config_of(ResourceType.BROKER, "").get(key) or ""
            known = image, int(text) if text.isdecimal() else NO_LIMIT
        return known[1]

    return bytes_a_second
