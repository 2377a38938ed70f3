"""Markers in partitions that are led here, alone or with followers, and what is said of those that are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.batches import batch
from unit.server.handlers.nodes import BROKER, NOW_MS, Replicas

from pybroker.coordinator.shard import Producer
from pybroker.metadata.internal_topics import OFFSETS_TOPIC
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import PartitionRecord
from pybroker.protocol.messages.transactions import WritableTxnMarker, WritableTxnMarkerResult, WritableTxnMarkerTopic
from pybroker.server.coordinators.groups import Pending
from pybroker.server.coordinators.marker_writer import MarkerWriter

PRODUCER = 5


class Groups:
    """The group coordinator, which answers when it is told to."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, Producer, int, bool, int]] = []
        self.waiting: list[Pending] = []

    def end_transaction(
        self, partition: int, producer: Producer, coordinator_epoch: int, pending: Pending, *, commits: bool, version: int
    ) -> None:
        self.ended.append((partition, producer, coordinator_epoch, commits, version))
        self.waiting.append(pending)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    made.create("t", 2)
    yield made
    made.close()


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
def writer(replicas: Replicas, groups: Groups) -> MarkerWriter:
    return MarkerWriter(replicas.manager, groups, lambda: 1000)  # type: ignore[arg-type]


def marker(*partitions: int, topic: str = "t", epoch: int = 1, commits: bool = True, **fields: Any) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=fields.pop("producer_id", PRODUCER),
        producer_epoch=epoch,
        transaction_result=commits,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=fields.pop("coordinator_epoch", 3),
        transaction_version=fields.pop("transaction_version", 2),
    )


def written(writer: MarkerWriter, *markers: WritableTxnMarker) -> list[list[WritableTxnMarkerResult]]:
    out: list[list[WritableTxnMarkerResult]] = []
    writer.write(markers, out.append)
    return out


def codes(results: list[WritableTxnMarkerResult]) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (one.producer_id, topic.name, row.partition_index): ErrorCode(row.error_code)
        for one in results
        for topic in one.topics
        for row in topic.partitions
    }


def begin(replicas: Replicas, partition: int = 0, topic: str = "t") -> None:
    one = replicas.partition(topic, partition)
    guard = one.start_verification(PRODUCER, 0, 0, NOW_MS, supports_epoch_bump=True)
    sent = batch([b"x"], producer_id=PRODUCER, producer_epoch=0, sequence=0, transactional=True)
    one.append(sent, 1, NOW_MS, verification_guard=guard)


def test_a_marker_ends_the_transaction_in_each_partition(replicas: Replicas, writer: MarkerWriter) -> None:
    begin(replicas, 0)
    begin(replicas, 1)
    assert replicas.partition("t").log.last_stable_offset == 0
    (results,) = written(writer, marker(0, 1))
    assert set(codes(results).values()) == {ErrorCode.NONE}
    for index in (0, 1):
        log = replicas.partition("t", index).log
        assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
        entry = log.producers.entry(PRODUCER)
        assert entry is not None
        assert (entry.epoch, entry.coordinator_epoch, entry.has_transaction) == (1, 3, False)


def test_each_partition_has_a_verdict_of_its_own(replicas: Replicas, writer: MarkerWriter) -> None:
    replicas.create("led elsewhere", leader=2)
    (results,) = written(
        writer,
        marker(0, 7),
        marker(0, topic="nobody", producer_id=6),
        marker(0, topic="led elsewhere", producer_id=6),
    )
    assert codes(results) == {
        (PRODUCER, "t", 0): ErrorCode.NONE,
        (PRODUCER, "t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (6, "nobody", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (6, "led elsewhere", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    assert [one.producer_id for one in results] == [PRODUCER, 6]


def test_a_marker_of_a_version_that_there_is_not_costs_its_own_verdict_only(replicas: Replicas, writer: MarkerWriter) -> None:
    begin(replicas, 0)
    (results,) = written(writer, marker(0), marker(1, producer_id=8, transaction_version=-1))
    assert codes(results) == {(PRODUCER, "t", 0): ErrorCode.NONE, (8, "t", 1): ErrorCode.UNKNOWN_SERVER_ERROR}


def test_no_markers_are_no_work(writer: MarkerWriter) -> None:
    assert written(writer) == [[]]


def test_a_late_marker_of_an_earlier_transaction_is_refused(replicas: Replicas, writer: MarkerWriter) -> None:
    begin(replicas)
    (results,) = written(writer, marker(0, epoch=0))
    assert codes(results)[PRODUCER, "t", 0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert replicas.partition("t").log.last_stable_offset == 0


def test_an_earlier_coordinator_is_fenced(writer: MarkerWriter) -> None:
    written(writer, marker(0, coordinator_epoch=5))
    (results,) = written(writer, marker(0, epoch=2, coordinator_epoch=4))
    assert codes(results)[PRODUCER, "t", 0] is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.fixture
def followed(replicas: Replicas) -> Replicas:
    """A partition with a follower in sync, which has nothing yet."""
    topic_id = replicas.create("f")
    state = replicas.image.topics["f"].partitions[0]
    replicas.apply(
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[BROKER, 2],
            isr=[BROKER, 2],
            removing_replicas=[],
            adding_replicas=[],
            leader=BROKER,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch + 1,
        )
    )
    return replicas


def test_a_marker_counts_when_the_replicas_in_sync_have_it(followed: Replicas, writer: MarkerWriter) -> None:
    waiting = written(writer, marker(0, topic="f"))
    assert waiting == []
    manager, partition = followed.manager, followed.partition("f")
    manager.follower_fetched(partition, partition.leader_epoch, 2, -1, 0, 0)
    assert waiting == []
    manager.follower_fetched(partition, partition.leader_epoch, 2, -1, 1, 0)
    assert [list(codes(one).values()) for one in waiting] == [[ErrorCode.NONE]]


def test_a_follower_that_does_not_come_is_not_waited_for_forever(followed: Replicas, writer: MarkerWriter) -> None:
    waiting = written(writer, marker(0, topic="f"))
    deadline_ms = followed.manager.monotonic_ms() + 2000
    for entry in followed.timer.take_due(deadline_ms):
        entry.run()
    assert [list(codes(one).values()) for one in waiting] == [[ErrorCode.REQUEST_TIMED_OUT]]


def test_offsets_of_groups_are_their_coordinators_business(replicas: Replicas, writer: MarkerWriter, groups: Groups) -> None:
    replicas.create(OFFSETS_TOPIC, 2)
    waiting = written(writer, marker(0, 1, topic=OFFSETS_TOPIC, commits=False))
    assert groups.ended == [(index, Producer(PRODUCER, 1), 3, False, 2) for index in (0, 1)]
    groups.waiting[0].done(None)
    assert waiting == []
    groups.waiting[1].refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    # Which is nothing that a transaction coordinator would expect of a partition.
    assert list(codes(waiting[0]).values()) == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
