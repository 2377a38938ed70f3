from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.peers import everything
from support.reactor import TIMEOUT_S, running
from support.waiting import wait_until

from pybroker.base.address import Address
from pybroker.client.node_client import NodeClient
from pybroker.client.request_error import RequestError
from pybroker.network.request import Request
from pybroker.protocol.api_table import APIS
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import EnvelopeRequest, EnvelopeResponse
from pybroker.protocol.messages.raft import DescribeQuorumRequest, DescribeQuorumResponse
from pybroker.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from pybroker.security.principals import Principal
from pybroker.server.dispatch import WOULD_BLOCK, Answer, Dispatcher, Route
from pybroker.server.envelopes import principal_bytes, wrap
from pybroker.server.handlers.envelope import EnvelopeHandlers

ALICE = Principal("User", "alice")
TOPIC = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
CREATE = CreateTopicsRequest(topics=[TOPIC], timeout_ms=5000)


def created(code: ErrorCode = ErrorCode.NONE) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code, error_message=None)])


class Controller:
    """A listener of a controller with these handlers, and the client of a broker that sends envelopes to it."""

    def __init__(self, client: NodeClient, address: Address) -> None:
        self._client = client
        self._address = address

    def send(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
        outcomes: list[Message | RequestError] = []
        self._client.send(self._address, envelope, 10_000, outcomes.append)
        (answer,) = wait_until(lambda: outcomes, TIMEOUT_S, lambda: "no answer")
        assert isinstance(answer, EnvelopeResponse), answer
        return answer

    def ask(self, message: Message, version: int) -> EnvelopeResponse:
        return self.send(wrap(message, version, 99, "admin", ALICE, "10.1.2.3"))


@contextmanager
def controller(**handlers: Callable[[Request, Any], Answer]) -> Iterator[Controller]:
    """Each is a handler that is worth a try on the network thread."""
    apis = {api.name: api for api in APIS}
    envelopes = EnvelopeHandlers(lambda request: dispatcher.handle(request), [apis[name].key for name in handlers])
    routes = [Route(apis[name], handle, True) for name, handle in handlers.items()]
    routes.append(Route(apis["Envelope"], envelopes.handle_envelope, True))
    routes.append(Route(apis["ApiVersions"], lambda request, message: everything(), True))
    dispatcher = Dispatcher(routes)
    client = NodeClient(client_id="broker-1")
    client.start()
    try:
        with running(dispatcher) as node:
            yield Controller(client, Address("127.0.0.1", node.port))
            client.stop()
    finally:
        client.stop()


def inside(answer: EnvelopeResponse, version: int) -> CreateTopicsResponse:
    """The answer to request 99."""
    assert (answer.error_code, answer.response_data is not None) == (0, True)
    data = bytes(answer.response_data or b"")
    assert data[:5] == struct.pack(">iB", 99, 0)
    return CreateTopicsResponse.decode(version, data[5:])


def test_the_request_inside_is_handled_as_the_clients_own() -> None:
    seen: list[Request] = []

    def handle(request: Request, message: CreateTopicsRequest) -> CreateTopicsResponse:
        assert message == CREATE
        seen.append(request)
        return created()

    with controller(CreateTopics=handle) as node:
        assert inside(node.ask(CREATE, 7), 7) == created()
    (request,) = seen
    connection: Any = request.connection
    assert (request.client_id, request.correlation_id, request.version) == ("admin", 99, 7)
    assert (connection.principal, connection.peer[0], connection.listener_name) == (ALICE, "10.1.2.3", "PLAINTEXT")
    assert str(connection).startswith("User:alice at 10.1.2.3 by way of 127.0.0.1:")


def test_it_may_be_answered_later() -> None:
    def handle(request: Request, message: CreateTopicsRequest) -> None:
        threading.Thread(target=request.respond, args=(created(),)).start()

    with controller(CreateTopics=handle) as node:
        assert inside(node.ask(CREATE, 7), 7) == created()


def test_what_would_block_is_handled_on_another_thread() -> None:
    tries: list[bool] = []

    def handle(request: Request, message: CreateTopicsRequest) -> Answer:
        tries.append(request.may_block)
        return created() if request.may_block else WOULD_BLOCK

    with controller(CreateTopics=handle) as node:
        assert inside(node.ask(CREATE, 7), 7) == created()
    assert tries == [False, True]


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT])
def test_what_the_controller_refuses_the_client_is_told(code: ErrorCode) -> None:
    with controller(CreateTopics=lambda request, message: created(code)) as node:
        assert inside(node.ask(CREATE, 7), 7) == created(code)


def test_that_another_is_the_active_controller_is_said_by_the_envelope() -> None:
    with controller(CreateTopics=lambda request, message: created(ErrorCode.NOT_CONTROLLER)) as node:
        assert node.ask(CREATE, 7) == EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)


def test_that_another_leads_the_quorum_is_said_by_the_envelope_too() -> None:
    def handle(request: Request, message: object) -> DescribeQuorumResponse:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return DescribeQuorumResponse(error_code=code, error_message="", topics=[], nodes=[])

    with controller(DescribeQuorum=handle) as node:
        answer = node.ask(DescribeQuorumRequest(topics=[]), 2)
        assert answer.error_code == ErrorCode.NOT_CONTROLLER


def test_a_handler_that_fails_costs_one_answer() -> None:
    def handle(request: Request, message: object) -> Answer:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "not here")

    def describe(request: Request, message: object) -> Answer:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "not here")

    with controller(CreateTopics=handle, DescribeQuorum=describe) as node:
        # CreateTopics has no place for an error of the whole: the client's connection is closed.
        assert node.ask(CREATE, 7).error_code == ErrorCode.UNSUPPORTED_VERSION
        answer = node.ask(DescribeQuorumRequest(topics=[]), 2)
        assert answer.error_code == 0
        response = DescribeQuorumResponse.decode(2, bytes(answer.response_data or b"")[5:])
        assert (response.error_code, response.error_message) == (ErrorCode.POLICY_VIOLATION, "not here")


def test_what_cannot_be_understood_is_answered_with_an_error_of_the_envelope(caplog: pytest.LogCaptureFixture) -> None:
    good = wrap(CREATE, 7, 99, "admin", ALICE, "10.1.2.3")
    torn = wrap(CREATE, 7, 99, "admin", ALICE, "10.1.2.3")
    torn.request_data = good.request_data[:-2]
    stranger = EnvelopeRequest(
        request_data=good.request_data, request_principal=b"\0\7", client_host_address=good.client_host_address
    )
    nowhere = EnvelopeRequest(request_data=good.request_data, request_principal=principal_bytes(ALICE), client_host_address=b"")
    not_served = wrap(DeleteTopicsRequest(timeout_ms=1, topics=[]), 6, 99, "admin", ALICE, "10.1.2.3")
    with controller(CreateTopics=lambda request, message: created()) as node:
        codes = [node.send(one).error_code for one in (torn, stranger, nowhere, not_served)]
        assert inside(node.send(good), 7) == created(), "the connection is still there"
    assert codes == [
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    ]
    assert "a client address of 0 bytes; expected 4 or 16" in caplog.text
    assert "DeleteTopics is not served by this controller" in caplog.text
