"""Three brokers of real processes, every partition on all of them: killed, stopped, hung; nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.processes import COMBINED, Cluster, cluster
from support.waiting import wait_until

from pybroker.protocol.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

confluent_kafka = pytest.importorskip("confluent_kafka")

from cluster.traffic import (  # noqa: E402
    WAIT_S,
    bootstrap,
    check,
    create,
    partition_rows,
    read_all,
    wait_in_sync,
    writing,
)

ROLES = dict.fromkeys((1, 2, 3), COMBINED)
PROPERTIES = {"min.insync.replicas": "2", "log.cleaner.dedupe.buffer.size": "4194304"}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, ROLES, PROPERTIES) as made:
        made.start()
        create(made, "t")
        wait_in_sync(made, "t", {1, 2, 3})
        yield made


def test_a_leader_is_killed_and_returns(nodes: Cluster) -> None:
    with writing(nodes, "t") as written:
        written.wait_for_more()
        leader, _ = partition_rows(nodes, "t")[0]
        nodes[leader].kill()
        written.wait_for_more()
        nodes[leader].start()
        wait_in_sync(nodes, "t", {1, 2, 3})
        written.wait_for_more()
    print(f"the longest pause between two acknowledgements was {written.longest_gap_s:.2f} s")
    check(nodes, "t", written)


def test_one_after_the_other_is_restarted_and_no_client_sees_an_error(nodes: Cluster) -> None:
    """Not the idempotent producer, nor one with nothing but its defaults (whose records may come twice), nor a member of a
    group with its defaults."""
    create(nodes, "plain")
    wait_in_sync(nodes, "plain", {1, 2, 3})
    consumer = confluent_kafka.Consumer(bootstrap(nodes) | {"group.id": "members", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t", "plain"])
    read: set[bytes] = set()
    problems: list[object] = []

    def poll() -> None:
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                read.add(message.value())
            else:
                problems.append(message.error())

    with writing(nodes, "t") as written, writing(nodes, "plain", "plain ", settings={}) as by_default:
        for member in nodes.brokers:
            written.wait_for_more()
            by_default.wait_for_more()
            poll()
            assert member.stop() == 0
            member.start()
            wait_in_sync(nodes, "t", {1, 2, 3})
            poll()
    print(f"the longest pause between two acknowledgements was {written.longest_gap_s:.2f} s")
    check(nodes, "t", written)
    assert by_default.errors == []

    def has_read_all() -> bool:
        poll()
        return read >= {*written.acked, *by_default.acked}

    wait_until(has_read_all, WAIT_S, lambda: f"{len(read)} of {len(written.acked) + len(by_default.acked)}, {problems}")
    consumer.close()
    assert problems == []


def test_a_broker_that_hangs_leaves_the_isr_and_catches_up_later(nodes: Cluster) -> None:
    with writing(nodes, "t") as written:
        written.wait_for_more()
        leader, _ = partition_rows(nodes, "t")[0]
        hung = next(one for one in nodes.members if one != leader)
        nodes[hung].pause()
        written.wait_for_more()
        nodes[hung].resume()
        wait_in_sync(nodes, "t", {1, 2, 3})
    check(nodes, "t", written)


def test_all_are_killed_at_once(nodes: Cluster) -> None:
    with writing(nodes, "t") as written:
        written.wait_for_more()
        for member in nodes.brokers:
            member.kill()
        for member in nodes.brokers:
            member.start()
        written.wait_for_more()
    check(nodes, "t", written)


def test_too_few_in_sync_refuse_acks_all(nodes: Cluster) -> None:
    leader, _ = partition_rows(nodes, "t")[0]
    others = [one for one in nodes.members if one != leader]
    # One by one, so that there is a controller to say so; the last two cannot elect one without each other.
    nodes[others[0]].kill()
    producer = confluent_kafka.Producer(bootstrap(nodes) | {"acks": "all", "message.timeout.ms": 20_000})
    told: list[object] = []
    producer.produce("t", b"two are enough", partition=0, on_delivery=lambda error, message: told.append(error))
    producer.flush(WAIT_S)
    assert told == [None]
    nodes[others[1]].pause()
    producer = confluent_kafka.Producer(bootstrap(nodes) | {"acks": "all", "message.timeout.ms": 3_000})
    producer.produce("t", b"one is not", partition=0, on_delivery=lambda error, message: told.append(error))
    producer.flush(WAIT_S)
    assert told[1] is not None


def test_a_topic_moves_to_other_brokers(nodes: Cluster) -> None:
    create(nodes, "moving", replication_factor=1)
    before = partition_rows(nodes, "moving")
    with writing(nodes, "moving") as written:
        written.wait_for_more()
        targets = {index: [1 + (leader + 1) % 3, 1 + leader % 3] for index, (leader, _) in before.items()}
        rows = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in targets.items()]
        topic = ReassignableTopic(name="moving", partitions=rows)
        nodes.leader().ask_controller(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=10_000))
        wait_until(
            lambda: (
                {index: isr for index, (_, isr) in partition_rows(nodes, "moving").items()}
                == {index: set(replicas) for index, replicas in targets.items()}
            ),
            WAIT_S,
            lambda: f"{partition_rows(nodes, 'moving')}, expected {targets}",
        )
        written.wait_for_more()
    assert not written.errors
    found = read_all(nodes, "moving", len(written.acked))
    assert {value for value, place in written.acked.items() if found.get(value) != [place]} == set()


def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with cluster(tmp_path, ROLES, PROPERTIES | selector) as nodes:
        for member in nodes.brokers:
            member.file.write_text(member.file.read_text() + f"broker.rack=rack-{member.id}\n")
        nodes.start()
        create(nodes, "t")
        wait_in_sync(nodes, "t", {1, 2, 3})
        with writing(nodes, "t") as written:
            written.wait_for_more()
        leader, _ = partition_rows(nodes, "t")[0]
        rack = next(one for one in nodes.members if one != leader)
        statistics: list[str] = []
        consumer = confluent_kafka.Consumer(
            bootstrap(nodes)
            | {
                "group.id": "near",
                "auto.offset.reset": "earliest",
                "client.rack": f"rack-{rack}",
                "debug": "fetch",
                "log_level": 7,
            },
            logger=_Lines(statistics),
        )
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        wanted = {value for value, (index, _) in written.acked.items() if index == 0}
        found: set[bytes] = set()

        def has_all() -> bool:
            found.update(message.value() for message in consumer.consume(500, 0.5) if message.error() is None)
            return found >= wanted

        wait_until(has_all, WAIT_S, lambda: f"{len(found)} of {len(wanted)}")
        consumer.close()
        assert any(f"/{rack}: Fetch topic t [0]" in line for line in statistics)


class _Lines:
    """As much of a logger as the client calls."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def log(self, level: int, form: str, *arguments: object) -> None:
        self._lines.append(form % arguments)
