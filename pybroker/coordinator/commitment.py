"""What waits for the replicas: effects of decisions whose records are appended and not committed yet, of one partition.

Of one thread at a time; knows no clock. Effects leave in the order in which they came. Nobody waits for an answer beyond its
deadline, but what else has to follow a commit follows it however late that is.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from pybroker.coordinator.shard import Effect, Refuse, Reply, Token

_NEVER_MS: Final = 1 << 62


class _Waiting(NamedTuple):
    """Effects that wait for the high watermark to reach `offset`."""

    offset: int
    deadline_ms: int
    effects: list[Effect]


class Commitment:
    __slots__ = ("_waiting", "high_watermark")

    def __init__(self) -> None:
        self.high_watermark = 0
        self._waiting: deque[_Waiting] = deque()

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def wait(self, offset: int, deadline_ms: int, effects: list[Effect]) -> None:
        """Behind what waits already, whose offset and deadline are not later."""
        self._waiting.append(_Waiting(offset, deadline_ms, effects))

    def reach(self, high_watermark: int) -> list[Effect]:
        """What need not wait any more; the high watermark never goes back."""
        self.high_watermark = max(self.high_watermark, high_watermark)
        effects: list[Effect] = []
        waiting = self._waiting
        while waiting and waiting[0].offset <= self.high_watermark:
            effects += waiting.popleft().effects
        return effects

    def give_up(self, now_ms: int) -> tuple[list[Token], int | None]:
        """Whose answers are overdue, and are not waited for any more; and the next deadline."""
        tokens: list[Token] = []
        kept: deque[_Waiting] = deque()
        for one in self._waiting:
            if one.deadline_ms > now_ms:
                kept.append(one)
                continue
            tokens += [effect.token for effect in one.effects if isinstance(effect, (Reply, Refuse))]
            rest = [effect for effect in one.effects if not isinstance(effect, (Reply, Refuse))]
            if rest:
                kept.append(_Waiting(one.offset, _NEVER_MS, rest))
        self._waiting = kept
        next_ms = min((one.deadline_ms for one in kept), default=_NEVER_MS)
        return tokens, next_ms if next_ms < _NEVER_MS else None

    def take_all(self) -> list[Effect]:
        """Nothing waits any more: the partition is not led here."""
        effects = [effect for one in self._waiting for effect in one.effects]
        self._waiting.clear()
        return effects
