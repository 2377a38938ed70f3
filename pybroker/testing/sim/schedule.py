"""Virtual time of a run: one heap of due events.

Time is in whole microseconds, so that two things rarely fall together; what does runs in the order it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

# Far more than any seed needs: what does more goes round in circles.
MAX_STEPS: Final = 500_000


class EndlessError(AssertionError):
    """Something happens again and again, and time hardly passes."""


class Schedule:
    __slots__ = ("_asked", "_due", "now_us", "steps")

    def __init__(self) -> None:
        self.now_us = 0
        self.steps = 0
        self._asked = 0
        self._due: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, due_us: int, action: Callable[..., None], *args: Any) -> None:
        self._asked += 1
        heappush(self._due, (max(due_us, self.now_us), self._asked, action, args))

    def after(self, delay_us: int, action: Callable[..., None], *args: Any) -> None:
        self._asked += 1
        heappush(self._due, (self.now_us + delay_us, self._asked, action, args))

    def run_until(self, end_us: int) -> None:
        """Everything that is due before `end_us`; then it is that time."""
        due = self._due
        while due and due[0][0] < end_us:
            self.now_us, _, action, args = heappop(due)
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise EndlessError(f"{MAX_STEPS:,} steps in {self.now_us / 1000:.0f} ms; the last is {action}")
            action(*args)
        self.now_us = end_us
