"""The throttle of replication: how fast replicas that are being moved may be copied, on the leader's or on the follower's side.

Only replicas named by the topic's config, and not in sync, are held back. Any thread. The rate is that of the last windows, as
Apache Kafka measures it (replication.quota.window.num and .size.seconds).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pybroker.log.files import TopicPartition

NO_LIMIT: Final = 2**63 - 1
ALL: Final = "*"


class ReplicationThrottle:
    def __init__(
        self,
        broker_id: int,
        bytes_a_second: Callable[[], int],
        replicas_of: Callable[[str], Sequence[str]],
        monotonic_ms: Callable[[], int],
        *,
        windows: int = 11,
        window_ms: int = 1000,
    ) -> None:
        """`bytes_a_second` is what the broker's config says; `replicas_of` gives the throttled replicas of a topic, as
        `partition:broker`, or `*`."""
        self._broker_id = broker_id
        self._bytes_a_second = bytes_a_second
        self._replicas_of = replicas_of
        self._monotonic_ms = monotonic_ms
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[tuple[int, int]] = deque()  # when a window began, and its bytes
        self._lock = threading.Lock()

    def is_throttled(self, name: TopicPartition) -> bool:
        replicas = self._replicas_of(name.topic)
        return bool(replicas) and (ALL in replicas or f"{name.partition}:{self._broker_id}" in replicas)

    def is_exceeded(self) -> bool:
        limit = self._bytes_a_second()
        if limit >= NO_LIMIT:
            return False
        with self._lock:
            return self._rate(self._monotonic_ms()) > limit

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to measure."""
        return self._bytes_a_second() < NO_LIMIT

    def record(self, name: TopicPartition, size_bytes: int) -> None:
        """So many bytes of a replica were copied."""
        if not self.is_limited or not self.is_throttled(name):
            return
        with self._lock:
            now_ms = self._monotonic_ms()
            if self._samples and now_ms - self._samples[-1][0] < self._window_ms:
                began_ms, before = self._samples.pop()
                self._samples.append((began_ms, before + size_bytes))
            else:
                self._samples.append((now_ms, size_bytes))

    def _rate(self, now_ms: int) -> float:
        samples = self._samples
        span_ms = self._windows * self._window_ms
        while samples and now_ms - samples[0][0] >= span_ms:
            samples.popleft()
        if not samples:
            return 0.0
        # At least one whole window: else the first bytes would count as a burst of a millisecond.
        elapsed_ms = max(self._window_ms, now_ms - samples[0][0])
        return sum(size for _, size in samples) * 1000 / elapsed_ms


UNTHROTTLED: Final = ReplicationThrottle(-1, lambda: NO_LIMIT, lambda topic: (), lambda: 0)
