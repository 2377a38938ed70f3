"""What the jobs ask of a cluster: Spark's source and sink with their options, and a few questions to Kafka's admin client.

The admin client is the one in the connector's jars, driven through the driver's JVM. It turns a missing topic or a cluster out
of reach into one line before Spark starts, which would retry for minutes first.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError

from spark_jobs.errors import Begun, JobError, explain
from spark_jobs.summary import TopicPartition

CONNECT_S = 5.0
ASK_MS = 15_000
HEADERS_TYPE = "array<struct<key: string, value: binary>>"


class Kafka:
    """`options` are those of Kafka's clients, without Spark's `kafka.` before them."""

    def __init__(
        self, spark: Any, bootstrap_servers: str, options: Mapping[str, str] | None = None, begun: Begun | None = None
    ) -> None:
        self.spark = spark
        self.bootstrap_servers = bootstrap_servers
        self.options = dict(options or {})
        self._begun = begun or Begun()

    def check_reachable(self) -> None:
        """One address that takes connections is enough, as for any client."""
        problems = []
        for address in self.bootstrap_servers.split(","):
            host, colon, port = address.strip().rpartition(":")
            if not colon or not port.isdigit():
                raise JobError(f"--bootstrap-servers has {address!r}; expected host:port, several separated by commas")
            try:
                socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
                return
            except (OSError, OverflowError) as error:
                problems.append(
                    f"{address.strip()} ({error.strerror if isinstance(error, OSError) and error.strerror else error})"
                )
        raise JobError(f"no broker can be reached at {', '.join(problems)}; check --bootstrap-servers and that it runs")

    def read(self, options: Mapping[str, str]) -> Any:
        return self.spark.read.format("kafka").options(**self._source_options(options)).load()

    def read_stream(self, options: Mapping[str, str]) -> Any:
        return self.spark.readStream.format("kafka").options(**self._source_options(options)).load()

    def sink_options(self, compression: str | None = None) -> dict[str, str]:
        options = self._client_options()
        if compression is not None:
            options["kafka.compression.type"] = compression
        return options

    def _source_options(self, options: Mapping[str, str]) -> dict[str, str]:
        return self._client_options() | {"includeHeaders": "true"} | dict(options)

    def _client_options(self) -> dict[str, str]:
        named = {f"kafka.{key}": value for key, value in self.options.items()}
        return {"kafka.bootstrap.servers": self.bootstrap_servers} | named

    def topics(self) -> list[str]:
        with self._admin() as admin:
            return sorted(map(str, admin.listTopics().names().get()))

    def require_topics(self, topics: Iterable[str]) -> None:
        present = self.topics()
        missing = [topic for topic in topics if topic not in present]
        if missing:
            known = ", ".join(present[:10]) + (", …" if len(present) > 10 else "") or "none"
            raise JobError(f"topic {missing[0]} does not exist; the cluster has: {known}")

    def prepare_target(self, topic: str, partitions: int | None = None) -> None:
        """See to it that `topic` can be written to: it is there, or is created here with `partitions`, or by the broker."""
        if topic in self.topics():
            return
        with self._admin() as admin:
            if partitions is not None:
                jvm = self.spark._jvm
                empty = jvm.java.util.Optional.empty()
                new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, jvm.java.util.Optional.of(partitions), empty)
                try:
                    admin.createTopics([new]).all().get()
                except Py4JJavaError as error:
                    raise JobError(f"topic {topic} could not be created: {explain(error)}") from None
                self._begun.mark()
            elif not self._creates_topics(admin):
                raise JobError(
                    f"topic {topic} does not exist and the broker does not create topics; create it, or pass --create N"
                )

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Those of the topics that exist."""
        present = set(self.topics())
        wanted = [topic for topic in topics if topic in present]
        with self._admin() as admin:
            described = admin.describeTopics(wanted).allTopicNames().get()
            return sorted((topic, int(row.partition())) for topic in wanted for row in described[topic].partitions())

    def offsets(
        self, partitions: Iterable[TopicPartition], where: str = "latest", isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """The first offset of each (`earliest`), or the next one (`latest`), with `read_committed` before open transactions."""
        jvm = self.spark._jvm
        kinds = jvm.org.apache.kafka.clients.admin
        level = getattr(jvm.org.apache.kafka.common.IsolationLevel, isolation.upper())
        asked = jvm.java.util.HashMap()
        for topic, partition in partitions:
            spec = kinds.OffsetSpec.earliest() if where == "earliest" else kinds.OffsetSpec.latest()
            asked[jvm.org.apache.kafka.common.TopicPartition(topic, partition)] = spec
        with self._admin() as admin:
            found = admin.listOffsets(asked, kinds.ListOffsetsOptions(level)).all().get()
            return {(at.topic(), at.partition()): found[at].offset() for at in asked}

    def end_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """The next offset of every partition of those topics that exist."""
        return self.offsets(self.partitions(topics))

    def _creates_topics(self, admin: Any) -> bool:
        config = self.spark._jvm.org.apache.kafka.common.config
        try:
            node = admin.describeCluster().nodes().get().iterator().next()
            resource = config.ConfigResource(config.ConfigResource.Type.BROKER, node.idString())
            found = admin.describeConfigs([resource]).all().get().get(resource)
            return str(found.get("auto.create.topics.enable").value()) == "true"
        except Py4JJavaError:
            return True  # a client may be forbidden to look; then the sink will tell

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        properties = self.spark._jvm.java.util.HashMap()
        for key, value in self.options.items():
            properties[key] = value
        properties["bootstrap.servers"] = self.bootstrap_servers
        properties["request.timeout.ms"] = str(ASK_MS)
        properties["default.api.timeout.ms"] = str(ASK_MS)
        admin = None
        try:
            admin = self.spark._jvm.org.apache.kafka.clients.admin.Admin.create(properties)
            yield admin
        except Py4JJavaError as error:
            raise JobError(f"the cluster at {self.bootstrap_servers} did not answer: {explain(error)}") from None
        finally:
            if admin is not None:
                admin.close()


def offsets_of(text: str | None) -> dict[TopicPartition, int]:
    """From the JSON that Spark states offsets in: {"topic": {"0": 12}}."""
    if not text:
        return {}
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def offsets_json(offsets: Mapping[TopicPartition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)
