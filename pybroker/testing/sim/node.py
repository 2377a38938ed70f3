"""A node of a simulation: a process that runs, stands still (SIGSTOP) or is gone, with a clock and a deadline of its own.

What lives in the process is the level's business: it fills in what a boot builds, what a crash loses and what a call does.
A life is one boot to the next crash; whatever was meant for an earlier life goes nowhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pybroker.protocol.message import Message
from pybroker.testing.sim.clock import SimClock
from pybroker.testing.sim.schedule import Schedule

if TYPE_CHECKING:
    from pybroker.testing.sim.network import Call


class SimNode(ABC):
    def __init__(self, schedule: Schedule, node_id: int, clock: SimClock) -> None:
        self.schedule = schedule
        self.node_id = node_id
        self.clock = clock
        self.life = 0
        self.crashes = 0
        self.is_up = False
        self.is_paused = False
        self._inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._armed_us: int | None = None

    # What a level fills in.

    @abstractmethod
    def boot(self) -> None:
        """Build the process from what is durable, and let it start."""

    @abstractmethod
    def lose_memory(self) -> None:
        """The process is gone, and with it whatever the disk had not yet made safe."""

    @abstractmethod
    def next_deadline_ms(self) -> int | None: ...

    @abstractmethod
    def handle_deadline(self) -> None: ...

    @abstractmethod
    def handle_request(self, call: Call) -> None: ...

    @abstractmethod
    def handle_request_dropped(self, call: Call) -> None: ...

    @abstractmethod
    def handle_response(self, request_id: int, message: Message) -> None: ...

    @abstractmethod
    def handle_failure(self, request_id: int) -> None: ...

    @abstractmethod
    def handle_node_lost(self, node_id: int) -> None: ...

    # What the level and the faults use.

    def now_ms(self) -> int:
        return self.clock.now_ms(self.schedule.now_us)

    def start(self) -> None:
        if not self.is_up:
            self.is_up = True
            self.life += 1
            self.boot()
            self.arm()

    def crash(self) -> None:
        if self.is_up:
            self.crashes += 1
            self.is_up = self.is_paused = False
            self._inbox.clear()
            self._armed_us = None
            self.lose_memory()

    def pause(self) -> None:
        self.is_paused = self.is_up

    def resume(self) -> None:
        """Everything that came meanwhile is handled at once, in the order it came."""
        self.is_paused = False
        waiting, self._inbox = self._inbox, []
        life = self.life
        for action, args in waiting:
            self.deliver(life, action, *args)

    def deliver(self, life: int, action: Callable[..., None], *args: Any) -> None:
        if life != self.life or not self.is_up:
            return
        if self.is_paused:
            self._inbox.append((action, args))
            return
        action(*args)

    def after_us(self, delay_us: int, action: Callable[..., None], *args: Any) -> None:
        """Within this life."""
        self.schedule.after(delay_us, self.deliver, self.life, action, *args)

    def arm(self) -> None:
        """Look at the deadline anew: after every step, and after the clock was touched."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or not self.is_up:
            return
        due_us = max(self.clock.due_us(deadline_ms), self.schedule.now_us)
        if self._armed_us is None or due_us < self._armed_us:
            self._armed_us = due_us
            self.schedule.at(due_us, self.deliver, self.life, self._ring, due_us)

    def _ring(self, armed_us: int) -> None:
        if self._armed_us != armed_us:
            return  # another one was set for earlier
        self._armed_us = None
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is not None and self.now_ms() >= deadline_ms:
            self.handle_deadline()
        self.arm()
