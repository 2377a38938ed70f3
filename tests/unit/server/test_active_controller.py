from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pybroker.protocol.messages.topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pybroker.server.active_controller import ActiveController

REQUEST = CreateTopicsRequest(topics=[])
HEARTBEAT = BrokerHeartbeatRequest(
    broker_id=1, broker_epoch=1, current_metadata_offset=1, want_fence=False, want_shut_down=False
)


class Side:
    """This node's quorum, or the way to others: keeps what it is asked."""

    is_active = False
    has_failed = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, Message, Callable[[Any], None]]] = []

    def submit(self, request: Message, version: int, done: Callable[[Any], None]) -> None:
        self.asked.append((f"submit v{version}", request, done))

    def forward(self, request: object, message: Message, done: Callable[[Any], None]) -> None:
        self.asked.append((f"forward {request}", message, done))

    def ask(self, request: Message, timeout_ms: int, done: Callable[[Any], None]) -> None:
        self.asked.append((f"ask {timeout_ms} ms", request, done))

    def answer(self, response: Message | None) -> None:
        self.asked.pop(0)[2](response)


class Node:
    def __init__(self) -> None:
        self.own, self.others = Side(), Side()
        self.controller = ActiveController(self.own, self.others)  # type: ignore[arg-type]
        self.answers: list[Message | None] = []


@pytest.fixture
def node() -> Node:
    return Node()


def created(code: ErrorCode) -> CreateTopicsResponse:
    row = CreatableTopicResult(name="t", error_code=code, error_message=None)
    return CreateTopicsResponse(topics=[row])


def submit(node: Node) -> None:
    node.controller.submit(REQUEST, 7, node.answers.append)


def forward(node: Node) -> None:
    node.controller.forward("a client's", REQUEST, node.answers.append)  # type: ignore[arg-type]


WAYS = pytest.mark.parametrize("way", [submit, forward])


@WAYS
def test_the_own_one_is_asked_if_it_decides(node: Node, way: Callable[[Node], None]) -> None:
    node.own.is_active = True
    way(node)
    node.own.answer(done := created(ErrorCode.NONE))
    assert node.answers == [done]
    assert not node.others.asked


@WAYS
def test_else_another(node: Node, way: Callable[[Node], None]) -> None:
    way(node)
    node.others.answer(done := created(ErrorCode.NONE))
    assert node.answers == [done]
    assert not node.own.asked


@WAYS
def test_one_that_stops_leading_in_the_middle_sends_it_to_the_next(node: Node, way: Callable[[Node], None]) -> None:
    node.own.is_active = True
    way(node)
    node.own.answer(created(ErrorCode.NOT_CONTROLLER))
    assert not node.answers
    ((how, message, _),) = node.others.asked
    assert (how, message) == ("submit v7" if way is submit else "forward a client's", REQUEST)
    node.others.answer(done := created(ErrorCode.NONE))
    assert node.answers == [done]


@WAYS
def test_while_the_metadata_cannot_be_written_the_own_one_says_so(node: Node, way: Callable[[Node], None]) -> None:
    node.own.has_failed = True
    way(node)
    node.own.answer(refusal := created(ErrorCode.KAFKA_STORAGE_ERROR))
    assert node.answers == [refusal]


def test_a_client_that_has_to_connect_anew_is_told_so(node: Node) -> None:
    node.own.is_active = True
    forward(node)
    node.own.answer(None)
    assert node.answers == [None]


def test_a_direct_question_is_asked_once(node: Node) -> None:
    node.controller.ask(HEARTBEAT, 500, node.answers.append)
    assert node.others.asked[0][:2] == ("ask 500 ms", HEARTBEAT)
    node.own.is_active = True
    node.controller.ask(HEARTBEAT, 500, node.answers.append)
    assert node.own.asked[0][:2] == (f"submit v{HEARTBEAT.VERSIONS.high}", HEARTBEAT)
    refusal = BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER, should_shut_down=False)
    node.own.answer(refusal)
    assert node.answers == [refusal], "the membership finds the next one itself"
    assert len(node.others.asked) == 1
