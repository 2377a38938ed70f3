"""The fetchers of a broker: num.replica.fetchers for each broker that leads partitions which are followed here.

A `FetcherDriver` runs one `Fetcher` over the network: one request under way, its answer taken in on the client's thread if
that is quick and nobody else is at it, else on a background thread. Partitions that come while the leader holds a request back
do not wait for it: the next one goes out over another connection. Its lock comes before those of partitions and logs. Metadata
changes add and remove partitions from another thread; they wait for an answer that is being taken in.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol
from zlib import crc32

from pybroker.base.address import Address
from pybroker.base.timer import Deadlines, Handle
from pybroker.log.background import Background
from pybroker.log.manager.log_manager import LogManager
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchRequest, FetchResponse
from pybroker.protocol.messages.offsets import ListOffsetsResponse
from pybroker.protocol.schema import Versions
from pybroker.replication.fetch_session_client import Key
from pybroker.replication.fetcher import (
    AppendFetched,
    Effect,
    Fetcher,
    FetcherSettings,
    StartOver,
    TruncateTo,
    TruncateToEpoch,
)
from pybroker.replication.partition import Partition
from pybroker.replication.throttle import UNTHROTTLED, ReplicationThrottle

logger = logging.getLogger(__name__)

# In which a fetch says who asks for the followers of topics by their ids, and in which epoch it was registered.
FETCH_VERSIONS: Final = Versions(15, FetchRequest.VERSIONS.high)
# What the client's thread takes in by itself: its other connections wait meanwhile.
MAX_QUICK_BYTES: Final = 1024 * 1024
# While nothing can be asked for because of a throttle.
THROTTLED_PAUSE_MS: Final = 50


class Send(Protocol):
    def __call__(
        self,
        address: Address,
        request: Message,
        timeout_ms: int,
        done: Callable[[object], None],
        *,
        lane: str = "",
        versions: Versions | None = None,
    ) -> None:
        """`done` gets the response, or something else if there is none, on a thread that it must not keep for long."""


@dataclass(slots=True, frozen=True)
class FetcherPorts:
    """What the fetchers need of their broker."""

    send: Send
    timer: Deadlines
    background: Background
    logs: LogManager
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    own_epoch: Callable[[], int]  # of the broker's registration
    address_of: Callable[[int], Address | None]  # of a broker's listener for other brokers
    on_committed: Callable[[Partition], None]  # more than before
    throttle: ReplicationThrottle = UNTHROTTLED


class FetcherDriver:
    def __init__(self, source: int, number: int, settings: FetcherSettings, timeout_ms: int, ports: FetcherPorts) -> None:
        """`timeout_ms` is replica.socket.timeout.ms."""
        self._fetcher = Fetcher(source, settings)
        self._lanes = [f"replica-fetcher-{number}-0", f"replica-fetcher-{number}-1"]  # the first is used
        self._timeout_ms = timeout_ms
        self._ports = ports
        self._lock = threading.Lock()
        self._followed: dict[Key, Partition] = {}
        self._is_under_way = False
        self._sent = 0  # the number of the request that an answer is awaited to
        self._is_waiting = False  # for that answer
        self._is_overtaken = False  # an older one is still out there; nobody awaits its answer
        self._is_stopped = False
        self._alarm: Handle | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def followed(self) -> list[Partition]:
        with self._lock:
            return list(self._followed.values())

    def add(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            for partition in partitions:
                key = _key(partition)
                self._followed[key] = partition
                self._fetcher.added(key, partition.topic_partition, partition.leader_epoch, partition.position())
            if self._is_waiting and not self._is_overtaken:
                self._is_overtaken = True
                self._lanes.reverse()
                self._is_under_way = self._is_waiting = False
                self._fetcher.overtook()
            send = self._next()
        send()

    def remove(self, keys: Iterable[Key]) -> None:
        """Nothing more is appended to them by this fetcher when this returns."""
        with self._lock:
            for key in keys:
                if self._followed.pop(key, None) is not None:
                    self._fetcher.removed(key)

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            self._followed.clear()
            if self._alarm is not None:
                self._alarm.cancel()

    # Under the lock.

    def _next(self) -> Callable[[], None]:
        """What sends the next request, to be called when the lock is let go of, since an error may come back at once; does
        nothing if one is under way, or if there is none now: then a wake-up call is set for when there may be."""
        if self._is_under_way or self._is_stopped or not self._followed:
            return _nothing
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        now_ms = self._ports.monotonic_ms()
        request = self._fetcher.next_request(now_ms, self._ports.own_epoch(), self._throttled())
        if request is None:
            deadline_ms = self._fetcher.deadline_ms
            if deadline_ms is not None:
                self._alarm = self._ports.timer.add(max(deadline_ms, now_ms + THROTTLED_PAUSE_MS), self._woken)
            return _nothing
        self._is_under_way = self._is_waiting = True
        self._sent += 1
        answered = partial(self._answered, self._sent)
        address = self._ports.address_of(self._fetcher.source)
        if address is None:
            # Its registration is on its way, or it is gone for good.
            return partial(self._ports.background.run, partial(answered, None))
        versions = FETCH_VERSIONS if isinstance(request, FetchRequest) else None
        return partial(self._ports.send, address, request, self._timeout_ms, answered, lane=self._lanes[0], versions=versions)

    def _throttled(self) -> list[Key]:
        throttle = self._ports.throttle
        if not throttle.is_exceeded():
            return []
        return [key for key, partition in self._followed.items() if throttle.is_throttled(partition.topic_partition)]

    def _woken(self) -> None:
        with self._lock:
            send = self._next()
        send()

    # Answers.

    def _answered(self, number: int, response: object) -> None:
        """On the client's thread, which serves others, too: it waits for nobody who truncates a log under the lock."""
        is_quick = not isinstance(response, FetchResponse) or _is_quick(response)
        if not is_quick or not self._lock.acquire(blocking=False):
            self._ports.background.run(partial(self._answered_slowly, number, response))
            return
        try:
            send = self._take_in(number, response)
        finally:
            self._lock.release()
        send()

    def _answered_slowly(self, number: int, response: object) -> None:
        with self._lock:
            send = self._take_in(number, response)
        send()

    def _take_in(self, number: int, response: object) -> Callable[[], None]:
        """What is to be called when the lock, which is held, is let go of."""
        if self._is_stopped:
            return _nothing
        if number != self._sent:
            self._is_overtaken = False
            return _nothing
        self._is_under_way = self._is_waiting = False
        fetcher, now_ms = self._fetcher, self._ports.monotonic_ms()
        effects: list[Effect] = []
        if isinstance(response, FetchResponse):
            effects = fetcher.fetch_answered(now_ms, response)
        elif isinstance(response, ListOffsetsResponse):
            effects = fetcher.offsets_answered(now_ms, response)
        else:
            logger.info("broker %d: no answer to a fetcher: %s", fetcher.source, response or "its address is not known")
            fetcher.failed(now_ms)
        for effect in effects:
            if type(effect) is not AppendFetched:
                break
        else:
            self._run(effects)
            return self._next()
        # Truncation takes its time, and may wait for the cleaner.
        self._is_under_way = True
        return partial(self._ports.background.run, partial(self._run_slowly, effects))

    def _run_slowly(self, effects: list[Effect]) -> None:
        with self._lock:
            self._is_under_way = False
            if self._is_stopped:
                return
            self._run(effects)
            send = self._next()
        send()

    def _run(self, effects: list[Effect]) -> None:
        """Each is done to the log, unless the partition was given another role meanwhile."""
        fetcher, ports = self._fetcher, self._ports
        for effect in effects:
            key, leader_epoch = effect.key, effect.leader_epoch
            partition = self._followed.get(key)
            if partition is None:
                continue
            try:
                if isinstance(effect, AppendFetched):
                    is_done = self._append(partition, effect)
                else:
                    is_done = self._truncate(partition, effect)
            except KafkaError as error:
                logger.error("%s: what broker %d sent: %s", partition.topic_partition, fetcher.source, error.message)
                # A disk that is merely full has kept the log.
                is_final = error.code is ErrorCode.KAFKA_STORAGE_ERROR and not self._is_online(partition)
                fetcher.not_done(ports.monotonic_ms(), key, leader_epoch, is_final=is_final)
            except OSError as error:
                doing = f"replicating {partition.topic_partition}"
                is_final = ports.logs.on_io_error(partition.log.directory, error, doing=doing)
                fetcher.not_done(ports.monotonic_ms(), key, leader_epoch, is_final=is_final)
            except Exception:
                # It must not keep the others, which are fetched with it, from going on.
                logger.exception("%s: what broker %d sent", partition.topic_partition, fetcher.source)
                fetcher.not_done(ports.monotonic_ms(), key, leader_epoch)
            else:
                if is_done:
                    fetcher.log_changed(key, leader_epoch, partition.position())
                else:
                    fetcher.not_done(ports.monotonic_ms(), key, leader_epoch)
                    # What could not be finished before may have changed the log all the same.
                    fetcher.log_changed(key, leader_epoch, partition.position())

    def _is_online(self, partition: Partition) -> bool:
        return self._ports.logs.get(partition.topic_partition) is partition.log

    def _append(self, partition: Partition, effect: AppendFetched) -> bool:
        ports, data = self._ports, effect.data
        is_advanced = partition.append_fetched(effect.leader_epoch, effect.fetch_offset, data, ports.now_ms())
        if is_advanced is None:
            return False
        if data.records and ports.throttle.is_limited:
            ports.throttle.record(partition.topic_partition, len(data.records))
        if is_advanced:
            ports.on_committed(partition)
        return True

    def _truncate(self, partition: Partition, effect: TruncateToEpoch | TruncateTo | StartOver) -> bool:
        ports = self._ports
        name = partition.topic_partition
        with partition.lock:
            if not partition.follows_in(effect.leader_epoch):
                return False
            before = partition.position()
            if isinstance(effect, StartOver):
                ports.logs.truncate_fully_and_start_at(name, effect.offset)
                return True
            if isinstance(effect, TruncateTo):
                offset = effect.offset
            else:
                offset = partition.truncation_offset(effect.epoch, effect.end_offset)
            if offset < partition.log.high_watermark:
                logger.warning("%s: truncating to %d, below the high watermark %d", name, offset, partition.log.high_watermark)
            ports.logs.truncate_to({name: offset})
            return partition.position() != before


class Fetchers:
    def __init__(self, settings: FetcherSettings, number_of_each: int, timeout_ms: int, ports: FetcherPorts) -> None:
        """`number_of_each` is num.replica.fetchers. One thread at a time calls `follow`, `leave`, `resize` and `stop`."""
        self._settings = settings
        self._number_of_each = number_of_each
        self._timeout_ms = timeout_ms
        self._ports = ports
        self._drivers: dict[tuple[int, int], FetcherDriver] = {}
        self._driver_of: dict[Key, FetcherDriver] = {}

    def __len__(self) -> int:
        """How many partitions are followed."""
        return len(self._driver_of)

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Fetch them from their leaders from now on, beginning anew where they were fetched already."""
        by_driver: dict[FetcherDriver, list[Partition]] = {}
        for followed in partitions:
            place = (followed.state.leader, self._number_of(followed))
            driver = self._drivers.get(place)
            if driver is None:
                driver = FetcherDriver(*place, self._settings, self._timeout_ms, self._ports)
                self._drivers[place] = driver
            key = _key(followed)
            before = self._driver_of.get(key)
            if before is not None and before is not driver:
                before.remove((key,))
            self._driver_of[key] = driver
            by_driver.setdefault(driver, []).append(followed)
        for driver, added in by_driver.items():
            driver.add(added)
        self._forget_idle()

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Nothing more is appended to them when this returns."""
        for left in partitions:
            key = _key(left)
            driver = self._driver_of.pop(key, None)
            if driver is not None:
                driver.remove((key,))
        self._forget_idle()

    def resize(self, number_of_each: int) -> None:
        """So many fetchers for each leader from now on; those partitions change hands that others fetch then."""
        self._number_of_each = number_of_each
        self.follow(
            partition
            for (_, number), driver in list(self._drivers.items())
            for partition in driver.followed()
            if self._number_of(partition) != number
        )

    def _number_of(self, partition: Partition) -> int:
        return crc32(str(partition.topic_partition).encode()) % self._number_of_each

    def stop(self) -> None:
        for driver in self._drivers.values():
            driver.stop()
        self._drivers.clear()
        self._driver_of.clear()

    def _forget_idle(self) -> None:
        for place, driver in list(self._drivers.items()):
            if not len(driver):
                driver.stop()
                del self._drivers[place]


def _nothing() -> None:
    pass


def _key(partition: Partition) -> Key:
    return partition.topic_id, partition.topic_partition.partition


def _is_quick(response: FetchResponse) -> bool:
    size_bytes = 0
    for topic in response.responses:
        for data in topic.partitions:
            if data.records is not None:
                size_bytes += len(data.records)
    return size_bytes <= MAX_QUICK_BYTES
