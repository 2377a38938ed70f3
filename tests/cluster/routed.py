"""The way of a transactional producer by hand through a cluster of which it knows addresses: whoever has to answer is found
anew for each request, and asked again while that is not to be had. For clients with KIP-890, which librdkafka does not speak.
"""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from typing import Any, Final

from support.node_client import NodeClient

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.group_offsets import OffsetFetchRequest
from pybroker.protocol.messages.groups import FindCoordinatorRequest
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.produce import ProduceRequest
from pybroker.protocol.messages.transactions import TxnOffsetCommitRequest
from pybroker.server.response_errors import errors_in

AGAIN: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NETWORK_EXCEPTION,
    )
)
ANSWER_S: Final = 5.0  # a broker that hangs is not waited for longer
BACKOFF_S: Final = 0.05
GROUP, TRANSACTION = 0, 1

Address = tuple[str, int]


class UnansweredError(Exception):
    """Nobody could be found for a request in time."""


class Routed:
    """A `support.transactional.Broker`."""

    def __init__(self, bootstrap: str, transactional_id: str, group: str, patience_s: float) -> None:
        addresses = [one.rsplit(":", 1) for one in bootstrap.split(",")]
        self._known = itertools.cycle([(host, int(port)) for host, port in addresses])
        self._transactional_id = transactional_id
        self._group = group
        self._patience_s = patience_s

    def ask(self, request: Message, version: int | None = None) -> Any:
        deadline = time.monotonic() + self._patience_s
        answer: Any = None
        while time.monotonic() < deadline:
            with suppress(OSError):
                address = self._address_for(request)
                answer = None if address is None else _ask(address, request, version)
                if answer is not None and not AGAIN & set(errors_in(answer)):
                    return answer
            time.sleep(BACKOFF_S)
        raise UnansweredError(f"{type(request).__name__}: {answer}")

    def _address_for(self, request: Message) -> Address | None:
        if isinstance(request, ProduceRequest):
            topic = request.topic_data[0]
            return self._leader(topic.name, topic.partition_data[0].index)
        if isinstance(request, FindCoordinatorRequest):
            return next(self._known)
        if isinstance(request, (TxnOffsetCommitRequest, OffsetFetchRequest)):
            return self._coordinator(GROUP, self._group)
        return self._coordinator(TRANSACTION, self._transactional_id)

    def _leader(self, topic: str, partition: int) -> Address | None:
        answer = _ask(next(self._known), MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
        brokers = {one.node_id: (one.host, one.port) for one in answer.brokers}
        leaders = {row.partition_index: row.leader_id for row in answer.topics[0].partitions}
        return brokers.get(leaders.get(partition, -1))

    def _coordinator(self, kind: int, key: str) -> Address | None:
        (found,) = _ask(next(self._known), FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])).coordinators
        return None if found.error_code else (found.host, found.port)


def _ask(address: Address, request: Message, version: int | None = None) -> Any:
    with NodeClient(address[1], address[0], timeout_s=ANSWER_S) as client:
        return client.ask(request, version)
