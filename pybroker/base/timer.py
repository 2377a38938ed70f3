"""Deadlines of very many entries, nearly all of which are cancelled before they are due: a hierarchical timing wheel.

An entry lies in the bucket of its deadline, rounded down the more the further away it is, and moves to a finer bucket when
that one comes up; so there are few buckets, and a cancelled entry is gone at once. No thread and no clock: whoever owns the
timer says what time it is. `add`, `take_due` and `next_deadline_ms` are for one thread at a time, `cancel` for any.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

Callback = Callable[[], None]

BUCKETS_A_LEVEL: Final = 64


class Handle(Protocol):
    def cancel(self) -> None:
        """Not any more; a callback under way goes on."""


class Deadlines(Protocol):
    """What a user of a timer needs of it, whoever advances it."""

    def add(self, deadline_ms: int, callback: Callback) -> Handle: ...


class TimerEntry:
    __slots__ = ("bucket", "callback", "deadline_ms", "due_ms")

    bucket: dict[TimerEntry, None]
    due_ms: int  # when its bucket comes up: at its deadline or before

    def __init__(self, deadline_ms: int, callback: Callback) -> None:
        self.deadline_ms = deadline_ms
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        # In this order: a timer that moves the entry at this moment looks at the callback after it has set the bucket.
        self.callback = None
        self.bucket.pop(self, None)

    def run(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class Timer:
    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._buckets: dict[int, dict[TimerEntry, None]] = {}
        self._dues: list[int] = []  # a heap of the buckets' keys

    def __len__(self) -> int:
        """The entries that are neither cancelled nor taken."""
        return sum(map(len, self._buckets.values()))

    def add(self, deadline_ms: int, callback: Callback) -> TimerEntry:
        """Have `callback` run once when `deadline_ms` has come; at the next `advance`, if it has already."""
        entry = TimerEntry(deadline_ms, callback)
        self._place(entry)
        return entry

    def _place(self, entry: TimerEntry) -> None:
        due_ms = entry.deadline_ms
        distance_ms = due_ms - self._now_ms
        if distance_ms >= BUCKETS_A_LEVEL:
            width_ms = BUCKETS_A_LEVEL
            while distance_ms >= width_ms * BUCKETS_A_LEVEL:
                width_ms *= BUCKETS_A_LEVEL
            due_ms -= due_ms % width_ms
        elif distance_ms < 0:
            due_ms = self._now_ms
        bucket = self._buckets.get(due_ms)
        if bucket is None:
            self._buckets[due_ms] = bucket = {}
            heappush(self._dues, due_ms)
        entry.due_ms = due_ms
        entry.bucket = bucket
        bucket[entry] = None
        if entry.callback is None:
            bucket.pop(entry, None)

    @property
    def next_deadline_ms(self) -> int | None:
        """When it wants to be advanced: at the first deadline or before; None while there is no entry."""
        dues = self._dues
        while dues and not self._buckets[dues[0]]:
            del self._buckets[heappop(dues)]
        return dues[0] if dues else None

    def take_due(self, now_ms: int) -> list[TimerEntry]:
        """The entries whose deadline has come, in the order of their deadlines; the caller runs them."""
        due: list[TimerEntry] = []
        dues = self._dues
        while dues and dues[0] <= now_ms:
            due_ms = heappop(dues)
            bucket = self._buckets.pop(due_ms)
            self._now_ms = max(self._now_ms, due_ms)
            for entry in list(bucket):
                if entry.deadline_ms <= due_ms:
                    due.append(entry)
                else:
                    self._place(entry)
        self._now_ms = max(self._now_ms, now_ms)
        return due

    def advance(self, now_ms: int) -> int:
        """Run what is due; returns how many there were."""
        due = self.take_due(now_ms)
        for entry in due:
            entry.run()
        return len(due)
