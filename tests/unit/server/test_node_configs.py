"""Configs of a running node: what is changed takes effect without a restart, and the background work that they steer."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.batches import batch
from support.node_client import EARLIEST, NodeClient
from support.nodes import RunningNode, running
from support.waiting import wait_until

from pybroker.log.files import TopicPartition
from pybroker.metadata.image import ResourceType
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.raft import DescribeQuorumRequest

WAIT_S = 15.0
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
CLUSTER = ""
# Retention looks every few milliseconds, and what it drops is gone soon.
EAGER = {
    "log_initial_task_delay_ms": 0,
    "log_retention_check_interval_ms": 20,
    "log_segment_delete_delay_ms": 0,
    "log_cleaner_backoff_ms": 20,
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait(condition: Callable[[], object], problem: str) -> None:
    wait_until(condition, WAIT_S, lambda: problem)


def threads_named(prefix: str) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(prefix))


def is_let_in(node: RunningNode) -> bool:
    """Whether the node serves one more connection."""
    try:
        with NodeClient(node.port) as client:
            return bool(client.topic("nothing").error_code)
    except (ConnectionError, OSError):
        return False


class TestTopics:
    def test_retention_by_time_can_be_turned_on_for_a_topic(self, tmp_path: Path) -> None:
        with running(tmp_path, **EAGER) as node:
            client = node.client()
            client.create_topic("t", configs={"retention.ms": -1, "segment.bytes": 1_048_576})
            client.produce("t", [b"old"], timestamp=now_ms() - 3_600_000)
            client.configure(TOPIC, "t", {"retention.ms": 60_000})
            wait(lambda: client.offset("t", EARLIEST) == 1, "the old record is still there")
            assert client.produce("t", [b"new"], timestamp=now_ms()) == 1
            assert client.consume("t", offset=1) == [(1, b"new")]
            wait(
                lambda: sorted(os.listdir(tmp_path / "t-0"))[0].startswith(f"{1:020}"), f"left: {os.listdir(tmp_path / 't-0')}"
            )

    def test_retention_by_size_runs_in_the_background(self, tmp_path: Path) -> None:
        with running(tmp_path, **EAGER, log_retention_bytes=2_000_000) as node:
            client = node.client()
            client.create_topic("t", configs={"segment.bytes": 1_048_576})
            for _ in range(8):
                client.produce("t", [bytes(600_000)], timestamp=now_ms())
            wait(lambda: client.offset("t", EARLIEST) > 0, "nothing was deleted")
            log = node.broker.logs.get(TopicPartition("t", 0))
            assert log is not None
            wait(lambda: log.size_bytes < 4_000_000, f"{log.size_bytes} bytes are left")
            assert client.offset("t") == 8

    def test_compaction_runs_in_the_background_when_a_topic_is_set_to_it(self, tmp_path: Path) -> None:
        with running(tmp_path, **EAGER) as node:
            client = node.client()
            client.create_topic("t", configs={"segment.bytes": 1_048_576, "min.cleanable.dirty.ratio": 0.01})
            value = bytes(100_000)
            for number in range(30):
                client.produce("t", [b"%d" % number + value], keys=[b"%d" % (number % 3)], timestamp=now_ms())
            assert len(client.consume("t")) == 30
            client.configure(TOPIC, "t", {"cleanup.policy": "compact"})
            wait(lambda: len(client.consume("t")) < 15, "nothing was compacted")
            found = client.consume("t")
            assert {value[:2] for _, value in found if value is not None} >= {b"27", b"28", b"29"}
            assert client.offset("t") == 30

    def test_the_largest_batch_a_topic_takes(self, tmp_path: Path) -> None:
        with running(tmp_path) as node:
            client = node.client()
            client.create_topic("t")
            client.configure(TOPIC, "t", {"max.message.bytes": len(batch([bytes(1000)]))})
            assert client.send("t", [bytes(1000)]).error_code == ErrorCode.NONE
            assert client.send("t", [bytes(1001)]).error_code == ErrorCode.MESSAGE_TOO_LARGE


class TestBrokers:
    def test_the_clusters_default_is_that_of_topics_without_their_own(self, tmp_path: Path) -> None:
        with running(tmp_path) as node:
            client = node.client()
            client.create_topic("plain")
            client.create_topic("own", configs={"max.message.bytes": 10_000})
            client.configure(BROKER, CLUSTER, {"message.max.bytes": 1000})
            assert client.send("plain", [bytes(2000)]).error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert client.send("own", [bytes(2000)]).error_code == ErrorCode.NONE
            client.configure(BROKER, "1", {"message.max.bytes": 5000})
            assert client.send("plain", [bytes(2000)]).error_code == ErrorCode.NONE
        with running(tmp_path) as again:
            client = again.client()
            assert client.config(BROKER, "1", "message.max.bytes") == "5000"
            assert client.send("plain", [bytes(6000)]).error_code == ErrorCode.MESSAGE_TOO_LARGE

    def test_connections_of_one_address(self, tmp_path: Path) -> None:
        with running(tmp_path) as node:
            client = node.client()
            assert is_let_in(node)
            client.configure(BROKER, CLUSTER, {"max.connections.per.ip": 1})
            wait(lambda: not is_let_in(node), "a second connection is still served")
            assert client.topic("nothing").error_code
            client.configure(BROKER, CLUSTER, {"max.connections.per.ip": 10})
            wait(lambda: is_let_in(node), "no second connection is served")

    def test_threads_that_handle_requests(self, tmp_path: Path) -> None:
        with running(tmp_path, num_io_threads=2) as node:
            client = node.client()
            pool = node.node.sockets._pool
            assert pool.size == 2
            client.configure(BROKER, CLUSTER, {"num.io.threads": 4})
            wait(lambda: pool.size == 4, f"{pool.size} threads")
            client.configure(BROKER, CLUSTER, {"num.io.threads": 2})
            wait(lambda: pool.size == 2, f"{pool.size} threads")
            assert client.config(BROKER, "1", "num.io.threads") == "2"

    def test_threads_that_clean(self, tmp_path: Path) -> None:
        before = set(threads_named("log-cleaner"))
        with running(tmp_path) as node:
            client = node.client()
            assert set(threads_named("log-cleaner")) - before == {"log-cleaner-0"} - before
            client.configure(BROKER, CLUSTER, {"log.cleaner.threads": 2})
            wait(lambda: threads_named("log-cleaner") == ["log-cleaner-0", "log-cleaner-1"], f"{threads_named('log-cleaner')}")

    def test_the_interval_of_assignments_of_consumer_groups(self, tmp_path: Path) -> None:
        with running(tmp_path) as node:
            settings = node.broker.groups.settings
            assert settings.consumer_assignment_interval_ms == 1000
            node.client().configure(BROKER, CLUSTER, {"group.consumer.assignment.interval.ms": 250})
            wait(lambda: settings.consumer_assignment_interval_ms == 250, f"{settings}")

    def test_threads_in_the_background(self, tmp_path: Path) -> None:
        with running(tmp_path, background_threads=2) as node:
            node.client().configure(BROKER, CLUSTER, {"background.threads": 4})
            assert node.broker.scheduler._limit == 4

    def test_fetchers_for_each_leader(self, tmp_path: Path) -> None:
        def number(node: RunningNode) -> int:
            fetchers = node.broker.replicas._fetchers
            assert fetchers is not None
            return fetchers._number_of_each

        with running(tmp_path) as node:
            node.client().configure(BROKER, CLUSTER, {"num.replica.fetchers": 2})
            wait(lambda: number(node) == 2, f"{number(node)} fetchers")
        with running(tmp_path) as again:
            assert number(again) == 2

    def test_what_was_set_is_applied_after_a_restart(self, tmp_path: Path) -> None:
        directories = [tmp_path / "a", tmp_path / "b"]
        settings = {"log_dirs": ",".join(map(str, directories)), "background_threads": 2}
        changes = {
            "num.io.threads": 4,
            "num.network.threads": 2,
            "max.connections.per.ip": 3,
            "background.threads": 4,
            "log.cleaner.threads": 2,
            "group.consumer.assignment.interval.ms": 250,
            "num.recovery.threads.per.data.dir": 3,
            "producer.id.expiration.ms": 123_456,
        }
        with running(tmp_path, **settings) as node:
            client = node.client()
            client.create_topic("t")
            client.produce("t", [b"before"])
            client.configure(BROKER, CLUSTER, changes)
            client.configure(BROKER, "1", {"cordoned.log.dirs": directories[1]})
        with running(tmp_path, **settings) as again:
            broker = again.broker
            pool = broker.sockets._pool
            wait(lambda: pool.size == 4, f"{pool.size} handler threads")
            assert broker.sockets._open["PLAINTEXT"].threads.size == 2
            assert broker.scheduler._limit == 4
            assert threads_named("log-cleaner") == ["log-cleaner-0", "log-cleaner-1"]
            assert broker.groups.settings.consumer_assignment_interval_ms == 250
            assert broker.logs.settings.recovery_threads == 3
            assert [broker.logs.is_cordoned(one) for one in broker.logs.dirs] == [False, True]
            log = broker.logs.get(TopicPartition("t", 0))
            assert log is not None
            assert log.producers.producer_id_expiration_ms == 123_456
            clients = [again.client() for _ in range(3)]
            assert all(client.topic("nothing").error_code for client in clients)
            assert not is_let_in(again)

    def test_listeners_that_were_set_are_those_that_a_restart_opens_and_registers(self, tmp_path: Path) -> None:
        listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
        protocols = "PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        with running(tmp_path, listener_security_protocol_map=protocols) as node:
            node.client().configure(BROKER, "1", {"listeners": f"{listeners},MORE://127.0.0.1:0"})
            wait(lambda: set(node.node.sockets.ports()) == {"PLAINTEXT", "MORE"}, f"{node.node.sockets.ports()}")
        with running(tmp_path, listener_security_protocol_map=protocols) as again:
            ports = again.node.sockets.ports()
            assert set(ports) == {"PLAINTEXT", "MORE"}
            with NodeClient(ports["MORE"]) as client:
                assert client.topic("nothing").error_code
            registered = again.node.quorum.image.brokers[1].endpoints
            assert {name: endpoint.port for name, endpoint in registered.items()} == ports

    @pytest.mark.parametrize("roles", ["controller", "broker,controller"])
    def test_a_controllers_listeners_keep_to_changed_limits_too(self, tmp_path: Path, roles: str) -> None:
        listeners = "CONTROLLER://127.0.0.1:0" + (",PLAINTEXT://127.0.0.1:0" if "broker" in roles else "")
        settings = {"process_roles": roles, "listeners": listeners}

        def check(node: RunningNode) -> None:
            assert node.node.controller is not None
            pool = node.node.controller.sockets._pool
            wait(lambda: pool.size == 4, "the controller's handler threads stay as they were")
            with NodeClient(node.controller_port) as first:
                assert first.ask(DescribeQuorumRequest(topics=[]))
                wait(lambda: not more_is_let_in(node), "a second connection is still served")

        def more_is_let_in(node: RunningNode) -> bool:
            try:
                with NodeClient(node.controller_port) as client:
                    return bool(client.ask(DescribeQuorumRequest(topics=[])))
            except (ConnectionError, OSError):
                return False

        with running(tmp_path, **settings) as node:
            with NodeClient(node.controller_port) as client:
                client.configure(BROKER, CLUSTER, {"num.io.threads": 4, "max.connections.per.ip": 1})
            check(node)
        with running(tmp_path, **settings) as again:
            check(again)

    def test_a_change_that_cannot_be_is_refused_and_changes_nothing(self, tmp_path: Path) -> None:
        with running(tmp_path) as node:
            client = node.client()
            with pytest.raises(AssertionError, match="error_code=42"):
                client.configure(BROKER, CLUSTER, {"message.max.bytes": "many"})
            with pytest.raises(AssertionError, match="error_code=42"):
                client.configure(BROKER, "1", {"node.id": 7})
            client.create_topic("t")
            assert client.send("t", [bytes(2000)]).error_code == ErrorCode.NONE


class TestBadInput:
    @pytest.mark.parametrize(
        ("what", "data"),
        [
            ("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)),
            ("length", b"\xff\xff\xff\xff" + bytes(20)),
            ("", b"\x00\x00\x00\x10" + b"\x7f\x7f" + bytes(14)),
        ],
    )
    def test_bytes_that_are_no_request_cost_a_line_and_their_connection(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str, data: bytes
    ) -> None:
        with running(tmp_path) as node:
            with socket.create_connection(("127.0.0.1", node.port), WAIT_S) as stranger:
                stranger.sendall(data)
                with suppress(ConnectionResetError):
                    assert stranger.recv(1) == b""
            lines = [record.getMessage() for record in caplog.records if "closing the connection" in record.getMessage()]
            assert len(lines) == 1, caplog.text
            assert what in lines[0]
            assert node.client().topic("t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "Traceback" not in caplog.text
