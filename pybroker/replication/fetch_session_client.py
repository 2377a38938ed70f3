"""The follower's half of an incremental fetch session (KIP-227): what the leader has been told, and what is new to it.

Pure, and for one fetcher. `known` is what the leader's half holds once the request under way has arrived.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from pybroker.base.ids import Uuid
from pybroker.protocol.errors import ErrorCode, error_name
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from pybroker.replication.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch

logger = logging.getLogger(__name__)

Key = tuple[Uuid, int]

SESSION_ERRORS: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)


class FetchSessionClient:
    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.known: dict[Key, FetchPartition] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request has to name every partition."""
        return self.epoch == INITIAL_EPOCH

    def fill(self, request: FetchRequest, wanted: Mapping[Key, FetchPartition], unwanted: Iterable[Key] = ()) -> None:
        """Put into `request` what the leader is to know: all partitions that are wanted, if `is_full`, else those that are new
        or different and those that are not wanted any more."""
        forgotten: list[Key] = []
        if self.is_full:
            self.known = dict(wanted)
        else:
            self.known.update(wanted)
            forgotten += [key for key in unwanted if self.known.pop(key, None) is not None]
        request.session_id = self.id
        request.session_epoch = self.epoch
        topics: dict[Uuid, FetchTopic] = {}
        for (topic_id, _), partition in wanted.items():
            topic = topics.get(topic_id)
            if topic is None:
                topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[partition])
            else:
                topic.partitions.append(partition)
        request.topics = list(topics.values())
        if forgotten:
            by_topic: dict[Uuid, list[int]] = {}
            for topic_id, index in forgotten:
                by_topic.setdefault(topic_id, []).append(index)
            request.forgotten_topics_data = [
                ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic.items()
            ]

    def answered(self, response: FetchResponse) -> bool:
        """False if the answer is an error of the session: the next request is a full one."""
        if response.error_code:
            code = response.error_code
            logger.info("fetch session %d at epoch %d: %s", self.id, self.epoch, error_name(code))
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.id = NO_SESSION
            self.epoch = INITIAL_EPOCH
            return False
        if response.session_id == NO_SESSION:
            self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self.id = response.session_id
            self.epoch = next_epoch(self.epoch)
        return True

    def failed(self) -> None:
        """Nobody knows whether the request arrived: a full one takes the place of the session."""
        self.epoch = INITIAL_EPOCH
