"""Handler threads (num.io.threads): they take connections off the request queue and handle their requests, which may block.

A thread starts when an item finds no other waiting. It handles the requests of an item one after the other; it lets the
connection go when all are done, when one is to be answered later, or when the answers so far should first be sent, so that a
peer that reads nothing cannot make us hold more and more of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from threading import Lock, Thread, get_ident
from time import monotonic, monotonic_ns

from pybroker.network.answers import Gather
from pybroker.network.connection import BROKE, GATHER_BYTES, Connection
from pybroker.network.headers import BadRequestError
from pybroker.network.request import Request
from pybroker.network.request_queue import RequestQueue

logger = logging.getLogger(__name__)


class HandlerPool:
    def __init__(self, threads: int, max_requests: int, max_request_bytes: int) -> None:
        self.queue = RequestQueue(max_requests, max_request_bytes, self._start_one)
        self._size = threads
        self._lock = Lock()
        self._handlers: list[_Handler] = []
        self._numbers = count()
        self._dismissed = 0  # told to end, and still there
        self._busy_ns_of_ended = 0
        self._is_stopped = False

    @property
    def size(self) -> int:
        """How many there may be."""
        return self._size

    @property
    def started(self) -> int:
        return len(self._handlers)

    def busy_ns(self) -> int:
        """How long all of them together have been handling requests."""
        with self._lock:
            return self._busy_ns_of_ended + sum(handler.busy_ns for handler in self._handlers)

    def resize(self, threads: int) -> None:
        with self._lock:
            surplus = max(0, len(self._handlers) - self._dismissed - threads)
            self._dismissed += surplus
            self._size = threads
        for _ in range(surplus):
            self.queue.dismiss()

    def stop(self, timeout_s: float) -> None:
        """What is queued is still handled; a thread that is not done in time is left to end with its request."""
        with self._lock:
            self._is_stopped = True
            handlers = list(self._handlers)
            dismissed, self._dismissed = self._dismissed, len(handlers)
        for _ in handlers[dismissed:]:
            self.queue.dismiss()
        deadline = monotonic() + timeout_s
        for handler in handlers:
            handler.thread.join(max(0.0, deadline - monotonic()))
            if handler.thread.is_alive():
                logger.warning("%s is still busy %.0f s after it was told to end", handler.thread.name, timeout_s)

    def _start_one(self) -> None:
        """RuntimeError if there is none, and none can be started."""
        with self._lock:
            if self._is_stopped or len(self._handlers) - self._dismissed >= self._size:
                return
            handler = _Handler(self.queue, next(self._numbers), self._on_end)
            try:
                handler.thread.start()
            except RuntimeError:
                if not len(self._handlers) - self._dismissed:
                    raise
                logger.warning("the system has no thread more than these %d that handle requests", len(self._handlers))
                return
            self._handlers.append(handler)

    def _on_end(self, handler: _Handler) -> None:
        with self._lock:
            self._handlers.remove(handler)
            self._dismissed -= 1
            self._busy_ns_of_ended += handler.busy_ns


class _Handler:
    __slots__ = ("_on_end", "_queue", "busy_ns", "thread")

    def __init__(self, queue: RequestQueue, number: int, on_end: Callable[[_Handler], None]) -> None:
        self._queue = queue
        self._on_end = on_end
        self.busy_ns = 0
        self.thread = Thread(target=self._run, name=f"request-handler-{number}", daemon=True)

    def _run(self) -> None:
        gather = Gather(get_ident())
        while (connection := self._queue.get()) is not None:
            start_ns = monotonic_ns()
            self._serve(connection, gather)
            self.busy_ns += monotonic_ns() - start_ns
        self._on_end(self)

    def _serve(self, connection: Connection, gather: Gather) -> None:
        pending = connection.pending
        waiting_for: Request | None = None
        try:
            while pending and not connection.is_closing and not gather.splices and len(gather.out) <= GATHER_BYTES:
                together = connection.service.handle_pipelined(connection, pending, 0, gather)
                if together:
                    del pending[:together]
                    continue
                request = connection.read_request(pending.pop(0), gather, True)
                if not connection.service.handle(request):
                    raise RuntimeError(f"{request} was not handled on a thread that may block")
                if request.close_reason is not None:
                    connection.thread.post(connection.send, gather.take())
                    connection.close_soon(request.close_reason)
                    return
                if not request.settled:
                    # From here on an answer, be it from this very thread, is a late one.
                    request.gather = None
                    waiting_for = request
                    break
        except BadRequestError as error:
            connection.thread.post(connection.send, gather.take())
            connection.close_soon(str(error))
            return
        except Exception:
            gather.drop()
            logger.exception(BROKE, connection, connection.listener_name)
            connection.close_soon(None)
            return
        connection.thread.post(connection.on_released, gather.take(), waiting_for)
