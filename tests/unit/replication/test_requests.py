"""Produce, Fetch and DeleteRecords where a partition has several replicas: who waits for whom, and who is sent where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.batches import batch
from unit.replication.brokers import TOPIC, TOPIC_ID, Brokers, FakeRequest, committed

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker.replication.throttle import ReplicationThrottle
from pybroker.server.handlers.produce import ProduceHandlers

# Reading from the replica in one's rack (KIP-392).


def consume(brokers: Brokers, broker: int, *, rack: str = "", offset: int = 0, epoch: int = -1, version: int = 17) -> Any:
    asked = FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=TOPIC_ID, topic=TOPIC, partitions=[asked])],
        rack_id=rack,
    )
    fake: Any = FakeRequest(version, lambda response: None)
    response: Any = brokers[broker].fetches.handle_fetch(fake, request)
    return response.responses[0].partitions[0]


def test_a_consumer_is_sent_to_the_replica_in_its_rack(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2, 3, picks_by_rack=True) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        brokers.fetch(2, times=3)
        sent = consume(brokers, 1, rack="rack-2")
        assert (sent.preferred_read_replica, sent.error_code, len(sent.records), sent.high_watermark) == (2, 0, 0, 1)
        assert consume(brokers, 2, rack="rack-2").records  # and gets it there, up to what that one knows to be committed
        assert consume(brokers, 1, rack="rack-1").records  # the leader's own rack
        assert consume(brokers, 1, rack="rack-3").records  # it is not in sync
        assert consume(brokers, 1, rack="elsewhere").records
        brokers.produce(1, b"b")
        # Broker 2 is not known to have offset 2 yet.
        assert consume(brokers, 1, rack="rack-2", offset=2).preferred_read_replica == -1


def test_without_a_selector_everybody_reads_from_the_leader(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        brokers.fetch(2, times=3)
        assert consume(brokers, 1, rack="rack-2").records


def test_a_follower_serves_consumers_that_know_of_followers_within_its_epoch(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a")
        brokers.fetch(2)
        assert not consume(brokers, 2).records  # it does not know yet that it is committed
        brokers.fetch(2, times=2)
        assert consume(brokers, 2).records
        assert consume(brokers, 2, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert consume(brokers, 2, epoch=0).records
        assert consume(brokers, 2, epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        brokers.lead(1, isr=(1, 2))
        assert consume(brokers, 2, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_throttled_follower_that_is_not_in_sync_gets_nothing_for_a_while(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1,))
        brokers.produce(1, b"a", b"b")
        brokers[1].replicas.leader_throttle = ReplicationThrottle(1, lambda: 1, lambda topic: ["*"], lambda: brokers.now_ms)
        brokers.fetch(2)
        assert brokers[2].values == ["a", "b"]
        brokers.produce(1, b"c")
        brokers.fetch(2)
        assert brokers[2].values == ["a", "b"]
        brokers.pass_time(200_000)
        brokers.fetch(2)
        assert brokers[2].values == ["a", "b", "c"]


def test_a_partition_that_comes_while_a_fetch_is_held_back_does_not_wait_for_it(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.fetch(2)
        assert len(brokers[2].asked) == 1  # held back by the leader, say
        brokers.lead(1, isr=(1, 2))
        assert len(brokers[2].asked) == 2
        held_back = brokers[2].asked.pop(0)
        brokers.produce(1, b"a")
        brokers.fetch(2)
        assert brokers[2].values == ["a"]
        source, request, done = held_back
        done(brokers.answer(source, request))  # its answer comes at last, and is for nobody
        assert brokers[2].values == ["a"]
        brokers.fetch(2)
        assert committed(brokers, 1) == 1


def test_records_are_deleted_everywhere_before_the_answer(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        brokers.produce(1, b"a", b"b")
        brokers.fetch(2, times=3)
        answers: list[Any] = []
        fake: Any = FakeRequest(2, answers.append)
        row = DeleteRecordsPartition(partition_index=0, offset=1)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[row])], timeout_ms=5000)
        assert brokers[1].offsets.handle_delete_records(fake, request) is None
        brokers.fetch(2)
        assert not answers
        brokers.fetch(2)
        result = answers[0].topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (0, 1)
        row = DeleteRecordsPartition(partition_index=0, offset=2)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[row])], timeout_ms=5000)
        assert brokers[1].offsets.handle_delete_records(fake, request) is None
        brokers.pass_time(5001)
        brokers.due(1)
        result = answers[1].topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 1)


def test_a_produce_with_acks_all_is_answered_when_it_is_committed_or_too_late(tmp_path: Path) -> None:
    with Brokers(tmp_path, 1, 2) as brokers:
        brokers.lead(1, isr=(1, 2))
        no_transactions: Any = None
        produce = ProduceHandlers(brokers[1].replicas, no_transactions)
        answers: list[Any] = []

        def send() -> object:
            data = PartitionProduceData(index=0, records=batch([b"a"]))
            topic = TopicProduceData(topic_id=TOPIC_ID, name=TOPIC, partition_data=[data])
            fake: Any = FakeRequest(12, answers.append)
            return produce.handle_produce(fake, ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[topic]))

        assert send() is None
        assert len(brokers[1].replicas.produces) == 1
        brokers.fetch(2)
        assert not answers
        brokers.fetch(2)
        row = answers[0].responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, 0)
        assert send() is None
        brokers.pass_time(3001)
        brokers.due(1)
        row = answers[1].responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        assert send() is None
        brokers.lead(2, isr=(1, 2))
        row = answers[2].responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert len(brokers[1].replicas.produces) == 0
