"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, and offsets that are too old or whose topic is gone.

Decisions only: what is stored is in offset_store.py. Topics come with name and id, both as far as the broker knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.coordinator.group.cluster import ClusterView
from pybroker.coordinator.group.group import CommittedOffset, Committer, Group
from pybroker.coordinator.group.offset_store import OffsetStore
from pybroker.coordinator.group.records import offset_record, offset_tombstone
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.records import CoordinatorRecord
from pybroker.coordinator.shard import Producer, Reply, Request, Result
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pybroker.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pybroker.protocol.records.batch import as_int64

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
DEFAULT_RETENTION: Final = -1
# OffsetCommit says from here on that there is no such group; before, that the generation is wrong.
GROUP_NOT_FOUND_VERSION: Final = 9


class FetchOffsets(NamedTuple):
    """OffsetFetch for one group; `topics` of None asks for all."""

    group: OffsetFetchRequestGroup
    require_stable: bool = False


class Offsets:
    def __init__(
        self,
        groups: Mapping[str, Group],
        store: OffsetStore,
        settings: GroupSettings,
        cluster: Callable[[], ClusterView],
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._store = store
        self._settings = settings

    # Commit.

    def commit(self, now_ms: int, request: Request) -> Result:
        message: OffsetCommitRequest = request.message
        committer = Committer(
            message.member_id,
            message.group_instance_id,
            message.generation_id_or_member_epoch,
            is_transactional=False,
            version=request.version,
        )
        missing = ErrorCode.GROUP_ID_NOT_FOUND if request.version >= GROUP_NOT_FOUND_VERSION else ErrorCode.ILLEGAL_GENERATION
        check = self._check_commit(message.group_id, committer, missing)
        retention_ms = message.retention_time_ms
        expire_ms = None if retention_ms == DEFAULT_RETENTION else as_int64(now_ms + retention_ms)
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in message.topics:
            rows = []
            for one in topic.partitions:
                text = one.committed_metadata or ""
                code = self._metadata_refusal(text)
                if check is not None and not code:
                    check(topic.topic_id, one.partition_index)
                rows.append(OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code))
                if not code:
                    committed = CommittedOffset(
                        one.committed_offset, one.committed_leader_epoch, text, now_ms, expire_ms, topic.topic_id
                    )
                    records.append(offset_record(message.group_id, topic.name, one.partition_index, committed))
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows))
        return Result(records, [Reply(request.token, OffsetCommitResponse(topics=topics))])

    def commit_in_transaction(self, now_ms: int, request: Request) -> Result:
        """Stored at once, in effect when the transaction commits."""
        message: TxnOffsetCommitRequest = request.message
        committer = Committer(
            message.member_id, message.group_instance_id, message.generation_id, is_transactional=True, version=request.version
        )
        check = self._check_commit(message.group_id, committer, ErrorCode.ILLEGAL_GENERATION)
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in message.topics:
            rows = []
            topic_id = self._id_of(topic.name) or ZERO_UUID
            for one in topic.partitions:
                text = one.committed_metadata or ""
                code = self._metadata_refusal(text)
                if check is not None and not code:
                    check(topic_id, one.partition_index)
                rows.append(TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code))
                if not code:
                    committed = CommittedOffset(
                        one.committed_offset, one.committed_leader_epoch, text, now_ms, topic_id=topic_id
                    )
                    records.append(offset_record(message.group_id, topic.name, one.partition_index, committed))
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
        producer = Producer(message.producer_id, message.producer_epoch)
        return Result(records, [Reply(request.token, TxnOffsetCommitResponse(topics=topics))], producer=producer)

    def _check_commit(self, group_id: str, committer: Committer, missing: ErrorCode) -> Callable[[Uuid, int], None] | None:
        """KafkaError if it may commit nothing; what has to be called for each partition, and raises that, if not all."""
        group = self._groups.get(group_id)
        if group is not None:
            code = group.commit_refusal(committer)
        else:
            # Who has no generation needs no members beside it: replay makes a group of simple consumers.
            code = missing if committer.generation >= 0 else ErrorCode.NONE
        if code:
            raise KafkaError(code, f"Member {committer.member_id!r} may not commit offsets of group {group_id}.")
        code_of = None if group is None else group.partition_check(committer)
        if code_of is None:
            return None

        def check(topic_id: Uuid, partition: int) -> None:
            code = code_of(topic_id, partition)
            if code:
                raise KafkaError(code, f"Member {committer.member_id!r} has no longer had partition {partition} then.")

        return check

    def _id_of(self, topic: str) -> Uuid | None:
        known = self._cluster().topic(topic)
        return None if known is None else known.topic_id

    def _metadata_refusal(self, text: str) -> ErrorCode:
        limit = self._settings.metadata_max_length
        # Java counts UTF-16 code units.
        is_long = len(text) > limit or (len(text) * 2 > limit and len(text.encode("utf-16-le", "surrogatepass")) > limit * 2)
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_long else ErrorCode.NONE

    # Fetch.

    def fetch(self, request: Request) -> Result:
        message: FetchOffsets = request.message
        wanted = message.group
        group = self._groups.get(wanted.group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND
        if group is not None:
            code = group.fetch_refusal(wanted.member_id, wanted.member_epoch)
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            raise KafkaError(code, f"Member {wanted.member_id!r} may not fetch offsets of group {wanted.group_id}.")
        # Of a group that is not there nothing is committed: that is no error.
        known = {} if code else self._store.of_group(wanted.group_id)
        if wanted.topics is None:
            whole = [self._whole_topic(message, name, partitions) for name, partitions in known.items()]
            topics = [topic for topic in whole if topic.partitions]
        else:
            topics = [self._topic(message, topic, known.get(topic.name, {})) for topic in wanted.topics]
        response = OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics, error_code=ErrorCode.NONE)
        return Result(effects=[Reply(request.token, response)])

    def _whole_topic(self, message: FetchOffsets, name: str, known: Mapping[int, CommittedOffset]) -> OffsetFetchResponseTopics:
        topic_id = self._id_of(name) or ZERO_UUID
        rows = [
            self._found(message, name, index, one)
            for index, one in known.items()
            if not _is_other_topic(one.topic_id, topic_id)
        ]
        return OffsetFetchResponseTopics(name=name, partitions=rows)

    def _topic(
        self, message: FetchOffsets, topic: OffsetFetchRequestTopics, known: Mapping[int, CommittedOffset]
    ) -> OffsetFetchResponseTopics:
        rows = []
        # Who asks by name means the topic that has it now.
        topic_id = self._id_of(topic.name) or ZERO_UUID if topic.topic_id == ZERO_UUID else topic.topic_id
        for index in topic.partition_indexes:
            committed = known.get(index)
            if committed is not None and _is_other_topic(committed.topic_id, topic_id):
                committed = None
            rows.append(self._found(message, topic.name, index, committed))
        return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=rows)

    def _found(
        self, message: FetchOffsets, topic: str, index: int, committed: CommittedOffset | None
    ) -> OffsetFetchResponsePartitions:
        is_unstable = message.require_stable and self._store.is_pending(message.group.group_id, topic, index)
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE
        if committed is None or is_unstable:
            return OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=NO_OFFSET,
                committed_leader_epoch=NO_EPOCH,
                metadata="",
                error_code=code,
            )
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=code,
        )

    # Delete.

    def delete(self, request: Request) -> Result:
        message: OffsetDeleteRequest = request.message
        group = self._groups.get(message.group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_refusal()
        if group is None or code:
            raise KafkaError(code, f"Offsets of group {message.group_id} cannot be deleted.")
        records = []
        topics = []
        for topic in message.topics:
            is_subscribed = group.is_subscribed_to(topic.name)
            rows = []
            for one in topic.partitions:
                index = one.partition_index
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
                rows.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
                if not is_subscribed and self._is_stored(message.group_id, topic.name, index):
                    records.append(offset_tombstone(message.group_id, topic.name, index))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
        return Result(records, [Reply(request.token, OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics))])

    def _is_stored(self, group_id: str, topic: str, index: int) -> bool:
        store = self._store
        return store.get(group_id, topic, index) is not None or store.is_pending(group_id, topic, index)

    def tombstones_of_group(self, group_id: str) -> Iterator[CoordinatorRecord]:
        for topic, partition in self._store.partitions_of(group_id):
            yield offset_tombstone(group_id, topic, partition)

    def tombstones_of_topics(self, names: Iterable[str]) -> Iterator[CoordinatorRecord]:
        """Of topics that were deleted just now. Others that came under the same names keep what is theirs."""
        for topic in names:
            present = self._id_of(topic)
            for (group_id, partition), offsets in self._store.groups_with(topic).items():
                if present is None or all(one.topic_id != present for one in offsets):
                    yield offset_tombstone(group_id, topic, partition)

    def tombstones_of_gone_topics(self) -> Iterator[CoordinatorRecord]:
        """Of all topics that were deleted, whenever that was: while the shard was loaded, or while nothing could be written."""
        for group_id in self._groups:
            for topic, partitions in self._store.of_group(group_id).items():
                present = self._id_of(topic)
                for partition, committed in partitions.items():
                    # Of a million nearly all are of topics that are there.
                    if (
                        committed.topic_id != present
                        and _is_gone(committed, present)
                        and not self._store.is_pending(group_id, topic, partition)
                    ):
                        yield offset_tombstone(group_id, topic, partition)

    # Expiry.

    def expired(self, now_ms: int, group: Group) -> tuple[list[CoordinatorRecord], bool]:
        """Tombstones of the offsets that are too old or whose topic is gone, and whether nothing is left. What the group reads
        does not grow old."""
        tombstones: list[CoordinatorRecord] = []
        is_all = not self._store.has_open_transactions(group.group_id)
        for topic, partitions in self._store.of_group(group.group_id).items():
            is_read = group.is_subscribed_to(topic)
            present = self._id_of(topic)
            for partition, committed in partitions.items():
                is_over = _is_gone(committed, present) or (not is_read and self._is_expired(now_ms, group, committed))
                if is_over and not self._store.is_pending(group.group_id, topic, partition):
                    tombstones.append(offset_tombstone(group.group_id, topic, partition))
                else:
                    is_all = False
        return tombstones, is_all

    def _is_expired(self, now_ms: int, group: Group, committed: CommittedOffset) -> bool:
        start_ms = group.retention_start_ms(committed)
        if start_ms is None:
            return False
        if committed.expire_timestamp_ms is not None:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - start_ms >= self._settings.offsets_retention_ms


def _is_gone(committed: CommittedOffset, present: Uuid | None) -> bool:
    """`present` is the topic that has the name now."""
    return present is None or _is_other_topic(committed.topic_id, present)


def _is_other_topic(one: Uuid, other: Uuid) -> bool:
    """A topic of the same name that was deleted since."""
    return ZERO_UUID not in (one, other) and one != other
