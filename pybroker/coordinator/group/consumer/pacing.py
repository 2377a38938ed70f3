"""How soon a member is to come again. The server says so in every answer, and that is how fast news can travel.

At rest it is what is configured. A member that waits for others, or for the next assignment, comes as soon as that may be
over. And a group that has just changed is likely to change again, as when an application is deployed: the interval grows
with the time for which nothing has happened, so that news takes at most half as long as the calm before it.
"""

from __future__ import annotations

from typing import Final

from pybroker.coordinator.group.consumer.member import ConsumerMember, MemberState

MIN_INTERVAL_MS: Final = 200
# Of a large group not all members come so often: 500 heartbeats a second for each group at most.
MS_PER_MEMBER: Final = 2


def heartbeat_interval_ms(
    member: ConsumerMember, *, configured_ms: int, calm_ms: int, assigned_in_ms: int | None, members: int
) -> int:
    """`calm_ms`: since when the group has not changed; `assigned_in_ms`: when it will be assigned, None if it is."""
    shortest_ms = max(MIN_INTERVAL_MS, MS_PER_MEMBER * members)
    if assigned_in_ms is not None:
        wanted_ms = assigned_in_ms
    elif member.state is MemberState.UNRELEASED_PARTITIONS:
        wanted_ms = 0
    else:
        wanted_ms = calm_ms // 2
    return min(max(wanted_ms, shortest_ms), configured_ms)
