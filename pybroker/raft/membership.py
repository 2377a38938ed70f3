"""Changes of the voters by their leader (KIP-853): one at a time, each a VotersRecord that counts as soon as it is in the log.

A change waits for the change before it to be committed, and for the first record of the leader's epoch: so two majorities of
voter sets that follow each other always meet. A voter is added only when it has caught up as an observer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pybroker
from pybroker.base.ids import ZERO_UUID, uuid_to_text
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import raft
from pybroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pybroker.protocol.records.control import ControlType
from pybroker.raft.answers import answer_change, is_other_cluster, leader_address, leader_or_nobody, refuses_leader_request
from pybroker.raft.events import Address, ReplicaKey, Respond
from pybroker.raft.leader import Leadership, VoterChange, append_control, commit, voter_rows
from pybroker.raft.requests import Sent
from pybroker.raft.state import State
from pybroker.raft.voters import Voter, VoterSet, address_at, endpoints

API_VERSIONS: Final = 18
SOFTWARE_NAME: Final = "pybroker"
KRAFT_VERSION: Final = "kraft.version"
CAUGHT_UP_MS: Final = 3_600_000  # an observer that fetched within the last hour, and was once at the end, may vote


class Refusal(NamedTuple):
    error: ErrorCode
    message: str | None = None


def name_of(key: ReplicaKey) -> str:
    return f"{key.id} with directory {uuid_to_text(key.directory_id)}"


def _refuses_change(state: State, leading: Leadership) -> Refusal | None:
    """Why no change can begin now; asking again later helps."""
    if leading.change is not None:
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is under way; try again later.")
    if leading.high_watermark < 0:
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT, f"The leader has committed nothing in epoch {state.epoch} yet; try again later."
        )
    return None


def _refuses_version(state: State, leading: Leadership) -> Refusal | None:
    log = state.log
    if not log.kraft_version:
        return Refusal(
            ErrorCode.UNSUPPORTED_VERSION, "Voters are fixed while kraft.version is 0; upgrade the feature to 1 first."
        )
    if log.voters_offset >= leading.high_watermark:
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT, f"The voters at offset {log.voters_offset} are not committed yet; try again later."
        )
    return None


def _append_voters(state: State, voters: VoterSet) -> int:
    offset = state.log.end_offset
    append_control(state, [(ControlType.KRAFT_VOTERS, voters.record().encode(0))])
    return offset


# AddRaftVoter.


def handle_add(state: State, token: int, request: raft.AddRaftVoterRequest) -> None:
    refusal = _begin_add(state, token, request)
    if refusal is not None:
        answer_change(state, token, True, refusal.error, refusal.message)


def _begin_add(state: State, token: int, request: raft.AddRaftVoterRequest) -> Refusal | None:
    refusal = _refuses_admin(state, request.cluster_id, request.voter_id, request.voter_directory_id)
    if refusal is not None:
        return refusal
    leading, setting, now_ms = state.leading, state.setting, state.now_ms
    assert leading is not None
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    listeners = endpoints((at.name, Address(at.host, at.port)) for at in request.listeners)
    address = address_at(listeners, setting.listener)
    if address is None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"The new voter has no endpoint for the listener {setting.listener}.")
    refusal = _refuses_change(state, leading) or _refuses_version(state, leading)
    if refusal is not None:
        return refusal
    if key.id in state.log.voters.by_id:
        return Refusal(ErrorCode.DUPLICATE_VOTER, f"Node {key.id} is a voter already; remove it first.")
    if state.requests.wait_ms(now_ms, key.id, API_VERSIONS) != 0:
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, f"The new voter {name_of(key)} is not ready for requests.")
    voter = Voter(key, listeners)
    until_ms = now_ms + (request.timeout_ms if request.timeout_ms > 0 else setting.request_timeout_ms)
    leading.change = VoterChange(True, token, request.ack_when_committed, voter, until_ms, None)
    # Nodes refuse to answer who does not name itself.
    question = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=pybroker.__version__)
    state.requests.send(state.out, key.id, address, question)
    return None


def _refuses_admin(state: State, cluster_id: str | None, voter_id: int, directory_id: bytes) -> Refusal | None:
    if is_other_cluster(state, cluster_id):
        return Refusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"The request is for cluster {cluster_id}, but this is {state.setting.cluster_id}.",
        )
    error = refuses_leader_request(state, state.epoch)
    if error:
        return Refusal(error)
    if voter_id < 0 or directory_id == ZERO_UUID:
        return Refusal(ErrorCode.INVALID_REQUEST, "A voter is its node id and its directory id; the request lacks one.")
    return None


def handle_api_versions(state: State, sent: Sent, response: ApiVersionsResponse | None) -> bool:
    """What the new voter understands; None if it did not answer."""
    leading = state.leading
    change = None if leading is None else leading.change
    if leading is None or change is None or not change.is_addition or change.offset is not None:
        return True
    voter = change.voter
    if voter.key.id != sent.node_id:
        return True
    if response is None or response.error_code:
        leading.finish_change(
            state, ErrorCode.REQUEST_TIMED_OUT, f"The new voter {name_of(voter.key)} did not say what it supports."
        )
        return True
    least, most = 0, 0
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            least, most = feature.min_version, feature.max_version
    kraft_version = state.log.kraft_version
    if not least <= kraft_version <= most:
        leading.finish_change(
            state,
            ErrorCode.INVALID_REQUEST,
            f"The new voter {name_of(voter.key)} supports kraft.version {least} to {most}, but it is {kraft_version} here.",
        )
        return True
    progress = leading.observers.get(voter.key)
    if progress is None or progress.caught_up_at_ms <= 0 or progress.fetched_at_ms <= state.now_ms - CAUGHT_UP_MS:
        leading.finish_change(
            state, ErrorCode.REQUEST_TIMED_OUT, f"The new voter {name_of(voter.key)} has not caught up with the log yet."
        )
        return True
    voter = voter._replace(min_version=least, max_version=most)
    offset = _append_voters(state, state.log.voters.with_voter(voter))
    state.trace(f"adds voter {voter.key.id}")
    token = change.token
    if token is not None and not change.acks_when_committed:
        answer_change(state, token, True, ErrorCode.NONE)
        token = None
    leading.change = change._replace(token=token, voter=voter, offset=offset)
    commit(state)
    return True


# RemoveRaftVoter.


def handle_remove(state: State, token: int, request: raft.RemoveRaftVoterRequest) -> None:
    refusal = _begin_remove(state, token, request)
    if refusal is not None:
        answer_change(state, token, False, refusal.error, refusal.message)


def _begin_remove(state: State, token: int, request: raft.RemoveRaftVoterRequest) -> Refusal | None:
    refusal = _refuses_admin(state, request.cluster_id, request.voter_id, request.voter_directory_id)
    if refusal is not None:
        return refusal
    leading, voters = state.leading, state.log.voters
    assert leading is not None
    refusal = _refuses_change(state, leading) or _refuses_version(state, leading)
    if refusal is not None:
        return refusal
    voter = voters.by_id.get(request.voter_id)
    if voter is None or voter.key.directory_id != request.voter_directory_id:
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        return Refusal(ErrorCode.VOTER_NOT_FOUND, f"There is no voter {name_of(key)}.")
    if len(voters) == 1:
        return Refusal(ErrorCode.VOTER_NOT_FOUND, f"Voter {voter.key.id} is the only one and cannot be removed.")
    until_ms = state.now_ms + state.setting.request_timeout_ms
    offset = _append_voters(state, voters.without(voter.key.id))
    state.trace(f"removes voter {voter.key.id}")
    leading.change = VoterChange(False, token, True, voter, until_ms, offset)
    commit(state)
    return None


# UpdateRaftVoter: a voter's addresses and versions; it is answered without waiting for the commit.


def handle_update(state: State, token: int, request: raft.UpdateRaftVoterRequest) -> None:
    error = _update(state, request)
    address = leader_address(state)
    current = raft.CurrentLeader(
        leader_id=leader_or_nobody(state),
        leader_epoch=state.epoch,
        host="" if address is None else address.host,
        port=0 if address is None else address.port,
    )
    state.out.append(Respond(token, raft.UpdateRaftVoterResponse(error_code=error, current_leader=current)))


def _update(state: State, request: raft.UpdateRaftVoterRequest) -> ErrorCode:
    if is_other_cluster(state, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    error = refuses_leader_request(state, request.current_leader_epoch)
    if error:
        return error
    leading, log = state.leading, state.log
    assert leading is not None
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    listeners = endpoints((at.name, Address(at.host, at.port)) for at in request.listeners)
    least, most = request.k_raft_version_feature.min_supported_version, request.k_raft_version_feature.max_supported_version
    if key.id < 0 or key.directory_id == ZERO_UUID or address_at(listeners, state.setting.listener) is None:
        return ErrorCode.INVALID_REQUEST
    if not 0 <= least <= most:
        return ErrorCode.INVALID_REQUEST
    refusal = _refuses_change(state, leading)
    if refusal is not None:
        return refusal.error
    if not least <= log.kraft_version <= most:
        return ErrorCode.INVALID_REQUEST
    voter = Voter(key, listeners, least, most)
    if key not in log.voters:
        return ErrorCode.VOTER_NOT_FOUND
    if not log.kraft_version:
        # Remembered for an upgrade, which needs every voter's directory; the log does not name voters yet.
        leading.seen_voters[key.id] = voter
        return ErrorCode.NONE
    if log.voters_offset >= leading.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT
    if log.voters.by_id[key.id] != voter:
        _append_voters(state, log.voters.with_voter(voter))
        commit(state)
    return ErrorCode.NONE


# The upgrade of kraft.version from fixed voters to voters in the log.


def refuses_upgrade(state: State, kraft_version: int) -> Refusal | None:
    leading, log, setting = state.leading, state.log, state.setting
    if leading is None:
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if kraft_version < log.kraft_version:
        return Refusal(
            ErrorCode.INVALID_UPDATE_VERSION, f"kraft.version is {log.kraft_version} and cannot go back to {kraft_version}."
        )
    if not setting.min_kraft_version <= kraft_version <= setting.max_kraft_version:
        return Refusal(ErrorCode.INVALID_UPDATE_VERSION, f"kraft.version {kraft_version} is not known here.")
    refusal = _refuses_change(state, leading)
    if refusal is not None:
        return refusal
    for id_ in log.voters.by_id:
        voter = leading.seen_voters.get(id_)
        if voter is None:
            return Refusal(
                ErrorCode.INVALID_UPDATE_VERSION, f"The directory of voter {id_} is not known yet; it must be up to tell it."
            )
        if not voter.min_version <= kraft_version <= voter.max_version:
            return Refusal(
                ErrorCode.INVALID_UPDATE_VERSION, f"Voter {id_} does not support kraft.version {kraft_version}; upgrade it."
            )
    return None


def upgrade(state: State, kraft_version: int) -> None:
    """Write the version and the voters, as far as nothing speaks against it."""
    refusal = refuses_upgrade(state, kraft_version)
    if refusal is not None or kraft_version == state.log.kraft_version:
        state.trace(f"kraft.version {kraft_version} not written: {refusal or 'it is that already'}")
        return
    leading = state.leading
    assert leading is not None
    voters = VoterSet(leading.seen_voters[id_] for id_ in state.log.voters.by_id)
    append_control(state, voter_rows(kraft_version, voters))
    commit(state)
