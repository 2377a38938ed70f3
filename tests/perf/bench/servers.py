"""The brokers under test, one process each, all started, timed and ended in the same way.

A server's directory holds its files and, in data/, its log. Nothing here outlives the thread that started it.
"""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from interop.apache_broker import ApacheBroker
from interop.apache_kafka import JVM as TEST_JVM
from interop.apache_kafka import KAFKA_VERSION, ROOT
from interop.broker_process import ask, free_ports
from perf.bench import process
from support.stock import STOCK

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.config.properties import parse
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

START_S = 120.0
STOP_S = 60.0
POLL_S = 0.002
LATEST = -1
KFAKE_SOURCE = Path(__file__).resolve().parent / "kfake"

# config/server.properties of the 4.3 distribution, but for addresses and directories.
STOCK_PROPERTIES = {
    **{key: entry.value for key, entry in parse(STOCK).entries.items() if key != "controller.quorum.bootstrap.servers"},
    # Not stock: deleted topics leave the disk between two workloads, and not a minute later in the midst of one.
    "log.segment.delete.delay.ms": "100",
}

# What kafka-server-start and kafka-run-class give to the JVM, the log of collections among it.
STOCK_JVM = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


class UnavailableError(Exception):
    """A server that this machine cannot run; the text says why."""


class Server(ABC):
    """A broker in `directory`, which it may find formatted and full."""

    name: ClassVar[str]
    label: ClassVar[str]
    persistent: ClassVar[bool] = True
    """Whether it keeps its data over a restart."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.ports = free_ports()
        self.address = f"127.0.0.1:{self.ports[0]}"
        self.properties: Mapping[str, str] = {}  # on top of the stock ones
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abstractmethod
    def check(cls) -> None:
        """Fetch and build what it takes; UnavailableError if that cannot be had here."""

    @abstractmethod
    def format(self, config: Path) -> None:
        """Make the directory a node's."""

    @abstractmethod
    def command(self, config: Path) -> Sequence[str]: ...

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.label} is not running"
        return self._process.pid

    def prepare(self) -> None:
        """An empty directory, formatted."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.format(self._write_config())

    def start(self, topic: str | None = None, partitions: int = 0) -> float:
        """Seconds from the spawn to the first good Metadata, and if a topic is named, until all of it is served."""
        began = self.spawn()
        self.wait(lambda: self._serves(topic, partitions), "is not ready")
        return time.monotonic() - began

    def spawn(self) -> float:
        """When it began, by the monotonic clock."""
        command = [*self.command(self._config)]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with (self.directory / "server.out").open("ab") as out:
            began = time.monotonic()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        return began

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            finally:
                self.kill()

    def kill(self) -> None:
        """kill -9."""
        running, self._process = self._process, None
        if running is not None:
            running.kill()
            running.wait()

    def cpu_s(self) -> float:
        return process.cpu_s(self.pid)

    def memory(self) -> process.Memory:
        return process.memory(self.pid)

    def ask(self, request: Message, version: int | None = None) -> Any:
        return ask(self.address, request, version, timeout_s=START_S)

    def create_topic(self, name: str, partitions: int = 1) -> Uuid:
        """A topic whose every partition is served (and has its directory)."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        created = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics[0]
        assert created.error_code == ErrorCode.NONE, f"{self.label} refuses to create {name}: {created}"
        self.wait(lambda: self.has_directories(name, partitions) and self._serves(name, partitions), f"does not serve {name}")
        return Uuid(bytes(created.topic_id))

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=60_000)
        deleted = self.ask(request).responses[0]
        assert deleted.error_code == ErrorCode.NONE, f"{self.label} refuses to delete {name}: {deleted}"
        self.wait(lambda: self.has_directories(name, 0), f"does not delete {name}")

    def end_offsets(self, topic: str, partitions: int) -> list[tuple[int, int]]:
        """(error code, end offset) of each partition, from the log itself."""
        rows = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in range(partitions)]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=rows)], timeout_ms=30_000
        )
        return [(row.error_code, row.offset) for row in self.ask(request, 9).topics[0].partitions]

    def last_words(self) -> str:
        files = sorted(path for path in self.directory.iterdir() if path.suffix in {".out", ".log"})
        return "".join(f"-- {path}\n{path.read_text(errors='replace')[-4000:]}\n" for path in files)

    def _serves(self, topic: str | None, partitions: int) -> bool:
        try:
            names = [] if topic is None else [MetadataRequestTopic(name=topic)]
            metadata = self.ask(MetadataRequest(topics=names), 12)
            if not metadata.brokers:  # the controller still fences the broker
                return False
            if topic is None:
                return True
            found = metadata.topics[0]
            if found.error_code != ErrorCode.NONE or len(found.partitions) != partitions:
                return False
            if any(row.error_code != ErrorCode.NONE or row.leader_id < 0 for row in found.partitions):
                return False
            # Metadata names a leader before the log is open.
            return all(error == ErrorCode.NONE for error, _ in self.end_offsets(topic, partitions))
        except OSError:
            return False

    def has_directories(self, topic: str, partitions: int) -> bool:
        if not self.persistent:
            return True
        # A partition being deleted has its directory renamed, not cut off in front.
        return sum(path.name.startswith(f"{topic}-") for path in self.data_dir.iterdir()) == partitions

    def wait(self, condition: Any, problem: str) -> None:
        deadline = time.monotonic() + START_S
        while not condition():
            assert self._process is not None
            code = self._process.poll()
            assert code is None, f"{self.label} ended with exit code {code}:\n{self.last_words()}"
            assert time.monotonic() < deadline, f"{self.label} {problem} after {START_S} s:\n{self.last_words()}"
            time.sleep(POLL_S)

    @property
    def _config(self) -> Path:
        return self.directory / "server.properties"

    def _write_config(self) -> Path:
        broker_port, controller_port = self.ports
        listeners = f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}"
        own = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_dir),
        }
        self._config.write_text(
            "".join(f"{key}={value}\n" for key, value in (STOCK_PROPERTIES | own | self.properties).items())
        )
        return self._config


class ApacheKafka(Server):
    name = "apache"
    label = f"Apache Kafka {KAFKA_VERSION}"

    @classmethod
    def check(cls) -> None:
        try:
            ApacheBroker(Path("unused")).command  # noqa: B018
            from interop.apache_kafka import jars

            jars()
        except (pytest.skip.Exception, pytest.fail.Exception) as problem:
            raise UnavailableError(str(problem)) from None

    def format(self, config: Path) -> None:
        ApacheBroker(self.directory).format(config)

    def command(self, config: Path) -> Sequence[str]:
        collections = f"-Xlog:gc*:file={self.directory}/gc.log:time,tags:filecount=10,filesize=100M"
        harness = ApacheBroker(self.directory, jvm=(*STOCK_JVM, collections)).command(config)
        # The tests' own JVMs live for seconds and are told so.
        return [part for part in harness if part not in TEST_JVM]


class PyBroker(Server):
    name = "pybroker"
    label = "pybroker"

    @classmethod
    def check(cls) -> None:
        # As pip leaves a package, whatever PYTHONDONTWRITEBYTECODE says: a start is not to compile.
        compileall.compile_dir(ROOT / "pybroker", quiet=1)
        done = subprocess.run([*_PYBROKER, "start", "--help"], capture_output=True, text=True)
        if done.returncode != 0 or "--format-if-needed" not in done.stdout:
            raise UnavailableError("`pybroker start` cannot serve yet")

    def format(self, config: Path) -> None:
        command = [*_PYBROKER, "storage", "format", "-t", "pybroker-bench-0000000", "-c", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"

    def command(self, config: Path) -> Sequence[str]:
        return (*_PYBROKER, "start", str(config))


_PYBROKER = (str(Path(sys.executable).with_name("pybroker")),)


class Kfake(Server):
    name = "kfake"
    label = "kfake (in memory)"
    persistent = False

    _binary = ROOT / "build" / "bench" / "kfake"

    @classmethod
    def check(cls) -> None:
        if shutil.which("go") is None:
            raise UnavailableError("go is not installed")
        cls._binary.parent.mkdir(parents=True, exist_ok=True)
        command = ["go", "build", "-o", str(cls._binary), "."]
        done = subprocess.run(command, cwd=KFAKE_SOURCE, capture_output=True, text=True)
        if done.returncode != 0:
            raise UnavailableError(f"go build failed: {done.stderr.strip().splitlines()[-1]}")

    def format(self, config: Path) -> None:
        """There is nothing to format."""

    def command(self, config: Path) -> Sequence[str]:
        return (str(self._binary), str(self.ports[0]))


SERVERS: tuple[type[Server], ...] = (ApacheKafka, PyBroker, Kfake)
