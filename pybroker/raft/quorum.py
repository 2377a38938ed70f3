"""The quorum machine: one replica of the metadata log, as voter or observer, told what happened and saying what to do.

Pure: time and randomness are given, effects are returned. One thread steps it. Each step handles its event, then lets the role
do what is due; `deadline_ms` is when something is due next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pybroker.protocol.internal.control_records import VotersRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages import fetch, raft
from pybroker.protocol.messages.api_versions import ApiVersionsResponse
from pybroker.raft import election, follower, joining, leader, membership
from pybroker.raft.answers import leader_address
from pybroker.raft.describe import describe, handle_describe
from pybroker.raft.events import (
    Address,
    DeadlinePassed,
    Effect,
    Event,
    Flushed,
    KRaftVersionProposed,
    LogStartMoved,
    NodeLost,
    Proposed,
    Recovered,
    RequestDropped,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    SnapshotBroken,
    SnapshotInstalled,
    SnapshotTaken,
    Started,
)
from pybroker.raft.requests import Sent
from pybroker.raft.setting import QuorumSetting
from pybroker.raft.state import NEVER, Role, State
from pybroker.raft.voters import Endpoints, VoterSet

REQUESTS: dict[type[Message], Callable[[State, int, Any], None]] = {
    fetch.FetchRequest: leader.handle_fetch,
    raft.FetchSnapshotRequest: leader.handle_fetch_snapshot,
    raft.VoteRequest: election.handle_vote,
    raft.BeginQuorumEpochRequest: election.handle_begin,
    raft.EndQuorumEpochRequest: election.handle_end,
    raft.DescribeQuorumRequest: handle_describe,
    raft.AddRaftVoterRequest: membership.handle_add,
    raft.RemoveRaftVoterRequest: membership.handle_remove,
    raft.UpdateRaftVoterRequest: membership.handle_update,
}
RESPONSES: dict[type[Message], Callable[[State, Sent, Any], bool]] = {
    fetch.FetchResponse: lambda state, _, response: follower.handle_fetch_response(state, response),
    raft.FetchSnapshotResponse: lambda state, _, response: follower.handle_fetch_snapshot_response(state, response),
    raft.VoteResponse: election.handle_vote_response,
    raft.BeginQuorumEpochResponse: election.handle_begin_response,
    raft.EndQuorumEpochResponse: election.handle_end_response,
    raft.UpdateRaftVoterResponse: lambda state, _, response: joining.handle_update_response(state, response),
    # Whether it joined, the log will say.
    raft.AddRaftVoterResponse: lambda _state, _sent, _response: True,
    raft.RemoveRaftVoterResponse: lambda _state, _sent, _response: True,
    ApiVersionsResponse: membership.handle_api_versions,
}
POLLS: dict[Role, Callable[[State], int]] = {
    Role.UNATTACHED: election.poll_unattached,
    Role.PROSPECTIVE: election.poll_prospective,
    Role.CANDIDATE: election.poll_candidate,
    Role.LEADER: leader.poll,
    Role.FOLLOWER: follower.poll,
    Role.RESIGNED: election.poll_resigned,
}


class Quorum:
    __slots__ = ("_deadline_ms", "_election", "_events", "_state")

    def __init__(self, setting: QuorumSetting, recovered: Recovered, *, draw_below: Callable[[int], int]) -> None:
        self._state = State(setting, recovered, draw_below)
        self._election = recovered.election
        self._deadline_ms = NEVER
        self._events: dict[type, Callable[[Any], None]] = {
            Started: self._on_started,
            DeadlinePassed: lambda _: None,
            RequestReceived: self._on_request,
            RequestDropped: self._on_dropped,
            ResponseReceived: self._on_response,
            RequestFailed: self._on_failed,
            NodeLost: lambda event: follower.leader_lost(self._state, event.node_id),
            Proposed: self._on_proposed,
            Flushed: self._on_flushed,
            SnapshotTaken: lambda event: self._state.log.snapshot_taken(event.snapshot),
            SnapshotInstalled: lambda event: follower.snapshot_installed(self._state, event),
            SnapshotBroken: lambda event: follower.snapshot_broken(self._state, event.snapshot),
            LogStartMoved: lambda event: self._state.log.move_start(event.log_start_offset),
            KRaftVersionProposed: lambda event: membership.upgrade(self._state, event.version),
            ResignRequested: self._on_resign,
        }

    @property
    def deadline_ms(self) -> int | None:
        return None if self._deadline_ms >= NEVER else self._deadline_ms

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        state = self._state
        state.now_ms = now_ms
        out = state.out = []
        self._events[type(event)](event)
        turns = -1
        while turns != state.turns:
            turns = state.turns
            self._deadline_ms = POLLS[state.role](state)
        return out

    # What others read.

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def leader_id(self) -> int | None:
        """Of the epoch, as far as it is known."""
        return self._state.leader_id

    @property
    def leader_address(self) -> Address | None:
        return leader_address(self._state)

    @property
    def leader_endpoints(self) -> Endpoints:
        """Of all the leader's listeners that are known."""
        return self._state.leader_endpoints

    @property
    def is_leader(self) -> bool:
        return self._state.role is Role.LEADER

    @property
    def is_voter(self) -> bool:
        return self._state.is_voter

    @property
    def high_watermark(self) -> int | None:
        """None until a leader said it, or the first record of this replica's epoch is committed."""
        return self._state.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self._state.log.start_offset

    @property
    def log_end_offset(self) -> int:
        return self._state.log.end_offset

    @property
    def voters(self) -> VoterSet:
        """As the log says, committed or not."""
        return self._state.log.voters

    @property
    def kraft_version(self) -> int:
        return self._state.log.kraft_version

    @property
    def epoch_start_offset(self) -> int | None:
        """Of the leader: where its epoch begins. Its first record committed, it is caught up."""
        leading = self._state.leading
        return None if leading is None else leading.epoch_start_offset

    @property
    def has_followers(self) -> bool:
        """Whether this is the leader of others: voters, or observers that fetch."""
        leading = self._state.leading
        return leading is not None and (len(leading.voters) > 1 or bool(leading.observers))

    def voters_at(self, offset: int) -> tuple[int, VotersRecord | None]:
        """kraft.version, and the voters that the log says, after the record at `offset`: what a snapshot has to keep."""
        return self._state.log.voters_at(offset)

    def refuses_upgrade(self, kraft_version: int) -> membership.Refusal | None:
        """What speaks against a KRaftVersionProposed now."""
        return membership.refuses_upgrade(self._state, kraft_version)

    def describe(self, now_ms: int) -> raft.DescribeQuorumResponse:
        """What DescribeQuorum would be answered."""
        self._state.now_ms = now_ms
        return describe(self._state)

    # Events.

    def _on_started(self, _: Started) -> None:
        state = self._state
        state.start(self._election)
        if len(state.log.voters) == 1 and state.is_voter:
            election.stand(state)

    def _on_request(self, event: RequestReceived) -> None:
        REQUESTS[type(event.message)](self._state, event.token, event.message)

    def _on_dropped(self, event: RequestDropped) -> None:
        if self._state.leading is not None:
            self._state.leading.drop(event.token)

    def _on_response(self, event: ResponseReceived) -> None:
        state = self._state
        sent = state.requests.finish(event.request_id)
        if sent is None:
            return
        assert sent.kind == type(event.message).KEY, f"{sent} was answered by {type(event.message).__name__}"
        turns = state.turns
        if not RESPONSES[type(event.message)](state, sent, event.message) and state.turns == turns:
            state.requests.pause(state.now_ms, sent)

    def _on_failed(self, event: RequestFailed) -> None:
        state = self._state
        sent = state.requests.finish(event.request_id)
        if sent is not None:
            state.requests.pause(state.now_ms, sent)
            if sent.kind == election.VOTE:
                election.vote_failed(state, sent.node_id)
            elif sent.kind == membership.API_VERSIONS:
                membership.handle_api_versions(state, sent, None)

    def _on_proposed(self, event: Proposed) -> None:
        state = self._state
        if state.role is Role.LEADER and event.epoch == state.epoch:
            leader.append(state, event.data)
        else:
            state.trace(f"proposal of epoch {event.epoch} dropped: {state.role.value} in epoch {state.epoch}")

    def _on_flushed(self, event: Flushed) -> None:
        state = self._state
        state.log.flushed(event.end_offset)
        if state.leading is not None:
            leader.commit(state)

    def _on_resign(self, event: ResignRequested) -> None:
        state = self._state
        state.is_final |= event.is_final
        if state.leading is not None:
            leader.resign(state, "asked to")
