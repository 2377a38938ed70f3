from __future__ import annotations

import pytest
from support.batches import batch
from unit.protocol.records.batches import batch_around, patched

from pybroker.log.appending import prepare_batch
from pybroker.log.log_config import LogConfig
from pybroker.log.producer_entry import AppendOrigin
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.compression import DEFAULT_MAX_BYTES, Codec, compress

NOW_MS = 10_000
PACKED = [codec for codec in Codec if codec]
RULES = {
    "none": {},
    "compacted": {"cleanup.policy": ("compact",)},
    "append time": {"message.timestamp.type": "LogAppendTime"},
    "oldest time": {"message.timestamp.before.max.ms": 100_000},
    "recompressed": {"compression.type": "uncompressed"},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_that_cannot_be_decompressed_is_refused_whatever_the_topics_rules(codec: Codec, rule: str) -> None:
    sent = patched(batch([b"value"], keys=[b"key"]), ">h", 21, codec)
    with pytest.raises(KafkaError, match="cannot be decompressed") as caught:
        prepare_batch(sent, LogConfig.of(RULES[rule]), NOW_MS, AppendOrigin.CLIENT)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert not caught.value.code.retriable


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("codec", Codec)
def test_a_batch_is_decompressed_once_where_no_rule_asks_for_more(
    codec: Codec, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[RecordBatch] = []
    payload = RecordBatch.payload

    def counted(self: RecordBatch, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
        read.append(self)
        return payload(self, max_bytes)

    monkeypatch.setattr(RecordBatch, "payload", counted)
    sent = batch([b"value"], keys=[b"key"], timestamp=NOW_MS, codec=codec)
    prepare_batch(sent, LogConfig.of(RULES[rule]), NOW_MS, AppendOrigin.CLIENT)
    is_walked = rule in ("compacted", "oldest time")
    assert len(read) == (1 if codec or is_walked else 0)


def test_a_batch_that_grows_beyond_the_limit_is_refused() -> None:
    sent = batch_around(compress(Codec.ZSTD, bytes(DEFAULT_MAX_BYTES + 1)), 1, Codec.ZSTD)
    with pytest.raises(KafkaError, match="decompress to more than the limit") as caught:
        prepare_batch(sent, LogConfig.of(), NOW_MS, AppendOrigin.CLIENT)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_other_brokers_and_coordinators_write_is_taken_as_it_is() -> None:
    sent = patched(batch([b"value"]), ">h", 21, Codec.GZIP)
    assert prepare_batch(sent, LogConfig.of(), NOW_MS, AppendOrigin.REPLICATION).view() == sent


@pytest.mark.parametrize(
    ("limit", "code"),
    [("max.message.bytes", ErrorCode.MESSAGE_TOO_LARGE), ("segment.bytes", ErrorCode.RECORD_LIST_TOO_LARGE)],
)
def test_a_batch_that_another_codec_makes_too_large_is_refused(limit: str, code: ErrorCode) -> None:
    sent = batch([bytes(1000)] * 100, codec=Codec.GZIP)
    limits = {"max.message.bytes": 1_000_000, "segment.bytes": 1_000_000} | {limit: 50_000}
    assert len(sent) < 50_000
    with pytest.raises(KafkaError) as caught:
        prepare_batch(sent, LogConfig.of({"compression.type": "uncompressed"} | limits), NOW_MS, AppendOrigin.CLIENT)
    assert caught.value.code is code
