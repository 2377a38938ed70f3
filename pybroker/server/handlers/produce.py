"""Produce (0): batches to the partitions that this broker leads.

Every partition of a request is judged on its own. acks=0 has no answer: an error closes the connection, which is how such a
client learns that something is wrong. acks=all waits in the purgatory until the replicas in sync have it. A batch is appended
from the bytes that came in, without a copy.
"""

from __future__ import annotations

from typing import Final

from pybroker.base.filesystem import Buffer
from pybroker.log.log import NOT_PLAIN
from pybroker.log.producer_entry import NO_GUARD
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode, KafkaError, MalformedRecordsError
from pybroker.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pybroker.protocol.records.batch import MAGIC, TRANSACTIONAL_BIT
from pybroker.protocol.records.compression import Codec
from pybroker.replication.delayed_produce import DelayedProduce, Uncommitted
from pybroker.replication.partition import ALL_IN_SYNC, Partition
from pybroker.replication.replica_manager import HostedTopic, ReplicaManager
from pybroker.server.dispatch import WOULD_BLOCK, Answer
from pybroker.server.handlers.plain_produce import PlainProduce
from pybroker.server.handlers.transactional_produce import NO_GUARDS, Guards, TransactionalProduce, has_many_producers

TOPIC_IDS_FROM: Final = 13
TELLS_LEADER_FROM: Final = 10  # KIP-951
ZSTD_FROM: Final = 7
ACKS: Final = (-1, 0, 1)
MAGIC_AT: Final = 16
ATTRIBUTES_END: Final = 23
CODEC_BITS: Final = 0x07
MAX_QUICK_COMPRESSED_BYTES: Final = 64 * 1024  # what a network thread decompresses; more goes to a handler thread

# Refusals that come before the log is looked at, or that tell nothing of it.
NO_START_IN_ANSWER: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)

_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_UNKNOWN_ID: Final = ErrorCode.UNKNOWN_TOPIC_ID


class ProduceHandlers:
    def __init__(self, replicas: ReplicaManager, transactional: TransactionalProduce) -> None:
        self._replicas = replicas
        self._transactional = transactional
        self.plain = PlainProduce(replicas)

    def handle_produce(self, request: Request, message: ProduceRequest) -> Answer:
        version = request.version
        by_id = version >= TOPIC_IDS_FROM
        if not request.may_block and not self._is_quick(message, by_id):
            return WOULD_BLOCK
        refusal = _refusal_of_all(message)
        if message.transactional_id is None or refusal is not None:
            return self._append_all(request, message, refusal, NO_GUARDS)

        def verified(guards: Guards) -> None:
            # It was kept waiting, until its frame is another one's.
            answer = self._append_all(request, message, None, guards, learns=False)
            if answer is not None:
                request.respond(answer)

        guards = self._transactional.verify(message, version, verified)
        return None if guards is None else self._append_all(request, message, None, guards)

    def _append_all(
        self, request: Request, message: ProduceRequest, refusal: ErrorCode | None, guards: Guards, *, learns: bool = True
    ) -> ProduceResponse | None:
        version, acks, replicas = request.version, message.acks, self._replicas
        by_id = version >= TOPIC_IDS_FROM
        appended: list[Partition] = []
        uncommitted: list[Uncommitted] = []
        topics = []
        for topic in message.topic_data:
            hosted = replicas.topics_by_id.get(topic.topic_id) if by_id else replicas.topics.get(topic.name)
            if hosted is not None and refusal is None:
                results = [
                    self._append(hosted, data, acks, version, guards, appended, uncommitted) for data in topic.partition_data
                ]
            else:
                code = refusal or (_UNKNOWN_ID if by_id else _UNKNOWN)
                results = [_refused(data.index, code, None) for data in topic.partition_data]
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
        for partition in appended:
            replicas.wake(partition)
        if acks == 0:
            _answer_nothing(request, topics)
            return None
        response = ProduceResponse(responses=topics)
        if learns and 1 == len(appended) == len(topics) == len(message.topic_data[0].partition_data):
            self.plain.learn(request, message, appended[0])
        waiting = [one for one in uncommitted if not one.is_settled()]
        if waiting:
            self._wait(request, message, response, waiting)
            return None
        return response

    def _wait(self, request: Request, message: ProduceRequest, response: ProduceResponse, waiting: list[Uncommitted]) -> None:
        replicas = self._replicas
        delayed = DelayedProduce(waiting, lambda: request.respond(response))
        keys = [one.partition.topic_partition for one in waiting]
        replicas.produces.watch(delayed, keys, replicas.monotonic_ms() + max(0, message.timeout_ms))

    def _is_quick(self, message: ProduceRequest, by_id: bool) -> bool:
        """Whether all appends of the request are a short check and a write."""
        replicas = self._replicas
        for topic in message.topic_data:
            hosted = replicas.topics_by_id.get(topic.topic_id) if by_id else replicas.topics.get(topic.name)
            if hosted is not None:
                for data in topic.partition_data:
                    partition = hosted.partitions.get(data.index)
                    if partition is not None and not (partition.appends_at_once() and _is_read_fast(data.records)):
                        return False
        return True

    def _append(
        self,
        hosted: HostedTopic,
        data: PartitionProduceData,
        acks: int,
        version: int,
        guards: Guards,
        appended: list[Partition],
        uncommitted: list[Uncommitted],
    ) -> PartitionProduceResponse:
        index = data.index
        partition = hosted.partitions.get(index)
        if partition is None:
            return _refused(index, hosted.error_of(index), None)
        # Before anything of it is written, however plain: its coordinator has refused it.
        guard = guards.get((hosted.name, index), NO_GUARD)
        if isinstance(guard, KafkaError):
            return _refused(index, guard.code, guard.message or None)
        records = data.records or b""
        # One that names no transactional id was refused before.
        is_transactional = bool(_attributes(records) & TRANSACTIONAL_BIT)
        offset = partition.append_plain(memoryview(records), acks, self._replicas.now_ms(), is_transactional=is_transactional)
        if offset != NOT_PLAIN:
            appended.append(partition)
            start = partition.log.log_start_offset
            return PartitionProduceResponse(index=index, error_code=0, base_offset=offset, log_start_offset=start)
        leadership = partition.leadership
        try:
            if version < ZSTD_FROM:
                _check_codec(records, version)
            result = self._replicas.append(partition, records, acks, verification_guard=guard)
        except KafkaError as error:
            return _refusal(index, partition, error, version)
        if not result.is_duplicate:
            appended.append(partition)
        response = PartitionProduceResponse(
            index=index,
            error_code=0,
            base_offset=result.first_offset,
            log_append_time_ms=result.log_append_time,
            log_start_offset=result.log_start_offset,
        )
        if acks == ALL_IN_SYNC:
            uncommitted.append(Uncommitted(partition, leadership, result.last_offset + 1, response))
        return response


def _answer_nothing(request: Request, responses: list[TopicProduceResponse]) -> None:
    for topic in responses:
        for one in topic.partition_responses:
            if one.error_code:
                request.close_connection(
                    f"a produce with acks=0 to {topic.name}-{one.index} failed with {ErrorCode(one.error_code).name}"
                )
                return
    request.respond_nothing()


def _refusal_of_all(message: ProduceRequest) -> ErrorCode | None:
    """What is wrong with the request as a whole."""
    if message.acks not in ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if message.transactional_id is None:
        for topic in message.topic_data:
            for data in topic.partition_data:
                if data.records is not None and _attributes(data.records) & TRANSACTIONAL_BIT:
                    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif has_many_producers(message):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None


def _is_read_fast(records: Buffer | None) -> bool:
    """Whether nothing is to be decompressed for the check, or little."""
    return records is None or len(records) <= MAX_QUICK_COMPRESSED_BYTES or not _attributes(records) & CODEC_BITS


def _attributes(records: Buffer) -> int:
    """The low byte of the first batch's attributes; what is no batch is found out later."""
    return records[ATTRIBUTES_END - 1] if len(records) >= ATTRIBUTES_END and records[MAGIC_AT] == MAGIC else 0


def _check_codec(records: Buffer, version: int) -> None:
    """What a version before zstd says of the codec, even before it looks at the batch."""
    codec = _attributes(records) & CODEC_BITS
    if codec == Codec.ZSTD:
        raise MalformedRecordsError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} knows no zstd; v{ZSTD_FROM} does."
        )
    if codec > Codec.ZSTD:
        raise MalformedRecordsError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Produce v{version} knows no codec {codec}.")


def _refusal(index: int, partition: Partition, error: KafkaError, version: int) -> PartitionProduceResponse:
    response = _refused(index, error.code, error.message)
    response.record_errors = [
        BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=error.message) for number in error.records
    ]
    if error.code not in NO_START_IN_ANSWER and not isinstance(error, MalformedRecordsError):
        response.log_start_offset = partition.log.log_start_offset
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= TELLS_LEADER_FROM:
        state = partition.state
        response.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
    return response


def _refused(index: int, code: ErrorCode, message: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)
