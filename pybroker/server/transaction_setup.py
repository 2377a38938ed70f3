"""Puts the transactions of a broker together: coordinator, markers, what is asked of other brokers' coordinators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pybroker.client.node_client import NodeClient
from pybroker.config import Config
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.clocks import wall_clock_ms
from pybroker.server.coordinators.groups import GroupCoordinator
from pybroker.server.coordinators.marker_sender import MarkerSender
from pybroker.server.coordinators.marker_writer import MarkerWriter
from pybroker.server.coordinators.transaction_checks import TransactionChecks
from pybroker.server.coordinators.transactions import TransactionCoordinator
from pybroker.server.producer_ids import ProducerIds
from pybroker.server.replication_setup import address_of
from pybroker.server.timer_thread import TimerThread


class Transactions(NamedTuple):
    coordinator: TransactionCoordinator
    markers: MarkerWriter
    checks: TransactionChecks
    stop: Callable[[], None]


def start_transactions(
    config: Config, replicas: ReplicaManager, groups: GroupCoordinator, producer_ids: ProducerIds, timer: TimerThread
) -> Transactions:
    client = NodeClient(
        client_id=f"broker-{config.int('node.id')}-transactions",
        max_response_bytes=config.int("socket.request.max.bytes"),
        connection_timeout_ms=config.int("socket.connection.setup.timeout.ms"),
    )
    coordinator = TransactionCoordinator(config, replicas, producer_ids, timer, wall_ms=wall_clock_ms)
    address = partial(address_of, lambda: coordinator.image, config["inter.broker.listener.name"])

    def timeout_ms() -> int:
        return config.int("request.timeout.ms")

    markers = MarkerWriter(replicas, groups, timeout_ms)
    sender = MarkerSender(
        config.int("node.id"),
        image=lambda: coordinator.image,
        address_of=address,
        send=client.send,
        write_here=markers.write,
        epoch_of=coordinator.epoch_of,
        on_written=coordinator.markers_written,
        timer=timer,
        now_ms=timer.now_ms,
        timeout_ms=timeout_ms,
    )
    coordinator.send_markers = sender.send
    checks = TransactionChecks(config, coordinator, address_of=address, send=client.send, timer=timer, now_ms=timer.now_ms)
    coordinator.on_leaders_moved += [sender.leaders_moved, checks.leaders_moved]
    client.start()
    coordinator.start()

    def stop() -> None:
        coordinator.stop()
        client.stop()

    return Transactions(coordinator, markers, checks, stop)
