"""The thread that advances a node's timer: it sleeps until the next deadline and runs what is due.

Callbacks run on this thread with no lock held, and must not block. An entry wakes the thread only if it is due before all
others; cancelling one never does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from pybroker.base.timer import Callback, Timer, TimerEntry
from pybroker.log.manager.scheduler import MAX_WAIT_S, monotonic_ms

logger = logging.getLogger(__name__)

NEVER_MS: Final = 1 << 62


class TimerThread:
    """A `Deadlines` that any thread may add to. Deadlines are of the clock `now_ms`, which does not jump."""

    def __init__(self, *, now_ms: Callable[[], int] = monotonic_ms, name: str = "timer") -> None:
        self.now_ms = now_ms
        self._timer = Timer(now_ms())
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._wakes_at_ms = NEVER_MS
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; what is not due yet never runs."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __len__(self) -> int:
        with self._changed:
            return len(self._timer)

    def add(self, deadline_ms: int, callback: Callback) -> TimerEntry:
        with self._lock:
            entry = self._timer.add(deadline_ms, callback)
            if entry.due_ms < self._wakes_at_ms:
                self._wakes_at_ms = entry.due_ms
                self._changed.notify()
        return entry

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_stopping:
                    return
                due = self._timer.take_due(self.now_ms())
                if not due:
                    self._sleep()
                    continue
            for entry in due:
                try:
                    entry.run()
                except Exception:
                    logger.exception("a callback of the timer failed")

    def _sleep(self) -> None:
        next_ms = self._timer.next_deadline_ms
        if next_ms is None:
            self._wakes_at_ms = NEVER_MS
            self._changed.wait()
        else:
            self._wakes_at_ms = next_ms
            self._changed.wait(min(max(next_ms - self.now_ms(), 1) / 1000, MAX_WAIT_S))
        # Awake: it looks at every entry before it sleeps again, so none needs to wake it.
        self._wakes_at_ms = -1
