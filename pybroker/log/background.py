"""The port to work that must not hold up an append: flushing what was rolled, removing files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Background(Protocol):
    def run(self, task: Callable[[], None], *, delay_ms: int = 0) -> None:
        """Have `task` run soon, or after the delay, on some other thread; its errors are logged there."""


class Inline:
    """Runs a task at once, and a delayed one when told to: for tests, tools and the simulator."""

    def __init__(self) -> None:
        self.delayed: list[Callable[[], None]] = []

    def run(self, task: Callable[[], None], *, delay_ms: int = 0) -> None:
        if delay_ms:
            self.delayed.append(task)
        else:
            task()

    def run_delayed(self) -> None:
        tasks, self.delayed = self.delayed, []
        for task in tasks:
            task()
