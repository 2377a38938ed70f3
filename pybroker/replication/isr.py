"""The leader's view of one partition: how far its followers have come, who is in sync, and how much of the log that commits.

Pure: what happened comes in with the time and the offsets of the log, effects come out, to be run in order. The replica that
leads steps it under its lock. What holds throughout: nothing is committed that a member of the maximal ISR does not have. That
is the ISR as the controller last gave it, and whoever the controller is just asked to add (KIP-497): it may have been added
already. One whose removal is asked for counts until the answer is here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pybroker.metadata.image import BrokerState, LeaderRecoveryState, PartitionState
from pybroker.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

NO_OFFSET: Final = -1
NO_BROKER_EPOCH: Final = -1
NEVER_MS: Final = -(2**62)

# The controller says that the partition is as we think, and that it did nothing.
NOT_DONE: Final = frozenset((ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA))
# The partition has moved on, and whether by our doing is not known: its new state is on its way in the metadata log.
OVERTAKEN: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)


class LogOffsets(NamedTuple):
    """What counts of the leader's log when something happens."""

    end_offset: int
    high_watermark: int
    min_insync_replicas: int


@dataclass(slots=True, frozen=True, eq=False)
class IsrProposal:
    """An ISR that the controller is asked for. An answer counts for the very proposal that it was made to."""

    isr: tuple[tuple[int, int], ...]  # broker ids and epochs
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED


class IsrUpdated(NamedTuple):
    """What the controller made of a proposal."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int


class AdvanceHighWatermark(NamedTuple):
    offset: int


class ProposeIsr(NamedTuple):
    proposal: IsrProposal


Effect = AdvanceHighWatermark | ProposeIsr
BrokerOf = Callable[[int], BrokerState | None]


class Follower:
    """What is known of another replica by its fetches: an offset that it asks for says that it has all before."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "leader_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.fetched_ms = NEVER_MS
        self.leader_end_offset = NO_OFFSET  # when it fetched last
        # The latest time at which it had everything that the leader had.
        self.caught_up_ms = caught_up_ms

    def fetched(self, now_ms: int, fetch_offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int) -> None:
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif fetch_offset >= self.leader_end_offset >= 0:
            # Under steady appends it never has all, but it has what there was a fetch ago.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_end_offset = max(self.leader_end_offset, leader_end_offset)

    def new_epoch(self, now_ms: int, leader_end_offset: int, *, is_in_sync: bool) -> None:
        """The same leader leads in another epoch. There may have been a leader in between that it never heard of, and for which
        the follower has cut its log back: how far that one is, only its next fetch tells."""
        self.end_offset = NO_OFFSET
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = self.caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= max_lag_ms


class Leadership:
    def __init__(
        self,
        name: str,
        broker_id: int,
        state: PartitionState,
        offsets: LogOffsets,
        now_ms: int,
        *,
        max_lag_ms: int,
        broker_of: BrokerOf,
        own_epoch: Callable[[], int],
    ) -> None:
        """`name` is for messages; `max_lag_ms` is replica.lag.time.max.ms; `broker_of` gives a broker as the cluster's metadata
        has it, `own_epoch` the epoch of this one."""
        self._name = name
        self._broker_id = broker_id
        self._max_lag_ms = max_lag_ms
        self._broker_of = broker_of
        self._own_epoch = own_epoch
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.epoch_start_offset = offsets.end_offset
        self.replicas = state.replicas
        self.isr = frozenset(state.isr)
        self.maximal_isr = self.isr
        self.pending: IsrProposal | None = None
        self.followers = {
            replica: Follower(replica, now_ms if replica in self.isr else NEVER_MS)
            for replica in state.replicas
            if replica != broker_id
        }
        # Whether the leader alone decides what is committed: everything that it appends.
        self.is_alone = False
        self._commits(now_ms, offsets.end_offset, offsets.min_insync_replicas)

    # What happens.

    def state_changed(self, now_ms: int, state: PartitionState, offsets: LogOffsets) -> list[Effect]:
        """The cluster's metadata has another state of the partition, in which this replica leads on."""
        if state.partition_epoch <= self.partition_epoch and state.leader_epoch <= self.leader_epoch:
            return []  # known already, by an answer of the controller; what was proposed since then stays under way
        if state.leader_epoch > self.leader_epoch:
            self.leader_epoch = state.leader_epoch
            self.epoch_start_offset = offsets.end_offset
            for follower in self.followers.values():
                follower.new_epoch(now_ms, offsets.end_offset, is_in_sync=follower.broker_id in state.isr)
        self.replicas = state.replicas
        self.followers = {
            replica: self.followers.get(replica) or Follower(replica, NEVER_MS)
            for replica in state.replicas
            if replica != self._broker_id
        }
        self._committed(state.isr, state.partition_epoch)
        return self._advanced(now_ms, offsets)

    def refusal_of(self, replica_id: int, replica_epoch: int, *, names_leader_epoch: bool) -> ErrorCode:
        """NONE, if `replica_id` may fetch as a follower."""
        if replica_id not in self.followers:
            # It may know of an assignment that we have not heard of yet.
            return ErrorCode.UNKNOWN_LEADER_EPOCH if names_leader_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker = self._broker_of(replica_id)
        if replica_epoch != NO_BROKER_EPOCH and broker is not None and broker.epoch > replica_epoch:
            # It has been restarted since: what it had then, it may not have now.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def follower_fetched(
        self,
        now_ms: int,
        replica_id: int,
        replica_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        offsets: LogOffsets,
    ) -> list[Effect]:
        """A follower without refusal asked for what comes at `fetch_offset`, which lies in the leader's log."""
        follower = self.followers[replica_id]
        before = follower.end_offset
        follower.fetched(now_ms, fetch_offset, log_start_offset, replica_epoch, offsets.end_offset)
        effects: list[Effect] = []
        if replica_id not in self.isr and self.pending is None and self._may_join(follower, offsets):
            logger.info("%s: broker %d has caught up at offset %d", self._name, replica_id, fetch_offset)
            effects.append(self._propose(self.isr | {replica_id}))
        if fetch_offset != before or effects:
            effects += self._advanced(now_ms, offsets)
        return effects

    def follower_kept_up(
        self,
        now_ms: int,
        replica_id: int,
        replica_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        end_offset: int,
        min_insync_replicas: int,
    ) -> int | None:
        """`follower_fetched` in few steps, of one in sync, while nothing is proposed: up to where everything is committed now.
        None, with nothing done, if it is another case."""
        follower = self.followers.get(replica_id)
        if follower is None or self.pending is not None or not self.is_in_sync(replica_id, replica_epoch):
            return None
        follower.fetched(now_ms, fetch_offset, log_start_offset, replica_epoch, end_offset)
        return self._commits(now_ms, end_offset, min_insync_replicas)

    def is_in_sync(self, replica_id: int, replica_epoch: int) -> bool:
        """Whether the follower is, in this very life of its broker."""
        broker = self._broker_of(replica_id)
        return broker is not None and broker.epoch == replica_epoch and replica_id in self.isr

    def lag_checked(self, now_ms: int, offsets: LogOffsets) -> list[Effect]:
        """Now and then: followers that have not caught up for too long leave the ISR."""
        effects: list[Effect] = []
        lagging = self._lagging(now_ms, offsets.end_offset) if self.pending is None else ()
        if lagging:
            logger.info(
                "%s: out of sync are %s; the leader has %d to %d",
                self._name,
                ", ".join(f"broker {one.broker_id} at {one.end_offset}" for one in lagging),
                offsets.high_watermark,
                offsets.end_offset,
            )
            effects.append(self._propose(self.isr - {follower.broker_id for follower in lagging}))
        return effects + self._advanced(now_ms, offsets)

    def proposal_answered(
        self, now_ms: int, proposal: IsrProposal, answer: IsrUpdated | ErrorCode, offsets: LogOffsets
    ) -> list[Effect]:
        if self.pending is not proposal:
            return []  # the metadata log was faster
        if isinstance(answer, IsrUpdated):
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return []  # what came of it is on its way in the metadata log
            self._committed(answer.isr, answer.partition_epoch)
            logger.info("%s: in sync are %s", self._name, sorted(self.isr))
            return self._advanced(now_ms, offsets)
        if answer in NOT_DONE:
            logger.info("%s: the controller refused the ISR %s: %s", self._name, proposal.isr, answer.name)
            self.pending = None
            self.maximal_isr = self.isr
            return self._advanced(now_ms, offsets)
        if answer in OVERTAKEN:
            logger.info("%s: %s to the ISR %s; new metadata is to come", self._name, answer.name, proposal.isr)
            return []
        logger.warning("%s: %s to the ISR %s; asking again", self._name, answer.name, proposal.isr)
        return [ProposeIsr(proposal)]

    # What follows.

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        return len(self.isr) < min_insync_replicas and len(self.isr) < self.needed(min_insync_replicas)

    def needed(self, min_insync_replicas: int) -> int:
        """More than there are cannot be asked for (KIP-966)."""
        return min(min_insync_replicas, len(self.followers) + 1)

    def low_watermark(self, log_start_offset: int) -> int:
        """What is below it is deleted on every replica that lives."""
        starts = [
            follower.log_start_offset
            for follower in self.followers.values()
            if (broker := self._broker_of(follower.broker_id)) is not None and not broker.fenced
        ]
        return min(log_start_offset, *starts) if starts else log_start_offset

    def _committed(self, isr: Iterable[int], partition_epoch: int) -> None:
        self.partition_epoch = partition_epoch
        self.isr = self.maximal_isr = frozenset(isr)
        self.pending = None

    def _propose(self, isr: Iterable[int]) -> ProposeIsr:
        members = tuple((broker, self._epoch_of(broker)) for broker in sorted(isr))
        self.pending = IsrProposal(members, self.leader_epoch, self.partition_epoch)
        self.maximal_isr = self.isr.union(isr)
        return ProposeIsr(self.pending)

    def _epoch_of(self, broker: int) -> int:
        """One that has not fetched yet has no epoch here: if it crashed meanwhile, the partition epoch tells."""
        return self._own_epoch() if broker == self._broker_id else self.followers[broker].broker_epoch

    def _may_join(self, follower: Follower, offsets: LogOffsets) -> bool:
        """It has all that is committed, also what was under the leaders before, and the controller would take it."""
        end_offset = follower.end_offset
        return end_offset >= offsets.high_watermark and end_offset >= self.epoch_start_offset and self._is_eligible(follower)

    def _is_eligible(self, follower: Follower) -> bool:
        broker = self._broker_of(follower.broker_id)
        return (
            broker is not None and broker.is_active and follower.broker_epoch in (NO_BROKER_EPOCH, broker.epoch)
        ) and follower.end_offset != NO_OFFSET

    def _lagging(self, now_ms: int, end_offset: int) -> list[Follower]:
        return [
            follower
            for follower in self.followers.values()
            if follower.broker_id in self.isr and not follower.is_caught_up(end_offset, now_ms, self._max_lag_ms)
        ]

    def _holds_back(self, follower: Follower, now_ms: int, end_offset: int) -> bool:
        """Whether nothing is committed that it does not have: it is in sync, or about to be, and would never get there if
        the leader ran away from it."""
        return follower.broker_id in self.maximal_isr or (
            follower.is_caught_up(end_offset, now_ms, self._max_lag_ms) and self._is_eligible(follower)
        )

    def _advanced(self, now_ms: int, offsets: LogOffsets) -> list[Effect]:
        committed = self._commits(now_ms, offsets.end_offset, offsets.min_insync_replicas)
        return [AdvanceHighWatermark(committed)] if committed > offsets.high_watermark else []

    def _commits(self, now_ms: int, end_offset: int, min_insync_replicas: int) -> int:
        """Up to where everything is on all that count, and whether that is the leader alone; NO_OFFSET if they are too few."""
        self.is_alone = False
        if self.is_under_min_isr(min_insync_replicas):
            return NO_OFFSET
        committed = end_offset
        is_alone = True
        for follower in self.followers.values():
            if self._holds_back(follower, now_ms, end_offset):
                is_alone = False
                if follower.end_offset < committed:
                    committed = follower.end_offset
        self.is_alone = is_alone
        return committed
