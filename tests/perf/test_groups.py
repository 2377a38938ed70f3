"""What a group request costs the coordinator, without network and disk, and how fast a shard is loaded. Printed, not asserted:
`make perf`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from perf.measure import best_us, report
from unit.coordinator.group.members import Member, stabilize
from unit.coordinator.worlds import World
from unit.server.handlers.nodes import Replicas

from pybroker.coordinator.group.group import CommittedOffset
from pybroker.coordinator.group.records import GROUP_RECORD_TYPES, SUPERSEDING, offset_record
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.group.shard import GroupShard
from pybroker.coordinator.runtime import Requested
from pybroker.coordinator.shard import Request
from pybroker.log.producer_entry import AppendOrigin
from pybroker.metadata.image import EMPTY_IMAGE
from pybroker.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker.protocol.messages.groups import HeartbeatRequest
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.server.coordinators.cluster_view import ClusterOf
from pybroker.server.coordinators.shard_loader import load_shard

pytestmark = pytest.mark.perf

RECORDS = 200_000


def test_requests() -> None:
    print()
    world = World()
    member = Member(world, session_ms=1_800_000)
    stabilize(member)
    beat = HeartbeatRequest(group_id="g", generation_id=member.generation, member_id=member.id)
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=member.generation,
        member_id=member.id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
    )

    def ask(message: object, version: int, count: int = 1) -> None:
        events = [Requested(0, Request(message, None, version, "client", "/127.0.0.1"))] * count
        world.runtime.run(world.now_ms, world.wall_ms, events)
        # The log may be long, what is kept of it need not.
        del world.log.batches[0][:-1]

    report("a heartbeat", best_us(lambda: world.runtime.run(0, 0, [Requested(0, Request(beat, None, 4))])), "µs")
    report("a commit of one partition, a batch of its own", best_us(lambda: ask(commit, 9)), "µs")
    report("a commit of one partition among 50 of a round", best_us(lambda: ask(commit, 9, 50)) / 50, "µs")


class NoTimers:
    def set(self, key: object, delay_ms: int) -> None: ...

    def cancel(self, key: object) -> None: ...


@pytest.mark.parametrize(
    ("keys", "a_group", "a_batch"), [(10_000, 10, 1), (10_000, 10, 20), (RECORDS, 10, 20), (RECORDS, 1, 20)]
)
def test_loading(tmp_path: Path, keys: int, a_group: int, a_batch: int) -> None:
    print()
    replicas = Replicas(tmp_path)
    replicas.create("__consumer_offsets")
    partition = replicas.partition("__consumer_offsets")
    for start in range(0, RECORDS, a_batch):
        builder = BatchBuilder(base_sequence=0)
        for number in range(start, start + a_batch):
            committed = CommittedOffset(number, -1, "", 1_700_000_000_000)
            record = offset_record(f"group-{number % keys // a_group}", "topic", number % a_group, committed)
            builder.append(1_700_000_000_000, *record.encoded())
        replicas.manager.append(partition, builder.build(), -1, origin=AppendOrigin.COORDINATOR)
    shard = GroupShard(0, NoTimers(), GroupSettings(), lambda: "uuid", lambda: ClusterOf(EMPTY_IMAGE))
    begin = time.process_time()
    load_shard(partition.log, shard, GROUP_RECORD_TYPES, SUPERSEDING)
    took_us = (time.process_time() - begin) / RECORDS * 1e6
    title = f"load, {a_batch} commits a batch, {keys} offsets of {keys // a_group} groups"
    report(title, took_us, "µs of CPU a record", 10)
    assert len(shard.committed) == keys
    replicas.close()
