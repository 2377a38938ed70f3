"""The short way of a Produce does what the whole way does, or nothing."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from support.batches import batch
from support.requests import AskedRequest
from unit.server.handlers.nodes import NOW_MS, Replicas, unverified

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.log.log import Log
from pybroker.log.producer_entry import AppendOrigin
from pybroker.network.answers import Gather, encode_answer
from pybroker.protocol.messages.headers import RequestHeader
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.control import ControlType, end_transaction_marker
from pybroker.server.handlers.plain_produce import MAX_TOGETHER, MAX_TOGETHER_BYTES, prefix_length, records_at
from pybroker.server.handlers.produce import ProduceHandlers

FIRST_WITH_IDS = 13
VERSIONS = range(3, 14)
NOTHING_OWED: Any = SimpleNamespace(owed=[])  # to the connection


class Asked(AskedRequest):
    """With the frame that it comes in, header and all."""

    def __init__(self, message: ProduceRequest, version: int, client_id: str | None, correlation_id: int) -> None:
        super().__init__(message, version)
        self.correlation_id = correlation_id
        header = RequestHeader(
            request_api_key=0, request_api_version=version, correlation_id=correlation_id, client_id=client_id
        ).encode(self.api.request_header_version(version))
        self.position = len(header)
        self.frame = memoryview(bytearray(header + bytes(self.frame)))
        self.message = ProduceRequest.decode(version, self.frame[self.position :])


class Client:
    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.handlers = ProduceHandlers(replicas.manager, unverified(replicas))

    def request(
        self,
        records: bytes | None,
        topic: str = "orders",
        index: int = 0,
        *,
        version: int = 12,
        acks: int = 1,
        client_id: str | None = "test",
        correlation_id: int = 77,
        transactional_id: str | None = None,
    ) -> Asked:
        by_id = version >= FIRST_WITH_IDS
        data = TopicProduceData(
            name="" if by_id else topic,
            topic_id=Uuid(topic.encode().ljust(16, b"-")) if by_id else ZERO_UUID,
            partition_data=[PartitionProduceData(index=index, records=records)],
        )
        message = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[data])
        return Asked(message, version, client_id, correlation_id)

    def whole_way(self, asked: Asked) -> bytes:
        response: Any = self.handlers.handle_produce(asked, asked.message)  # type: ignore[arg-type]
        out = bytearray()
        encode_answer(response, asked.version, asked.correlation_id, out, [])
        return bytes(out)

    def short_way(self, asked: Asked) -> bytes | None:
        done, answers = self.together(asked)
        return answers if done else None

    def together(self, *asked: Asked) -> tuple[int, bytes]:
        """How many of them were answered by the short way, and their answers."""
        gather = Gather(0)
        done = self.handlers.plain.answer(NOTHING_OWED, [one.frame for one in asked], 0, gather)
        return done, bytes(gather.out)


@pytest.fixture
def client(replicas: Replicas) -> Client:
    replicas.create("orders", 2)
    return Client(replicas)


def some(count: int = 1, **options: Any) -> bytes:
    return bytes(batch([b"value"] * count, timestamp=NOW_MS, **options))


def offset_in(answer: bytes, version: int) -> int:
    header = 5 if version >= 9 else 4
    decoded = ProduceResponse.decode(version, answer[4 + header :])
    (topic,) = decoded.responses
    (partition,) = topic.partition_responses
    assert partition.error_code == 0
    return partition.base_offset


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_the_second_request_of_a_kind_goes_the_short_way_and_gets_the_same_answer(
    client: Client, version: int, acks: int
) -> None:
    assert client.short_way(client.request(some(), version=version, acks=acks)) is None
    client.whole_way(client.request(some(), version=version, acks=acks))
    short = client.short_way(client.request(some(3), version=version, acks=acks))
    assert short is not None
    assert offset_in(short, version) == 1
    long = client.whole_way(client.request(some(), version=version, acks=acks))
    assert offset_in(long, version) == 4
    assert len(short) == len(long)
    assert [at for at in range(len(short)) if short[at] != long[at]] == [short.index((1).to_bytes(8, "big")) + 7]
    log = client.replicas.partition("orders").log
    assert (log.log_end_offset, log.high_watermark) == (5, 5)
    assert [record.offset for one in log.batches() for record in one.records()] == list(range(5))
    assert all(one.crc == one.compute_crc() for one in log.batches())


@pytest.mark.parametrize("size", [1, 60, 125, 126, 127, 128, 16_000, 16_381, 16_382, 16_383, 16_384, 2_097_151])
@pytest.mark.parametrize("version", [8, 9])
def test_the_records_are_found_whatever_their_length(size: int, version: int) -> None:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(size))])
    body = bytearray(ProduceRequest(transactional_id=None, acks=1, timeout_ms=1, topic_data=[data]).encode(version))
    at = prefix_length(len(body), size, version)
    found = records_at(memoryview(body), at, version)
    assert found is not None
    assert len(found) == size
    assert records_at(memoryview(body + b"\0"), at, version) is None
    assert records_at(memoryview(body[:-1]), at, version) is None


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(None, id="null"),
        pytest.param(b"", id="none"),
        pytest.param(some()[:-1], id="cut"),
        pytest.param(some() + some(), id="two"),
        pytest.param(some()[:20] + b"\xff" + some()[21:], id="wrong CRC"),
        pytest.param(some()[:16] + b"\x01" + some()[17:], id="old magic"),
        pytest.param(some(base_offset=5), id="an offset of its own"),
        pytest.param(some(codec=Codec.GZIP), id="compressed"),
        pytest.param(some(producer_id=1, producer_epoch=0, sequence=0, transactional=True), id="transactional"),
        pytest.param(some(producer_id=1, producer_epoch=0, sequence=7), id="a gap in the sequence"),
        pytest.param(bytes(batch([b"v"], timestamp=NOW_MS + 3_600_001)), id="from the future"),
        pytest.param(bytes(batch([b"v"], timestamp=-1)), id="without a timestamp"),
        pytest.param(bytes(batch([bytes(1_100_000)], timestamp=NOW_MS)), id="too large"),
    ],
)
def test_what_is_not_plain_is_left_alone(client: Client, records: bytes | None) -> None:
    client.whole_way(client.request(some()))
    client.whole_way(client.request(some(producer_id=1, producer_epoch=0, sequence=0)))
    log = client.replicas.partition("orders").log
    asked = client.request(records)
    before = bytes(asked.frame)
    assert client.short_way(asked) is None
    assert log.log_end_offset == 2
    assert bytes(asked.frame) == before, "the whole way must see what came in"


def test_idempotent_batches_go_the_short_way_and_duplicates_do_not(client: Client) -> None:
    first = some(2, producer_id=9, producer_epoch=0, sequence=0)
    client.whole_way(client.request(first))
    assert client.short_way(client.request(some(producer_id=9, producer_epoch=0, sequence=2))) is not None
    log = client.replicas.partition("orders").log
    entry = log.producers.entry(9)
    assert entry is not None
    assert (entry.last_sequence, log.log_end_offset) == (2, 3)
    assert client.short_way(client.request(first)) is None
    assert offset_in(client.whole_way(client.request(first)), 12) == 0
    assert log.log_end_offset == 3


class TestTransaction:
    @staticmethod
    def request(client: Client, sequence: int, *, epoch: int = 0, transactional_id: str | None = "id") -> Asked:
        records = some(producer_id=5, producer_epoch=epoch, sequence=sequence, transactional=True)
        return client.request(records, transactional_id=transactional_id)

    def begin(self, client: Client) -> None:
        """Its coordinator has agreed to the first batch; the second is the first that needs nobody's leave."""
        log = client.replicas.partition("orders").log
        guard = log.producers.start_verification(5, 0, 0, supports_epoch_bump=True, now_ms=NOW_MS)
        first = bytearray(some(producer_id=5, producer_epoch=0, sequence=0, transactional=True))
        log.append_as_leader(first, 0, NOW_MS, verification_guard=guard, commits=True)
        client.whole_way(self.request(client, 1))

    def test_what_follows_in_an_open_one_goes_the_short_way(self, client: Client) -> None:
        self.begin(client)
        done, answers = client.together(self.request(client, 2), self.request(client, 3))
        assert done == 2
        assert offset_in(answers[: len(answers) // 2], 12) == 2
        log = client.replicas.partition("orders").log
        assert (log.log_end_offset, log.last_stable_offset) == (4, 0)

    def test_the_next_one_begins_the_whole_way(self, client: Client) -> None:
        self.begin(client)
        marker = end_transaction_marker(
            ControlType.COMMIT, producer_id=5, producer_epoch=1, coordinator_epoch=0, timestamp=NOW_MS
        )
        log = client.replicas.partition("orders").log
        log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR, transaction_version=2, commits=True)
        assert client.short_way(self.request(client, 0, epoch=1)) is None
        assert client.short_way(self.request(client, 2)) is None

    def test_who_names_no_transactional_id_does_not_write_into_one(self, client: Client) -> None:
        self.begin(client)
        client.whole_way(client.request(some()))
        assert client.short_way(self.request(client, 2, transactional_id=None)) is None


def test_another_topic_partition_or_client_is_learned_for_itself(client: Client) -> None:
    client.replicas.create("a-longer-name")
    client.whole_way(client.request(some()))
    assert client.short_way(client.request(some(), index=1)) is None
    assert client.short_way(client.request(some(), "a-longer-name")) is None
    assert client.short_way(client.request(some(), client_id="another")) is None
    client.whole_way(client.request(some(), index=1))
    client.whole_way(client.request(some(), "a-longer-name"))
    for topic, index in (("orders", 0), ("orders", 1), ("a-longer-name", 0)):
        assert client.short_way(client.request(some(), topic, index)) is not None
        assert client.replicas.partition(topic, index).log.log_end_offset == 2


@pytest.mark.parametrize("acks", [0, 2])
def test_without_an_answer_or_with_a_wrong_one_nothing_is_learned(client: Client, acks: int) -> None:
    asked = client.request(some(), acks=acks)
    client.handlers.handle_produce(asked, asked.message)  # type: ignore[arg-type]
    assert client.short_way(client.request(some(), acks=acks)) is None


def test_what_was_learned_is_forgotten_when_the_topic_is_another_one(client: Client) -> None:
    client.whole_way(client.request(some()))
    client.replicas.delete("orders")
    assert client.short_way(client.request(some())) is None
    client.replicas.create("orders", 2)
    assert client.short_way(client.request(some())) is None
    assert client.replicas.partition("orders").log.log_end_offset == 0


def test_a_failed_write_goes_the_whole_way(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.whole_way(client.request(some()))
    log = client.replicas.partition("orders").log

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    asked = client.request(some())
    with monkeypatch.context() as patched:
        patched.setattr(type(log.active), "append_plain", full)
        assert client.short_way(asked) is None
    assert offset_in(client.whole_way(asked), 12) == 1


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup_policy": ("compact",)},
        {"message_timestamp_type": "LogAppendTime"},
        {"compression_type": "gzip"},
        {"flush_messages": 1},
        {"message_timestamp_before_max_ms": 1000},
    ],
)
def test_a_topic_with_rules_of_its_own_takes_the_whole_way(replicas: Replicas, configs: dict[str, Any]) -> None:
    replicas.create("orders", **configs)
    client = Client(replicas)
    records = bytes(batch([b"v"], keys=[b"k"], timestamp=NOW_MS))
    client.whole_way(client.request(records))
    assert client.short_way(client.request(records)) is None


@pytest.mark.parametrize(
    ("configs", "options"),
    [({"message_timestamp_type": "LogAppendTime"}, {}), ({}, {"codec": Codec.GZIP})],
    ids=["a topic with rules", "compressed"],
)
def test_what_the_short_way_never_takes_is_not_tried_each_time(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, configs: dict[str, Any], options: dict[str, Any]
) -> None:
    replicas.create("orders", **configs)
    client = Client(replicas)
    client.whole_way(client.request(some(**options)))
    tried: list[object] = []
    monkeypatch.setattr(Log, "append_plain_batches", lambda *arguments: tried.append(arguments) or [])
    assert client.short_way(client.request(some(**options))) is None
    assert not tried


def test_a_full_segment_is_rolled_the_whole_way(replicas: Replicas) -> None:
    replicas.create("orders", segment_bytes=400)
    client = Client(replicas)
    client.whole_way(client.request(some()))
    ways = []
    for _ in range(20):
        asked = client.request(some())
        is_short = client.short_way(asked) is not None
        if not is_short:
            client.whole_way(asked)
        ways.append(is_short)
    log = replicas.partition("orders").log
    assert {True, False} == set(ways)
    assert log.log_end_offset == 21
    assert all(segment.size_bytes <= 400 for segment in log.segments)
    assert ways.count(False) == len(log.segments) - 1, ways


def answers_in(data: bytes, version: int = 12) -> list[tuple[int, int]]:
    """(correlation id, offset) of each answer."""
    found = []
    while data:
        size, correlation_id = struct.unpack_from(">ii", data)
        found.append((correlation_id, offset_in(data[: 4 + size], version)))
        data = data[4 + size :]
    return found


class TestTogether:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_requests_that_came_together_get_an_answer_each(self, client: Client, version: int) -> None:
        client.whole_way(client.request(some(), version=version))
        asked = [client.request(some(count), version=version, correlation_id=100 + count) for count in (2, 1, 3)]
        done, answers = client.together(*asked)
        assert done == 3
        assert answers_in(answers, version) == [(102, 1), (101, 3), (103, 4)]
        log = client.replicas.partition("orders").log
        assert [record.offset for one in log.batches() for record in one.records()] == list(range(7))

    def test_they_begin_where_told(self, client: Client) -> None:
        client.whole_way(client.request(some()))
        asked = [client.request(some(), correlation_id=number) for number in range(4)]
        gather = Gather(0)
        gather.out += b"what was answered before"
        assert client.handlers.plain.answer(NOTHING_OWED, [one.frame for one in asked], 2, gather) == 2
        assert gather.out.startswith(b"what was answered before")
        assert answers_in(bytes(gather.out)[24:]) == [(2, 1), (3, 2)]

    @pytest.mark.parametrize(
        "other",
        [{"index": 1}, {"client_id": "another"}, {"acks": -1}, {"version": 11}],
        ids=lambda other: next(iter(other)),
    )
    def test_they_end_before_one_that_begins_otherwise(self, client: Client, other: dict[str, Any]) -> None:
        client.whole_way(client.request(some()))
        client.whole_way(client.request(some(), **other))
        end = client.replicas.partition("orders").log.log_end_offset
        asked = [client.request(some()), client.request(some()), client.request(some(), **other), client.request(some())]
        done, answers = client.together(*asked)
        assert done == 2
        assert [offset for _, offset in answers_in(answers)] == [end, end + 1]
        assert client.short_way(asked[2]) is not None

    def test_they_end_before_one_that_goes_the_whole_way(self, client: Client) -> None:
        client.whole_way(client.request(some()))
        asked = [client.request(some()), client.request(some(codec=Codec.GZIP)), client.request(some())]
        before = bytes(asked[1].frame)
        done, answers = client.together(*asked)
        assert done == 1
        assert answers_in(answers) == [(77, 1)]
        assert bytes(asked[1].frame) == before
        assert client.together(asked[1]) == (0, b"")
        assert offset_in(client.whole_way(asked[1]), 12) == 2
        assert client.together(asked[2])[0] == 1

    def test_a_failed_write_leaves_all_of_them_to_the_whole_way(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        client.whole_way(client.request(some()))
        asked = [client.request(some(), correlation_id=number) for number in range(3)]

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(type(client.replicas.partition("orders").log.active), "append_plain", full)
            assert client.together(*asked) == (0, b"")
        assert [offset_in(client.whole_way(one), 12) for one in asked] == [1, 2, 3]

    def test_no_more_than_so_many_at_once(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        client.whole_way(client.request(some()))
        asked = [client.request(some()) for _ in range(MAX_TOGETHER + 1)]
        assert client.together(*asked)[0] == MAX_TOGETHER
        large = bytes(batch([bytes(MAX_TOGETHER_BYTES // 2)], timestamp=NOW_MS))
        asked = [client.request(large) for _ in range(3)]
        assert client.together(*asked)[0] == 2

    def test_a_waiting_fetch_is_woken_once_all_are_there(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        client.whole_way(client.request(some()))
        ends = []
        monkeypatch.setattr(
            client.replicas.manager, "wake", lambda partition: ends.append(partition.log.high_watermark), raising=True
        )
        assert client.together(*(client.request(some()) for _ in range(3)))[0] == 3
        assert ends == [4]


@pytest.mark.parametrize("version", [8, 12])
def test_a_known_beginning_with_anything_behind_it_is_no_reason_to_fail(client: Client, version: int) -> None:
    """Least of all to count the bytes of a length that never ends."""
    client.whole_way(client.request(some(), version=version))
    asked = client.request(some(), version=version)
    body = len(asked.frame) - asked.position
    start = asked.position + prefix_length(body, len(some()), version)
    for rest in (b"", b"\0", b"\0\0\0", b"\x80\0\0\0", b"\xff" * 2000 + b"\0\0\0", b"\x80" * 200_000 + b"\0\0\0", b"\x7f" * 7):
        asked.frame = memoryview(bytearray(bytes(asked.frame[:start]) + rest))
        assert client.together(asked) == (0, b"")
    for length in range(start):
        asked.frame = asked.frame[:length]
        assert client.together(asked) == (0, b"")
        asked.frame = memoryview(bytearray(client.request(some(), version=version).frame))


def test_a_header_with_tags_is_not_learned(client: Client) -> None:
    asked = client.request(some())
    frame = bytes(asked.frame)
    tagged = frame[: asked.position - 1] + b"\x01\x05\x01x" + frame[asked.position :]
    asked.position += 3
    asked.frame = memoryview(bytearray(tagged))
    client.whole_way(asked)
    asked.frame = memoryview(bytearray(tagged))
    assert client.together(asked) == (0, b"")
