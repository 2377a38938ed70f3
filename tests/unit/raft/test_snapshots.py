"""Replicas that are too far behind, or new, take a snapshot instead of a log that is gone."""

from __future__ import annotations

import pytest
from support.quorum_cluster import Cluster, directory_of

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import raft
from pybroker.raft import events as e
from pybroker.raft.setting import METADATA_TOPIC

IMAGE = bytes(range(256)) * 10


def cluster_with_snapshot(**options: object) -> tuple[Cluster, int, int, e.SnapshotId]:
    """A leader that has a snapshot in place of its first records, and a voter that was down meanwhile."""
    cluster = Cluster([1, 2, 3], observers=[9], **options)  # type: ignore[arg-type]
    cluster.start(1, 2, 3)
    leader = cluster.elect()
    absent = next(id_ for id_ in (1, 2, 3) if id_ != leader)
    cluster.run(100)
    cluster.crash(absent)
    for number in range(10):
        cluster.propose(b"%d" % number)
        cluster.run(10)
    snapshot = cluster.snapshot(leader, IMAGE)
    cluster.propose(b"after")
    cluster.run(100)
    return cluster, leader, absent, snapshot


def test_a_voter_that_missed_too_much_fetches_a_snapshot_piece_by_piece() -> None:
    cluster, leader, absent, snapshot = cluster_with_snapshot(fetch_snapshot_max_bytes=1000)
    cluster.start(absent)
    cluster.run(100)
    assert f"{absent}: fetches snapshot {snapshot}" in cluster.transcript()
    assert f"{absent}: installs 11-1" in cluster.transcript()
    disk = cluster.replicas[absent].disk
    assert disk.snapshots[snapshot] == IMAGE
    assert (disk.start_offset, disk.values()) == (11, [b"after"])
    assert cluster[absent].high_watermark == cluster[leader].high_watermark == 12
    assert cluster[absent].log_start_offset == 11


def test_an_observer_begins_with_the_snapshot() -> None:
    cluster, leader, _, snapshot = cluster_with_snapshot()
    cluster.start(9)
    cluster.run(100)
    assert cluster.replicas[9].disk.snapshots == {snapshot: IMAGE}
    assert cluster[9].high_watermark == cluster[leader].high_watermark


def test_an_empty_replica_takes_the_snapshot_even_if_the_log_is_still_there() -> None:
    cluster = Cluster([1], observers=[9])
    cluster.start(1)
    cluster.run(10)
    cluster.propose(b"x")
    cluster.run(10)
    snapshot = cluster.snapshot(1, IMAGE, move_start=False)
    cluster.start(9)
    cluster.run(100)
    assert snapshot in cluster.replicas[9].disk.snapshots


def test_a_snapshot_that_goes_while_it_is_fetched_is_replaced_by_the_next() -> None:
    cluster, leader, absent, snapshot = cluster_with_snapshot(fetch_snapshot_max_bytes=100)
    cluster.start(absent)
    assert cluster.run_until(lambda: "fetches snapshot" in cluster.transcript(), 1000)
    cluster.run(3)
    cluster.propose(b"more")
    cluster.run_until(lambda: cluster[leader].high_watermark == 13, 100)
    newer = cluster.snapshot(leader, IMAGE + b"!")
    del cluster.replicas[leader].disk.snapshots[snapshot]
    cluster.run(200)
    assert cluster.replicas[absent].disk.snapshots == {newer: IMAGE + b"!"}


def test_the_installed_snapshot_survives_a_restart() -> None:
    cluster, leader, absent, _ = cluster_with_snapshot()
    cluster.start(absent)
    cluster.run(100)
    cluster.crash(absent)
    cluster.start(absent)
    cluster.run(100)
    assert cluster[absent].log_start_offset == 11
    cluster.crash(leader)
    cluster.elect()
    cluster.propose(b"later")
    cluster.run(100)
    assert cluster.replicas[absent].disk.values() == [b"after", b"later"]


class TestRequests:
    def ask(self, cluster: Cluster, id_: int, **changes: object) -> raft.FetchSnapshotResponse:
        snapshot = raft.SnapshotId(
            end_offset=changes.pop("end_offset", 11),
            epoch=changes.pop("snapshot_epoch", 1),  # type: ignore[arg-type]
        )
        partition = raft.FetchSnapshotRequestPartitionSnapshot(
            partition=changes.pop("partition", 0),
            current_leader_epoch=changes.pop("epoch", 1),
            snapshot_id=snapshot,
            position=changes.pop("position", 0),
            replica_directory_id=directory_of(2),
        )
        topic = raft.FetchSnapshotRequestTopicSnapshot(
            name=changes.pop("topic", METADATA_TOPIC), partitions=[partition] * int(changes.pop("count", 1))
        )
        request = raft.FetchSnapshotRequest(
            cluster_id=changes.pop("cluster_id", "cluster"),
            replica_id=2,
            topics=[topic],
            max_bytes=changes.pop("max_bytes", 2**31 - 1),
        )
        assert not changes
        answers = cluster.ask(id_, request)
        assert len(answers) == 1
        assert isinstance(answers[0], raft.FetchSnapshotResponse)
        return answers[0]

    def test_a_piece(self) -> None:
        cluster, leader, *_ = cluster_with_snapshot(fetch_snapshot_max_bytes=1000)
        answer = self.ask(cluster, leader, position=2000)
        partition = answer.topics[0].partitions[0]
        assert (partition.error_code, partition.size, partition.position) == (0, 2560, 2000)
        assert partition.unaligned_records == IMAGE[2000:]
        assert partition.current_leader == raft.LeaderIdAndEpoch(leader_id=leader, leader_epoch=1)
        assert [node.node_id for node in answer.node_endpoints] == [leader]

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
            ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ({"topic": "other"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"end_offset": 12}, ErrorCode.SNAPSHOT_NOT_FOUND),
            ({"end_offset": 0, "snapshot_epoch": 0}, ErrorCode.SNAPSHOT_NOT_FOUND),
            ({"position": -1}, ErrorCode.POSITION_OUT_OF_RANGE),
            ({"position": 2560}, ErrorCode.POSITION_OUT_OF_RANGE),
        ],
    )
    def test_refusals(self, changes: dict[str, object], error: ErrorCode) -> None:
        cluster, leader, *_ = cluster_with_snapshot()
        answer = self.ask(cluster, leader, **changes)
        assert answer.error_code == 0
        assert answer.topics[0].partitions[0].error_code == error

    @pytest.mark.parametrize("max_bytes", [0, -1])
    def test_who_wants_no_bytes_gets_none_and_the_leader_reads_no_negative_number_of_them(self, max_bytes: int) -> None:
        cluster, leader, *_ = cluster_with_snapshot()
        partition = self.ask(cluster, leader, max_bytes=max_bytes).topics[0].partitions[0]
        assert (partition.error_code, partition.size, partition.unaligned_records) == (0, 2560, b"")

    def test_refusals_as_a_whole(self) -> None:
        cluster, leader, *_ = cluster_with_snapshot()
        assert self.ask(cluster, leader, cluster_id="other").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert self.ask(cluster, leader, count=2).error_code == ErrorCode.INVALID_REQUEST

    def test_a_follower_names_the_leader(self) -> None:
        cluster, leader, absent, _ = cluster_with_snapshot()
        other = next(id_ for id_ in (1, 2, 3) if id_ not in (leader, absent))
        partition = self.ask(cluster, other).topics[0].partitions[0]
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.current_leader == raft.LeaderIdAndEpoch(leader_id=leader, leader_epoch=1)
