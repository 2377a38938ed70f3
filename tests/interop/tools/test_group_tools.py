"""kafka-consumer-groups and kafka-groups against the node: the same words as against Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from interop.apache_kafka import TOPIC_COMMAND
from interop.tools.both import Both, Said
from support.waiting import wait_until

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MEMBER = re.compile(r"(?<=[ ])[A-Za-z0-9+/_-]{22}(?=[ ])")  # an id that a member has chosen
_RECORDS = 60


def rows(said: Said) -> list[list[str]]:
    """The words of each line, in any order: the tools align columns by the longest value.

    Of groups that the test made: kafka-consumer-perf-test, of another module, draws the name of its own.
    """
    lines = [line for line in said.stdout.splitlines() if line.strip() and not line.startswith("perf-consumer-")]
    return sorted(_MEMBER.sub("MEMBER", _UUID.sub("UUID", line)).split() for line in lines)


def errors(said: Said) -> list[str]:
    return [line for line in said.stderr.splitlines() if "perf-consumer-" not in line]


def same_rows(both: Both, *args: str, main_class: str = CONSUMER_GROUPS) -> list[list[str]]:
    found: list[Said] = []

    def are_same() -> bool:
        found[:] = both.run(main_class, *args)
        return rows(found[0]) == rows(found[1]) and errors(found[0]) == errors(found[1])

    wait_until(are_same, 10, lambda: f"{found[0]}\n{found[1]}")
    # The tools end with 0 whatever they have to say.
    assert found[0].exit_code == found[1].exit_code == 0, found
    return rows(found[1])


def topic_with_records(both: Both, topic: str, partitions: int = 3) -> None:
    # Its records are old: without this they are deleted as soon as a broker has run for half a minute.
    both.same(TOPIC_COMMAND, "--create", "--topic", topic, "--partitions", str(partitions), "--config", "retention.ms=-1")
    kafka = pytest.importorskip("kafka")
    for broker in both.brokers:
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
        for number in range(_RECORDS):
            producer.send(topic, b"value %d" % number, partition=number % partitions, timestamp_ms=1_700_000_000_000 + number)
        producer.flush()
        producer.close()


@contextmanager
def consumers(both: Both, topic: str, group: str, **options: Any) -> Iterator[list[Any]]:
    """One on each side, with an assignment, and everything read and committed."""
    kafka = pytest.importorskip("kafka")
    with ExitStack() as stack:
        running = []
        for broker in both.brokers:
            consumer = kafka.KafkaConsumer(
                topic,
                bootstrap_servers=broker.bootstrap,
                group_id=group,
                client_id="tool-test",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **options,
            )
            stack.callback(consumer.close)
            read_all(consumer)
            running.append(consumer)
        yield running


def read_all(consumer: Any) -> None:
    seen = 0

    def poll() -> bool:
        nonlocal seen
        seen += sum(map(len, consumer.poll(timeout_ms=200).values()))
        return seen >= _RECORDS

    wait_until(poll, 30, lambda: f"{seen} of {_RECORDS} records are read")
    consumer.commit()


@pytest.fixture(scope="module")
def read(both: Both) -> Both:
    """A topic that group "tools-read" has read to the end."""
    topic_with_records(both, "tools-groups")
    with consumers(both, "tools-groups", "tools-read"):
        pass
    return both


def test_groups_are_listed(read: Both) -> None:
    assert ["tools-read"] in same_rows(read, "--list")
    same_rows(read, "--list", "--state")
    same_rows(read, "--list", "--state", "Empty")
    same_rows(read, "--list", "--type")
    same_rows(read, "--list", "--type", "classic")
    same_rows(read, "--list", main_class=GROUPS)
    same_rows(read, "--list", "--group-type", "classic", "--protocol", "consumer", main_class=GROUPS)


def test_a_group_without_members_is_described(read: Both) -> None:
    described = same_rows(read, "--describe", "--group", "tools-read")
    assert len(described) == 4  # the head and three partitions
    same_rows(read, "--describe", "--group", "tools-read", "--members")
    same_rows(read, "--describe", "--group", "tools-read", "--state")
    same_rows(read, "--describe", "--group", "tools-read", "--offsets", "--verbose")


def test_a_group_that_is_not_there_is_described(both: Both) -> None:
    same_rows(both, "--describe", "--group", "tools-nobody")


def test_a_group_with_members_is_described(both: Both) -> None:
    topic_with_records(both, "tools-members")
    with consumers(both, "tools-members", "tools-live"):
        described = same_rows(both, "--describe", "--group", "tools-live")
        assert sum(row[0] == "tools-live" for row in described) == 3
        assert same_rows(both, "--describe", "--group", "tools-live", "--members", "--verbose")
        assert same_rows(both, "--describe", "--group", "tools-live", "--state", "--verbose")
        same_rows(both, "--reset-offsets", "--group", "tools-live", "--topic", "tools-members", "--to-earliest", "--execute")
        same_rows(both, "--delete", "--group", "tools-live")
        same_rows(both, "--delete-offsets", "--group", "tools-live", "--topic", "tools-members")


def test_a_consumer_group_is_described(both: Both) -> None:
    """One of the KIP-848 protocol: its members choose their ids."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    topic_with_records(both, "tools-kip848")
    with ExitStack() as stack:
        for broker in both.brokers:
            consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "group.id": "tools-consumers",
                    "client.id": "tool-test",
                    "group.protocol": "consumer",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            stack.callback(consumer.close)
            consumer.subscribe(["tools-kip848"])
            seen = 0
            while seen < _RECORDS:
                records = consumer.consume(_RECORDS, 10)
                assert records, f"{seen} of {_RECORDS} records are read"
                seen += len(records)
            consumer.commit(asynchronous=False)
        described = same_rows(both, "--describe", "--group", "tools-consumers")
        assert sum(row[0] == "tools-consumers" for row in described) == 3
        assert same_rows(both, "--describe", "--group", "tools-consumers", "--members", "--verbose")
        assert same_rows(both, "--describe", "--group", "tools-consumers", "--state", "--verbose")
        assert ["tools-consumers", "Stable"] in same_rows(both, "--list", "--state", "Stable")
        assert ["tools-consumers", "Consumer"] in same_rows(both, "--list", "--type", "consumer")
        same_rows(both, "--delete", "--group", "tools-consumers")
        refused = same_rows(both, "--delete-offsets", "--group", "tools-consumers", "--topic", "tools-kip848")
        assert any("subscribed" in word for row in refused for word in row), refused
        scope = ("--group", "tools-consumers", "--topic", "tools-kip848")
        before = same_rows(both, "--describe", "--group", "tools-consumers")
        same_rows(both, "--reset-offsets", *scope, "--to-earliest", "--execute")
        assert same_rows(both, "--describe", "--group", "tools-consumers") == before, "of a live group nothing is reset"
    same_rows(both, "--describe", "--group", "tools-consumers", "--state")
    same_rows(both, "--delete-offsets", "--group", "tools-consumers", "--topic", "tools-kip848:1")
    assert sum(row[0] == "tools-consumers" for row in same_rows(both, "--describe", "--group", "tools-consumers")) == 2
    same_rows(both, "--reset-offsets", "--group", "tools-consumers", "--topic", "tools-kip848", "--to-earliest", "--execute")
    same_rows(both, "--delete", "--group", "tools-consumers")


@pytest.mark.parametrize(
    "how",
    [
        ["--to-earliest"],
        ["--to-latest"],
        ["--to-current"],
        ["--to-offset", "7"],
        ["--to-offset", "700"],
        ["--shift-by", "-5"],
        ["--shift-by", "5"],
        ["--to-datetime", "2023-11-14T22:13:20.030"],
        ["--by-duration", "P0DT1H0M0S"],
        ["--by-duration", "P3650D"],  # before the first record
    ],
    ids=" ".join,
)
def test_offsets_are_reset_in_every_way(read: Both, how: list[str]) -> None:
    scope = ("--group", "tools-read", "--topic", "tools-groups")
    planned = same_rows(read, "--reset-offsets", *scope, *how, "--dry-run")
    assert same_rows(read, "--reset-offsets", *scope, *how, "--execute") == planned
    same_rows(read, "--describe", "--group", "tools-read")


def test_offsets_are_reset_from_a_file_and_for_one_partition(read: Both, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("tools-groups,0,3\ntools-groups,2,4\n")
    same_rows(read, "--reset-offsets", "--group", "tools-read", "--from-file", str(file), "--execute")
    same_rows(read, "--reset-offsets", "--group", "tools-read", "--topic", "tools-groups:1", "--to-offset", "2", "--execute")
    described = same_rows(read, "--describe", "--group", "tools-read")
    assert {row[2]: row[3] for row in described if row[0] == "tools-read"} == {"0": "3", "1": "2", "2": "4"}


def test_a_plan_is_exported_tried_out_and_carried_out(read: Both, tmp_path: Path) -> None:
    scope = ("--reset-offsets", "--group", "tools-read", "--topic", "tools-groups")
    exported = same_rows(read, *scope, "--to-offset", "5", "--export", "--dry-run")
    assert exported == [["tools-groups,0,5"], ["tools-groups,1,5"], ["tools-groups,2,5"]]
    file = tmp_path / "plan.csv"
    file.write_text("".join(f"{row[0]}\n" for row in exported))
    before = same_rows(read, "--describe", "--group", "tools-read")
    planned = same_rows(read, "--reset-offsets", "--group", "tools-read", "--from-file", str(file), "--dry-run")
    assert same_rows(read, "--describe", "--group", "tools-read") == before, "it was tried out only"
    assert same_rows(read, "--reset-offsets", "--group", "tools-read", "--from-file", str(file), "--execute") == planned
    described = same_rows(read, "--describe", "--group", "tools-read")
    assert {row[2]: row[3] for row in described if row[0] == "tools-read"} == {"0": "5", "1": "5", "2": "5"}


def test_offsets_of_all_topics_and_of_all_groups_are_reset(read: Both) -> None:
    topic_with_records(read, "tools-other", partitions=1)
    for topic in ("tools-groups", "tools-other"):
        scope = ("--group", "tools-several", "--topic", topic)
        same_rows(read, "--reset-offsets", *scope, "--to-latest", "--execute")
    same_rows(read, "--reset-offsets", "--group", "tools-several", "--all-topics", "--to-offset", "3", "--execute")
    described = same_rows(read, "--describe", "--group", "tools-several")
    assert [row[3] for row in described if row[0] == "tools-several"] == ["3"] * 4
    planned = same_rows(read, "--reset-offsets", "--all-groups", "--topic", "tools-other", "--to-offset", "4", "--dry-run")
    assert {row[0] for row in planned} >= {"tools-several", "tools-read"}
    same_rows(read, "--reset-offsets", "--all-groups", "--topic", "tools-other", "--to-offset", "4", "--execute")
    described = same_rows(read, "--describe", "--group", "tools-several", "--offsets")
    assert [row[3] for row in described if row[1] == "tools-other"] == ["4"]
    same_rows(read, "--describe", "--all-groups", "--state")
    same_rows(read, "--delete", "--group", "tools-several")


def test_a_group_that_never_was_gets_its_first_offsets_by_a_reset(read: Both) -> None:
    scope = ("--group", "tools-fresh", "--topic", "tools-groups")
    same_rows(read, "--reset-offsets", *scope, "--to-latest", "--execute")
    same_rows(read, "--describe", "--group", "tools-fresh")


def test_offsets_and_groups_are_deleted(read: Both) -> None:
    scope = ("--group", "tools-doomed", "--topic", "tools-groups")
    same_rows(read, "--reset-offsets", *scope, "--to-earliest", "--execute")
    same_rows(read, "--delete-offsets", "--group", "tools-doomed", "--topic", "tools-groups:1")
    assert sum(row[0] == "tools-doomed" for row in same_rows(read, "--describe", "--group", "tools-doomed")) == 2
    same_rows(read, "--delete", "--group", "tools-doomed")
    same_rows(read, "--delete", "--group", "tools-doomed")
    assert ["tools-doomed"] not in same_rows(read, "--list")


def test_members_of_static_groups_are_shown_with_their_instance(both: Both) -> None:
    topic_with_records(both, "tools-static")
    with consumers(both, "tools-static", "tools-static", group_instance_id="instance-1"):
        described = same_rows(both, "--describe", "--group", "tools-static", "--members", "--verbose")
        assert any("instance-1" in row for row in described)
