"""Elections: asking for votes, granting them, and the epochs that leaders begin and end.

A pre-vote (KIP-996) asks whether a vote would be granted and changes nothing, so that a replica that was cut off does not push
the others into a new epoch when it comes back. A follower that hears its leader refuses it.
"""

from __future__ import annotations

from typing import Final

from pybroker.base.ids import ZERO_UUID
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import raft
from pybroker.raft import leader
from pybroker.raft.answers import endpoints_in, is_other_cluster, leader_or_nobody, node_endpoints, refuses_voter_request
from pybroker.raft.discovery import fetch_from_anyone, heard_of, takes_over
from pybroker.raft.events import Address, ReplicaKey, Respond
from pybroker.raft.requests import Sent
from pybroker.raft.setting import METADATA_TOPIC, PARTITION
from pybroker.raft.state import NEVER, Role, State
from pybroker.raft.voters import Endpoints, address_at, endpoints

VOTE: Final = 52
END_QUORUM_EPOCH: Final = 54
BACKOFF_BASE_MS: Final = 50


# Vote, asked.


def handle_vote(state: State, token: int, request: raft.VoteRequest) -> None:
    if is_other_cluster(state, request.cluster_id):
        state.out.append(Respond(token, raft.VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, topics=[])))
        return
    topics = request.topics
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        state.out.append(Respond(token, raft.VoteResponse(error_code=ErrorCode.INVALID_REQUEST, topics=[])))
        return
    partition = topics[0].partitions[0]
    if partition.partition_index != PARTITION:
        state.out.append(Respond(token, raft.VoteResponse(error_code=ErrorCode.INVALID_REQUEST, topics=[])))
        return
    granted, error = False, _refuses_vote(state, partition)
    if not error:
        if partition.replica_epoch > state.epoch:
            state.become_unattached(partition.replica_epoch)
        if _is_for_other(state, request.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        else:
            candidate = ReplicaKey(partition.replica_id, partition.replica_directory_id)
            granted = _grants(state, candidate, partition)
            if granted and not partition.pre_vote and state.voted is None:
                state.vote_for(candidate)
    answer = raft.VoteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            raft.VoteResponseTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    raft.VoteResponsePartitionData(
                        partition_index=PARTITION,
                        error_code=error,
                        leader_id=leader_or_nobody(state),
                        leader_epoch=state.epoch,
                        vote_granted=granted,
                    )
                ],
            )
        ],
        node_endpoints=node_endpoints(state),
    )
    state.out.append(Respond(token, answer))


def _refuses_vote(state: State, partition: raft.VoteRequestPartitionData) -> ErrorCode:
    last_epoch, epoch = partition.last_offset_epoch, partition.replica_epoch
    # Records of an epoch come from its leader only: a candidate in it cannot have any, a prospective can.
    is_too_late = last_epoch > epoch if partition.pre_vote else last_epoch >= epoch
    if partition.last_offset < 0 or last_epoch < 0 or is_too_late:
        return ErrorCode.INVALID_REQUEST
    return refuses_voter_request(state, partition.replica_id, epoch)


def _is_for_other(state: State, voter_id: int, directory_id: bytes) -> bool:
    """Whether a request names another replica than this one; old versions name none."""
    if voter_id < 0:
        return False
    return voter_id != state.own.id or (directory_id != ZERO_UUID and directory_id != state.own.directory_id)


def _grants(state: State, candidate: ReplicaKey, partition: raft.VoteRequestPartitionData) -> bool:
    log, role = state.log, state.role
    is_up_to_date = (partition.last_offset_epoch, partition.last_offset) >= (log.last_epoch, log.end_offset)
    if partition.pre_vote:
        if role is Role.LEADER:
            return False
        if state.following is not None and state.following.has_fetched and state.now_ms < state.fetch_at_ms:
            # After that time it stands itself, unless it does not know yet that it votes.
            return False
        return is_up_to_date
    if role is not Role.UNATTACHED and role is not Role.PROSPECTIVE:
        return False
    voted = state.voted
    if voted is not None:
        # Again: it may have come back from a crash, without records that it had when it asked the first time.
        return is_up_to_date and voted.id == candidate.id and voted.directory_id in (ZERO_UUID, candidate.directory_id)
    return state.leader_id is None and is_up_to_date


# Standing.


def stand(state: State, *, is_quick: bool = False) -> None:
    """Ask whether a majority would vote for this replica; the only voter need not ask."""
    if len(state.log.voters) == 1 and state.is_voter:
        state.become_candidate()
    else:
        state.become_prospective(is_quick=is_quick)
    _count(state)


def _count(state: State) -> None:
    ballot, voters = state.ballot, state.log.voters
    assert ballot is not None
    if len(ballot.granted) >= voters.majority:
        if state.role is Role.PROSPECTIVE:
            state.become_candidate()
            _count(state)
        else:
            leader.take_office(state, ballot.granted)
        return
    if ballot.is_lost:
        return
    if state.role is Role.PROSPECTIVE:
        # One that cannot be reached may come up any moment, and waiting costs nobody anything.
        ballot.is_lost = len(voters) - len(ballot.rejected) < voters.majority
        if ballot.is_lost:
            _give_up(state)
    else:
        # The votes of this epoch are split: the sooner the next, the better.
        ballot.is_lost = len(voters) - len(ballot.rejected | ballot.unreachable) < voters.majority
        if ballot.is_lost:
            _back_off(state)


def vote_failed(state: State, node_id: int) -> None:
    """The voter could not be asked, or did not answer in time."""
    ballot = state.ballot
    if ballot is not None and node_id not in ballot.granted:
        ballot.unreachable.add(node_id)
        _count(state)


def _back_off(state: State) -> None:
    """A lost candidacy: the next one after a pause that grows, and differs from that of a rival."""
    setting = state.setting
    state.lost_elections += 1
    longest = min(BACKOFF_BASE_MS << min(state.lost_elections, 10), max(setting.election_backoff_max_ms, 1))
    state.election_at_ms = min(state.election_at_ms, state.now_ms + 1 + state.draw_below(longest))


def _give_up(state: State) -> None:
    ballot = state.ballot
    assert ballot is not None
    if state.leader_id is None or not state.leader_endpoints:
        state.become_unattached(state.epoch)
        return
    fetch_at_ms = state.fetch_at_ms
    state.become_follower(state.epoch, state.leader_id, state.leader_endpoints)
    if ballot.is_quick:
        # The leader has not been heard of meanwhile: its time goes on.
        state.fetch_at_ms = fetch_at_ms


def handle_vote_response(state: State, sent: Sent, response: raft.VoteResponse) -> bool:
    """Whether the answer is of use; if not, it is asked again after a pause."""
    if response.error_code:
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and state.role is Role.PROSPECTIVE:
            # A voter that knows no pre-vote: the others decide without one.
            state.trace(f"{sent.node_id} knows no pre-vote")
            state.become_candidate()
            _count(state)
            return True
        return False
    topics = response.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return False
    partition = topics[0].partitions[0]
    error, epoch, leader_id = partition.error_code, partition.leader_epoch, partition.leader_id
    handled = heard_of(state, error, leader_id, epoch, endpoints_in(state, leader_id, response.node_endpoints))
    if handled is not None:
        return handled
    ballot = state.ballot
    if error or ballot is None:
        return not error
    ballot.unreachable.discard(sent.node_id)
    if partition.vote_granted:
        ballot.granted.add(sent.node_id)
        ballot.rejected.discard(sent.node_id)
    elif sent.node_id not in ballot.granted:
        ballot.rejected.add(sent.node_id)
    _count(state)
    return True


def poll_unattached(state: State) -> int:
    if not state.may_stand or not state.log.is_flushed:
        return fetch_from_anyone(state)
    if state.now_ms >= state.election_at_ms:
        stand(state)
        return state.now_ms
    return min(state.election_at_ms, fetch_from_anyone(state))


def poll_prospective(state: State) -> int:
    if state.now_ms >= state.election_at_ms or not state.may_stand:
        _give_up(state)
        return state.now_ms
    return min(state.election_at_ms, _ask_for_votes(state))


def poll_candidate(state: State) -> int:
    ballot = state.ballot
    assert ballot is not None
    if not state.may_stand:
        state.become_unattached(state.epoch)
        return state.now_ms
    if state.now_ms >= state.election_at_ms:
        if ballot.is_lost:
            stand(state)
            return state.now_ms
        ballot.is_lost = True
        state.election_at_ms = NEVER
        _back_off(state)
    if ballot.is_lost:
        return state.election_at_ms
    return min(state.election_at_ms, _ask_for_votes(state))


def _ask_for_votes(state: State) -> int:
    ballot, requests, now_ms = state.ballot, state.requests, state.now_ms
    assert ballot is not None
    deadline_ms = NEVER
    for voter in state.log.voters:
        id_ = voter.key.id
        if id_ in ballot.granted or id_ in ballot.rejected:
            continue
        wait_ms = requests.wait_ms(now_ms, id_, VOTE)
        if wait_ms is None:
            continue
        if wait_ms > 0:
            deadline_ms = min(deadline_ms, now_ms + wait_ms)
            continue
        address = address_at(voter.endpoints, state.setting.listener)
        if address is not None:
            requests.send(state.out, id_, address, _vote_request(state, voter.key))
    return deadline_ms


def _vote_request(state: State, voter: ReplicaKey) -> raft.VoteRequest:
    log = state.log
    return raft.VoteRequest(
        cluster_id=state.setting.cluster_id,
        voter_id=voter.id,
        topics=[
            raft.VoteRequestTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    raft.VoteRequestPartitionData(
                        partition_index=PARTITION,
                        replica_epoch=state.epoch,
                        replica_id=state.own.id,
                        replica_directory_id=state.own.directory_id,
                        voter_directory_id=voter.directory_id,
                        last_offset_epoch=log.last_epoch,
                        last_offset=log.end_offset,
                        pre_vote=state.role is Role.PROSPECTIVE,
                    )
                ],
            )
        ],
    )


# BeginQuorumEpoch: an elected leader makes itself known.


def handle_begin(state: State, token: int, request: raft.BeginQuorumEpochRequest) -> None:
    if is_other_cluster(state, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
        state.out.append(Respond(token, raft.BeginQuorumEpochResponse(error_code=error, topics=[])))
        return
    topics = request.topics
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        error = ErrorCode.INVALID_REQUEST
        state.out.append(Respond(token, raft.BeginQuorumEpochResponse(error_code=error, topics=[])))
        return
    partition = topics[0].partitions[0]
    known = _endpoints_of(state, partition.leader_id, request.leader_endpoints)
    error = refuses_voter_request(state, partition.leader_id, partition.leader_epoch)
    if not error and not takes_over(state, partition.leader_id, partition.leader_epoch, known):
        error = ErrorCode.INVALID_REQUEST
    if not error and _is_for_other(state, request.voter_id, partition.voter_directory_id):
        error = ErrorCode.INVALID_VOTER_KEY
    answer = raft.BeginQuorumEpochResponse(
        error_code=ErrorCode.NONE,
        topics=[
            raft.BeginQuorumEpochResponseTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    raft.BeginQuorumEpochResponsePartitionData(
                        partition_index=PARTITION,
                        error_code=error,
                        leader_id=leader_or_nobody(state),
                        leader_epoch=state.epoch,
                    )
                ],
            )
        ],
        node_endpoints=node_endpoints(state),
    )
    state.out.append(Respond(token, answer))


def _endpoints_of(state: State, leader_id: int, told: list[raft.LeaderEndpoint]) -> Endpoints:
    if not told:
        return state.log.voters.endpoints_of(leader_id)
    return endpoints((at.name, Address(at.host, at.port)) for at in told)


def handle_begin_response(state: State, _: Sent, response: raft.BeginQuorumEpochResponse) -> bool:
    if response.error_code or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return False
    partition = response.topics[0].partitions[0]
    leader_id = partition.leader_id
    known = endpoints_in(state, leader_id, response.node_endpoints)
    handled = heard_of(state, partition.error_code, leader_id, partition.leader_epoch, known)
    if handled is not None:
        return handled
    return not partition.error_code


# EndQuorumEpoch: a leader that gives up says who should follow it.


def handle_end(state: State, token: int, request: raft.EndQuorumEpochRequest) -> None:
    if is_other_cluster(state, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
        state.out.append(Respond(token, raft.EndQuorumEpochResponse(error_code=error, topics=[])))
        return
    topics = request.topics
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        error = ErrorCode.INVALID_REQUEST
        state.out.append(Respond(token, raft.EndQuorumEpochResponse(error_code=error, topics=[])))
        return
    partition = topics[0].partitions[0]
    leader_id = partition.leader_id
    error = refuses_voter_request(state, leader_id, partition.leader_epoch)
    known = _endpoints_of(state, leader_id, request.leader_endpoints)
    if not error and not takes_over(state, leader_id, partition.leader_epoch, known):
        error = ErrorCode.INVALID_REQUEST
    following = state.following
    if not error and following is not None and state.leader_id == leader_id:
        # The best successor stands at once, the others later, each twice as late as the one before.
        following.has_fetched = False
        state.fetch_at_ms = state.now_ms + _succession_ms(state, partition)
    answer = raft.EndQuorumEpochResponse(
        error_code=ErrorCode.NONE,
        topics=[
            raft.EndQuorumEpochResponseTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    raft.EndQuorumEpochResponsePartitionData(
                        partition_index=PARTITION,
                        error_code=error,
                        leader_id=leader_or_nobody(state),
                        leader_epoch=state.epoch,
                    )
                ],
            )
        ],
        node_endpoints=node_endpoints(state),
    )
    state.out.append(Respond(token, answer))


def _succession_ms(state: State, partition: raft.EndQuorumEpochRequestPartitionData) -> int:
    longest_ms = state.setting.election_backoff_max_ms
    if partition.preferred_candidates:
        named = [ReplicaKey(info.candidate_id, info.candidate_directory_id) for info in partition.preferred_candidates]
    else:
        named = [ReplicaKey(id_) for id_ in partition.preferred_successors]
    if not named:
        # It came back from a crash and knows nobody's progress: whoever stands first.
        return state.draw_below(longest_ms // 10 + 1)
    for position, key in enumerate(named):
        if key.id == state.own.id and key.directory_id in (ZERO_UUID, state.own.directory_id):
            if position == 0:
                return 0
            return min(longest_ms, (longest_ms >> (len(named) - 1)) << (position - 1))
    return longest_ms


def handle_end_response(state: State, sent: Sent, response: raft.EndQuorumEpochResponse) -> bool:
    if response.error_code or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return False
    partition = response.topics[0].partitions[0]
    leader_id = partition.leader_id
    if leader_id == state.own.id:
        leader_id = -1  # the one that just resigned
    known = endpoints_in(state, leader_id, response.node_endpoints)
    handled = heard_of(state, partition.error_code, leader_id, partition.leader_epoch, known)
    if handled is not None:
        return handled
    if not partition.error_code:
        state.resigned_acks.add(sent.node_id)
    return not partition.error_code


def poll_resigned(state: State) -> int:
    now_ms, requests, setting = state.now_ms, state.requests, state.setting
    if now_ms >= state.election_at_ms and not state.is_final:
        # Nobody may lead in the epoch that was given up, so the next one is looked for.
        state.become_unattached(state.epoch + 1)
        return now_ms
    deadline_ms = NEVER if state.is_final else state.election_at_ms
    for voter in state.log.voters:
        id_ = voter.key.id
        if id_ == state.own.id or id_ in state.resigned_acks:
            continue
        wait_ms = requests.wait_ms(now_ms, id_, END_QUORUM_EPOCH)
        if wait_ms is None:
            continue
        if wait_ms > 0:
            deadline_ms = min(deadline_ms, now_ms + wait_ms)
            continue
        address = address_at(voter.endpoints, setting.listener)
        if address is not None:
            requests.send(state.out, id_, address, _end_request(state))
    return deadline_ms


def _end_request(state: State) -> raft.EndQuorumEpochRequest:
    return raft.EndQuorumEpochRequest(
        cluster_id=state.setting.cluster_id,
        topics=[
            raft.EndQuorumEpochRequestTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    raft.EndQuorumEpochRequestPartitionData(
                        partition_index=PARTITION,
                        leader_id=state.own.id,
                        leader_epoch=state.epoch,
                        preferred_successors=[key.id for key in state.successors],
                        preferred_candidates=[
                            raft.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                            for key in state.successors
                        ],
                    )
                ],
            )
        ],
        leader_endpoints=[raft.LeaderEndpoint(name=name, host=at.host, port=at.port) for name, at in state.own_endpoints],
    )
