"""`pybroker start` as a newcomer meets it: what it starts with, what it says, what it refuses and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from node.process import ANY_PORT, NodeProcess
from support.stock import STOCK
from support.waiting import wait_until

from pybroker.config import load_file
from pybroker.log.checkpoints import CLEAN_SHUTDOWN
from pybroker.metadata.image import ResourceType
from pybroker.protocol.errors import ErrorCode

Start = Callable[..., NodeProcess]

REPOSITORY = Path(__file__).resolve().parents[2]
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO |WARN |ERROR|FATAL) \S")


def pybroker(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run((sys.executable, "-m", "pybroker", *arguments), cwd=cwd, capture_output=True, text=True, timeout=60)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def use(node: NodeProcess, topic: str = "t") -> None:
    """As a client would."""
    with node.client() as client:
        client.create_topic(topic)
        client.produce(topic, [b"hello"])
        assert client.consume(topic) == [(0, b"hello")]


def check_lines(node: NodeProcess) -> None:
    """One line an event, each with its time and level."""
    odd = [line for line in node.said.splitlines() if not LINE.match(line)]
    assert not odd, node.said


class TestDefaults:
    def test_without_a_file_it_formats_a_folder_here_serves_and_keeps_what_it_got(self, start: Start, tmp_path: Path) -> None:
        first = start(*ANY_PORT).wait_ready()
        use(first)
        assert first.stop() == 0
        data = tmp_path / "pybroker-data"
        assert (data / "meta.properties").exists()
        assert (data / CLEAN_SHUTDOWN).exists()
        second = start(*ANY_PORT).wait_ready()
        with second.client() as client:
            assert client.consume("t") == [(0, b"hello")]
        assert not (data / CLEAN_SHUTDOWN).exists()
        assert second.stop() == 0
        check_lines(first)
        check_lines(second)

    def test_the_start_says_who_and_where_it_is_and_how_long_it_took(self, start: Start, tmp_path: Path) -> None:
        node = start(*ANY_PORT).wait_ready()
        cluster_id = re.search(r"^cluster\.id=(\S+)$", (tmp_path / "pybroker-data" / "meta.properties").read_text(), re.M)
        assert cluster_id is not None
        said = node.said
        assert f"node 1 of cluster {cluster_id[1]}, log directories: {tmp_path / 'pybroker-data'}\n" in said
        assert re.search(r"INFO  loaded 0 logs in \d+ ms, 0 with recovery\n", said)
        assert re.search(r"INFO  listening on PLAINTEXT://127\.0\.0\.1:[1-9]\d*\n", said)
        assert re.search(r"INFO  listening on CONTROLLER://127\.0\.0\.1:[1-9]\d*\n", said)
        assert re.search(r"INFO  ready in \d+\.\d\d s\n$", said)

    def test_more_and_less_is_said_at_other_levels(self, start: Start) -> None:
        node = start(*ANY_PORT, "--log-level", "error")
        wait_until(lambda: Path(node._output.parent / "pybroker-data" / "recovery-point-offset-checkpoint").exists(), 30, str)
        assert node.stop() == 0
        assert node.said == ""


class TestFiles:
    def test_the_example_file_with_overrides_formats_if_needed(self, start: Start, tmp_path: Path) -> None:
        example = str(REPOSITORY / "config" / "server.properties")
        ports = free_ports(2)
        listeners = f"PLAINTEXT://localhost:{ports[0]},CONTROLLER://localhost:{ports[1]}"
        arguments = [
            example,
            "--format-if-needed",
            *("--override", f"listeners={listeners}"),
            *("--override", f"advertised.listeners={listeners}"),
            *("--override", f"log.dirs={tmp_path / 'data'}"),
        ]
        node = start(*arguments).wait_ready()
        use(node)
        assert node.port == ports[0]
        assert node.stop() == 0
        again = start(*arguments).wait_ready()
        with again.client() as client:
            assert client.consume("t") == [(0, b"hello")]

    def test_the_containers_file_with_an_environment_formats_for_its_cluster(
        self, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker, controller = free_ports(2)
        monkeypatch.setenv("CLUSTER_ID", "zXZeALOaRVOfU8psv2J83w")
        monkeypatch.setenv("KAFKA_NODE_ID", "7")
        monkeypatch.setenv("KAFKA_LISTENERS", f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}")
        monkeypatch.setenv("KAFKA_ADVERTISED_LISTENERS", f"PLAINTEXT://127.0.0.1:{broker}")
        monkeypatch.setenv("KAFKA_CONTROLLER_QUORUM_VOTERS", f"7@127.0.0.1:{controller}")
        monkeypatch.setenv("KAFKA_LOG_DIRS", str(tmp_path / "data"))
        monkeypatch.setenv("KAFKA_HEAP_OPTS", "-Xmx1g")
        arguments = [str(REPOSITORY / "config" / "container.properties"), "--env", "--format-if-needed"]
        node = start(*arguments).wait_ready()
        use(node)
        assert f"node 7 of cluster zXZeALOaRVOfU8psv2J83w, log directories: {tmp_path / 'data'}\n" in node.said
        assert pybroker("ping", f"127.0.0.1:{broker}", cwd=tmp_path).returncode == 0
        assert node.stop() == 0
        check_lines(node)
        assert pybroker("ping", f"127.0.0.1:{broker}", cwd=tmp_path).returncode == 1

    def test_apache_kafkas_own_file_is_accepted_as_it_is(self, tmp_path: Path) -> None:
        path = tmp_path / "server.properties"
        path.write_text(STOCK)
        loaded = load_file(path)
        assert loaded.config is not None
        assert loaded.problems == ()

    def test_apache_kafkas_own_file_formats_and_starts(self, start: Start, tmp_path: Path) -> None:
        broker, controller = free_ports(2)
        path = tmp_path / "server.properties"
        stock = STOCK.replace("9092", str(broker)).replace("9093", str(controller))
        path.write_text(stock.replace("/tmp/kraft-combined-logs", str(tmp_path / "logs")))
        refused = start(str(path))
        assert refused.wait() == 1
        assert f"{tmp_path / 'logs'}: not formatted yet" in refused.said
        command = re.search(r"^  pybroker (storage format .*)$", refused.said, re.M)
        assert command is not None, refused.said
        drawn = pybroker("storage", "random-uuid", cwd=tmp_path).stdout.strip()
        done = pybroker(*command[1].replace("CLUSTER_ID", drawn).split(), cwd=tmp_path)
        assert done.returncode == 0, done
        node = start(str(path)).wait_ready()
        assert f"of cluster {drawn}," in node.said
        assert node.port == broker
        use(node)
        assert node.stop() == 0
        check_lines(node)

    def test_a_key_that_is_not_known_is_refused_with_the_one_that_was_meant(self, start: Start, tmp_path: Path) -> None:
        path = tmp_path / "server.properties"
        path.write_text(STOCK + "num.partitons=3\n")
        node = start(str(path))
        assert node.wait() == 1
        assert "num.partitons is not a known key; did you mean num.partitions?" in node.said
        assert f"server.properties:{len(path.read_text().splitlines())}" in node.said
        assert "Traceback" not in node.said


class TestRefusals:
    def test_a_directory_that_another_node_uses(self, start: Start, tmp_path: Path) -> None:
        first = start(*ANY_PORT).wait_ready()
        second = start(*ANY_PORT)
        assert second.wait() == 1
        assert f"FATAL log directory {tmp_path / 'pybroker-data'} is locked: another process holds" in second.said
        assert "Stop the broker that uses it" in second.said
        check_lines(second)
        use(first)

    def test_a_port_that_another_process_uses(self, start: Start, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            node = start("--override", f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0")
            assert node.wait() == 1
        assert f"FATAL cannot listen on PLAINTEXT://127.0.0.1:{port}: port {port} is in use by another process" in node.said
        check_lines(node)
        use(start(*ANY_PORT).wait_ready())

    def test_a_check_of_what_is_well_and_of_what_is_not(self, start: Start, tmp_path: Path) -> None:
        good = start(*ANY_PORT, "--check")
        assert good.wait() == 0
        assert good.said.endswith("ok, with 1 warning\n")
        assert not (tmp_path / "pybroker-data").exists()
        running = start(*ANY_PORT).wait_ready()
        bad = start("--override", f"listeners=PLAINTEXT://127.0.0.1:{running.port},CONTROLLER://127.0.0.1:0", "--check")
        assert bad.wait() == 1
        assert "pybroker-data is locked" in bad.said
        assert f"port {running.port} is in use by another process" in bad.said
        assert "ok" not in bad.said.split()


class TestSignals:
    @pytest.fixture(autouse=True)
    def not_under_nohup(self) -> Iterator[None]:
        """A node goes on at a hangup that whoever started it ignores: that may be whoever started the tests."""
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        yield
        signal.signal(signal.SIGHUP, before)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_it_stops_cleanly(self, start: Start, tmp_path: Path, number: signal.Signals) -> None:
        node = start(*ANY_PORT).wait_ready()
        with node.client() as idle:
            use(node)
            node.signal(number)
            assert node.wait() == 0
            with pytest.raises((ConnectionError, OSError)):
                idle.topic("t")
        assert (tmp_path / "pybroker-data" / CLEAN_SHUTDOWN).exists()
        assert f"INFO  stopping: {number.name}\n" in node.said
        assert node.said.endswith("INFO  stopped\n")
        check_lines(node)

    def test_a_second_one_ends_it_at_once(self, start: Start, tmp_path: Path) -> None:
        node = start(*ANY_PORT).wait_ready()
        # Stopped, it finds both waiting when it goes on.
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            node.signal(number)
        assert node.wait() in (128 + signal.SIGINT, 128 + signal.SIGTERM)
        assert not (tmp_path / "pybroker-data" / CLEAN_SHUTDOWN).exists()

    def test_a_signal_during_the_start_stops_it_too(self, start: Start, tmp_path: Path) -> None:
        node = start(*ANY_PORT)
        node.wait_for("node 1 of cluster")
        node.signal(signal.SIGTERM)
        assert node.wait() == 0
        assert "INFO  stopping: SIGTERM" in node.said
        assert "Traceback" not in node.said
        use(start(*ANY_PORT).wait_ready())


class TestFailures:
    def test_with_its_last_directory_the_node_ends(self, start: Start, tmp_path: Path) -> None:
        node = start(*ANY_PORT).wait_ready()
        with node.client() as client:
            client.create_topic("t")
            (tmp_path / "pybroker-data").rename(tmp_path / "elsewhere")
            (tmp_path / "pybroker-data").write_text("no directory any more")
            with suppress(AssertionError, OSError):
                client.create_topic("u")
            assert node.wait() == 1
        assert f"ERROR log directory {tmp_path / 'pybroker-data'} is offline since making a log for u-0 failed" in node.said
        assert "FATAL all of log.dirs are offline" in node.said
        check_lines(node)


class TestStrangers:
    def test_each_costs_a_line_and_the_node_goes_on(self, start: Start) -> None:
        node = start(*ANY_PORT).wait_ready()
        strangers = {
            "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
            "length": b"\x80\x00\x00\x00" + bytes(50),
        }
        for data in strangers.values():
            with socket.create_connection(("127.0.0.1", node.port), 10) as stranger:
                stranger.sendall(data)
                with suppress(ConnectionResetError):
                    assert stranger.recv(1) == b""
        use(node)
        lines = [line for line in node.said.splitlines() if "closing the connection of 127.0.0.1" in line]
        assert len(lines) == len(strangers), node.said
        assert all(name in line for name, line in zip(strangers, lines, strict=True)), lines
        assert node.stop() == 0
        check_lines(node)

    def test_a_client_that_asks_for_what_is_not_there_is_answered(self, start: Start) -> None:
        with start(*ANY_PORT).wait_ready().client() as client:
            assert client.topic("nothing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert client.fetch("nothing", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestDynamicConfigs:
    @pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL])
    def test_a_limit_that_was_set_while_it_ran_holds_after_a_restart(self, start: Start, ends: signal.Signals) -> None:
        first = start(*ANY_PORT).wait_ready()
        with first.client() as client:
            client.configure(ResourceType.BROKER, "", {"max.connections.per.ip": 1})
        first.signal(ends)
        first.wait()
        second = start(*ANY_PORT).wait_ready()
        with second.client() as client:
            assert client.config(ResourceType.BROKER, "1", "max.connections.per.ip") == "1"
            with pytest.raises(ConnectionError), second.client() as refused:
                refused.topic("t")
            second.wait_for("127.0.0.1 holds max.connections.per.ip = 1 connections already")
            client.create_topic("t")
        assert second.stop() == 0
