"""The way from a broker to the active controller over the network.

What the broker itself asks goes directly; what it asks on a client's behalf goes in an Envelope. Whoever is not the active
controller any more says so, connections break, there may be no controller for a while: `submit` and `forward` try again until
their time is up, and then refuse. An answer whose connection broke before it came may be of something that was done: as in
Apache Kafka the request is then made a second time, and finds it done.

Any thread; nothing here waits. Requests of different kinds go over connections of their own (lanes), so that a heartbeat does
not stand behind the creation of a thousand topics. How many there are at once is bounded by those who ask: a client's
connection waits for its answer, and every part of the broker has one request of its kind under way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

from pybroker.base.address import Address
from pybroker.base.timer import Deadlines, Handle
from pybroker.client.exchange import BadResponseError, read_response
from pybroker.client.request_error import Failure, RequestError
from pybroker.metadata.controller.refusals import refused
from pybroker.network.request import Request
from pybroker.protocol.api_table import API_BY_KEY
from pybroker.protocol.errors import ErrorCode, error_name
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    EnvelopeResponse,
)
from pybroker.protocol.messages.log_dirs import AssignReplicasToDirsRequest
from pybroker.protocol.messages.partitions import AlterPartitionRequest
from pybroker.protocol.schema import Versions
from pybroker.security.principals import ANONYMOUS, Principal
from pybroker.server.envelopes import wrap
from pybroker.server.response_errors import errors_in

logger = logging.getLogger(__name__)

RETRY_TIMEOUT_MS: Final = 60_000
BACKOFF_MS: Final = 25
BACKOFF_MAX_MS: Final = 200

FORWARDING: Final = "forwarding"
OTHER: Final = "controller"
LANES: Final[dict[type[Message], str]] = {
    BrokerRegistrationRequest: "heartbeat",
    BrokerHeartbeatRequest: "heartbeat",
    ControllerRegistrationRequest: "registration",
    AlterPartitionRequest: "alter-partition",
    AssignReplicasToDirsRequest: "directory-assignments",
}

STOPS: Final = "This node stops."


class Nodes(Protocol):
    """What is needed of a NodeClient."""

    def send(
        self,
        address: Address,
        request: Message,
        timeout_ms: int,
        done: Callable[[Message | RequestError], None],
        *,
        lane: str = "",
        versions: Versions | None = None,
    ) -> None: ...


class _Call:
    """A request that is tried until it is answered."""

    __slots__ = ("answered", "attempts", "deadline_ms", "lane", "problem", "refused", "request", "versions")

    def __init__(
        self,
        request: Message,
        versions: Versions | None,
        lane: str,
        deadline_ms: int,
        answered: Callable[[Message], None],
        refused: Callable[[ErrorCode, str], None],
    ) -> None:
        self.request = request
        self.versions = versions
        self.lane = lane
        self.deadline_ms = deadline_ms
        self.answered = answered
        self.refused = refused
        self.attempts = 0
        self.problem = "no controller is active"  # with the last attempt


class ControllerClient:
    """A ControllerChannel. `done` is called once, on the client's thread, the timer's, or the caller's."""

    def __init__(
        self,
        nodes: Nodes,
        controller: Callable[[], tuple[int, Address] | None],
        deadlines: Deadlines,
        now_ms: Callable[[], int],
        *,
        request_timeout_ms: int,
        retry_timeout_ms: int = RETRY_TIMEOUT_MS,
        principal_of: Callable[[Request], Principal] = lambda request: ANONYMOUS,
    ) -> None:
        """`controller` says the id and the address of the active one, as far as this node knows; `deadlines` and `now_ms` are
        of the same clock. One attempt may take `request_timeout_ms` (controller.socket.timeout.ms), all `retry_timeout_ms`."""
        self._nodes = nodes
        self._controller = controller
        self._deadlines = deadlines
        self._now_ms = now_ms
        self._request_timeout_ms = request_timeout_ms
        self._retry_timeout_ms = retry_timeout_ms
        self._principal_of = principal_of
        self._lock = threading.Lock()
        self._pausing: dict[_Call, Handle] = {}
        self._is_stopped = False

    def ask(self, request: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        """Once, directly; None if there is no answer, or nobody to ask."""
        found = self._controller()
        if found is None:
            done(None)
            return

        def answered(outcome: Message | RequestError) -> None:
            if isinstance(outcome, RequestError):
                logger.debug("no answer to %s: %s", type(request).__name__, outcome)
            done(None if isinstance(outcome, RequestError) else outcome)

        self._nodes.send(found[1], request, timeout_ms, answered, lane=LANES.get(type(request), OTHER))

    def submit(self, request: Message, version: int, done: Callable[[Message], None]) -> None:
        """See ControllerChannel. Directly, in `version` or, if the controller is older, in the newest it knows."""

        def refuse(code: ErrorCode, text: str) -> None:
            refusal = refusal_of(request, version, code, text)
            assert refusal is not None, f"there is no way to refuse {type(request).__name__}"
            done(refusal)

        versions = Versions(request.VERSIONS.low, version)
        self._attempt(_Call(request, versions, LANES.get(type(request), OTHER), self._deadline_ms(), done, refuse))

    def forward(self, request: Request, message: Message, done: Callable[[Message | None], None]) -> None:
        """As `submit`, on behalf of the client that sent `request`; `message` is that request, or what of it is for the
        controller. None if the client has to connect anew, as the controller does not understand what it sent."""
        who, host = self._principal_of(request), request.connection.peer[0]
        correlation_id = request.correlation_id
        envelope = wrap(message, request.version, correlation_id, request.client_id, who, host)

        def refuse(code: ErrorCode, text: str) -> None:
            # That the controller does not understand the Envelope is none of the client's business.
            is_ours = code is ErrorCode.UNSUPPORTED_VERSION
            done(refusal_of(message, request.version, ErrorCode.UNKNOWN_SERVER_ERROR if is_ours else code, text))

        def answered(response: Message) -> None:
            assert isinstance(response, EnvelopeResponse), response
            done(_answer_in(response, message, request.version, correlation_id))

        self._attempt(_Call(envelope, None, FORWARDING, self._deadline_ms(), answered, refuse))

    def controller_changed(self) -> None:
        """Whoever pauses before the next attempt need not wait any longer."""
        with self._lock:
            pausing, self._pausing = self._pausing, {}
        for call, handle in pausing.items():
            handle.cancel()
            self._attempt(call)

    def stop(self) -> None:
        """What has no answer yet is refused, now or when its attempt fails."""
        self._is_stopped = True
        self.controller_changed()

    def _deadline_ms(self) -> int:
        return self._now_ms() + self._retry_timeout_ms

    def _attempt(self, call: _Call) -> None:
        left_ms = call.deadline_ms - self._now_ms()
        if self._is_stopped:
            call.refused(ErrorCode.NOT_CONTROLLER, STOPS)
        elif left_ms <= 0:
            call.refused(ErrorCode.REQUEST_TIMED_OUT, f"The controller has not answered in time: {call.problem}.")
        elif (found := self._controller()) is None:
            self._pause(call)
        else:
            timeout_ms = min(left_ms, self._request_timeout_ms)
            done = partial(self._ended, call, found[0])
            self._nodes.send(found[1], call.request, timeout_ms, done, lane=call.lane, versions=call.versions)

    def _ended(self, call: _Call, node_id: int, outcome: Message | RequestError) -> None:
        if isinstance(outcome, RequestError):
            if outcome.failure is Failure.UNSUPPORTED_VERSION:
                logger.error("the controller does not understand this broker: %s", outcome)
                call.refused(ErrorCode.UNSUPPORTED_VERSION, f"The controller is of another release: {outcome.reason}.")
                return
            call.problem = str(outcome)
        elif ErrorCode.NOT_CONTROLLER in errors_in(outcome):
            call.problem = f"node {node_id} is not the active controller"
        else:
            call.answered(outcome)
            return
        logger.debug("%s is tried again: %s", type(call.request).__name__, call.problem)
        self._pause(call)

    def _pause(self, call: _Call) -> None:
        pause_ms = min(BACKOFF_MS << min(call.attempts, 10), BACKOFF_MAX_MS)
        call.attempts += 1
        at_ms = min(self._now_ms() + pause_ms, call.deadline_ms)
        with self._lock:
            # Under the lock, so that the time cannot be up before the call is among those that wait for it.
            self._pausing[call] = self._deadlines.add(at_ms, partial(self._go_on, call))
        if self._is_stopped:
            self.controller_changed()

    def _go_on(self, call: _Call) -> None:
        with self._lock:
            if self._pausing.pop(call, None) is None:
                return
        self._attempt(call)


def _answer_in(envelope: EnvelopeResponse, request: Message, version: int, correlation_id: int) -> Message | None:
    if envelope.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return None
    problem = f"the controller answered an envelope with {error_name(envelope.error_code)}"
    if not envelope.error_code:
        frame = memoryview(envelope.response_data or b"")
        found = int.from_bytes(frame[:4], "big", signed=True)
        assert request.KEY is not None
        try:
            if len(frame) >= 4 and found == correlation_id:
                response: Message = read_response(API_BY_KEY[request.KEY], version, frame)
                return response
            problem = f"an envelope holds {len(frame)} bytes, an answer to request {found}; expected one to {correlation_id}"
        except BadResponseError as error:
            problem = f"an envelope holds {error}"
    logger.error("%s is refused: %s", type(request).__name__, problem)
    text = "The controller could not be asked on the client's behalf."
    return refusal_of(request, version, ErrorCode.UNKNOWN_SERVER_ERROR, text)


def refusal_of(request: Message, version: int, code: ErrorCode, text: str) -> Message | None:
    """The answer to a request that is refused as a whole; None if its API has no place for that in this version."""
    try:
        return refused(request, code, text, version)
    except KeyError:
        # The controller itself never refuses it so.
        assert request.KEY is not None
        response = API_BY_KEY[request.KEY].response
    columns = {column.name for column in response.COLUMNS if version in column.versions}
    if "error_code" not in columns:
        return None
    refusal: Any = response(**{column.name: response.stand_in_of(column) for column in response.COLUMNS})
    refusal.error_code = code
    if "error_message" in columns:
        refusal.error_message = text
    return cast(Message, refusal)
