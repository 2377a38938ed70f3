from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from unit.server.handlers.nodes import Replicas

from pybroker.coordinator.group.group import CommittedOffset
from pybroker.coordinator.group.records import (
    GROUP_RECORD_TYPES,
    SUPERSEDING,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.group.shard import GroupShard
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.coordinator.shard import Producer
from pybroker.log.log import Log
from pybroker.log.producer_entry import AppendOrigin
from pybroker.metadata.image import EMPTY_IMAGE
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.control import ControlType, end_transaction_marker
from pybroker.server.coordinators.cluster_view import ClusterOf
from pybroker.server.coordinators.shard_loader import LoadError, load_shard

TOPIC = "__consumer_offsets"


class NoTimers:
    def set(self, key: object, delay_ms: int) -> None: ...

    def cancel(self, key: object) -> None: ...


class Noting(GroupShard):
    """Also notes what is replayed."""

    def __init__(self) -> None:
        super().__init__(0, NoTimers(), GroupSettings(), lambda: "uuid", lambda: ClusterOf(EMPTY_IMAGE))
        self.replayed: list[tuple[int, str]] = []

    def replay(self, offset: int, record: CoordinatorRecord, producer: Producer | None) -> None:
        self.replayed.append((offset, type(record.key).__name__))
        super().replay(offset, record, producer)

    def offset(self, group: str = "g", topic: str = "t") -> int | None:
        found = self.committed.get(group, topic, 0)
        return None if found is None else found.offset


class Written:
    def __init__(self, replicas: Replicas) -> None:
        replicas.create(TOPIC)
        self._replicas = replicas

    @property
    def log(self) -> Log:
        return self._replicas.partition(TOPIC).log

    def append(self, data: bytearray, transaction_version: int = -1) -> None:
        partition = self._replicas.partition(TOPIC)
        self._replicas.manager.append(
            partition, data, -1, origin=AppendOrigin.COORDINATOR, transaction_version=transaction_version
        )

    def batch(self, *rows: CoordinatorRecord | tuple[bytes, bytes | None], producer_id: int | None = None) -> None:
        options: dict[str, Any] = {} if producer_id is None else {"producer_id": producer_id, "producer_epoch": 0}
        # That the transaction is known of is the business of whoever appends.
        self.log.producers.verifies_transactions = False
        builder = BatchBuilder(base_sequence=0, transactional=producer_id is not None, **options)
        for row in rows:
            builder.append(1, *(row.encoded() if isinstance(row, CoordinatorRecord) else row))
        self.append(builder.build())

    def marker(self, producer_id: int, kind: ControlType) -> None:
        marker = end_transaction_marker(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=1)
        self.append(marker, transaction_version=0)

    def load(self) -> Noting:
        shard = Noting()
        assert load_shard(self.log, shard, GROUP_RECORD_TYPES, SUPERSEDING) == self.log.log_end_offset
        return shard


@pytest.fixture
def written(tmp_path: Path) -> Any:
    replicas = Replicas(tmp_path)
    yield Written(replicas)
    replicas.close()


def commit(offset: int, group: str = "g", topic: str = "t") -> CoordinatorRecord:
    return offset_record(group, topic, 0, CommittedOffset(offset, -1, "", 1))


def test_an_empty_log_makes_an_empty_shard(written: Written) -> None:
    assert written.load().groups == {}


def test_of_many_commits_only_the_last_is_looked_at(written: Written) -> None:
    for offset in range(0, 100, 2):
        written.batch(commit(offset), commit(offset + 1))
    shard = written.load()
    assert shard.offset() == 99
    assert shard.replayed == [(99, "OffsetCommitKey")]


def test_the_order_of_records_of_different_kinds_is_kept(written: Written) -> None:
    written.batch(commit(1), commit(2))
    written.batch(group_record("g", protocol_type="consumer", generation=3, state_timestamp_ms=1))
    written.batch(commit(3))
    shard = written.load()
    assert shard.replayed == [(1, "OffsetCommitKey"), (2, "GroupMetadataKey"), (3, "OffsetCommitKey")]
    assert shard.offset() == 3
    assert shard.groups["g"].protocol_type == "consumer"


def test_tombstones_take_away_what_came_before_them(written: Written) -> None:
    written.batch(commit(1), commit(2, "h"), offset_tombstone("g", "t", 0), commit(5, "g", "u"))
    written.batch(offset_tombstone("h", "t", 0), group_tombstone("h"))
    shard = written.load()
    assert (shard.offset(), shard.offset("g", "u"), shard.offset("h")) == (None, 5, None)
    assert set(shard.groups) == {"g"}


def test_offsets_of_transactions_count_when_their_marker_is_a_commit(written: Written) -> None:
    written.batch(commit(1))
    written.batch(commit(2), producer_id=7)
    written.batch(commit(3, "h"), producer_id=8)
    written.batch(commit(4, "open"), producer_id=9)
    written.marker(7, ControlType.COMMIT)
    written.marker(8, ControlType.ABORT)
    shard = written.load()
    assert (shard.offset(), shard.offset("h"), shard.offset("open")) == (2, None, None)
    assert shard.committed.is_pending("open", "t", 0)


def test_types_that_nobody_knows_are_left_alone(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    written.batch((b"\x00\x63what", b"ever"), commit(1))
    assert written.load().offset() == 1
    assert "1 records are of types that this release does not know" in caplog.text


def test_what_is_no_record_fails_the_load(written: Written) -> None:
    written.batch((b"\x00\x02", b""))
    with pytest.raises(LoadError, match="__consumer_offsets-0"):
        load_shard(written.log, Noting(), GROUP_RECORD_TYPES, SUPERSEDING)


def test_the_garbage_collector_rests_during_a_load_and_works_again_afterwards(written: Written) -> None:
    seen: list[bool] = []

    class Watching(Noting):
        def replay(self, offset: int, record: CoordinatorRecord, producer: Producer | None) -> None:
            seen.append(gc.isenabled())
            raise ProtocolError("not this one")

    written.batch(commit(1))
    with pytest.raises(LoadError):
        load_shard(written.log, Watching(), GROUP_RECORD_TYPES)
    assert seen == [False]
    assert gc.isenabled()


def test_a_long_load_tells_how_far_it_is(
    written: Written, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.server.coordinators.shard_loader.PROGRESS_S", 0.0)
    for offset in range(3):
        written.batch(commit(offset))
    with caplog.at_level("INFO"):
        load_shard(written.log, Noting(), GROUP_RECORD_TYPES, SUPERSEDING)
    told = [message for message in caplog.messages if message.startswith("loading ")]
    assert told[:2] == [f"loading {TOPIC}-0: offset 0 of 3, 1 so far", f"loading {TOPIC}-0: offset 1 of 3, 2 so far"]
    assert caplog.messages[-1].startswith(f"loaded {TOPIC}-0: 3 records up to offset 3 in ")
