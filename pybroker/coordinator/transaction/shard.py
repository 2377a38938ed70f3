"""A shard of the transaction coordinator: all transactional ids of one partition of `__transaction_state`.

A decision is one record, the transaction as it is from then on. A prepared one is durable before its markers go out, which
is an effect; whoever replays a prepared one, in whatever state the last coordinator died, sends the markers (again). There is
no state in between: while a decision is not committed its producer waits, and what others decide builds on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from pybroker.coordinator.records import CoordinatorRecord
from pybroker.coordinator.shard import DelayTimers, Effect, Producer, Refuse, Reply, Request, Result, Token
from pybroker.coordinator.transaction.records import transaction_of, transaction_record
from pybroker.coordinator.transaction.requests import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    NeedsProducerId,
    SendMarkers,
    VerifyPartitions,
)
from pybroker.coordinator.transaction.settings import TransactionSettings
from pybroker.coordinator.transaction.transaction import EPOCH_BUMP, FIRST_EPOCH, State, Transaction
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.transaction_state import TransactionLogKey, TransactionLogValue
from pybroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

logger = logging.getLogger(__name__)

_ABORT_LATE: Final = ("abort late",)
_EXPIRE: Final = ("expire",)
MAX_ABORTS: Final = 100  # of late transactions, in one batch


class TransactionShard:
    def __init__(self, partition: int, timers: DelayTimers, settings: TransactionSettings, version: Callable[[], int]) -> None:
        """`version` is the cluster's level of transaction.version."""
        self.partition = partition
        self.transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, None] = {}
        self._timers = timers
        self._settings = settings
        self._version = version
        self._max_epoch = settings.max_epoch
        # Those whose records are replayed next: they know what has no place in a record.
        self._decided: dict[str, Transaction] = {}
        self._max_aborts = MAX_ABORTS  # fewer while so many do not fit into a batch

    # The runtime's shape.

    def handle(self, now_ms: int, request: Request) -> Result:
        self._decided.clear()
        return _HANDLERS[type(request.message)](self, now_ms, request)

    def timed_out(self, now_ms: int, key: Hashable) -> Result:
        self._decided.clear()
        return self._expire(now_ms) if key == _EXPIRE else self._abort_late(now_ms)

    def replay(self, offset: int, record: CoordinatorRecord, producer: Producer | None) -> None:
        assert isinstance(record.key, TransactionLogKey)
        transactional_id, value = record.key.transactional_id, record.value
        if value is None:
            self.transactions.pop(transactional_id, None)
            self._ongoing.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        transaction = self._decided.pop(transactional_id, None) or transaction_of(transactional_id, value)
        self.transactions[transactional_id] = transaction
        if transaction.state is State.ONGOING:
            self._ongoing[transactional_id] = None
        else:
            self._ongoing.pop(transactional_id, None)

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        logger.warning("__transaction_state-%d has a marker of producer %d; it means nothing", self.partition, producer[0])

    def loaded(self, now_ms: int) -> Result:
        """What was decided before goes on."""
        self._timers.set(_ABORT_LATE, self._settings.abort_check_interval_ms)
        self._timers.set(_EXPIRE, self._settings.expiry_check_interval_ms)
        return Result(effects=[self._markers(one) for one in self.transactions.values() if one.state.is_prepared])

    def parked(self) -> list[Token]:
        return []

    # InitProducerId.

    def _init(self, now_ms: int, request: Request) -> Result:
        asked: InitProducer = request.message
        transaction = self.transactions.get(asked.transactional_id)
        new_id = asked.new_producer_id
        if transaction is None:
            if new_id is None:
                return Result(effects=[Reply(request.token, NeedsProducerId())])
            producer = Producer(new_id, FIRST_EPOCH)
            new = Transaction(asked.transactional_id, *producer, asked.timeout_ms, now_ms, previous_producer_id=new_id)
            return self._decides(request, new, producer)
        if asked.expected is not None and not self._may_recover(transaction, asked.expected):
            return _refuse(request, ErrorCode.PRODUCER_FENCED)
        if transaction.state.is_prepared:
            return _refuse(request, ErrorCode.CONCURRENT_TRANSACTIONS)
        if transaction.state is State.ONGOING:
            if asked.expected is not None and asked.expected.epoch != transaction.epoch:
                # A zombie that wants to recover must not abort what its successor has open, though Apache Kafka lets it.
                return _refuse(request, ErrorCode.PRODUCER_FENCED)
            # The one before is fenced at once. Its successor comes back when nothing of it is left.
            refusal = Refuse(request.token, ErrorCode.CONCURRENT_TRANSACTIONS)
            return self._ends(transaction.fenced(now_ms, self._version(), self._max_epoch), refusal)
        expected = NO_PRODUCER_EPOCH if asked.expected is None else asked.expected.epoch
        if expected not in (NO_PRODUCER_EPOCH, transaction.epoch, transaction.last_epoch):
            return _refuse(request, ErrorCode.PRODUCER_FENCED)
        # A retry of what succeeded: anybody else would have made the last epoch unknown.
        is_retry = expected not in (NO_PRODUCER_EPOCH, transaction.epoch)
        if is_retry and transaction.epoch < self._max_epoch:
            producer = transaction.producer
        elif not self._is_exhausted(transaction):
            producer = Producer(transaction.producer_id, transaction.epoch + 1)
        elif new_id is None:
            return Result(effects=[Reply(request.token, NeedsProducerId())])
        else:
            producer = Producer(new_id, FIRST_EPOCH)
        return self._decides(request, transaction.initialised(now_ms, producer, expected, asked.timeout_ms), producer)

    def _may_recover(self, transaction: Transaction, expected: Producer) -> bool:
        """The producer is this one, or was it until it ran out of epochs."""
        if expected.producer_id == transaction.producer_id:
            return True
        return expected.producer_id == transaction.previous_producer_id and expected.epoch >= self._max_epoch - 1

    def _is_exhausted(self, transaction: Transaction) -> bool:
        """Whoever comes next begins anew with another producer id."""
        return transaction.epoch >= self._max_epoch - 1

    # AddPartitionsToTxn, AddOffsetsToTxn.

    def _add(self, now_ms: int, request: Request) -> Result:
        asked: AddPartitions = request.message
        transaction = self.transactions.get(asked.transactional_id)
        code = self._refusal(transaction, asked.producer)
        if transaction is None or code:
            return _refuse(request, code)
        if transaction.state is State.ONGOING and asked.partitions <= transaction.partitions:
            return Result(effects=[Reply(request.token, None)])
        return self._decides(request, transaction.with_partitions(now_ms, asked.partitions, asked.client_version), None)

    def _verify(self, now_ms: int, request: Request) -> Result:
        asked: VerifyPartitions = request.message
        transaction = self.transactions.get(asked.transactional_id)
        code = self._refusal(transaction, asked.producer)
        if transaction is None or code:
            return _refuse(request, code)
        return Result(effects=[Reply(request.token, asked.partitions & transaction.partitions)])

    def _refusal(self, transaction: Transaction | None, producer: Producer) -> ErrorCode:
        """Why the producer may not add to its transaction, or ask of it."""
        if transaction is None or transaction.producer_id != producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if not producer.epoch == transaction.epoch < self._max_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.state.is_prepared else ErrorCode.NONE

    # EndTxn.

    def _end(self, now_ms: int, request: Request) -> Result:
        asked: EndTransaction = request.message
        transaction = self.transactions.get(asked.transactional_id)
        if transaction is None:
            return _refuse(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        bumps = asked.client_version >= EPOCH_BUMP
        is_retry = bumps and self._is_retried_end(transaction, asked.producer)
        if transaction.producer_id != asked.producer.producer_id and not is_retry:
            return _refuse(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        # A prepared transaction has left the epoch of its producer behind, if that is of the kind that does.
        may_be_current = not (bumps and transaction.bumps_epochs and transaction.state.is_prepared)
        is_current = may_be_current and asked.producer.epoch == transaction.epoch < self._max_epoch
        if not (is_retry or is_current):
            return _refuse(request, ErrorCode.PRODUCER_FENCED)
        if transaction.state is not State.ONGOING:
            verdict = _verdict(transaction.state, commits=asked.commits, bumps=bumps, is_retry=is_retry)
            if verdict is ErrorCode.NONE and transaction.epoch < self._max_epoch:
                return Result(effects=[Reply(request.token, transaction.producer)])
            if verdict:
                return _refuse(request, verdict)
            # Whoever was fenced by the last epoch, which is nobody's, ends nothing, for another producer id.
        next_id = NO_PRODUCER_ID
        if bumps and self._is_exhausted(transaction):
            if asked.new_producer_id is None:
                return Result(effects=[Reply(request.token, NeedsProducerId())])
            next_id = asked.new_producer_id
        prepared = transaction.prepared(
            now_ms, asked.client_version, commits=asked.commits, producer=asked.producer, next_producer_id=next_id
        )
        return self._ends(prepared, Reply(request.token, _successor(prepared)))

    def _is_retried_end(self, transaction: Transaction, producer: Producer) -> bool:
        """The end was decided, which raised the epoch, and the answer was lost."""
        if not transaction.bumps_epochs or transaction.state not in _ENDED:
            return False
        if producer.producer_id == transaction.producer_id:
            return producer.epoch + 1 == transaction.epoch
        is_last = producer.epoch == self._max_epoch - 1 and transaction.epoch == FIRST_EPOCH
        return is_last and producer.producer_id == transaction.previous_producer_id

    def _written(self, now_ms: int, request: Request) -> Result:
        asked: MarkersWritten = request.message
        if self.transactions.get(asked.prepared.transactional_id) is not asked.prepared:
            # An earlier coordinator's markers, or the same ones twice. By then another transaction of the same producer, before
            # KIP-890 of the same epoch even, may wait for markers of its own.
            return Result(effects=[Reply(request.token, None)])
        return self._decides(request, asked.prepared.completed(now_ms), None)

    # From outside.

    def _describe(self, now_ms: int, request: Request) -> Result:
        asked: DescribeTransaction = request.message
        return Result(effects=[Reply(request.token, self.transactions.get(asked.transactional_id))])

    def _list(self, now_ms: int, request: Request) -> Result:
        return Result(effects=[Reply(request.token, list(self.transactions.values()))])

    # Time.

    def _abort_late(self, now_ms: int) -> Result:
        ongoing = [self.transactions[one] for one in self._ongoing]
        late = [one for one in ongoing if one.is_late(now_ms)]
        if not late:
            self._max_aborts = MAX_ABORTS
        self._timers.set(_ABORT_LATE, 1 if len(late) > self._max_aborts else self._settings.abort_check_interval_ms)
        chosen = late[: self._max_aborts]
        out = Result(on_refused=partial(self._abort_fewer, chosen))
        for transaction in chosen:
            logger.info("the transaction of %s is aborted after %d ms", transaction.transactional_id, transaction.timeout_ms)
            try:
                fenced = transaction.fenced(now_ms, self._version(), self._max_epoch)
            except Exception:
                # The others are not to hang with it.
                logger.exception("%s cannot be aborted", transaction)
                self._put_last(transaction)
                continue
            out.records.append(self._record(fenced))
            out.effects.append(self._markers(fenced))
        return out

    def _abort_fewer(self, chosen: list[Transaction], code: ErrorCode) -> list[Effect]:
        """Together they may be too large for a batch, which would be so the next time, too."""
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            if self._max_aborts > 1:
                self._max_aborts //= 2
                self._timers.set(_ABORT_LATE, 1)
            else:
                # Nor does it fit by itself: the others first, without haste.
                for transaction in chosen:
                    self._put_last(transaction)
                self._timers.set(_ABORT_LATE, self._settings.abort_check_interval_ms)
        return []

    def _put_last(self, transaction: Transaction) -> None:
        self._ongoing[transaction.transactional_id] = self._ongoing.pop(transaction.transactional_id)

    def _expire(self, now_ms: int) -> Result:
        self._timers.set(_EXPIRE, self._settings.expiry_check_interval_ms)
        expiration_ms = self._settings.id_expiration_ms
        expired = [one for one in self.transactions.values() if one.has_expired(now_ms, expiration_ms)]
        if expired:
            logger.info("%d transactional ids of partition %d have expired", len(expired), self.partition)
        records = [transaction_record(one.expired(now_ms), self._version()) for one in expired]
        return Result(records, is_atomic=False)

    # Decisions.

    def _decides(self, request: Request, transaction: Transaction, response: object) -> Result:
        return Result([self._record(transaction)], [Reply(request.token, response)])

    def _ends(self, prepared: Transaction, answer: Reply | Refuse) -> Result:
        # The markers first: those of this broker's own partitions are written at once, and a producer that hears of the end
        # only then is not told, with its next transaction, that the one before is still under way.
        return Result([self._record(prepared)], [self._markers(prepared), answer])

    def _record(self, transaction: Transaction) -> CoordinatorRecord:
        self._decided[transaction.transactional_id] = transaction
        return transaction_record(transaction, self._version())

    def _markers(self, prepared: Transaction) -> SendMarkers:
        return SendMarkers(self, prepared)


def _refuse(request: Request, code: ErrorCode) -> Result:
    return Result(effects=[Refuse(request.token, code)])


def _verdict(state: State, *, commits: bool, bumps: bool, is_retry: bool) -> ErrorCode | None:
    """What becomes of an end when no transaction is open; None: it is one of nothing, for a new epoch."""
    if state.is_prepared:
        is_same = commits == (state is State.PREPARE_COMMIT)
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE
    if bumps and not is_retry:
        return ErrorCode.INVALID_TXN_STATE if commits else None
    is_done = state is (State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT)
    return ErrorCode.NONE if is_done else ErrorCode.INVALID_TXN_STATE


def _successor(prepared: Transaction) -> Producer:
    """What the producer is from now on; it begins anew with another id when its epochs are used up."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return Producer(prepared.next_producer_id, FIRST_EPOCH)
    return prepared.producer


_ENDED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

_HANDLERS: Final[dict[type, Callable[[TransactionShard, int, Request], Result]]] = {
    AddPartitions: TransactionShard._add,
    EndTransaction: TransactionShard._end,
    MarkersWritten: TransactionShard._written,
    VerifyPartitions: TransactionShard._verify,
    InitProducer: TransactionShard._init,
    DescribeTransaction: TransactionShard._describe,
    ListTransactions: TransactionShard._list,
}
