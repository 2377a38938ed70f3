"""CreateTopics v2-7, DeleteTopics v1-6, CreatePartitions v0-3: the controller decides, the client is answered afterwards.

The broker looks at none of it: in KRaft all checks are the controller's. What the client gives as timeout_ms is how long it
is kept waiting; REQUEST_TIMED_OUT then says nothing about what became of the request. Any thread; nothing here waits.
"""

from __future__ import annotations

from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from pybroker.server.forwarding import Forwarding

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


class TopicHandlers:
    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding

    def handle_create_topics(self, request: Request, message: CreateTopicsRequest) -> None:
        def timed_out() -> CreateTopicsResponse:
            names = dict.fromkeys(topic.name for topic in message.topics)
            results = [CreatableTopicResult(name=name, error_code=TIMED_OUT, error_message=None) for name in names]
            return CreateTopicsResponse(topics=results)

        self._forwarding.forward(request, message, message.timeout_ms, timed_out)

    def handle_delete_topics(self, request: Request, message: DeleteTopicsRequest) -> None:
        def timed_out() -> DeleteTopicsResponse:
            results = [DeletableTopicResult(name=name, error_code=TIMED_OUT) for name in message.topic_names]
            results += [
                DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=TIMED_OUT) for topic in message.topics
            ]
            return DeleteTopicsResponse(responses=results)

        self._forwarding.forward(request, message, message.timeout_ms, timed_out)

    def handle_create_partitions(self, request: Request, message: CreatePartitionsRequest) -> None:
        def timed_out() -> CreatePartitionsResponse:
            names = dict.fromkeys(topic.name for topic in message.topics)
            results = [CreatePartitionsTopicResult(name=name, error_code=TIMED_OUT) for name in names]
            return CreatePartitionsResponse(results=results)

        self._forwarding.forward(request, message, message.timeout_ms, timed_out)
