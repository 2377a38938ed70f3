"""A controller makes itself known (KIP-919): it registers with the active one until the metadata show its incarnation.

`ControllerRegistration` is a pure machine, `ControllerRegistrar` runs it. The active controller registers with itself like any
other. What a controller that was acknowledged waits for is the metadata; it asks again when they show something else, or do not
show it after a while: a late request of its former incarnation may have come after its own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pybroker.base.ids import Uuid
from pybroker.base.timer import Deadlines, Handle
from pybroker.base.value import Value
from pybroker.metadata.controller.features import CONTROLLER_REGISTRATION, metadata_version
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.errors import error_name
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

logger = logging.getLogger(__name__)

BACKOFF_MS: Final = 100
BACKOFF_MAX_MS: Final = 120_000
# Of a pause, what is drawn from either side of it, in percent.
JITTER_PERCENT: Final = 2
REQUEST_TIMEOUT_MS: Final = 5000
# How long one that was acknowledged waits to be shown.
SHOWN_WITHIN_MS: Final = 5000


class ControllerIdentity(Value):
    """What a controller registers with."""

    controller_id: int
    incarnation_id: Uuid  # a new one for each start of the process
    listeners: Sequence[Listener]
    features: Sequence[Feature]


# Events.


class DeadlinePassed(Value):
    """`deadline_ms` has come; harmless too early."""


class MetadataPublished(Value):
    """What the metadata say now: metadata.version, and the incarnation of this controller, if it is registered."""

    metadata_version: int
    incarnation_id: Uuid | None


class ResponseReceived(Value):
    message: Message


class RequestFailed(Value):
    """No answer, or no controller to ask."""


Event = DeadlinePassed | MetadataPublished | ResponseReceived | RequestFailed

# Effects.


class SendToController(Value):
    """It comes back as ResponseReceived or RequestFailed, after `timeout_ms` at the latest; there is one at a time."""

    message: Message
    timeout_ms: int


class Trace(Value):
    text: str


Effect = SendToController | Trace


class ControllerRegistration:
    def __init__(self, identity: ControllerIdentity, *, draw_below: Callable[[int], int]) -> None:
        """`draw_below(n)` is a random number from 0 to n - 1."""
        self._identity = identity
        self._draw_below = draw_below
        self._is_supported = False  # by the metadata.version
        self._shown: Uuid | None = None  # by the metadata
        self._is_acknowledged = False  # and the metadata have not changed their mind since
        self._is_in_flight = False
        self._was_shown = False  # while a request was in flight, so that its answer is old news
        self._failures = 0  # in a row
        self.deadline_ms: int | None = None  # of the next attempt

    @property
    def is_registered(self) -> bool:
        return self._shown == self._identity.incarnation_id

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case DeadlinePassed():
                pass
            case MetadataPublished(level, incarnation_id):
                self._is_supported = level >= CONTROLLER_REGISTRATION
                if incarnation_id != self._shown:
                    self._shown = incarnation_id
                    self._was_shown |= self.is_registered
                    if self._is_acknowledged:
                        self._is_acknowledged = False
                        self.deadline_ms = None
                if self.deadline_ms is None and self._is_needed():
                    self.deadline_ms = now_ms
            case ResponseReceived(message):
                self._is_in_flight = False
                assert isinstance(message, ControllerRegistrationResponse), message
                if message.error_code:
                    reason = f"{error_name(message.error_code)} {message.error_message or ''}"
                    effects.append(self._failed(now_ms, f"the active controller does not register this one: {reason}"))
                else:
                    self._failures = 0
                    self._is_acknowledged = not self._was_shown
                    self.deadline_ms = now_ms + SHOWN_WITHIN_MS if self._is_acknowledged else now_ms
            case RequestFailed():
                self._is_in_flight = False
                effects.append(self._failed(now_ms, "no answer to the registration of this controller"))
        if not self._is_needed():
            self.deadline_ms = None
        elif self.deadline_ms is not None and self.deadline_ms <= now_ms:
            self.deadline_ms = None
            self._is_in_flight = True
            self._is_acknowledged = False
            self._was_shown = False
            effects.append(SendToController(self._request(), REQUEST_TIMEOUT_MS))
        return effects

    def _is_needed(self) -> bool:
        return self._is_supported and not (self.is_registered or self._is_in_flight)

    def _failed(self, now_ms: int, reason: str) -> Trace:
        pause_ms = min(BACKOFF_MS << min(self._failures, 20), BACKOFF_MAX_MS)
        spread_ms = pause_ms * JITTER_PERCENT // 100
        pause_ms += self._draw_below(2 * spread_ms + 1) - spread_ms
        self._failures += 1
        self.deadline_ms = now_ms + pause_ms
        return Trace(f"{reason}; the next attempt is in {pause_ms} ms")

    def _request(self) -> ControllerRegistrationRequest:
        identity = self._identity
        return ControllerRegistrationRequest(
            controller_id=identity.controller_id,
            incarnation_id=identity.incarnation_id,
            zk_migration_ready=False,
            listeners=list(identity.listeners),
            features=list(identity.features),
        )


class ControllerRegistrar:
    """Any thread; the machine is stepped under one lock, and what it orders is done after it. Nothing here waits."""

    def __init__(
        self,
        identity: ControllerIdentity,
        ask: Callable[[Message, int, Callable[[Message | None], None]], None],
        deadlines: Deadlines,
        now_ms: Callable[[], int],
        draw_below: Callable[[int], int],
    ) -> None:
        """`ask` has the active controller answer a request within a time, or gives None. `deadlines` and `now_ms` are of the
        same clock."""
        self._id = identity.controller_id
        self._machine = ControllerRegistration(identity, draw_below=draw_below)
        self._ask = ask
        self._deadlines = deadlines
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._effects: deque[Effect] = deque()
        self._is_running = False  # some thread does what was ordered
        self._handle: Handle | None = None
        self._is_stopped = False

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A publisher of the metadata."""
        known = image.controllers.get(self._id)
        self._tell(MetadataPublished(metadata_version(image), None if known is None else known.incarnation_id))

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._handle is not None:
                self._handle.cancel()

    def _tell(self, event: Event) -> None:
        with self._lock:
            if self._is_stopped:
                return
            self._effects += self._machine.step(self._now_ms(), event)
            if self._handle is not None:
                self._handle.cancel()
            deadline_ms = self._machine.deadline_ms
            self._handle = None if deadline_ms is None else self._deadlines.add(deadline_ms, self._deadline_passed)
        self._run()

    def _deadline_passed(self) -> None:
        self._tell(DeadlinePassed())

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._is_running or not self._effects:
                    return
                self._is_running = True
                effect = self._effects.popleft()
            try:
                self._do(effect)
            finally:
                with self._lock:
                    self._is_running = False

    def _do(self, effect: Effect) -> None:
        match effect:
            case SendToController(message, timeout_ms):
                self._ask(message, timeout_ms, self._answered)
            case Trace(text):
                logger.info("%s", text)

    def _answered(self, answer: Message | None) -> None:
        self._tell(RequestFailed() if answer is None else ResponseReceived(answer))
