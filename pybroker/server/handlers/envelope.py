"""Envelope v0: a broker sends on what a client asked of it, on the client's behalf; the answer goes back the same way.

The request inside is handled by the routes of the controller's own listener, as if the client had connected there. Where
this node is not the active controller, the envelope says so, and the broker looks for another. Any thread, as the routes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from typing import Final, cast

from pybroker.network.connection import Connection
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import EnvelopeRequest, EnvelopeResponse
from pybroker.protocol.messages.raft import DescribeQuorumResponse
from pybroker.security.principals import Principal
from pybroker.server.dispatch import WOULD_BLOCK, Answer
from pybroker.server.envelopes import Forwarded, unwrap, wrapped_answer
from pybroker.server.response_errors import errors_in

logger = logging.getLogger(__name__)

NO_PORT: Final = 0


class ForwardedConnection:
    """Stands in for the client's connection, as far as handlers look at one."""

    __slots__ = ("_broker", "listener_name", "peer", "principal")

    def __init__(self, broker: Connection, host: str, principal: Principal) -> None:
        self._broker = broker
        self.listener_name = broker.listener_name
        self.peer = (host, NO_PORT)
        self.principal = principal

    def __str__(self) -> str:
        return f"{self.principal} at {self.peer[0]} by way of {self._broker}"


class ForwardedRequest(Request):
    """Answered into the envelope."""

    __slots__ = ("_envelope", "_forwarded")

    def __init__(self, envelope: Request, forwarded: Forwarded) -> None:
        connection = ForwardedConnection(envelope.connection, forwarded.host, forwarded.principal)
        super().__init__(
            cast(Connection, connection),
            forwarded.api,
            forwarded.version,
            forwarded.version,
            forwarded.correlation_id,
            forwarded.client_id,
            forwarded.frame,
            forwarded.position,
            envelope.received_ns,
            None,
            envelope.may_block,
        )
        self._envelope = envelope
        self._forwarded = forwarded

    def respond(self, message: Message) -> None:
        if _is_for_another(message):
            self._end(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
        else:
            self._end(wrapped_answer(self._forwarded, message))

    def close_connection(self, reason: str) -> None:
        """The broker closes the client's connection, upon this answer."""
        logger.info("%s: %s", self, reason)
        self._end(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))

    def _end(self, response: EnvelopeResponse) -> None:
        self.answered = self.settled = True
        self._envelope.respond(response)


class EnvelopeHandlers:
    def __init__(self, handle: Callable[[Request], bool], served: Container[int]) -> None:
        """`handle` is that of the dispatcher of the controller's listener, `served` are the API keys that it knows."""
        self._handle = handle
        self._served = served

    def handle_envelope(self, request: Request, message: EnvelopeRequest) -> Answer:
        try:
            forwarded = unwrap(message)
            if forwarded.api.key not in self._served:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{forwarded.api.name} is not served by this controller")
        except KafkaError as error:
            logger.warning("an envelope from %s is refused: %s", request.connection, error)
            return EnvelopeResponse(error_code=error.code)
        return None if self._handle(ForwardedRequest(request, forwarded)) else WOULD_BLOCK


def _is_for_another(response: Message) -> bool:
    """Whether the answer says that another node is the active controller, in whichever part of it."""
    told = ErrorCode.NOT_LEADER_OR_FOLLOWER if isinstance(response, DescribeQuorumResponse) else ErrorCode.NOT_CONTROLLER
    return told in errors_in(response)
