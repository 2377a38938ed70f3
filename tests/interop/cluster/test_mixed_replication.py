"""Three brokers of which one is Apache Kafka's, every partition on all of them, under our controller and under Apache Kafka's:
a producer that never stops while each of them is killed and stopped. What was acknowledged is there once, in order, and the
replicas of both makes are the same bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from interop.cluster.mixed import APACHE, BROKER, CONTROLLER, OURS, Make, Nodes, mixed
from support.stream import Stream, stream
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

BROKERS = (11, 12, 13)  # the first is Apache Kafka's
TOPIC = "t"
WAIT_S = 60.0


@pytest.fixture(params=[OURS, APACHE], ids=["our controller", "Apache's controller"])
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    controller: Make = request.param
    kinds = {1: (controller, CONTROLLER), 11: (APACHE, BROKER), 12: (OURS, BROKER), 13: (OURS, BROKER)}
    with mixed(tmp_path_factory.mktemp("mixed"), kinds, {"min.insync.replicas": "2"}) as made:
        made.start()
        made.wait_for_brokers(*BROKERS)
        row = CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=3, assignments=[], configs=[])
        (created,) = made[12].ask(CreateTopicsRequest(topics=[row], timeout_ms=30_000)).topics
        assert created.error_code == ErrorCode.NONE, created
        wait_for_isr(made, set(BROKERS))
        yield made


def partitions(nodes: Nodes) -> dict[int, tuple[int, set[int]]]:
    """The leader and the ISR of each, as one of ours that runs has them."""
    at = next(nodes[one] for one in BROKERS[1:] if nodes[one].pid is not None)
    (found,) = at.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])).topics
    return {row.partition_index: (row.leader_id, set(row.isr_nodes)) for row in found.partitions}


def wait_for_isr(nodes: Nodes, isr: set[int]) -> None:
    def is_so() -> bool:
        rows = partitions(nodes).values()
        return len(rows) == 3 and all(found == isr and leader in isr for leader, found in rows)

    wait_until(is_so, WAIT_S, lambda: f"{partitions(nodes)}, expected {isr}\n{nodes.last_words()}")


def bytes_of(nodes: Nodes, broker_id: int, partition: int) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(nodes[broker_id].partition_dir(TOPIC, partition).glob("*.log")))


def go_away(nodes: Nodes, writing: Stream, broker_id: int, *, clean: bool) -> None:
    writing.wait_for_acks_after(time.monotonic())
    nodes[broker_id].stop(clean)
    wait_for_isr(nodes, set(BROKERS) - {broker_id})
    writing.wait_for_acks_after(time.monotonic())
    nodes[broker_id].start()
    wait_for_isr(nodes, set(BROKERS))


def test_each_is_killed_and_stopped_and_nothing_is_lost(nodes: Nodes) -> None:
    with stream(",".join(nodes[one].bootstrap for one in BROKERS), TOPIC, 3) as writing:
        led = {leader for leader, _ in partitions(nodes).values()}
        for clean in (False, True):
            for broker_id in BROKERS:
                go_away(nodes, writing, broker_id, clean=clean)
                led |= {leader for leader, _ in partitions(nodes).values()}
        writing.wait_for_acks_after(time.monotonic())
    assert led == set(BROKERS)  # so each make has led, and followed the other
    assert writing.verdict() == []
    for partition in range(3):
        wait_until(
            lambda: len({bytes_of(nodes, one, partition) for one in BROKERS}) == 1,  # noqa: B023
            WAIT_S,
            lambda: f"{TOPIC}-{partition} differs: {[len(bytes_of(nodes, one, partition)) for one in BROKERS]}",  # noqa: B023
        )
