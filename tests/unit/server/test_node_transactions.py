"""Transactions of a whole node: the topic of their records is made on first use, and what was open is there after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.node_client import NodeClient
from support.nodes import RunningNode, running
from support.transactional import Producer, must, wait_for_coordinator
from support.waiting import wait_until

from pybroker.metadata.controller.features import TRANSACTION_VERSION, transaction_version
from pybroker.metadata.image import ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import fetch as fetches
from pybroker.protocol.messages import group_offsets
from pybroker.protocol.messages import transactions as messages
from pybroker.protocol.messages.api_versions import FeatureUpdateKey, UpdateFeaturesRequest
from pybroker.protocol.records.batch import iter_batches

UPGRADE, SAFE_DOWNGRADE = 1, 2

SETTINGS = {
    "offsets_topic_num_partitions": 2,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 3,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 50,
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running(tmp_path, **SETTINGS) as one:
        yield one


@pytest.fixture
def client(node: RunningNode) -> NodeClient:
    client = node.client()
    client.create_topic("t", 2)
    wait_for_coordinator(client, "id")
    return client


def read(client: NodeClient, partition: int = 0, *, committed: bool = True, wait_ms: int = 0) -> list[bytes | None]:
    """What a consumer is left with when it has dropped what was aborted."""
    wanted = fetches.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = fetches.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        isolation_level=int(committed),
        topics=[fetches.FetchTopic(topic="t", partitions=[wanted])],
        forgotten_topics_data=[],
    )
    data = client.ask(request, 12).responses[0].partitions[0]
    assert data.error_code == ErrorCode.NONE, data
    aborted = {(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()}
    values: list[bytes | None] = []
    for batch in iter_batches(bytes(data.records or b"")):
        if not batch.is_control and not any(
            batch.is_transactional and batch.producer_id == producer_id and batch.base_offset >= offset
            for producer_id, offset in aborted
        ):
            values += [record.value for record in batch.records()]
    return values


def committed_offset(client: NodeClient, group: str) -> int:
    wanted = group_offsets.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    asked = group_offsets.OffsetFetchRequestGroup(group_id=group, topics=[wanted])
    return int(
        client.ask(group_offsets.OffsetFetchRequest(groups=[asked]), 9).groups[0].topics[0].partitions[0].committed_offset
    )


def finalize(node: RunningNode, client: NodeClient, level: int) -> None:
    """The level of transaction.version."""
    coordinator = node.broker.transactions.coordinator
    kind = UPGRADE if level >= transaction_version(coordinator.image) else SAFE_DOWNGRADE
    row = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=kind)
    answer = client.ask(UpdateFeaturesRequest(feature_updates=[row]))
    assert answer.error_code == ErrorCode.NONE, answer
    wait_until(lambda: transaction_version(coordinator.image) == level, 10, lambda: f"{coordinator.image.features}")


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("is_new", [False, True], ids=["before KIP-890", "with KIP-890"])
@pytest.mark.parametrize("commits", [False, True])
def test_all_partitions_and_offsets_of_a_transaction_or_none(
    node: RunningNode, client: NodeClient, level: int, is_new: bool, commits: bool
) -> None:
    finalize(node, client, level)
    producer = Producer(client, "id", is_new)
    must(producer.init())
    if not is_new:
        must(producer.add("t", 0, 1))
    must(producer.send(b"a"))
    must(producer.send(b"b", partition=1))
    must(producer.commit_offset("g", 7))
    assert (read(client), committed_offset(client, "g")) == ([], -1)
    assert read(client, committed=False) == [b"a"]
    must(producer.end(commit=commits))
    producer.wait_until_ended()
    assert (read(client), read(client, 1)) == (([b"a"], [b"b"]) if commits else ([], []))
    assert committed_offset(client, "g") == (7 if commits else -1)


def test_offsets_are_not_added_to_a_transaction_before_their_topic_is_there(node: RunningNode) -> None:
    """Its end would take the partition for gone, and what was written to it meanwhile would stay open."""
    client = node.client()
    client.create_topic("t")
    wait_for_coordinator(client, "id", has_group=False)
    producer = Producer(client, "id", is_new=False)
    must(producer.init())
    must(producer.add_offsets("g"), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    # Being asked for it is reason enough to make it.
    wait_until(lambda: producer.add_offsets("g") is ErrorCode.NONE, 10, lambda: "there is no topic of offsets")


def test_transactions_that_are_open_while_the_feature_is_taken_back_and_given_again(tmp_path: Path) -> None:
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        client.create_topic("t", 2)
        wait_for_coordinator(client, "id")
        new, old = Producer(client, "new"), Producer(client, "old", is_new=False)
        must(new.init())
        must(new.send(b"at 2"))
        finalize(node, client, 0)
        must(new.send(b"at 0"))
        must(old.init())
        must(old.add("t", 1))
        must(old.send(b"old at 0", partition=1))
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        wait_for_coordinator(client, "id")
        finalize(node, client, 2)
        new.broker = old.broker = client
        must(old.send(b"old at 2", partition=1))
        for one in (new, old):
            must(one.end(commit=True))
            one.wait_until_ended()
        assert (read(client), read(client, 1)) == ([b"at 2", b"at 0"], [b"old at 0", b"old at 2"])
        must(new.send(b"next"))
        must(new.end(commit=True))
        new.wait_until_ended()
        assert read(client)[2:] == [b"next"]


def test_a_reader_that_waits_gets_what_is_committed_meanwhile(node: RunningNode, client: NodeClient) -> None:
    producer = Producer(client, "id")
    must(producer.init())
    must(producer.send(b"a"))
    with ThreadPoolExecutor(1) as apart:
        waiting = apart.submit(node.client().ask, _long_poll(), 12)
        must(producer.end(commit=True))
        answer = waiting.result(10)
    assert [batch.base_offset for batch in iter_batches(bytes(answer.responses[0].partitions[0].records))] == [0, 1]


def _long_poll() -> fetches.FetchRequest:
    wanted = fetches.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return fetches.FetchRequest(
        max_wait_ms=20_000,
        min_bytes=1,
        isolation_level=1,
        topics=[fetches.FetchTopic(topic="t", partitions=[wanted])],
        forgotten_topics_data=[],
    )


def test_a_batch_of_a_transaction_that_its_coordinator_does_not_know_is_refused(client: NodeClient) -> None:
    producer = Producer(client, "id", is_new=False)
    must(producer.init())
    must(producer.send(b"a"), ErrorCode.TRANSACTION_ABORTABLE)
    must(producer.commit_offset("g", 1))
    must(producer.send(b"a"), ErrorCode.TRANSACTION_ABORTABLE)
    assert read(client, committed=False) == []


def test_a_late_batch_does_not_get_into_the_next_transaction(client: NodeClient) -> None:
    producer = Producer(client, "id")
    must(producer.init())
    must(producer.send(b"a"))
    late = Producer(client, "id", True, producer.producer_id, producer.epoch, {0: 1})
    must(producer.end(commit=True))
    producer.wait_until_ended()
    must(late.send(b"late"), ErrorCode.INVALID_PRODUCER_EPOCH)
    must(producer.send(b"b"))
    must(late.send(b"late"), ErrorCode.INVALID_PRODUCER_EPOCH)
    must(producer.end(commit=True))
    producer.wait_until_ended()
    assert read(client) == [b"a", b"b"]


def test_a_transaction_that_takes_too_long_is_aborted(client: NodeClient) -> None:
    producer = Producer(client, "id")
    answer = client.ask(messages.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=100), 5)
    producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
    must(producer.send(b"a"))
    wait_until(lambda: producer.described().transaction_state == "CompleteAbort", 10, lambda: "it is not aborted")
    assert read(client) == []
    must(producer.send(b"b"), ErrorCode.INVALID_PRODUCER_EPOCH)


def test_what_was_open_and_what_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        client.create_topic("t", 2)
        wait_for_coordinator(client, "id")
        producer, other = Producer(client, "id"), Producer(client, "other")
        for one in (producer, other):
            must(one.init())
        must(other.send(b"committed"))
        must(other.end(commit=True))
        other.wait_until_ended()
        must(producer.send(b"open"))
    with running(tmp_path, **SETTINGS) as node:
        client = node.client()
        wait_for_coordinator(client, "id")
        producer.broker = client
        assert producer.described().transaction_state == "Ongoing"
        assert read(client) == [b"committed"]
        must(producer.send(b"more"))
        must(producer.end(commit=True))
        producer.wait_until_ended()
        assert read(client) == [b"committed", b"open", b"more"]
        assert Producer(client, "other", True, other.producer_id, other.epoch).end(commit=False) is ErrorCode.NONE


def test_the_coordinators_topic_is_as_kafka_makes_it(client: NodeClient) -> None:
    topic = client.topic("__transaction_state")
    assert (topic.is_internal, len(topic.partitions)) == (True, 3)
    configs = ("cleanup.policy", "compression.type", "min.insync.replicas", "segment.bytes", "unclean.leader.election.enable")
    values = [client.config(ResourceType.TOPIC, "__transaction_state", key) for key in configs]
    assert values == ["compact", "uncompressed", "1", "104857600", "false"]
