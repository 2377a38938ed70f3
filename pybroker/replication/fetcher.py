"""The follower's side of replication: what one fetcher asks its source broker for, and what it makes of the answers.

Pure. There is one request under way at a time: `next_request` gives it, `fetch_answered` and `offsets_answered` turn an
answer into effects on the logs, and what came of each effect is told by `log_changed` or `not_done`. The offset in the next
fetch is the acknowledgement of all before it. Whether this log and the leader's have parted, the leader finds by the epoch of
the last record here (KIP-595); the log is then cut back to where they last agreed, never to the high watermark. Every release
that can be in a KRaft cluster does so: no leader has to be asked by OffsetForLeaderEpoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum
from typing import Final, NamedTuple

from pybroker.log.files import TopicPartition
from pybroker.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from pybroker.log.log import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from pybroker.protocol.errors import ErrorCode, error_name
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData, ReplicaState
from pybroker.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pybroker.replication.fetch_session_client import FetchSessionClient, Key

logger = logging.getLogger(__name__)

# The first pause after an error; each further one is twice as long, up to replica.fetch.backoff.ms. When leaders change, a
# follower often knows of it a moment before the new leader does.
FIRST_BACKOFF_MS: Final = 20


class FetcherSettings(NamedTuple):
    """The replica.fetch.* keys of the broker's config."""

    broker_id: int
    min_bytes: int
    max_bytes: int
    response_max_bytes: int
    wait_max_ms: int
    backoff_ms: int


class Position(NamedTuple):
    """How far a log is: where it starts and ends, and the epoch of its last record, -1 if it has none."""

    start_offset: int
    end_offset: int
    last_epoch: int


class AppendFetched(NamedTuple):
    """Append the records, and take the leader's high watermark and log start, if the log still ends at `fetch_offset`."""

    key: Key
    leader_epoch: int
    fetch_offset: int
    data: PartitionData


class TruncateToEpoch(NamedTuple):
    """Cut the log back to where it agrees with the leader's, in which `epoch` ended at `end_offset`."""

    key: Key
    leader_epoch: int
    epoch: int
    end_offset: int


class TruncateTo(NamedTuple):
    key: Key
    leader_epoch: int
    offset: int


class StartOver(NamedTuple):
    """Drop everything: the leader's log begins at `offset`, behind the end of this one."""

    key: Key
    leader_epoch: int
    offset: int


Effect = AppendFetched | TruncateToEpoch | TruncateTo | StartOver


class Phase(Enum):
    FETCHING = "fetching"
    # The offset was out of range: the end and the start of the leader's log tell what to do.
    ASKING_END = "asking for the leader's end"
    ASKING_START = "asking for the leader's start"
    # Nothing to do before the cluster's metadata says more: the leader knows of a newer epoch, or the disk failed.
    RESTING = "resting"


class Followed:
    """One partition of a fetcher."""

    __slots__ = ("asked", "attempts", "is_in_sync", "leader_epoch", "name", "phase", "position", "until_ms")

    def __init__(self, name: TopicPartition, leader_epoch: int, position: Position) -> None:
        self.name = name
        self.leader_epoch = leader_epoch
        self.position = position
        self.phase = Phase.FETCHING
        self.asked: FetchPartition | None = None  # as the leader knows it; None if that is out of date
        self.until_ms = 0
        self.attempts = 0
        self.is_in_sync = False

    def is_ready(self, now_ms: int) -> bool:
        """Whether it can be fetched now."""
        return self.phase is Phase.FETCHING and self.until_ms <= now_ms


class Fetcher:
    def __init__(self, source: int, settings: FetcherSettings) -> None:
        """`source` is the id of the broker that leads the partitions."""
        self.source = source
        self._settings = settings
        self._partitions: dict[Key, Followed] = {}
        self._session = FetchSessionClient()
        self._changed: set[Key] = set()  # since the last request was made
        self._paused: set[Key] = set()
        self._asking: set[Key] = set()  # for offsets
        self._asked_offsets: dict[TopicPartition, tuple[Key, Followed]] = {}
        self._until_ms = 0
        self._attempts = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, key: object) -> bool:
        return key in self._partitions

    # Which partitions.

    def added(self, key: Key, name: TopicPartition, leader_epoch: int, position: Position) -> None:
        """The partition is led by the source, in this epoch; one that was here already begins anew."""
        self._partitions[key] = Followed(name, leader_epoch, position)
        self._asking.discard(key)
        self._changed.add(key)

    def removed(self, key: Key) -> None:
        if self._partitions.pop(key, None) is not None:
            self._asking.discard(key)
            self._changed.add(key)

    # What is to be asked.

    @property
    def deadline_ms(self) -> int | None:
        """When to ask for the next request again, if there was none; None if that depends on what happens."""
        deadlines = [followed.until_ms for followed in self._partitions.values() if followed.phase is not Phase.RESTING]
        return max(self._until_ms, min(deadlines)) if deadlines else None

    def next_request(
        self, now_ms: int, replica_epoch: int, throttled: Collection[Key] = ()
    ) -> FetchRequest | ListOffsetsRequest | None:
        """None, if there is nothing to ask for now. Of `throttled` those that are not in sync wait."""
        if now_ms < self._until_ms:
            return None
        return self._offsets_request(now_ms) or self._fetch_request(now_ms, replica_epoch, throttled)

    def _fetch_request(self, now_ms: int, replica_epoch: int, throttled: Collection[Key]) -> FetchRequest | None:
        partitions, session, is_full = self._partitions, self._session, self._session.is_full
        held = {key for key in throttled if key in partitions and not partitions[key].is_in_sync} if throttled else set()
        # In an order that the same events give again.
        candidates = partitions if is_full else sorted(self._changed.union(self._paused, held))
        wanted: dict[Key, FetchPartition] = {}
        unwanted: list[Key] = []
        for key in candidates:
            followed = partitions.get(key)
            if followed is None or not followed.is_ready(now_ms) or key in held:
                unwanted.append(key)
            elif followed.asked is None or is_full or key not in session.known:
                followed.asked = wanted[key] = self._partition_to_fetch(key[1], followed)
        if not wanted and not any(one.is_ready(now_ms) and key not in held for key, one in partitions.items()):
            return None
        self._changed.clear()
        self._paused = {key for key in unwanted if key in partitions}
        settings = self._settings
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=settings.broker_id, replica_epoch=replica_epoch),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            topics=[],
        )
        session.fill(request, wanted, unwanted)
        return request

    def _partition_to_fetch(self, index: int, followed: Followed) -> FetchPartition:
        position = followed.position
        return FetchPartition(
            partition=index,
            current_leader_epoch=followed.leader_epoch,
            fetch_offset=position.end_offset,
            last_fetched_epoch=position.last_epoch,
            log_start_offset=position.start_offset,
            partition_max_bytes=self._settings.max_bytes,
        )

    def _offsets_request(self, now_ms: int) -> ListOffsetsRequest | None:
        if not self._asking:
            self._asked_offsets = {}
            return None
        self._asked_offsets = {
            followed.name: (key, followed)
            for key in sorted(self._asking)
            if (followed := self._partitions[key]).until_ms <= now_ms
        }
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for name, (_, followed) in self._asked_offsets.items():
            is_end = followed.phase is Phase.ASKING_END
            topics.setdefault(name.topic, []).append(
                ListOffsetsPartition(
                    partition_index=name.partition,
                    current_leader_epoch=followed.leader_epoch,
                    timestamp=LATEST_TIMESTAMP if is_end else EARLIEST_TIMESTAMP,
                )
            )
        if not topics:
            return None
        return ListOffsetsRequest(
            replica_id=self._settings.broker_id,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
        )

    # What was answered.

    def failed(self, now_ms: int) -> None:
        """The request under way has no answer, and will have none."""
        self._session.failed()
        self._asked_offsets = {}
        self._until_ms = now_ms + self._backoff_ms(self._attempts)
        self._attempts += 1

    def overtook(self) -> None:
        """The answer to the request under way is not waited for any more: the next one takes the place of its session."""
        self._session.failed()
        self._asked_offsets = {}

    def fetch_answered(self, now_ms: int, response: FetchResponse) -> list[Effect]:
        is_full = self._session.is_full
        if not self._session.answered(response):
            if not is_full:
                self._attempts = 0
                return []
            # Errors of a session cannot meet a request without one twice in a row.
            self.failed(now_ms)
            return []
        self._attempts = 0
        effects: list[Effect] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed = self._partitions.get(key)
                if followed is None or followed.asked is None:
                    # While the request was under way it has gone, come back, or been told of another epoch. The leader thinks
                    # that we know what it says here, and would not say it again in this session.
                    self._session.failed()
                    continue
                effect = self._answered(now_ms, key, followed, data)
                if effect is not None:
                    effects.append(effect)
        return effects

    def _answered(self, now_ms: int, key: Key, followed: Followed, data: PartitionData) -> Effect | None:
        code = data.error_code
        if not code:
            followed.attempts = 0
            if data.diverging_epoch is not None:
                diverging = data.diverging_epoch
                self._session.failed()  # the high watermark in this answer is not taken in, and would not come again
                return TruncateToEpoch(key, followed.leader_epoch, diverging.epoch, diverging.end_offset)
            followed.is_in_sync = data.high_watermark <= followed.position.end_offset
            return AppendFetched(key, followed.leader_epoch, followed.position.end_offset, data)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            offset = followed.position.end_offset
            logger.warning("%s: the leader has no offset %d; asking for its offsets", followed.name, offset)
            self._enter(key, followed, Phase.ASKING_END)
        elif code == ErrorCode.FENCED_LEADER_EPOCH:
            logger.info(
                "%s: the leader knows of a newer epoch than %d; waiting for metadata", followed.name, followed.leader_epoch
            )
            self._enter(key, followed, Phase.RESTING)
        else:
            self._back_off(now_ms, key, followed, code)
        return None

    def offsets_answered(self, now_ms: int, response: ListOffsetsResponse) -> list[Effect]:
        self._attempts = 0
        asked, self._asked_offsets = self._asked_offsets, {}
        effects: list[Effect] = []
        for topic in response.topics:
            for found in topic.partitions:
                row = asked.get(TopicPartition(topic.name, found.partition_index))
                if row is not None and self._partitions.get(row[0]) is row[1]:
                    effect = self._offset_found(now_ms, *row, found)
                    if effect is not None:
                        effects.append(effect)
        return effects

    def _offset_found(self, now_ms: int, key: Key, followed: Followed, found: ListOffsetsPartitionResponse) -> Effect | None:
        if found.error_code:
            if found.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                self._enter(key, followed, Phase.RESTING)
            else:
                self._back_off(now_ms, key, followed, found.error_code)
            return None
        end_offset = followed.position.end_offset
        if followed.phase is Phase.ASKING_END:
            if found.offset < end_offset:
                # After an unclean election, say.
                return TruncateTo(key, followed.leader_epoch, found.offset)
            self._enter(key, followed, Phase.ASKING_START)
            return None
        if found.offset > end_offset:
            return StartOver(key, followed.leader_epoch, found.offset)
        self._enter(key, followed, Phase.FETCHING)
        self._back_off(now_ms, key, followed, ErrorCode.OFFSET_OUT_OF_RANGE)
        return None

    # What came of the effects.

    def log_changed(self, key: Key, leader_epoch: int, position: Position) -> None:
        followed = self._partitions.get(key)
        if followed is not None and followed.leader_epoch == leader_epoch and followed.position != position:
            followed.position = position
            if followed.phase is Phase.FETCHING:
                followed.asked = None
                self._changed.add(key)
            else:
                self._enter(key, followed, Phase.FETCHING)

    def not_done(self, now_ms: int, key: Key, leader_epoch: int, *, is_final: bool = False) -> None:
        """An effect could not be run: it is tried again after a pause, or not at all if the disk failed."""
        self._session.failed()
        followed = self._partitions.get(key)
        if followed is not None and followed.leader_epoch == leader_epoch:
            if is_final:
                self._enter(key, followed, Phase.RESTING)
            else:
                self._back_off(now_ms, key, followed, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _enter(self, key: Key, followed: Followed, phase: Phase) -> None:
        followed.phase = phase
        followed.asked = None
        self._changed.add(key)
        if phase in (Phase.ASKING_END, Phase.ASKING_START):
            self._asking.add(key)
        else:
            self._asking.discard(key)

    def _back_off(self, now_ms: int, key: Key, followed: Followed, code: int) -> None:
        pause_ms = self._backoff_ms(followed.attempts)
        logger.info(
            "%s: broker %d answered %s in epoch %d; the next fetch is in %d ms",
            followed.name,
            self.source,
            error_name(code),
            followed.leader_epoch,
            pause_ms,
        )
        followed.attempts += 1
        followed.until_ms = now_ms + pause_ms
        followed.asked = None
        self._paused.add(key)

    def _backoff_ms(self, attempts: int) -> int:
        return min(self._settings.backoff_ms, FIRST_BACKOFF_MS << min(attempts, 16))


def truncation_offset(
    end_offset_for: Callable[[int], tuple[int, int]], end_offset: int, high_watermark: int, epoch: int, leaders_end: int
) -> int:
    """Where the log of a follower is cut, when in the leader's log `epoch` is the last that both may know, and ended at
    `leaders_end`. `end_offset_for` gives the largest epoch of the follower's log that is not above another, and its end.

    If the follower does not know that epoch either, what it has of later ones goes, and the next fetch tells more (KIP-279).
    """
    if leaders_end == UNDEFINED_OFFSET:
        return high_watermark
    own_epoch, own_end = end_offset_for(epoch)
    if own_epoch == UNDEFINED_EPOCH:
        return min(leaders_end, end_offset)
    if own_epoch != epoch:
        return min(own_end, end_offset)
    return min(own_end, leaders_end, end_offset)
