"""kafka-topics, kafka-configs, kafka-get-offsets, kafka-delete-records, kafka-log-dirs, kafka-cluster and
kafka-broker-api-versions against the node: they say what they say of Apache Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from interop.apache_kafka import DELETE_RECORDS_COMMAND, GET_OFFSET_SHELL, TOPIC_COMMAND
from interop.broker_process import CLUSTER_ID
from interop.tools.both import BROKER_API_VERSIONS, CLUSTER_TOOL, CONFIG_COMMAND, LOG_DIRS_COMMAND, Both, Said
from support.batches import batch

from pybroker.protocol.api_table import APIS
from pybroker.protocol.messages.api_versions import ApiVersionsRequest
from pybroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

T0 = 1_790_000_000_000


def topics(both: Both, *args: str, exit_code: int = 0) -> Said:
    return both.same(TOPIC_COMMAND, *args, exit_code=exit_code)


def configs(both: Both, *args: str, exit_code: int = 0) -> Said:
    return both.same(CONFIG_COMMAND, *args, exit_code=exit_code)


def write(both: Both, topic: str, count: int, partition: int = 0, *, partitions: int) -> None:
    data = batch([b"value"] * count, timestamps=[T0 + number for number in range(count)])
    for broker in both.brokers:
        broker.wait_for_leaders(topic, partitions)
        row = PartitionProduceData(index=partition, records=data)
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[row])])
        (written,) = broker.ask(request, 12).responses[0].partition_responses
        assert written.error_code == 0, written


class TestTopics:
    def test_a_topic_from_its_making_to_its_end(self, both: Both) -> None:
        assert topics(both, "--create", "--topic", "tools-life", "--partitions", "2", "--replication-factor", "1").stdout
        described = topics(both, "--describe", "--topic", "tools-life").stdout
        assert "PartitionCount: 2" in described
        assert "Leader: 1" in described
        topics(both, "--alter", "--topic", "tools-life", "--partitions", "5")
        assert "PartitionCount: 5" in topics(both, "--describe", "--topic", "tools-life").stdout
        topics(both, "--delete", "--topic", "tools-life")
        topics(both, "--describe", "--topic", "tools-life", exit_code=1)

    def test_list(self, both: Both) -> None:
        for name in ("tools-list-a", "tools-list-b"):
            topics(both, "--create", "--topic", name)
        apache, node = both.run(TOPIC_COMMAND, "--list")
        assert node.lines("tools-list") == apache.lines("tools-list") == ["tools-list-a", "tools-list-b"]
        assert topics(both, "--list", "--topic", "tools-list-.*").lines() == ["tools-list-a", "tools-list-b"]

    def test_configs_of_a_new_topic(self, both: Both) -> None:
        topics(both, "--create", "--topic", "tools-conf", "--config", "retention.ms=5000", "--config", "cleanup.policy=compact")
        assert "retention.ms=5000" in topics(both, "--describe", "--topic", "tools-conf").stdout
        assert topics(both, "--describe", "--topic", "tools-conf", "--topics-with-overrides").stdout

    def test_given_replicas(self, both: Both) -> None:
        topics(both, "--create", "--topic", "tools-assigned", "--replica-assignment", "1,1,1")
        assert "PartitionCount: 3" in topics(both, "--describe", "--topic", "tools-assigned").stdout

    @pytest.mark.parametrize("state", ["under-replicated", "unavailable", "under-min-isr", "at-min-isr"])
    def test_partitions_in_a_state(self, both: Both, state: str) -> None:
        topics(both, "--create", "--if-not-exists", "--topic", "tools-state")
        topics(both, "--describe", "--topic", "tools-state", f"--{state}-partitions")

    @pytest.mark.parametrize(
        "args",
        [
            ("--create", "--topic", "no/such"),
            ("--create", "--topic", "tools-refused", "--replication-factor", "2"),
            ("--create", "--topic", "tools-refused", "--partitions", "0"),
            ("--create", "--topic", "tools-refused", "--config", "retention.ms=soon"),
            ("--create", "--topic", "tools-refused", "--replica-assignment", "9"),
            ("--alter", "--topic", "tools-nobody", "--partitions", "2"),
            ("--delete", "--topic", "tools-nobody"),
        ],
        ids=lambda args: " ".join(args),
    )
    def test_refused(self, both: Both, args: tuple[str, ...]) -> None:
        apache, node = both.run(TOPIC_COMMAND, *args)
        assert node.exit_code == apache.exit_code == 1
        # The words of the refusal are a broker's own; the exception that they become is not.
        assert exceptions(node) == exceptions(apache)

    def test_a_topic_that_is_there(self, both: Both) -> None:
        topics(both, "--create", "--topic", "tools-there")
        topics(both, "--create", "--topic", "tools-there", "--if-not-exists")
        apache, node = both.run(TOPIC_COMMAND, "--create", "--topic", "tools-there")
        assert node.exit_code == apache.exit_code == 1
        assert exceptions(node) == exceptions(apache)


def exceptions(said: Said) -> list[str]:
    return re.findall(r"\b\w+Exception\b", said.stdout + said.stderr)


class TestConfigs:
    def test_a_topic(self, both: Both) -> None:
        topics(both, "--create", "--topic", "tools-alter")
        of = ("--entity-type", "topics", "--entity-name", "tools-alter")
        configs(both, *of, "--alter", "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
        assert "retention.ms=5000" in configs(both, *of, "--describe").stdout
        configs(both, *of, "--alter", "--delete-config", "retention.ms")
        assert "retention.ms" not in configs(both, *of, "--describe").stdout

    def test_everything_of_a_topic(self, both: Both) -> None:
        topics(both, "--create", "--topic", "tools-all")
        apache, node = both.run(CONFIG_COMMAND, "--entity-type", "topics", "--entity-name", "tools-all", "--describe", "--all")
        assert node.lines() == apache.lines()

    @pytest.mark.parametrize("entity", [("--entity-name", "1"), ("--entity-default",)], ids=" ".join)
    def test_brokers(self, both: Both, entity: tuple[str, ...]) -> None:
        of = ("--entity-type", "brokers", *entity)
        configs(both, *of, "--alter", "--add-config", "log.cleaner.threads=2")
        assert "log.cleaner.threads=2" in configs(both, *of, "--describe").stdout
        configs(both, *of, "--alter", "--delete-config", "log.cleaner.threads")
        assert "log.cleaner.threads=2" not in configs(both, *of, "--describe").stdout

    def test_everything_of_a_broker(self, both: Both) -> None:
        apache, node = both.run(CONFIG_COMMAND, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
        ports = re.compile(r"127\.0\.0\.1:\d+")  # the controllers' too
        assert [ports.sub("", line) for line in node.lines()] == [ports.sub("", line) for line in apache.lines()]

    def test_loggers_of_the_broker(self, both: Both) -> None:
        of = ("--entity-type", "broker-loggers", "--entity-name", "1")
        for run in both.run(CONFIG_COMMAND, *of, "--describe"):  # each has its own
            assert run.exit_code == 0
            assert "root=" in run.stdout
        configs(both, *of, "--alter", "--add-config", "root=WARN")
        for run in both.run(CONFIG_COMMAND, *of, "--describe"):
            assert "root=WARN" in run.stdout
        configs(both, *of, "--alter", "--add-config", "root=INFO")

    @pytest.mark.parametrize(
        "args",
        [
            ("--entity-type", "topics", "--entity-name", "tools-nobody", "--alter", "--add-config", "retention.ms=1"),
            ("--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config", "num.io.threads=many"),
            ("--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config", "node.id=7"),
            ("--entity-type", "broker-loggers", "--entity-name", "1", "--alter", "--add-config", "root=LOUD"),
        ],
        ids=lambda args: f"{args[1]} {args[-1]}",
    )
    def test_refused(self, both: Both, args: tuple[str, ...]) -> None:
        apache, node = both.run(CONFIG_COMMAND, *args)
        assert node.exit_code == apache.exit_code == 1
        assert exceptions(node) == exceptions(apache)


@pytest.fixture(scope="module")
def written(both: Both) -> str:
    """A topic with 10, 0 and 4 records in its partitions."""
    topics(both, "--create", "--topic", "tools-offsets", "--partitions", "3")
    write(both, "tools-offsets", 10, 0, partitions=3)
    write(both, "tools-offsets", 4, 2, partitions=3)
    return "tools-offsets"


class TestOffsets:
    @pytest.mark.parametrize("time", ["latest", "earliest", "max-timestamp", "earliest-local", str(T0 + 3), str(T0 + 99)])
    def test_by_time(self, both: Both, written: str, time: str) -> None:
        said = both.same(GET_OFFSET_SHELL, "--topic", written, "--time", time)
        assert written in said.stdout or time == str(T0 + 99)

    def test_by_partitions(self, both: Both, written: str) -> None:
        said = both.same(GET_OFFSET_SHELL, "--topic-partitions", f"{written}:1-3", "--exclude-internal-topics")
        assert said.lines() == [f"{written}:1:0", f"{written}:2:4"]

    def test_an_unknown_topic(self, both: Both) -> None:
        both.same(GET_OFFSET_SHELL, "--topic", "tools-nobody", exit_code=1)

    def test_records_are_deleted(self, both: Both, tmp_path: Path) -> None:
        topics(both, "--create", "--topic", "tools-delete", "--partitions", "2")
        write(both, "tools-delete", 10, partitions=2)
        wanted = [
            {"topic": "tools-delete", "partition": 0, "offset": 6},
            {"topic": "tools-delete", "partition": 1, "offset": 0},
        ]
        file = tmp_path / "offsets.json"
        file.write_text(json.dumps({"partitions": wanted, "version": 1}))
        apache, node = both.run(DELETE_RECORDS_COMMAND, "--offset-json-file", str(file))
        assert node.lines() == apache.lines()
        earliest = both.same(GET_OFFSET_SHELL, "--topic", "tools-delete", "--time", "earliest")
        assert earliest.lines() == ["tools-delete:0:6", "tools-delete:1:0"]

    def test_too_many_records_are_not_deleted(self, both: Both, tmp_path: Path, written: str) -> None:
        file = tmp_path / "offsets.json"
        file.write_text(json.dumps({"partitions": [{"topic": written, "partition": 0, "offset": 99}], "version": 1}))
        apache, node = both.run(DELETE_RECORDS_COMMAND, "--offset-json-file", str(file))
        assert node.exit_code == apache.exit_code
        assert exceptions(node) == exceptions(apache)


def test_log_dirs(both: Both) -> None:
    topics(both, "--create", "--topic", "tools-dirs", "--partitions", "2")
    write(both, "tools-dirs", 10, partitions=2)
    apache, node = both.run(LOG_DIRS_COMMAND, "--describe", "--topic-list", "tools-dirs", "--broker-list", "1")
    assert node.exit_code == apache.exit_code == 0
    found = [json.loads(said.stdout.splitlines()[-1])["brokers"] for said in (apache, node)]
    for broker in (brokers[0] for brokers in found):
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda row: row["partition"])
            assert len(directory["partitions"]) == 2
    assert found[1] == found[0]


def test_the_cluster_has_its_id_and_endpoints(both: Both) -> None:
    answers = [both.tools.run(CLUSTER_TOOL, "cluster-id", "--bootstrap-server", broker.bootstrap) for broker in both.brokers]
    assert answers[0] == answers[1]
    assert CLUSTER_ID in answers[0].stdout
    endpoints = [
        both.tools.run(CLUSTER_TOOL, "list-endpoints", "--bootstrap-server", broker.bootstrap) for broker in both.brokers
    ]
    shown = [re.sub(r"\d{5}", "PORT", run.stdout) for run in endpoints]
    assert shown[0] == shown[1]


def test_what_is_served(both: Both) -> None:
    """Of every API that the node advertises, the same versions as Apache Kafka's, by name."""
    answer = both.brokers[1].ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
    names = {api.name for api in APIS if api.key in {row.api_key for row in answer.api_keys}}
    assert {"Produce", "Fetch", "Metadata", "CreateTopics"} <= names
    apache, node = both.run(BROKER_API_VERSIONS)
    rows = [
        {line.split("(")[0].strip(): line.strip(" \t,") for line in said.stdout.splitlines() if "):" in line}
        for said in (apache, node)
    ]
    for name in sorted(names):
        assert rows[1][name] == rows[0][name]
