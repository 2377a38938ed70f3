"""Requests that only the controller can decide: handed on to it, and answered when it has answered, or when time is up.

Any thread; nothing here waits. A client is answered once: what the controller says after the deadline is dropped, though it
may have been done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pybroker.base.timer import Deadlines, Handle
from pybroker.network.request import Request
from pybroker.protocol.message import Message
from pybroker.server.controller_channel import ControllerChannel

Answer = Callable[[Message], None]
OnBehalf = Callable[[Request, Message, Callable[[Message | None], None]], None]

RECONNECT: Final = "the controller does not understand its request: it has to ask for the versions again"


class Forwarding:
    def __init__(
        self,
        controller: ControllerChannel,
        deadlines: Deadlines,
        now_ms: Callable[[], int],
        *,
        on_behalf: OnBehalf | None = None,
    ) -> None:
        """`deadlines` and `now_ms` are of the same clock, which does not jump. `on_behalf` has a controller elsewhere decide,
        and tells it who the client is, see ControllerClient.forward; by default `controller` is asked in our own name."""
        self._on_behalf: OnBehalf = self._in_own_name if on_behalf is None else on_behalf
        self._controller = controller
        self._deadlines = deadlines
        self._now_ms = now_ms

    def forward(
        self,
        request: Request,
        message: Message,
        timeout_ms: int,
        timed_out: Callable[[], Message],
        *,
        answer_of: Callable[[Message], Message] | None = None,
    ) -> None:
        """Have the controller decide on `message`; `answer_of` makes the client's answer of the controller's."""
        pending = _Pending(request.respond)
        if timeout_ms <= 0:
            # As with Apache Kafka, whose controller finds the time to be up before it begins: nothing is done.
            pending.end(timed_out())
            return
        pending.deadline = self._deadlines.add(self._now_ms() + timeout_ms, lambda: pending.end(timed_out()))

        def done(response: Message | None) -> None:
            if response is not None:
                pending.end(response if answer_of is None else answer_of(response))
            elif pending.forget() is not None:
                request.close_connection(RECONNECT)

        try:
            self._on_behalf(request, message, done)
        except BaseException:
            # Whoever called answers for it.
            pending.forget()
            raise

    def _in_own_name(self, request: Request, message: Message, done: Callable[[Message | None], None]) -> None:
        self._controller.submit(message, request.version, done)


class _Pending:
    """A request without an answer yet; the controller and the deadline race for it."""

    __slots__ = ("_lock", "_respond", "deadline")

    def __init__(self, respond: Answer) -> None:
        self._respond: Answer | None = respond
        self._lock = threading.Lock()
        self.deadline: Handle | None = None

    def end(self, answer: Message) -> None:
        respond = self.forget()
        if respond is not None:
            respond(answer)

    def forget(self) -> Answer | None:
        with self._lock:
            respond, self._respond = self._respond, None
        if self.deadline is not None:
            self.deadline.cancel()
        return respond
