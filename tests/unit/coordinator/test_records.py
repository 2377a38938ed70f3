from __future__ import annotations

import pytest

from pybroker.coordinator.group.records import GROUP_RECORD_TYPES, group_tombstone, offset_tombstone
from pybroker.coordinator.records import CoordinatorRecord, decode_record
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.internal.consumer_offsets import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)


def test_a_record_is_its_type_and_key_then_its_version_and_value() -> None:
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7)
    key, encoded = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=1), value, 3).encoded()
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000001")
    assert encoded == bytes.fromhex("0003 0000000000000005 ffffffff 0001 6d 0000000000000007")


def test_what_is_written_is_read_again() -> None:
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7)
    record = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=1), value, 4)
    assert decode_record(GROUP_RECORD_TYPES, *record.encoded()) == record


@pytest.mark.parametrize("record", [offset_tombstone("g", "t", 1), group_tombstone("g")])
def test_a_tombstone_has_no_value(record: CoordinatorRecord) -> None:
    key, value = record.encoded()
    assert value is None
    assert decode_record(GROUP_RECORD_TYPES, key, value) == record


def test_offsets_of_very_old_brokers_are_read() -> None:
    decoded = decode_record(GROUP_RECORD_TYPES, bytes.fromhex("0000 0001 67 0001 74 00000001"), None)
    assert decoded is not None
    assert decoded.key == LegacyOffsetCommitKey(group="g", topic="t", partition=1)


def test_a_type_that_nobody_knows_is_no_error() -> None:
    assert decode_record(GROUP_RECORD_TYPES, b"\x00\x63xyz", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\x00", b""), (b"\x00\x02", b""), (b"\x00\x02\x00\x01g", b"\x00"), (b"\x00\x02\x00\x09g", None)],
)
def test_what_is_no_record_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_record(GROUP_RECORD_TYPES, key, value)


def test_a_value_of_a_version_that_nobody_knows_is_refused() -> None:
    key, _ = CoordinatorRecord(GroupMetadataKey(group="g"), None).encoded()
    with pytest.raises(ProtocolError):
        decode_record(GROUP_RECORD_TYPES, key, b"\x00\x63")
