"""Deadlines by key, of which nearly all are put off before they come: sessions that heartbeats keep alive.

Of one thread at a time. Putting a deadline off costs one store: the heap keeps the earlier moment, and the key goes back
into it when that moment comes. `next_deadline_ms` may therefore be earlier than anything that is due.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush


class Timers:
    __slots__ = ("_count", "_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[Hashable, int] = {}
        # The moment at which a key is looked at next; at most its deadline.
        self._queued: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._deadlines

    def set(self, key: Hashable, deadline_ms: int) -> None:
        """`key` is due at `deadline_ms`, whatever was said of it before."""
        self._deadlines[key] = deadline_ms
        queued_ms = self._queued.get(key)
        if queued_ms is None or queued_ms > deadline_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: Hashable) -> None:
        self._deadlines.pop(key, None)

    def _push(self, key: Hashable, moment_ms: int) -> None:
        self._queued[key] = moment_ms
        self._count += 1
        heappush(self._heap, (moment_ms, self._count, key))

    @property
    def next_deadline_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> Iterator[Hashable]:
        """The keys whose deadline has come, each once, earliest first. Whoever takes one may put off or cancel others, which
        then do not come; what is set meanwhile comes the next time, even if it is due already."""
        heap, queued = self._heap, self._queued
        looked_at: list[Hashable] = []
        while heap and heap[0][0] <= now_ms:
            moment_ms, _, key = heappop(heap)
            if queued.get(key) == moment_ms:  # else an earlier moment was queued later
                del queued[key]
                looked_at.append(key)
        looked_at.sort(key=lambda key: self._deadlines.get(key, now_ms))
        for key in looked_at:
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None or key in queued:
                continue
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
            else:
                del self._deadlines[key]
                yield key
