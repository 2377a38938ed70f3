"""The quorum's thread: one node on a disk in memory, which leads alone."""

from __future__ import annotations

import errno
import logging
import threading
from contextlib import suppress
from threading import Event
from typing import Any

import pytest
from support.waiting import wait_until
from unit.server.quorum.quorums import (
    DIRECTORY,
    STATIC,
    WAIT_S,
    ask,
    code_of,
    config_of,
    creation,
    join,
    quorum_on,
    started_on,
    with_broker,
)

from pybroker.base.address import Address
from pybroker.base.filesystem import write_file
from pybroker.base.ids import METADATA_TOPIC_UUID
from pybroker.metadata.controller.controller import Controller
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pybroker.protocol.messages.raft import DescribeQuorumRequest, DescribeQuorumRequestTopicData
from pybroker.protocol.messages.raft import DescribeQuorumRequestPartitionData as DescribedPartition
from pybroker.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from pybroker.protocol.messages.transactions import AllocateProducerIdsRequest
from pybroker.server.bootstrap import FormatPlan, format_storage, open_storage
from pybroker.server.quorum import metadata_quorum
from pybroker.server.quorum.metadata_quorum import Leader, MetadataQuorum
from pybroker.server.quorum.store import MetadataLogError, MetadataStore
from pybroker.testing.disk import PowerCutError, SimDisk


def crash(disk: SimDisk, quorum: MetadataQuorum) -> None:
    """The power goes; the threads of the quorum, which no power cut ends here, are sent home."""
    disk.crash()
    with suppress(OSError, PowerCutError):
        quorum.stop()


def full_disk(monkeypatch: pytest.MonkeyPatch, retry_ms: int = 10) -> tuple[SimDisk, MetadataQuorum]:
    monkeypatch.setattr(metadata_quorum, "RETRY_MS", retry_ms)
    disk = SimDisk()
    quorum = with_broker(disk)
    disk.capacity_bytes = 0
    return disk, quorum


class TestLife:
    def test_a_start_leads_and_loads_what_there_is(self) -> None:
        quorum = started_on(SimDisk())
        assert quorum.is_active
        assert quorum.leader == Leader(1, 1)
        assert quorum.leader_address == Address("localhost", 9093)
        features = quorum.finalized_features()
        assert (features["metadata.version"], features["kraft.version"]) == (30, 1)
        assert quorum.standing() == f"voters 1; leader 1 in epoch 1; metadata up to offset {quorum.image.offset}"
        quorum.stop()

    def test_with_static_voters_there_is_no_kraft_version(self) -> None:
        quorum = started_on(SimDisk(), config_of(STATIC))
        assert "kraft.version" not in quorum.finalized_features()
        quorum.stop()

    @pytest.mark.parametrize("seed", range(5))
    def test_what_was_answered_survives_a_crash(self, seed: int) -> None:
        disk = SimDisk()
        disk.rng.seed(seed)
        quorum = with_broker(disk)
        assert code_of(ask(quorum, creation("t", partitions=3))) is ErrorCode.NONE
        topic = quorum.image.topics["t"]
        crash(disk, quorum)
        quorum = started_on(disk)
        assert quorum.image.topics["t"] == topic
        assert quorum.leader == Leader(2, 1)
        quorum.stop()

    def test_producer_ids_are_never_given_twice_over_crashes(self) -> None:
        disk = SimDisk()
        starts = []
        for _ in range(3):
            quorum = started_on(disk)
            epoch = join(quorum, open_storage(disk, config_of()))
            starts.append(ask(quorum, AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)).producer_id_start)
            crash(disk, quorum)
        assert starts == [0, 1000, 2000]

    def test_a_deleted_topic_is_gone_after_a_restart(self) -> None:
        disk = SimDisk()
        quorum = with_broker(disk)
        ask(quorum, creation("t"))
        ask(quorum, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        quorum.stop()
        quorum = started_on(disk)
        assert not quorum.image.topics
        quorum.stop()

    def test_a_second_stop_does_nothing_and_no_thread_is_left(self) -> None:
        threads = set(threading.enumerate())
        quorum = started_on(SimDisk())
        quorum.stop()
        quorum.stop()
        assert code_of(ask(quorum, creation("t"))) is ErrorCode.NOT_CONTROLLER
        gave_up = Event()
        quorum.receive(describe(), lambda answer: None, gave_up.set)
        assert gave_up.is_set()
        assert set(threading.enumerate()) == threads

    def test_one_that_was_never_started_can_be_stopped(self) -> None:
        disk = SimDisk()
        quorum_on(disk).stop()
        quorum = started_on(disk)
        quorum.stop()

    def test_what_was_submitted_before_the_stop_is_done_and_answered(self) -> None:
        disk = SimDisk()
        quorum = with_broker(disk)
        answers: list[Message] = []
        for number in range(50):
            quorum.submit(creation(f"t{number}"), 7, answers.append)
        quorum.stop()
        assert [code_of(answer) for answer in answers] == [ErrorCode.NONE] * 50
        again = started_on(disk)
        assert len(again.image.topics) == 50
        again.stop()

    def test_a_stop_on_a_full_disk_says_so_and_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads = set(threading.enumerate())
        disk, quorum = full_disk(monkeypatch)
        assert code_of(ask(quorum, creation("t"))) is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(OSError, match="No space left"):
            quorum.stop()
        assert set(threading.enumerate()) == threads
        disk.capacity_bytes = None
        quorum = started_on(disk)
        assert quorum.image.brokers
        quorum.stop()


class TestRefusedStarts:
    def test_a_new_cluster_without_its_first_records(self) -> None:
        disk = SimDisk()
        quorum = quorum_on(disk)
        disk.remove("/data/bootstrap.checkpoint")
        with pytest.raises(MetadataLogError, match="a new cluster begins with /data/bootstrap"):
            quorum.start()
        quorum.stop()

    def test_a_quorum_state_that_is_not_readable(self) -> None:
        disk = SimDisk()
        started_on(disk).stop()
        write_file(disk, f"{DIRECTORY}/quorum-state", b"{}")
        with pytest.raises(MetadataLogError, match="quorum-state is not readable"):
            quorum_on(disk)

    def test_a_log_that_another_process_has_is_free_again_when_that_stopped(self) -> None:
        disk, config = SimDisk(), config_of({"metadata.log.dir": "/meta"})
        quorum = started_on(disk, config)
        with pytest.raises(MetadataLogError, match="/meta is locked"):
            quorum_on(disk, config)
        quorum.stop()
        started_on(disk, config).stop()

    def test_a_failed_opening_leaves_no_lock_behind(self) -> None:
        disk, config = SimDisk(), config_of({"metadata.log.dir": "/meta"})
        started_on(disk, config).stop()
        path = "/meta/__cluster_metadata-0/quorum-state"
        write_file(disk, path, b"{}")
        with pytest.raises(MetadataLogError, match="not readable"):
            quorum_on(disk, config)
        disk.remove(path)
        started_on(disk, config).stop()


class TestWaiting:
    def test_without_voters_there_is_nobody_to_follow(self) -> None:
        disk, config = SimDisk(), config_of()
        format_storage(disk, config, "c", FormatPlan(no_initial_controllers=True), now_ms=0)
        quorum = quorum_on(disk, is_alone=False)
        quorum.start()
        assert not quorum.publishing.wait_until(lambda: quorum.has_caught_up, 0.05)
        assert quorum.standing() == "voters not known yet; no leader in epoch 0; metadata up to offset -1"
        assert code_of(ask(quorum, creation("t"))) is ErrorCode.NOT_CONTROLLER
        quorum.stop()

    def test_one_of_two_waits_for_the_other(self) -> None:
        config = config_of(STATIC | {"controller.quorum.voters": "1@localhost:9093,2@localhost:9094"})
        quorum = quorum_on(SimDisk(), config, is_alone=False)
        quorum.start()
        assert not quorum.publishing.wait_until(lambda: quorum.has_caught_up, 0.05)
        assert quorum.standing() == "voters 1, 2; no leader in epoch 0; metadata up to offset -1"
        assert not quorum.is_active
        quorum.stop()


class TestRequests:
    def test_publishers_see_everything_and_then_every_change_before_it_is_answered(self) -> None:
        disk = SimDisk()
        quorum = with_broker(disk)
        ask(quorum, creation("old"))
        quorum.stop()
        quorum = quorum_on(disk)
        seen: list[tuple[MetadataDelta, MetadataImage]] = []
        quorum.publishing.add(lambda delta, image: seen.append((delta, image)))
        quorum.start()
        assert quorum.publishing.wait_until(lambda: quorum.has_caught_up, WAIT_S)
        (delta, image) = seen[0]
        assert set(delta.changed_topics) == {image.topics["old"].topic_id}
        assert delta.changed_brokers == {1}
        join(quorum, open_storage(disk, config_of()))
        ask(quorum, creation("new"))
        (delta, image) = seen[-1]
        assert delta.changed_topics == {image.topics["new"].topic_id: {0}}
        assert quorum.image is image
        quorum.stop()

    def test_those_that_wait_share_one_flush(self, monkeypatch: pytest.MonkeyPatch) -> None:
        quorum = with_broker(SimDisk())
        flushes: list[int] = []
        in_flush, may_go_on = Event(), Event()
        flush = MetadataStore.flush

        def slow_flush(store: MetadataStore, now_ms: int) -> int | None:
            if store._is_dirty:
                flushes.append(store.end_offset)
                in_flush.set()
                assert may_go_on.wait(WAIT_S)
            return flush(store, now_ms)

        monkeypatch.setattr(MetadataStore, "flush", slow_flush)
        answers: list[Message] = []
        quorum.submit(creation("first"), 7, answers.append)
        assert in_flush.wait(WAIT_S)
        for number in range(10):
            quorum.submit(creation(f"t{number}"), 7, answers.append)
        assert not answers, "answered before it was flushed"
        assert "first" not in quorum.image.topics
        may_go_on.set()
        wait_until(lambda: len(answers) == 11, WAIT_S, lambda: f"{len(answers)} answers")
        assert len(flushes) == 2
        assert len(quorum.image.topics) == 11
        quorum.stop()

    def test_a_request_for_somebody_else_is_a_mistake_of_the_caller(self) -> None:
        quorum = started_on(SimDisk())
        with pytest.raises(AssertionError, match="the controller knows no"):
            quorum.submit(FeatureLevelRecord(name="x", feature_level=1), 0, lambda response: None)
        quorum.stop()

    def test_a_message_for_the_quorum_machine_is_answered_by_it(self) -> None:
        quorum = started_on(SimDisk())
        answers: list[Any] = []
        quorum.receive(describe(), answers.append, lambda: answers.append(None))
        wait_until(lambda: bool(answers), WAIT_S, lambda: "no answer")
        assert answers[0].topics[0].partitions[0].leader_id == 1
        quorum.stop()

    def test_nothing_is_kept_of_a_connection_that_is_closed(self) -> None:
        quorum = started_on(SimDisk())
        machine = quorum._replica.quorum
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=machine.epoch,
            fetch_offset=machine.log_end_offset,
            last_fetched_epoch=machine.epoch,
            partition_max_bytes=0,
        )
        topic = FetchTopic(topic_id=METADATA_TOPIC_UUID, partitions=[partition])
        request = FetchRequest(replica_state=ReplicaState(replica_id=-1), max_wait_ms=2000, min_bytes=0, topics=[topic])
        answers: list[Message | None] = []
        gone, other = object(), object()
        for connection in (gone, gone, other):
            quorum.receive(request, answers.append, lambda: answers.append(None), connection)
        leading = machine._state.leading
        assert leading is not None
        wait_until(lambda: len(leading.parked) == 3, WAIT_S, lambda: f"{leading.parked} wait")
        quorum.connection_closed(gone)
        wait_until(lambda: len(leading.parked) == len(quorum._tokens) == 1, WAIT_S, lambda: f"{leading.parked} wait")
        assert answers == []
        quorum.stop()
        assert len(answers) == 1, "who is there is told"

    def test_a_request_on_behalf_of_a_client_goes_to_the_controller_or_the_machine(self) -> None:
        quorum = with_broker(SimDisk())
        request = _Request()
        answers: list[Any] = []
        quorum.forward(request, CreateTopicsRequest(topics=creation("t").topics), answers.append)  # type: ignore[arg-type]
        quorum.forward(request, describe(), answers.append)  # type: ignore[arg-type]
        wait_until(lambda: len(answers) == 2, WAIT_S, lambda: f"{answers}")
        assert {type(answer).__name__ for answer in answers} == {"CreateTopicsResponse", "DescribeQuorumResponse"}
        quorum.stop()
        quorum.forward(request, describe(), answers.append)  # type: ignore[arg-type]
        assert answers[-1] is None

    def test_the_active_controller_can_be_told_something(self) -> None:
        quorum = started_on(SimDisk())
        told: list[Controller] = []
        quorum.with_controller(lambda now_ms, controller: told.append(controller))
        wait_until(lambda: bool(told), WAIT_S, lambda: "not told")
        assert told[0].image.features == quorum.image.features
        quorum.stop()

    def test_who_listens_for_leaders_hears_of_the_next(self) -> None:
        quorum = quorum_on(SimDisk())
        heard: list[Leader] = []
        quorum.on_new_leader(lambda: heard.append(quorum.leader))
        quorum.start()
        assert heard == [Leader(1, 1)]
        quorum.stop()

    def test_who_led_last_is_known_while_nobody_leads(self) -> None:
        quorum = quorum_on(SimDisk())
        assert quorum.last_leader_id is None
        quorum.start()
        assert quorum.last_leader_id == 1
        quorum.leader_changed(2, None)
        assert (quorum.leader.id, quorum.last_leader_id) == (None, 1)
        quorum.stop()


class TestFailures:
    def test_a_full_disk_is_an_error_for_the_request_and_not_the_end(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk, quorum = full_disk(monkeypatch)
        response = ask(quorum, creation("t"))
        assert code_of(response) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "No space left" in response.topics[0].error_message
        assert "t" not in quorum.image.topics
        assert quorum.image.brokers, "what is known is still there to be served"
        assert code_of(ask(quorum, creation("t"))) is ErrorCode.KAFKA_STORAGE_ERROR
        assert quorum.has_failed
        disk.capacity_bytes = None
        wait_until(lambda: quorum.is_active, WAIT_S, lambda: "the log is not written again")
        assert caplog.text.count("It is tried again") == 1, "one line, however often it is tried"
        assert code_of(ask(quorum, creation("t"))) is ErrorCode.NONE
        crash(disk, quorum)
        quorum = started_on(disk)
        assert set(quorum.image.topics) == {"t"}
        quorum.stop()

    def test_other_replicas_get_no_answer_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        disk, quorum = full_disk(monkeypatch, retry_ms=60_000)
        ask(quorum, creation("t"))
        gave_up = Event()
        quorum.receive(describe(), lambda answer: None, gave_up.set)
        assert gave_up.wait(WAIT_S)
        disk.capacity_bytes = None
        quorum.stop()

    def test_a_flush_that_failed_is_final(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        monkeypatch.setattr(metadata_quorum, "RETRY_MS", 1)
        disk = SimDisk()
        quorum = with_broker(disk)

        def broken_flush(store: MetadataStore, now_ms: int) -> int | None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
            patch.setattr(MetadataStore, "flush", broken_flush)
            assert code_of(ask(quorum, creation("t"))) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "a flush of the metadata log failed" in caplog.text
        assert "Restart it" in caplog.text
        assert code_of(ask(quorum, creation("u"))) is ErrorCode.KAFKA_STORAGE_ERROR
        assert not quorum.image.topics
        assert quorum._retry_at_ms is None, "nothing is tried again"
        quorum.stop()
        quorum = with_broker(disk)
        assert code_of(ask(quorum, creation("u"))) is ErrorCode.NONE
        quorum.stop()

    def test_a_mistake_in_the_replica_refuses_what_follows(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        quorum = with_broker(SimDisk())
        monkeypatch.setattr(quorum._replica, "_propose", lambda now_ms, records: 1 / 0)
        assert code_of(ask(quorum, creation("t"))) is ErrorCode.KAFKA_STORAGE_ERROR
        assert code_of(ask(quorum, creation("u"))) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "the metadata replica failed" in caplog.text
        quorum.stop()

    @pytest.mark.parametrize(
        "error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("a bug")], ids=["disk", "bug"]
    )
    def test_a_snapshot_that_cannot_be_written_is_tried_again(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
    ) -> None:
        disk = SimDisk()
        quorum = with_broker(disk, config_of({"metadata.log.max.record.bytes.between.snapshots": "500"}))
        written = quorum._write_snapshot
        failures: list[object] = []

        def failing(job: object) -> None:
            failures.append(job)
            raise error

        monkeypatch.setattr(quorum, "_write_snapshot", failing)
        number = 0
        while not failures:
            number += 1
            ask(quorum, creation(f"t{number}"))
        wait_until(lambda: "could not be written" in caplog.text, WAIT_S, lambda: caplog.text)
        monkeypatch.setattr(quorum, "_write_snapshot", written)

        def is_written() -> bool:
            nonlocal number
            number += 1
            ask(quorum, creation(f"t{number}"))
            return any(name.endswith(".checkpoint") and not name.startswith("0" * 20) for name in names(disk))

        wait_until(is_written, WAIT_S, lambda: f"{names(disk)}")
        crash(disk, quorum)
        quorum = started_on(disk)
        assert len(quorum.image.topics) == number
        quorum.stop()


def names(disk: SimDisk) -> list[str]:
    return [entry.name for entry in disk.scan(DIRECTORY)]


def describe() -> DescribeQuorumRequest:
    partition = DescribedPartition(partition_index=0)
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])]
    )


class _Request:
    version = 7
