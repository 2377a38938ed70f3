"""A transaction's first batch in a partition waits until its coordinator has confirmed it; the others do not."""

from __future__ import annotations

from typing import Any

import pytest
from support.batches import batch
from support.requests import AskedRequest
from unit.server.handlers.nodes import Replicas

from pybroker.coordinator.shard import Producer
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from pybroker.server.coordinators.transaction_checks import Check
from pybroker.server.handlers.produce import ProduceHandlers
from pybroker.server.handlers.transactional_produce import TransactionalProduce

OLD, NEW = 11, 12
T0, T1 = ("t", 0), ("t", 1)
FIRST = Producer(5, 0)


class Broker:
    def __init__(self, replicas: Replicas) -> None:
        replicas.create("t", 2)
        self.replicas = replicas
        self.checks: list[Check] = []
        self.verifies = True
        self.handlers = ProduceHandlers(
            replicas.manager, TransactionalProduce(replicas.manager, self.checks.append, lambda: self.verifies)
        )

    def send(self, *rows: tuple[int, int], version: int = NEW, producer: Producer = FIRST) -> Sent:
        """Rows are of partition and sequence."""
        return Sent(self, [(index, sequence, producer) for index, sequence in rows], version)

    def end_offset(self, partition: int = 0) -> int:
        return self.replicas.partition("t", partition).log.log_end_offset


class Sent:
    def __init__(self, broker: Broker, rows: list[tuple[int, int, Producer]], version: int) -> None:
        self.buffers = [
            batch([b"x"], producer_id=one.producer_id, producer_epoch=one.epoch, sequence=sequence, transactional=True)
            for _, sequence, one in rows
        ]
        data = [
            PartitionProduceData(index=row[0], records=memoryview(buffer))
            for row, buffer in zip(rows, self.buffers, strict=True)
        ]
        message = ProduceRequest(
            transactional_id="id", acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )
        self._request = AskedRequest(message, version)
        self._answer: Any = broker.handlers.handle_produce(self._request, message)  # type: ignore[arg-type]

    @property
    def is_answered(self) -> bool:
        return self._answer is not None or bool(self._request.answers)

    @property
    def rows(self) -> list[PartitionProduceResponse]:
        answer = self._answer if self._answer is not None else self._request.answers[0]
        found: list[PartitionProduceResponse] = answer.responses[0].partition_responses
        return found

    @property
    def codes(self) -> list[ErrorCode]:
        return [ErrorCode(row.error_code) for row in self.rows]


@pytest.fixture
def broker(replicas: Replicas) -> Broker:
    return Broker(replicas)


@pytest.mark.parametrize(("version", "adds"), [(OLD, False), (NEW, True)])
def test_the_first_batch_waits_for_the_coordinator(broker: Broker, version: int, adds: bool) -> None:
    first = broker.send((0, 0), (1, 0), version=version)
    (check,) = broker.checks
    assert (check.transactional_id, check.producer, check.partitions, check.adds) == ("id", Producer(5, 0), {T0, T1}, adds)
    assert not first.is_answered
    assert broker.end_offset() == 0
    # Meanwhile the buffer that it came in belongs to another request.
    for buffer in first.buffers:
        buffer[:] = bytes(len(buffer))
    check.done({})
    assert first.codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert (broker.end_offset(0), broker.end_offset(1)) == (1, 1)


def test_the_next_batch_does_not_wait(broker: Broker) -> None:
    broker.send((0, 0))
    broker.checks[0].done({})
    second = broker.send((0, 1))
    assert second.codes == [ErrorCode.NONE]
    assert len(broker.checks) == 1


def test_further_batches_of_several_partitions_need_no_care(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send((0, 0), (1, 0))
    broker.checks[0].done({})
    monkeypatch.setattr(broker.replicas.manager, "append", None)  # the careful way
    assert broker.send((0, 1), (1, 1)).codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert (broker.end_offset(0), broker.end_offset(1)) == (2, 2)


def test_only_partitions_that_are_new_to_the_transaction_are_asked_about(broker: Broker) -> None:
    broker.send((0, 0))
    broker.checks[0].done({})
    both = broker.send((0, 1), (1, 0))
    assert broker.checks[1].partitions == {T1}
    broker.checks[1].done({T1: ErrorCode.TRANSACTION_ABORTABLE})
    assert both.codes == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, NEW, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, NEW, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, NEW, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, NEW, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NEW, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_refusal_comes_in_words_that_the_client_knows(broker: Broker, said: ErrorCode, version: int, told: ErrorCode) -> None:
    sent = broker.send((0, 0), version=version)
    broker.checks[0].done({T0: said})
    assert sent.codes == [told]
    assert broker.end_offset() == 0


def test_an_old_epoch_is_refused_without_asking(broker: Broker) -> None:
    broker.send((0, 0), producer=Producer(5, 3))
    broker.checks[0].done({})
    late = broker.send((0, 1), producer=Producer(5, 2))
    assert late.codes == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert len(broker.checks) == 1


def test_an_answer_that_comes_after_the_transactions_end_lets_nothing_in(broker: Broker) -> None:
    late = broker.send((0, 0), version=OLD)
    broker.replicas.partition("t").log.producers._verifications.clear()  # as the marker does
    broker.checks[0].done({})
    assert late.codes == [ErrorCode.INVALID_TXN_STATE]
    assert broker.end_offset() == 0


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_request_of_two_producers_is_refused_as_a_whole_even_where_a_transaction_is_open(
    broker: Broker, version: int
) -> None:
    broker.send((0, 0), version=version)
    broker.checks[0].done({})
    broker.verifies = False
    mixed = Sent(broker, [(0, 1, Producer(5, 0)), (1, 0, Producer(6, 0))], version)
    assert mixed.codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert (broker.end_offset(0), broker.end_offset(1)) == (1, 0)


def test_a_request_of_two_producers_is_none_of_a_transaction(broker: Broker) -> None:
    mixed = Sent(broker, [(0, 0, Producer(5, 0)), (1, 0, Producer(6, 0))], NEW)
    assert set(mixed.codes) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert broker.checks == []


def test_verification_can_be_switched_off_for_old_clients(broker: Broker) -> None:
    broker.verifies = False
    broker.replicas.partition("t").log.producers.verifies_transactions = False
    assert broker.send((0, 0), version=OLD).codes == [ErrorCode.NONE]
    assert broker.checks == []
    # The write of a new one has to be added in any case.
    broker.send((1, 0), version=NEW)
    assert len(broker.checks) == 1
