from __future__ import annotations

from random import Random
from struct import pack
from typing import Any

import pytest
from support.batches import batch
from support.requests import AskedRequest
from unit.protocol.records.batches import patched
from unit.server.handlers.nodes import NOW_MS, Replicas, unverified

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker.protocol.records.compression import Codec
from pybroker.server.dispatch import WOULD_BLOCK
from pybroker.server.handlers.produce import ProduceHandlers

LATEST = 13


def request(
    records: bytes | None,
    topic: str = "orders",
    *,
    topic_id: Uuid = ZERO_UUID,
    index: int = 0,
    acks: int = 1,
    version: int = 12,
    may_block: bool = True,
) -> AskedRequest:
    data = TopicProduceData(
        name=topic if version < LATEST else "",
        topic_id=topic_id if version >= LATEST else ZERO_UUID,
        partition_data=[PartitionProduceData(index=index, records=records)],
    )
    message = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[data])
    return AskedRequest(message, version, may_block=may_block)


def asked(replicas: Replicas, one: AskedRequest) -> Any:
    return ProduceHandlers(replicas.manager, unverified(replicas)).handle_produce(one, one.message)  # type: ignore[arg-type]


def result(replicas: Replicas, one: AskedRequest) -> Any:
    response = asked(replicas, one)
    decoded = type(response).decode(one.version, response.encode(one.version))
    ((only,),) = [topic.partition_responses for topic in decoded.responses]
    return only


def batch_now(values: list[bytes], **options: Any) -> bytes:
    return bytes(batch(values, timestamp=NOW_MS, **options))


# One message of format 1; where a batch has its attributes it has its timestamp, in which any codec may seem to stand.
OLD_MESSAGE_SET = pack(">qiIbbqii", 0, 22, 0, 1, 0, 0x0102030405060708, -1, -1)


@pytest.mark.parametrize("version", range(3, LATEST + 1))
def test_a_batch_gets_the_next_offsets_in_every_version(replicas: Replicas, version: int) -> None:
    topic_id = replicas.create("orders")
    for expected in (0, 2):
        found = result(replicas, request(batch_now([b"a", b"b"]), topic_id=topic_id, version=version))
        assert (found.error_code, found.base_offset, found.log_append_time_ms) == (0, expected, -1)
    assert replicas.partition("orders").log.log_end_offset == 4


def test_append_time_is_in_the_answer(replicas: Replicas) -> None:
    replicas.create("orders", message_timestamp_type="LogAppendTime")
    assert result(replicas, request(batch_now([b"a"]))).log_append_time_ms == NOW_MS


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (request(b"", acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (request(b"", topic="nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request(b"", index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request(b"", topic_id=Uuid(b"no such topic id"), version=LATEST), ErrorCode.UNKNOWN_TOPIC_ID),
        (request(b""), ErrorCode.INVALID_RECORD),
        (request(None), ErrorCode.INVALID_RECORD),
        (request(b"\0" * 61), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_is_wrong_with_a_partition_is_its_own_error(replicas: Replicas, one: AskedRequest, code: ErrorCode) -> None:
    replicas.create("orders")
    found = result(replicas, one)
    assert (ErrorCode(found.error_code), found.base_offset) == (code, -1)


def test_a_bad_partition_does_not_keep_the_others_from_being_written(replicas: Replicas) -> None:
    replicas.create("orders", 2)
    good = request(batch_now([b"a"]))
    good.message.topic_data[0].partition_data.append(PartitionProduceData(index=9, records=b""))
    codes = [one.error_code for one in asked(replicas, good).responses[0].partition_responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert replicas.partition("orders").log.log_end_offset == 1


def test_records_that_are_to_blame_are_named(replicas: Replicas) -> None:
    replicas.create("state", cleanup_policy=("compact",))
    keyless = batch(values=[b"1", b"2", b"3"], keys=[b"k", None, None], timestamp=NOW_MS)
    found = result(replicas, request(bytes(keyless), "state"))
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in found.record_errors] == [1, 2]
    assert found.error_message


def test_a_follower_says_who_leads(replicas: Replicas) -> None:
    replicas.create("orders", leader=2, leader_epoch=4)
    assert result(replicas, request(batch_now([b"a"]), version=9)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    found = result(replicas, request(batch_now([b"a"]), version=10))
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (2, 4)


def test_a_batch_sent_twice_is_there_once_and_answered_with_the_same_offset(replicas: Replicas) -> None:
    replicas.create("orders")
    sent = batch_now([b"a", b"b"], producer_id=5, producer_epoch=0, sequence=0)
    assert [result(replicas, request(sent)).base_offset for _ in range(2)] == [0, 0]
    assert replicas.partition("orders").log.log_end_offset == 2


def test_acks_0_has_no_answer_and_an_error_ends_the_connection(replicas: Replicas) -> None:
    replicas.create("orders")
    good = request(batch_now([b"a"]), acks=0)
    assert asked(replicas, good) is None
    assert good.is_answered_with_nothing
    bad = request(batch_now([b"a"]), acks=0, index=3)
    assert asked(replicas, bad) is None
    assert not bad.is_answered_with_nothing
    assert bad.close_reason == "a produce with acks=0 to orders-3 failed with UNKNOWN_TOPIC_OR_PARTITION"


def test_on_a_network_thread_only_plain_appends_are_done(replicas: Replicas) -> None:
    replicas.create("orders")
    replicas.create("careful", flush_messages=1)
    first = request(batch_now([b"a"]), may_block=False)
    assert asked(replicas, first) is WOULD_BLOCK, "the first append notes the leader epoch on disk"
    assert replicas.partition("orders").log.log_end_offset == 0
    assert result(replicas, request(batch_now([b"a"]))).error_code == 0
    assert result(replicas, request(batch_now([b"a"]), may_block=False)).error_code == 0
    result(replicas, request(batch_now([b"a"]), "careful"))
    assert asked(replicas, request(batch_now([b"a"]), "careful", may_block=False)) is WOULD_BLOCK


def test_a_network_thread_decompresses_little(replicas: Replicas) -> None:
    replicas.create("orders")
    result(replicas, request(batch_now([b"a"])))
    noise = Random(1).randbytes(65 * 1024)
    for sent, is_done in (
        (batch_now([noise]), True),
        (batch_now([noise[:60_000]], codec=Codec.ZSTD), True),
        (batch_now([noise], codec=Codec.ZSTD), False),
    ):
        answer = asked(replicas, request(sent, may_block=False))
        assert (answer is not WOULD_BLOCK) == is_done
        assert result(replicas, request(sent)).error_code == 0


def test_a_full_disk_is_a_retriable_error(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas.create("orders")
    log = replicas.partition("orders").log

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(type(log.active), "append", full)
        found = result(replicas, request(batch_now([b"a"])))
    assert ErrorCode(found.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
    assert ErrorCode.KAFKA_STORAGE_ERROR.retriable
    assert result(replicas, request(batch_now([b"a"]))).base_offset == 0


@pytest.mark.parametrize(
    ("sent", "version", "code"),
    [
        (b"", LATEST, ErrorCode.INVALID_RECORD),
        (batch_now([b"a"])[:-1], LATEST, ErrorCode.INVALID_RECORD),
        (batch_now([b"a"]) * 2, LATEST, ErrorCode.INVALID_RECORD),
        (patched(batch_now([b"a"]), ">b", 16, 1), LATEST, ErrorCode.INVALID_RECORD),
        (OLD_MESSAGE_SET, 6, ErrorCode.INVALID_RECORD),
        (patched(batch_now([b"a"]), ">h", 21, 5), 6, ErrorCode.UNKNOWN_SERVER_ERROR),
        (batch_now([b"a"], codec=Codec.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
    ids=[
        "no bytes",
        "a part of a batch",
        "two batches",
        "magic 1",
        "an old message set",
        "codec 5 before v7",
        "zstd before v7",
    ],
)
def test_bytes_that_are_no_batch_are_refused_without_a_look_at_the_log(
    replicas: Replicas, sent: bytes, version: int, code: ErrorCode
) -> None:
    topic_id = replicas.create("orders")
    found = result(replicas, request(bytes(sent), topic_id=topic_id, version=version))
    assert (ErrorCode(found.error_code), found.log_start_offset) == (code, -1)


@pytest.mark.parametrize(
    "sent",
    [
        patched(batch_now([b"a"]), ">q", 0, 7, new_crc=False),
        patched(batch_now([b"a"]), ">h", 21, 0x20),
        patched(batch_now([b"a"]), ">h", 21, Codec.GZIP),
    ],
    ids=["an offset of its own", "a control batch", "gzip stated, plain bytes"],
)
def test_a_batch_that_breaks_a_rule_is_refused_with_the_start_of_the_log(replicas: Replicas, sent: bytearray) -> None:
    replicas.create("orders")
    found = result(replicas, request(bytes(sent)))
    assert (ErrorCode(found.error_code), found.log_start_offset) == (ErrorCode.INVALID_RECORD, 0)


def test_zstd_needs_version_7(replicas: Replicas) -> None:
    replicas.create("orders")
    sent = batch_now([b"a"], codec=Codec.ZSTD)
    assert result(replicas, request(sent, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert result(replicas, request(sent, version=7)).error_code == 0


def test_transactional_batches_need_a_transactional_id(replicas: Replicas) -> None:
    replicas.create("orders")
    sent = batch_now([b"a"], producer_id=5, producer_epoch=0, sequence=0, transactional=True)
    assert result(replicas, request(sent)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert replicas.partition("orders").log.log_end_offset == 0
