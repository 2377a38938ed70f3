"""kafka-console-producer, kafka-console-consumer, kafka-producer-perf-test and kafka-consumer-perf-test against the node."""

from __future__ import annotations

import re

from interop.apache_kafka import GET_OFFSET_SHELL, TOPIC_COMMAND
from interop.tools.both import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_PERFORMANCE,
    PRODUCER_PERFORMANCE,
    VERIFIABLE_PRODUCER,
    Both,
)

LINES = "".join(f"h:{number}\tk{number}\tvalue {number} ü\n" for number in range(20))


def test_what_the_console_producer_writes_the_console_consumer_reads(both: Both) -> None:
    both.same(TOPIC_COMMAND, "--create", "--topic", "tools-console")
    properties = ("parse.key=true", "parse.headers=true", "key.separator=\t")
    options = [word for row in properties for word in ("--reader-property", row)]
    for run in both.run_apart(
        CONSOLE_PRODUCER, "--topic", "tools-console", *options, "--compression-codec", "zstd", stdin=LINES
    ):
        assert (run.exit_code, run.stderr) == (0, "")
    shown = ("print.key=true", "print.offset=true", "print.partition=true", "print.headers=true", "print.epoch=true")
    options = [word for row in shown for word in ("--formatter-property", row)]
    position = ("--partition", "0", "--offset", "5", "--max-messages", "15", "--timeout-ms", "20000")
    apache, node = both.run_apart(CONSOLE_CONSUMER, "--topic", "tools-console", *position, *options)
    assert node == apache
    assert len(node.stdout.splitlines()) == 15
    assert "value 19 ü" in node.stdout


def test_the_producer_performance_tool_gets_its_records_in(both: Both) -> None:
    both.same(TOPIC_COMMAND, "--create", "--topic", "tools-perf", "--partitions", "3")
    args = ("--topic", "tools-perf", "--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    for broker in both.brokers:
        run = both.tools.run(
            PRODUCER_PERFORMANCE, *args, "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all"
        )
        assert run.exit_code == 0, run
        assert "20000 records sent" in run.stdout
        offsets = both.tools.run(GET_OFFSET_SHELL, "--bootstrap-server", broker.bootstrap, "--topic", "tools-perf").stdout
        assert sum(int(line.rpartition(":")[2]) for line in offsets.splitlines()) == 20_000


def test_the_consumer_performance_tool_gets_them_out(both: Both) -> None:
    """It can only read as a member of a group."""
    both.same(TOPIC_COMMAND, "--create", "--topic", "tools-consume")
    for broker in both.brokers:
        both.tools.run(
            PRODUCER_PERFORMANCE,
            *("--topic", "tools-consume", "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
        )
        run = both.tools.run(
            CONSUMER_PERFORMANCE,
            *("--bootstrap-server", broker.bootstrap, "--topic", "tools-consume", "--messages", "5000", "--timeout", "20000"),
        )
        assert run.exit_code == 0, run
        assert re.search(r", 5000, ", run.stdout), run


def test_the_verifiable_producer_hears_of_every_record(both: Both) -> None:
    both.same(TOPIC_COMMAND, "--create", "--topic", "tools-verifiable")
    for run in both.run_apart(
        VERIFIABLE_PRODUCER, "--topic", "tools-verifiable", "--max-messages", "500", "--throughput", "-1"
    ):
        assert run.exit_code == 0, run
        assert run.stdout.count('"name":"producer_send_success"') == 500
