"""A replica in its roles: what a leader takes and gives, what others are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.batches import batch
from unit.log.logs import PARTITION, opened

from pybroker.base.ids import Uuid
from pybroker.log.producer_entry import AppendOrigin
from pybroker.metadata.image import PartitionState
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.fetch import EpochEndOffset, PartitionData
from pybroker.protocol.records.batch import iter_batches
from pybroker.protocol.records.control import ControlType, end_transaction_marker
from pybroker.replication.partition import Partition

HERE = 1
TOPIC_ID = Uuid(b"orders-topic-id-")
NOW_MS = 10_000
MIB = 1 << 20


def state(leader: int = HERE, epoch: int = 0, isr: tuple[int, ...] = (HERE,)) -> PartitionState:
    return PartitionState(replicas=isr, isr=isr, leader=leader, leader_epoch=epoch, directories=(Uuid(bytes(16)),) * len(isr))


def partition(tmp_path: Path, role: PartitionState | None = None, **overrides: object) -> Partition:
    configs = {name.replace("_", "."): value for name, value in overrides.items()}
    return Partition(PARTITION, TOPIC_ID, opened(tmp_path, configs), role or state(), HERE)


def read(one: Partition, offset: int, max_bytes: int = MIB, *, committed: bool = False, **more: int) -> PartitionData:
    return one.read(offset, max_bytes, is_committed_only=committed, must_give_one=True, **more)


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for one in iter_batches(data.records.read() if data.records else b"") for record in one.records()]


def test_what_the_only_replica_appends_can_be_read_at_once(tmp_path: Path) -> None:
    one = partition(tmp_path)
    assert one.append(batch([b"a", b"b"]), -1, NOW_MS).last_offset == 1
    data = read(one, 0)
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset) == (0, 2, 2, 0)
    assert values(data) == [b"a", b"b"]


def test_with_another_replica_in_sync_an_append_waits_for_it(tmp_path: Path) -> None:
    one = partition(tmp_path, state(isr=(HERE, 2)))
    one.append(batch([b"a"]), 1, NOW_MS)
    data = read(one, 0)
    assert data.high_watermark == 0
    assert not data.records
    one.update(state(epoch=1))
    assert values(read(one, 0)) == [b"a"]


def test_acks_all_wants_enough_replicas_in_sync(tmp_path: Path) -> None:
    alone = PartitionState(replicas=(HERE, 2, 3), isr=(HERE,), leader=HERE, directories=(Uuid(bytes(16)),) * 3)
    one = partition(tmp_path, alone, min_insync_replicas=2)
    with pytest.raises(KafkaError) as refused:
        one.append(batch(), -1, NOW_MS)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert one.log.log_end_offset == 0
    one.append(batch(), 1, NOW_MS)
    assert one.log.log_end_offset == 1


def test_acks_all_wants_no_more_replicas_than_there_are(tmp_path: Path) -> None:
    one = partition(tmp_path, min_insync_replicas=2)
    assert one.append(batch(), -1, NOW_MS).first_offset == 0


def test_a_follower_takes_and_gives_nothing(tmp_path: Path) -> None:
    one = partition(tmp_path, state(leader=2, epoch=7, isr=(HERE, 2)))
    with pytest.raises(KafkaError) as refused:
        one.append(batch(), 1, NOW_MS)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert read(one, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("asked", "told"),
    [(-1, ErrorCode.NONE), (5, ErrorCode.NONE), (4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_client_of_another_epoch_is_told_so(tmp_path: Path, asked: int, told: ErrorCode) -> None:
    one = partition(tmp_path, state(epoch=5))
    assert read(one, 0, current_leader_epoch=asked).error_code == told


def test_an_offset_outside_the_log_is_an_error(tmp_path: Path) -> None:
    one = partition(tmp_path)
    one.append(batch([b"a"]), 1, NOW_MS)
    for offset in (-1, 2):
        data = read(one, offset)
        assert (data.error_code, data.high_watermark, data.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)


def test_a_reader_whose_last_epoch_ended_earlier_here_is_told_where(tmp_path: Path) -> None:
    one = partition(tmp_path, state(epoch=1))
    one.append(batch([b"a"]), 1, NOW_MS)
    one.update(state(epoch=3))
    one.append(batch([b"b"]), 1, NOW_MS)
    data = read(one, 2, last_fetched_epoch=2)
    assert data.diverging_epoch == EpochEndOffset(epoch=1, end_offset=1)
    assert not data.records
    assert read(one, 1, last_fetched_epoch=1).diverging_epoch is None
    assert read(one, 2, last_fetched_epoch=3).diverging_epoch is None


def test_committed_reads_end_before_an_open_transaction_and_name_the_aborted_ones(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.producers.verifies_transactions = False
    one = Partition(PARTITION, TOPIC_ID, log, state(), HERE)
    one.append(batch([b"plain"]), 1, NOW_MS)
    one.append(batch([b"open"], producer_id=9, producer_epoch=0, sequence=0, transactional=True), 1, NOW_MS)
    data = read(one, 0, committed=True)
    assert values(data) == [b"plain"]
    assert data.last_stable_offset == 1
    assert data.aborted_transactions == []
    assert values(read(one, 0)) == [b"plain", b"open"]


def test_aborted_transactions_are_named_as_far_as_the_bytes_go(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.producers.verifies_transactions = False
    one = Partition(PARTITION, TOPIC_ID, log, state(), HERE)
    for producer_id in (1, 2, 3):
        sent = batch([b"x" * 100], producer_id=producer_id, producer_epoch=0, sequence=0, transactional=True)
        one.append(sent, 1, NOW_MS)
        marker = end_transaction_marker(
            ControlType.ABORT, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
        )
        one.append(marker, 1, NOW_MS, origin=AppendOrigin.COORDINATOR, transaction_version=0)

    def named(offset: int, max_bytes: int = 1 << 20) -> list[int]:
        data = one.read(offset, max_bytes, is_committed_only=True, must_give_one=True)
        return [aborted.producer_id for aborted in data.aborted_transactions or ()]

    assert named(0) == [1, 2, 3]
    assert named(2) == [2, 3]
    size = log.active.size_bytes // 3
    assert named(0, 1) == [1]
    assert named(0, size) == [1]
    assert named(0, 2 * size) == [1, 2]
    assert named(2, size) == [2]


def test_an_append_that_must_flush_or_compress_or_note_an_epoch_is_not_done_at_once(tmp_path: Path) -> None:
    one = partition(tmp_path / "plain")
    assert not one.appends_at_once()
    one.append(batch(), 1, NOW_MS)
    assert one.appends_at_once()
    for number, overrides in enumerate(({"flush_messages": 1}, {"compression_type": "zstd"})):
        slow = partition(tmp_path / str(number), **overrides)
        slow.append(batch(), 1, NOW_MS)
        assert not slow.appends_at_once()
