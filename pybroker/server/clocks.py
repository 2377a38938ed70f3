"""The clocks of a node."""

from __future__ import annotations

import time
from collections.abc import Callable


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def steady_clock() -> Callable[[], int]:
    """A clock that began as the wall clock and never jumps: for timeouts and for what is written down alike."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset_ns) // 1_000_000
