"""OffsetCommit v2-10, OffsetFetch v1-10, OffsetDelete v0: committed offsets of groups of any kind.

Any thread; nothing here waits. Here topics get name and id, and those that are not there are refused; the rest is the
shard's business. From version 10 on clients name topics by id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pybroker.coordinator.group.offsets import NO_EPOCH, NO_OFFSET, FetchOffsets
from pybroker.metadata.image import MetadataImage
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pybroker.server.coordinators.gathering import gather
from pybroker.server.coordinators.groups import GroupCoordinator, Pending

# The first versions with these.
TOPIC_IDS: Final = 10
FETCH_IN_BATCHES: Final = 8
FETCH_GROUP_ERROR: Final = 2


class GroupOffsetHandlers:
    def __init__(self, coordinator: GroupCoordinator, image_of: Callable[[], MetadataImage]) -> None:
        self._coordinator = coordinator
        self._image_of = image_of

    # OffsetCommit.

    def handle_offset_commit(self, request: Request, message: OffsetCommitRequest) -> OffsetCommitResponse | None:
        image = self._image_of()
        by_id = request.version >= TOPIC_IDS
        refused: list[OffsetCommitResponseTopic] = []
        kept: list[OffsetCommitRequestTopic] = []
        for topic in message.topics:
            found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
            if found is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                refused.append(uncommitted(topic, code))
                continue
            topic.name, topic.topic_id = found.name, found.topic_id
            unknown = [one for one in topic.partitions if one.partition_index not in found.partitions]
            if unknown:
                lost = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=unknown)
                refused.append(uncommitted(lost, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                topic.partitions = [one for one in topic.partitions if one.partition_index in found.partitions]
            if topic.partitions:
                kept.append(topic)
        if not kept:
            return OffsetCommitResponse(topics=refused)
        message.topics = kept

        def committed(response: OffsetCommitResponse) -> None:
            if refused:
                response.topics = _merged([*response.topics, *refused])
            request.respond(response)

        def failed(code: ErrorCode) -> None:
            committed(OffsetCommitResponse(topics=[uncommitted(topic, code) for topic in kept]))

        coordinator = self._coordinator
        coordinator.submit(
            coordinator.partition_of(message.group_id), message, Pending(committed, failed), version=request.version
        )
        return None

    # OffsetFetch.

    def handle_offset_fetch(self, request: Request, message: OffsetFetchRequest) -> None:
        version = request.version
        if version < FETCH_IN_BATCHES:
            groups = [_as_group(message)]
        else:
            groups = message.groups

        def answer(rows: list[OffsetFetchResponseGroup], _: ErrorCode) -> None:
            request.respond(
                OffsetFetchResponse(groups=rows) if version >= FETCH_IN_BATCHES else _as_old_response(rows[0], version, message)
            )

        def part(group: OffsetFetchRequestGroup, pending: Pending) -> None:
            self._fetch(group, message.require_stable, version, pending)

        gather(groups, part, lambda row: [row], lambda _: False, answer)

    def _fetch(self, group: OffsetFetchRequestGroup, require_stable: bool, version: int, pending: Pending) -> None:
        image = self._image_of()
        unknown: list[OffsetFetchResponseTopics] = []
        if version >= TOPIC_IDS and group.topics is not None:
            known = []
            for topic in group.topics:
                found = image.topics_by_id.get(topic.topic_id)
                if found is None:
                    unknown.append(_unfetched(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    topic.name = found.name
                    known.append(topic)
            group.topics = known
            if not known:
                pending.done(OffsetFetchResponseGroup(group_id=group.group_id, topics=unknown))
                return

        def fetched(response: OffsetFetchResponseGroup) -> None:
            response.topics += unknown
            if version >= TOPIC_IDS and group.topics is None:
                # A topic that is gone has no id to be named by.
                response.topics = [one for one in response.topics if one.name in image.topics]
                for one in response.topics:
                    one.topic_id = image.topics[one.name].topic_id
            pending.done(response)

        def failed(code: ErrorCode) -> None:
            if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                # Old consumers do not expect it here, and would not look for the coordinator again.
                code = ErrorCode.NOT_COORDINATOR
            pending.done(OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code))

        coordinator = self._coordinator
        wanted = FetchOffsets(group, require_stable)
        coordinator.submit(coordinator.partition_of(group.group_id), wanted, Pending(fetched, failed), version=version)

    # OffsetDelete.

    def handle_offset_delete(self, request: Request, message: OffsetDeleteRequest) -> OffsetDeleteResponse | None:
        image = self._image_of()
        refused = []
        kept = []
        for topic in message.topics:
            found = image.topics.get(topic.name)
            partitions = {} if found is None else found.partitions
            unknown = [one.partition_index for one in topic.partitions if one.partition_index not in partitions]
            known = [one for one in topic.partitions if one.partition_index in partitions]
            if unknown or not known:
                refused.append(_undeleted(topic.name, unknown))
            if known:
                kept.append(OffsetDeleteRequestTopic(name=topic.name, partitions=known))
        if not message.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
        message.topics = kept

        def deleted(response: OffsetDeleteResponse) -> None:
            rows = {topic.name: topic for topic in response.topics}
            for topic in refused:
                if topic.name in rows:
                    rows[topic.name].partitions += topic.partitions
                else:
                    response.topics.append(topic)
            request.respond(response)

        def failed(code: ErrorCode) -> None:
            request.respond(OffsetDeleteResponse(error_code=code, topics=[]))

        coordinator = self._coordinator
        coordinator.submit(
            coordinator.partition_of(message.group_id), message, Pending(deleted, failed), version=request.version
        )
        return None


def known_topics(image: MetadataImage, message: OffsetCommitRequest, version: int) -> bool:
    """Whether all partitions of a commit are there; its topics then have name and id."""
    by_id = version >= TOPIC_IDS
    for topic in message.topics:
        found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        if found is None:
            return False
        for one in topic.partitions:
            if one.partition_index not in found.partitions:
                return False
        topic.name, topic.topic_id = found.name, found.topic_id
    return bool(message.topics)


def uncommitted(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    rows = [OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code) for one in topic.partitions]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)


def _merged(topics: list[OffsetCommitResponseTopic]) -> list[OffsetCommitResponseTopic]:
    """Each topic once."""
    out: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    for topic in topics:
        there = out.setdefault((topic.name, topic.topic_id), topic)
        if there is not topic:
            there.partitions += topic.partitions
    return list(out.values())


def _as_group(message: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if message.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in message.topics
        ]
    return OffsetFetchRequestGroup(group_id=message.group_id, topics=topics)


def _as_old_response(group: OffsetFetchResponseGroup, version: int, message: OffsetFetchRequest) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    if group.error_code and version < FETCH_GROUP_ERROR:
        # There is a place for it only at each partition.
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        committed_leader_epoch=NO_EPOCH,
                        metadata="",
                        error_code=group.error_code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in message.topics or []
        ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _unfetched(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    rows = [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, committed_leader_epoch=NO_EPOCH, metadata="", error_code=code
        )
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=rows)


def _undeleted(name: str, partitions: list[int]) -> OffsetDeleteResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponseTopic(
        name=name, partitions=[OffsetDeleteResponsePartition(partition_index=one, error_code=code) for one in partitions]
    )
