"""The cluster as the clients of one listener see it: the parts of answers to Metadata, made once and kept.

Any thread. Parts are kept as long as the image has the same topic and the same brokers, and large answers as bytes as long as
it has the same topics; all who ask share them, and nobody changes them. Each kept thing is one value with what it was made of
beside it, replaced as a whole: whoever reads it can tell whether it is still good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.topic_names import problem_with_name
from pybroker.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from pybroker.metadata.internal_topics import INTERNAL_TOPICS
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Encoded, col
from pybroker.protocol.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pybroker.server.authorized_operations import NOT_ASKED, TOPIC_OPERATIONS

# The first version that tells of a leader without the client's listener.
LISTENER_ERROR_VERSION: Final = 6

# An answer with so many partitions is kept encoded; a view keeps about so many bytes of such.
LARGE: Final = 64
_KEPT_BYTES: Final = 8 * 1024 * 1024

# Topics that are gone stay in a view until there are so many of them.
_GONE_TOPICS: Final = 256

_NOTHING: Final = (None, None)

# Version, whether it tells the operations on the cluster, and the topics, None for all.
AnswerKey = tuple[int, bool, tuple[str | None, ...] | None]


class AllTopics(NamedTuple):
    of: Mapping[str, TopicImage]
    topics: list[MetadataResponseTopic]
    partitions: int


class EncodedMetadataResponse(Encoded, key=3, versions="0-13", flexible="9+"):
    body: bytes = col("bytes")


class _LargeAnswers:
    __slots__ = ("answers", "size_bytes", "topics")

    def __init__(self, topics: Mapping[str, TopicImage]) -> None:
        self.topics = topics
        self.answers: dict[AnswerKey, Encoded] = {}
        self.size_bytes = 0


class MetadataView:
    """The cluster as clients of one listener see it in certain versions, while the same brokers are registered and named."""

    __slots__ = (
        "_all",
        "_is_strict",
        "_large",
        "_listener",
        "_no_listener",
        "_operations",
        "_topics",
        "alive",
        "brokers",
        "departed",
        "registered",
    )

    def __init__(
        self,
        registered: Mapping[int, BrokerState],
        departed: tuple[int, ...],
        listener: str,
        version: int,
        tells_operations: bool,
    ) -> None:
        """`departed` are fenced, but named all the same."""
        self.registered = registered
        self.departed = departed
        self.alive = tuple(broker.id for broker in registered.values() if not broker.fenced)
        self.brokers = [
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in registered.values()
            if (not broker.fenced or broker.id in departed) and (endpoint := broker.endpoints.get(listener)) is not None
        ]
        self._listener = listener
        # Version 0 names no replica that cannot be reached, and counts each as an error.
        self._is_strict = version == 0
        is_old = version < LISTENER_ERROR_VERSION
        self._no_listener = ErrorCode.LEADER_NOT_AVAILABLE if is_old else ErrorCode.LISTENER_NOT_FOUND
        self._operations = TOPIC_OPERATIONS if tells_operations else NOT_ASKED
        self._topics: dict[str, tuple[TopicImage, MetadataResponseTopic]] = {}
        self._all: AllTopics | None = None
        self._large: _LargeAnswers | None = None

    def topic(self, image: MetadataImage, name: str) -> MetadataResponseTopic | None:
        topic = image.topics.get(name)
        if topic is None:
            return None
        kept = self._topics.get(name)
        if kept is not None and kept[0] is topic:
            return kept[1]
        if len(self._topics) > len(image.topics) + _GONE_TOPICS:
            self._topics = {}
        response = self._topic(topic, kept)
        self._topics[name] = (topic, response)
        return response

    def all_topics(self, image: MetadataImage) -> AllTopics:
        everything = self._all
        if everything is None or everything.of is not image.topics:
            found = [topic for name in image.topics if (topic := self.topic(image, name)) is not None]
            everything = self._all = AllTopics(image.topics, found, partitions_of(found))
        return everything

    def is_much_to_make(self, image: MetadataImage, wanted: list[MetadataRequestTopic] | None) -> bool:
        """Whether so much of the answer is new that a network thread should not be kept busy with it."""
        topics: Iterable[TopicImage | None]
        if wanted is not None:
            topics = [
                image.topics_by_id.get(one.topic_id) if one.name is None else image.topics.get(one.name) for one in wanted
            ]
        elif self._all is not None and self._all.of is image.topics:
            return False
        elif len(image.topics) >= LARGE:
            return True
        else:
            topics = image.topics.values()
        partitions = 0
        for topic in topics:
            if topic is not None and self._topics.get(topic.name, _NOTHING)[0] is not topic:
                partitions += len(topic.partitions)
        return partitions >= LARGE

    def large_answer(self, image: MetadataImage, key: AnswerKey) -> Encoded | None:
        """The answer as bytes, the same ones for everybody who asks the same of the same topics; None if it is not kept."""
        large = self._large
        return large.answers.get(key) if large is not None and large.topics is image.topics else None

    def keep_large(self, image: MetadataImage, key: AnswerKey, response: MetadataResponse) -> Encoded:
        answer = EncodedMetadataResponse(body=response.encode(key[0]))
        large = self._large
        if large is None or large.topics is not image.topics or large.size_bytes > _KEPT_BYTES:
            large = self._large = _LargeAnswers(image.topics)
        large.answers[key] = answer
        large.size_bytes += len(answer.body)
        return answer

    def missing_topic(self, name: str) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=code_of_missing(name),
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
            topic_authorized_operations=self._operations,
        )

    def _topic(self, topic: TopicImage, kept: tuple[TopicImage, MetadataResponseTopic] | None) -> MetadataResponseTopic:
        before, rows = ({}, []) if kept is None else (kept[0].partitions, kept[1].partitions)
        # The rows of partitions that did not change; they stand in the order of the image.
        same = {
            index: row for (index, state), row in zip(before.items(), rows, strict=True) if topic.partitions.get(index) is state
        }
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[same.get(index) or self._partition(index, state) for index, state in topic.partitions.items()],
            topic_authorized_operations=self._operations,
        )

    def _partition(self, index: int, state: PartitionState) -> MetadataResponsePartition:
        replicas, isr = list(state.replicas), list(state.isr)
        code = ErrorCode.NONE
        if self._is_strict:
            replicas, isr = self._reachable(replicas), self._reachable(isr)
            if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
                code = ErrorCode.REPLICA_NOT_AVAILABLE
        leader = self.registered.get(state.leader)
        if leader is None:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        elif self._listener not in leader.endpoints:
            leader, code = None, self._no_listener
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=-1 if leader is None else leader.id,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline_replicas(state, self.registered, self._listener),
        )

    def _reachable(self, ids: Iterable[int]) -> list[int]:
        return [one for one in ids if _is_reachable(self.registered.get(one), self._listener)]


def partitions_of(topics: list[MetadataResponseTopic]) -> int:
    return sum([len(topic.partitions) for topic in topics])


def offline_replicas(state: PartitionState, registered: Mapping[int, BrokerState], listener: str) -> list[int]:
    """Those that a client of `listener` cannot reach: a broker that is gone or fenced, or lacks it, or lost the directory."""
    offline = []
    for number, broker_id in enumerate(state.replicas):
        broker = registered.get(broker_id)
        if broker is None or not _is_reachable(broker, listener) or not _is_online(state.directories[number], broker):
            offline.append(broker_id)
    return offline


def _is_reachable(broker: BrokerState | None, listener: str) -> bool:
    return broker is not None and not broker.fenced and listener in broker.endpoints


def _is_online(directory: Uuid, broker: BrokerState) -> bool:
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    return directory != LOST_DIRECTORY and (not broker.log_dirs or directory in broker.log_dirs)


def code_of_missing(name: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if problem_with_name(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
