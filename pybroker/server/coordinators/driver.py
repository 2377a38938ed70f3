"""Runs a coordinator's rounds: on the thread that brings an event, if nobody is at it, else on that of whoever is.

So a heartbeat costs no change of threads, and what comes together is decided, and appended, together. A thread that brings
an event never waits: it leaves it in the inbox if a round is under way. What may have to wait for the disk, timers, and
more than a thread's fair share are for the driver's own thread. Effects are carried out after the round, without the lock.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, Protocol

from pybroker.coordinator.runtime import CoordinatorRuntime, Event, Loaded, LoadFailed
from pybroker.coordinator.shard import Effect, Load
from pybroker.server.coordinators.shard_loader import LoadError

logger = logging.getLogger(__name__)

# Rounds that a thread runs for others before it goes back to its own work.
MAX_ROUNDS: Final = 4
MAX_ROUND_EVENTS: Final = 1000
_NEVER_MS: Final = 1 << 62


class Driver(Protocol):
    """What a coordinator needs of whoever runs its rounds."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def submit(self, event: Event) -> None: ...

    def submit_together(self, events: Sequence[Event]) -> bool: ...

    def submit_slow(self, event: Event) -> None: ...


class NewDriver(Protocol):
    def __call__(
        self,
        name: str,
        runtime: CoordinatorRuntime[Any],
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        perform: Callable[[Effect], None],
        load: Callable[[Load], int],
    ) -> Driver: ...


class CoordinatorDriver:
    def __init__(
        self,
        name: str,
        runtime: CoordinatorRuntime[Any],
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        perform: Callable[[Effect], None],
        load: Callable[[Load], int],
    ) -> None:
        """`now_ms` does not jump. `perform` carries an effect out and does not block; `load` fills a shard and returns the
        end offset, or raises LoadError, on a thread of its own."""
        self._runtime = runtime
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._perform = perform
        self._load = load
        self._inbox: deque[Event] = deque()
        self._slow: deque[Event] = deque()
        self._round_lock = threading.Lock()
        self._wake = threading.Condition()
        self._is_woken = False
        self._deadline_ms: int | None = None  # the runtime's, after the last round
        self._wakes_at_ms = -1
        self._is_stopping = False
        self._loads: SimpleQueue[Load | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._loader = threading.Thread(target=self._run_loads, name=f"{name}-loader", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._loader.start()

    def stop(self) -> None:
        """No more rounds; requests that wait are never answered, as their connections are closed."""
        self._is_stopping = True
        self._loads.put(None)
        self._rouse()
        for thread in (self._thread, self._loader):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def submit(self, event: Event) -> None:
        """Have `event` decided, at once if nobody is at it. For events that cannot keep the thread waiting for the disk."""
        self._inbox.append(event)
        for _ in range(MAX_ROUNDS):
            if not self._round_lock.acquire(blocking=False):
                return  # whoever has it looks into the inbox once more afterwards
            self._round(self._inbox, fires_timers=False)
            if not self._inbox:
                return
        self._rouse()

    def submit_together(self, events: Sequence[Event]) -> bool:
        """Have them decided at once, in a round of their own; False, with nothing done, if somebody is at another."""
        if not self._round_lock.acquire(blocking=False):
            return False
        self._round(deque(events), fires_timers=False)
        if self._inbox:
            # Left there meanwhile, by those who found us at it.
            self._rouse()
        return True

    def submit_slow(self, event: Event) -> None:
        """Have `event` decided on the driver's own thread."""
        self._slow.append(event)
        self._rouse()

    def _round(self, *inboxes: deque[Event], fires_timers: bool) -> None:
        """With the lock held, which it releases."""
        effects: Sequence[Effect] = ()
        # Before it looks into them: what was left there in time is heard before a timer of that moment.
        now_ms = self._now_ms()
        events = [event for inbox in inboxes for event in _taken(inbox)]
        try:
            if not self._is_stopping:
                effects = self._runtime.run(now_ms, self._wall_ms(), events, fires_timers=fires_timers)
            self._deadline_ms = self._runtime.deadline_ms
        except Exception:
            logger.exception("a round of the coordinator failed: %s", events)
        finally:
            self._round_lock.release()
        for effect in effects:
            if isinstance(effect, Load):
                self._loads.put(effect)
            else:
                self._carry_out(effect)
        deadline_ms = self._deadline_ms
        if deadline_ms is not None and deadline_ms < self._wakes_at_ms:
            self._rouse()

    def _carry_out(self, effect: Effect) -> None:
        try:
            self._perform(effect)
        except Exception:
            logger.exception("%r could not be carried out", effect)

    # The driver's own threads.

    def _rouse(self) -> None:
        with self._wake:
            self._is_woken = True
            self._wake.notify()

    def _run(self) -> None:
        while not self._is_stopping:
            self._wakes_at_ms = -1  # awake: nobody has to wake it
            # Timers come last: a heartbeat that waited here while somebody was at it must not lose to its session's end.
            for inbox in (self._slow, self._inbox):
                for _ in range(len(inbox) // MAX_ROUND_EVENTS):
                    self._round_lock.acquire()
                    self._round(inbox, fires_timers=False)
            self._round_lock.acquire()
            self._round(self._slow, self._inbox, fires_timers=True)
            self._sleep()

    def _sleep(self) -> None:
        with self._wake:
            # Others compare with what it says here: so it is said first, and the deadline looked at once more afterwards.
            self._wakes_at_ms = _NEVER_MS if self._deadline_ms is None else self._deadline_ms
            deadline_ms = self._deadline_ms
            if deadline_ms is not None and deadline_ms < self._wakes_at_ms:
                self._wakes_at_ms = deadline_ms
            if not (self._is_woken or self._slow or self._inbox):
                wait_s = None if deadline_ms is None else max(deadline_ms - self._now_ms(), 0) / 1000
                self._wake.wait(wait_s)
            self._is_woken = False

    def _run_loads(self) -> None:
        while (wanted := self._loads.get()) is not None and not self._is_stopping:
            event: Event
            try:
                event = Loaded(wanted.partition, wanted.shard, self._load(wanted))
            except LoadError as error:
                event = LoadFailed(wanted.partition, wanted.shard, str(error))
            except Exception as error:
                logger.exception("partition %d could not be loaded", wanted.partition)
                event = LoadFailed(wanted.partition, wanted.shard, repr(error))
            self.submit_slow(event)


def _taken(inbox: deque[Event]) -> list[Event]:
    events: list[Event] = []
    try:
        while len(events) < MAX_ROUND_EVENTS:
            events.append(inbox.popleft())
    except IndexError:
        pass
    return events
