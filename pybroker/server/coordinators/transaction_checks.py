"""Asks a transaction's coordinator whether partitions are part of it, or to make them so, before a first write (KIP-890).

Any thread; nothing here waits. The coordinator may be this broker's own; what goes to another one goes together: while a
request is under way, the next one gathers, each transactional id in it once. Nothing is left behind a broker that hangs when
another one coordinates meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from pybroker.base.address import Address
from pybroker.base.timer import Deadlines
from pybroker.client.request_error import Failure, RequestError
from pybroker.config import Config
from pybroker.coordinator.shard import Producer
from pybroker.coordinator.transaction.requests import AddPartitions, VerifyPartitions
from pybroker.coordinator.transaction.transaction import EPOCH_BUMP, TopicPartition
from pybroker.protocol.errors import ErrorCode, error_of
from pybroker.protocol.message import Message
from pybroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pybroker.server.coordinators.groups import Pending
from pybroker.server.coordinators.marker_sender import Send
from pybroker.server.coordinators.transactions import TransactionCoordinator

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 10_000  # for one broker; the client of one more is to try again

# Those that are not in the transaction, and why. Nothing, if all are.
Outside = Mapping[TopicPartition, ErrorCode]


class Check(NamedTuple):
    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    adds: bool
    done: Callable[[Outside], None]

    def refuse(self, code: ErrorCode) -> None:
        self.done(dict.fromkeys(self.partitions, code))


class _Broker:
    __slots__ = ("asked", "is_busy", "waiting")

    def __init__(self) -> None:
        self.is_busy = False
        self.asked: dict[str, Check] = {}  # by transactional id
        self.waiting: list[Check] = []


class TransactionChecks:
    def __init__(
        self,
        config: Config,
        coordinator: TransactionCoordinator,
        *,
        address_of: Callable[[int], Address | None],
        send: Send,
        timer: Deadlines,
        now_ms: Callable[[], int],
    ) -> None:
        self._broker_id = config.int("node.id")
        self._backoff_ms = config.int("add.partitions.to.txn.retry.backoff.ms")
        self._patience_ms = config.int("add.partitions.to.txn.retry.backoff.max.ms")
        self._timeout_ms = config.int("request.timeout.ms")
        self._coordinator = coordinator
        self._address_of = address_of
        self._send = send
        self._timer = timer
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._brokers: dict[int, _Broker] = {}

    def submit(self, check: Check) -> None:
        """Have it done: with `adds` after some patience with a transaction before that is not over yet."""
        if not check.adds:
            self._ask(check)
            return
        deadline_ms = self._now_ms() + self._patience_ms

        def done(outside: Outside) -> None:
            again_ms = self._now_ms() + self._backoff_ms
            if ErrorCode.CONCURRENT_TRANSACTIONS in outside.values() and again_ms <= deadline_ms:
                self._timer.add(again_ms, partial(self._ask, patient))
            else:
                check.done(outside)

        patient = check._replace(done=done)
        self._ask(patient)

    def _ask(self, check: Check) -> None:
        leader = self._coordinator.leader_of(check.transactional_id)
        if leader == self._broker_id:
            self._ask_own(check)
        elif leader is None or self._address_of(leader) is None:
            check.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            with self._lock:
                broker = self._brokers.setdefault(leader, _Broker())
                has_room = len(broker.waiting) < MAX_WAITING
                if has_room:
                    broker.waiting.append(check)
            if has_room:
                self._pump(leader)
            else:
                check.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _ask_own(self, check: Check) -> None:
        submit = self._coordinator.submit
        transactional_id, producer, partitions, adds, done = check
        if self._coordinator.unknown(partitions):
            check.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if adds:
            added = AddPartitions(transactional_id, producer, partitions, EPOCH_BUMP)
            submit(transactional_id, added, Pending(lambda _: done({}), check.refuse))
            return

        def verified(inside: frozenset[TopicPartition]) -> None:
            done(dict.fromkeys(partitions - inside, ErrorCode.TRANSACTION_ABORTABLE))

        submit(transactional_id, VerifyPartitions(transactional_id, producer, partitions), Pending(verified, check.refuse))

    # Another broker's coordinator.

    def leaders_moved(self) -> None:
        """Ask whoever coordinates now instead of one that did, even if that has been asked."""
        moved: list[Check] = []
        with self._lock:
            for broker_id, broker in self._brokers.items():

                def is_led(check: Check, broker_id: int = broker_id) -> bool:
                    return self._coordinator.leader_of(check.transactional_id) == broker_id

                moved += [one for one in (*broker.asked.values(), *broker.waiting) if not is_led(one)]
                broker.asked = {name: one for name, one in broker.asked.items() if is_led(one)}
                broker.waiting = [one for one in broker.waiting if is_led(one)]
        for check in moved:
            self._ask(check)

    def _pump(self, broker_id: int) -> None:
        broker = self._brokers[broker_id]
        with self._lock:
            if broker.is_busy or not broker.waiting:
                return
            asked: dict[str, Check] = {}
            broker.waiting = [one for one in broker.waiting if asked.setdefault(one.transactional_id, one) is not one]
            broker.asked = asked
            broker.is_busy = True

        def answered(response: Message | RequestError) -> None:
            with self._lock:
                broker.is_busy = False
                left, broker.asked = broker.asked, {}
            self._pump(broker_id)
            for check, outside in _judged(left, response).items():
                check.done(outside)

        address = self._address_of(broker_id)
        if address is None:
            answered(RequestError(Failure.NOT_CONNECTED, Address("", 0), f"broker {broker_id} is not registered"))
            return
        request = AddPartitionsToTxnRequest(transactions=[_as_sent(check) for check in asked.values()])
        self._send(address, request, self._timeout_ms, answered)


def _as_sent(check: Check) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(check.partitions):
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=check.transactional_id,
        producer_id=check.producer.producer_id,
        producer_epoch=check.producer.epoch,
        verify_only=not check.adds,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
    )


_NETWORK: Final = ErrorCode.NETWORK_EXCEPTION


def _judged(asked: Mapping[str, Check], response: Message | RequestError) -> dict[Check, Outside]:
    if isinstance(response, RequestError):
        if response.failure is Failure.UNSUPPORTED_VERSION:
            logger.warning("a coordinator that cannot verify transactions is taken at its producers' word: %s", response)
            return {check: {} for check in asked.values()}
        return {check: dict.fromkeys(check.partitions, _NETWORK) for check in asked.values()}
    assert isinstance(response, AddPartitionsToTxnResponse), response
    if response.error_code:
        code = error_of(response.error_code)
        # What one broker may not ask another is nothing a producer could do anything about.
        code = ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
        return {check: dict.fromkeys(check.partitions, code) for check in asked.values()}
    found = {
        result.transactional_id: {
            (topic.name, row.partition_index): error_of(row.partition_error_code)
            for topic in result.topic_results
            for row in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
    out: dict[Check, Outside] = {}
    for transactional_id, check in asked.items():
        codes = found.get(transactional_id, {})
        out[check] = {one: code for one in check.partitions if (code := codes.get(one, _NETWORK)) is not ErrorCode.NONE}
    return out
