"""The one way in which a test waits: for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.02


class NotInTimeError(AssertionError):
    """Which a slow machine may be to blame for."""


def wait_until(condition: Callable[[], T], timeout_s: float, problem: Callable[[], str]) -> T:
    """The first true value of `condition`; a NotInTimeError that says `problem` if there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise NotInTimeError(f"after {timeout_s} s: {problem()}")
        time.sleep(POLL_S)
    return value
