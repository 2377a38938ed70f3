"""A real Apache Kafka broker on loopback: one KRaft node that is controller and broker at once, unless `process.roles` says
otherwise, from the jars in build/. What can be asked of it is in broker_process.py.

The first start takes about three seconds with the formatting, a start after a clean stop two, one after a kill five (until
its old session is over), a clean stop half a second. It never outlives the thread that started it. Everything it says is in
`log_file`. Kafka rolls and deletes segments by the records' timestamps: produce with those of today.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from interop.apache_kafka import JVM, ROOT, STORAGE_TOOL, apache_tool, jars
from interop.broker_process import CLUSTER_ID, BrokerProcess

from pybroker.base.ids import Uuid, uuid_from_text, uuid_to_text

_LOG4J2 = """\
status=error
appender.file.type=File
appender.file.name=file
appender.file.fileName=${sys:broker.log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


class ApacheBroker(BrokerProcess):
    NAME = "Apache Kafka"
    STOPPED = 128 + signal.SIGTERM

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        ports: tuple[int, int] | None = None,
        format_options: Sequence[str] = (),
        jvm: Sequence[str] = ("-Xmx512m",),
    ) -> None:
        super().__init__(directory, properties, ports=ports, format_options=format_options)
        self._jvm = tuple(jvm)

    def format(self, config: Path) -> None:
        run = apache_tool(STORAGE_TOOL, "format", "--cluster-id", CLUSTER_ID, "--config", str(config), *self.format_options)
        assert run.exit_code == 0, run

    def command(self, config: Path) -> Sequence[str]:
        log4j2 = self.directory / "log4j2.properties"
        log4j2.write_text(_LOG4J2)
        return (
            *("java", *JVM, *self._jvm, f"-Dbroker.log={self.log_file}", f"-Dlog4j2.configurationFile={log4j2}"),
            *("-cp", _classpath(), "kafka.Kafka", str(config)),
        )

    def output(self) -> Path:
        return self.directory / "server.out"


def topic_id_of(partition_dir: Path) -> Uuid:
    """The topic id that partition.metadata states."""
    rows = dict(line.split(": ", 1) for line in (partition_dir / "partition.metadata").read_text().splitlines())
    assert rows["version"] == "0", rows
    return uuid_from_text(rows["topic_id"])


def partition_metadata(topic_id: Uuid) -> str:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}"


@cache
def _classpath() -> str:
    """Kafka's jars with log4j in place of the logger that says nothing."""
    (core,) = jars().glob("log4j-core-*.jar")
    version = core.stem.removeprefix("log4j-core-")
    folder = ROOT / "build" / "kafka-broker-logger"
    binding = folder / f"log4j-slf4j-impl-{version}.jar"
    if not binding.exists():
        artifact = f"org.apache.logging.log4j:log4j-slf4j-impl:{version}"
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=jars())
        if done.returncode != 0:
            pytest.fail(f"Maven could not fetch {artifact}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    others = sorted(path for path in jars().glob("*.jar") if not path.name.startswith("slf4j-nop"))
    return os.pathsep.join(map(str, (*others, binding)))
