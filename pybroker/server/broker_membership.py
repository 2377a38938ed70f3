"""Runs the machine of a broker's membership: its requests go to the active controller, its deadlines to the timer.

Any thread; the machine is stepped under one lock, and what it orders is done after it. Nothing here waits, but `wait_for`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pybroker.base.timer import Deadlines, Handle
from pybroker.protocol.message import Message
from pybroker.server.broker_lifecycle import (
    AnnounceEpoch,
    AnnounceFenced,
    AnnounceRefusal,
    AnnounceState,
    BrokerLifecycle,
    BrokerState,
    DeadlinePassed,
    Effect,
    Event,
    RequestFailed,
    ResponseReceived,
    SendToController,
    StopBroker,
    Trace,
)

logger = logging.getLogger(__name__)


class DirectController(Protocol):
    """The active controller, for requests that nobody retries."""

    def ask(self, request: Message, timeout_ms: int, done: Callable[[Message | None], None]) -> None:
        """`done` gets the answer, or None if there is none, once, on any thread."""


class BrokerMembership:
    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        controller: DirectController,
        deadlines: Deadlines,
        now_ms: Callable[[], int],
        on_stop: Callable[[str], None],
    ) -> None:
        """`deadlines` and `now_ms` are of the same clock. `on_stop` hears why the broker cannot go on."""
        self._lifecycle = lifecycle
        self._controller = controller
        self._deadlines = deadlines
        self._now_ms = now_ms
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._effects: deque[Effect] = deque()
        self._is_running = False  # some thread runs the effects
        self._handle: Handle | None = None

    @property
    def state(self) -> BrokerState:
        return self._lifecycle.state

    @property
    def broker_epoch(self) -> int:
        return self._lifecycle.broker_epoch

    def tell(self, event: Event) -> None:
        with self._lock:
            self._effects += self._lifecycle.step(self._now_ms(), event)
            if self._handle is not None:
                self._handle.cancel()
            deadline_ms = self._lifecycle.deadline_ms
            self._handle = None if deadline_ms is None else self._deadlines.add(deadline_ms, self._deadline_passed)
            self._changed.notify_all()
            if self._is_running:
                return
            self._is_running = True
        self._run()

    def wait_for(self, *states: BrokerState, timeout_s: float | None = None) -> bool:
        """Until the broker is in one of `states`; False if the time is up first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._lifecycle.state in states, timeout_s)

    def _deadline_passed(self) -> None:
        self.tell(DeadlinePassed())

    def _run(self) -> None:
        """In order, whichever threads they come from: one runs them all."""
        while True:
            with self._lock:
                if not self._effects:
                    self._is_running = False
                    return
                effect = self._effects.popleft()
            try:
                self._do(effect)
            except BaseException:
                # Whoever tells the next event goes on with the rest.
                with self._lock:
                    self._is_running = False
                raise

    def _do(self, effect: Effect) -> None:
        match effect:
            case SendToController(request_id, message, timeout_ms):
                self._send(request_id, message, timeout_ms)
            case AnnounceEpoch(broker_epoch):
                logger.info("registered, with broker epoch %d", broker_epoch)
            case AnnounceFenced(is_fenced):
                logger.info("%s by the controller", "fenced" if is_fenced else "unfenced")
            case AnnounceRefusal(reason):
                logger.warning("the controller does not register this broker: %s It is asked again and again.", reason)
            case AnnounceState():
                pass
            case StopBroker(reason):
                logger.critical("%s", reason)
                self._on_stop(reason)
            case Trace(text):
                logger.debug("%s", text)

    def _send(self, request_id: int, message: Message, timeout_ms: int) -> None:
        def done(answer: Message | None) -> None:
            if answer is None:
                self.tell(RequestFailed(request_id, f"no answer of a controller to {type(message).__name__}"))
            else:
                self.tell(ResponseReceived(request_id, answer))

        self._controller.ask(message, timeout_ms, done)
