"""What is measured: each workload drives a running server and returns its figures. They check what they did: the log's end
offsets must be those of the records sent, and what is fetched must be what was written.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from perf.bench import process
from perf.bench.frames import PARTITION_MAX_BYTES, Batch, full_batch, produce_frame
from perf.bench.raw_client import FetchConnection, Fetched, RawProducer, end_to_end, fetch_all
from perf.bench.results import percentile
from perf.bench.servers import Server
from perf.bench.whole_clients import confluent_consume, confluent_produce, java_produce

from pybroker.base.ids import Uuid
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker.protocol.records.batch import iter_batches
from pybroker.protocol.records.compression import Codec

KIB = 1024
MANY_PARTITIONS = 1_000
MANY_TOPIC = "many"
IN_FLIGHT = 5  # max.in.flight.requests.per.connection of the Java producer
FETCH_PARTITIONS = 4
# Never more than this on the disk at once, whatever a server can take.
_MOST_BYTES = 1_500_000_000
# However fast it goes, most of that is measured.
_LEAD_IN_BYTES = 500_000_000
# Fewer requests than this and a JVM may still be at its first compiler, however steady it looks.
_WARM_REQUESTS = {"single-record request": 150_000, "small fetch": 50_000}
_WARM_FETCH_BYTES = 50_000_000
# Workloads that fetch.
READING = frozenset({"fetch-1", "fetch-4", "end-to-end", "confluent-consumer"})

Values = dict[str, float]


@dataclass(slots=True, frozen=True)
class Pace:
    """How long things take: full, or quick and rough."""

    warm_up_s: float
    """At most."""
    slice_s: float
    lead_in_s: float
    measure_s: float
    fetch_bytes: int
    samples: int
    client_records: int
    java_records: int
    idle_s: float


FULL = Pace(90.0, 2.0, 1.0, 3.0, 500_000_000, 2_500, 300_000, 500_000, 2.0)
QUICK = Pace(60.0, 1.0, 0.5, 1.0, 200_000_000, 500, 100_000, 150_000, 0.5)


class Session:
    """One server from its start to its stop, and what the workloads share."""

    def __init__(self, server: Server, pace: Pace) -> None:
        self.server = server
        self.pace = pace
        self._topics = 0

    @contextmanager
    def topic(self, partitions: int = 1) -> Iterator[tuple[str, Uuid]]:
        """A topic of its own, gone afterwards with its data."""
        self._topics += 1
        name = f"bench{self._topics:03}"
        topic_id = self.server.create_topic(name, partitions)
        try:
            yield name, topic_id
        except BaseException:
            with suppress(Exception):  # the first problem is the one to tell
                self.server.delete_topic(name)
            raise
        self.server.delete_topic(name)


class Metered(Protocol):
    def cpu_s(self) -> float:
        """User and system time so far, of all its processes."""
        ...


class Meter:
    """CPU of server and client, and the time, over a `with` block."""

    def __init__(self, server: Metered) -> None:
        self._server = server

    def __enter__(self) -> Meter:
        # A pause of the client's collector is not the broker's latency.
        gc.collect()
        gc.disable()
        self._noise = process.NoiseMeter()
        self._client, self._broker, self._began = _own_cpu_s(), self._server.cpu_s(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self.broker_cpu_s = self._server.cpu_s() - self._broker
        self.client_cpu_s = _own_cpu_s() - self._client
        self.noise = self._noise.read()
        self.other_cpu_s = max(0.0, self.noise.busy_s - self.broker_cpu_s - self.client_cpu_s)
        gc.enable()

    def cores(self) -> Values:
        """Where the processors' time went; what neither broker nor client took is noise, or a client's own process."""
        return {
            "broker_cores": self.broker_cpu_s / self.seconds,
            "client_cores": self.client_cpu_s / self.seconds,
            "other_cores": self.other_cpu_s / self.seconds,
        }


@dataclass(slots=True, frozen=True)
class Produce:
    """Requests as fast as they are answered, `IN_FLIGHT` on each connection."""

    batch_bytes: int
    value_bytes: int
    acks: int = 1
    codec: Codec = Codec.NONE
    partitions: int = 1
    batches_a_request: int = 1
    connections: int = 2
    per_request: bool = False
    """Whether the figures are per request rather than per record."""

    def __call__(self, session: Session) -> Values:
        return self.run(session, session.pace.lead_in_s, session.pace.measure_s)

    def run(self, session: Session, lead_in_s: float, measure_s: float) -> Values:
        server = session.server
        batch = full_batch(self.batch_bytes, self.value_bytes, self.codec, int(time.time() * 1000))
        with session.topic(self.partitions) as (topic, topic_id):
            frames = self._frames(topic_id, batch)
            producer = RawProducer([(server.address, frames)] * self.connections, IN_FLIGHT, self.batches_a_request)
            try:
                request_bytes = len(batch.data) * self.batches_a_request
                lead_in = producer.run(_LEAD_IN_BYTES // request_bytes, lead_in_s)
                most = _MOST_BYTES // request_bytes - lead_in.requests
                with Meter(server) as meter:
                    done = producer.run(most, measure_s)
            finally:
                producer.close()
            sent = (lead_in.requests + done.requests) * self.batches_a_request * batch.records
            _check_end_offsets(server, topic, self.partitions, sent)
        records = done.requests * self.batches_a_request * batch.records
        latencies = sorted(done.latencies_ns)
        values = {
            "mb_per_s": done.requests * self.batches_a_request * len(batch.data) / done.seconds / 1e6,
            "p50_ms": percentile(latencies, 50) / 1e6,
            "p99_ms": percentile(latencies, 99) / 1e6,
        }
        count, unit = (done.requests, "request") if self.per_request else (records, "record")
        values[f"{unit}s_per_s"] = count / done.seconds
        values[f"cpu_us_per_{unit}"] = meter.broker_cpu_s / count * 1e6
        return values | meter.cores()

    def _frames(self, topic_id: Uuid, batch: Batch) -> list[bytes]:
        numbers = range(self.partitions)
        step = self.batches_a_request
        groups = [numbers[start : start + step] for start in range(0, self.partitions, step)]
        return [produce_frame(topic_id, [(number, batch) for number in group], self.acks) for group in groups]


@dataclass(slots=True, frozen=True)
class Fetch:
    """What `consumers` read, each its own share of the partitions, over and over."""

    consumers: int
    partition_max_bytes: int = PARTITION_MAX_BYTES

    def __call__(self, session: Session) -> Values:
        pace = session.pace
        done, meter = self.run(session, pace.fetch_bytes, pace.lead_in_s, pace.measure_s)
        megabytes, latencies = done.bytes / 1e6, sorted(done.latencies_ns)
        return {
            "mb_per_s": megabytes / done.seconds,
            "cpu_ms_per_mb": meter.broker_cpu_s * 1e3 / megabytes,
            "p50_ms": percentile(latencies, 50) / 1e6,
            "p99_ms": percentile(latencies, 99) / 1e6,
        } | meter.cores()

    def run(self, session: Session, fetch_bytes: int, lead_in_s: float, measure_s: float) -> tuple[Fetched, Meter]:
        server = session.server
        batch = full_batch(16 * KIB, KIB, Codec.NONE, int(time.time() * 1000))
        with session.topic(FETCH_PARTITIONS) as (topic, topic_id):
            frames = [produce_frame(topic_id, [(number, batch)], 1) for number in range(FETCH_PARTITIONS)]
            requests = fetch_bytes // len(batch.data)
            _fill(server, frames, requests)
            _check_end_offsets(server, topic, FETCH_PARTITIONS, requests * batch.records)
            _check_content(server, topic_id, batch)
            shares = [range(number, FETCH_PARTITIONS, self.consumers) for number in range(self.consumers)]
            connections = [
                FetchConnection(server.address, topic_id, share, len(batch.data), batch.records, self.partition_max_bytes)
                for share in shares
            ]
            try:
                fetch_all(connections, lead_in_s)
                with Meter(server) as meter:
                    done = fetch_all(connections, measure_s)
            finally:
                for connection in connections:
                    connection.socket.close()
        return done, meter


def end_to_end_latency(session: Session) -> Values:
    """A record of 1 KiB from its producer to a consumer that waits for it."""
    server, pace = session.server, session.pace
    batch = full_batch(0, KIB, Codec.NONE, int(time.time() * 1000))
    with session.topic() as (topic, topic_id):
        consumer = FetchConnection(server.address, topic_id, [0], len(batch.data), batch.records)
        frame = produce_frame(topic_id, [(0, batch)], 1)
        try:
            end_to_end(server.address, frame, consumer, len(batch.data), pace.samples // 5, 0.0005)
            with Meter(server) as meter:
                latencies = sorted(end_to_end(server.address, frame, consumer, len(batch.data), pace.samples, 0.0005))
        finally:
            consumer.socket.close()
        _check_end_offsets(server, topic, 1, pace.samples // 5 + pace.samples)
    return {
        "p50_ms": percentile(latencies, 50) / 1e6,
        "p99_ms": percentile(latencies, 99) / 1e6,
        "cpu_us_per_record": meter.broker_cpu_s / pace.samples * 1e6,
    } | meter.cores()


def confluent(session: Session) -> Values:
    """librdkafka's producer, 1 KiB records, its defaults."""
    records = session.pace.client_records
    value = full_batch(0, KIB, Codec.NONE, 0).data[-KIB:]
    with session.topic() as (topic, _):
        with Meter(session.server) as meter:
            seconds = confluent_produce(session.server.address, topic, value, records)
        _check_end_offsets(session.server, topic, 1, records)
        return _per_record(meter, records, records / seconds)


def confluent_consumer(session: Session) -> Values:
    """librdkafka's consumer over what its producer wrote."""
    records = session.pace.client_records
    value = full_batch(0, KIB, Codec.NONE, 0).data[-KIB:]
    with session.topic() as (topic, _):
        confluent_produce(session.server.address, topic, value, records)
        with Meter(session.server) as meter:
            seconds = confluent_consume(session.server.address, topic, records)
        return _per_record(meter, records, records / seconds)


def java_producer(session: Session) -> Values:
    """Kafka's ProducerPerformance, 1 KiB records, its defaults; the JVM's start is in it."""
    records = session.pace.java_records
    with session.topic() as (topic, _):
        with Meter(session.server) as meter:
            run = java_produce(session.server.address, topic, KIB, records)
        _check_end_offsets(session.server, topic, 1, records)
        # No cores: of the seconds that the meter saw the client's JVM took some to start.
        cost = meter.broker_cpu_s / records * 1e6
        return {
            "records_per_s": run.records_per_s,
            "cpu_us_per_record": cost,
            "p50_ms": run.p50_ms,
            "p99_ms": run.p99_ms,
        }


class WarmUp(NamedTuple):
    costs: dict[str, list[float]]
    """CPU µs of a request of each kind in each slice."""
    complete: bool
    """Whether it went on until no cost fell any more, and not just until the time was over."""


def warm_up(session: Session, names: Set[str]) -> WarmUp:
    """Not measured: the same kinds of load for every server, until the cost of a request falls no more. A JVM that has not
    compiled everything yet takes several times the CPU. Fetches are among them if a workload of `names` has some."""
    slice_s = session.pace.slice_s
    costs: dict[str, list[float]] = {"single-record request": []}
    if names & READING:
        costs["small fetch"] = []
    served = dict.fromkeys(costs, 0.0)

    def is_warm() -> bool:
        return all(steady(costs[kind]) and served[kind] >= _WARM_REQUESTS[kind] for kind in costs)

    deadline = time.monotonic() + session.pace.warm_up_s
    while not is_warm() and time.monotonic() < deadline:
        Produce(16 * KIB, KIB).run(session, 0.1, slice_s)
        Produce(16 * KIB, KIB, acks=-1).run(session, 0.1, slice_s / 4)
        single = SINGLE.run(session, 0.1, slice_s)
        served["single-record request"] += single["requests_per_s"] * slice_s
        costs["single-record request"].append(single["cpu_us_per_request"])
        Produce(128 * KIB, KIB, partitions=6).run(session, 0.1, slice_s / 4)
        if "small fetch" in costs:
            # Of large ones there are too few in a slice for a compiler to take notice.
            done, meter = Fetch(FETCH_PARTITIONS, 16 * KIB).run(session, _WARM_FETCH_BYTES, 0.1, slice_s)
            served["small fetch"] += done.requests
            costs["small fetch"].append(meter.broker_cpu_s / done.requests * 1e6)
            Fetch(1).run(session, _WARM_FETCH_BYTES, 0.1, slice_s / 4)
    return WarmUp(costs, is_warm())


def steady(costs: Sequence[float]) -> bool:
    """Whether the last two slices were hardly cheaper than the cheapest before them."""
    return len(costs) > 2 and min(costs[-2:]) > 0.95 * min(costs[:-2])


SINGLE = Produce(0, KIB, connections=10, per_request=True)


class Workload(NamedTuple):
    name: str
    title: str
    run: Callable[[Session], Values] | None = None
    """None for what the session itself measures: starting, memory, many partitions."""


WORKLOADS = (
    Workload("start", "Start to the first good Metadata"),
    Workload("memory-idle", "Memory, idle after the start"),
    Workload("produce-16k", "Produce 1 KiB records, 16 KiB batches, acks=1", Produce(16 * KIB, KIB)),
    Workload("produce-16k-all", "Produce 1 KiB records, 16 KiB batches, acks=all", Produce(16 * KIB, KIB, acks=-1)),
    Workload(
        "produce-128k", "Produce 1 KiB records, 128 KiB batches, 6 partitions in turn", Produce(128 * KIB, KIB, partitions=6)
    ),
    Workload(
        "produce-128k-x6",
        "Produce 1 KiB records, six 128 KiB batches a request, 6 partitions",
        Produce(128 * KIB, KIB, partitions=6, batches_a_request=6),
    ),
    Workload("produce-100b", "Produce 100-byte records, 16 KiB batches", Produce(16 * KIB, 100)),
    Workload("produce-lz4", "Produce 1 KiB records, 16 KiB batches, lz4", Produce(16 * KIB, KIB, codec=Codec.LZ4)),
    Workload("produce-zstd", "Produce 1 KiB records, 16 KiB batches, zstd", Produce(16 * KIB, KIB, codec=Codec.ZSTD)),
    Workload("single", "Produce single 1 KiB records, 10 connections, 5 in flight", SINGLE),
    Workload("fetch-1", "Fetch, 1 consumer of 4 partitions", Fetch(1)),
    Workload("fetch-4", "Fetch, 4 consumers of a partition each", Fetch(4)),
    Workload("end-to-end", "End to end, single records, the consumer waiting", end_to_end_latency),
    Workload("confluent-producer", "confluent-kafka producer, 1 KiB records", confluent),
    Workload("confluent-consumer", "confluent-kafka consumer, 1 KiB records", confluent_consumer),
    Workload("java-producer", "ProducerPerformance, 1 KiB records", java_producer),
    Workload("memory-loaded", "Memory after the load"),
    Workload("partitions-create", f"A topic of {MANY_PARTITIONS:,} partitions made"),
    Workload("partitions-restart", f"Restart with {MANY_PARTITIONS:,} partitions after a clean stop"),
    Workload("partitions-kill", f"Restart with {MANY_PARTITIONS:,} partitions after kill -9"),
)


def _fill(server: Server, frames: Sequence[bytes], requests: int) -> None:
    producer = RawProducer([(server.address, frames)], IN_FLIGHT)
    try:
        done = producer.run(requests, 60.0)
    finally:
        producer.close()
    assert done.requests == requests, f"only {done.requests} of {requests} requests in {done.seconds:.0f} s"


def _check_end_offsets(server: Server, topic: str, partitions: int, records: int) -> None:
    found = server.end_offsets(topic, partitions)
    total = sum(offset for _, offset in found)
    assert total == records, f"{server.label}: {records} records were acknowledged, the log of {topic} has {total}"


def _check_content(server: Server, topic_id: Uuid, batch: Batch) -> None:
    """A Fetch the slow way: whole batches, right sums, the very bytes that were written."""
    rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=KIB * KIB)]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=rows)])
    found = server.ask(request, 17).responses[0].partitions[0]
    assert found.error_code == 0, found.error_code
    expected = 0
    for stored in iter_batches(found.records):
        assert stored.base_offset == expected, f"batch at {stored.base_offset}, expected {expected}"
        # Offset and leader epoch are the broker's; what comes after them is the producer's.
        assert bytes(stored.view())[16:] == batch.data[16:], f"batch at {stored.base_offset} is not what was written"
        expected += batch.records
    assert expected, "nothing was fetched"


def _per_record(meter: Meter, records: int, rate: float) -> Values:
    return {"records_per_s": rate, "cpu_us_per_record": meter.broker_cpu_s / records * 1e6} | meter.cores()


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
