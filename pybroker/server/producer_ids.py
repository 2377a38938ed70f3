"""The producer ids that this broker may give out, taken from the controller a block at a time.

Any thread. The next block is asked for when little of this one is left, so that hardly anybody waits. An id given out is
never given out again: a block that was not used up when the node stops is lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pybroker.protocol.errors import error_name
from pybroker.protocol.message import Message
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from pybroker.server.controller_channel import ControllerChannel

ALLOCATE_VERSION: Final = 0
MAX_PRODUCER_ID: Final = 2**63 - 1
# The next block is asked for when a tenth of this one is left.
PREFETCH_PART: Final = 10

logger = logging.getLogger(__name__)


class ProducerIds:
    def __init__(self, controller: ControllerChannel, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._lock = threading.Lock()
        self._ids = range(0)  # what is left of the current block
        self._prefetch_at = 0
        self._next = range(0)
        self._waiting: list[Callable[[int | None], None]] = []
        self._is_asking = False

    def take(self, done: Callable[[int | None], None]) -> None:
        """Give `done` an id, now or from another thread; None if the controller has none to give at the moment."""
        with self._lock:
            producer_id = self._take()
            if producer_id is None:
                self._waiting.append(done)
            asks = not self._is_asking and not self._next and len(self._ids) <= self._prefetch_at
            self._is_asking |= asks
        if producer_id is not None:
            done(producer_id)
        if asks:
            request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
            self._controller.submit(request, ALLOCATE_VERSION, self._allocated)

    def _take(self) -> int | None:
        if not self._ids:
            self._ids, self._next = self._next, range(0)
            self._prefetch_at = len(self._ids) // PREFETCH_PART
        if not self._ids:
            return None
        first, self._ids = self._ids[0], self._ids[1:]
        return first

    def _allocated(self, response: Message) -> None:
        assert isinstance(response, AllocateProducerIdsResponse), response
        block = range(response.producer_id_start, response.producer_id_start + response.producer_id_len)
        if response.error_code:
            logger.warning("the controller gave no producer ids: %s", error_name(response.error_code))
            block = range(0)
        elif not block or not 0 <= block.start <= block[-1] <= MAX_PRODUCER_ID:
            logger.error("the controller gave the producer ids %s; expected some from 0 to %d", block, MAX_PRODUCER_ID)
            block = range(0)
        with self._lock:
            self._is_asking = False
            self._next = block
            waiting, self._waiting = self._waiting, []
            served = [(done, self._take()) for done in waiting] if block else []
            # More than a block of them: they go round once more.
            left = [done for done, producer_id in served if producer_id is None]
        if not block:
            for done in waiting:
                done(None)
        for done, producer_id in served:
            if producer_id is not None:
                done(producer_id)
        for done in left:
            self.take(done)
