"""The short way of a Produce to a partition with several replicas: appended at once, answered when it is committed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.batches import batch
from unit.replication.brokers import TOPIC_ID, Brokers
from unit.server.handlers.test_plain_produce import Asked

from pybroker.network.answers import Gather
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pybroker.server.handlers.produce import ProduceHandlers

VERSION = 13
TIMEOUT_MS = 3_000
NETWORK_THREAD = 7


class FakeOwed:
    def __init__(self) -> None:
        self.data: bytes | None = None

    def settle(self, data: bytes | bytearray) -> None:
        assert self.data is None, "settled twice"
        self.data = bytes(data)


class Producer:
    """A connection of a producer to broker 1, which leads."""

    def __init__(self, brokers: Brokers, acks: int = -1) -> None:
        no_transactions: Any = None
        self._handlers = ProduceHandlers(brokers[1].replicas, no_transactions)
        self._acks = acks
        self._next_id = 100
        self.owed: list[FakeOwed] = []
        self.thread = SimpleNamespace(ident=NETWORK_THREAD, soon=lambda function, argument: function(argument))
        self.gather = Gather(NETWORK_THREAD)

    def owe(self, gather: Gather) -> FakeOwed:
        self.owed.append(FakeOwed())
        return self.owed[-1]

    def request(self, *values: bytes) -> Asked:
        data = TopicProduceData(
            topic_id=TOPIC_ID, name="", partition_data=[PartitionProduceData(index=0, records=bytes(batch(list(values))))]
        )
        self._next_id += 1
        message = ProduceRequest(transactional_id=None, acks=self._acks, timeout_ms=TIMEOUT_MS, topic_data=[data])
        return Asked(message, VERSION, "test", self._next_id)

    def whole_way(self, *values: bytes) -> None:
        asked = self.request(*values)
        self._handlers.handle_produce(asked, asked.message)  # type: ignore[arg-type]

    def short_way(self, *values: bytes) -> int:
        """A request for each of the values, all at once; how many were taken."""
        frames = [self.request(value).frame for value in values]
        connection: Any = self
        return self._handlers.plain.answer(connection, frames, 0, self.gather)

    def answers(self) -> list[tuple[int, ErrorCode, int]]:
        """(correlation id, error, offset) of all that is settled, in their order."""
        data = b"".join(owed.data or b"" for owed in self.owed)
        return answers_in(data)


def answers_in(data: bytes) -> list[tuple[int, ErrorCode, int]]:
    found = []
    while data:
        size, correlation_id = int.from_bytes(data[:4]), int.from_bytes(data[4:8])
        row = ProduceResponse.decode(VERSION, data[9 : 4 + size]).responses[0].partition_responses[0]
        found.append((correlation_id, ErrorCode(row.error_code), row.base_offset))
        data = data[4 + size :]
    return found


@pytest.fixture
def brokers(tmp_path: Path) -> Any:
    with Brokers(tmp_path, 1, 2, min_insync_replicas=2) as made:
        made.lead(1, isr=(1, 2))
        yield made


def test_requests_that_come_together_are_answered_when_all_in_sync_have_them(brokers: Brokers) -> None:
    producer = Producer(brokers)
    producer.whole_way(b"a")
    assert producer.short_way(b"b", b"c") == 2
    assert producer.short_way(b"d") == 1
    assert brokers[1].values == ["a", "b", "c", "d"]
    brokers.fetch(2)  # has them now, which its next fetch tells
    assert not producer.answers()
    brokers.fetch(2)
    assert producer.answers() == [(102, ErrorCode.NONE, 1), (103, ErrorCode.NONE, 2), (104, ErrorCode.NONE, 3)]
    assert not producer.gather.out
    assert len(brokers[1].replicas.produces) == 0
    assert brokers[2].values == ["a", "b", "c", "d"]


def test_nothing_is_answered_before_the_last_of_them_is_committed(brokers: Brokers) -> None:
    producer = Producer(brokers)
    producer.whole_way(b"a")
    assert producer.short_way(b"b") == 1
    brokers.fetch(2)
    assert producer.short_way(b"c") == 1
    brokers.fetch(2)  # tells of b, and gets c
    assert producer.answers() == [(102, ErrorCode.NONE, 1)]
    brokers.fetch(2)
    assert producer.answers() == [(102, ErrorCode.NONE, 1), (103, ErrorCode.NONE, 2)]


def test_what_is_not_committed_in_time_is_told_as_timed_out(brokers: Brokers) -> None:
    producer = Producer(brokers)
    producer.whole_way(b"a")
    assert producer.short_way(b"b", b"c") == 2
    brokers.pass_time(TIMEOUT_MS + 1)
    brokers.due(1)
    assert producer.answers() == [(102, ErrorCode.REQUEST_TIMED_OUT, 1), (103, ErrorCode.REQUEST_TIMED_OUT, 2)]


def test_a_leader_that_is_none_any_more_says_so_of_what_it_had_appended(brokers: Brokers) -> None:
    producer = Producer(brokers)
    producer.whole_way(b"a")
    assert producer.short_way(b"b") == 1
    brokers.lead(2, isr=(1, 2))
    assert producer.answers() == [(102, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)]
    assert producer.short_way(b"c") == 0
    assert len(brokers[1].replicas.produces) == 0


def test_with_too_few_in_sync_the_whole_way_refuses_it(brokers: Brokers) -> None:
    producer = Producer(brokers)
    producer.whole_way(b"a")
    brokers.lead(1, isr=(1,))
    producer.whole_way(b"not taken")
    assert producer.short_way(b"b") == 0
    assert brokers[1].values == ["a"]


def test_acks_1_is_answered_at_once_but_not_committed(brokers: Brokers) -> None:
    producer = Producer(brokers, acks=1)
    producer.whole_way(b"a")
    assert producer.short_way(b"b") == 1
    assert answers_in(bytes(producer.gather.out)) == [(102, ErrorCode.NONE, 1)]
    assert brokers[1].log.high_watermark == 0
    brokers.fetch(2, times=2)
    assert brokers[1].log.high_watermark == 2


def test_acks_1_keeps_its_place_behind_what_is_owed(brokers: Brokers) -> None:
    patient, hasty = Producer(brokers), Producer(brokers, acks=1)
    patient.whole_way(b"a")
    hasty.whole_way(b"b")
    assert patient.short_way(b"c") == 1
    hasty.owed = patient.owed  # one connection
    assert hasty.short_way(b"d") == 1
    assert not hasty.gather.out
    assert [owed.data is not None for owed in patient.owed] == [False, True]


def test_a_handler_thread_leaves_it_to_the_whole_way(brokers: Brokers) -> None:
    producer = Producer(brokers)
    producer.whole_way(b"a")
    producer.gather = Gather(NETWORK_THREAD + 1)
    assert producer.short_way(b"b") == 0
    assert brokers[1].values == ["a"]
