"""A node: puts the parts together, starts them in order, and stops them in the reverse one.

Directories are locked first; then the controller's listeners are bound, since the quorum is formed over them, and the replica
of the metadata starts; a broker catches up with it before it loads its logs, registers and lets clients in. `start` and `stop`
are for one thread; a failure of the last log directory asks for a stop.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pybroker.base.address import Address
from pybroker.base.filesystem import FileSystem, OsFileSystem
from pybroker.base.metrics import Metrics
from pybroker.client.node_client import NodeClient
from pybroker.config import Config
from pybroker.log.checkpoints import CorruptFileError
from pybroker.log.manager.directories import LogDirError
from pybroker.network.acceptor import ListenerError
from pybroker.network.socket_server import SocketServer
from pybroker.server.active_controller import ActiveController
from pybroker.server.bootstrap import Storage, StorageError, format_if_needed, open_storage
from pybroker.server.broker_role import BrokerRole, MembershipError
from pybroker.server.clocks import steady_clock, wall_clock_ms
from pybroker.server.controller_client import ControllerClient
from pybroker.server.controller_role import ControllerRole
from pybroker.server.dynamic_config import NodeConfig
from pybroker.server.metadata_snapshot import SnapshotError
from pybroker.server.quorum.setup import open_quorum
from pybroker.server.quorum.store import MetadataLogError
from pybroker.server.timer_thread import TimerThread

logger = logging.getLogger(__name__)

# So that a thread with work for the disk gives way to a network thread at once (the default is 5 ms).
SWITCH_INTERVAL_S: Final = 0.0001
# How often a start that waits for other nodes says so.
WAITS_S: Final = 10.0


_REASONS: Final = (
    StorageError,
    LogDirError,
    MetadataLogError,
    SnapshotError,
    ListenerError,
    CorruptFileError,
    MembershipError,
    OSError,
)


class StartError(Exception):
    """The node cannot start; the text says why and what to do."""


class StartGivenUpError(StartError):
    """The start was asked to end while it waited for other nodes."""


class Node:
    broker: BrokerRole | None = None
    controller: ControllerRole | None = None

    def __init__(
        self,
        config: Config,
        *,
        config_path: Path | None = None,
        formats: bool = False,
        cluster_id: str | None = None,
        on_fatal: Callable[[], None] = lambda: None,
        filesystem: FileSystem | None = None,
    ) -> None:
        """`formats`: directories that are not formatted are, for cluster `cluster_id` if that is given. `on_fatal` is called
        when the node cannot go on."""
        self.config = config
        self.has_failed = False
        self._config_path = config_path
        self._formats = formats
        self._cluster_id = cluster_id
        self._on_fatal = on_fatal
        self._filesystem = OsFileSystem() if filesystem is None else filesystem
        self._undo: list[Callable[[], object]] = []
        self._is_stopping = self._has_started = False

    @property
    def sockets(self) -> SocketServer:
        """Those that clients use: the broker's, or a mere controller's."""
        role = self.broker or self.controller
        assert role is not None
        return role.sockets

    # Start.

    def start(self) -> None:
        """Returns when the node answers; StartError, with everything let go again, if it cannot."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            self._start()
        except _REASONS as error:
            self._stop_parts()
            is_given_up = self._is_stopping and isinstance(error, MembershipError)
            raise (StartGivenUpError if is_given_up else StartError)(str(error)) from error
        except BaseException:
            self._stop_parts()
            raise

    def _start(self) -> None:
        config = self.config
        storage = self._storage()
        self.cluster_id = storage.cluster_id
        directories = ", ".join(map(os.path.abspath, config.items_of("log.dirs")))
        logger.info("node %d of cluster %s, log directories: %s", config["node.id"], self.cluster_id, directories)
        if config["authorizer.class.name"]:
            logger.warning("authorizer.class.name has no effect yet: no access control entry is enforced, all is allowed")
        self.metrics = Metrics()
        self.timer = TimerThread()
        self.timer.start()
        self._undo.append(self.timer.stop)
        if config.is_broker:
            self.broker = BrokerRole(
                self._filesystem,
                config,
                self.cluster_id,
                self.timer,
                self.metrics,
                undo=self._undo.append,
                on_fatal=self._fatal,
            )
        self._start_quorum(storage)
        controller = self._active_controller()
        if self.controller is not None:
            self.controller.register(controller)
            self._undo.append(self.controller.stop_registering)
        if self.broker is not None:
            self._catch_up()
            self.broker.start(self.quorum, controller, self.node_config)
        self._has_started = True

    def _storage(self) -> Storage:
        if self._formats:
            return format_if_needed(self._filesystem, self.config, now_ms=wall_clock_ms(), cluster_id=self._cluster_id)
        path = None if self._config_path is None else str(self._config_path)
        return open_storage(self._filesystem, self.config, config_file=path)

    def _start_quorum(self, storage: Storage) -> None:
        config = self.config
        self.client = NodeClient(
            client_id=f"node-{config['node.id']}",
            max_response_bytes=config.int("socket.request.max.bytes"),
            connection_timeout_ms=config.int("socket.connection.setup.timeout.ms"),
            on_lost=self._address_lost,
        )
        self.client.start()
        self._undo.append(self.client.stop)
        self.node_config = NodeConfig(config)
        endpoints: dict[str, Address] = {}
        self.quorum = open_quorum(self._filesystem, config, storage, self.client, endpoints, now_ms=steady_clock())
        self._undo.append(self.quorum.stop)
        if config.is_controller:
            self.controller = ControllerRole(config, self.node_config, self.quorum, self.cluster_id, self.timer)
            endpoints |= self.controller.bind()
            self._undo.append(self.controller.sockets.stop_accepting)
        self.quorum.publishing.add(self.node_config.publish)
        self.quorum.start()
        if self.controller is not None:
            self._undo.append(self.controller.sockets.stop)
            self.controller.start()

    def _catch_up(self) -> None:
        """Wait until everything is applied here that was committed when this node first heard of a leader."""
        publishing = self.quorum.publishing
        while not publishing.wait_until(lambda: self.quorum.has_caught_up or self._is_stopping, WAITS_S):
            logger.info("waiting for the metadata quorum: %s", self.quorum.standing())
        if self._is_stopping:
            raise StartGivenUpError("asked to stop while it waited for the metadata quorum")

    def _active_controller(self) -> ActiveController:
        def leader() -> tuple[int, Address] | None:
            address, leader_id = self.quorum.leader_address, self.quorum.leader.id
            return None if address is None or leader_id is None else (leader_id, address)

        timeout_ms = self.config.int("controller.socket.timeout.ms")
        remote = ControllerClient(self.client, leader, self.timer, self.timer.now_ms, request_timeout_ms=timeout_ms)
        self.quorum.on_new_leader(remote.controller_changed)
        self._undo.append(remote.stop)
        return ActiveController(self.quorum, remote)

    def give_up(self) -> None:
        """Have a start that waits for other nodes end with a StartGivenUpError; nothing, once it is over. Any thread."""
        if self._has_started:
            return
        self._is_stopping = True
        if hasattr(self, "quorum"):
            self.quorum.publishing.post(lambda: None)
        if self.broker is not None:
            self.broker.give_up()

    # While it runs.

    def _address_lost(self, address: Address) -> None:
        """No connection with that address is left, or it refuses new ones."""
        is_leader = address == self.quorum.leader_address
        self.quorum.address_lost(address)
        if is_leader and self.broker is not None:
            self.broker.connection_lost()

    def _fatal(self) -> None:
        self.has_failed = True
        self._on_fatal()

    # Stop.

    def stop(self) -> None:
        """Answer what is under way, flush and close the logs, and mark the directories as cleanly stopped."""
        self._is_stopping = True
        self._stop_parts()

    def _stop_parts(self) -> None:
        while self._undo:
            part = self._undo.pop()
            try:
                part()
            except OSError as error:
                logger.error("the stop went on after a failure of the disk: %s", error)
            except Exception:
                logger.exception("%r did not stop well", part)
