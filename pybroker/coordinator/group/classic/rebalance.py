"""How a classic group comes from one generation to the next: who is waited for, how long, and what follows.

A rebalance is prepared: members learn of it by their heartbeats and join again. When all have, or the rebalance timeout is
over, a generation begins: those who came are answered, and one of them, the leader, sends the assignment (membership.py).
Functions take the Result they add to: records, and the answers to requests that waited.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final

from pybroker.coordinator.group.classic.group import ClassicGroup, State
from pybroker.coordinator.group.classic.member import NO_ASSIGNMENT, ClassicMember
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.shard import DelayTimers, Refuse, Reply, Result
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.groups import JoinGroupResponse

logger = logging.getLogger(__name__)

SESSION: Final = "session"
JOIN: Final = "join"
SYNC: Final = "sync"

# A new member cannot send heartbeats before it is answered, and may be gone; it is kept for so long.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000


def join_response(
    group: ClassicGroup, member_id: str, *, shows_members: bool, skips_assignment: bool = False
) -> JoinGroupResponse:
    """That `member_id` is in the present generation; the leader gets the members."""
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type or None,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skips_assignment,
        member_id=member_id,
        members=group.joined_members() if shows_members else [],
    )


def join_refusal(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id=member_id, members=[])


class Rebalances:
    def __init__(self, timers: DelayTimers, settings: GroupSettings) -> None:
        self._timers = timers
        self._settings = settings

    # Timers.

    def expect_heartbeat(self, group: ClassicGroup, member: ClassicMember) -> None:
        self._timers.set((SESSION, group.group_id, member.member_id), member.session_timeout_ms)

    def expect_within(self, group: ClassicGroup, member_id: str, delay_ms: int) -> None:
        """For who has no session yet."""
        self._timers.set((SESSION, group.group_id, member_id), delay_ms)

    def expect_no_more(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel((SESSION, group.group_id, member_id))

    def all_have_synced(self, group: ClassicGroup) -> None:
        self._timers.cancel((SYNC, group.group_id))

    def timed_out(self, now_ms: int, group: ClassicGroup, key: Hashable, member_id: str, out: Result) -> None:
        if key == SESSION:
            self._session_expired(now_ms, group, member_id, out)
        elif key == SYNC:
            self._syncs_expired(now_ms, group, out)
        elif group.initial_delay is not None:
            self._initial_delay_over(now_ms, group, *group.initial_delay, out)
        else:
            self.complete_join(now_ms, group, out)

    # From one generation to the next.

    def prepare_or_complete(self, now_ms: int, group: ClassicGroup, reason: str, out: Result) -> None:
        """Something has changed: begin a rebalance, or go on with the one under way."""
        if group.can_rebalance:
            self.prepare(now_ms, group, reason, out)
        else:
            self.complete_if_all_joined(now_ms, group, out)

    def prepare(self, now_ms: int, group: ClassicGroup, reason: str, out: Result) -> None:
        if group.state is State.COMPLETING_REBALANCE:
            # The assignment that they wait for will not come.
            for member in group.members.values():
                member.assignment = NO_ASSIGNMENT
                if member.sync is not None:
                    out.effects.append(Refuse(member.sync, ErrorCode.REBALANCE_IN_PROGRESS))
                    member.sync = None
                    self.expect_heartbeat(group, member)
        group.pending_syncs.clear()
        self.all_have_synced(group)
        is_first = group.state is State.EMPTY
        group.transition_to(State.PREPARING_REBALANCE, now_ms)
        logger.info("group %s prepares generation %d: %s", group.group_id, group.generation + 1, reason)
        if is_first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.has_all_joined:
            self.complete_join(now_ms, group, out)
        else:
            self._timers.set((JOIN, group.group_id), group.rebalance_timeout_ms)

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        group.initial_delay = (delay_ms, remaining_ms)
        self._timers.set((JOIN, group.group_id), delay_ms)

    def _initial_delay_over(self, now_ms: int, group: ClassicGroup, delay_ms: int, remaining_ms: int, out: Result) -> None:
        if group.has_new_members and remaining_ms:
            group.has_new_members = False
            next_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more(group, next_ms, max(remaining_ms - delay_ms, 0))
        else:
            self.complete_join(now_ms, group, out)

    def complete_if_all_joined(self, now_ms: int, group: ClassicGroup, out: Result) -> None:
        """Unless it is the first rebalance, whose delay gives more members the time to come."""
        if group.state is State.PREPARING_REBALANCE and group.previous_state is not State.EMPTY and group.has_all_joined:
            self.complete_join(now_ms, group, out)

    def complete_join(self, now_ms: int, group: ClassicGroup, out: Result) -> None:
        """Begin the next generation with those who have joined. Static members may be late: they keep their place."""
        if group.state is not State.PREPARING_REBALANCE:
            return
        self._timers.cancel((JOIN, group.group_id))
        group.initial_delay = None
        late = [member.member_id for member in group.members.values() if not (member.is_awaiting_join or member.is_static)]
        for member_id in late:
            group.remove(member_id)
            self.expect_no_more(group, member_id)
        if late:
            logger.info("group %s: members that have not joined again are removed: %s", group.group_id, ", ".join(late))
        if group.members and not group.elect_joined_leader():
            logger.warning("group %s: nobody has joined; it waits for sessions to expire", group.group_id)
            self._timers.set((JOIN, group.group_id), group.rebalance_timeout_ms)
            return
        group.begin_generation(now_ms)
        if not group.members:
            logger.info("group %s is empty, in generation %d", group.group_id, group.generation)
            out.records.append(group.as_record(lambda _: NO_ASSIGNMENT))
            return
        logger.info("group %s begins generation %d: %d members", group.group_id, group.generation, len(group.members))
        for member in group.members.values():
            if member.join is not None:
                shows = group.is_leader(member.member_id)
                out.effects.append(Reply(member.join, join_response(group, member.member_id, shows_members=shows)))
                member.join = None
            self.expect_heartbeat(group, member)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        self._timers.set((SYNC, group.group_id), group.rebalance_timeout_ms)

    # Who is gone.

    def remove_member(self, group: ClassicGroup, member: ClassicMember, out: Result) -> None:
        """Without what follows for the others. If it is there after all, it joins again as another."""
        self.expect_no_more(group, member.member_id)
        if member.join is not None:
            out.effects.append(Reply(member.join, join_refusal(ErrorCode.UNKNOWN_MEMBER_ID)))
            member.join = None
        if member.sync is not None:
            out.effects.append(Refuse(member.sync, ErrorCode.UNKNOWN_MEMBER_ID))
            member.sync = None
        group.remove(member.member_id)

    def _session_expired(self, now_ms: int, group: ClassicGroup, member_id: str, out: Result) -> None:
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending_joins:
                logger.info("group %s: %s never came back with the member id it was given", group.group_id, member_id)
                group.remove(member_id)
                self._complete_without(now_ms, group, out)
        elif not member.is_excused:
            logger.info("group %s: the session of %s has expired", group.group_id, member_id)
            self.remove_member(group, member, out)
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                self.prepare_or_complete(now_ms, group, f"the session of {member_id} has expired", out)
            else:
                self._complete_without(now_ms, group, out)

    def _complete_without(self, now_ms: int, group: ClassicGroup, out: Result) -> None:
        if group.state is State.PREPARING_REBALANCE and group.has_all_joined:
            self.complete_join(now_ms, group, out)

    def _syncs_expired(self, now_ms: int, group: ClassicGroup, out: Result) -> None:
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_syncs:
            return
        gone = sorted(group.pending_syncs)
        for member_id in gone:
            self.remove_member(group, group.members[member_id], out)
        self.prepare(now_ms, group, f"no SyncGroup came from {', '.join(gone)}", out)
