"""What is measured of a cluster: everything is replicated thrice and acknowledged by all that are in sync. Like the workloads
of a single server they check what they did by the end offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from perf.bench.cluster import Cluster, ClusterTopic
from perf.bench.frames import full_batch, produce_frame
from perf.bench.raw_client import FetchConnection, RawProducer, end_to_end
from perf.bench.results import percentile
from perf.bench.whole_clients import confluent_produce
from perf.bench.workloads import IN_FLIGHT, KIB, Meter, Values, WarmUp, steady

from pybroker.protocol.records.compression import Codec

ACKS_ALL = -1
# Never more than this on the disk at once for each replica.
_MOST_BYTES = 600_000_000
# However fast it goes, most of that is measured.
_LEAD_IN_BYTES = 200_000_000
# Fewer requests than this and a JVM may still be at its first compiler.
_WARM_REQUESTS = 30_000


@dataclass(slots=True, frozen=True)
class ClusterPace:
    """How long things take: full, or quick and rough."""

    warm_up_s: float
    """At most."""
    slice_s: float
    lead_in_s: float
    measure_s: float
    samples: int
    client_records: int
    idle_s: float


FULL = ClusterPace(180.0, 3.0, 1.0, 4.0, 2_500, 200_000, 2.0)
QUICK = ClusterPace(60.0, 2.0, 0.5, 2.0, 1_000, 60_000, 0.5)


class ClusterSession(NamedTuple):
    """A cluster that runs, and how long things take on it."""

    cluster: Cluster
    pace: ClusterPace

    @contextmanager
    def topic(self, partitions: int = 1) -> Iterator[ClusterTopic]:
        """A topic of its own, gone afterwards with its data."""
        topic = self.cluster.create_topic(partitions)
        try:
            yield topic
        except BaseException:
            with suppress(Exception):  # the first problem is the one to tell
                self.cluster.delete_topic(topic)
            raise
        self.cluster.delete_topic(topic)


@dataclass(slots=True, frozen=True)
class Replicated:
    """Requests of one batch as fast as they are answered, IN_FLIGHT on the connection of each producer to each leader."""

    batch_bytes: int
    partitions: int = 1
    producers: int = 1

    def __call__(self, session: ClusterSession) -> Values:
        return self.run(session, session.pace.lead_in_s, session.pace.measure_s)

    def run(self, session: ClusterSession, lead_in_s: float, measure_s: float) -> Values:
        cluster = session.cluster
        batch = full_batch(self.batch_bytes, KIB, Codec.NONE, int(time.time() * 1000))
        with session.topic(self.partitions) as topic:
            ways: dict[str, list[bytes]] = {}
            for number, leader in enumerate(topic.leaders):
                ways.setdefault(leader, []).append(produce_frame(topic.topic_id, [(number, batch)], ACKS_ALL))
            producer = RawProducer([*ways.items()] * self.producers, IN_FLIGHT)
            try:
                lead_in = producer.run(_LEAD_IN_BYTES // len(batch.data), lead_in_s)
                most = _MOST_BYTES // len(batch.data) - lead_in.requests
                with Meter(cluster) as meter:
                    done = producer.run(most, measure_s)
            finally:
                producer.close()
            _check_end_offsets(cluster, topic, (lead_in.requests + done.requests) * batch.records)
        records = done.requests * batch.records
        latencies = sorted(done.latencies_ns)
        return {
            "mb_per_s": done.requests * len(batch.data) / done.seconds / 1e6,
            "cpu_us_per_record": meter.broker_cpu_s / records * 1e6,
            "requests_per_s": done.requests / done.seconds,
            "p50_ms": percentile(latencies, 50) / 1e6,
            "p99_ms": percentile(latencies, 99) / 1e6,
        } | meter.cores()


def end_to_end_latency(session: ClusterSession) -> Values:
    """A record of 1 KiB from its producer over the replicas to a consumer that waits for it at the leader."""
    cluster, samples = session.cluster, session.pace.samples
    batch = full_batch(0, KIB, Codec.NONE, int(time.time() * 1000))
    with session.topic() as topic:
        leader = topic.leaders[0]
        consumer = FetchConnection(leader, topic.topic_id, [0], len(batch.data), batch.records)
        frame = produce_frame(topic.topic_id, [(0, batch)], ACKS_ALL)
        try:
            end_to_end(leader, frame, consumer, len(batch.data), samples // 5, 0.0005)
            with Meter(cluster) as meter:
                latencies = sorted(end_to_end(leader, frame, consumer, len(batch.data), samples, 0.0005))
        finally:
            consumer.socket.close()
        _check_end_offsets(cluster, topic, samples // 5 + samples)
    return {
        "p50_ms": percentile(latencies, 50) / 1e6,
        "p99_ms": percentile(latencies, 99) / 1e6,
        "cpu_us_per_record": meter.broker_cpu_s / samples * 1e6,
    } | meter.cores()


def confluent(session: ClusterSession) -> Values:
    """librdkafka's producer, 1 KiB records, its defaults, which are acks=all."""
    records = session.pace.client_records
    value = full_batch(0, KIB, Codec.NONE, 0).data[-KIB:]
    with session.topic() as topic:
        with Meter(session.cluster) as meter:
            seconds = confluent_produce(topic.leaders[0], topic.name, value, records)
        _check_end_offsets(session.cluster, topic, records)
    return {
        "records_per_s": records / seconds,
        "cpu_us_per_record": meter.broker_cpu_s / records * 1e6,
    } | meter.cores()


def warm_up(session: ClusterSession) -> WarmUp:
    """Not measured: the same loads for every cluster until the cost of a record falls no more."""
    slice_s = session.pace.slice_s
    kinds = {"record in 16 KiB batches": Replicated(16 * KIB), "record in 128 KiB batches": Replicated(128 * KIB, 6)}
    costs: dict[str, list[float]] = {kind: [] for kind in kinds}
    served = 0.0

    def is_warm() -> bool:
        return served >= _WARM_REQUESTS and all(map(steady, costs.values()))

    deadline = time.monotonic() + session.pace.warm_up_s
    while not is_warm() and time.monotonic() < deadline:
        for kind, load in kinds.items():
            done = load.run(session, 0.1, slice_s)
            served += done["requests_per_s"] * slice_s
            costs[kind].append(done["cpu_us_per_record"])
    return WarmUp(costs, is_warm())


def _check_end_offsets(cluster: Cluster, topic: ClusterTopic, records: int) -> None:
    found = cluster.end_offsets(topic)
    total = sum(offset for _, offset in found)
    assert total == records, f"{cluster.label}: {records} records were acknowledged, {total} of {topic.name} are committed"


class ClusterWorkload(NamedTuple):
    name: str
    title: str
    run: Callable[[ClusterSession], Values] | None = None
    """None for what the bench itself measures: starting and memory."""


CLUSTER_WORKLOADS = (
    ClusterWorkload("start", "Start until every node knows all three"),
    ClusterWorkload("replicated-16k", "Produce 1 KiB records, 16 KiB batches, 1 partition", Replicated(16 * KIB)),
    ClusterWorkload(
        "replicated-16k-x5",
        "Produce 1 KiB records, 16 KiB batches, 1 partition, 5 producers",
        Replicated(16 * KIB, producers=5),
    ),
    ClusterWorkload("replicated-128k", "Produce 1 KiB records, 128 KiB batches, 6 partitions", Replicated(128 * KIB, 6)),
    ClusterWorkload("replicated-end-to-end", "End to end, single records, the consumer waiting", end_to_end_latency),
    ClusterWorkload("confluent-producer", "confluent-kafka producer, 1 KiB records, 1 partition", confluent),
    ClusterWorkload("memory-loaded", "Memory after all of this, three nodes"),
)
