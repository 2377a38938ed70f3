from __future__ import annotations

import pytest
from unit.metadata.clusters import uuid

from pybroker.metadata.framing import decode_record, encode_record
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord, NoOpRecord, TopicRecord


def test_the_bytes_are_those_that_apache_kafka_writes() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    data = bytes.fromhex("010c0011") + b"metadata.version" + bytes.fromhex("001e00")
    assert encode_record(record, 0) == data
    assert decode_record(data) == record


def test_there_and_back() -> None:
    record = TopicRecord(name="t", topic_id=uuid("id"))
    assert decode_record(encode_record(record, 0)) == record
    assert decode_record(encode_record(NoOpRecord(), 0)) == NoOpRecord()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "has no value"),
        (b"", "0 bytes ends inside its header"),
        (b"\x01\x0c", "2 bytes ends inside its header"),
        (b"\x02\x0c\x00", "framing version 2; expected 1"),
        (b"\x01\x7f\x00", "no metadata record of type 127"),
        (b"\x01\x0c\x09", "no such version"),
        (encode_record(NoOpRecord(), 0) + b"x", "1 bytes left over"),
    ],
)
def test_what_is_no_record(data: bytes | None, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        decode_record(data)
