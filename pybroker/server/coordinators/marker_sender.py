"""Tells the partitions of a decided transaction how it ended, again and again until each of them has its marker.

Any thread; nothing here waits. Markers for the same broker go together: while a request is under way, the next one gathers.
Those for partitions that another broker leads meanwhile are not left behind one that hangs. A job belongs to the shard that
decided it and dies with that: whoever loads the transaction next sends its markers anew. A partition that is gone needs none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from pybroker.base.address import Address
from pybroker.base.timer import Deadlines
from pybroker.client.request_error import RequestError
from pybroker.coordinator.transaction.requests import SendMarkers
from pybroker.coordinator.transaction.transaction import TopicPartition
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.errors import ErrorCode, error_of
from pybroker.protocol.message import Message
from pybroker.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
MAX_MARKERS: Final = 1000  # of one request; of a transactional id there is one at a time
# The partition has seen a later producer: nothing of this transaction is open there any more.
_PASSED: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT))

Write = Callable[[list[WritableTxnMarker], Callable[[list[WritableTxnMarkerResult]], None]], None]


class Send(Protocol):
    """NodeClient.send."""

    def __call__(
        self, address: Address, request: Message, timeout_ms: int, done: Callable[[Message | RequestError], None], /
    ) -> None: ...


class _Job:
    __slots__ = ("left", "order")

    def __init__(self, order: SendMarkers) -> None:
        self.order = order
        self.left = set(order.partitions)


_Part = tuple[_Job, list[TopicPartition]]  # of a job, for one broker


class _Broker:
    __slots__ = ("is_busy", "sent", "waiting")

    def __init__(self) -> None:
        self.is_busy = False
        self.sent: list[_Part] = []
        self.waiting: list[_Part] = []


class MarkerSender:
    def __init__(
        self,
        broker_id: int,
        *,
        image: Callable[[], MetadataImage],
        address_of: Callable[[int], Address | None],
        send: Send,
        write_here: Write,
        epoch_of: Callable[[SendMarkers], int | None],
        on_written: Callable[[SendMarkers], None],
        timer: Deadlines,
        now_ms: Callable[[], int],
        timeout_ms: Callable[[], int],
    ) -> None:
        """`epoch_of` is the coordinator epoch under which an order's markers are written; None if it counts no more.
        `on_written` is told of orders that are done."""
        self._broker_id = broker_id
        self._image = image
        self._address_of = address_of
        self._send = send
        self._write_here = write_here
        self._epoch_of = epoch_of
        self._on_written = on_written
        self._timer = timer
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._brokers: dict[int, _Broker] = {}

    def send(self, order: SendMarkers) -> None:
        job = _Job(order)
        if job.left:
            self._dispatch(job, order.partitions)
        else:
            self._on_written(order)

    def _dispatch(self, job: _Job, partitions: Collection[TopicPartition]) -> None:
        """Each to its leader of this moment."""
        if self._epoch_of(job.order) is None:
            return
        image = self._image()
        by_leader: dict[int, list[TopicPartition]] = {}
        gone: list[TopicPartition] = []
        leaderless: list[TopicPartition] = []
        for topic, index in sorted(partitions):
            state = image.partition(topic, index)
            if state is None:
                gone.append((topic, index))
            elif state.leader == self._broker_id or self._address_of(state.leader) is not None:
                by_leader.setdefault(state.leader, []).append((topic, index))
            else:
                leaderless.append((topic, index))
        if leaderless:
            self._retry(job, leaderless)
        if gone:
            logger.info("%s: %s are gone, and need no markers", job.order.transactional_id, gone)
            self._have_markers(job, gone)
        for leader, own in by_leader.items():
            if leader == self._broker_id:
                self._write_own(job, own)
            else:
                with self._lock:
                    self._brokers.setdefault(leader, _Broker()).waiting.append((job, own))
                self._pump(leader)

    def _write_own(self, job: _Job, partitions: list[TopicPartition]) -> None:
        marker = self._marker(job, partitions)
        if marker is not None:
            self._write_here([marker], lambda results: self._settle(job, partitions, _codes(results)[marker.producer_id]))

    def _marker(self, job: _Job, partitions: Iterable[TopicPartition]) -> WritableTxnMarker | None:
        order = job.order
        epoch = self._epoch_of(order)
        if epoch is None:
            return None
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            topics.setdefault(topic, []).append(index)
        return WritableTxnMarker(
            producer_id=order.producer.producer_id,
            producer_epoch=order.producer.epoch,
            transaction_result=order.commits,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
            coordinator_epoch=epoch,
            transaction_version=order.version,
        )

    # To other brokers.

    def leaders_moved(self) -> None:
        """Bring what waits for a broker, even for its answer, to whoever leads the partition now."""
        image = self._image()
        moved: list[_Part] = []

        def kept(broker_id: int, parts: list[_Part]) -> list[_Part]:
            out: list[_Part] = []
            for job, partitions in parts:
                left = [one for one in partitions if (state := image.partition(*one)) is not None and state.leader == broker_id]
                if left:
                    out.append((job, left))
                if len(left) < len(partitions):
                    moved.append((job, [one for one in partitions if one not in left]))
            return out

        with self._lock:
            for broker_id, broker in self._brokers.items():
                broker.waiting = kept(broker_id, broker.waiting)
                # An answer of the one before does not count any more: with it the transaction could be over while the marker
                # is on its way to the next one, and would come into the transaction behind it.
                broker.sent = kept(broker_id, broker.sent)
        for job, partitions in moved:
            self._dispatch(job, partitions)

    def _pump(self, broker_id: int) -> None:
        broker = self._brokers[broker_id]
        with self._lock:
            if broker.is_busy or not broker.waiting:
                return
            taken = self._take(broker)
            broker.is_busy = True
            broker.sent = taken
        markers = [one for job, partitions in taken if (one := self._marker(job, partitions)) is not None]
        address = self._address_of(broker_id)

        def answered(response: Message | RequestError) -> None:
            with self._lock:
                broker.is_busy = False
                sent, broker.sent = broker.sent, []
            codes = _codes(response.markers) if isinstance(response, WriteTxnMarkersResponse) else {}
            if isinstance(response, RequestError):
                logger.info("markers of %d transactions: %s; they are sent again", len(sent), response)
            for job, partitions in sent:
                self._settle(job, partitions, codes.get(job.order.producer.producer_id, {}))
            self._pump(broker_id)

        if address is None or not markers:
            with self._lock:
                broker.is_busy = False
                sent, broker.sent = broker.sent, []
            for job, partitions in sent:
                self._retry(job, partitions)
            self._pump(broker_id)
        else:
            self._send(address, WriteTxnMarkersRequest(markers=markers), self._timeout_ms(), answered)

    def _take(self, broker: _Broker) -> list[_Part]:
        """One of each producer, since the answer tells them apart by that."""
        taken: dict[int, _Part] = {}
        left = []
        for one in broker.waiting:
            if len(taken) >= MAX_MARKERS or taken.setdefault(one[0].order.producer.producer_id, one) is not one:
                left.append(one)
        broker.waiting = left
        return list(taken.values())

    # What came of it.

    def _settle(self, job: _Job, partitions: Iterable[TopicPartition], codes: dict[TopicPartition, ErrorCode]) -> None:
        done: list[TopicPartition] = []
        again: list[TopicPartition] = []
        for partition in partitions:
            code = codes.get(partition, ErrorCode.NETWORK_EXCEPTION)
            if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                logger.info("%s: another coordinator has taken over", job.order.transactional_id)
                return
            if code in _PASSED:
                logger.warning("%s: %s takes no marker: %s", job.order.transactional_id, partition, code.name)
            if code is ErrorCode.NONE or code in _PASSED:
                done.append(partition)
            else:
                again.append(partition)
        if again:
            self._retry(job, again)
        self._have_markers(job, done)

    def _retry(self, job: _Job, partitions: list[TopicPartition]) -> None:
        self._timer.add(self._now_ms() + RETRY_MS, lambda: self._dispatch(job, partitions))

    def _have_markers(self, job: _Job, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            was_left = bool(job.left)
            job.left.difference_update(partitions)
            is_done = was_left and not job.left
        if is_done:
            self._on_written(job.order)


def _codes(results: Iterable[WritableTxnMarkerResult]) -> dict[int, dict[TopicPartition, ErrorCode]]:
    return {
        one.producer_id: {
            (topic.name, row.partition_index): error_of(row.error_code) for topic in one.topics for row in topic.partitions
        }
        for one in results
    }
