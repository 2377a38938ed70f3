"""Fetch (1): record batches to consumers and followers, as slices of files that the network thread sends from the page cache.

Answered at once if there are enough bytes, an error, or no time to wait; otherwise the fetch waits in the purgatory, under
each of its partitions, and is answered by whichever thread brings the bytes, or by the timer. A follower's fetch says how much
it has: that is taken in once, when the request comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pybroker.base.ids import Uuid
from pybroker.base.purgatory import DelayedOperation
from pybroker.log.files import TopicPartition
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, LeaderIdAndEpoch, PartitionData
from pybroker.replication.fetch_sessions import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    INITIAL_EPOCH,
    FetchContext,
    FetchSessions,
    Result,
    WantedPartition,
)
from pybroker.replication.isr import Leadership
from pybroker.replication.partition import NO_EPOCH, READ_COMMITTED, Partition, error_data
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.dispatch import WOULD_BLOCK, Answer

FROM_FOLLOWERS_FROM: Final = 11  # KIP-392
REPLICA_STATE_FROM: Final = 15
TELLS_LEADER_FROM: Final = 16  # KIP-951
NO_MORE_BYTES: Final = 0
# What lies in files takes no memory on its way out, and brokers are few: an answer to a follower goes out in one turn, where
# the system allows for that.
FOLLOWER_ROOM_BYTES: Final = 1024 * 1024
LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Limits(NamedTuple):
    min_bytes: int
    max_bytes: int
    is_committed_only: bool
    by_id: bool
    tells_leader: bool
    replica_id: int  # -1: a consumer
    replica_epoch: int
    only_leader: bool
    rack: str


class FetchHandlers:
    def __init__(
        self,
        replicas: ReplicaManager,
        sessions: FetchSessions,
        *,
        max_bytes: Callable[[], int],
        monotonic_ms: Callable[[], int],
        makes_room: bool = True,
    ) -> None:
        """`max_bytes` is what the broker sends at most in an answer; `monotonic_ms` the clock of the purgatory's timer;
        without `makes_room` the send buffers of followers, too, are left to the system."""
        self._replicas = replicas
        self._sessions = sessions
        self._max_bytes = max_bytes
        self._monotonic_ms = monotonic_ms
        self._makes_room = makes_room

    def handle_fetch(self, request: Request, message: FetchRequest) -> Answer:
        version = request.version
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        if not request.may_block and not self._is_hot(message, by_id):
            return WOULD_BLOCK
        replica_id, replica_epoch = message.replica_id, NO_EPOCH
        if version >= REPLICA_STATE_FROM and message.replica_state is not None:
            replica_id, replica_epoch = message.replica_state.replica_id, message.replica_state.replica_epoch
        is_follower = replica_id >= 0
        now_ms = self._monotonic_ms()
        if is_follower and message.session_epoch <= INITIAL_EPOCH and self._makes_room:
            request.make_room(FOLLOWER_ROOM_BYTES)
        context = self._sessions.context_for(message, version, self._name_of, now_ms, is_follower=is_follower)
        if context.error_code:
            return context.response((), now_ms)
        max_bytes = min(message.max_bytes, self._max_bytes())
        limits = Limits(
            min_bytes=min(message.min_bytes, max_bytes),
            max_bytes=max_bytes,
            is_committed_only=message.isolation_level == READ_COMMITTED,
            by_id=by_id,
            tells_leader=version >= TELLS_LEADER_FROM,
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            only_leader=is_follower or version < FROM_FOLLOWERS_FROM,
            rack=message.rack_id,
        )
        if is_follower and context.is_incremental:
            results, size, is_final = self.serve_follower(context.partitions, limits, is_new=True)
        else:
            results, size, is_final = self.read(context.partitions, limits, is_new=True)
        if is_final or size >= limits.min_bytes or message.max_wait_ms <= 0 or not context.partitions:
            self._count(results, limits)
            return context.response(results, now_ms)
        delayed: DelayedFetch = (DelayedFollowerFetch if is_follower else DelayedFetch)(self, request, context, limits)
        keys = []
        for wanted in context.partitions:
            partition = self._partition(wanted, by_id)
            if isinstance(partition, Partition):
                delayed.add(partition, wanted.request)
                keys.append(partition.topic_partition)
        replicas = self._replicas
        purgatory = replicas.follower_fetches if is_follower else replicas.fetches
        purgatory.watch(delayed, keys, now_ms + message.max_wait_ms)
        return None

    def read(
        self, wanted_partitions: Sequence[WantedPartition], limits: Limits, *, is_new: bool = False
    ) -> tuple[list[Result], int, bool]:
        """What there is for each, how many bytes in all, and whether waiting for more makes no sense. `is_new`: the request
        has just come."""
        results = []
        remaining = limits.max_bytes
        size = 0
        is_final = False
        for wanted in wanted_partitions:
            data = self._read_one(wanted, limits, remaining, must_give_one=not size, is_new=is_new)
            results.append((wanted, data))
            if data.error_code or data.diverging_epoch is not None or data.preferred_read_replica >= 0:
                is_final = True
            found = len(data.records)
            if found:
                size += found
                remaining = max(NO_MORE_BYTES, remaining - found)
        return results, size, is_final

    def serve_follower(
        self, wanted_partitions: Sequence[WantedPartition], limits: Limits, *, is_new: bool
    ) -> tuple[list[Result], int, bool]:
        """`read` for a request that goes on with a follower's session: what has not changed is left out. A partition that is
        fetched as all are under load takes few steps, any other those of `read`."""
        replicas, replica_id, replica_epoch = self._replicas, limits.replica_id, limits.replica_epoch
        topics = replicas.topics_by_id
        results = []
        remaining = limits.max_bytes
        size = 0
        is_final = False
        for wanted in wanted_partitions:
            asked = wanted.request
            hosted = topics.get(wanted.topic_id)
            partition = None if hosted is None else hosted.partitions.get(wanted.index)
            is_as_usual = False
            if partition is None:
                pass
            elif not is_new:
                is_as_usual = partition.follower_waits(asked, replica_id, replica_epoch)
            elif (is_advanced := partition.follower_kept_up(asked, replica_id, replica_epoch)) is not None:
                is_as_usual = True
                replicas.follower_seen(partition, is_advanced=is_advanced)
            data: PartitionData | None = None
            if partition is not None and is_as_usual:
                log = partition.log
                high_watermark = log.high_watermark
                if log.log_end_offset == asked.fetch_offset:
                    if wanted.is_told(high_watermark, log.log_start_offset):
                        continue
                    data = partition.data(high_watermark, log.last_stable_offset)
                else:
                    tail = log.tail(asked.fetch_offset, min(asked.partition_max_bytes, remaining))
                    if tail is not None:
                        data = partition.data(high_watermark, log.last_stable_offset)
                        data.records = tail
            if data is None:
                is_unseen = is_new and not is_as_usual
                data = self._read_one(wanted, limits, remaining, must_give_one=not size, is_new=is_unseen)
                if data.error_code or data.diverging_epoch is not None:
                    is_final = True
            results.append((wanted, data))
            found = len(data.records)
            size += found
            remaining = max(NO_MORE_BYTES, remaining - found)
        return results, size, is_final

    def _read_one(
        self, wanted: WantedPartition, limits: Limits, remaining: int, *, must_give_one: bool, is_new: bool
    ) -> PartitionData:
        partition = self._partition(wanted, limits.by_id)
        if isinstance(partition, ErrorCode):
            return error_data(wanted.index, partition)
        asked = wanted.request
        if limits.replica_id >= 0:
            data = self._read_for_follower(partition, asked, limits, remaining, must_give_one=must_give_one, is_new=is_new)
        else:
            data = self._read_for_consumer(partition, asked, limits, remaining, must_give_one=must_give_one)
        if limits.tells_leader and data.error_code in LEADER_ERRORS:
            state = partition.state
            data.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
        return data

    def _read_for_consumer(
        self, partition: Partition, asked: FetchPartition, limits: Limits, remaining: int, *, must_give_one: bool
    ) -> PartitionData:
        if limits.rack and not partition.refusal(max(NO_EPOCH, asked.current_leader_epoch)):
            preferred = self._replicas.preferred_replica(partition, limits.rack, asked.fetch_offset)
            if preferred is not None:
                log = partition.log
                data = partition.data(log.high_watermark, log.last_stable_offset)
                data.preferred_read_replica = preferred
                return data
        return self._read(partition, asked, limits, remaining, must_give_one=must_give_one)

    def _read_for_follower(
        self,
        partition: Partition,
        asked: FetchPartition,
        limits: Limits,
        remaining: int,
        *,
        must_give_one: bool,
        is_new: bool,
    ) -> PartitionData:
        replicas, replica_id, replica_epoch = self._replicas, limits.replica_id, limits.replica_epoch
        # Before anything is checked: what is found below counts in this epoch only.
        leader_epoch = partition.leader_epoch
        leadership = partition.leadership
        if leadership is not None and not partition.refusal(asked.current_leader_epoch):
            refusal = leadership.refusal_of(replica_id, replica_epoch, names_leader_epoch=asked.current_leader_epoch >= 0)
            if refusal:
                return partition.error_data(refusal)
        is_held_back = replicas.holds_back(partition, replica_id)
        data = self._read(
            partition, asked, limits, 0 if is_held_back else remaining, must_give_one=must_give_one and not is_held_back
        )
        if is_new and not data.error_code and data.diverging_epoch is None:
            replicas.follower_fetched(
                partition, leader_epoch, replica_id, replica_epoch, asked.fetch_offset, asked.log_start_offset
            )
            data.high_watermark = partition.log.high_watermark
        return data

    def _read(
        self, partition: Partition, asked: FetchPartition, limits: Limits, remaining: int, *, must_give_one: bool
    ) -> PartitionData:
        try:
            return partition.read(
                asked.fetch_offset,
                min(asked.partition_max_bytes, remaining),
                is_committed_only=limits.is_committed_only,
                must_give_one=must_give_one,
                # Any negative one means that the client does not know.
                current_leader_epoch=max(NO_EPOCH, asked.current_leader_epoch),
                last_fetched_epoch=asked.last_fetched_epoch,
                only_leader=limits.only_leader,
                is_follower=limits.replica_id >= 0,
            )
        except OSError as error:
            return partition.error_data(self._replicas.storage_error(partition, error, "a read").code)

    def _partition(self, wanted: WantedPartition, by_id: bool) -> Partition | ErrorCode:
        replicas = self._replicas
        if by_id:
            hosted = replicas.topics_by_id.get(wanted.topic_id)
            # A topic that the session once knew by its name is told from one that never was.
            if hosted is None and wanted.topic is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        else:
            hosted = replicas.topics.get(wanted.topic or "")
        return replicas.partition_or_error(hosted, wanted.index)

    def _name_of(self, topic_id: Uuid) -> str | None:
        hosted = self._replicas.topics_by_id.get(topic_id)
        return None if hosted is None else hosted.name

    def _is_hot(self, message: FetchRequest, by_id: bool) -> bool:
        """Whether all that the request asks for lies in segments that are being written, so that no read goes to the disk. Of
        what its session remembers, and it names anew, the former offset counts too: that is the worse one, and only once."""
        replicas = self._replicas
        for topic in message.topics:
            hosted = replicas.topics_by_id.get(topic.topic_id) if by_id else replicas.topics.get(topic.topic)
            if hosted is not None:
                for asked in topic.partitions:
                    partition = hosted.partitions.get(asked.partition)
                    if partition is not None and asked.fetch_offset < partition.log.segments[-1].base_offset:
                        return False
        for wanted in self._sessions.remembered(message):
            hosted = replicas.topics_by_id.get(wanted.topic_id) if by_id else replicas.topics.get(wanted.topic or "")
            if hosted is not None:
                partition = hosted.partitions.get(wanted.index)
                if partition is not None and wanted.request.fetch_offset < partition.log.segments[-1].base_offset:
                    return False
        return True

    def answer(self, request: Request, context: FetchContext, results: list[Result], limits: Limits) -> None:
        self._count(results, limits)
        request.respond(context.response(results, self._monotonic_ms()))

    def _count(self, results: list[Result], limits: Limits) -> None:
        """What goes out to a follower counts for the throttle."""
        throttle = self._replicas.leader_throttle
        if limits.replica_id >= 0 and throttle.is_limited:
            for wanted, data in results:
                if data.records and wanted.topic is not None:
                    throttle.record(TopicPartition(wanted.topic, wanted.index), len(data.records))


class DelayedFetch(DelayedOperation):
    """A fetch that waits for min_bytes, or for max_wait_ms to pass."""

    __slots__ = ("_context", "_handlers", "_limits", "_request")

    def __init__(self, handlers: FetchHandlers, request: Request, context: FetchContext, limits: Limits) -> None:
        self._handlers = handlers
        self._request = request
        self._context = context
        self._limits = limits

    def add(self, partition: Partition, asked: FetchPartition) -> None:
        """It is watched under this partition."""

    def try_complete(self) -> bool:
        results, size, is_final = self._look()
        if size < self._limits.min_bytes and not is_final:
            return False
        self._handlers.answer(self._request, self._context, results, self._limits)
        return True

    def _look(self) -> tuple[list[Result], int, bool]:
        return self._handlers.read(self._context.partitions, self._limits)

    def on_expire(self) -> None:
        results, _, _ = self._look()
        self._handlers.answer(self._request, self._context, results, self._limits)


class DelayedFollowerFetch(DelayedFetch):
    """A follower's: most of the times that it is looked at nothing has happened that would end it, which is found out first."""

    __slots__ = ("_seen",)

    def __init__(self, handlers: FetchHandlers, request: Request, context: FetchContext, limits: Limits) -> None:
        super().__init__(handlers, request, context, limits)
        self._seen: list[tuple[Partition, Leadership | None, int, int]] = []

    def add(self, partition: Partition, asked: FetchPartition) -> None:
        self._seen.append((partition, partition.leadership, partition.leader_epoch, asked.fetch_offset))

    def try_complete(self) -> bool:
        for partition, leadership, leader_epoch, offset in self._seen:
            # In another epoch, or if this broker does not lead any more, there is an error to be told.
            if (
                partition.log.log_end_offset != offset
                or partition.leader_epoch != leader_epoch
                or partition.leadership is not leadership
            ):
                return super().try_complete()
        return False

    def _look(self) -> tuple[list[Result], int, bool]:
        if not self._context.is_incremental:
            return super()._look()
        return self._handlers.serve_follower(self._context.partitions, self._limits, is_new=False)
