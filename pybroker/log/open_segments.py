"""How many segments are open at once: a node may have many thousands, and each open one takes three file descriptors.

A segment says when it opened; beyond the limit the one that has been idle longest lets go of its files, in the manner of a
clock: each gets a second chance if it was used since the hand last passed. Any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol


class Closable(Protocol):
    used: bool

    def release(self) -> None: ...


class OpenSegments:
    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._segments: OrderedDict[Closable, None] = OrderedDict()  # in the order in which the hand passes
        self._lock = threading.Lock()

    def opened(self, segment: Closable) -> None:
        """`segment` has just opened; another may have to let go for it."""
        victim = None
        with self._lock:
            segments = self._segments
            if len(segments) >= self._limit:
                for _ in range(len(segments)):
                    victim, _ = segments.popitem(last=False)
                    if not victim.used:
                        break
                    victim.used = False
                    segments[victim] = None
                else:
                    victim, _ = segments.popitem(last=False)
            segments[segment] = None
        if victim is not None:
            victim.release()

    def closed(self, segment: Closable) -> None:
        with self._lock:
            self._segments.pop(segment, None)

    def __len__(self) -> int:
        return len(self._segments)
