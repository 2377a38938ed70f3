"""Metadata v0-13 and DescribeTopicPartitions v0: which brokers there are, and who leads which partition.

Any thread; on a network thread an answer that takes long to make WOULD_BLOCK. Everything is read from one image.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from pybroker.base.ids import ZERO_UUID
from pybroker.metadata.image import MetadataImage, PartitionState
from pybroker.metadata.internal_topics import INTERNAL_TOPICS
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from pybroker.server.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from pybroker.server.auto_topics import AutoTopics
from pybroker.server.dispatch import WOULD_BLOCK, Answer
from pybroker.server.dynamic_config import NodeConfig
from pybroker.server.metadata_view import (
    LARGE,
    LISTENER_ERROR_VERSION,
    MetadataView,
    code_of_missing,
    offline_replicas,
    partitions_of,
)

NO_CONTROLLER: Final = -1

TOPIC_ID_VERSION: Final = 12
CLUSTER_OPERATIONS_VERSIONS: Final = range(8, 11)


class MetadataHandlers:
    def __init__(
        self,
        image_of: Callable[[], MetadataImage],
        config: NodeConfig,
        cluster_id: str,
        auto_topics: AutoTopics,
        departed: Callable[[], tuple[int, ...]],
        choose: Callable[[Sequence[int]], int] = random.choice,
    ) -> None:
        """`departed` gives the fenced brokers that are named all the same."""
        self._image_of = image_of
        self._config = config
        self._cluster_id = cluster_id
        self._auto_topics = auto_topics
        self._departed = departed
        self._choose = choose
        self._views: dict[tuple[str, int, bool], MetadataView] = {}

    def handle_metadata(self, request: Request, message: MetadataRequest) -> Answer:
        image = self._image_of()
        version = request.version
        view = self._view(image, request.connection.listener_name, version, message.include_topic_authorized_operations)
        # In version 0 an empty list is all topics; since then it is none.
        wanted = message.topics if version or message.topics else None
        if not request.may_block and view.is_much_to_make(image, wanted):
            return WOULD_BLOCK
        if wanted is None:
            _, topics, partitions = view.all_topics(image)
        else:
            refusal = _refusal(wanted, version)
            if refusal is not None:
                return refusal
            if version >= TOPIC_ID_VERSION and any(one.topic_id != ZERO_UUID for one in wanted):
                topics = self._by_id(image, view, wanted)
            else:
                topics = self._by_name(image, view, wanted, message.allow_auto_topic_creation)
            partitions = partitions_of(topics)
        tells_operations = message.include_cluster_authorized_operations and version in CLUSTER_OPERATIONS_VERSIONS
        if partitions >= LARGE:
            names = None if wanted is None else tuple(topic.name for topic in topics if not topic.error_code)
            if names is None or len(names) == len(topics):
                key = (version, tells_operations, names)
                kept = view.large_answer(image, key)
                if kept is not None:
                    return kept
                if not request.may_block:
                    return WOULD_BLOCK
                return view.keep_large(image, key, self._response(view, topics, tells_operations))
        return self._response(view, topics, tells_operations)

    def _response(self, view: MetadataView, topics: list[MetadataResponseTopic], tells_operations: bool) -> MetadataResponse:
        return MetadataResponse(
            brokers=view.brokers,
            cluster_id=self._cluster_id,
            controller_id=self._choose(view.alive) if view.alive else NO_CONTROLLER,
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS if tells_operations else NOT_ASKED,
        )

    def _view(self, image: MetadataImage, listener: str, version: int, tells_operations: bool) -> MetadataView:
        key = (listener, 0 if version == 0 else 1 if version < LISTENER_ERROR_VERSION else 2, tells_operations)
        view = self._views.get(key)
        departed = self._departed()
        if view is None or view.registered is not image.brokers or view.departed != departed:
            view = self._views[key] = MetadataView(image.brokers, departed, listener, version, tells_operations)
        return view

    def _by_name(
        self, image: MetadataImage, view: MetadataView, wanted: list[MetadataRequestTopic], allows_creation: bool
    ) -> list[MetadataResponseTopic]:
        found: list[MetadataResponseTopic] = []
        missing: list[str] = []
        names = [one.name for one in wanted] if len(wanted) == 1 else dict.fromkeys(one.name for one in wanted)
        for name in names:
            assert name is not None
            topic = view.topic(image, name)
            if topic is not None:
                found.append(topic)
            else:
                missing.append(name)
        if missing:
            if allows_creation and self._config.current.flag("auto.create.topics.enable"):
                self._auto_topics.ask_for(missing)
            found += [view.missing_topic(name) for name in missing]
        return found

    def _by_id(
        self, image: MetadataImage, view: MetadataView, wanted: list[MetadataRequestTopic]
    ) -> list[MetadataResponseTopic]:
        """If one topic is asked for by its id, those asked for by name are left out, as Apache Kafka does."""
        known: list[MetadataResponseTopic] = []
        unknown: list[MetadataResponseTopic] = []
        for topic_id in dict.fromkeys(one.topic_id for one in wanted if one.topic_id != ZERO_UUID):
            topic = image.topics_by_id.get(topic_id)
            response = None if topic is None else view.topic(image, topic.name)
            if response is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
                unknown.append(MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id, partitions=[]))
            else:
                known.append(response)
        return unknown + known

    def handle_describe_topic_partitions(
        self, request: Request, message: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        image = self._image_of()
        cursor = message.cursor
        first = "" if cursor is None else cursor.topic_name
        asked = {one.name for one in message.topics}
        if cursor is not None and (cursor.partition_index < 0 or (asked and first not in asked)):
            return DescribeTopicPartitionsResponse(
                topics=[_no_such_topic(one.name, ErrorCode.INVALID_REQUEST, NOT_ASKED) for one in message.topics]
            )
        limit = min(self._config.current.int("max.request.partition.size.limit"), message.response_partition_limit)
        listener = request.connection.listener_name
        page = _Page(image, listener, max(limit, 1))
        for name in sorted(name for name in (asked or image.topics) if name >= first):
            start = cursor.partition_index if cursor is not None and name == first else 0
            if not page.add(name, start):
                break
        return DescribeTopicPartitionsResponse(topics=page.topics, next_cursor=page.next_cursor)


class _Page:
    """The topics of one answer to DescribeTopicPartitions, and where the next one goes on."""

    def __init__(self, image: MetadataImage, listener: str, limit: int) -> None:
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: Cursor | None = None
        self._image = image
        self._listener = listener
        self._room = limit

    def add(self, name: str, start: int) -> bool:
        """The partitions of a topic from `start` on; False if the page is full."""
        if not self._room:
            self.next_cursor = Cursor(topic_name=name, partition_index=0)
            return False
        topic = self._image.topics.get(name)
        if topic is None:
            self.topics.append(_no_such_topic(name, code_of_missing(name), TOPIC_OPERATIONS))
            return True
        end = min(start + self._room, len(topic.partitions))
        partitions = [self._partition(index, topic.partitions[index]) for index in range(start, end)]
        self.topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.NONE,
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=partitions,
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        self._room -= len(partitions)
        if end < len(topic.partitions):
            self.next_cursor = Cursor(topic_name=name, partition_index=end)
            return False
        return True

    def _partition(self, index: int, state: PartitionState) -> DescribeTopicPartitionsResponsePartition:
        registered = self._image.brokers
        leader = registered.get(state.leader)
        is_known = leader is not None and self._listener in leader.endpoints
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=state.leader if is_known else -1,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            eligible_leader_replicas=list(state.eligible_leader_replicas),
            last_known_elr=list(state.last_known_elr),
            offline_replicas=offline_replicas(state, registered, self._listener),
        )


def _no_such_topic(name: str, code: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations,
    )


def _refusal(wanted: list[MetadataRequestTopic], version: int) -> MetadataResponse | None:
    """A topic without a name needs an id, and ids came to requests with version 12. One such topic spoils the request."""
    for one in wanted:
        if (one.name is None and one.topic_id == ZERO_UUID) or (
            version < TOPIC_ID_VERSION and (one.name is None or one.topic_id != ZERO_UUID)
        ):
            code = ErrorCode.INVALID_REQUEST
            topics = [
                MetadataResponseTopic(error_code=code, name=one.name or "", topic_id=one.topic_id, partitions=[])
                for one in wanted
            ]
            return MetadataResponse(brokers=[], topics=topics)
    return None
