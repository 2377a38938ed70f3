"""The controller of a node: the listeners that replicas of the quorum, brokers and admins reach it by.

What it decides is the metadata replica's business; here is how it is reached. It serves from the start on, whether or not it
leads: who does is for the quorum to find out over these listeners.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Hashable

from pybroker.base.address import Address
from pybroker.config.broker import Config
from pybroker.config.listeners import SECURITY_PROTOCOLS, Listener
from pybroker.log.manager.directories import random_uuid
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.controller.features import SUPPORTED
from pybroker.network.headers import Apis
from pybroker.network.socket_server import SocketServer
from pybroker.protocol.messages import cluster
from pybroker.server.active_controller import ActiveController
from pybroker.server.broker_connections import BrokerConnections
from pybroker.server.config_parts import Part
from pybroker.server.controller_registration import ControllerIdentity, ControllerRegistrar
from pybroker.server.controller_routes import ControllerHandlers, controller_routes
from pybroker.server.dispatch import Dispatcher
from pybroker.server.dynamic_config import NodeConfig
from pybroker.server.forwarding import Forwarding
from pybroker.server.handlers.acls import AclHandlers
from pybroker.server.handlers.api_versions import ApiVersionsHandlers
from pybroker.server.handlers.cluster import ClusterHandlers
from pybroker.server.handlers.configs import ConfigHandlers
from pybroker.server.handlers.credentials import CredentialHandlers
from pybroker.server.handlers.envelope import EnvelopeHandlers
from pybroker.server.handlers.features import FeatureHandlers
from pybroker.server.handlers.quorum import QuorumHandlers
from pybroker.server.handlers.quotas import QuotaHandlers
from pybroker.server.handlers.topics import TopicHandlers
from pybroker.server.host import own_name, supported_features
from pybroker.server.quorum.metadata_quorum import MetadataQuorum
from pybroker.server.timer_thread import TimerThread

logger = logging.getLogger(__name__)

NOBODY = -1


class ControllerRole:
    def __init__(
        self, config: Config, node_config: NodeConfig, quorum: MetadataQuorum, cluster_id: str, timer: TimerThread
    ) -> None:
        self._config = config
        self._node_config = node_config
        self._quorum = quorum
        self._timer = timer
        self._connections = BrokerConnections(self._connection_made, self._connection_lost)
        self._apis: Apis = {}
        routes = controller_routes(self._handlers(node_config, cluster_id, timer))
        self._dispatcher = Dispatcher(routes)
        self._apis |= {route.api.key: (route.api, route.api.stable_versions) for route in routes}
        listeners = controller_listeners(config)
        self.sockets = SocketServer(
            config,
            self._dispatcher,
            lambda listener: self._apis,
            # The other voters know it by these, as long as it runs.
            listeners_of=lambda _: listeners,
            on_closed=self._connection_closed,
        )

    def bind(self) -> dict[str, Address]:
        """Open the listeners; where they are reached, by name, the real port where 0 was asked for."""
        self.sockets.bind()
        ports = self.sockets.ports()
        names = self._config.controller_listener_names
        self._endpoints = {
            one.name: Address(one.host or own_name(), one.port or ports[one.name])
            for one in self._config.advertised_listeners
            if one.name in names
        }
        return self._endpoints

    def start(self) -> None:
        self._node_config.subscribe(lambda _, new: self.sockets.reconfigure(new), Part.SOCKET_SERVER)
        self.sockets.start()
        for listener in self.sockets.listeners():
            logger.info("listening on %s", listener._replace(host=listener.host or "0.0.0.0"))

    def register(self, controller: ActiveController) -> None:
        """Make this controller known to the active one, from now on."""
        protocols = self._config.security_protocols
        identity = ControllerIdentity(
            controller_id=self._config.int("node.id"),
            incarnation_id=random_uuid(),
            listeners=[
                cluster.Listener(
                    name=name, host=at.host, port=at.port, security_protocol=SECURITY_PROTOCOLS.index(protocols[name])
                )
                for name, at in self._endpoints.items()
            ],
            features=supported_features(),
        )
        self._registrar = ControllerRegistrar(identity, controller.ask, self._timer, self._timer.now_ms, random.randrange)
        self._quorum.publishing.add(self._registrar.publish)

    def stop_registering(self) -> None:
        self._registrar.stop()

    def _handlers(self, node_config: NodeConfig, cluster_id: str, timer: TimerThread) -> ControllerHandlers:
        quorum = self._quorum
        forwarding = Forwarding(quorum, timer, timer.now_ms)

        def request_timeout_ms() -> int:
            return node_config.current.int("request.timeout.ms")

        def leader_id() -> int:
            # The last known: Kafka's admin client gets over one that leads no more, but not over being told of nobody.
            return NOBODY if quorum.last_leader_id is None else quorum.last_leader_id

        return ControllerHandlers(
            quorum=QuorumHandlers(quorum, self._connections),
            cluster=ClusterHandlers(lambda: quorum.image, node_config, cluster_id, leader_id),
            topics=TopicHandlers(forwarding),
            configs=ConfigHandlers(lambda: quorum.image, node_config, forwarding, is_controller=True),
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
            envelope=EnvelopeHandlers(lambda request: self._dispatcher.handle(request), self._apis),
        )

    # Network threads.

    def _connection_closed(self, connection: Hashable) -> None:
        self._connections.closed(connection)
        self._quorum.connection_closed(connection)

    # Fast death detection.

    def _connection_made(self, node_id: int) -> None:
        def tell(now_ms: int, controller: Controller) -> None:
            controller.broker_connection_made(now_ms, node_id)

        self._quorum.with_controller(tell)

    def _connection_lost(self, node_id: int) -> None:
        def tell(now_ms: int, controller: Controller) -> None:
            controller.broker_connection_lost(now_ms, node_id)

        self._quorum.with_controller(tell)


def controller_listeners(config: Config) -> list[Listener]:
    return [listener for listener in config.listeners if listener.name in config.controller_listener_names]
