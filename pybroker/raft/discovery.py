"""Learning of epochs and leaders from what others say, and asking around for them.

A message that names another leader than the one known for the same epoch is not believed: an epoch has one leader.
"""

from __future__ import annotations

from typing import Final

from pybroker.base.ids import METADATA_TOPIC_UUID
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import fetch
from pybroker.raft.events import Address
from pybroker.raft.setting import METADATA_TOPIC, PARTITION
from pybroker.raft.state import NEVER, Role, State
from pybroker.raft.voters import Endpoints

FETCH: Final = 1
FETCH_SNAPSHOT: Final = 59


def takes_over(state: State, leader_id: int, epoch: int, endpoints: Endpoints) -> bool:
    """Follow the leader of `epoch`, or be unattached in it (`leader_id` negative); False if that contradicts what is known."""
    is_known = leader_id >= 0
    if is_known and leader_id == state.own.id:
        if epoch > state.epoch:
            # This node led, on a disk that is gone.
            state.become_unattached(epoch)
        return state.leading is not None and epoch == state.epoch
    if epoch == state.epoch and state.role is Role.RESIGNED:
        return not is_known  # it was the leader itself
    if epoch == state.epoch and is_known and state.leader_id is not None and leader_id != state.leader_id:
        state.trace(f"{leader_id} is said to lead epoch {epoch}, but {state.leader_id} does")
        return False
    if epoch > state.epoch:
        if is_known and endpoints:
            state.become_follower(epoch, leader_id, endpoints)
        else:
            state.become_unattached(epoch)
    elif epoch == state.epoch and is_known and endpoints and state.leading is None:
        if state.leader_id is None or len(endpoints) > len(state.leader_endpoints):
            state.become_follower(epoch, leader_id, endpoints)
        elif state.ballot is not None and state.leader_endpoints:
            # A prospective that hears of its leader is again its follower.
            state.become_follower(epoch, leader_id, endpoints)
    return True


def heard_of(state: State, error: int, leader_id: int, epoch: int, endpoints: Endpoints) -> bool | None:
    """What a response says of epoch and leader. None if it is then to be looked at itself, False to ask again after a pause."""
    if epoch < state.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return False
    if epoch > state.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        turns = state.turns
        takes_over(state, leader_id, epoch, endpoints)
        # Who says only what is known need not be asked again at once.
        return state.turns != turns
    if leader_id >= 0 and not state.leader_endpoints and endpoints and takes_over(state, leader_id, epoch, endpoints):
        return None if not error else True
    if error == ErrorCode.BROKER_NOT_AVAILABLE:
        return False
    if error == ErrorCode.INVALID_VOTER_KEY:
        return False
    return None


def bootstrap_servers(state: State) -> list[tuple[int, Address]]:
    """Whom to ask who leads; servers whose node is not known have ids below -1."""
    setting = state.setting
    if setting.bootstrap_servers:
        own = setting.endpoints.values()
        return [(-2 - index, at) for index, at in enumerate(setting.bootstrap_servers) if at not in own]
    return [(id_, address) for id_, address in setting.static_voters.items() if id_ != state.own.id]


def fetch_from_anyone(state: State) -> int:
    """Fetch from one of the bootstrap servers, whoever that is: its answer names the leader. When to look again."""
    now_ms, requests = state.now_ms, state.requests
    if not can_fetch(state):
        return NEVER
    ready: list[tuple[int, Address]] = []
    deadline_ms = NEVER
    for id_, address in bootstrap_servers(state):
        wait_ms = requests.wait_ms(now_ms, id_, FETCH)
        if wait_ms:
            deadline_ms = min(deadline_ms, now_ms + wait_ms)
        else:
            ready.append((id_, address))
    if ready:
        id_, address = ready[state.draw_below(len(ready))]
        requests.send(state.out, id_, address, fetch_request(state))
        return NEVER
    return deadline_ms


def can_fetch(state: State) -> bool:
    """One fetch at a time, from whomever, so that its answer fits the log; and only of what follows durable records."""
    requests = state.requests
    return (
        state.log.is_flushed
        and state.installing is None
        and not requests.is_under_way(FETCH)
        and not requests.is_under_way(FETCH_SNAPSHOT)
    )


def fetch_request(state: State) -> fetch.FetchRequest:
    """From the end of the log, all of which is durable: the offset acknowledges what is before it."""
    setting, log, following = state.setting, state.log, state.following
    high_watermark = state.high_watermark
    is_in_doubt = following is not None and following.died_at_ms < NEVER
    longest_ms = min(setting.max_wait_ms, setting.fetch_timeout_ms // 2, setting.request_timeout_ms // 2)
    return fetch.FetchRequest(
        cluster_id=setting.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=state.own.id),
        # A leader that seemed dead shows at once that it lives, whether there is anything new or not.
        # When nothing is new, the answer must come before the request or the leader is given up.
        max_wait_ms=0 if is_in_doubt else longest_ms,
        min_bytes=0,
        max_bytes=setting.fetch_max_bytes,
        topics=[
            fetch.FetchTopic(
                topic=METADATA_TOPIC,
                topic_id=METADATA_TOPIC_UUID,
                partitions=[
                    fetch.FetchPartition(
                        partition=PARTITION,
                        current_leader_epoch=state.epoch,
                        fetch_offset=log.end_offset,
                        last_fetched_epoch=log.last_epoch,
                        log_start_offset=log.start_offset,
                        partition_max_bytes=0,
                        replica_directory_id=state.own.directory_id,
                        high_watermark=-1 if high_watermark is None else high_watermark,
                    )
                ],
            )
        ],
    )
