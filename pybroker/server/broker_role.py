"""The broker of a node: its logs, its replicas, its listeners, and its membership in the cluster.

`open` locks the directories; `start` needs the metadata: it loads the logs that there should be, with their configs, binds the
listeners, registers with the real ports, and returns when clients are let in. Both are for one thread; `stop_parts` are what
undoes them, in the order in which they were done.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Final

from pybroker.base.filesystem import FileSystem
from pybroker.base.metrics import Metrics
from pybroker.config import Config
from pybroker.config.listeners import SECURITY_PROTOCOLS, Listener
from pybroker.log.cleaner.setup import log_cleaner
from pybroker.log.log import Log
from pybroker.log.manager.directories import Owner, random_uuid
from pybroker.log.manager.failures import DirFailure
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.scheduler import ThreadBackground
from pybroker.log.manager.settings import ManagerSettings
from pybroker.log.open_segments import OpenSegments
from pybroker.metadata.controller.features import CORDONED, METADATA_VERSION, SUPPORTED, metadata_version, unsupported
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.network.acceptor import OS_DEFAULT
from pybroker.network.headers import Apis
from pybroker.network.socket_server import SocketServer
from pybroker.protocol.messages import cluster
from pybroker.replication.fetch_sessions import FetchSessions
from pybroker.replication.log_dir_mover import LogDirMover
from pybroker.server.active_controller import ActiveController
from pybroker.server.auto_topics import AutoTopics
from pybroker.server.broker_lifecycle import (
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    ConnectionLost,
    ControlledShutdownRequested,
    ControllerChanged,
    LifecycleSettings,
    LogDirFailed,
    LogDirsCordoned,
    MetadataPublished,
    Recovered,
    Started,
    StopRequested,
)
from pybroker.server.broker_membership import BrokerMembership
from pybroker.server.clocks import wall_clock_ms
from pybroker.server.config_appliers import apply_changes
from pybroker.server.coordinators.groups import GroupCoordinator
from pybroker.server.departed_brokers import DepartedBrokers
from pybroker.server.dispatch import Dispatcher
from pybroker.server.dynamic_config import NodeConfig
from pybroker.server.forwarding import Forwarding
from pybroker.server.handlers.acls import AclHandlers
from pybroker.server.handlers.api_versions import ApiVersionsHandlers
from pybroker.server.handlers.cluster import ClusterHandlers
from pybroker.server.handlers.cluster_admin import ClusterAdminHandlers
from pybroker.server.handlers.commits_together import CommitsTogether
from pybroker.server.handlers.configs import ConfigHandlers
from pybroker.server.handlers.consumer_groups import ConsumerGroupHandlers
from pybroker.server.handlers.credentials import CredentialHandlers
from pybroker.server.handlers.features import FeatureHandlers
from pybroker.server.handlers.fetch import FetchHandlers
from pybroker.server.handlers.group_listing import GroupListingHandlers
from pybroker.server.handlers.group_offsets import GroupOffsetHandlers
from pybroker.server.handlers.groups import GroupHandlers
from pybroker.server.handlers.log_dirs import LogDirHandlers
from pybroker.server.handlers.metadata import MetadataHandlers
from pybroker.server.handlers.offsets import OffsetHandlers
from pybroker.server.handlers.produce import ProduceHandlers
from pybroker.server.handlers.producers import ProducerHandlers
from pybroker.server.handlers.quotas import QuotaHandlers
from pybroker.server.handlers.topics import TopicHandlers
from pybroker.server.handlers.transactional_offsets import TransactionalOffsetHandlers
from pybroker.server.handlers.transactional_produce import TransactionalProduce
from pybroker.server.handlers.transactions import TransactionHandlers
from pybroker.server.host import own_name, supported_features
from pybroker.server.producer_ids import ProducerIds
from pybroker.server.quorum.metadata_quorum import MetadataQuorum
from pybroker.server.replication_setup import moving_throttle, open_replicas, start_replication
from pybroker.server.routes import Handlers, routes_of
from pybroker.server.timer_thread import TimerThread
from pybroker.server.transaction_setup import start_transactions

logger = logging.getLogger(__name__)

RETRY_OFFLINE_MS: Final = 1000
LEAVE_CHECK_S: Final = 0.5

Undo = Callable[[Callable[[], object]], None]


class MembershipError(Exception):
    """The cluster does not take this broker in; the log says why."""


class BrokerRole:
    def __init__(
        self,
        filesystem: FileSystem,
        config: Config,
        cluster_id: str,
        timer: TimerThread,
        metrics: Metrics,
        *,
        undo: Undo,
        on_fatal: Callable[[], None],
    ) -> None:
        """Opens the log directories, and locks them. `undo` is given what has to be called at the stop, the last first;
        `on_fatal` is called when the broker cannot go on."""
        self.config = config
        self._filesystem = filesystem
        self._cluster_id = cluster_id
        self._timer = timer
        self._metrics = metrics
        self._undo = undo
        self._on_fatal = on_fatal
        self.membership: BrokerMembership | None = None
        self._departed = DepartedBrokers(config.int("pybroker.metadata.departed.broker.linger.ms"), timer.now_ms)
        self._open_segments = OpenSegments()
        self.scheduler = ThreadBackground(config.int("background.threads"))
        self.logs = LogManager(
            filesystem,
            ManagerSettings.of(config),
            self.scheduler,
            now_ms=wall_clock_ms,
            owner=Owner(cluster_id, config.int("node.id"), writes_meta=True),
            on_dir_failure=self._dir_failed,
            open_segments=self._open_segments,
        )
        undo(self._close_logs)
        # Stopped before the logs are closed, so that no job runs into that.
        undo(self.scheduler.stop)

    @property
    def broker_epoch(self) -> int:
        """Of this incarnation; -1 before it is registered."""
        return -1 if self.membership is None else self.membership.broker_epoch

    def start(self, quorum: MetadataQuorum, controller: ActiveController, node_config: NodeConfig) -> None:
        """The metadata is caught up with. Returns when clients are let in."""
        self._quorum = quorum
        self._controller = controller
        self.node_config = node_config
        image = quorum.image
        self._load(image)
        self._bind()
        quorum.publishing.add(self._departed.publish, image)
        quorum.publishing.add(self.replicas.publish, image)
        quorum.publishing.add(self.groups.publish, image)
        quorum.publishing.add(self.transactions.coordinator.publish, image)
        self._join()
        # After the replication has ended: consumers of replicated topics see no lower one after a clean stop.
        self._undo(self.logs.checkpoint_high_watermarks)
        self._undo(
            start_replication(
                self.replicas,
                self.config,
                node_config,
                controller,
                self._timer,
                self.scheduler,
                lambda: self.broker_epoch,
                lambda: self.sockets.host_thread(self.config.text("inter.broker.listener.name")),
            )
        )
        self.mover.resume()
        self.logs.start()
        interval_ms = self.config.int("replica.high.watermark.checkpoint.interval.ms")
        self.scheduler.every("high watermark checkpoint", self.logs.checkpoint_high_watermarks, interval_ms)
        self.scheduler.every("retry of offline partitions", self.replicas.retry_offline, RETRY_OFFLINE_MS)
        self.sockets.start()
        self._undo(self.sockets.stop)
        if self.config.flag("controlled.shutdown.enable"):
            self._undo(self._leave)
        self._undo(self.sockets.stop_accepting)
        for listener in self.sockets.listeners():
            logger.info("listening on %s", listener._replace(host=listener.host or "0.0.0.0"))

    def _load(self, image: MetadataImage) -> None:
        config = self.config
        # The directories were opened by the file alone; what the cluster says counts for what is in them.
        self.logs.reconfigure(ManagerSettings.of(self.node_config.current))
        self.replicas = open_replicas(self.logs, config, self.node_config, self._timer, lambda: self.broker_epoch)
        self.cleaner = log_cleaner(
            self._filesystem,
            self.node_config.current,
            [log_dir.path for log_dir in self.logs.dirs],
            self.logs.current_logs,
            self._open_segments,
            clock_ms=wall_clock_ms,
            on_disk_error=self._cleaner_failed,
        )
        self.logs.cleaner = self.cleaner

        def is_stray(log: Log) -> bool:
            return self.replicas.is_stray(log, image)

        self.logs.load(lambda topic: self.node_config.topic_config(image, topic), is_stray)
        self.logs.recover_abandoned_futures(lambda log: self.replicas.is_assigned(log, image))

    def _bind(self) -> None:
        self.mover = LogDirMover(self.replicas, self.scheduler, wall_clock_ms, moving_throttle(self.replicas, self.config))
        self.groups = GroupCoordinator(self.config, self.replicas, monotonic_ms=self._timer.now_ms, wall_ms=wall_clock_ms)
        self.groups.start()
        self._undo(self.groups.stop)
        self._producer_ids = ProducerIds(self._controller, self.config.int("node.id"), lambda: self.broker_epoch)
        self.transactions = start_transactions(self.config, self.replicas, self.groups, self._producer_ids, self._timer)
        self._undo(self.transactions.stop)
        routes = routes_of(self._handlers())
        self._apis: Apis = {route.api.key: (route.api, route.api.stable_versions) for route in routes}
        self.sockets = SocketServer(
            self.node_config.current,
            Dispatcher(routes),
            lambda listener: self._apis,
            self._metrics,
            listeners_of=broker_listeners,
        )
        self.sockets.bind()
        self._undo(self.sockets.stop_accepting)
        apply_changes(self.node_config, self.logs, self.scheduler, self.cleaner, self.sockets, self.groups)

    def _handlers(self) -> Handlers:
        config, node_config, quorum, replicas = self.config, self.node_config, self._quorum, self.replicas
        controller = self._controller
        monotonic_ms = self._timer.now_ms
        forwarding = Forwarding(controller, self._timer, monotonic_ms, on_behalf=controller.forward)
        auto_topics = AutoTopics(controller, node_config, monotonic_ms)
        sessions = FetchSessions(
            config.int("max.incremental.fetch.session.cache.slots"), random.randrange, lock=threading.Lock()
        )

        transactions = self.transactions

        def request_timeout_ms() -> int:
            return node_config.current.int("request.timeout.ms")

        def verifies() -> bool:
            return node_config.current.flag("transaction.partition.verification.enable")

        return Handlers(
            produce=ProduceHandlers(replicas, TransactionalProduce(replicas, transactions.checks.submit, verifies)),
            fetch=FetchHandlers(
                replicas,
                sessions,
                max_bytes=lambda: node_config.current.int("fetch.max.bytes"),
                monotonic_ms=monotonic_ms,
                makes_room=config.int("socket.send.buffer.bytes") != OS_DEFAULT,
            ),
            offsets=OffsetHandlers(replicas),
            metadata=MetadataHandlers(lambda: quorum.image, node_config, self._cluster_id, auto_topics, self._departed.listed),
            cluster=ClusterHandlers(lambda: quorum.image, node_config, self._cluster_id, lambda: config.int("node.id")),
            cluster_admin=ClusterAdminHandlers(forwarding, request_timeout_ms),
            topics=TopicHandlers(forwarding),
            configs=ConfigHandlers(lambda: quorum.image, node_config, forwarding),
            log_dirs=LogDirHandlers(replicas, self.mover, lambda: node_config.current.items_of("cordoned.log.dirs")),
            producers=ProducerHandlers(
                replicas,
                self._producer_ids,
                transactions.coordinator.submit_with_id,
                lambda: node_config.current.int("transaction.max.timeout.ms"),
            ),
            api_versions=ApiVersionsHandlers(
                lambda listener: {key: api for key, (api, _) in self._apis.items()},
                SUPPORTED,
                quorum.finalized_features,
                lambda: quorum.image.offset,
            ),
            acls=AclHandlers(lambda: quorum.image, forwarding, request_timeout_ms),
            credentials=CredentialHandlers(lambda: quorum.image, forwarding, request_timeout_ms),
            quotas=QuotaHandlers(lambda: quorum.image, forwarding, request_timeout_ms),
            features=FeatureHandlers(forwarding, request_timeout_ms),
            groups=GroupHandlers(self.groups),
            consumer_groups=ConsumerGroupHandlers(self.groups, lambda: quorum.image, self.config),
            group_listing=GroupListingHandlers(self.groups, transactions.coordinator, lambda: quorum.image, auto_topics),
            group_offsets=GroupOffsetHandlers(self.groups, lambda: quorum.image),
            commits_together=CommitsTogether(self.groups, lambda: quorum.image),
            transactions=TransactionHandlers(
                transactions.coordinator, self.groups, transactions.markers, auto_topics.ask_for, wall_clock_ms
            ),
            transactional_offsets=TransactionalOffsetHandlers(
                self.groups, replicas, transactions.checks.submit, lambda: quorum.image, verifies
            ),
        )

    # Membership.

    def _join(self) -> None:
        """Register, and be unfenced once everything that is known then is applied here."""
        quorum = self._quorum
        lifecycle = BrokerLifecycle(self._identity(), LifecycleSettings.of(self.config), draw_below=random.randrange)
        membership = BrokerMembership(
            lifecycle, self._controller, self._timer, self._timer.now_ms, lambda reason: self._on_fatal()
        )

        def published(delta: MetadataDelta, image: MetadataImage) -> None:
            if METADATA_VERSION in delta.changed_features:
                self._tell_cordoned()
            membership.tell(MetadataPublished(image.offset))

        membership.tell(Started())
        # Not before it has started: others would tell it something first.
        self.membership = membership
        self.node_config.subscribe(lambda _old, _new: self._tell_cordoned())
        quorum.publishing.add(published, quorum.image)
        quorum.on_new_leader(lambda: membership.tell(ControllerChanged()))
        membership.tell(Recovered())
        self._undo(lambda: membership.tell(StopRequested()))
        membership.wait_for(BrokerState.RUNNING, BrokerState.SHUTTING_DOWN)
        if membership.state is not BrokerState.RUNNING:
            raise MembershipError("the broker was not let into the cluster")

    def give_up(self) -> None:
        """A start that waits to be let in ends. Any thread."""
        if self.membership is not None:
            self.membership.tell(StopRequested())

    def _identity(self) -> BrokerIdentity:
        config, ports = self.node_config.current, self.sockets.ports()
        protocols = config.security_protocols
        previous_epoch = self.logs.previous_broker_epoch
        return BrokerIdentity(
            broker_id=config.int("node.id"),
            cluster_id=self._cluster_id,
            incarnation_id=random_uuid(),
            listeners=[
                cluster.Listener(
                    name=one.name,
                    host=one.host or own_name(),
                    port=one.port or ports[one.name],
                    security_protocol=SECURITY_PROTOCOLS.index(protocols[one.name]),
                )
                for one in config.advertised_listeners
                if one.name not in config.controller_listener_names
            ],
            features=supported_features(self._foreign_features()),
            rack=config["broker.rack"],
            log_dirs=[one.directory_id for one in self.logs.online_dirs if one.directory_id is not None],
            previous_broker_epoch=-1 if previous_epoch is None else previous_epoch,
        )

    def _foreign_features(self) -> dict[str, int]:
        """A node that is the whole cluster works with whatever is finalized, say by Apache Kafka's kafka-storage; in company
        it is for the controller to refuse a broker that does not know it."""
        image, own = self._quorum.image, {self.config.int("node.id")}
        if not self.config.is_controller or image.brokers.keys() - own or image.controllers.keys() - own:
            return {}
        found = unsupported(image.features)
        for name, level in found.items():
            logger.warning("feature %s is finalized at level %d, which this release does not support", name, level)
        return found

    def connection_lost(self) -> None:
        """With the active controller, which should hear from us before it takes us for dead. Any thread."""
        if self.membership is not None:
            self.membership.tell(ConnectionLost())

    def _tell_cordoned(self) -> None:
        """Which directories take no new replicas, if the cluster is at a level that knows of that."""
        assert self.membership is not None
        is_known = metadata_version(self._quorum.image) >= CORDONED
        directories = tuple(
            one.directory_id for one in self.logs.online_dirs if one.directory_id is not None and self.logs.is_cordoned(one)
        )
        self.membership.tell(LogDirsCordoned(directories if is_known else None))

    def _leave(self) -> None:
        """Have the controller move leaderships away, as long as that takes and there is one."""
        membership = self.membership
        assert membership is not None
        membership.tell(ControlledShutdownRequested())
        while not membership.wait_for(BrokerState.SHUTTING_DOWN, timeout_s=LEAVE_CHECK_S):
            if self._quorum.has_failed:
                membership.tell(StopRequested())

    # While it runs.

    def _cleaner_failed(self, path: str, error: OSError) -> None:
        self.logs.on_io_error(path, error, doing="cleaning")

    def _dir_failed(self, failure: DirFailure) -> None:
        if hasattr(self, "replicas"):
            self.replicas.dir_failed(failure.path)
        if self.membership is not None and failure.directory_id is not None:
            self.membership.tell(LogDirFailed(failure.directory_id))
        if failure.is_last:
            self._on_fatal()

    def _close_logs(self) -> None:
        # A start that failed early never had an epoch.
        self.logs.shutdown(self.broker_epoch)


def broker_listeners(config: Config) -> list[Listener]:
    return [listener for listener in config.listeners if listener.name not in config.controller_listener_names]
