"""AddPartitionsToTxn v0-5, AddOffsetsToTxn v0-4, EndTxn v0-5, WriteTxnMarkers v1-2, DescribeTransactions v0,
ListTransactions v0-2: transactions, from their producers, from other brokers and from outside.

Any thread; nothing here waits. What is decided is decided by the shard of the transactional id; markers are written here for
whoever coordinates the transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pybroker.coordinator.shard import Producer
from pybroker.coordinator.transaction.requests import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    ListTransactions,
    VerifyPartitions,
)
from pybroker.coordinator.transaction.transaction import EPOCH_BUMP, State, TopicPartition, Transaction
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
    TopicData,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pybroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from pybroker.server.coordinators.gathering import gather
from pybroker.server.coordinators.groups import GroupCoordinator, Pending
from pybroker.server.coordinators.marker_writer import MarkerWriter
from pybroker.server.coordinators.transactions import TransactionCoordinator

# The first versions with these.
ADD_IN_BATCHES: Final = 4  # from other brokers
END_BUMPS_EPOCH: Final = 5
FENCED: Final = 2  # before, clients know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH

Codes = dict[TopicPartition, ErrorCode]


class TransactionHandlers:
    def __init__(
        self,
        coordinator: TransactionCoordinator,
        groups: GroupCoordinator,
        markers: MarkerWriter,
        create_topics: Callable[[Iterable[str]], None],
        now_ms: Callable[[], int],
    ) -> None:
        """`create_topics` is AutoTopics.ask_for."""
        self._coordinator = coordinator
        self._groups = groups
        self._markers = markers
        self._create_topics = create_topics
        self._now_ms = now_ms

    # AddPartitionsToTxn.

    def handle_add_partitions_to_txn(self, request: Request, message: AddPartitionsToTxnRequest) -> None:
        version = request.version
        transactions = message.transactions
        if version < ADD_IN_BATCHES:
            transactions = [
                AddPartitionsToTxnTransaction(
                    transactional_id=message.v3_and_below_transactional_id,
                    producer_id=message.v3_and_below_producer_id,
                    producer_epoch=message.v3_and_below_producer_epoch,
                    topics=message.v3_and_below_topics,
                )
            ]

        def answer(rows: list[AddPartitionsToTxnResult], _: ErrorCode) -> None:
            if version >= ADD_IN_BATCHES:
                request.respond(AddPartitionsToTxnResponse(results_by_transaction=rows))
            else:
                request.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows[0].topic_results))

        def part(transaction: AddPartitionsToTxnTransaction, pending: Pending) -> None:
            self._add(transaction, version, lambda codes: pending.done(_added(transaction, codes)))

        gather(transactions, part, lambda row: [row], lambda _: False, answer)

    def _add(self, transaction: AddPartitionsToTxnTransaction, version: int, done: Callable[[Codes], None]) -> None:
        transactional_id = transaction.transactional_id
        partitions = frozenset((topic.name, index) for topic in transaction.topics for index in topic.partitions)
        unknown = self._coordinator.unknown(partitions)

        def all_are(code: ErrorCode) -> None:
            done(dict.fromkeys(partitions, _for_old(code, version)))

        if unknown:
            # None is added, then.
            others = ErrorCode.OPERATION_NOT_ATTEMPTED
            done({one: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if one in unknown else others for one in partitions})
            return
        if not transactional_id:
            all_are(ErrorCode.INVALID_REQUEST)
            return
        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        submit = self._coordinator.submit
        if not transaction.verify_only:
            # Only the write itself, which makes a broker ask, tells of a producer of the new kind.
            client_version = EPOCH_BUMP if version >= ADD_IN_BATCHES else 0
            wanted = AddPartitions(transactional_id, producer, partitions, client_version)
            submit(transactional_id, wanted, Pending(lambda _: all_are(ErrorCode.NONE), all_are))
            return

        def verified(inside: frozenset[TopicPartition]) -> None:
            done({one: ErrorCode.NONE if one in inside else ErrorCode.TRANSACTION_ABORTABLE for one in partitions})

        submit(transactional_id, VerifyPartitions(transactional_id, producer, partitions), Pending(verified, all_are))

    # AddOffsetsToTxn.

    def handle_add_offsets_to_txn(self, request: Request, message: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | None:
        if not message.transactional_id:
            return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)

        def answer(code: ErrorCode) -> None:
            request.respond(AddOffsetsToTxnResponse(error_code=_for_old(code, request.version)))

        partition = (OFFSETS_TOPIC, self._groups.partition_of(message.group_id))
        if self._coordinator.unknown((partition,)):
            # Without the topic it is not even known which partition is meant. This makes the client ask again.
            self._create_topics((OFFSETS_TOPIC,))
            return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        producer = Producer(message.producer_id, message.producer_epoch)
        wanted = AddPartitions(message.transactional_id, producer, frozenset((partition,)), 0)
        self._coordinator.submit(message.transactional_id, wanted, Pending(lambda _: answer(ErrorCode.NONE), answer))
        return None

    # EndTxn.

    def handle_end_txn(self, request: Request, message: EndTxnRequest) -> EndTxnResponse | None:
        version = request.version
        if not message.transactional_id:
            return _not_ended(ErrorCode.INVALID_REQUEST)

        def ended(producer: Producer) -> None:
            producer_id, epoch = producer
            request.respond(EndTxnResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch))

        def refused(code: ErrorCode) -> None:
            request.respond(_not_ended(_for_old(code, version)))

        wanted = EndTransaction(
            message.transactional_id,
            Producer(message.producer_id, message.producer_epoch),
            message.committed,
            EPOCH_BUMP if version >= END_BUMPS_EPOCH else 0,
        )
        self._coordinator.submit_with_id(wanted, Pending(ended, refused))
        return None

    # WriteTxnMarkers.

    def handle_write_txn_markers(self, request: Request, message: WriteTxnMarkersRequest) -> None:
        self._markers.write(message.markers, lambda results: request.respond(WriteTxnMarkersResponse(markers=results)))

    # DescribeTransactions, ListTransactions.

    def handle_describe_transactions(self, request: Request, message: DescribeTransactionsRequest) -> None:
        def answer(rows: list[DescribeTransactionsResponseTransactionState], _: ErrorCode) -> None:
            order = {transactional_id: place for place, transactional_id in enumerate(message.transactional_ids)}
            rows.sort(key=lambda row: order[row.transactional_id])
            request.respond(DescribeTransactionsResponse(transaction_states=rows))

        def part(transactional_id: str, pending: Pending) -> None:
            def described(transaction: Transaction | None) -> None:
                if transaction is None:
                    refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
                else:
                    pending.done(_described(transaction))

            def refused(code: ErrorCode) -> None:
                pending.done(_not_described(transactional_id, code))

            if transactional_id:
                self._coordinator.submit(transactional_id, DescribeTransaction(transactional_id), Pending(described, refused))
            else:
                refused(ErrorCode.INVALID_REQUEST)

        gather(message.transactional_ids, part, lambda row: [row], lambda _: False, answer)

    def handle_list_transactions(self, request: Request, message: ListTransactionsRequest) -> ListTransactionsResponse | None:
        try:
            pattern = re.compile(message.transactional_id_pattern) if message.transactional_id_pattern else None
        except re.error:
            return ListTransactionsResponse(
                error_code=ErrorCode.INVALID_REGULAR_EXPRESSION, unknown_state_filters=[], transaction_states=[]
            )
        states = {state.label: state for state in State}
        wanted = {states[name] for name in message.state_filters if name in states}
        now_ms = self._now_ms()

        def is_wanted(transaction: Transaction) -> bool:
            duration_ms = now_ms - transaction.started_ms
            return (
                (not message.producer_id_filters or transaction.producer_id in message.producer_id_filters)
                and (not message.state_filters or transaction.state in wanted)
                and (message.duration_filter < 0 or duration_ms > message.duration_filter)
                and (pattern is None or pattern.fullmatch(transaction.transactional_id) is not None)
            )

        def answer(found: list[Transaction], code: ErrorCode) -> None:
            rows = [
                ListTransactionsResponseTransactionState(
                    transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state.label
                )
                for one in found
                if not code and is_wanted(one)
            ]
            unknown = [] if code else [name for name in message.state_filters if name not in states]
            request.respond(ListTransactionsResponse(error_code=code, unknown_state_filters=unknown, transaction_states=rows))

        def part(partition: int, pending: Pending) -> None:
            self._coordinator.submit_to(partition, ListTransactions(), pending)

        # A shard that has just moved away lists its transactions elsewhere.
        gather(self._coordinator.partitions, part, list, lambda code: code is not ErrorCode.NOT_COORDINATOR, answer)
        return None


def _for_old(code: ErrorCode, version: int) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED and version < FENCED else code


def _added(transaction: AddPartitionsToTxnTransaction, codes: Codes) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[_added_topic(topic, codes) for topic in transaction.topics],
    )


def _added_topic(topic: AddPartitionsToTxnTopic, codes: Codes) -> AddPartitionsToTxnTopicResult:
    rows = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
        for index in topic.partitions
    ]
    return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows)


def _not_ended(code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def _described(transaction: Transaction) -> DescribeTransactionsResponseTransactionState:
    return DescribeTransactionsResponseTransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=_topics(sorted(transaction.partitions)),
    )


def _topics(partitions: Sequence[TopicPartition]) -> list[TopicData]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()]


def _not_described(transactional_id: str, code: ErrorCode) -> DescribeTransactionsResponseTransactionState:
    return DescribeTransactionsResponseTransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
