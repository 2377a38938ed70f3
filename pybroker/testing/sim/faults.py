"""What goes wrong in a run: drawn from the seed, then scheduled.

With `swarm` every kind of fault is on or off by a coin of its own and its rate spans two orders of magnitude, so that some
seeds have nothing but partitions and others crash a node every few hundred milliseconds; without it all kinds are on, mildly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from pybroker.testing.sim.schedule import Schedule


@dataclass(slots=True)
class NetworkFaults:
    """Probabilities per message, and delays."""

    min_delay_us: int = 200
    spread_us: int = 2_000
    slow: float = 0.0
    slow_us: int = 0
    drop: float = 0.0
    duplicate: float = 0.0
    copy_us: int = 10_000
    late_reply: float = 0.0

    def heal(self) -> None:
        self.slow = self.drop = self.duplicate = self.late_reply = 0.0


@dataclass(slots=True)
class DiskFaults:
    max_flush_us: int = 3_000
    slow_flush: float = 0.0
    slow_flush_us: int = 0

    def heal(self) -> None:
        self.slow_flush = 0.0


class Draw:
    """Fault rates, from the seed's own random."""

    def __init__(self, random: Random, *, swarm: bool) -> None:
        self._random = random
        self._swarm = swarm

    def per_second(self, usual: float) -> float:
        """How often something happens: around `usual`, or with swarm never or up to ten times as often."""
        draw = self._random.random
        if not self._swarm:
            return usual * (0.5 + draw())
        return 0.0 if draw() < 0.4 else usual * 10.0 ** (2 * draw() - 1)

    def probability(self, usual: float) -> float:
        return min(0.5, self.per_second(usual))

    def network(self) -> NetworkFaults:
        random = self._random
        return NetworkFaults(
            min_delay_us=random.choice((100, 500, 2_000)),
            spread_us=random.choice((500, 3_000, 20_000)),
            slow=self.probability(0.02),
            slow_us=random.choice((30_000, 300_000, 1_500_000)),
            drop=self.probability(0.02),
            duplicate=self.probability(0.05),
            copy_us=random.choice((10_000, 500_000)),
            late_reply=self.probability(0.3),
        )

    def disk(self) -> DiskFaults:
        random = self._random
        return DiskFaults(
            max_flush_us=random.choice((200, 3_000, 20_000)),
            slow_flush=self.probability(0.03),
            slow_flush_us=random.choice((100_000, 1_000_000)),
        )


class Happenings:
    """Things that happen again and again, each at its own rate, until they are stopped."""

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._is_stopped = False

    def add(self, per_second: float, action: Callable[[], None]) -> None:
        if per_second > 0:
            self._schedule.after(self._gap_us(per_second), self._happen, per_second, action)

    def stop(self) -> None:
        self._is_stopped = True

    def _happen(self, per_second: float, action: Callable[[], None]) -> None:
        if not self._is_stopped:
            action()
            self._schedule.after(self._gap_us(per_second), self._happen, per_second, action)

    def _gap_us(self, per_second: float) -> int:
        return int(self._random.expovariate(per_second) * 1_000_000)


def draw_cut(random: Random, node_ids: Iterable[int]) -> list[tuple[int, int]]:
    """The ways that one partition closes: around a node, between two halves, or any; in both directions or in one."""
    ids = list(node_ids)
    if len(ids) < 2:
        return []
    match random.randrange(4):
        case 0:
            one = random.choice(ids)
            ways = [(one, other) for other in ids if other != one]
        case 1:
            random.shuffle(ids)
            middle = random.randrange(1, len(ids))
            ways = [(a, b) for a in ids[:middle] for b in ids[middle:]]
        case 2:
            a, b = random.sample(ids, 2)
            ways = [(a, b)]
        case _:
            ways = [(a, b) for a in ids for b in ids if a < b and random.random() < 0.4]
    back = [(b, a) for a, b in ways]
    match random.randrange(4):
        case 0:
            return ways
        case 1:
            return back
        case _:
            return ways + back
