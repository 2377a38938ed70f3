"""InitProducerId (22) and DescribeProducers (61): ids for producers, and which producers a partition knows.

An id for a merely idempotent producer costs nothing but a look at the current block; only when that is used up does the answer
wait for the controller. Of a transactional id its coordinator decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pybroker.coordinator.shard import Producer
from pybroker.coordinator.transaction.requests import InitProducer
from pybroker.metadata.controller.topic_names import problem_with_name
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode, clipped
from pybroker.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from pybroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.coordinators.groups import Pending
from pybroker.server.producer_ids import ProducerIds

FIRST_EPOCH: Final = 0
FENCED_VERSION: Final = 4  # before, clients know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH


# The transaction coordinator's.
Init = Callable[[InitProducer, Pending], None]


class ProducerHandlers:
    def __init__(
        self, replicas: ReplicaManager, producer_ids: ProducerIds, init: Init, max_transaction_timeout_ms: Callable[[], int]
    ) -> None:
        """`max_transaction_timeout_ms` is transaction.max.timeout.ms."""
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._init = init
        self._max_transaction_timeout_ms = max_transaction_timeout_ms

    # InitProducerId.

    def handle_init_producer_id(self, request: Request, message: InitProducerIdRequest) -> InitProducerIdResponse | None:
        error_code = self._refusal(message)
        if error_code:
            return _init_error(error_code)
        if message.transactional_id is not None:
            self._init_transactional(request, message, message.transactional_id)
            return None

        def done(producer_id: int | None) -> None:
            if producer_id is None:
                # As Kafka says it: old clients take other words for it for fatal.
                request.respond(_init_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            else:
                request.respond(
                    InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=FIRST_EPOCH)
                )

        # Without a transactional id there is nothing to fence: whatever id and epoch the producer had, it gets a new id.
        self._producer_ids.take(done)
        return None

    def _init_transactional(self, request: Request, message: InitProducerIdRequest, transactional_id: str) -> None:
        def done(producer: Producer) -> None:
            request.respond(
                InitProducerIdResponse(
                    error_code=ErrorCode.NONE, producer_id=producer.producer_id, producer_epoch=producer.epoch
                )
            )

        def refused(code: ErrorCode) -> None:
            is_old = code is ErrorCode.PRODUCER_FENCED and request.version < FENCED_VERSION
            request.respond(_init_error(ErrorCode.INVALID_PRODUCER_EPOCH if is_old else code))

        is_new = message.producer_id == NO_PRODUCER_ID
        expected = None if is_new else Producer(message.producer_id, message.producer_epoch)
        wanted = InitProducer(transactional_id, message.transaction_timeout_ms, expected)
        self._init(wanted, Pending(done, refused))

    def _refusal(self, message: InitProducerIdRequest) -> ErrorCode:
        if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_PRODUCER_EPOCH):
            return ErrorCode.INVALID_REQUEST
        if message.transactional_id is None:
            return ErrorCode.NONE
        if not message.transactional_id:
            return ErrorCode.INVALID_REQUEST
        is_allowed = 0 < message.transaction_timeout_ms <= self._max_transaction_timeout_ms()
        return ErrorCode.NONE if is_allowed else ErrorCode.INVALID_TRANSACTION_TIMEOUT

    # DescribeProducers.

    def handle_describe_producers(self, request: Request, message: DescribeProducersRequest) -> DescribeProducersResponse:
        topics = []
        for topic in message.topics:
            code, problem = self._topic_problem(topic.name)
            rows = [
                _producers_error(index, code, problem) if code else self._producers_of(topic.name, index)
                for index in topic.partition_indexes
            ]
            topics.append(TopicResponse(name=topic.name, partitions=rows))
        return DescribeProducersResponse(topics=topics)

    def _topic_problem(self, name: str) -> tuple[ErrorCode, str | None]:
        problem = problem_with_name(name)
        if problem is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, clipped(problem)
        if name not in self._replicas.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}."
        return ErrorCode.NONE, None

    def _producers_of(self, topic: str, index: int) -> PartitionResponse:
        partition = self._replicas.partition(topic, index)
        if isinstance(partition, ErrorCode):
            return _producers_error(index, partition)
        log = partition.log
        with log.lock:
            active = log.producers.active_producers()
        return PartitionResponse(
            partition_index=index,
            error_code=ErrorCode.NONE,
            active_producers=[
                ProducerState(
                    producer_id=one.producer_id,
                    producer_epoch=one.epoch,
                    last_sequence=one.last_sequence,
                    last_timestamp=one.last_timestamp,
                    coordinator_epoch=one.coordinator_epoch,
                    current_txn_start_offset=one.current_txn_first_offset,
                )
                for one in active
            ],
        )


def _init_error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def _producers_error(index: int, code: ErrorCode, message: str | None = None) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, error_message=message, active_producers=[])
