"""A producer that never stops and remembers when each acknowledgement came, and the reader that judges it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import confluent_kafka
from support.waiting import wait_until

WAIT_S = 120.0
PACE_S = 0.001


class Stream:
    """Idempotent, acks=all, otherwise as the client comes; the values of a partition are numbers that count up.

    Its own thread writes and takes the acknowledgements; the lists only grow, so that others may read them meanwhile.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acked_at: list[list[float]] = [[] for _ in range(partitions)]
        self.sent = [0] * partitions
        self.errors: list[str] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        partition = 0
        while not self._stop.is_set():
            value = b"%d" % self.sent[partition]
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            self.sent[partition] += 1
            partition = (partition + 1) % len(self.sent)
            self._producer.poll(PACE_S)
        self._producer.flush(WAIT_S)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acked_at[message.partition()].append(time.monotonic())

    def wait_for_acks_after(self, moment: float) -> None:
        """Until every partition has had one."""
        wait_until(
            lambda: all(times and times[-1] > moment for times in self.acked_at),
            WAIT_S,
            lambda: f"no acknowledgement: {[times[-1:] for times in self.acked_at]} after {moment}, {self.errors[:3]}",
        )

    def longest_gap_s(self, begin: float, end: float) -> float:
        """Between two acknowledgements of a partition, the later of which came in that time: of the worst partition."""
        return max(longest_gap(times, begin, end) for times in self.acked_at)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def verdict(self) -> list[str]:
        """What is wrong with the log, after the end: every record was acknowledged, and stands in it once and in order."""
        problems = [f"{len(self.errors)} refused, the first: {self.errors[0]}"] if self.errors else []
        for partition, sent in enumerate(self.sent):
            found = self._read(partition)
            counts = len(found), len(set(found)), len(self.acked_at[partition])
            if counts != (sent, sent, sent) or found != sorted(found):
                problems.append(f"partition {partition}: {sent} sent, (found, distinct, acknowledged) {counts}")
        return problems

    def _read(self, partition: int) -> list[int]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": "judge", "log_level": 0})
        try:
            place = confluent_kafka.TopicPartition(self._topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
            consumer.assign([place])
            found: list[int] = []
            position = 0
            deadline = time.monotonic() + WAIT_S
            while position < end and time.monotonic() < deadline:
                for message in consumer.consume(5000, 1.0):
                    if message.error() is None:
                        found.append(int(message.value()))
                        position = message.offset() + 1
            return found
        finally:
            consumer.close()


def longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    """The longest stretch between two neighbours of which the later lies between `begin` and `end`. Pure."""
    pairs = itertools.pairwise(times)
    return max((later - earlier for earlier, later in pairs if begin < later <= end), default=0.0)


@contextmanager
def stream(bootstrap: str, topic: str, partitions: int) -> Iterator[Stream]:
    made = Stream(bootstrap, topic, partitions)
    try:
        yield made
    finally:
        made.end()
