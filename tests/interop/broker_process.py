"""What a test asks of a broker in a process of its own, whoever wrote it: ApacheBroker and PybrokerNode fill in the rest.

with PybrokerNode(tmp_path, {"log.retention.ms": "-1"}) as broker:
    broker.create_topic("t", {"segment.bytes": "1048576"})
    ...
    broker.restart(clean=False)  # kill -9, then the same directory at the same address
"""

from __future__ import annotations

import random
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from support.waiting import wait_until

from pybroker.base.ids import Uuid
from pybroker.protocol.api_table import APIS
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.api_versions import ApiVersionsRequest
from pybroker.protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pybroker.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

CLUSTER_ID = "pybroker-interop-00000"  # 22 characters of base64, as any cluster id
NODE_ID = 1
START_S = 60.0
STOP_S = 60.0
_PORT_TRIES = 3

# One node for everything, nothing that waits for company, no more partitions of internal topics than a test needs.
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill -9 the controller takes the broker back only when its old session is over.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4194304",
}


class BrokerProcess:
    """A broker in `directory` (server.properties, server.log, data/); `properties` go on top of the defaults.

    Entering it starts it. `directory` may be one that an earlier broker has left.
    """

    NAME: ClassVar[str]
    STOPPED: ClassVar[int]  # the exit code of a clean stop
    DEFAULTS: ClassVar[Mapping[str, str]] = _PROPERTIES

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        ports: tuple[int, int] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        """`ports` are the clients' and the controllers', for a node that others have to know before it starts;
        `format_options` are more of kafka-storage format's, which both take."""
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_file = directory / "server.log"
        self.properties = dict(properties or {})
        self.format_options = tuple(format_options)
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = ports
        self._tries = 1 if ports is not None else _PORT_TRIES

    def format(self, config: Path) -> None:
        """Make the directory a node's."""
        raise NotImplementedError

    def command(self, config: Path) -> Sequence[str]:
        """The command line that starts the broker."""
        raise NotImplementedError

    def output(self) -> Path:
        """The file that gets the process's stdout and stderr."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if self._process is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    @property
    def bootstrap(self) -> str:
        """host:port of the clients' listener; the same after a restart."""
        assert self._ports is not None, "the broker has not been started"
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def controller(self) -> str:
        """host:port of the controllers' listener."""
        assert self._ports is not None, "the broker has not been started"
        return f"127.0.0.1:{self._ports[1]}"

    @property
    def is_broker(self) -> bool:
        return "broker" in self._roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self._roles

    @property
    def _roles(self) -> list[str]:
        return {**self.DEFAULTS, **self.properties}["process.roles"].split(",")

    @property
    def pid(self) -> int | None:
        """None while the broker is down."""
        return None if self._process is None else self._process.pid

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        return self.data_dir / f"{topic}-{partition}"

    def start(self, properties: Mapping[str, str] | None = None) -> None:
        """Start and wait until clients are served; `properties` stay for later starts too."""
        self.properties |= properties or {}
        for tries_left in reversed(range(self._tries)):
            try:
                self.launch()
                self.wait_until_it_serves()
                return
            except _PortTakenError:
                self._ports = None
                if not tries_left:
                    raise

    def stop(self, clean: bool = True) -> None:
        """SIGTERM and the whole way down, or `clean=False` for a kill -9. Does nothing to a broker that is down."""
        process = self._process
        if process is None:
            return
        if not clean:
            self._kill()
            return
        process.terminate()
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.NAME} did not stop within {STOP_S} s:\n{self.last_words()}") from None
        finally:
            self._kill()
        assert code == self.STOPPED, f"{self.NAME} stopped with exit code {code}:\n{self.last_words()}"

    def restart(self, clean: bool = True, properties: Mapping[str, str] | None = None) -> None:
        self.stop(clean)
        self.start(properties)

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The broker's response to one request, on a connection of its own; the newest stable version unless told."""
        return ask(self.bootstrap, request, version)

    def create_topic(self, name: str, config: Mapping[str, str] | None = None, partitions: int = 1) -> Uuid:
        """Create a topic and wait until each partition has its leader."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs)
        created = self.ask(CreateTopicsRequest(topics=[topic])).topics[0]
        assert created.error_code == ErrorCode.NONE, created
        self.wait_for_leaders(name, partitions)
        return Uuid(bytes(created.topic_id))

    def wait_for_leaders(self, topic: str, partitions: int = 1) -> None:
        """The broker takes up its partitions a moment after it has learnt of them, and clients would see an error."""

        def served() -> bool:
            (found,) = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
            if found.error_code != ErrorCode.NONE or len(found.partitions) != partitions:
                return False
            # Metadata names a leader before the log is open: ask the logs themselves.
            return all(error == ErrorCode.NONE for error, _, _ in self._list_offsets(topic, range(partitions), -1))

        wait_until(served, START_S, lambda: f"{topic} has no leader:\n{self.last_words()}")

    def list_offset(self, topic: str, timestamp: int, partition: int = 0, *, committed: bool = False) -> tuple[int, int]:
        """(offset, timestamp) for a time or one of -1 latest, -2 earliest, -3 max timestamp, -4 earliest local, …"""
        ((error, offset, found),) = self._list_offsets(topic, [partition], timestamp, committed)
        assert error == ErrorCode.NONE, ErrorCode(error)
        return offset, found

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        """The new low watermark."""
        rows = [DeleteRecordsPartition(partition_index=partition, offset=before_offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=rows)], timeout_ms=30_000)
        done = self.ask(request).topics[0].partitions[0]
        assert done.error_code == ErrorCode.NONE, done
        return int(done.low_watermark)

    def _list_offsets(
        self, topic: str, partitions: Iterable[int], timestamp: int, committed: bool = False
    ) -> list[tuple[int, int, int]]:
        rows = [ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in partitions]
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name=topic, partitions=rows)],
            timeout_ms=30_000,
        )
        return [(found.error_code, found.offset, found.timestamp) for found in self.ask(request).topics[0].partitions]

    def last_words(self) -> str:
        """The end of what the broker said."""
        files = sorted({self.output(), self.log_file})
        return "".join(f"-- {path}\n{path.read_text(errors='replace')[-4000:]}" for path in files if path.exists())

    def serves(self) -> bool:
        """Whether clients are served; of a mere controller, whether it answers."""
        address = self.bootstrap if self.is_broker else self.controller
        try:
            versions = ask(address, ApiVersionsRequest(client_software_name="pybroker", client_software_version="0"), 3)
            if not self.is_broker:
                return bool(versions.error_code == ErrorCode.NONE)
            # A broker that the controller still fences does not list itself.
            return int(self.properties.get("node.id", NODE_ID)) in self.living_brokers()
        except OSError:
            return False

    def living_brokers(self) -> set[int]:
        """The brokers that are not fenced, as this one knows."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        return {one.broker_id for one in self.ask(request).brokers}

    def _has_started(self) -> bool:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            words = self.last_words()
            error = _PortTakenError if "address already in use" in words.lower() else AssertionError
            raise error(f"{self.NAME} ended with exit code {code}:\n{words}")
        return self.serves()

    def launch(self) -> None:
        """Start the process, for a node that serves only when others run, too."""
        assert self._process is None, f"the broker runs already, process {self.pid}"
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._ports is None:
            self._ports = free_ports()
        config = self._write_config()
        if not (self.data_dir / "meta.properties").exists():
            self.format(config)
        command = [*self.command(config)]
        if setpriv := shutil.which("setpriv"):  # so that a killed test run leaves no broker behind
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with self.output().open("ab") as out:
            # In a session of its own, since Ctrl-C at the tests is for them to answer.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait_until_it_serves(self) -> None:
        try:
            wait_until(self._has_started, START_S, lambda: f"{self.NAME} does not answer:\n{self.last_words()}")
        except BaseException:
            self._kill()
            raise

    def _write_config(self) -> Path:
        assert self._ports is not None
        broker_port, controller_port = self._ports
        at = {"PLAINTEXT": self.is_broker and broker_port, "CONTROLLER": self.is_controller and controller_port}
        listeners = {name: f"{name}://127.0.0.1:{port}" for name, port in at.items() if port}
        own = {
            "listeners": ",".join(listeners.values()),
            "advertised.listeners": listeners["PLAINTEXT" if self.is_broker else "CONTROLLER"],
            "controller.quorum.voters": f"{self.properties.get('node.id', NODE_ID)}@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_dir),
        }
        if "controller.quorum.bootstrap.servers" in self.properties:
            del own["controller.quorum.voters"]
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**self.DEFAULTS, **own, **self.properties}.items()))
        return path

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class _PortTakenError(AssertionError):
    pass


def ask(address: str, request: Message, version: int | None = None, timeout_s: float = 30) -> Any:
    """One request and its response, on a connection of its own."""
    api = next(api for api in APIS if api.key == request.KEY)
    if version is None:
        version = api.stable_versions[1]
    header = RequestHeader(request_api_key=api.key, request_api_version=version, correlation_id=7, client_id="pybroker-interop")
    frame = header.encode(api.request_header_version(version)) + request.encode(version)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        with connection.makefile("rb") as reader:
            size = reader.read(4)
            answer = reader.read(struct.unpack(">i", size)[0]) if len(size) == 4 else b""
    if not answer:
        raise ConnectionError(f"{address} closed the connection instead of answering {type(request).__name__} {version}")
    found, position = ResponseHeader.decode_from(api.response_header_version(version), answer, 0)
    assert found.correlation_id == header.correlation_id
    return api.response.decode(version, answer[position:])


def free_ports() -> tuple[int, int]:
    """Two ports that are free and that the kernel gives to nobody unasked, so that they are still free at a restart."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    candidates = range(20_000, low) or range(high + 1, 65_536) or range(20_000, 65_536)
    found: list[int] = []
    while len(found) < 2:
        port = random.choice(candidates)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found[0], found[1]
