from __future__ import annotations

import errno
from typing import Any

import pytest
from support.batches import batch, marker
from support.requests import AskedRequest
from unit.server.handlers.nodes import NOW_MS, Replicas

from pybroker.log.producer_entry import AppendOrigin
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import PartitionChangeRecord
from pybroker.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pybroker.protocol.records.control import ControlType
from pybroker.server.handlers.offsets import OffsetHandlers

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
NOTHING = (0, -1, -1, -1)


def produce(replicas: Replicas, *offsets_ms: int, topic: str = "orders", **options: Any) -> None:
    """One batch, with records that many milliseconds from now."""
    values = [b"v"] * len(offsets_ms)
    records = batch(values, timestamps=[NOW_MS + offset for offset in offsets_ms], **options)
    replicas.manager.append(replicas.partition(topic), records, -1)


def listed(
    replicas: Replicas,
    *rows: tuple[int, int, int],
    version: int = 11,
    topic: str = "orders",
    isolation: int = 0,
    replica: int = -1,
) -> dict[int, tuple[int, int, int, int]]:
    """By partition: error, offset, timestamp from now, epoch; of (partition, leader epoch, timestamp) each."""
    message = ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
                    for index, epoch, timestamp in rows
                ],
            )
        ],
    )
    request = AskedRequest(message, version)
    response = OffsetHandlers(replicas.manager).handle_list_offsets(request, request.message)  # type: ignore[arg-type]
    decoded: Any = type(response).decode(version, response.encode(version))
    return {
        row.partition_index: (
            row.error_code,
            row.offset,
            row.timestamp if row.timestamp < 0 else row.timestamp - NOW_MS,
            row.leader_epoch,
        )
        for found in decoded.topics
        for row in found.partitions
    }


def one(replicas: Replicas, timestamp: int, **options: Any) -> tuple[int, int, int, int]:
    return listed(replicas, (0, -1, timestamp), **options)[0]


# ListOffsets.


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends_of_a_log_in_every_version(replicas: Replicas, version: int) -> None:
    replicas.create("orders", leader_epoch=3)
    produce(replicas, 0, 1)
    epoch = 3 if version >= 4 else -1
    assert one(replicas, LATEST, version=version) == (0, 2, -1, epoch)
    assert one(replicas, EARLIEST, version=version) == (0, 0, -1, epoch)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING, 11), (-7, 99)]
)
def test_a_timestamp_with_a_meaning_that_the_version_does_not_know_is_refused(
    replicas: Replicas, timestamp: int, since: int
) -> None:
    replicas.create("orders")
    for version in range(1, 12):
        error = one(replicas, timestamp, version=version)[0]
        assert error == (ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION), version


def test_the_first_record_at_or_behind_a_time(replicas: Replicas) -> None:
    replicas.create("orders")
    produce(replicas, -500, -100, -300)
    produce(replicas, -90)
    found = {wanted: one(replicas, NOW_MS + wanted)[:3] for wanted in (-1000, -500, -499, -95, -90, -89)}
    assert found == {
        -1000: (0, 0, -500),
        -500: (0, 0, -500),
        -499: (0, 1, -100),
        -95: (0, 3, -90),
        -90: (0, 3, -90),
        -89: (0, -1, -1),
    }


def test_the_record_with_the_highest_timestamp(replicas: Replicas) -> None:
    replicas.create("orders")
    produce(replicas, -500, 7, -300)
    produce(replicas, 6)
    assert one(replicas, MAX_TIMESTAMP) == (0, 1, 7, 0)


def test_of_an_empty_log(replicas: Replicas) -> None:
    replicas.create("orders", leader_epoch=2)
    assert one(replicas, LATEST) == (0, 0, -1, 2)
    assert one(replicas, EARLIEST) == one(replicas, EARLIEST_LOCAL) == (0, 0, -1, 2)
    assert one(replicas, MAX_TIMESTAMP) == one(replicas, NOW_MS) == NOTHING


def test_nothing_is_tiered_here(replicas: Replicas) -> None:
    replicas.create("orders")
    produce(replicas, 0)
    assert one(replicas, LATEST_TIERED) == one(replicas, EARLIEST_PENDING) == NOTHING


def test_the_isolation_level_decides_where_the_log_ends_for_a_consumer(replicas: Replicas) -> None:
    replicas.create("orders")
    produce(replicas, 0)
    partition = replicas.partition("orders")
    partition.log.producers.verifies_transactions = False
    produce(replicas, 10, producer_id=5, producer_epoch=0, sequence=0, transactional=True)
    assert one(replicas, LATEST, isolation=1)[1] == 1
    assert one(replicas, LATEST, isolation=0)[1] == 2
    assert one(replicas, NOW_MS + 10, isolation=1) == NOTHING
    assert one(replicas, NOW_MS + 10, isolation=0)[1] == 1
    assert one(replicas, LATEST, isolation=1, replica=4)[1] == 2
    commit = marker(ControlType.COMMIT, 5, timestamp=NOW_MS)
    replicas.manager.append(partition, commit, -1, origin=AppendOrigin.COORDINATOR, transaction_version=0)
    assert one(replicas, LATEST, isolation=1)[1] == 3


def test_what_is_not_committed_is_for_replicas_only(replicas: Replicas) -> None:
    replicas.create("orders")
    produce(replicas, 0)
    log = replicas.partition("orders").log
    log.append_as_leader(batch([b"v"], timestamp=NOW_MS + 5), 0, NOW_MS)
    assert one(replicas, LATEST)[1] == 1
    assert one(replicas, NOW_MS + 5) == NOTHING
    assert one(replicas, MAX_TIMESTAMP) == NOTHING
    assert one(replicas, LATEST, replica=2)[1] == one(replicas, LATEST, replica=-2)[1] == 2


def test_a_leader_that_does_not_know_yet_what_is_committed_says_so(replicas: Replicas) -> None:
    replicas.create("orders")
    produce(replicas, 0)
    log = replicas.partition("orders").log
    log.append_as_leader(batch([b"v"], timestamp=NOW_MS + 5), 0, NOW_MS)
    log.leader_epochs.assign(1, 2)
    for timestamp in (LATEST, NOW_MS + 5, NOW_MS + 99):
        assert one(replicas, timestamp) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1, -1)
        assert one(replicas, timestamp, version=4)[0] == ErrorCode.LEADER_NOT_AVAILABLE
    assert one(replicas, NOW_MS)[:2] == one(replicas, EARLIEST)[:2] == (0, 0)
    assert one(replicas, LATEST, replica=3)[:2] == (0, 2)


def test_an_epoch_that_is_not_the_leaders_is_told_which_way_it_is_wrong(replicas: Replicas) -> None:
    replicas.create("orders", leader_epoch=5)
    for timestamp in (LATEST, EARLIEST, NOW_MS):
        assert listed(replicas, (0, 4, timestamp))[0] == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1, -1)
        assert listed(replicas, (0, 6, timestamp))[0] == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1, -1)
        assert listed(replicas, (0, 5, timestamp))[0][0] == ErrorCode.NONE


def test_only_the_leader_answers_unless_for_debugging(replicas: Replicas) -> None:
    replicas.create("orders", leader=2)
    assert one(replicas, LATEST)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert one(replicas, LATEST, replica=3)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert one(replicas, LATEST, replica=-2)[0] == ErrorCode.NONE


def test_partitions_that_are_not_there(replicas: Replicas) -> None:
    replicas.create("orders")
    assert listed(replicas, (7, -1, LATEST), (0, -1, LATEST)) == {
        7: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1),
        0: (0, 0, -1, 0),
    }
    assert one(replicas, LATEST, topic="nope")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one(replicas, -9, topic="nope")[0] == ErrorCode.UNSUPPORTED_VERSION


def test_a_partition_asked_for_twice_is_answered_once_with_an_error(replicas: Replicas) -> None:
    replicas.create("orders", 2)
    assert listed(replicas, (0, -1, LATEST), (1, -1, LATEST), (0, -1, EARLIEST)) == {
        0: (ErrorCode.INVALID_REQUEST, -1, -1, -1),
        1: (0, 0, -1, 0),
    }


def test_a_disk_that_fails_under_a_search(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas.create("orders")
    log = replicas.partition("orders").log

    def fail(timestamp: int) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(log, "offset_for_timestamp", fail)
    assert one(replicas, NOW_MS)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert replicas.logs.offline_dirs


def test_a_topic_without_partitions_is_not_in_the_answer(replicas: Replicas) -> None:
    replicas.create("orders")
    assert listed(replicas) == {}


# DeleteRecords.


def deleted(replicas: Replicas, *rows: tuple[int, int], topic: str = "orders", version: int = 2) -> dict[int, tuple[int, int]]:
    """By partition: error and low watermark; of (partition, offset) each."""
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in rows]
    message = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)
    request = AskedRequest(message, version)
    response = OffsetHandlers(replicas.manager).handle_delete_records(request, request.message)  # type: ignore[arg-type]
    decoded: Any = type(response).decode(version, response.encode(version))
    return {row.partition_index: (row.error_code, row.low_watermark) for found in decoded.topics for row in found.partitions}


@pytest.mark.parametrize("version", range(3))
def test_records_before_an_offset_are_deleted(replicas: Replicas, version: int) -> None:
    replicas.create("orders")
    produce(replicas, 0, 1, 2)
    assert deleted(replicas, (0, 2), version=version) == {0: (0, 2)}
    assert one(replicas, EARLIEST)[1] == 2
    assert deleted(replicas, (0, 1)) == {0: (0, 2)}


def test_everything_committed_can_be_deleted(replicas: Replicas) -> None:
    replicas.create("orders")
    produce(replicas, 0, 1, 2)
    replicas.partition("orders").log.append_as_leader(batch([b"v"], timestamp=NOW_MS), 0, NOW_MS)
    assert deleted(replicas, (0, -1)) == {0: (0, 3)}


@pytest.mark.parametrize("offset", [4, -2])
def test_only_what_is_there_can_be_deleted(replicas: Replicas, offset: int) -> None:
    replicas.create("orders")
    produce(replicas, 0, 1, 2)
    assert deleted(replicas, (0, offset)) == {0: (ErrorCode.OFFSET_OUT_OF_RANGE, -1)}
    assert one(replicas, EARLIEST)[1] == 0


def test_the_policy_must_allow_deletion(replicas: Replicas) -> None:
    replicas.create("orders", cleanup_policy=["compact"])
    assert deleted(replicas, (0, 0)) == {0: (ErrorCode.POLICY_VIOLATION, -1)}
    replicas.create("both", cleanup_policy=["compact", "delete"])
    assert deleted(replicas, (0, 0), topic="both") == {0: (0, 0)}


def test_records_of_internal_topics_are_not_for_clients_to_delete(replicas: Replicas) -> None:
    replicas.create("__consumer_offsets")
    assert deleted(replicas, (0, 0), topic="__consumer_offsets") == {0: (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)}


def test_records_are_deleted_by_the_leader(replicas: Replicas) -> None:
    replicas.create("orders", leader=2)
    assert deleted(replicas, (0, 0)) == {0: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}


def test_deletion_where_nothing_is(replicas: Replicas) -> None:
    replicas.create("orders")
    assert deleted(replicas, (3, 0)) == {3: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}
    assert deleted(replicas, (0, 0), topic="nope") == {0: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}
    assert deleted(replicas) == {}


def test_of_two_offsets_for_a_partition_the_last_counts(replicas: Replicas) -> None:
    replicas.create("orders")
    produce(replicas, 0, 1, 2)
    assert deleted(replicas, (0, 3), (0, 1)) == {0: (0, 1)}


def test_a_disk_that_fails_under_a_deletion(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas.create("orders")

    def fail(offset: int) -> bool:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(replicas.partition("orders").log, "advance_log_start_offset", fail)
    assert deleted(replicas, (0, 0)) == {0: (ErrorCode.KAFKA_STORAGE_ERROR, -1)}


# OffsetForLeaderEpoch.


def ends(
    replicas: Replicas, *rows: tuple[int, int, int], topic: str = "orders", version: int = 4
) -> list[tuple[int, int, int, int]]:
    """Error, partition, epoch and end; of (partition, current leader epoch, epoch) each."""
    partitions = [
        OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
        for index, current, epoch in rows
    ]
    message = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions)])
    request = AskedRequest(message, version)
    handlers = OffsetHandlers(replicas.manager)
    response = handlers.handle_offset_for_leader_epoch(request, request.message)  # type: ignore[arg-type]
    decoded: Any = type(response).decode(version, response.encode(version))
    (found,) = decoded.topics
    return [(row.error_code, row.partition, row.leader_epoch, row.end_offset) for row in found.partitions]


def new_epoch(replicas: Replicas, topic: str = "orders") -> None:
    """The leader stays, in the next epoch."""
    topic_id = replicas.image.topics[topic].topic_id
    replicas.apply(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))


@pytest.mark.parametrize("version", range(2, 5))
def test_where_an_epoch_ended(replicas: Replicas, version: int) -> None:
    replicas.create("orders")
    produce(replicas, 0, 1)
    new_epoch(replicas)
    new_epoch(replicas)
    produce(replicas, 2)
    assert ends(replicas, (0, 2, 0), (0, 2, 1), (0, 2, 2), version=version) == [(0, 0, 0, 2), (0, 0, 0, 2), (0, 0, 2, 3)]


def test_the_leaders_own_epoch_ends_with_the_log_though_nothing_was_written_in_it(replicas: Replicas) -> None:
    replicas.create("orders", leader_epoch=4)
    assert ends(replicas, (0, -1, 4)) == [(0, 0, 4, 0)]


def test_an_epoch_that_is_unknown_or_to_come_has_no_end(replicas: Replicas) -> None:
    replicas.create("orders")
    produce(replicas, 0)
    assert ends(replicas, (0, -1, 9), (0, -1, -1)) == [(0, 0, -1, -1), (0, 0, -1, -1)]


def test_the_clients_leader_epoch_is_checked_first(replicas: Replicas) -> None:
    replicas.create("orders", leader_epoch=3)
    assert ends(replicas, (0, 2, 0), (0, 4, 0)) == [
        (ErrorCode.FENCED_LEADER_EPOCH, 0, -1, -1),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 0, -1, -1),
    ]


def test_ends_of_epochs_where_no_leader_is(replicas: Replicas) -> None:
    replicas.create("orders", leader=2)
    assert ends(replicas, (0, -1, 0), (5, -1, 0)) == [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, -1, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 5, -1, -1),
    ]
    assert ends(replicas, (0, -1, 0), topic="nope") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, -1, -1)]
    assert ends(replicas) == []
