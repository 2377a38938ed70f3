"""Before a first write the coordinator is asked, wherever it is, and what it says is what the partition goes by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pybroker.base.address import Address
from pybroker.base.timer import Timer
from pybroker.client.request_error import Failure, RequestError
from pybroker.config import Config
from pybroker.coordinator.shard import Producer
from pybroker.coordinator.transaction.requests import AddPartitions, VerifyPartitions
from pybroker.coordinator.transaction.transaction import TopicPartition
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from pybroker.server.coordinators import transaction_checks
from pybroker.server.coordinators.groups import Pending
from pybroker.server.coordinators.transaction_checks import Check, Outside, TransactionChecks

OWN = 1
T0, T1 = ("t", 0), ("t", 1)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


class World:
    def __init__(self) -> None:
        self.now_ms = 0
        self.timer = Timer(0)
        self.leader: int | None = OWN
        self.new: set[TopicPartition] = set()  # of which the coordinator has not heard yet
        self.asked: list[tuple[Any, Pending]] = []
        self.sent: list[tuple[int, AddPartitionsToTxnRequest, Callable[[Any], None]]] = []
        self.checks = TransactionChecks(
            Config({}, {"node.id": OWN}),
            self,  # type: ignore[arg-type]
            address_of=lambda broker: Address("host", broker) if broker < 9 else None,
            send=lambda address, request, timeout_ms, done: self.sent.append((address.port, request, done)),  # type: ignore[arg-type]
            timer=self.timer,
            now_ms=lambda: self.now_ms,
        )

    # What is asked of the coordinator.

    def leader_of(self, transactional_id: str) -> int | None:
        return self.leader

    def unknown(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        return self.new & set(partitions)

    def submit(self, transactional_id: str, message: Any, pending: Pending) -> None:
        self.asked.append((message, pending))

    # What the tests ask.

    def check(self, name: str = "id", *, adds: bool = False) -> list[Outside]:
        out: list[Outside] = []
        self.checks.submit(Check(name, Producer(5, 0), frozenset((T0, T1)), adds, out.append))
        return out

    def advance(self, delay_ms: int) -> None:
        self.now_ms += delay_ms
        self.timer.advance(self.now_ms)


@pytest.fixture
def world() -> World:
    return World()


def response(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code if index else 0)
                            for index in topic.partitions
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in request.transactions
        ]
    )


def test_this_brokers_own_coordinator_is_asked_directly(world: World) -> None:
    found = world.check()
    message, pending = world.asked[0]
    assert message == VerifyPartitions("id", Producer(5, 0), frozenset((T0, T1)))
    pending.done(frozenset((T0,)))
    assert found == [{T1: ErrorCode.TRANSACTION_ABORTABLE}]


@pytest.mark.parametrize("adds", [True, False])
def test_a_partition_that_the_coordinator_has_yet_to_hear_of_is_not_added(world: World, adds: bool) -> None:
    """The end would find it neither, and take it for gone: its transaction would hang."""
    world.new = {T1}
    assert world.check(adds=adds) == [dict.fromkeys((T0, T1), ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert world.asked == []
    world.new = set()
    found = world.check(adds=True)
    world.asked[0][1].done(None)
    assert found == [{}]


def test_a_refusal_is_one_for_all_partitions(world: World) -> None:
    found = world.check()
    world.asked[0][1].refused(ErrorCode.PRODUCER_FENCED)
    assert found == [{T0: ErrorCode.PRODUCER_FENCED, T1: ErrorCode.PRODUCER_FENCED}]


def test_a_write_of_the_new_kind_adds_its_partitions(world: World) -> None:
    found = world.check(adds=True)
    message, pending = world.asked[0]
    assert message == AddPartitions("id", Producer(5, 0), frozenset((T0, T1)), 2)
    pending.done(None)
    assert found == [{}]


def test_there_is_some_patience_with_the_transaction_before(world: World) -> None:
    found = world.check(adds=True)
    world.asked[0][1].refused(BUSY)
    assert found == []
    world.advance(20)
    world.asked[1][1].done(None)
    assert found == [{}]


def test_the_patience_has_an_end(world: World) -> None:
    found = world.check(adds=True)
    while not found:
        world.asked[-1][1].refused(BUSY)
        world.advance(20)
    assert world.now_ms <= 120
    assert found == [{T0: BUSY, T1: BUSY}]


def test_another_brokers_coordinator_is_asked_for_several_at_once(world: World) -> None:
    world.leader = 2
    found = [world.check(name) for name in ("a", "b", "c", "b")]
    (_, request, done) = world.sent[0]
    assert [(one.transactional_id, one.verify_only) for one in request.transactions] == [("a", True)]
    done(response(request, ErrorCode.NONE))
    (_, request, done) = world.sent[1]
    # The same id a second time waits for the next request.
    assert [one.transactional_id for one in request.transactions] == ["b", "c"]
    done(response(request, ErrorCode.TRANSACTION_ABORTABLE))
    assert found[:3] == [[{}], [{T1: ErrorCode.TRANSACTION_ABORTABLE}], [{T1: ErrorCode.TRANSACTION_ABORTABLE}]]
    assert [one.transactional_id for one in world.sent[2][1].transactions] == ["b"]


@pytest.mark.parametrize("leader", [None, 9])
def test_without_a_coordinator_the_client_is_to_try_again(world: World, leader: int | None) -> None:
    world.leader = leader
    assert world.check() == [dict.fromkeys((T0, T1), ErrorCode.COORDINATOR_NOT_AVAILABLE)]


@pytest.mark.parametrize(
    ("failure", "code"),
    [(Failure.TIMED_OUT, ErrorCode.NETWORK_EXCEPTION), (Failure.UNSUPPORTED_VERSION, None)],
    ids=["no answer", "one that cannot verify"],
)
def test_a_coordinator_that_does_not_answer(world: World, failure: Failure, code: ErrorCode | None) -> None:
    world.leader = 2
    found = world.check()
    world.sent[0][2](RequestError(failure, Address("host", 2), "so it is"))
    assert found == [{} if code is None else dict.fromkeys((T0, T1), code)]


def test_what_brokers_may_not_ask_is_nothing_for_producers(world: World) -> None:
    world.leader = 2
    found = world.check()
    world.sent[0][2](AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert found == [dict.fromkeys((T0, T1), ErrorCode.INVALID_TXN_STATE)]


def test_who_waits_for_a_coordinator_that_hangs_is_answered_by_the_next_one(world: World) -> None:
    world.leader = 2
    found = [world.check(name) for name in ("asked", "waiting")]
    (_, request, hung) = world.sent[0]
    world.leader = 3
    world.checks.leaders_moved()
    hung(response(request, ErrorCode.TRANSACTION_ABORTABLE))  # too late
    for number in (1, 2):
        port, asked, done = world.sent[number]
        assert port == 3
        done(response(asked, ErrorCode.NONE))
    assert found == [[{}], [{}]]


def test_only_so_many_wait_for_one_broker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_checks, "MAX_WAITING", 2)
    world.leader = 2
    found = [world.check(name) for name in ("asked", "a", "b", "c")]
    assert found == [[], [], [], [dict.fromkeys((T0, T1), ErrorCode.COORDINATOR_NOT_AVAILABLE)]]
