"""ListOffsets (2), DeleteRecords (21), OffsetForLeaderEpoch (23): offsets by time and by epoch, and a new start of the log.

On handler threads, since a search by time reads the disk. Each partition of a request has an answer of its own.
"""

from __future__ import annotations

from typing import Final

from pybroker.log.log import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    TimestampedOffset,
)
from pybroker.metadata.internal_topics import INTERNAL_TOPICS
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from pybroker.replication.delayed_delete_records import DelayedDeleteRecords, Undeleted
from pybroker.replication.partition import READ_COMMITTED, Partition
from pybroker.replication.replica_manager import ReplicaManager

CONSUMER_REPLICA_ID: Final = -1
DEBUGGING_REPLICA_ID: Final = -2

EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
# The first version of ListOffsets that knows each of the timestamps with a meaning of their own.
FIRST_VERSIONS: Final = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
LEADER_EPOCH_VERSION: Final = 4
OFFSET_NOT_AVAILABLE_VERSION: Final = 5

# In DeleteRecords: everything that is committed.
HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1


class OffsetHandlers:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    # ListOffsets.

    def handle_list_offsets(self, request: Request, message: ListOffsetsRequest) -> ListOffsetsResponse:
        found: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        for topic in message.topics:
            rows = found.setdefault(topic.name, {})
            for asked in topic.partitions:
                if asked.partition_index in rows:
                    answer = _offset_error(asked, ErrorCode.INVALID_REQUEST)
                else:
                    answer = self._list_offset(topic.name, asked, message, request.version)
                rows[asked.partition_index] = answer
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=name, partitions=list(rows.values())) for name, rows in found.items() if rows]
        )

    def _list_offset(
        self, topic: str, asked: ListOffsetsPartition, message: ListOffsetsRequest, version: int
    ) -> ListOffsetsPartitionResponse:
        timestamp = asked.timestamp
        # Negative ones without a meaning are no times either.
        if timestamp < 0 and version < FIRST_VERSIONS.get(timestamp, version + 1):
            return _offset_error(asked, ErrorCode.UNSUPPORTED_VERSION)
        partition = self._replicas.partition(topic, asked.partition_index)
        if isinstance(partition, ErrorCode):
            return _offset_error(asked, partition)
        refusal = partition.refusal(asked.current_leader_epoch)
        # A debugging client may look at any replica.
        if refusal and not (refusal is ErrorCode.NOT_LEADER_OR_FOLLOWER and message.replica_id == DEBUGGING_REPLICA_ID):
            return _offset_error(asked, refusal)
        try:
            found = self._offset_for(partition, timestamp, message.replica_id, message.isolation_level)
        except OSError as error:
            return _offset_error(asked, self._replicas.storage_error(partition, error, "a search by time").code)
        except KafkaError as error:
            is_new_to_client = error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_VERSION
            return _offset_error(asked, ErrorCode.LEADER_NOT_AVAILABLE if is_new_to_client else error.code)
        if found is None:
            return _offset_error(asked, ErrorCode.NONE)
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=ErrorCode.NONE,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch if version >= LEADER_EPOCH_VERSION else -1,
        )

    def _offset_for(
        self, partition: Partition, timestamp: int, replica_id: int, isolation_level: int
    ) -> TimestampedOffset | None:
        log = partition.log
        is_client = replica_id == CONSUMER_REPLICA_ID
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            earliest = log.offset_for_timestamp(timestamp)
            if earliest is not None and earliest.offset == log.log_end_offset and partition.is_leader:
                # The first record to come will be of the leader's epoch.
                return earliest._replace(leader_epoch=partition.leader_epoch)
            return earliest
        if not is_client:
            end_offset = log.log_end_offset
        elif isolation_level == READ_COMMITTED:
            end_offset = log.last_stable_offset
        else:
            end_offset = log.high_watermark
        latest_epoch = log.leader_epochs.latest
        # A new leader does not know yet how much of its log is committed, and must not tell less than the last one did.
        is_behind = is_client and latest_epoch is not None and latest_epoch.start_offset > log.high_watermark
        if timestamp == LATEST_TIMESTAMP and not is_behind:
            return TimestampedOffset(end_offset, -1, partition.leader_epoch)
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return None
        found = None if timestamp == LATEST_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is not None and found.offset < end_offset:
            return found
        if is_behind:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{partition.topic_partition}: the high watermark {log.high_watermark} has not reached the start of the "
                f"leader's epoch yet.",
            )
        return None

    # DeleteRecords.

    def handle_delete_records(self, request: Request, message: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
        """Answered when the followers that live have deleted, too, or when the time is up."""
        wanted: dict[str, dict[int, int]] = {}
        for topic in message.topics:
            wanted.setdefault(topic.name, {}).update({row.partition_index: row.offset for row in topic.partitions})
        waiting: list[Undeleted] = []
        response = DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=name, partitions=[self._delete_before(name, index, offset, waiting) for index, offset in rows.items()]
                )
                for name, rows in wanted.items()
                if rows
            ]
        )
        waiting = [one for one in waiting if not one.is_settled()]
        if not waiting:
            return response
        replicas = self._replicas
        delayed = DelayedDeleteRecords(waiting, lambda: request.respond(response))
        keys = [one.partition.topic_partition for one in waiting]
        replicas.deletes.watch(delayed, keys, replicas.monotonic_ms() + max(0, message.timeout_ms))
        return None

    def _delete_before(self, topic: str, index: int, offset: int, waiting: list[Undeleted]) -> DeleteRecordsPartitionResult:
        error_code, low_watermark = ErrorCode.NONE, NO_LOW_WATERMARK
        partition = self._replicas.partition(topic, index)
        if isinstance(partition, ErrorCode):
            error_code = partition
        elif topic in INTERNAL_TOPICS:
            error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif not partition.is_leader:
            error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not partition.log.config.is_deleted:
            error_code = ErrorCode.POLICY_VIOLATION
        else:
            log = partition.log
            try:
                if offset == HIGH_WATERMARK:
                    offset = log.high_watermark
                if offset < 0:
                    error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                else:
                    log.advance_log_start_offset(offset)
                    low_watermark = log.log_start_offset
            except KafkaError as error:
                error_code = error.code
            except OSError as error:
                error_code = self._replicas.storage_error(partition, error, "a deletion of records").code
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error_code)
        if isinstance(partition, Partition) and not error_code:
            waiting.append(Undeleted(partition, low_watermark, result))
        return result

    # OffsetForLeaderEpoch.

    def handle_offset_for_leader_epoch(
        self, request: Request, message: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=[self._end_of_epoch(topic.topic, asked) for asked in topic.partitions]
                )
                for topic in message.topics
            ]
        )

    def _end_of_epoch(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        partition = self._replicas.partition(topic, asked.partition)
        refusal = partition if isinstance(partition, ErrorCode) else partition.refusal(asked.current_leader_epoch)
        if refusal or isinstance(partition, ErrorCode):
            return EpochEndOffset(error_code=refusal, partition=asked.partition)
        epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
        return EpochEndOffset(error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def _offset_error(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    """An error; or, with NONE, that there is no such offset."""
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
