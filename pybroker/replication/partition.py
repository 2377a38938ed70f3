"""This broker's replica of one partition: what may be appended to it, and what may be read from it, in its present role.

Any thread. The role is one immutable `PartitionState`; it changes, and followers are taken account of, under the lock of the
partition, which comes before that of its log. Appends of clients take the log's lock only, under which the log knows the epoch
it is led in. Nothing under the lock waits for anything but the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Final

from pybroker.base.filesystem import Buffer
from pybroker.base.ids import Uuid
from pybroker.log.files import TopicPartition
from pybroker.log.log import NOT_PLAIN, Appended, Log
from pybroker.log.producer_entry import AppendOrigin
from pybroker.metadata.image import UNASSIGNED_DIRECTORY, BrokerState, PartitionState
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, FetchPartition, PartitionData
from pybroker.replication.fetcher import Position, truncation_offset
from pybroker.replication.isr import AdvanceHighWatermark, Effect, IsrProposal, IsrUpdated, Leadership, LogOffsets

NO_LIMIT: Final = 2**63 - 1
READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
ALL_IN_SYNC: Final = -1

_NO_RECORDS: Final = b""
_NO_LOCK: Final = nullcontext()


@dataclass(slots=True, frozen=True)
class Company:
    """What a partition has to know of the cluster: of the other brokers, and of this one's registration."""

    max_lag_ms: int = 30_000  # replica.lag.time.max.ms
    broker_of: Callable[[int], BrokerState | None] = lambda broker_id: None
    own_epoch: Callable[[], int] = lambda: -1
    monotonic_ms: Callable[[], int] = lambda: 0


NO_COMPANY: Final = Company()


class Partition:
    __slots__ = (
        "_company",
        "broker_id",
        "io_error",
        "is_alone",
        "is_leader",
        "leader_epoch",
        "leadership",
        "lock",
        "log",
        "state",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: Log,
        state: PartitionState,
        broker_id: int,
        company: Company = NO_COMPANY,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.broker_id = broker_id
        self.lock = threading.Lock()
        self.state = state
        self.leader_epoch = NO_EPOCH
        self.is_leader = False
        # Whether nobody else has to have what the leader appends.
        self.is_alone = False
        # One for each time that this replica came to lead, as long as it does.
        self.leadership: Leadership | None = None
        # Of the last `update`, for whoever called that to report.
        self.io_error: OSError | None = None
        self._company = company
        self.update(state)

    def update(self, state: PartitionState) -> list[Effect]:
        """The cluster's metadata gives this replica another role, or other company; what is left to do comes back."""
        with self.lock, self.log.lock:
            if state.leader_epoch < self.leader_epoch or (
                state.leader_epoch == self.leader_epoch and state.partition_epoch < self.state.partition_epoch
            ):
                return []
            self.state = state
            self.leader_epoch = state.leader_epoch
            if state.leader == self.broker_id:
                return self._lead(state)
            self.leadership = None
            self.is_leader = self.is_alone = False
            self.log.follow()
            return []

    def _lead(self, state: PartitionState) -> list[Effect]:
        log, now_ms = self.log, self._company.monotonic_ms()
        if len(state.replicas) > 1 and log.leader_epochs.latest_epoch != state.leader_epoch:
            # Though nothing is written in it yet: a follower with later records than ours, of epochs that we never saw, must
            # find it. Where there is no follower, the first append notes it.
            try:
                log.leader_epochs.assign(state.leader_epoch, log.log_end_offset)
            except OSError as error:
                # It leads all the same: the first append notes the epoch then, or is refused.
                self.io_error = error
        effects: list[Effect] = []
        if self.leadership is None:
            self.leadership = Leadership(
                str(self.topic_partition),
                self.broker_id,
                state,
                self._offsets(),
                now_ms,
                max_lag_ms=self._company.max_lag_ms,
                broker_of=self._company.broker_of,
                own_epoch=self._company.own_epoch,
            )
        else:
            effects = self.leadership.state_changed(now_ms, state, self._offsets())
        self.is_leader = True
        return self._settle(self.leadership, effects)

    @property
    def key(self) -> tuple[Uuid, int]:
        """What the controller knows it by."""
        return self.topic_id, self.topic_partition.partition

    @property
    def directory_id(self) -> Uuid:
        """The log directory in which the controller thinks this replica is."""
        return self.state.directory_of(self.broker_id) if self.state.directories else UNASSIGNED_DIRECTORY

    def retire(self) -> None:
        """This broker has no replica of it any more: whoever waits for it waits in vain."""
        with self.lock:
            self.lose()
            self.log.follow()

    def lose(self) -> None:
        """The disk failed under it. Under any lock, and with none."""
        self.leadership = None
        self.is_leader = self.is_alone = False

    def replace_log(self, log: Log) -> None:
        """`log` took the place of the one before. The caller holds the lock, and that of the log before."""
        with log.lock:
            log.set_high_watermark(self.log.high_watermark)
            self.log = log
            if self.is_leader:
                log.lead(self.leader_epoch, commits_at_once=self.is_alone)
            else:
                log.follow()

    # What a client may do here.

    def refusal(self, current_leader_epoch: int, *, only_leader: bool = True) -> ErrorCode:
        """NONE, if this is the leader, or need not be, and the client, which gives -1 where it does not know, speaks of the
        same epoch."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader or not only_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def appends_at_once(self) -> bool:
        """Whether an append does nothing but check, stamp and write: no forced flush, no recompression, no epoch to note."""
        log = self.log
        config = log.config
        return (
            log.leader_epochs.latest_epoch == self.leader_epoch and config.flush_messages == NO_LIMIT and config.codec is None
        )

    # The leader and its followers.

    def follower_fetched(
        self, leader_epoch: int, replica_id: int, replica_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> list[Effect]:
        """A follower asks for what comes at `fetch_offset`, which lies in this log and is where the two agreed in
        `leader_epoch`."""
        # An append that is under way must not be committed without one that comes to be waited for just now.
        with self.lock, self.log.lock if self.is_alone else _NO_LOCK:
            leadership = self.leadership
            # What was found out before the lock was ours may be over: of what the follower had in another epoch, or in
            # another life, it may have given up a part.
            if (
                leadership is None
                or leadership.leader_epoch != leader_epoch
                or leadership.refusal_of(replica_id, replica_epoch, names_leader_epoch=True)
            ):
                return []
            now_ms = self._company.monotonic_ms()
            effects = leadership.follower_fetched(
                now_ms, replica_id, replica_epoch, fetch_offset, log_start_offset, self._offsets()
            )
            return self._settle(leadership, effects)

    def follower_kept_up(self, asked: FetchPartition, replica_id: int, replica_epoch: int) -> bool | None:
        """`follower_fetched` in few steps, of one in sync that asks for what it needs next, as it does under load: whether
        more is committed now. None, with nothing done, if something else has to be looked at first."""
        epoch, offset = asked.current_leader_epoch, asked.fetch_offset
        if asked.last_fetched_epoch != epoch or self.is_alone:
            return None
        with self.lock:
            leadership, log = self.leadership, self.log
            end_offset = log.log_end_offset
            if (
                leadership is None
                or self.is_alone
                or epoch != leadership.leader_epoch
                or not log.is_led_in(epoch)
                or not log.log_start_offset <= offset <= end_offset
            ):
                return None
            committed = leadership.follower_kept_up(
                self._company.monotonic_ms(),
                replica_id,
                replica_epoch,
                offset,
                asked.log_start_offset,
                end_offset,
                log.config.min_insync_replicas,
            )
            if committed is None or committed <= log.high_watermark:
                return None if committed is None else False
            log.set_high_watermark(committed)
            return True

    def follower_waits(self, asked: FetchPartition, replica_id: int, replica_epoch: int) -> bool:
        """Whether one for which `follower_kept_up` was enough when it asked is still in sync, and may be sent what has come
        since then without a further look."""
        epoch, leadership, log = asked.current_leader_epoch, self.leadership, self.log
        return (
            leadership is not None
            and epoch == asked.last_fetched_epoch == leadership.leader_epoch
            and log.is_led_in(epoch)
            and log.log_start_offset <= asked.fetch_offset
            and leadership.is_in_sync(replica_id, replica_epoch)
        )

    def lag_checked(self) -> list[Effect]:
        with self.lock, self.log.lock:
            leadership = self.leadership
            if leadership is None:
                return []
            return self._settle(leadership, leadership.lag_checked(self._company.monotonic_ms(), self._offsets()))

    def proposal_answered(self, proposal: IsrProposal, answer: IsrUpdated | ErrorCode) -> list[Effect]:
        with self.lock, self.log.lock:
            leadership = self.leadership
            if leadership is None:
                return []
            effects = leadership.proposal_answered(self._company.monotonic_ms(), proposal, answer, self._offsets())
            if leadership.partition_epoch > self.state.partition_epoch:
                self.state = replace(self.state, isr=tuple(sorted(leadership.isr)), partition_epoch=leadership.partition_epoch)
            return self._settle(leadership, effects)

    def _offsets(self) -> LogOffsets:
        log = self.log
        return LogOffsets(log.log_end_offset, log.high_watermark, log.config.min_insync_replicas)

    def _settle(self, leadership: Leadership, effects: list[Effect]) -> list[Effect]:
        """Run those of the effects that are for the log; under the log's lock, unless the leader was and is not alone."""
        log = self.log
        for effect in effects:
            if isinstance(effect, AdvanceHighWatermark):
                log.set_high_watermark(effect.offset)
        if self.is_alone or leadership.is_alone or not log.is_led_in(self.leader_epoch):
            self.is_alone = leadership.is_alone
            log.lead(self.leader_epoch, commits_at_once=self.is_alone)
        return effects

    def committed(self, leadership: Leadership | None, offset: int) -> ErrorCode | None:
        """Whether everything before `offset`, appended under `leadership`, is on all that are in sync; None if not yet."""
        current = self.leadership
        if current is None or current is not leadership:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        log = self.log
        if log.high_watermark < offset:
            return None
        if len(current.maximal_isr) < current.needed(log.config.min_insync_replicas):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def low_watermark(self) -> int | None:
        """Below it everything is deleted on all replicas that live; None if this is not the leader."""
        leadership = self.leadership
        return None if leadership is None else leadership.low_watermark(self.log.log_start_offset)

    # The follower and its leader.

    def position(self) -> Position:
        log = self.log
        last_epoch = log.leader_epochs.latest_epoch
        return Position(log.log_start_offset, log.log_end_offset, NO_EPOCH if last_epoch is None else last_epoch)

    def follows_in(self, leader_epoch: int) -> bool:
        return not self.is_leader and self.leader_epoch == leader_epoch

    def append_fetched(self, leader_epoch: int, fetch_offset: int, data: PartitionData, now_ms: int) -> bool | None:
        """Append what the leader sent for `fetch_offset`; whether more is committed here now, None if it came too late."""
        with self.lock:
            log, records = self.log, data.records
            if not self.follows_in(leader_epoch) or log.log_end_offset != fetch_offset:
                return None
            if records:
                log.append_as_follower(records, now_ms, leader_epoch)
            # What was committed once stays so, even if a new leader does not know it yet.
            high_watermark = min(data.high_watermark, log.log_end_offset)
            is_advanced = high_watermark > log.high_watermark
            if is_advanced:
                log.set_high_watermark(high_watermark)
            if data.log_start_offset > log.log_start_offset:
                log.advance_log_start_offset(min(data.log_start_offset, log.high_watermark))
            return is_advanced

    def truncation_offset(self, epoch: int, leaders_end: int) -> int:
        log = self.log
        end_offset = log.log_end_offset
        return truncation_offset(
            lambda wanted: log.leader_epochs.end_offset_for(wanted, end_offset),
            end_offset,
            log.high_watermark,
            epoch,
            leaders_end,
        )

    # Appending.

    def append(
        self,
        records: Buffer,
        required_acks: int,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = -1,
        verification_guard: int = 0,
    ) -> Appended:
        """Append a batch as the leader; KafkaError if this is none, or too few replicas are in sync for acks=all."""
        while True:
            leadership = self.leadership
            if leadership is None:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"Broker {self.broker_id} does not lead {self.topic_partition}; its leader is {self.state.leader}.",
                )
            log, leader_epoch = self.log, leadership.leader_epoch
            if required_acks == ALL_IN_SYNC:
                needed = leadership.needed(log.config.min_insync_replicas)
                if len(leadership.isr) < needed:
                    raise KafkaError(
                        ErrorCode.NOT_ENOUGH_REPLICAS,
                        f"{self.topic_partition} has {len(leadership.isr)} replicas in sync; acks=all needs {needed} "
                        "(min.insync.replicas).",
                    )
            try:
                return log.append_as_leader(
                    records,
                    leader_epoch,
                    now_ms,
                    origin=origin,
                    transaction_version=transaction_version,
                    verification_guard=verification_guard,
                    commits=True,
                )
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or leadership.leader_epoch == leader_epoch:
                    raise
                # It leads on, in an epoch that began meanwhile. To refuse this batch and then take those that its producer
                # has sent behind it would look like a gap to both.

    def start_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, supports_epoch_bump: bool) -> int:
        """The guard for a batch whose transaction the coordinator is asked about, NO_GUARD if that is open here already;
        KafkaError if the epoch is an old one."""
        log = self.log
        with log.lock:
            return log.producers.start_verification(
                producer_id, sequence, epoch, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
            )

    def append_plain(self, data: memoryview, required_acks: int, now_ms: int, *, is_transactional: bool = False) -> int:
        """The first offset of a batch for which `Log.append_plain` is enough, else NOT_PLAIN."""
        if not self.is_alone or (required_acks == ALL_IN_SYNC and len(self.state.replicas) > 1):
            return NOT_PLAIN
        return self.log.append_plain(data, self.leader_epoch, now_ms, is_transactional=is_transactional)

    # Reading.

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        is_committed_only: bool,
        must_give_one: bool,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        only_leader: bool = True,
        is_follower: bool = False,
    ) -> PartitionData:
        """What a consumer gets from `fetch_offset` on, or a follower; an error is in the answer. OSError if the disk fails."""
        refusal = self.refusal(current_leader_epoch, only_leader=only_leader)
        if refusal:
            return self.error_data(refusal)
        log = self.log
        high_watermark = log.high_watermark
        stable_offset = log.last_stable_offset
        if last_fetched_epoch >= 0:
            epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
            if epoch < 0 or fetch_offset < log.log_start_offset:
                return self.error_data(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < last_fetched_epoch or end_offset < fetch_offset:
                data = self.data(high_watermark, stable_offset)
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                return data
        if is_follower:
            upper = None
        else:
            upper = stable_offset if is_committed_only else high_watermark
        try:
            fetched = log.read(fetch_offset, max_bytes, upper=upper, min_one=must_give_one)
        except KafkaError as error:
            return self.error_data(error.code)
        data = self.data(high_watermark, stable_offset)
        if fetched.slice is not None:
            data.records = fetched.slice
        if is_committed_only:
            upper = min(fetched.end_offset, stable_offset)
            data.aborted_transactions = self._aborted(fetch_offset, upper) if fetched.slice is not None else []
        return data

    def data(self, high_watermark: int, stable_offset: int) -> PartitionData:
        """An answer without records."""
        return PartitionData(
            partition_index=self.topic_partition.partition,
            error_code=0,
            high_watermark=high_watermark,
            last_stable_offset=stable_offset,
            log_start_offset=self.log.log_start_offset,
            aborted_transactions=None,
            records=_NO_RECORDS,
        )

    def _aborted(self, fetch_offset: int, upper: int) -> list[AbortedTransaction]:
        """Those that lie in what is sent. One too many does no harm: a consumer drops by offset."""
        return [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in self.log.aborted_transactions(fetch_offset, upper)
        ]

    def error_data(self, code: ErrorCode) -> PartitionData:
        data = error_data(self.topic_partition.partition, code)
        data.aborted_transactions = None
        return data

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and where it ended here; the leader's own goes on to the end of the log."""
        log = self.log
        if epoch == self.leader_epoch and self.is_leader:
            return epoch, log.log_end_offset
        return log.leader_epochs.end_offset_for(epoch, log.log_end_offset)


def error_data(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[],
        records=_NO_RECORDS,
    )
