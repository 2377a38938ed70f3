"""Consumer groups in `__consumer_offsets`: the same requests leave the same records, and either broker goes on with the
other's groups, without an epoch more than it should: the hash of the topics is the same, too."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from interop.apache_broker import ApacheBroker
from interop.broker_process import BrokerProcess
from interop.groups.scripted import wait_for_coordinator
from interop.groups.test_taking_over import ClassicApache
from interop.pybroker_node import PybrokerNode

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.records import GROUP_RECORD_TYPES
from pybroker.coordinator.records import decode_record
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import consumer_groups
from pybroker.protocol.records.batch import iter_batches

PARTITIONS = 70  # enough for every way that the hash goes


class Member:
    def __init__(self, broker: BrokerProcess, member_id: str, group: str = "g", **options: Any) -> None:
        self.broker = broker
        self.member_id = member_id
        self.group = group
        self.options = options
        self.epoch = 0
        self.owned: dict[Uuid, list[int]] = {}

    def beat(self, epoch: int | None = None, *, gives_up: bool = True) -> ErrorCode:
        """Gives up at once what it is not to have any more."""
        if epoch is not None:
            self.epoch = epoch
        is_first = self.epoch == 0
        if is_first:
            self.owned = {}
        rows = [
            consumer_groups.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in self.owned.items()
        ]
        fields: dict[str, Any] = {"instance_id": self.options.get("instance_id")}
        if is_first:
            fields |= {"subscribed_topic_names": ["t", "u"], "rebalance_timeout_ms": 30_000} | self.options
        response = self.broker.ask(
            consumer_groups.ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, topic_partitions=rows, **fields
            )
        )
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None and gives_up:
                self.owned = {Uuid(bytes(row.topic_id)): row.partitions for row in response.assignment.topic_partitions}
        return ErrorCode(response.error_code)


def assigned_again() -> None:
    """consumer.assignment.interval.ms is over."""
    time.sleep(1.1)


def play(broker: BrokerProcess, **options: str) -> tuple[Member, Member, Member]:
    broker.create_topic("t", partitions=PARTITIONS)
    broker.create_topic("u", partitions=3)
    wait_for_coordinator(broker)
    first, second = Member(broker, "first", **options), Member(broker, "second", **options)
    static = Member(broker, "static", instance_id="i", server_assignor="range")
    first.beat()
    assigned_again()
    for member in (second, first, first, second):
        assert member.beat() is ErrorCode.NONE
    assigned_again()
    for member in (static, first, first, second, second, static, static, first, second, first, second, static):
        assert member.beat() is ErrorCode.NONE
    left = Member(broker, "left", group="left")
    left.beat()
    left.beat(-1)
    static.beat(-2)
    static = Member(broker, "again", instance_id="i", server_assignor="range")
    assert static.beat() is ErrorCode.NONE
    return first, second, static


def stored(broker: BrokerProcess) -> list[str]:
    """Every record, without what two brokers rightly differ in: ids of topics, and what follows from them; times."""
    rows = []
    for segment in sorted(broker.partition_dir("__consumer_offsets").glob("*.log")):
        for batch in iter_batches(segment.read_bytes()):
            for record in batch.records():
                decoded = decode_record(GROUP_RECORD_TYPES, record.key, record.value)
                assert decoded is not None
                value: Any = decoded.value
                if hasattr(value, "metadata_hash"):
                    value.metadata_hash = bool(value.metadata_hash)
                if hasattr(value, "assignment_timestamp"):
                    value.assignment_timestamp = bool(value.assignment_timestamp)
                for field in ("topic_partitions", "assigned_partitions", "partitions_pending_revocation"):
                    some = getattr(value, field, [])
                    some.sort(key=lambda row: len(row.partitions))
                    for row in some:
                        row.topic_id = Uuid(b"some")
                        _sort(row)
                rows.append(f"{decoded.key} {value}")
    return rows


def _sort(row: Any) -> None:
    """Partitions stand in the order of a hash table, each with its epoch where the record has one."""
    epochs = getattr(row, "assignment_epochs", None)
    if epochs:
        pairs = sorted(zip(row.partitions, epochs, strict=True))
        row.assignment_epochs = [epoch for _, epoch in pairs]
    row.partitions.sort()


def described(broker: BrokerProcess) -> Any:
    request = consumer_groups.ConsumerGroupDescribeRequest(group_ids=["g", "left"], include_authorized_operations=False)
    groups = broker.ask(request).groups
    for group in groups:
        group.members.sort(key=lambda member: member.member_id)
        for member in group.members:
            for assignment in (member.assignment, member.target_assignment):
                assignment.topic_partitions.sort(key=lambda row: row.topic_name)
                for row in assignment.topic_partitions:
                    row.partitions.sort()
    return sorted(map(repr, groups))


def test_the_same_requests_leave_the_same_records(tmp_path: Path) -> None:
    found = []
    for number, broker_class in enumerate((ApacheBroker, PybrokerNode)):
        with broker_class(tmp_path / str(number)) as broker:
            # What uniform chooses depends on the ids of the topics.
            play(broker, server_assignor="range")
            broker.stop()
            found.append(stored(broker))
    theirs, ours = found
    assert ours == theirs
    assert len(ours) > 30


@pytest.mark.parametrize(
    ("writer", "reader"),
    [(PybrokerNode, ApacheBroker), (ClassicApache, PybrokerNode)],
    ids=["ours to Apache", "Apache's to us"],
)
def test_the_other_broker_goes_on_with_the_groups(
    tmp_path: Path, writer: type[BrokerProcess], reader: type[BrokerProcess]
) -> None:
    with writer(tmp_path) as broker:
        members = play(broker)
        before = described(broker)
        broker.stop()
    with reader(tmp_path) as broker:
        broker.wait_for_leaders("t", PARTITIONS)
        wait_for_coordinator(broker)
        assert described(broker) == before
        epochs = [member.epoch for member in members]
        for member in members:
            member.broker = broker
            assert member.beat() is ErrorCode.NONE
        assert [member.epoch for member in members] == epochs, "no rebalance"
        assert described(broker) == before
        members[0].beat(-1)
        assigned_again()
        for _ in range(2):
            for member in members[1:]:
                assert member.beat() is ErrorCode.NONE
        shares = [sum(map(len, member.owned.values())) for member in members[1:]]
        assert sum(shares) == PARTITIONS + 3
