"""A benchmark that measures errors is worth nothing: the client has to see them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from perf.bench.frames import FETCH_VERSION, PRODUCE_VERSION, Batch, fetch_frame, full_batch, produce_frame
from perf.bench.raw_client import FetchConnection, RawProducer, WrongAnswerError, fetch_all
from perf.bench.workloads import READING, WORKLOADS, Fetch, steady

from pybroker.base.ids import Uuid
from pybroker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pybroker.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from pybroker.protocol.records.batch import RecordBatch, iter_batches
from pybroker.protocol.records.compression import Codec

TOPIC = Uuid(bytes(range(16)))
Answer = Callable[[int], bytes]


@contextmanager
def broker(answer: Answer) -> Iterator[str]:
    """Answers the nth frame of a connection with `answer(n)` under its correlation id."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            # A client that has seen enough hangs up.
            with suppress(ConnectionError), connection, connection.makefile("rb") as reader:
                number = 0
                while size := reader.read(4):
                    frame = reader.read(struct.unpack(">i", size)[0])
                    body = frame[4:8] + b"\0" + answer(number)
                    connection.sendall(struct.pack(">i", len(body)) + body)
                    number += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


def produced(offsets: dict[int, int], error: int = 0) -> bytes:
    rows = [PartitionProduceResponse(index=index, error_code=error, base_offset=at) for index, at in offsets.items()]
    return ProduceResponse(responses=[TopicProduceResponse(topic_id=TOPIC, partition_responses=rows)]).encode(PRODUCE_VERSION)


def fetched(records: bytes, high_watermark: int, error: int = 0) -> bytes:
    row = PartitionData(
        partition_index=0, error_code=error, high_watermark=high_watermark, aborted_transactions=None, records=records
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC, partitions=[row])]).encode(FETCH_VERSION)


def produce(answer: Answer, requests: int, partitions: int = 1) -> int:
    batch = full_batch(0, 100, Codec.NONE, 1)
    frame = produce_frame(TOPIC, [(number, batch) for number in range(partitions)], 1)
    with broker(answer) as address:
        producer = RawProducer([(address, [frame])], 5, partitions)
        try:
            return producer.run(requests, 30).requests
        finally:
            producer.close()


@pytest.fixture
def batch() -> Batch:
    return full_batch(4096, 100, Codec.NONE, 1)


def stored(batch: Batch, offset: int) -> bytes:
    data = bytearray(batch.data)
    RecordBatch(data).stamp(offset, 0)
    return bytes(data)


def test_every_request_is_counted_when_it_is_answered() -> None:
    assert produce(lambda number: produced({0: number, 1: number}), 100, partitions=2) == 100


def test_a_refused_produce_ends_the_run() -> None:
    with pytest.raises(WrongAnswerError, match="error_code=6"):
        produce(lambda number: produced({0: number}, error=6 if number == 7 else 0), 100)


def test_an_offset_that_does_not_advance_ends_the_run() -> None:
    with pytest.raises(WrongAnswerError, match="after offset"):
        produce(lambda number: produced({0: min(number, 5)}), 100)


def test_what_is_fetched_is_counted_until_the_time_is_over(batch: Batch) -> None:
    with broker(lambda number: fetched(stored(batch, 0) + stored(batch, batch.records), batch.records * 2)) as address:
        connection = FetchConnection(address, TOPIC, [0], len(batch.data), batch.records)
        done = fetch_all([connection], 0.05)
        connection.socket.close()
    assert done.requests > 0
    assert done.bytes == done.requests * 2 * len(batch.data)


def test_a_batch_cut_off_at_the_end_is_fetched_again(batch: Batch) -> None:
    records = stored(batch, 0) + stored(batch, batch.records)[:500]
    with broker(lambda number: fetched(records, batch.records * 2)) as address:
        connection = FetchConnection(address, TOPIC, [0], len(batch.data), batch.records)
        connection.ask()
        assert connection.answer() == len(records)
        connection.socket.close()
    assert connection.offsets == {0: batch.records}


@pytest.mark.parametrize("error", [1, 3])
def test_a_refused_fetch_is_seen(error: int) -> None:
    with broker(lambda number: fetched(b"", 0, error)) as address:
        connection = FetchConnection(address, TOPIC, [0], 100, 1)
        connection.ask()
        with pytest.raises(WrongAnswerError, match=f"error {error}"):
            connection.answer()
        connection.socket.close()


def test_records_of_another_offset_are_seen(batch: Batch) -> None:
    with broker(lambda number: fetched(stored(batch, 5), 100)) as address:
        connection = FetchConnection(address, TOPIC, [0], len(batch.data), batch.records)
        connection.ask()
        with pytest.raises(WrongAnswerError, match="batch at 5"):
            connection.answer()
        connection.socket.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_batches_are_as_full_as_a_producer_makes_them_and_their_sums_are_right(codec: Codec) -> None:
    made = full_batch(16_384, 1_024, codec, 1_700_000_000_000)
    (found,) = iter_batches(made.data)
    assert found.compute_crc() == found.crc
    records = list(found.records())
    assert [len(record.value or b"") for record in records] == [1_024] * made.records
    assert made.records == 15
    assert len(made.data) <= 16_384


def test_a_batch_of_no_room_holds_one_record() -> None:
    assert full_batch(0, 1_024, Codec.NONE, 1).records == 1


def test_a_produce_frame_reads_back(batch: Batch) -> None:
    frame = produce_frame(TOPIC, [(3, batch)], -1)
    assert struct.unpack_from(">ihh", frame) == (len(frame) - 4, ProduceRequest.KEY, PRODUCE_VERSION)
    assert frame.count(batch.data) == 1


def test_a_fetch_frame_names_version_and_correlation_id() -> None:
    assert struct.unpack_from(">hhi", fetch_frame(TOPIC, [(0, 9)], 77), 4) == (1, FETCH_VERSION, 77)


def test_a_fetch_frame_asks_for_as_much_as_told() -> None:
    assert fetch_frame(TOPIC, [(0, 9)]) == fetch_frame(TOPIC, [(0, 9)], partition_max_bytes=1_048_576)
    assert struct.pack(">i", 12_345) in fetch_frame(TOPIC, [(0, 9)], partition_max_bytes=12_345)


def test_workloads_that_are_warmed_up_for_exist() -> None:
    assert {row.name for row in WORKLOADS if row.name in READING} == READING
    assert all(row.name in READING for row in WORKLOADS if isinstance(row.run, Fetch))


def test_costs_are_steady_when_two_slices_bring_nothing_more() -> None:
    assert [steady(costs) for costs in ([], [9.0, 5.0, 3.0], [9.0, 5.0, 4.9, 4.8], [5.0, 5.2, 4.2])] == [
        False,
        False,
        True,
        False,
    ]
