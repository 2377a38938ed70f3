"""A script of group requests that any broker plays, and what it leaves in the log of `__consumer_offsets`."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from interop.broker_process import BrokerProcess
from support.waiting import wait_until

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.records import GROUP_RECORD_TYPES
from pybroker.coordinator.records import decode_record
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_offsets import GroupMetadataValue, OffsetCommitValue
from pybroker.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from pybroker.protocol.messages import group_offsets, groups
from pybroker.protocol.records.batch import iter_batches

SESSION_MS = 300_000
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def wait_for_coordinator(broker: BrokerProcess) -> None:
    def answers() -> bool:
        found = broker.ask(groups.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])).coordinators[0]
        if found.error_code != ErrorCode.NONE:
            return False
        described = broker.ask(groups.DescribeGroupsRequest(groups=["g"])).groups[0]
        return described.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)

    wait_until(answers, 30, lambda: "there is no coordinator")


@dataclass(slots=True)
class Member:
    broker: BrokerProcess
    group: str
    instance: str | None = None
    protocol_type: str = "consumer"
    id: str = ""
    generation: int = -1

    def join(self) -> Any:
        subscription = b"\0\0" + ConsumerProtocolSubscription(topics=["t"]).encode(0)
        request = groups.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=30_000,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[groups.JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        response = self.broker.ask(request)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = response.member_id
            return self.join()
        assert response.error_code == ErrorCode.NONE, response
        self.id, self.generation = response.member_id, response.generation_id
        return response

    def sync(self, **shares: bytes) -> Any:
        """`shares` by place in the group; the leader's are for all."""
        rows = [groups.SyncGroupRequestAssignment(member_id=one, assignment=data) for one, data in shares.items()]
        request = groups.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name="range",
            assignments=rows,
        )
        response = self.broker.ask(request)
        assert response.error_code == ErrorCode.NONE, response
        return response

    def heartbeat(self) -> ErrorCode:
        request = groups.HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance
        )
        return ErrorCode(self.broker.ask(request).error_code)

    def leave(self) -> None:
        one = groups.MemberIdentity(member_id=self.id, group_instance_id=self.instance)
        assert self.broker.ask(groups.LeaveGroupRequest(group_id=self.group, members=[one])).error_code == ErrorCode.NONE

    def commit(self, offset: int, version: int = 9, **options: Any) -> None:
        commit(self.broker, self.group, offset, version, member=self, **options)


def commit(
    broker: BrokerProcess,
    group: str,
    offset: int,
    version: int = 9,
    *,
    member: Member | None = None,
    retention_ms: int = -1,
    metadata: str = "",
    topic_id: Uuid | None = None,
    partition: int = 0,
) -> None:
    row = group_offsets.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=metadata
    )
    fields = {} if topic_id is None else {"topic_id": topic_id}
    request = group_offsets.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1 if member is None else member.generation,
        member_id="" if member is None else member.id,
        group_instance_id=None if member is None or version < 7 else member.instance,
        retention_time_ms=retention_ms,
        topics=[group_offsets.OffsetCommitRequestTopic(name="t", partitions=[row], **fields)],
    )
    done = broker.ask(request, version).topics[0].partitions[0]
    assert done.error_code == ErrorCode.NONE, done


def committed(broker: BrokerProcess, group: str) -> dict[tuple[str, int], tuple[int, int, str]]:
    wanted = group_offsets.OffsetFetchRequestGroup(group_id=group, topics=None)
    (found,) = broker.ask(group_offsets.OffsetFetchRequest(groups=[wanted]), 9).groups
    assert found.error_code == ErrorCode.NONE, found
    return {
        (topic.name, row.partition_index): (row.committed_offset, row.committed_leader_epoch, row.metadata)
        for topic in found.topics
        for row in topic.partitions
    }


def described(broker: BrokerProcess, *names: str) -> dict[str, Any]:
    """State, protocol and members of each group."""
    rows = broker.ask(groups.DescribeGroupsRequest(groups=list(names))).groups
    return {
        row.group_id: (
            row.group_state,
            row.protocol_type,
            row.protocol_data,
            sorted(
                (
                    one.member_id,
                    one.group_instance_id,
                    one.client_id,
                    one.client_host,
                    one.member_metadata,
                    one.member_assignment,
                )
                for one in row.members
            ),
        )
        for row in rows
    }


@dataclass(slots=True)
class Played:
    first: Member
    second: Member
    static: Member
    worker: Member


def play(broker: BrokerProcess) -> Played:
    """Every kind of record: groups of one, two and no members, static ones, Connect's; offsets of every version; deletions."""
    topic_id = broker.create_topic("t", partitions=2)
    wait_for_coordinator(broker)
    first = Member(broker, "two")
    first.join()
    first.sync(**{first.id: b"all"})
    second = Member(broker, "two")
    second_joined = _meanwhile(second.join, first)
    assert second_joined.generation_id == 2
    first.sync(**{first.id: b"one", second.id: b"other"})
    second.sync()
    first.commit(5, metadata="text")
    second.commit(6, 10, topic_id=topic_id, partition=1)
    first.commit(7, 2, retention_ms=86_400_000)
    commit(broker, "simple", 8)
    commit(broker, "simple", 9, 10, topic_id=topic_id, partition=1)
    static = Member(broker, "static", instance="i")
    static.join()
    static.sync(**{static.id: b"static"})
    static.commit(3)
    static.id = ""
    static.join()  # it was restarted
    static.sync()
    worker = Member(broker, "workers", protocol_type="connect")
    worker.join()
    worker.sync(**{worker.id: b"connectors"})
    left = Member(broker, "left")
    left.join()
    left.sync(**{left.id: b"x"})
    left.commit(1)
    left.leave()
    gone = Member(broker, "gone")
    gone.join()
    gone.leave()
    commit(broker, "gone", 4)
    broker.ask(groups.DeleteGroupsRequest(groups_names=["gone"]))
    row = group_offsets.OffsetDeleteRequestPartition(partition_index=1)
    topic = group_offsets.OffsetDeleteRequestTopic(name="t", partitions=[row])
    broker.ask(group_offsets.OffsetDeleteRequest(group_id="simple", topics=[topic]))
    return Played(first, second, static, worker)


def _meanwhile(join: Any, other: Member) -> Any:
    """`join` waits for `other`, who joins again when it hears of it."""
    with ThreadPoolExecutor(1) as apart:
        waiting = apart.submit(join)
        wait_until(lambda: other.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, 10, lambda: "there is no rebalance")
        other.join()
        return waiting.result(20)


def stored(broker: BrokerProcess) -> list[Any]:
    """Every record of the log, with the header of its batch, without what two brokers rightly differ in."""
    ids: dict[str, str] = {}

    def shown(text: str) -> str:
        return _UUID.sub(lambda found: ids.setdefault(found[0], f"uuid {len(ids) + 1}"), text)

    rows = []
    for segment in sorted(broker.partition_dir("__consumer_offsets").glob("*.log")):
        for batch in iter_batches(segment.read_bytes()):
            header = (batch.attributes, batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count)
            for record in batch.records():
                decoded = decode_record(GROUP_RECORD_TYPES, record.key, record.value)
                assert decoded is not None
                version = None if record.value is None else record.value[:2].hex()
                rows.append((record.offset, header, shown(repr(decoded.key)), version, shown(_shown_value(decoded.value))))
                assert record.headers == ()
    return rows


def _shown_value(value: Any) -> str:
    if isinstance(value, OffsetCommitValue):
        value.commit_timestamp, value.topic_id = 0, Uuid(b"some" if any(value.topic_id) else b"none")
        value.expire_timestamp = min(value.expire_timestamp, 0)
    elif isinstance(value, GroupMetadataValue):
        assert value.current_state_timestamp > 0
        value.current_state_timestamp = 0
        value.members.sort(key=lambda member: member.assignment)
    return repr(value)
