"""What a follower does about its own place among the voters: it tells the leader its addresses, or joins (KIP-1186)."""

from __future__ import annotations

from typing import Final

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import raft
from pybroker.raft.answers import leader_address
from pybroker.raft.discovery import heard_of
from pybroker.raft.events import Address
from pybroker.raft.state import NEVER, State
from pybroker.raft.voters import Endpoints

ADD_RAFT_VOTER: Final = 80
REMOVE_RAFT_VOTER: Final = 81
UPDATE_RAFT_VOTER: Final = 82


def poll(state: State) -> int:
    """Once in a fetch timeout, if there is something to say; when to look again."""
    following, leader_id, now_ms, setting = state.following, state.leader_id, state.now_ms, state.setting
    assert following is not None
    assert leader_id is not None
    if not setting.can_vote:
        return NEVER
    if now_ms < following.update_voter_at_ms:
        return following.update_voter_at_ms
    following.update_voter_at_ms = now_ms + max(setting.fetch_timeout_ms, 1)
    address, message = leader_address(state), _wish(state)
    if address is not None and message is not None:
        kind = type(message).KEY
        assert kind is not None
        if state.requests.wait_ms(now_ms, leader_id, kind) == 0:
            state.requests.send(state.out, leader_id, address, message)
    return following.update_voter_at_ms


def _wish(
    state: State,
) -> raft.UpdateRaftVoterRequest | raft.AddRaftVoterRequest | raft.RemoveRaftVoterRequest | None:
    following, log, setting, own = state.following, state.log, state.setting, state.own
    assert following is not None
    if state.is_voter:
        is_known = following.has_updated_voter if not log.kraft_version else log.voters.by_id[own.id] == state.own_voter
        return None if is_known else _update_request(state)
    if not setting.auto_join or not log.kraft_version or not following.has_fetched:
        return None
    former = log.voters.by_id.get(own.id)
    if former is not None:
        # This node on an earlier disk: it goes first.
        return raft.RemoveRaftVoterRequest(
            cluster_id=setting.cluster_id, voter_id=own.id, voter_directory_id=former.key.directory_id
        )
    return raft.AddRaftVoterRequest(
        cluster_id=setting.cluster_id,
        timeout_ms=setting.request_timeout_ms,
        voter_id=own.id,
        voter_directory_id=own.directory_id,
        listeners=[raft.AddRaftVoterRequestListener(name=name, host=at.host, port=at.port) for name, at in state.own_endpoints],
        # The leader's commit may need this replica's fetches, which must not wait for the answer.
        ack_when_committed=False,
    )


def _update_request(state: State) -> raft.UpdateRaftVoterRequest:
    setting, own = state.setting, state.own
    return raft.UpdateRaftVoterRequest(
        cluster_id=setting.cluster_id,
        current_leader_epoch=state.epoch,
        voter_id=own.id,
        voter_directory_id=own.directory_id,
        listeners=[
            raft.UpdateRaftVoterRequestListener(name=name, host=at.host, port=at.port) for name, at in state.own_endpoints
        ],
        k_raft_version_feature=raft.KRaftVersionFeature(
            min_supported_version=setting.min_kraft_version, max_supported_version=setting.max_kraft_version
        ),
    )


def handle_update_response(state: State, response: raft.UpdateRaftVoterResponse) -> bool:
    current = response.current_leader
    if current is not None and current.leader_epoch >= 0:
        endpoints: Endpoints = state.log.voters.endpoints_of(current.leader_id)
        if current.host:
            endpoints = ((state.setting.listener, Address(current.host, current.port)),)
        handled = heard_of(state, response.error_code, current.leader_id, current.leader_epoch, endpoints)
        if handled is not None:
            return handled
    if response.error_code == ErrorCode.NONE and state.following is not None:
        state.following.has_updated_voter = True
    return True
