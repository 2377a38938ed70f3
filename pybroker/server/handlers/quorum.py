"""What only controllers serve: the quorum's own messages (Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of
the metadata, DescribeQuorum, voters) and the requests of brokers (registration, heartbeats, AlterPartition, ids, directories).

Network threads; nothing here waits: the quorum's thread answers.
"""

from __future__ import annotations

from pybroker.network.request import Request
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import BrokerHeartbeatRequest, BrokerRegistrationRequest
from pybroker.server.broker_connections import BrokerConnections
from pybroker.server.quorum.metadata_quorum import MetadataQuorum


class QuorumHandlers:
    def __init__(self, quorum: MetadataQuorum, connections: BrokerConnections) -> None:
        self._quorum = quorum
        self._connections = connections

    def handle_quorum_message(self, request: Request, message: Message) -> None:
        def give_up() -> None:
            request.close_connection("the metadata quorum of this node is not running")

        self._quorum.receive(message, request.respond, give_up, request.connection)

    def handle_decision(self, request: Request, message: Message) -> None:
        self._quorum.submit(message, request.version, request.respond)

    def handle_broker(self, request: Request, message: BrokerRegistrationRequest | BrokerHeartbeatRequest) -> None:
        """Only these vouch for a broker: that its node fetches metadata may mean that a new process begins."""
        self._connections.seen(message.broker_id, request.connection)
        self.handle_decision(request, message)
