from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.batches import batch
from support.requests import AskedRequest
from unit.server.handlers.nodes import NOW_MS, Replicas

from pybroker.coordinator.shard import Producer
from pybroker.coordinator.transaction.requests import InitProducer
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.transactions import (
    AllocateProducerIdsResponse,
    DescribeProducersRequest,
    InitProducerIdRequest,
    TopicRequest,
)
from pybroker.server.coordinators.groups import Pending
from pybroker.server.handlers.producers import ProducerHandlers
from pybroker.server.producer_ids import ProducerIds

MAX_TIMEOUT_MS = 900_000


class Controller:
    """Gives blocks of ids at once, or when told to."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.waiting: list[Callable[[Message], None]] | None = None
        self.start = 0

    def submit(self, request: Message, version: int, done: Callable[[Message], None]) -> None:
        if self.waiting is None:
            self.answer(done)
        else:
            self.waiting.append(done)

    def answer(self, done: Callable[[Message], None]) -> None:
        done(AllocateProducerIdsResponse(error_code=self.error, producer_id_start=self.start, producer_id_len=1000))
        self.start += 1000


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def handlers(replicas: Replicas, controller: Controller) -> ProducerHandlers:
    def init(wanted: InitProducer, pending: Pending) -> None:
        if wanted.expected is None:
            pending.done(Producer(wanted.timeout_ms, 0))
        else:
            pending.refused(ErrorCode.PRODUCER_FENCED)

    return ProducerHandlers(replicas.manager, ProducerIds(controller, 1, lambda: 7), init, lambda: MAX_TIMEOUT_MS)


def init_request(
    transactional_id: str | None = None, *, producer: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000, version: int = 5
) -> AskedRequest:
    message = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    if version >= 3:
        message.producer_id, message.producer_epoch = producer
    return AskedRequest(message, version)


def init(handlers: ProducerHandlers, request: AskedRequest) -> tuple[int, int, int]:
    response: Any = handlers.handle_init_producer_id(request, request.message)  # type: ignore[arg-type]
    found = request.answer if response is None else response
    decoded = type(found).decode(request.version, found.encode(request.version))
    return decoded.error_code, decoded.producer_id, decoded.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_each_idempotent_producer_gets_an_id_of_its_own(handlers: ProducerHandlers, version: int) -> None:
    assert [init(handlers, init_request(version=version)) for _ in range(3)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


def test_a_producer_that_has_an_id_and_wants_its_epoch_raised_gets_a_new_id(handlers: ProducerHandlers) -> None:
    assert init(handlers, init_request()) == (0, 0, 0)
    assert init(handlers, init_request(producer=(0, 0))) == (0, 1, 0)
    assert init(handlers, init_request(producer=(0, 32766))) == (0, 2, 0)


@pytest.mark.parametrize("producer", [(3, -1), (-1, 0)])
def test_an_id_without_an_epoch_is_refused_and_an_epoch_without_an_id(
    handlers: ProducerHandlers, producer: tuple[int, int]
) -> None:
    assert init(handlers, init_request(producer=producer)) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_an_empty_transactional_id_is_refused(handlers: ProducerHandlers) -> None:
    assert init(handlers, init_request("")) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, MAX_TIMEOUT_MS + 1])
def test_the_timeout_of_a_transaction_is_checked_and_of_an_idempotent_producer_is_not(
    handlers: ProducerHandlers, timeout_ms: int
) -> None:
    assert init(handlers, init_request("id", timeout_ms=timeout_ms)) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert init(handlers, init_request(timeout_ms=timeout_ms)) == (0, 0, 0)


def test_of_a_transactional_id_its_coordinator_decides(handlers: ProducerHandlers) -> None:
    assert init(handlers, init_request("id", timeout_ms=MAX_TIMEOUT_MS)) == (ErrorCode.NONE, MAX_TIMEOUT_MS, 0)


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.PRODUCER_FENCED), (3, ErrorCode.INVALID_PRODUCER_EPOCH)])
def test_a_fenced_producer_is_told_so_in_words_it_knows(handlers: ProducerHandlers, version: int, code: ErrorCode) -> None:
    assert init(handlers, init_request("id", producer=(5, 1), version=version)) == (code, -1, -1)


def test_a_producer_waits_for_the_controllers_answer(handlers: ProducerHandlers, controller: Controller) -> None:
    controller.waiting = []
    request = init_request()
    assert handlers.handle_init_producer_id(request, request.message) is None  # type: ignore[arg-type]
    assert request.answers == []
    controller.answer(controller.waiting.pop())
    assert (request.answer.error_code, request.answer.producer_id) == (0, 0)


def test_a_controller_that_has_no_ids_makes_the_client_try_again(handlers: ProducerHandlers, controller: Controller) -> None:
    controller.error = ErrorCode.STALE_BROKER_EPOCH
    assert init(handlers, init_request()) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    controller.error = ErrorCode.NONE
    assert init(handlers, init_request())[0] == ErrorCode.NONE


# DescribeProducers.


def described(handlers: ProducerHandlers, topic: str, *indexes: int) -> list[Any]:
    message = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(indexes))])
    request = AskedRequest(message, 0)
    response: Any = handlers.handle_describe_producers(request, request.message)  # type: ignore[arg-type]
    (found,) = type(response).decode(0, response.encode(0)).topics
    assert found.name == topic
    return list(found.partitions)


def test_the_producers_of_a_partition_are_shown_with_all_that_is_known_of_them(
    replicas: Replicas, handlers: ProducerHandlers
) -> None:
    replicas.create("orders", 2)
    partition = replicas.partition("orders")
    partition.log.producers.verifies_transactions = False
    replicas.manager.append(
        partition, batch([b"a", b"b"], timestamp=NOW_MS + 3, producer_id=7, producer_epoch=2, sequence=0), -1
    )
    transactional = batch([b"c"], timestamp=NOW_MS, producer_id=8, producer_epoch=0, sequence=0, transactional=True)
    replicas.manager.append(partition, transactional, -1)
    first, second = described(handlers, "orders", 0, 1)
    assert (first.error_code, first.error_message) == (0, None)
    rows = [
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in first.active_producers
    ]
    assert rows == [(7, 2, 1, NOW_MS + 3, -1, -1), (8, 0, 0, NOW_MS, -1, 2)]
    assert (second.partition_index, second.error_code, second.active_producers) == (1, 0, [])


def test_partitions_and_topics_that_are_not_there_have_no_producers(replicas: Replicas, handlers: ProducerHandlers) -> None:
    replicas.create("orders")
    (row,) = described(handlers, "orders", 9)
    assert (row.error_code, row.error_message, row.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, [])
    (row,) = described(handlers, "nope", 0)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "nope" in row.error_message
    assert described(handlers, "orders") == []


@pytest.mark.parametrize("name", ["", "a b", ".."])
def test_a_name_that_no_topic_can_have(handlers: ProducerHandlers, name: str) -> None:
    rows = described(handlers, name, 0, 1)
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2
    assert all(row.error_message for row in rows)
