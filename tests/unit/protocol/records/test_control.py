from __future__ import annotations

import pytest

from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.control import (
    ControlType,
    control_batch,
    control_key,
    control_type,
    end_transaction_marker,
    marker_coordinator_epoch,
)
from pybroker.protocol.records.validation import check_batch


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_transaction_marker(kind: ControlType) -> None:
    batch = RecordBatch(end_transaction_marker(kind, producer_id=9, producer_epoch=2, coordinator_epoch=5, timestamp=1234))
    check_batch(batch)
    assert (batch.is_control, batch.is_transactional) == (True, True)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, -1)
    (record,) = batch.records()
    assert (record.key, record.value) == (bytes([0, 0, 0, kind]), bytes.fromhex("0000 00000005"))
    assert control_type(record.key) is kind
    assert marker_coordinator_epoch(record.value) == 5


def test_kraft_control_records() -> None:
    rows = [(kind, b"body of %d" % kind) for kind in ControlType if kind >= ControlType.LEADER_CHANGE]
    batch = RecordBatch(control_batch(rows, timestamp=1, base_offset=7, partition_leader_epoch=3))
    check_batch(batch)
    assert (batch.is_control, batch.is_transactional, batch.base_offset, batch.last_offset) == (True, False, 7, 11)
    assert [(control_type(record.key), record.value) for record in batch.records()] == rows


def test_types_to_come_are_skipped_and_malformed_keys_refused() -> None:
    assert control_type(b"\x00\x00\x00\x63") is None
    assert control_type(b"\x00\x01" + control_key(ControlType.COMMIT)[2:] + b"more") is ControlType.COMMIT
    for key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"):
        with pytest.raises(KafkaError, match="control record") as caught:
            control_type(key)
        assert caught.value.code == ErrorCode.INVALID_RECORD
    for value in (None, b"\x00\x00\x00", b"\xff\xff\x00\x00\x00\x01"):
        with pytest.raises(KafkaError, match="transaction marker") as caught:
            marker_coordinator_epoch(value)
        assert caught.value.code == ErrorCode.INVALID_RECORD
