"""Where the replicas of new partitions go: striped over the brokers, racks alternating.

The leaders go round the brokers that are not fenced, from a random one on. The followers of a partition go to racks it is
not in yet, then to brokers that are not fenced, then to those with the fewest replicas. Which of them comes first, and would
be elected if the leader were lost, differs from partition to partition: no single broker inherits all that another led.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pybroker.metadata.image import BrokerState
from pybroker.protocol.errors import ErrorCode, KafkaError

DrawBelow = Callable[[int], int]


def place(brokers: Iterable[BrokerState], partitions: int, replication_factor: int, draw_below: DrawBelow) -> list[list[int]]:
    """The replicas of each of so many new partitions, the leader first."""
    usable = [broker for broker in brokers if _is_usable(broker)]
    active = _alternating([broker for broker in usable if not broker.fenced])
    _check(replication_factor, len(usable), len(active))
    ring = active + _alternating([broker for broker in usable if broker.fenced])
    if len(ring) == 1:
        return [[ring[0].id] for _ in range(partitions)]
    stripe = _Stripe(ring, len(active), partitions, draw_below)
    return [stripe.next(replication_factor) for _ in range(partitions)]


def _is_usable(broker: BrokerState) -> bool:
    """One that has gone will be back, but not one that is about to go; and all of its directories may be cordoned off."""
    if broker.in_controlled_shutdown and not broker.fenced:
        return False
    return not broker.log_dirs or not set(broker.log_dirs).issubset(broker.cordoned_log_dirs)


def _check(replication_factor: int, usable: int, active: int) -> None:
    if active == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"No broker can lead a new partition: {usable} can hold one, and all of them are fenced.",
        )
    if replication_factor > usable:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas of a partition need as many brokers; found {usable} that are not shutting down or "
            "cordoned off.",
        )


def _alternating(brokers: list[BrokerState]) -> list[BrokerState]:
    """The brokers, by id, one of each rack in turn."""
    racks: dict[str | None, list[BrokerState]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack, []).append(broker)
    queues = [racks[rack] for rack in sorted(racks, key=lambda rack: rack or "")]
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


class _Stripe:
    """`ring` has those that can lead first."""

    def __init__(self, ring: list[BrokerState], leaders: int, partitions: int, draw_below: DrawBelow) -> None:
        self._ring = ring
        self._leaders = leaders
        self._turn = first = draw_below(leaders)
        self._shift = draw_below(len(ring))
        # How many replicas each has; the leaders are known beforehand, so that the followers can make up for them.
        self._placed = [0] * len(ring)
        for turn in range(first, first + partitions):
            self._placed[turn % leaders] += 1
        # How often each followed each leader.
        self._followed: list[dict[int, int]] = [{} for _ in range(leaders)]

    def next(self, replication_factor: int) -> list[int]:
        ring, placed = self._ring, self._placed
        leader = self._turn % self._leaders
        self._turn += 1
        followed = self._followed[leader]
        in_rack = {ring[leader].rack: 1}
        size = len(ring)
        others = [(leader + 1 + (self._shift + step) % (size - 1)) % size for step in range(size - 1)]

        def cost(at: int) -> tuple[int, bool, int, int]:
            return in_rack.get(ring[at].rack, 0), ring[at].fenced, placed[at], followed.get(at, 0)

        chosen: list[int] = []
        while len(chosen) < replication_factor - 1:
            follower = min(others, key=cost)
            others.remove(follower)
            chosen.append(follower)
            placed[follower] += 1
            rack = ring[follower].rack
            in_rack[rack] = in_rack.get(rack, 0) + 1
        # The first follower is the leader's heir.
        chosen.sort(key=lambda at: (ring[at].fenced, followed.get(at, 0)))
        for follower in chosen[:1]:
            followed[follower] = followed.get(follower, 0) + 1
        return [ring[at].id for at in (leader, *chosen)]
