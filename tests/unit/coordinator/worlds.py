"""A coordinator in virtual time: the runtime over a log in memory, whose replicas may lag and whose disk may refuse.

world = World()
joining = world.ask(JoinGroupRequest(...))      # an Answer, now or when it comes
world.advance(3_000)
assert joining.response.generation_id == 1
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pybroker.base.ids import Uuid
from pybroker.coordinator.group.cluster import Topic
from pybroker.coordinator.group.records import GROUP_RECORD_TYPES
from pybroker.coordinator.group.settings import GroupSettings
from pybroker.coordinator.group.shard import GroupShard
from pybroker.coordinator.records import RecordTypes, decode_record
from pybroker.coordinator.runtime import (
    ADAPTIVE,
    CoordinatorRuntime,
    Elected,
    Event,
    HighWatermarkAdvanced,
    Loaded,
    LoadFailed,
    Requested,
    Resigned,
)
from pybroker.coordinator.shard import DelayTimers, Effect, Load, Producer, Refuse, Reply, Request, Shard
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.control import ControlType, control_type

START_MS = 1_700_000_000_000


class MemoryLog:
    """The partitions of a topic. `lags`: the high watermark moves only by `commit`."""

    def __init__(self, types: RecordTypes = GROUP_RECORD_TYPES) -> None:
        self.types = types
        self.batches: dict[int, list[RecordBatch]] = {}
        self.high_watermarks: dict[int, int] = {}
        self.lags = False
        self.refuses = ErrorCode.NONE  # said beforehand
        self.fails = ErrorCode.NONE  # found out by the append
        self.max_bytes = 1_000_000
        self.led_epoch: int | None = None  # None: that of whoever asks

    def end_offset(self, partition: int) -> int:
        batches = self.batches.get(partition)
        return batches[-1].next_offset if batches else 0

    def refusal(self, partition: int) -> ErrorCode:
        return self.refuses

    def max_batch_bytes(self, partition: int) -> int:
        return self.max_bytes

    def append(
        self, partition: int, epoch: int, batch: bytearray, *, transaction_version: int = -1, verification_guard: int = 0
    ) -> int:
        if self.fails:
            raise KafkaError(self.fails, "the log refuses")
        assert len(batch) <= self.max_bytes
        offset = self.end_offset(partition)
        appended = RecordBatch(batch)
        assert appended.is_control == (transaction_version >= 0)
        appended.stamp(offset, epoch)
        self.batches.setdefault(partition, []).append(RecordBatch(batch))
        if not self.lags:
            self.high_watermarks[partition] = self.end_offset(partition)
        return offset

    def high_watermark(self, partition: int, epoch: int) -> int:
        return self.high_watermarks.get(partition, 0) if self.led_epoch in (None, epoch) else -1

    def truncate_to_committed(self, partition: int = 0) -> None:
        """What only the old leader had is lost."""
        end = self.high_watermarks.get(partition, 0)
        self.batches[partition] = [batch for batch in self.batches.get(partition, []) if batch.next_offset <= end]

    def rows(self, partition: int = 0) -> list[tuple[Any, Any]]:
        """Key and value of every record."""
        return [
            (decoded.key, decoded.value)
            for batch in self.batches.get(partition, [])
            if not batch.is_control
            for record in batch.records()
            if (decoded := decode_record(self.types, record.key, record.value)) is not None
        ]

    def replay_into(self, partition: int, shard: Shard) -> int:
        for batch in self.batches.get(partition, []):
            producer = Producer(batch.producer_id, batch.producer_epoch) if batch.is_transactional else None
            for record in batch.records():
                if batch.is_control:
                    assert producer is not None
                    shard.replay_marker(producer, commits=control_type(record.key) is ControlType.COMMIT)
                else:
                    decoded = decode_record(self.types, record.key, record.value)
                    assert decoded is not None
                    shard.replay(record.offset, decoded, producer)
        return self.end_offset(partition)


class Cluster:
    """Topics with so many partitions, and configs of groups."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.version = 0
        self._ids = itertools.count(1)

    def add(self, name: str, partitions: int) -> Topic:
        """A topic; or one that is there, with so many partitions."""
        known = self.topics.get(name)
        topic_id = Uuid(next(self._ids).to_bytes(16, "big")) if known is None else known.topic_id
        self.topics[name] = Topic(topic_id, name, partitions)
        self.version += 1
        return self.topics[name]

    def remove(self, name: str) -> None:
        """What comes under this name later is another topic."""
        del self.topics[name]
        self.version += 1

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def topic_names(self) -> Collection[str]:
        return self.topics

    def partition_racks(self, name: str) -> Sequence[Sequence[str]]:
        return [()] * self.topics[name].partitions

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        return self.configs.get(group_id, {})


class Answer:
    """What became of a request; at most one of both."""

    def __init__(self) -> None:
        self._response: Any = None
        self.refusal: ErrorCode | None = None

    @property
    def is_there(self) -> bool:
        return self._response is not None or self.refusal is not None

    @property
    def response(self) -> Any:
        assert self.refusal is None, f"refused with {self.refusal!r}"
        assert self._response is not None, "there is no answer yet"
        return self._response

    @property
    def code(self) -> ErrorCode:
        """Of the refusal, or in the response."""
        return self.refusal if self.refusal is not None else ErrorCode(self.response.error_code)

    def give(self, effect: Reply | Refuse) -> None:
        assert not self.is_there, f"a second answer: {effect}"
        if isinstance(effect, Reply):
            self._response = effect.response if effect.response is not None else "done"
        else:
            self.refusal = effect.code


class World:
    def __init__(
        self,
        settings: GroupSettings | None = None,
        *,
        log: MemoryLog | None = None,
        loads_at_once: bool = True,
        new_shard: Callable[[int, DelayTimers], Any] | None = None,
        linger_ms: int = ADAPTIVE,
    ) -> None:
        self.log = log or MemoryLog()
        self.settings = settings or GroupSettings()
        self.now_ms = 0
        self.clock_offset_ms = 0  # of the wall's clock, which may be set
        self.loads: list[Load] = []
        self.effects: list[Effect] = []  # those that are no answers
        self.loads_at_once = loads_at_once
        self.cluster = Cluster()
        self.cluster.add("t", 1)
        self._uuids = itertools.count(1)
        self._new_shard = new_shard or self._group_shard
        self._linger_ms = linger_ms
        self.epoch = 0
        self.begin()

    def _group_shard(self, partition: int, timers: DelayTimers) -> GroupShard:
        return GroupShard(partition, timers, self.settings, lambda: f"uuid-{next(self._uuids)}", lambda: self.cluster)

    def begin(self) -> None:
        """Another broker, which knows the log and nothing else, becomes the coordinator."""
        self.runtime = CoordinatorRuntime(
            "test", self.log, self._new_shard, commit_timeout_ms=lambda: 5000, linger_ms=self._linger_ms
        )
        self.epoch += 1
        self.run(Elected(0, self.epoch))

    @property
    def wall_ms(self) -> int:
        return START_MS + self.now_ms + self.clock_offset_ms

    @property
    def shard(self) -> Any:
        return self.runtime._hosted[0].shard

    def run(self, *events: Event) -> None:
        for effect in self.runtime.run(self.now_ms, self.wall_ms, events):
            if isinstance(effect, Load):
                self.loads.append(effect)
            elif isinstance(effect, (Reply, Refuse)):
                if effect.token is not None:
                    effect.token.give(effect)
            else:
                self.effects.append(effect)
        while self.loads and self.loads_at_once:
            self.load()

    def load(self, problem: str | None = None) -> None:
        """Carry the oldest load out."""
        load = self.loads.pop(0)
        if problem is not None:
            self.run(LoadFailed(load.partition, load.shard, problem))
        else:
            self.run(Loaded(load.partition, load.shard, self.log.replay_into(load.partition, load.shard)))

    def ask(self, message: Any, version: int | None = None, *, client_id: str = "client", partition: int = 0) -> Answer:
        (answer,) = self.ask_together(message, version=version, client_id=client_id, partition=partition)
        return answer

    def ask_together(
        self, *messages: Any, version: int | None = None, client_id: str = "client", partition: int = 0
    ) -> list[Answer]:
        """In one round."""
        answers = [Answer() for _ in messages]
        events = []
        for message, answer in zip(messages, answers, strict=True):
            chosen = version if version is not None else _newest(message)
            events.append(Requested(partition, Request(message, answer, chosen, client_id, "/127.0.0.1")))
        self.run(*events)
        return answers

    def advance(self, delay_ms: int) -> None:
        """Let time pass, with every timer at its moment."""
        until_ms = self.now_ms + delay_ms
        while (deadline_ms := self.runtime.deadline_ms) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run()
        self.now_ms = until_ms
        self.run()

    def commit(self, partition: int = 0) -> None:
        """The replicas have caught up."""
        self.log.high_watermarks[partition] = self.log.end_offset(partition)
        self.run(HighWatermarkAdvanced(partition))

    def resign(self, partition: int = 0) -> None:
        self.run(Resigned(partition))


def _newest(message: Any) -> int:
    versions = getattr(message, "VERSIONS", None)
    return 0 if versions is None else int(versions.high)
