from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.requests import AskedRequest
from unit.server.clusters import Clock, Controller

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from pybroker.server.forwarding import Forwarding
from pybroker.server.handlers.topics import TopicHandlers


class Broker:
    def __init__(self) -> None:
        self.controller = Controller()
        self.clock = Clock()
        handlers = TopicHandlers(Forwarding(self.controller, self.clock.timer, self.clock.now_ms))
        self._handle: dict[type[Message], Callable[[Any, Any], None]] = {
            CreateTopicsRequest: handlers.handle_create_topics,
            DeleteTopicsRequest: handlers.handle_delete_topics,
            CreatePartitionsRequest: handlers.handle_create_partitions,
        }

    def ask(self, message: Message, version: int) -> AskedRequest:
        asked = AskedRequest(message, version)
        self._handle[type(message)](asked, asked.message)
        return asked


def create(*names: str, timeout_ms: int = 1000) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def created(name: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=name, error_code=0, error_message=None)])


def delete(*names: str, timeout_ms: int = 1000) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)


def delete_by_id(topic_id: Uuid, *names: str, timeout_ms: int = 1000) -> DeleteTopicsRequest:
    topics = [
        DeleteTopicState(name=None, topic_id=topic_id),
        *(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names),
    ]
    return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def grow(*names: str, timeout_ms: int = 1000) -> CreatePartitionsRequest:
    topics = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in names]
    return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=False)


def test_the_controllers_answer_is_the_clients() -> None:
    broker = Broker()
    asked = broker.ask(create("orders"), 7)
    assert asked.answers == []
    ((forwarded, version, _),) = broker.controller.asked
    assert (forwarded, version) == (asked.message, 7)
    broker.controller.answer(created("orders"))
    assert asked.answer == created("orders")
    broker.clock.advance(5000)
    assert len(asked.answers) == 1


def results(answer: Any, version: int) -> list[tuple[str | None, str]]:
    read = type(answer).decode(version, answer.encode(version))
    rows = getattr(read, "topics", None) or getattr(read, "responses", None) or read.results
    return [(row.name, ErrorCode(row.error_code).name) for row in rows]


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [
        (create("a", "b", "a"), 7, ["a", "b"]),
        (create("a"), 2, ["a"]),
        (delete("a", "b"), 5, ["a", "b"]),
        (delete_by_id(Uuid(b"1" * 16), "b"), 6, [None, "b"]),
        (grow("a", "b"), 3, ["a", "b"]),
    ],
)
def test_a_controller_that_is_too_slow_is_not_waited_for(message: Any, version: int, expected: list[str | None]) -> None:
    broker = Broker()
    asked = broker.ask(message, version)
    broker.clock.advance(999)
    assert asked.answers == []
    broker.clock.advance(1)
    assert results(asked.answer, version) == [(name, "REQUEST_TIMED_OUT") for name in expected]


def test_a_late_answer_of_the_controller_is_dropped() -> None:
    broker = Broker()
    asked = broker.ask(create("orders"), 7)
    broker.clock.advance(1000)
    broker.controller.answer(created("orders"))
    assert results(asked.answer, 7) == [("orders", "REQUEST_TIMED_OUT")]


@pytest.mark.parametrize("timeout_ms", [0, -1])
@pytest.mark.parametrize(("ask", "version"), [(create, 7), (delete, 5), (grow, 3)])
def test_without_any_time_nothing_is_done_at_all(ask: Callable[..., Message], version: int, timeout_ms: int) -> None:
    broker = Broker()
    asked = broker.ask(ask("orders", timeout_ms=timeout_ms), version)
    assert results(asked.answer, version) == [("orders", "REQUEST_TIMED_OUT")]
    assert broker.controller.asked == []


def test_a_topic_timed_out_by_its_id_is_told_by_it() -> None:
    broker = Broker()
    asked = broker.ask(delete_by_id(Uuid(b"1" * 16)), 6)
    broker.clock.advance(1000)
    assert [row.topic_id for row in asked.answer.responses] == [b"1" * 16]


def test_a_controller_that_cannot_be_asked_ends_the_request() -> None:
    class NoController(Controller):
        def submit(self, *_: Any) -> None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The node is stopping.")

    clock = Clock()
    handlers = TopicHandlers(Forwarding(NoController(), clock.timer, clock.now_ms))
    asked = AskedRequest(create("orders"), 7)
    with pytest.raises(KafkaError, match="stopping"):
        handlers.handle_create_topics(asked, asked.message)  # type: ignore[arg-type]
    clock.advance(5000)
    assert asked.answers == []
