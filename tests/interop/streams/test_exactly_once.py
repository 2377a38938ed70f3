"""Kafka Streams with exactly_once_v2 over three brokers, one of which is killed, and the application once, too."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.cluster.mixed import COMBINED, OURS, Nodes, mixed
from interop.streams.word_count import WordCount
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

ck: Any = pytest.importorskip("confluent_kafka")

WAIT_S = 240.0
PARTITIONS = 3
LINES = 300
WORDS = [f"word{number}" for number in range(20)]
PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "6000",
}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with mixed(tmp_path, dict.fromkeys((1, 2, 3), (OURS, COMBINED)), PROPERTIES) as made:
        made.start()
        made.wait_for_brokers(1, 2, 3)
        for name in ("lines", "counts"):
            row = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=3, assignments=[], configs=[])
            (answer,) = made[1].ask(CreateTopicsRequest(topics=[row])).topics
            assert answer.error_code == ErrorCode.NONE, answer
        made.wait_for_topic("counts")
        yield made


def bootstrap(nodes: Nodes) -> str:
    return ",".join(one.bootstrap for one in nodes.brokers.values())


class Feeder:
    def __init__(self, nodes: Nodes) -> None:
        self._producer = ck.Producer({"bootstrap.servers": bootstrap(nodes), "enable.idempotence": True, "log_level": 0})
        self._draw = random.Random(7)
        self.expected: Counter[str] = Counter()

    def feed(self, lines: int) -> None:
        for number in range(lines):
            words = self._draw.choices(WORDS, k=4)
            self.expected.update(words)
            self._producer.produce("lines", " ".join(words), partition=number % PARTITIONS)
        assert self._producer.flush(WAIT_S) == 0


class Counts:
    """What a reader of what is committed has found in "counts", by word."""

    def __init__(self, nodes: Nodes) -> None:
        settings = {"bootstrap.servers": bootstrap(nodes), "group.id": "any", "isolation.level": "read_committed"}
        self._consumer = ck.Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        self._consumer.assign([ck.TopicPartition("counts", number, 0) for number in range(PARTITIONS)])
        self.found: dict[str, list[int]] = defaultdict(list)

    def total(self) -> int:
        """Of all words, as far as they are read now."""
        for record in self._consumer.consume(1000, 0.2):
            if record.error() is None:
                self.found[record.key().decode()].append(int.from_bytes(record.value(), "big"))
        return sum(map(len, self.found.values()))

    def wait_for(self, total: int, app: WordCount) -> None:
        wait_until(lambda: self.total() >= total, WAIT_S, lambda: f"{self.total()} of {total}:\n{app.last_words()}")

    def close(self) -> None:
        self._consumer.close()


def leader_of(nodes: Nodes, topic: str) -> int:
    (found,) = nodes[1].ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    return int(found.partitions[0].leader_id)


@pytest.mark.verdict
@pytest.mark.timeout(900)
def test_a_word_count_is_exactly_right_over_a_killed_broker_and_a_killed_application(nodes: Nodes, tmp_path: Path) -> None:
    feeder, counts = Feeder(nodes), Counts(nodes)
    with WordCount(tmp_path / "app", bootstrap(nodes)) as app:
        feeder.feed(LINES)
        counts.wait_for(LINES, app)  # a quarter of the words: it is in the midst of them
        victim = leader_of(nodes, "counts")
        nodes[victim].stop(clean=False)
        feeder.feed(LINES)
        nodes[victim].start()
        feeder.feed(LINES)
        counts.wait_for(5 * LINES, app)
        app.kill()
        feeder.feed(LINES)
        app.start()
        counts.wait_for(feeder.expected.total(), app)
        # What would come twice would come behind it.
        quiet_until = time.monotonic() + 3
        while time.monotonic() < quiet_until:
            counts.total()
    counts.close()
    print(f"{feeder.expected.total()} words counted")
    assert dict(counts.found) == {word: list(range(1, count + 1)) for word, count in feeder.expected.items()}
