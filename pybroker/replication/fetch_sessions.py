"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changes; so do the answers.

    context = sessions.context_for(request, version, name_of, now_ms, is_follower=False)
    results = [(wanted, read(wanted)) for wanted in context.partitions]    # none if context.error_code is set
    response = context.response(results, now_ms)

A full fetch (epoch 0) may open a session when it is answered, a final one (-1) closes it. Pure, with a lock that is given to
it: no clock, no randomness. What is in `partitions` is the session's own state: to be read, not written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from pybroker.base.ids import Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

logger = logging.getLogger(__name__)

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
MIN_EVICTION_MS: Final = 120_000
# When no session could be evicted for a newcomer, the next of its size does not look for one before this has passed.
EVICTION_BACKOFF_MS: Final = 1000

NameOf = Callable[[Uuid], str | None]
Key = tuple[Uuid | str, int]


class WantedPartition:
    """A partition that is to be fetched: what the client asked for last, and what it was told last."""

    __slots__ = ("index", "key", "request", "seen_high_watermark", "seen_log_start_offset", "topic", "topic_id")

    def __init__(self, key: Key, topic_id: Uuid, topic: str | None, index: int, request: FetchPartition) -> None:
        self.key = key
        self.topic_id = topic_id  # zero before version 13
        self.topic = topic  # None while its id is not known here
        self.index = index
        self.request = request
        self.seen_high_watermark = -1
        self.seen_log_start_offset = -1

    def is_told(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the client knows both already."""
        return high_watermark == self.seen_high_watermark and log_start_offset == self.seen_log_start_offset

    def take_in(self, data: PartitionData) -> None:
        """Note what the client is told now."""
        # When an error has gone, the client hears of that too; and a follower whose log parted from ours only cuts it back.
        is_taken = not data.error_code and data.diverging_epoch is None
        self.seen_high_watermark = data.high_watermark if is_taken else -1
        self.seen_log_start_offset = data.log_start_offset


Result = tuple[WantedPartition, PartitionData]


class FetchSession:
    __slots__ = (
        "created_ms",
        "epoch",
        "has_unknown_topics",
        "id",
        "is_privileged",
        "last_used_ms",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, results: Sequence[Result], now_ms: int, *, is_privileged: bool, uses_topic_ids: bool
    ) -> None:
        self.id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[Key, WantedPartition] = {wanted.key: wanted for wanted, _ in results}
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.has_unknown_topics = any(wanted.topic is None for wanted, _ in results)

    def update(self, request: FetchRequest, name_of: NameOf) -> None:
        """Take in what the client says anew, and drop what it forgets."""
        partitions, uses_topic_ids = self.partitions, self.uses_topic_ids
        for topic in request.topics:
            of_topic = topic.topic_id if uses_topic_ids else topic.topic
            for asked in topic.partitions:
                key = (of_topic, asked.partition)
                known = partitions.get(key)
                if known is not None:
                    known.request = asked
                else:
                    name = name_of(topic.topic_id) if uses_topic_ids else topic.topic
                    partitions[key] = WantedPartition(key, topic.topic_id, name, asked.partition, asked)
                    self.has_unknown_topics |= name is None
        for forgotten in request.forgotten_topics_data:
            of_topic = forgotten.topic_id if uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                partitions.pop((of_topic, index), None)

    def resolve(self, name_of: NameOf) -> None:
        """Topics that were created, or became known here, since the session was told of them."""
        self.has_unknown_topics = False
        for wanted in self.partitions.values():
            if wanted.topic is None:
                wanted.topic = name_of(wanted.topic_id)
                self.has_unknown_topics |= wanted.topic is None

    def move_to_end(self, served: list[WantedPartition]) -> None:
        """Those that had records come last in the next fetch, so that each gets its share of the bytes."""
        for wanted in served:
            key = wanted.key
            if self.partitions.pop(key, None) is not None:
                self.partitions[key] = wanted

    def is_evictable_by(self, *, is_privileged: bool) -> bool:
        """A newcomer has its time to be used; but a consumer never stands in a follower's way."""
        return self.last_used_ms - self.created_ms > MIN_EVICTION_MS or (is_privileged and not self.is_privileged)


class FetchContext:
    """One fetch request. This one has no session: one that closes it, or a client older than sessions."""

    __slots__ = ("error_code", "partitions")

    is_incremental = False  # an answer may leave out what has not changed

    def __init__(self, partitions: Sequence[WantedPartition], error_code: ErrorCode = ErrorCode.NONE) -> None:
        self.partitions = partitions
        self.error_code = error_code

    def response(self, results: Sequence[Result], now_ms: int) -> FetchResponse:
        """`results` are in the order in which the client gets them; those of a session that are left out have not changed."""
        return FetchResponse(error_code=self.error_code, session_id=NO_SESSION, responses=by_topic(results))


class FullFetchContext(FetchContext):
    __slots__ = ("_is_privileged", "_sessions", "_uses_topic_ids")

    def __init__(
        self, partitions: Sequence[WantedPartition], sessions: FetchSessions, *, is_privileged: bool, uses_topic_ids: bool
    ) -> None:
        super().__init__(partitions)
        self._sessions = sessions
        self._is_privileged = is_privileged
        self._uses_topic_ids = uses_topic_ids

    def response(self, results: Sequence[Result], now_ms: int) -> FetchResponse:
        session_id = self._sessions.open(
            results, now_ms, is_privileged=self._is_privileged, uses_topic_ids=self._uses_topic_ids
        )
        return FetchResponse(session_id=session_id, responses=by_topic(results))


class IncrementalFetchContext(FetchContext):
    __slots__ = ("_epoch", "_session", "_sessions")

    is_incremental = True

    def __init__(self, session: FetchSession, sessions: FetchSessions) -> None:
        super().__init__(list(session.partitions.values()))
        self._session = session
        self._sessions = sessions
        self._epoch = session.epoch

    def response(self, results: Sequence[Result], now_ms: int) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:
            logger.info(
                "fetch session %d is at epoch %d, expected %d: a request came twice", session.id, session.epoch, self._epoch
            )
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id, responses=[])
        included: list[Result] = []
        served: list[WantedPartition] = []
        for result in results:
            wanted, data = result
            if data.records:
                served.append(wanted)
            elif (
                wanted.is_told(data.high_watermark, data.log_start_offset)
                and not data.error_code
                and data.preferred_read_replica < 0
                and data.diverging_epoch is None
            ):
                continue
            wanted.take_in(data)
            included.append(result)
        if served:
            self._sessions.move_to_end(session, served)
        return FetchResponse(session_id=session.id, responses=by_topic(included))


class FetchSessions:
    def __init__(
        self, slots: int, draw_below: Callable[[int], int], *, lock: AbstractContextManager[object] | None = None
    ) -> None:
        """At most `slots` sessions (max.incremental.fetch.session.cache.slots). Threads share it under the `lock`."""
        self._slots = slots
        self._draw_below = draw_below
        self._lock = nullcontext() if lock is None else lock
        self._sessions: dict[int, FetchSession] = {}  # the one used longest ago is first
        self._refused: dict[bool, tuple[int, int]] = {}  # by privilege: until when, and up to which size
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def cached_partitions(self) -> int:
        with self._lock:
            return sum(len(session.partitions) for session in self._sessions.values())

    def remembered(self, request: FetchRequest) -> Sequence[WantedPartition]:
        """What `request`, if it goes on with a session, may ask for without a word, as the session has it before that."""
        if request.session_id == NO_SESSION or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return ()
        with self._lock:
            session = self._sessions.get(request.session_id)
            return () if session is None else list(session.partitions.values())

    def context_for(
        self, request: FetchRequest, version: int, name_of: NameOf, now_ms: int, *, is_follower: bool = False
    ) -> FetchContext:
        """`name_of` gives the name of a topic id that is known here. The context's `error_code` may be a session's error."""
        epoch = request.session_epoch
        uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                with self._lock:
                    self._sessions.pop(request.session_id, None)
            partitions = wanted_partitions(request, uses_topic_ids, name_of)
            if epoch == FINAL_EPOCH:
                return FetchContext(partitions)
            return FullFetchContext(partitions, self, is_privileged=is_follower, uses_topic_ids=uses_topic_ids)
        with self._lock:
            session = self._sessions.get(request.session_id)
            if session is None:
                return FetchContext((), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if session.epoch != epoch:
                return FetchContext((), ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            if session.uses_topic_ids != uses_topic_ids:
                return FetchContext((), ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
            session.update(request, name_of)
            del self._sessions[session.id]
            if not session.partitions:
                return FetchContext(wanted_partitions(request, uses_topic_ids, name_of))
            self._sessions[session.id] = session
            session.last_used_ms = now_ms
            session.epoch = next_epoch(epoch)
            if session.has_unknown_topics:
                session.resolve(name_of)
            return IncrementalFetchContext(session, self)

    def open(self, results: Sequence[Result], now_ms: int, *, is_privileged: bool, uses_topic_ids: bool) -> int:
        """A new session of these partitions; NO_SESSION if there is no slot for it."""
        with self._lock:
            if len(self._sessions) >= self._slots and not self._evict(len(results), now_ms, is_privileged=is_privileged):
                return NO_SESSION
            session_id = 1 + self._draw_below(MAX_EPOCH - 1)
            while session_id in self._sessions:
                session_id = 1 + self._draw_below(MAX_EPOCH - 1)
            self._sessions[session_id] = FetchSession(
                session_id, results, now_ms, is_privileged=is_privileged, uses_topic_ids=uses_topic_ids
            )
        for wanted, data in results:
            wanted.take_in(data)
        return session_id

    def move_to_end(self, session: FetchSession, served: list[WantedPartition]) -> None:
        with self._lock:
            session.move_to_end(served)

    def _evict(self, size: int, now_ms: int, *, is_privileged: bool) -> bool:
        """Make room for a newcomer with `size` partitions: one long unused goes, or a lesser one that had its time."""
        stalest = next(iter(self._sessions.values()), None)
        if stalest is None:
            return False
        if now_ms - stalest.last_used_ms > MIN_EVICTION_MS:
            return self._evicted(stalest)
        until_ms, refused_size = self._refused.get(is_privileged, (0, 0))
        if now_ms < until_ms and size <= refused_size:
            return False
        least = min(
            (session for session in self._sessions.values() if session.is_evictable_by(is_privileged=is_privileged)),
            key=lambda session: (session.is_privileged, len(session.partitions), session.id),
            default=None,
        )
        if least is None or (is_privileged, size) <= (least.is_privileged, len(least.partitions)):
            self._refused[is_privileged] = (now_ms + EVICTION_BACKOFF_MS, size)
            return False
        return self._evicted(least)

    def _evicted(self, session: FetchSession) -> bool:
        del self._sessions[session.id]
        self.evictions += 1
        return True


def next_epoch(epoch: int) -> int:
    return 1 if epoch == MAX_EPOCH else epoch + 1


def wanted_partitions(request: FetchRequest, uses_topic_ids: bool, name_of: NameOf) -> list[WantedPartition]:
    """What a request asks for; of a partition that is in it twice, the last counts."""
    wanted: list[WantedPartition] = []
    for topic in request.topics:
        topic_id = topic.topic_id
        name = name_of(topic_id) if uses_topic_ids else topic.topic
        of_topic = topic_id if uses_topic_ids else topic.topic
        for one in topic.partitions:
            wanted.append(WantedPartition((of_topic, one.partition), topic_id, name, one.partition, one))
    if len(wanted) > 1:
        unique = {partition.key: partition for partition in wanted}
        if len(unique) < len(wanted):
            return list(unique.values())
    return wanted


def by_topic(results: Sequence[Result]) -> list[FetchableTopicResponse]:
    """Neighbours of one topic under one heading, in the order given."""
    topics: list[FetchableTopicResponse] = []
    last: Uuid | str | None = None
    partitions: list[PartitionData] = []
    for wanted, data in results:
        topic = wanted.key[0]
        if topic != last:
            last = topic
            partitions = []
            topics.append(FetchableTopicResponse(topic=wanted.topic or "", topic_id=wanted.topic_id, partitions=partitions))
        partitions.append(data)
    return topics
