"""A transaction coordinator in virtual time, and producers as a client library would be: they know their id and epoch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from unit.coordinator.worlds import Answer, MemoryLog, World

from pybroker.coordinator.shard import DelayTimers, Producer
from pybroker.coordinator.transaction.records import TRANSACTION_RECORD_TYPES
from pybroker.coordinator.transaction.requests import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    NeedsProducerId,
    SendMarkers,
    VerifyPartitions,
)
from pybroker.coordinator.transaction.settings import TransactionSettings
from pybroker.coordinator.transaction.shard import TransactionShard
from pybroker.coordinator.transaction.transaction import State, TopicPartition, Transaction
from pybroker.protocol.errors import ErrorCode

TIMEOUT_MS = 60_000
T0: TopicPartition = ("t", 0)
T1: TopicPartition = ("t", 1)


class TransactionWorld(World):
    def __init__(self, settings: TransactionSettings | None = None, *, version: int = 2) -> None:
        self.version = version
        self.producer_ids = itertools.count(100)
        self.transaction_settings = settings or TransactionSettings()
        super().__init__(log=MemoryLog(TRANSACTION_RECORD_TYPES), new_shard=self._transaction_shard)

    def _transaction_shard(self, partition: int, timers: DelayTimers) -> TransactionShard:
        return TransactionShard(partition, timers, self.transaction_settings, lambda: self.version)

    def ask_with_id(self, message: InitProducer | EndTransaction) -> Answer:
        """As the shell does: again, with a producer id, if one is needed."""
        answer = self.ask(message)
        if answer.refusal is None and isinstance(answer._response, NeedsProducerId):
            answer = self.ask(message._replace(new_producer_id=next(self.producer_ids)))
        return answer

    @property
    def orders(self) -> list[SendMarkers]:
        """The markers that were to be sent so far, and not written yet."""
        return [effect for effect in self.effects if isinstance(effect, SendMarkers)]

    def write_markers(self) -> None:
        """Every partition gets the markers that are to be sent."""
        orders = self.orders
        self.effects.clear()
        for order in orders:
            assert self.ask(MarkersWritten(order.prepared)).is_there

    def transaction(self, transactional_id: str = "id") -> Transaction:
        found: Transaction = self.shard.transactions[transactional_id]
        return found

    def states(self) -> list[State]:
        """Of every record in the log, in order."""
        return [State(value.transaction_status) for _, value in self.log.rows() if value is not None]


@dataclass(slots=True)
class Client:
    """A producer; `version` is the transaction.version that it speaks."""

    world: TransactionWorld
    id: str = "id"
    version: int = 2
    producer: Producer = field(default_factory=lambda: Producer(-1, -1))

    def init(self, *, expected: bool = False, timeout_ms: int = TIMEOUT_MS) -> ErrorCode:
        wanted = InitProducer(self.id, timeout_ms, self.producer if expected else None)
        return self._take(self.world.ask_with_id(wanted))

    def add(self, *partitions: TopicPartition) -> ErrorCode:
        return self._code(self.world.ask(self.adding(*partitions)))

    def adding(self, *partitions: TopicPartition) -> AddPartitions:
        return AddPartitions(self.id, self.producer, frozenset(partitions or (T0,)), self.version)

    def verify(self, *partitions: TopicPartition) -> Any:
        """Those that are in the transaction, or why that is not said."""
        answer = self.world.ask(VerifyPartitions(self.id, self.producer, frozenset(partitions)))
        return answer.refusal if answer.refusal is not None else answer.response

    def ending(self, *, commits: bool) -> EndTransaction:
        return EndTransaction(self.id, self.producer, commits, self.version)

    def end(self, *, commits: bool) -> ErrorCode:
        return self._take(self.world.ask_with_id(self.ending(commits=commits)))

    def commit(self) -> ErrorCode:
        return self.end(commits=True)

    def abort(self) -> ErrorCode:
        return self.end(commits=False)

    def _take(self, answer: Answer) -> ErrorCode:
        code = self._code(answer)
        if code is ErrorCode.NONE:
            self.producer = answer.response
        return code

    @staticmethod
    def _code(answer: Answer) -> ErrorCode:
        assert answer.is_there, "there is no answer yet"
        return ErrorCode.NONE if answer.refusal is None else answer.refusal


def ready(world: TransactionWorld, *, version: int = 2, id: str = "id") -> Client:
    client = Client(world, id, version)
    assert client.init() is ErrorCode.NONE
    return client
