"""A whole node in this process: what it keeps over a stop and over a crash, what it refuses to start with."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.faulty_disk import FaultyDisk
from support.node_client import EARLIEST, NodeClient
from support.nodes import config, running
from support.waiting import wait_until

from pybroker.base.filesystem import OsFileSystem
from pybroker.base.ids import uuid_to_text
from pybroker.log.checkpoints import CLEAN_SHUTDOWN, REPLICATION_CHECKPOINT, read_offsets
from pybroker.log.files import TopicPartition
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.scheduler import ThreadBackground
from pybroker.metadata.image import ResourceType
from pybroker.network.socket_server import SocketServer
from pybroker.protocol.api_table import API_BY_KEY
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.api_versions import ApiVersionsRequest
from pybroker.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest
from pybroker.protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pybroker.server.broker_lifecycle import ControlledShutdownRequested, StopRequested
from pybroker.server.broker_membership import BrokerMembership
from pybroker.server.node import Node, StartError
from pybroker.server.quorum.metadata_quorum import MetadataQuorum

WAIT_S = 10.0
TOPIC = ResourceType.TOPIC


def delete_before(client: NodeClient, topic: str, offset: int) -> None:
    rows = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=rows)], timeout_ms=10_000)
    done = client.ask(request).topics[0].partitions[0]
    assert done.error_code == ErrorCode.NONE, done


def can_create(client: NodeClient, topic: str) -> bool:
    with suppress(AssertionError):
        client.create_topic(topic)
        return True
    return False


class TestRestart:
    def test_records_ids_configs_offsets_and_the_cluster_id_are_there_after_a_clean_stop(self, tmp_path: Path) -> None:
        with running(tmp_path) as first:
            client = first.client()
            topic_id = client.create_topic("t", 2, {"retention.ms": 123_456_789})
            assert client.produce("t", [b"a", b"b"]) == 0
            assert client.produce("t", [b"c"]) == 2
            assert client.produce("t", [b"other"], partition=1) == 0
            delete_before(client, "t", 1)
            cluster_id = first.node.cluster_id
        assert (tmp_path / CLEAN_SHUTDOWN).exists()
        with running(tmp_path) as second:
            client = second.client()
            assert second.node.cluster_id == cluster_id
            assert client.topic("t").topic_id == topic_id
            assert client.config(TOPIC, "t", "retention.ms") == "123456789"
            assert client.consume("t", offset=1) == [(1, b"b"), (2, b"c")]
            assert client.consume("t", partition=1) == [(0, b"other")]
            assert client.offset("t", EARLIEST) == 1
            assert client.produce("t", [b"d"]) == 3

    def test_a_clean_stop_leaves_the_high_watermarks_as_they_were(self, tmp_path: Path) -> None:
        with running(tmp_path) as first:
            client = first.client()
            client.create_topic("t")
            client.produce("t", [b"a", b"b"])
        assert read_offsets(OsFileSystem(), str(tmp_path / REPLICATION_CHECKPOINT)) == {TopicPartition("t", 0): 2}

    def test_a_directory_that_was_copied_while_the_node_ran_is_recovered(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A copy made at some moment is what a kill -9 at that moment leaves."""
        with running(tmp_path / "original") as first:
            client = first.client()
            topic_id = client.create_topic("t", configs={"max.message.bytes": 5000})
            for number in range(20):
                client.produce("t", [b"%d" % number])
            shutil.copytree(tmp_path / "original", tmp_path / "copy")
            client.produce("t", [b"too late for the copy"])
        assert not (tmp_path / "copy" / CLEAN_SHUTDOWN).exists()
        caplog.set_level(logging.INFO)
        with running(tmp_path / "copy") as second:
            client = second.client()
            assert client.topic("t").topic_id == topic_id
            assert client.config(TOPIC, "t", "max.message.bytes") == "5000"
            assert client.consume("t") == [(number, b"%d" % number) for number in range(20)]
            assert client.produce("t", [b"next"]) == 20
        assert re.search(r"loaded 1 logs in \d+ ms, 1 with recovery", caplog.text)

    def test_half_a_batch_at_the_end_of_a_log_is_cut_off_and_its_offset_given_again(self, tmp_path: Path) -> None:
        with running(tmp_path / "original") as first:
            client = first.client()
            client.create_topic("t")
            client.produce("t", [b"whole"])
            client.produce("t", [b"torn" * 100])
            shutil.copytree(tmp_path / "original", tmp_path / "copy")
        log = tmp_path / "copy" / "t-0" / f"{0:020}.log"
        os.truncate(log, log.stat().st_size - 50)
        with running(tmp_path / "copy") as second:
            client = second.client()
            assert client.consume("t") == [(0, b"whole")]
            assert client.produce("t", [b"new"]) == 1
            assert client.consume("t") == [(0, b"whole"), (1, b"new")]

    def test_an_idempotent_producer_goes_on_after_a_crash_and_its_repeats_are_known(self, tmp_path: Path) -> None:
        with running(tmp_path / "original") as first:
            client = first.client()
            client.create_topic("t")
            producer_id, epoch = client.producer_id()
            for number in range(3):
                client.produce("t", [b"%d" % number], producer_id=producer_id, producer_epoch=epoch, sequence=number)
            shutil.copytree(tmp_path / "original", tmp_path / "copy")
        with running(tmp_path / "copy") as second:
            client = second.client()
            repeated = client.produce("t", [b"2"], producer_id=producer_id, producer_epoch=epoch, sequence=2)
            assert repeated == 2
            assert client.produce("t", [b"3"], producer_id=producer_id, producer_epoch=epoch, sequence=3) == 3
            assert client.offset("t") == 4
            assert client.producer_id()[0] > producer_id

    def test_a_topic_that_was_deleted_stays_away_and_one_of_its_name_begins_anew(self, tmp_path: Path) -> None:
        with running(tmp_path) as first:
            client = first.client()
            old_id = client.create_topic("t")
            client.produce("t", [b"old"])
            client.delete_topic("t")
            new_id = client.create_topic("t")
            assert new_id != old_id
            assert client.consume("t") == []
            client.produce("t", [b"new"])
        with running(tmp_path) as second:
            client = second.client()
            assert client.topic("t").topic_id == new_id
            assert client.consume("t") == [(0, b"new")]

    def test_a_stop_does_not_wait_for_idle_clients_nor_for_fetches_that_wait(self, tmp_path: Path) -> None:
        threads = threading.active_count()
        with running(tmp_path) as node:
            client = node.client()
            client.create_topic("t")
            answers: list[object] = []

            def wait_for_records() -> None:
                try:
                    answers.append(client.fetch("t", 0, max_wait_ms=600_000))
                except ConnectionError as error:
                    answers.append(error)

            waiting = threading.Thread(target=wait_for_records)
            waiting.start()
            fetches = node.broker.replicas.fetches
            wait_until(lambda: fetches.has_watchers(TopicPartition("t", 0)), WAIT_S, lambda: "the fetch does not wait")
            idle = node.client()
            idle.topic("t")
            started = time.monotonic()
            node.node.stop()
            assert time.monotonic() - started < WAIT_S / 2
            waiting.join(WAIT_S)
            assert len(answers) == 1
        wait_until(lambda: threading.active_count() <= threads, WAIT_S, lambda: f"left: {threading.enumerate()}")

    def test_the_background_work_has_ended_before_the_logs_are_closed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stopped: list[str] = []
        parts = ((SocketServer, "stop"), (MetadataQuorum, "stop"), (ThreadBackground, "stop"), (LogManager, "shutdown"))
        for cls, name in parts:
            original = getattr(cls, name)

            def stop(self: object, *args: Any, original: Any = original, name: str = cls.__name__) -> object:
                stopped.append(name)
                return original(self, *args)

            monkeypatch.setattr(cls, name, stop)
        with running(tmp_path):
            pass
        # The broker's sockets, then the controller's.
        assert stopped == ["SocketServer", "SocketServer", "MetadataQuorum", "ThreadBackground", "LogManager"]

    @pytest.mark.parametrize("is_controlled", [True, False])
    def test_leaderships_are_handed_over_before_a_stop_unless_that_is_turned_off(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_controlled: bool
    ) -> None:
        told: list[object] = []
        tell = BrokerMembership.tell
        monkeypatch.setattr(BrokerMembership, "tell", lambda self, event: (told.append(event), tell(self, event))[1])
        with running(tmp_path, controlled_shutdown_enable=str(is_controlled).lower()):
            assert ControlledShutdownRequested() not in told
        assert (ControlledShutdownRequested() in told) == is_controlled
        assert StopRequested() in told

    def test_stopping_twice_is_stopping_once(self, tmp_path: Path) -> None:
        with running(tmp_path) as node:
            node.node.stop()


class TestLogDirectories:
    def test_a_partition_that_no_topic_has_is_set_aside_and_not_deleted(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with running(tmp_path) as first:
            client = first.client()
            client.create_topic("t")
            client.create_topic("gone")
            client.produce("gone", [b"precious"])
            shutil.copytree(tmp_path / "gone-0", tmp_path / "saved")
            client.delete_topic("gone")
        shutil.rmtree(next(tmp_path.glob("gone-0*")))
        (tmp_path / "saved").rename(tmp_path / "gone-0")
        with running(tmp_path) as second:
            client = second.client()
            assert client.topic("gone").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert client.topic("t").error_code == ErrorCode.NONE
            (stray,) = tmp_path.glob("gone-0.*-stray")
            assert b"precious" in (stray / f"{0:020}.log").read_bytes()
            assert "gone-0 is not this node's partition: it is set aside" in caplog.text
            client.create_topic("gone")
            assert client.consume("gone") == []

    def test_the_directory_of_a_deleted_topic_goes_after_its_delay(self, tmp_path: Path) -> None:
        with running(tmp_path, log_segment_delete_delay_ms=50) as node:
            client = node.client()
            client.create_topic("t", 3)
            client.produce("t", [b"x"])
            assert len(list(tmp_path.glob("t-*"))) == 3
            client.delete_topic("t")
            wait_until(lambda: not list(tmp_path.glob("t-*")), WAIT_S, lambda: f"left: {list(tmp_path.glob('t-*'))}")

    def test_a_deletion_that_a_stop_came_before_is_done_after_the_next_start(self, tmp_path: Path) -> None:
        with running(tmp_path) as first:
            client = first.client()
            client.create_topic("t")
            client.delete_topic("t")
        assert list(tmp_path.glob("t-0.*-delete"))
        with running(tmp_path, log_segment_delete_delay_ms=50):
            wait_until(lambda: not list(tmp_path.glob("t-*")), WAIT_S, lambda: f"left: {list(tmp_path.glob('t-*'))}")

    def test_partitions_are_spread_over_the_directories_and_found_again(self, tmp_path: Path) -> None:
        dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
        with running(tmp_path, log_dirs=dirs) as first:
            client = first.client()
            client.create_topic("t", 4)
            for partition in range(4):
                client.produce("t", [b"%d" % partition], partition)
        assert len(list((tmp_path / "a").glob("t-*"))) == len(list((tmp_path / "b").glob("t-*"))) == 2
        with running(tmp_path, log_dirs=dirs) as second:
            client = second.client()
            assert [client.consume("t", partition) for partition in range(4)] == [[(0, b"%d" % n)] for n in range(4)]

    def test_a_directory_that_is_added_later_is_taken_into_use(self, tmp_path: Path) -> None:
        with running(tmp_path / "a") as first:
            first.client().create_topic("t")
        with running(tmp_path, log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}") as second:
            second.client().create_topic("u")
        assert (tmp_path / "b" / "u-0").is_dir()
        assert (tmp_path / "b" / "meta.properties").exists()

    def test_metadata_in_a_directory_of_its_own(self, tmp_path: Path) -> None:
        with running(tmp_path / "logs", metadata_log_dir=tmp_path / "metadata") as first:
            first.client().create_topic("t")
        assert (tmp_path / "metadata" / "__cluster_metadata-0").is_dir()
        assert not (tmp_path / "logs" / "__cluster_metadata-0").exists()
        with running(tmp_path / "logs", metadata_log_dir=tmp_path / "metadata") as second:
            assert second.client().topic("t").error_code == ErrorCode.NONE


class TestFaults:
    def test_when_one_directory_fails_the_others_go_on_and_with_the_last_the_node_has_failed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = FaultyDisk()
        dirs = [tmp_path / "a", tmp_path / "b"]
        with running(tmp_path, disk, log_dirs=",".join(map(str, dirs)), metadata_log_dir=tmp_path / "metadata") as node:
            fatal = threading.Event()
            node.node._on_fatal = fatal.set
            client = node.client()
            client.create_topic("t", 2)
            # Which partition is where.
            in_a, in_b = (int(next(path.glob("t-*")).name[-1]) for path in dirs)
            client.produce("t", [b"a"], in_a)
            client.produce("t", [b"b"], in_b)
            disk.broken.add(str(dirs[0]))
            assert client.send("t", [b"lost"], in_a).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.send("t", [b"lost"], in_a).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            # Whatever such a disk does later, it is not used before a restart.
            disk.broken.clear()
            assert client.send("t", [b"lost"], in_a).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.fetch("t", 0, in_a).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.produce("t", [b"goes on"], in_b) == 1
            assert client.consume("t", in_b) == [(0, b"b"), (1, b"goes on")]
            assert not node.node.has_failed
            client.create_topic("u")
            assert (dirs[1] / "u-0").is_dir()
            disk.broken.add(str(dirs[1]))
            assert client.send("t", [b"lost"], in_b).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert fatal.wait(WAIT_S)
            assert node.node.has_failed
        assert caplog.text.count(f"log directory {dirs[0]} is offline since") == 1
        assert caplog.text.count("all of log.dirs are offline") == 1
        assert "Traceback" not in caplog.text
        assert not any((path / CLEAN_SHUTDOWN).exists() for path in dirs)

    def test_a_node_starts_without_a_directory_that_is_broken_and_its_partitions_are_offline(self, tmp_path: Path) -> None:
        dirs = [tmp_path / "a", tmp_path / "b"]
        settings = {"log_dirs": ",".join(map(str, dirs)), "metadata_log_dir": tmp_path / "metadata"}
        with running(tmp_path, **settings) as first:
            client = first.client()
            client.create_topic("t", 2)
            in_a, in_b = (int(next(path.glob("t-*")).name[-1]) for path in dirs)
            client.produce("t", [b"a"], in_a)
            client.produce("t", [b"b"], in_b)
        disk = FaultyDisk()
        disk.broken.add(str(dirs[0]))
        with running(tmp_path, disk, **settings) as second:
            client = second.client()
            assert client.send("t", [b"x"], in_a).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.consume("t", in_b) == [(0, b"b")]
        with running(tmp_path, **settings) as third:
            assert third.client().consume("t", in_a) == [(0, b"a")]

    def test_a_full_disk_refuses_writes_with_one_line_serves_reads_and_takes_writes_again_when_there_is_room(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = FaultyDisk()
        with running(tmp_path, disk) as node:
            client = node.client()
            client.create_topic("t", 2)
            client.produce("t", [b"before"])
            disk.full.add(str(tmp_path))
            for partition in (0, 1, 0, 1):
                assert client.send("t", [b"lost"], partition).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert ErrorCode.KAFKA_STORAGE_ERROR.retriable
            assert client.consume("t") == [(0, b"before")]
            assert client.offset("t") == 1
            disk.full.clear()
            assert client.produce("t", [b"after"]) == 1
            assert client.produce("t", [b"first"], 1) == 0
            assert client.consume("t") == [(0, b"before"), (1, b"after")]
            assert not node.node.has_failed
        lines = [record.getMessage() for record in caplog.records if "No space left" in record.getMessage()]
        assert len(lines) == 1, lines
        assert "it goes on when there is room again" in lines[0]
        assert "Traceback" not in caplog.text
        with running(tmp_path) as again:
            assert again.client().consume("t") == [(0, b"before"), (1, b"after")]

    def test_a_topic_that_a_full_disk_has_no_room_for_is_refused_and_can_be_created_later(self, tmp_path: Path) -> None:
        disk = FaultyDisk()
        with running(tmp_path, disk) as node:
            client = node.client()
            client.create_topic("t")
            disk.full.add(str(tmp_path))
            with pytest.raises(AssertionError, match="error_code=56"):
                client.create_topic("u")
            assert client.topic("u").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            disk.full.clear()
            wait_until(lambda: can_create(client, "u"), WAIT_S, lambda: "the metadata log is not written again")
            client.produce("u", [b"x"])
            assert client.consume("u") == [(0, b"x")]

    def test_a_segment_that_a_full_disk_has_no_room_for_is_begun_when_there_is(self, tmp_path: Path) -> None:
        disk = FaultyDisk()
        values = [b"%d" % number + bytes(400_000) for number in range(6)]
        with running(tmp_path, disk) as node:
            client = node.client()
            client.create_topic("t", configs={"segment.bytes": 1_048_576})
            for value in values[:2]:
                client.produce("t", [value])
            disk.full.add(str(tmp_path))
            for _ in range(3):
                assert client.send("t", [b"lost" + bytes(400_000)]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.consume("t") == list(enumerate(values[:2]))
            disk.full.clear()
            for value in values[2:]:
                client.produce("t", [value])
            assert client.consume("t") == list(enumerate(values))
            shutil.copytree(tmp_path, tmp_path.with_name("copy"))
        for directory in (tmp_path, tmp_path.with_name("copy")):
            with running(directory) as again:
                assert again.client().consume("t") == list(enumerate(values))

    def test_a_partition_that_a_full_disk_had_no_room_for_is_made_when_there_is(self, tmp_path: Path) -> None:
        disk = FaultyDisk()
        with running(tmp_path / "logs", disk, metadata_log_dir=tmp_path / "metadata") as node:
            client = node.client()
            disk.full.add(str(tmp_path / "logs"))
            client.create_topic("t")
            assert client.send("t", [b"x"]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            disk.full.clear()
            wait_until(lambda: client.send("t", [b"x"]).error_code == ErrorCode.NONE, 10, lambda: "t-0 stays offline")

    def test_when_the_directory_with_the_metadata_fails_the_records_in_another_are_still_served(self, tmp_path: Path) -> None:
        disk = FaultyDisk()
        dirs = [tmp_path / "a", tmp_path / "b"]
        with running(tmp_path, disk, log_dirs=",".join(map(str, dirs))) as node:
            client = node.client()
            client.create_topic("t", 2)
            in_b = int(next(dirs[1].glob("t-*")).name[-1])
            client.produce("t", [b"b"], in_b)
            disk.broken.add(str(dirs[0]))
            assert client.send("t", [b"lost"], 1 - in_b).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.produce("t", [b"more"], in_b) == 1
            assert client.consume("t", in_b) == [(0, b"b"), (1, b"more")]
            for name in ("u", "v"):
                with pytest.raises(AssertionError, match="error_code=56"):
                    client.create_topic(name)

    def test_a_stop_on_a_full_disk_is_not_marked_as_clean_and_loses_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = FaultyDisk()
        with running(tmp_path, disk) as node:
            client = node.client()
            client.create_topic("t")
            producer_id, epoch = client.producer_id()
            client.produce("t", [b"x"], producer_id=producer_id, producer_epoch=epoch, sequence=0)
            disk.full.add(str(tmp_path))
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()
        assert "is not marked as cleanly shut down" in caplog.text
        assert "Traceback" not in caplog.text
        with running(tmp_path) as again:
            client = again.client()
            assert client.consume("t") == [(0, b"x")]
            assert client.produce("t", [b"x"], producer_id=producer_id, producer_epoch=epoch, sequence=0) == 0

    def test_a_disk_that_fails_under_the_metadata_refuses_changes_and_goes_on_serving(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = FaultyDisk()
        with running(tmp_path / "logs", disk, metadata_log_dir=tmp_path / "metadata") as node:
            client = node.client()
            client.create_topic("t")
            disk.broken.add(str(tmp_path / "metadata"))
            for name in ("u", "v"):
                with pytest.raises(AssertionError, match="error_code=56"):
                    client.create_topic(name)
            client.produce("t", [b"x"])
            assert client.consume("t") == [(0, b"x")]
        assert "the metadata log" in caplog.text


class TestRefusedStarts:
    def start(self, data: Path, *, formats: bool = True, **settings: object) -> str:
        node = Node(config(data, **settings), formats=formats)
        threads = threading.active_count()
        with pytest.raises(StartError) as caught:
            node.start()
        wait_until(lambda: threading.active_count() <= threads, WAIT_S, lambda: f"left: {threading.enumerate()}")
        return str(caught.value)

    def test_a_directory_that_is_not_formatted(self, tmp_path: Path) -> None:
        message = self.start(tmp_path / "data", formats=False)
        assert f"{tmp_path / 'data'}: not formatted yet" in message
        assert "pybroker storage format -t CLUSTER_ID -c FILE" in message

    def test_a_directory_that_another_node_uses(self, tmp_path: Path) -> None:
        # With one thread for its background work, so that those of the other node can be counted.
        with running(tmp_path, background_threads=1) as node:
            assert f"{tmp_path} is locked" in self.start(tmp_path)
            assert (
                node.client().ask(DescribeClusterRequest(include_cluster_authorized_operations=False)).error_code
                == ErrorCode.NONE
            )

    def test_a_directory_of_another_node(self, tmp_path: Path) -> None:
        with running(tmp_path):
            pass
        message = self.start(tmp_path, node_id=2, controller_quorum_voters="2@127.0.0.1:9093")
        assert "belongs to node 1; the configuration says node.id=2" in message

    def test_a_port_in_use_and_the_directory_is_free_again(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            message = self.start(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0")
        assert f"port {port} is in use by another process" in message
        with running(tmp_path):
            pass

    def test_after_a_refused_start_a_crashed_directory_is_still_to_be_recovered(self, tmp_path: Path) -> None:
        with running(tmp_path / "original") as first:
            client = first.client()
            client.create_topic("t")
            client.produce("t", [b"x"])
            shutil.copytree(tmp_path / "original", tmp_path / "copy")
        metadata = tmp_path / "copy" / "__cluster_metadata-0"
        saved = (metadata / "quorum-state").read_bytes()
        (metadata / "quorum-state").write_text("{")
        assert "quorum-state is not readable" in self.start(tmp_path / "copy")
        assert not (tmp_path / "copy" / CLEAN_SHUTDOWN).exists()
        (metadata / "quorum-state").write_bytes(saved)
        with running(tmp_path / "copy") as second:
            assert second.client().consume("t") == [(0, b"x")]

    def test_a_quorum_that_is_not_there_is_waited_for_until_somebody_gives_up(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caplog.set_level(logging.INFO)
        monkeypatch.setattr("pybroker.server.node.WAITS_S", 0.05)
        voters = "1@127.0.0.1:9093,2@127.0.0.1:9"
        node = Node(config(tmp_path, controller_quorum_voters=voters), formats=True, cluster_id="c")
        errors: list[str] = []

        def start() -> None:
            try:
                node.start()
            except StartError as error:
                errors.append(str(error))

        starting = threading.Thread(target=start)
        starting.start()
        waiting = "waiting for the metadata quorum: voters 1, 2; no leader in epoch"
        wait_until(lambda: waiting in caplog.text, WAIT_S, lambda: caplog.text)
        node.give_up()
        starting.join(WAIT_S)
        assert errors == ["asked to stop while it waited for the metadata quorum"]
        assert "Traceback" not in caplog.text

    def test_a_meta_properties_that_cannot_be_read(self, tmp_path: Path) -> None:
        with running(tmp_path):
            pass
        (tmp_path / "meta.properties").write_text("version=1\n")
        assert "meta.properties" in self.start(tmp_path)

    def test_a_snapshot_of_the_metadata_that_is_damaged(self, tmp_path: Path) -> None:
        with running(tmp_path):
            pass
        (tmp_path / "__cluster_metadata-0" / f"{0:020}-{0:010}.checkpoint").write_bytes(b"no snapshot")
        assert "is no whole snapshot" in self.start(tmp_path)

    def test_a_listener_of_a_protocol_that_is_not_there_yet(self, tmp_path: Path) -> None:
        message = self.start(
            tmp_path,
            listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            sasl_enabled_mechanisms="PLAIN",
            sasl_mechanism_inter_broker_protocol="PLAIN",
        )
        assert "only PLAINTEXT is" in message


class TestWhatClientsAreTold:
    def test_the_real_port_the_own_name_and_no_controller_listener(self, tmp_path: Path) -> None:
        with running(tmp_path, broker_rack="r1") as node:
            answer = node.client().ask(MetadataRequest(topics=[]))
            (broker,) = answer.brokers
            assert (broker.node_id, broker.host, broker.port, broker.rack) == (1, "127.0.0.1", node.port, "r1")
            assert answer.controller_id == 1
            assert answer.cluster_id == node.node.cluster_id

    def test_a_listener_on_all_interfaces_is_advertised_by_this_machines_name(self, tmp_path: Path) -> None:
        with running(tmp_path, listeners="PLAINTEXT://:0,CONTROLLER://127.0.0.1:0") as node:
            (broker,) = node.client().ask(MetadataRequest(topics=[])).brokers
            assert (broker.host, broker.port) == (os.uname().nodename, node.port)

    def test_the_port_of_this_start_and_not_of_the_last_one(self, tmp_path: Path) -> None:
        for _ in range(2):
            with running(tmp_path) as node:
                assert [broker.port for broker in node.client().ask(MetadataRequest(topics=[])).brokers] == [node.port]

    def test_what_is_advertised_in_the_place_of_what_is_listened_on(self, tmp_path: Path) -> None:
        with running(tmp_path, advertised_listeners="PLAINTEXT://broker.example.org:19092") as node:
            (broker,) = node.client().ask(MetadataRequest(topics=[])).brokers
            assert (broker.host, broker.port) == ("broker.example.org", 19092)

    def test_each_listener_tells_of_its_own_address(self, tmp_path: Path) -> None:
        settings = {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "advertised_listeners": "INSIDE://inside.example.org:1,OUTSIDE://outside.example.org:2",
            "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter_broker_listener_name": "INSIDE",
        }
        with running(tmp_path, **settings) as node:
            for name, host, port in (("INSIDE", "inside.example.org", 1), ("OUTSIDE", "outside.example.org", 2)):
                with NodeClient(node.node.sockets.ports()[name]) as client:
                    (broker,) = client.ask(MetadataRequest(topics=[])).brokers
                    assert (broker.host, broker.port) == (host, port)

    @pytest.mark.skipif(not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"), reason="this machine has no IPv6")
    def test_ipv6(self, tmp_path: Path) -> None:
        listeners = "PLAINTEXT://[::1]:0,CONTROLLER://127.0.0.1:0"
        with running(tmp_path, listeners=listeners) as node, NodeClient(node.port, "::1") as client:
            (broker,) = client.ask(MetadataRequest(topics=[])).brokers
            assert (broker.host, broker.port) == ("::1", node.port)

    def test_the_controllers_listener_offers_less(self, tmp_path: Path) -> None:
        with running(tmp_path) as node, NodeClient(node.controller_port) as client:
            request = ApiVersionsRequest(client_software_name="test", client_software_version="0")
            offered = {API_BY_KEY[row.api_key].name for row in client.ask(request, 3).api_keys}
            assert offered >= {"Vote", "Fetch", "BrokerHeartbeat", "DescribeCluster", "CreateTopics"}
            assert not offered & {"Metadata", "Produce", "ListOffsets", "FindCoordinator"}
            with pytest.raises(ConnectionError):
                client.ask(MetadataRequest(topics=[]))

    def test_a_topic_is_created_when_asked_for_if_that_is_allowed(self, tmp_path: Path) -> None:
        with running(tmp_path, auto_create_topics_enable="true", num_partitions=3) as node:
            client = node.client()
            assert client.topic("no", creates=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            client.topic("yes", creates=True)
            wait_until(
                lambda: client.topic("yes").error_code == ErrorCode.NONE, WAIT_S, lambda: f"{client.topic('yes')} is not there"
            )
            assert len(client.topic("yes").partitions) == 3
            assert client.produce("yes", [b"x"], 2) == 0

    def test_no_topic_is_created_when_asked_for_if_that_is_not_allowed(self, tmp_path: Path) -> None:
        with running(tmp_path) as node:
            client = node.client()
            assert client.topic("t", creates=True).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert client.topic("t", creates=True).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestStartUpOutput:
    def test_it_names_node_cluster_directories_logs_and_listeners(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with running(tmp_path) as first:
            first.client().create_topic("t", 3)
        caplog.set_level(logging.INFO)
        caplog.clear()
        with running(tmp_path) as second:
            ports = second.node.sockets.ports()
            text = caplog.text
            assert f"node 1 of cluster {second.node.cluster_id}, log directories: {tmp_path}" in text
            assert re.search(r"loaded 3 logs in \d+ ms, 0 with recovery", text)
            assert f"listening on PLAINTEXT://127.0.0.1:{ports['PLAINTEXT']}" in text
            assert f"listening on CONTROLLER://127.0.0.1:{second.controller_port}" in text
            assert second.broker.logs.get(TopicPartition("t", 0)) is not None
            assert uuid_to_text(second.broker.replicas.topics["t"].topic_id)
