"""The same tool run against Apache Kafka and against the node, and what each said, without what two brokers rightly differ
in: ports, directories, topic ids, keys of our own."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from interop.apache_kafka import ApacheTools, ToolRun, apache_tool
from interop.broker_process import BrokerProcess

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
FEATURE_COMMAND = "org.apache.kafka.tools.FeatureCommand"
ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
CLIENT_METRICS_COMMAND = "org.apache.kafka.tools.ClientMetricsCommand"
LOG_DIRS_COMMAND = "org.apache.kafka.tools.LogDirsCommand"
CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
BROKER_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"

_CATCH_UP_S = 3.0
_TOPIC_ID = re.compile(r"(TopicId: |topic id:? ?)[\w-]{22}", re.IGNORECASE)
_OUR_KEYS = re.compile(r"^ *pybroker\..*\n", re.MULTILINE)
_STACK = re.compile(r"^(\s+at .*|\s+\.\.\. \d+ more|Caused by: .*)\n?", re.MULTILINE)
_WHEN = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] ", re.MULTILINE)


class Said(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str

    def lines(self, part: str = "") -> list[str]:
        """The lines of stdout with `part` in them, in any order."""
        return sorted(line.strip() for line in self.stdout.splitlines() if part in line)


class Both:
    def __init__(self, tools: ApacheTools, apache: BrokerProcess, node: BrokerProcess) -> None:
        self.tools = tools
        self.brokers = (apache, node)

    def run(self, main_class: str, *args: str, server: str = "--bootstrap-server") -> tuple[Said, Said]:
        """In the JVM that all tools share; "{data}" in an argument is a broker's own directory, "{controller}" its
        controller's address."""
        apache, node = (
            _said(broker, self.tools.run(main_class, *([server, broker.bootstrap] if server else []), *_own(broker, args)))
            for broker in self.brokers
        )
        return apache, node

    def run_apart(self, main_class: str, *args: str, stdin: str = "") -> tuple[Said, Said]:
        """In JVMs of their own, for tools that read stdin or keep their state in statics."""

        def one(broker: BrokerProcess) -> Said:
            return _said(
                broker, apache_tool(main_class, "--bootstrap-server", broker.bootstrap, *_own(broker, args), stdin=stdin)
            )

        with ThreadPoolExecutor(2) as pool:
            apache, node = pool.map(one, self.brokers)
        return apache, node

    def same(self, main_class: str, *args: str, server: str = "--bootstrap-server", exit_code: int = 0) -> Said:
        """Both say the same and end with `exit_code`; what they said.

        Apache Kafka's brokers learn of a change a moment after the controller has answered: who only looks may look again."""
        apache, node = self.run(main_class, *args, server=server)
        deadline = time.monotonic() + _CATCH_UP_S
        while node != apache and {"--describe", "--list"} & set(args) and time.monotonic() < deadline:
            apache, node = self.run(main_class, *args, server=server)
        assert node == apache
        assert apache.exit_code == exit_code, apache
        return node


def _own(broker: BrokerProcess, args: tuple[str, ...]) -> list[str]:
    return [arg.replace("{data}", str(broker.data_dir)).replace("{controller}", broker.controller) for arg in args]


def _said(broker: BrokerProcess, run: ToolRun) -> Said:
    return Said(run.exit_code, _shown(broker, run.stdout), _shown(broker, run.stderr))


def _shown(broker: BrokerProcess, text: str) -> str:
    text = (
        text.replace(broker.bootstrap, "ADDRESS")
        .replace(broker.controller, "CONTROLLER")
        .replace(str(broker.directory), "DIRECTORY")
    )
    for pattern in (_WHEN, _STACK, _OUR_KEYS):
        text = pattern.sub("", text)
    return _TOPIC_ID.sub(r"\1ID", text)
