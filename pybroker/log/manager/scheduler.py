"""The background threads of a node: one heap of tasks by the time they are due, and a few threads that take from it.

Threads start when they are needed, up to background.threads; one of them always waits for the next task, unless all are
busy. A task's error is logged under its name and harms no other. `stop` finishes what is due and drops what is not: a file
that still waits for its removal is removed by the next start.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from pybroker.log.background import Background

Task = Callable[[], None]

# A wait of ages (log.flush.scheduler.interval.ms by default) is cut to what the platform can wait for.
MAX_WAIT_S: Final = 3600.0

logger = logging.getLogger(__name__)


class Repeated(Protocol):
    def cancel(self) -> None:
        """Not again; a run under way goes on."""


class Scheduler(Background, Protocol):
    def every(self, name: str, task: Task, interval_ms: int, *, first_ms: int = 0) -> Repeated:
        """Have `task` run in `first_ms` and then each interval, never twice at once."""


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class _Entry:
    __slots__ = ("due_ms", "interval_ms", "name", "number", "task")

    def __init__(self, due_ms: int, number: int, name: str, task: Task | None, interval_ms: int = 0) -> None:
        self.due_ms = due_ms
        self.number = number
        self.name = name
        self.task = task
        self.interval_ms = interval_ms

    def __lt__(self, other: _Entry) -> bool:
        return (self.due_ms, self.number) < (other.due_ms, other.number)

    def cancel(self) -> None:
        self.task = None
        self.interval_ms = 0


class ThreadBackground:
    """`now_ms` counts the time tasks wait; a clock that jumps needs a `wake`."""

    def __init__(self, threads: int, *, now_ms: Callable[[], int] = monotonic_ms, name: str = "background") -> None:
        self._limit = threads
        self._now_ms = now_ms
        self._name = name
        self._changed = threading.Condition()
        self._heap: list[_Entry] = []
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._number = 0
        self._is_stopping = False

    def run(self, task: Task, *, delay_ms: int = 0, name: str | None = None) -> None:
        self._add(name or getattr(task, "__qualname__", None) or repr(task), task, delay_ms, 0)

    def every(self, name: str, task: Task, interval_ms: int, *, first_ms: int = 0) -> Repeated:
        # An interval of 0 would never let go of its thread.
        return self._add(name, task, first_ms, max(interval_ms, 1))

    def wake(self) -> None:
        """Look at the clock again."""
        with self._changed:
            self._changed.notify_all()

    def resize(self, threads: int) -> None:
        """Take a new limit; threads that are too many end when they are idle."""
        with self._changed:
            self._limit = threads
            self._changed.notify_all()

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Finish what is due and end the threads; False if a task runs still."""
        with self._changed:
            self._is_stopping = True
            now_ms = self._now_ms()
            kept = [entry for entry in self._heap if entry.due_ms <= now_ms and not entry.interval_ms]
            dropped = sum(not entry.interval_ms and entry.task is not None for entry in self._heap) - len(kept)
            heapq.heapify(kept)
            self._heap = kept
            if kept and not self._threads:
                self._start_thread()
            threads = list(self._threads)
            self._changed.notify_all()
        if dropped:
            logger.info("%s: %d delayed tasks are left to the next start", self._name, dropped)
        deadline = time.monotonic() + timeout_s
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        running = [thread.name for thread in threads if thread.is_alive() and thread is not threading.current_thread()]
        if running:
            logger.warning("%s: %s still at work after %g s", self._name, ", ".join(running), timeout_s)
        return not running

    def _add(self, name: str, task: Task, delay_ms: int, interval_ms: int) -> _Entry:
        with self._changed:
            self._number += 1
            entry = _Entry(self._now_ms() + max(delay_ms, 0), self._number, name, task, interval_ms)
            if self._is_stopping:
                logger.debug("%s: %s comes after the stop and is left to the next start", self._name, name)
                entry.cancel()
                return entry
            heapq.heappush(self._heap, entry)
            if self._idle:
                if self._heap[0] is entry:
                    self._changed.notify()
            elif len(self._threads) < self._limit:
                self._start_thread()
            return entry

    def _start_thread(self) -> None:
        """RuntimeError if there is none, and none can be started; what waits then waits for the next attempt."""
        thread = threading.Thread(target=self._work, name=f"{self._name}-{self._number}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
            logger.warning("%s: the system has no thread more than these %d", self._name, len(self._threads))
            return
        self._threads.append(thread)

    def _work(self) -> None:
        while (entry := self._next()) is not None:
            task = entry.task
            if task is None:
                continue
            try:
                task()
            except Exception:
                logger.exception("%s failed", entry.name)
            if entry.interval_ms:
                self._repeat(entry)

    def _next(self) -> _Entry | None:
        with self._changed:
            while len(self._threads) <= self._limit:
                wait_s: float | None = None
                if self._heap:
                    wait_s = (self._heap[0].due_ms - self._now_ms()) / 1000
                    if wait_s <= 0:
                        entry = heapq.heappop(self._heap)
                        self._pass_on()
                        return entry
                if self._is_stopping:
                    break
                self._idle += 1
                try:
                    self._changed.wait(None if wait_s is None else min(wait_s, MAX_WAIT_S))
                finally:
                    self._idle -= 1
            self._threads.remove(threading.current_thread())
            self._pass_on()
            return None

    def _pass_on(self) -> None:
        """See to it that another thread waits for the rest."""
        if not self._heap:
            return
        if self._idle:
            self._changed.notify()
        elif not self._is_stopping and len(self._threads) < self._limit:
            self._start_thread()

    def _repeat(self, entry: _Entry) -> None:
        with self._changed:
            if self._is_stopping or not entry.interval_ms:
                return
            now_ms = self._now_ms()
            due_ms = entry.due_ms + entry.interval_ms
            entry.due_ms = due_ms if due_ms > now_ms else now_ms + entry.interval_ms
            heapq.heappush(self._heap, entry)
