from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.protocol.errors import KafkaError
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.builder import BatchBuilder, rebuild
from pybroker.protocol.records.compression import Codec
from pybroker.protocol.records.splice import splice, walk_spans
from pybroker.protocol.records.validation import check_batch

TIMESTAMPS = st.integers(0, 2**45)
BYTES = st.one_of(st.none(), st.binary(max_size=300))
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2).map(tuple)
ROWS = st.lists(st.tuples(TIMESTAMPS, BYTES, BYTES, HEADERS, st.integers(1, 200), st.booleans()), min_size=1, max_size=20)


@given(ROWS, st.sampled_from(list(Codec)), st.sampled_from([None, 77]), st.sampled_from([None, 5_000]))
def test_what_stays_is_what_a_rebuild_would_leave(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int, bool]],
    codec: Codec,
    append_time_ms: int | None,
    delete_horizon_ms: int | None,
) -> None:
    builder = BatchBuilder(
        1_000,
        codec=codec,
        append_time_ms=append_time_ms,
        delete_horizon_ms=delete_horizon_ms,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
        partition_leader_epoch=3,
    )
    stays = set()
    for timestamp, key, value, headers, gap, is_kept in rows:
        offset = builder.append(timestamp, key, value, headers, builder.next_offset + gap)
        if is_kept:
            stays.add(offset)
    batch = RecordBatch(builder.build())
    payload = batch.payload()
    spans = list(walk_spans(payload, batch.count, batch.base_offset))
    records = list(batch.records())
    assert [(span.offset, span.key, span.is_tombstone) for span in spans] == [
        (record.offset, record.key, record.value is None) for record in records
    ]
    if stays:
        found = splice(batch, payload, [span for span in spans if span.offset in stays])
        expected = RecordBatch(rebuild(batch, [record for record in records if record.offset in stays]))
        check_batch(found)
        assert list(found.records()) == list(expected.records())
        for name in ("base_offset", "last_offset", "max_timestamp", "attributes", "last_sequence", "delete_horizon_ms"):
            assert getattr(found, name) == getattr(expected, name), name


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"\xff" + data[1:]])
def test_damage_is_said_and_not_copied(damage: object) -> None:
    builder = BatchBuilder(0)
    builder.append(1, b"key", b"value")
    payload = RecordBatch(builder.build()).payload()
    with pytest.raises(KafkaError, match="damaged"):
        list(walk_spans(damage(payload), 1, 0))  # type: ignore[operator]
