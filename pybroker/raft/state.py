"""What the roles share: epoch, leader, vote, log, and the ways from one role to another.

    from         to            when
    any          unattached    a higher epoch is seen whose leader is not known; a vote is granted
    any          follower      the leader of this epoch, or of a higher one, is seen
    unattached   prospective   no leader for the election timeout (only who may stand)
    follower     prospective   no fetch answered for the fetch timeout, or its process is lost for the death grace (the same)
    prospective  candidate     a majority would vote for it
    prospective  follower      it cannot win, or waited for the election timeout; it knew a leader
    prospective  unattached    the same, and it knew none
    candidate    leader        a majority voted for it
    candidate    prospective   it cannot win, or waited for the election timeout, and then a random pause
    leader       resigned      no majority fetched for 1.5 fetch timeouts; it is told to; it removed itself from the voters
    resigned     unattached    in the next epoch, after the election timeout

An observer is unattached or follows. Who is no voter never stands, but for one whose removal may not be committed. A start
finds itself in the role that its election state tells; a leader comes back resigned, for its unflushed records may be gone.
Epochs only grow; a replica votes once in each, and the vote is durable before it is told. Who stands has flushed its log: a
candidate that comes back from a crash, and stands in the same epoch again, still has what its voters saw.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from pybroker.raft.events import (
    AdvanceHighWatermark,
    AnnounceLeader,
    Effect,
    ElectionState,
    PersistElection,
    Recovered,
    ReplicaKey,
    SnapshotId,
    Trace,
)
from pybroker.raft.log_view import LogView
from pybroker.raft.requests import Requests
from pybroker.raft.setting import QuorumSetting
from pybroker.raft.voters import Endpoints, Voter, VoterSet, endpoints

if TYPE_CHECKING:
    from pybroker.raft.leader import Leadership

NEVER = 2**62


class Role(Enum):
    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


class Ballot:
    """Of a prospective or a candidate."""

    __slots__ = ("granted", "is_lost", "is_quick", "rejected", "unreachable")

    def __init__(self, granted: set[int], *, is_quick: bool = False) -> None:
        self.granted = granted
        self.rejected: set[int] = set()
        self.unreachable: set[int] = set()  # at the last try
        self.is_lost = False
        self.is_quick = is_quick  # called because the leader's process seems dead, not for the fetch timeout


class Following:
    """Of a follower."""

    __slots__ = ("died_at_ms", "has_fetched", "has_updated_voter", "position", "snapshot", "update_voter_at_ms")

    def __init__(self, update_voter_at_ms: int) -> None:
        self.has_fetched = False  # from this leader, and not lost it since
        self.died_at_ms = NEVER  # when a leader whose connections broke is taken for dead
        self.snapshot: SnapshotId | None = None  # being fetched, from `position` on
        self.position = 0
        self.update_voter_at_ms = update_voter_at_ms
        self.has_updated_voter = False


class State:
    __slots__ = (
        "_announced",
        "_persisted",
        "ballot",
        "draw_below",
        "election_at_ms",
        "epoch",
        "fetch_at_ms",
        "following",
        "high_watermark",
        "installing",
        "is_final",
        "leader_endpoints",
        "leader_id",
        "leading",
        "log",
        "lost_elections",
        "now_ms",
        "out",
        "own",
        "own_endpoints",
        "requests",
        "resigned_acks",
        "role",
        "setting",
        "successors",
        "turns",
        "voted",
    )

    def __init__(self, setting: QuorumSetting, recovered: Recovered, draw_below: Callable[[int], int]) -> None:
        self.setting = setting
        self.own = setting.own
        self.own_endpoints = endpoints(setting.endpoints.items())
        self.draw_below = draw_below
        self.log = LogView(recovered, VoterSet.of_addresses(setting.static_voters, setting.listener))
        self.requests = Requests(setting.request_timeout_ms, setting.retry_backoff_ms)
        self.now_ms = 0
        self.out: list[Effect] = []
        self.turns = 0  # counts the changes of role
        self.role = Role.UNATTACHED
        self.epoch = recovered.election.epoch
        self.leader_id: int | None = None
        self.leader_endpoints: Endpoints = ()
        self.voted = recovered.election.voted
        self.high_watermark: int | None = None
        self.election_at_ms = NEVER  # when an unattached or resigned replica, a prospective or a candidate moves on
        self.fetch_at_ms = NEVER  # when a follower has fetched in vain for too long
        self.ballot: Ballot | None = None
        self.following: Following | None = None
        self.leading: Leadership | None = None
        self.successors: list[ReplicaKey] = []  # of a resigned leader, best first
        self.resigned_acks: set[int] = set()
        self.lost_elections = 0
        self.installing: SnapshotId | None = None
        self.is_final = False  # never stands again
        self._persisted = recovered.election
        self._announced: tuple[int, int | None] = (-1, None)

    # What is asked often.

    @property
    def is_voter(self) -> bool:
        return self.setting.can_vote and self.own in self.log.voters

    @property
    def may_stand(self) -> bool:
        """Voters may, and who was one until a removal that is perhaps not committed: it may have the longest log, which only
        its election then commits (section 4.2.2 of Ongaro's thesis)."""
        log = self.log
        if self.is_final or not self.setting.can_vote or self.installing is not None:
            return False
        if self.own in log.voters:
            return True
        committed = max(self.high_watermark or 0, 0 if log.snapshot is None else log.snapshot.end_offset)
        return log.voters_offset >= committed and self.own in log.earlier_voters

    @property
    def own_voter(self) -> Voter:
        setting = self.setting
        return Voter(self.own, self.own_endpoints, setting.min_kraft_version, setting.max_kraft_version)

    def trace(self, text: str) -> None:
        self.out.append(Trace(text))

    def election_timeout_ms(self) -> int:
        timeout = self.setting.election_timeout_ms
        return timeout + self.draw_below(max(timeout, 1))

    # Changes. Each says what must be durable before it says who leads.

    def _turn_to(self, role: Role) -> None:
        leading = self.leading
        if leading is not None:
            self.leading = None
            leading.close(self)
        self.role = role
        self.turns += 1
        self.ballot = None
        self.following = None
        self.requests.forget()

    def _settle(self) -> None:
        state = ElectionState(self.epoch, self.leader_id, self.voted)
        if state != self._persisted:
            self._persisted = state
            self.out.append(PersistElection(state))
        self.announce()

    def announce(self) -> None:
        if self._announced != (self.epoch, self.leader_id):
            self._announced = (self.epoch, self.leader_id)
            self.out.append(AnnounceLeader(self.epoch, self.leader_id))

    def _begin_epoch(self, epoch: int) -> None:
        assert epoch >= self.epoch, f"epoch {epoch} after {self.epoch}"
        if epoch > self.epoch:
            self.epoch = epoch
            self.voted = None
            self.leader_id = None
            self.leader_endpoints = ()

    def become_unattached(self, epoch: int) -> None:
        """In this epoch or a later one. A vote in it, and a leader that is known but not reachable, stay known."""
        self._begin_epoch(epoch)
        self._turn_to(Role.UNATTACHED)
        self.election_at_ms = self.now_ms + self.election_timeout_ms()
        self._settle()

    def vote_for(self, candidate: ReplicaKey) -> None:
        """In this epoch, in which nobody leads yet; it is durable when this returns. A prospective goes on as such."""
        assert self.voted is None, f"voted for {self.voted} in epoch {self.epoch}, and now for {candidate}"
        assert self.leader_id is None, f"{self.leader_id} leads epoch {self.epoch}, too late to vote for {candidate}"
        self.voted = candidate
        self.election_at_ms = self.now_ms + self.election_timeout_ms()
        self._settle()

    def become_follower(self, epoch: int, leader_id: int, leader_endpoints: Endpoints) -> None:
        assert leader_id != self.own.id, f"told to follow itself in epoch {epoch}"
        assert leader_endpoints, f"told to follow {leader_id} without an address"
        self._begin_epoch(epoch)
        self._turn_to(Role.FOLLOWER)
        self.leader_id = leader_id
        self.leader_endpoints = leader_endpoints
        self.following = Following(self.now_ms + self.setting.fetch_timeout_ms)
        self.fetch_at_ms = self.now_ms + self.setting.fetch_timeout_ms
        self.lost_elections = 0
        self._settle()

    def become_prospective(self, *, is_quick: bool = False) -> None:
        self._turn_to(Role.PROSPECTIVE)
        self.ballot = Ballot(self._own_vote(), is_quick=is_quick)
        if is_quick:
            # Whoever cannot win must soon look again whether the leader is back.
            grace = self.setting.death_grace_ms
            self.election_at_ms = self.now_ms + grace + self.draw_below(grace + 1)
        else:
            self.election_at_ms = self.now_ms + self.election_timeout_ms()
        self._settle()

    def _own_vote(self) -> set[int]:
        return {self.own.id} if self.own in self.log.voters else set()

    def become_candidate(self) -> None:
        log = self.log
        assert log.is_flushed, f"stands with a log that ends at {log.end_offset}, but is durable up to {log.flushed_offset}"
        self._begin_epoch(self.epoch + 1)
        self._stand()

    def _stand(self) -> None:
        self._turn_to(Role.CANDIDATE)
        self.voted = self.own
        self.ballot = Ballot(self._own_vote())
        self.election_at_ms = self.now_ms + self.election_timeout_ms()
        self._settle()

    def become_leader(self, leading: Leadership) -> None:
        """Known to the disk only: it is announced when the epoch's first record is in the log."""
        self._turn_to(Role.LEADER)
        self.leader_id = self.own.id
        self.leader_endpoints = self.own_endpoints
        self.voted = None
        self.leading = leading
        self.lost_elections = 0
        self._persisted = ElectionState(self.epoch, self.leader_id, None)
        self.out.append(PersistElection(self._persisted))

    def become_resigned(self, successors: list[ReplicaKey]) -> None:
        """Its epoch is over, although nobody else may lead in it."""
        self._turn_to(Role.RESIGNED)
        self.leader_id = None
        self.leader_endpoints = ()
        self.successors = successors
        self.resigned_acks = set()
        self.election_at_ms = self.now_ms + self.election_timeout_ms()
        self.announce()

    def start(self, last: ElectionState) -> None:
        """Take the role that the last run left."""
        # A listener of any port knows its address only when it is bound.
        self.own_endpoints = endpoints(self.setting.endpoints.items())
        self._begin_epoch(max(last.epoch, self.log.last_epoch))
        is_current = last.epoch == self.epoch
        if is_current and last.leader_id == self.own.id and self.setting.can_vote:
            self.become_resigned([])
        elif is_current and self.is_voter and last.voted is not None and self.own == last.voted and last.leader_id is None:
            self._stand()
        elif (
            is_current
            and last.leader_id is not None
            and last.leader_id != self.own.id
            and self.log.voters.endpoints_of(last.leader_id)
        ):
            self.become_follower(self.epoch, last.leader_id, self.log.voters.endpoints_of(last.leader_id))
        else:
            if is_current and last.leader_id != self.own.id:
                self.leader_id = last.leader_id
            self.become_unattached(self.epoch)

    def advance_high_watermark(self, offset: int) -> bool:
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.out.append(AdvanceHighWatermark(offset))
        return True
