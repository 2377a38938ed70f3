"""Records of `__consumer_offsets` as this release writes and reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pybroker.coordinator.group.group import CommittedOffset
from pybroker.coordinator.records import CoordinatorRecord, RecordTypes
from pybroker.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from pybroker.protocol.internal.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

# Those that Apache Kafka 4.3 writes; an offset with an expiry of its own has a place for it only in version 1.
GROUP_METADATA_VERSION: Final = 3
OFFSET_COMMIT_VERSION: Final = 4
EXPIRING_OFFSET_VERSION: Final = 1

# Types that are not here belong to groups that this release does not serve.
GROUP_RECORD_TYPES: Final[RecordTypes] = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}


# Of committed offsets only the last of a partition counts.
SUPERSEDING: Final = frozenset((b"\0\1",))


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    expire_timestamp_ms = committed.expire_timestamp_ms
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=-1 if expire_timestamp_ms is None else expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return CoordinatorRecord(key, value, OFFSET_COMMIT_VERSION if expire_timestamp_ms is None else EXPIRING_OFFSET_VERSION)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def group_record(
    group_id: str,
    *,
    protocol_type: str = "",
    generation: int = 0,
    protocol: str | None = None,
    leader: str | None = None,
    state_timestamp_ms: int,
    members: Iterable[MemberMetadata] = (),
) -> CoordinatorRecord:
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=state_timestamp_ms,
        members=list(members),
    )
    return CoordinatorRecord(GroupMetadataKey(group=group_id), value, GROUP_METADATA_VERSION)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)
