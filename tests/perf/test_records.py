"""What a record batch costs, in µs: the view, the checks, the stamps, the walks, building, and every codec."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter

import pytest

from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.compression import Codec, compress, decompress
from pybroker.protocol.records.validation import check_batch, check_records, produced_batch

pytestmark = pytest.mark.perf

TIMESTAMP = 1_700_000_000_000


def batch_of(records: int, value_bytes: int, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec=codec)
    for index in range(records):
        value = (b'{"id": %d, "name": "somebody", "amount": %d}' % (index, index * 7919)).ljust(value_bytes, b".")
        builder.append(TIMESTAMP + index, b"key-%06d" % index, value)
    return builder.build()


SIZES = {"16 KiB": (16, 1000), "1 KiB": (1, 940)}


def report(name: str, work: Callable[[], object], per: int = 1) -> None:
    """Prints the best of some rounds, each of about 20 ms."""
    work()
    began = perf_counter()
    work()
    rounds = max(1, int(0.02 / max(perf_counter() - began, 1e-7)))
    best = float("inf")
    for _ in range(7):
        began = perf_counter()
        for _ in range(rounds):
            work()
        best = min(best, (perf_counter() - began) / rounds)
    print(f"  {best * 1e6 / per:10.3f} µs  {name}")


@pytest.mark.parametrize("size", SIZES)
def test_an_append_of_a_batch(size: str) -> None:
    data = batch_of(*SIZES[size])
    view = memoryview(data)
    batch = RecordBatch(view)
    print(f"\n{len(data)} bytes, {batch.count} records")
    report("header view", lambda: RecordBatch(view))
    report("CRC check", lambda: check_batch(batch))
    report("produced_batch: view, CRC, a producer's rules", lambda: produced_batch(view))
    report("stamp offset and epoch", lambda: batch.stamp(123456, 7))
    moments = iter(range(TIMESTAMP, TIMESTAMP + 100_000_000))
    report("stamp LogAppendTime, with a new CRC", lambda: batch.stamp_append_time(next(moments)))


@pytest.mark.parametrize("records", [1, 16, 1000])
def test_walking_and_building_per_record(records: int) -> None:
    data = batch_of(records, 100)
    batch = RecordBatch(data)
    print(f"\n{records} records of 100 bytes, {len(data)} bytes, per record")
    report("keys", lambda: deque(batch.keys(), 0), records)
    report("records", lambda: deque(batch.records(), 0), records)
    report("check_records", lambda: check_records(batch), records)
    report("build", lambda: batch_of(records, 100), records)


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_codec(codec: Codec) -> None:
    for records in (16, 1000):
        plain = RecordBatch(batch_of(records, 1000)).payload()
        packed = compress(codec, plain)
        print(f"\n{codec.name.lower()}, {len(plain)} bytes to {len(packed)}")
        report("compress", lambda plain=plain: compress(codec, plain))  # type: ignore[misc]
        report("decompress", lambda packed=packed: decompress(codec, packed))  # type: ignore[misc]
