from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.server.handlers.nodes import Replicas

from pybroker.base.ids import Uuid
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import PartitionChangeRecord, PartitionRecord, TopicRecord
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.server.coordinators.log_writer import LogWriter

TOPIC = "__consumer_offsets"


@pytest.fixture
def replicas(tmp_path: Path) -> Any:
    replicas = Replicas(tmp_path)
    yield replicas
    replicas.close()


def batch(count: int = 1) -> bytearray:
    builder = BatchBuilder(base_sequence=0)
    for number in range(count):
        builder.append(1, b"key %d" % number, b"value")
    return builder.build()


class Written:
    def __init__(self, replicas: Replicas) -> None:
        self.told: list[int] = []
        self.writer = LogWriter(TOPIC, replicas.manager, self.told.append)


def test_what_nobody_else_has_to_have_is_committed_at_once(replicas: Replicas) -> None:
    replicas.create(TOPIC, 2, cleanup_policy="compact")
    writer = Written(replicas).writer
    assert writer.append(1, 0, batch(3)) == 0
    assert writer.append(1, 0, batch()) == 3
    assert (writer.high_watermark(1, 0), writer.high_watermark(0, 0)) == (4, 0)


def test_an_append_in_another_epoch_than_the_coordinators_is_refused(replicas: Replicas) -> None:
    replicas.create(TOPIC, leader_epoch=5)
    writer = Written(replicas).writer
    with pytest.raises(KafkaError) as refused:
        writer.append(0, 4, batch())
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert writer.append(0, 5, batch()) == 0


def test_why_an_append_would_be_refused_is_known_beforehand(replicas: Replicas) -> None:
    writer = Written(replicas).writer
    assert writer.refusal(0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as refused:
        writer.append(0, 0, batch())
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    replicas.create(TOPIC, leader=2)
    assert writer.refusal(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_first_append_in_an_epoch_takes_longer(replicas: Replicas) -> None:
    replicas.create(TOPIC, max_message_bytes=5000)
    writer = Written(replicas).writer
    assert writer.max_batch_bytes(0) == 5000
    assert not writer.is_quick(0)
    writer.append(0, 0, batch())
    assert writer.is_quick(0)
    assert writer.is_quick(77)  # it is refused at once


def test_a_batch_is_no_larger_than_a_segment(replicas: Replicas) -> None:
    """It would be refused, and the shard loaded again, for ever: what was due is due again. Found by seed 34 of groups."""
    replicas.create(TOPIC, segment_bytes=1_048_576, max_message_bytes=2_000_000)
    assert Written(replicas).writer.max_batch_bytes(0) == 1_048_576


def with_follower(replicas: Replicas, min_isr: int = 1, isr: tuple[int, ...] = (1, 2)) -> None:
    replicas.configs[TOPIC] = {"min.insync.replicas": min_isr}
    topic_id = Uuid(b"o" * 16)
    partition = PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=list(isr),
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )
    replicas.apply(TopicRecord(name=TOPIC, topic_id=topic_id), partition)


def test_of_what_a_follower_has_to_have_it_is_told_when_the_high_watermark_moves(replicas: Replicas) -> None:
    with_follower(replicas)
    written = Written(replicas)
    written.writer.watch(0)
    written.told.clear()
    written.writer.append(0, 0, batch(2))
    assert (written.writer.high_watermark(0, 0), written.told) == (0, [])
    replicas.manager.follower_fetched(replicas.partition(TOPIC), 0, 2, -1, 2, 0)
    assert written.writer.high_watermark(0, 0) == 2
    assert written.told
    assert set(written.told) == {0}
    written.writer.unwatch(0)
    written.told.clear()
    written.writer.append(0, 0, batch())
    replicas.manager.follower_fetched(replicas.partition(TOPIC), 0, 2, -1, 3, 0)
    assert written.told == []


def test_a_follower_has_a_high_watermark_which_is_not_the_coordinators(replicas: Replicas) -> None:
    with_follower(replicas)
    writer = Written(replicas).writer
    writer.append(0, 0, batch(2))
    replicas.manager.follower_fetched(replicas.partition(TOPIC), 0, 2, -1, 2, 0)
    change = {"topic_id": Uuid(b"o" * 16), "partition_id": 0, "isr": None, "replicas": None}
    replicas.apply(PartitionChangeRecord(**change, leader=2))
    assert replicas.partition(TOPIC).log.high_watermark == 2
    assert writer.high_watermark(0, 0) == writer.high_watermark(0, 1) == -1
    replicas.apply(PartitionChangeRecord(**change, leader=1))
    # That of the epoch that it was loaded in, even if this broker leads again.
    assert (writer.high_watermark(0, 0), writer.high_watermark(0, 2)) == (-1, 2)


def test_with_too_few_in_sync_nothing_is_written(replicas: Replicas) -> None:
    with_follower(replicas, min_isr=2, isr=(1,))
    writer = Written(replicas).writer
    assert writer.refusal(0) is ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError) as refused:
        writer.append(0, 0, batch())
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
