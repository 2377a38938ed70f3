"""What the leader of a partition concludes from what its followers ask for."""

from __future__ import annotations

from pybroker.base.ids import ZERO_UUID
from pybroker.metadata.image import BrokerState, PartitionState
from pybroker.protocol.errors import ErrorCode
from pybroker.replication.isr import (
    AdvanceHighWatermark,
    Effect,
    IsrProposal,
    IsrUpdated,
    Leadership,
    LogOffsets,
    ProposeIsr,
)

MAX_LAG_MS = 1000
EPOCHS = {1: 10, 2: 20, 3: 30}


class Leader:
    """Broker 1, with a log of which only the offsets matter."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), *, min_insync: int = 1, end: int = 0, committed: int = 0) -> None:
        self.now_ms = 0
        self.end, self.committed, self.min_insync = end, committed, min_insync
        self.brokers = {id: BrokerState(id, epoch, ZERO_UUID, fenced=False) for id, epoch in EPOCHS.items()}
        self.state = PartitionState(replicas=(1, 2, 3), isr=isr, leader=1, leader_epoch=5, partition_epoch=7)
        self.leadership = Leadership(
            "orders-0",
            1,
            self.state,
            self.offsets,
            0,
            max_lag_ms=MAX_LAG_MS,
            broker_of=self.brokers.get,
            own_epoch=lambda: EPOCHS[1],
        )

    @property
    def offsets(self) -> LogOffsets:
        return LogOffsets(self.end, self.committed, self.min_insync)

    def run(self, effects: list[Effect]) -> list[IsrProposal]:
        for effect in effects:
            if isinstance(effect, AdvanceHighWatermark):
                assert effect.offset > self.committed
                self.committed = effect.offset
        return [effect.proposal for effect in effects if isinstance(effect, ProposeIsr)]

    def fetch(self, replica: int, offset: int, epoch: int | None = None) -> list[IsrProposal]:
        broker_epoch = EPOCHS[replica] if epoch is None else epoch
        return self.run(self.leadership.follower_fetched(self.now_ms, replica, broker_epoch, offset, 0, self.offsets))

    def check_lag(self) -> list[IsrProposal]:
        return self.run(self.leadership.lag_checked(self.now_ms, self.offsets))

    def answer(self, proposal: IsrProposal, answer: IsrUpdated | ErrorCode) -> list[IsrProposal]:
        return self.run(self.leadership.proposal_answered(self.now_ms, proposal, answer, self.offsets))

    def accept(self, proposal: IsrProposal) -> None:
        isr = tuple(broker for broker, _ in proposal.isr)
        assert not self.answer(proposal, IsrUpdated(isr, proposal.leader_epoch, proposal.partition_epoch + 1, 0))


def test_the_high_watermark_is_what_all_in_sync_have() -> None:
    leader = Leader(end=10)
    leader.fetch(2, 10)
    assert leader.committed == 0
    leader.fetch(3, 4)
    assert leader.committed == 4
    leader.fetch(3, 10)
    assert leader.committed == 10


def test_who_steadily_fetches_what_was_there_a_fetch_ago_is_in_sync() -> None:
    leader = Leader(end=10)
    for second in range(1, 10):
        leader.now_ms = second * MAX_LAG_MS // 2
        leader.fetch(2, 10 * second)
        leader.fetch(3, 0)
        leader.end += 10
    proposals = leader.check_lag()
    assert [proposal.isr for proposal in proposals] == [((1, 10), (2, 20))]


def test_who_has_everything_is_in_sync_however_long_ago_it_asked() -> None:
    leader = Leader(end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.now_ms = 100 * MAX_LAG_MS
    assert leader.check_lag() == []
    leader.end = 11
    assert [proposal.isr for proposal in leader.check_lag()] == [((1, 10),)]


def test_to_join_a_follower_needs_what_is_committed_and_the_start_of_the_epoch() -> None:
    leader = Leader(isr=(1, 2), end=10, committed=4)
    assert leader.leadership.epoch_start_offset == 10
    assert leader.fetch(3, 4) == []  # what the last leader committed may reach up to 10
    proposals = leader.fetch(3, 10)
    assert [(one.isr, one.leader_epoch, one.partition_epoch) for one in proposals] == [(((1, 10), (2, -1), (3, 30)), 5, 7)]
    assert leader.fetch(3, 10) == []  # one proposal at a time


def test_a_broker_that_is_fenced_or_leaves_or_was_restarted_does_not_join() -> None:
    leader = Leader(isr=(1, 2))
    leader.brokers[3] = BrokerState(3, 30, ZERO_UUID, fenced=True)
    assert leader.fetch(3, 0) == []
    leader.brokers[3] = BrokerState(3, 30, ZERO_UUID, fenced=False, in_controlled_shutdown=True)
    assert leader.fetch(3, 0) == []
    leader.brokers[3] = BrokerState(3, 29, ZERO_UUID, fenced=False)  # our metadata is behind
    assert leader.fetch(3, 0) == []
    leader.brokers[3] = BrokerState(3, 30, ZERO_UUID, fenced=False)
    assert len(leader.fetch(3, 0)) == 1


def test_a_stranger_and_a_former_self_are_refused() -> None:
    leadership = Leader().leadership
    assert leadership.refusal_of(4, 40, names_leader_epoch=True) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leadership.refusal_of(4, 40, names_leader_epoch=False) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leadership.refusal_of(2, 19, names_leader_epoch=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leadership.refusal_of(2, 20, names_leader_epoch=True) is ErrorCode.NONE
    assert leadership.refusal_of(2, -1, names_leader_epoch=True) is ErrorCode.NONE


def test_under_the_minimum_nothing_is_committed() -> None:
    leader = Leader(isr=(1,), min_insync=2, end=3)
    assert not leader.leadership.is_alone
    leader.now_ms = 2 * MAX_LAG_MS
    leader.check_lag()
    assert leader.committed == 0
    leader.min_insync = 1
    leader.check_lag()
    assert leader.committed == 3
    assert leader.leadership.is_alone


def test_more_than_there_are_cannot_be_asked_for() -> None:
    leadership = Leader().leadership
    assert leadership.needed(2) == 2
    assert leadership.needed(5) == 3


def test_errors_of_the_controller() -> None:
    for code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNKNOWN_TOPIC_ID):
        leader = Leader(isr=(1, 2))
        (proposal,) = leader.fetch(3, 0)
        assert leader.answer(proposal, code) == []
        assert leader.leadership.pending is proposal
        assert leader.leadership.maximal_isr == {1, 2, 3}
    for code in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
        leader = Leader(isr=(1, 2))
        (proposal,) = leader.fetch(3, 0)
        assert leader.answer(proposal, code) == []
        assert leader.leadership.pending is None
        assert leader.leadership.maximal_isr == {1, 2}
    for code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER):
        leader = Leader(isr=(1, 2))
        (proposal,) = leader.fetch(3, 0)
        assert leader.answer(proposal, code) == [proposal]


def test_an_answer_to_another_proposal_counts_for_nothing() -> None:
    leader = Leader(isr=(1, 2))
    (proposal,) = leader.fetch(3, 0)
    state = PartitionState(replicas=(1, 2, 3), isr=(1,), leader=1, leader_epoch=5, partition_epoch=8)
    leader.run(leader.leadership.state_changed(0, state, leader.offsets))
    leader.accept(proposal)
    assert leader.leadership.isr == {1}


def test_metadata_that_tells_what_an_answer_told_leaves_the_next_proposal_standing() -> None:
    leader = Leader(isr=(1,))
    (first,) = leader.fetch(2, 0)
    leader.accept(first)
    (second,) = leader.fetch(3, 0)
    state = PartitionState(replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=8)
    leader.run(leader.leadership.state_changed(0, state, leader.offsets))
    assert leader.leadership.pending is second
    assert leader.leadership.maximal_isr == {1, 2, 3}


def test_replicas_come_and_go_with_the_metadata() -> None:
    leader = Leader(end=5)
    leader.fetch(2, 5)
    state = PartitionState(replicas=(1, 2, 4), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=8)
    leader.run(leader.leadership.state_changed(0, state, leader.offsets))
    assert sorted(leader.leadership.followers) == [2, 4]
    assert leader.committed == 5


def test_the_low_watermark_is_that_of_the_replicas_that_live() -> None:
    leader = Leader(end=5)
    leadership = leader.leadership
    leadership.follower_fetched(0, 2, 20, 5, 3, leader.offsets)
    assert leadership.low_watermark(4) == -1  # nobody knows where broker 3 starts
    leader.brokers[3] = BrokerState(3, 30, ZERO_UUID, fenced=True)
    assert leadership.low_watermark(4) == 3
