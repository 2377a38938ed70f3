"""kill -9 of the broker in the middle of a job: after its restart nothing is lost, and nothing is in the archive twice. kill -9
of the driver in the middle of a write: the sink repeats what it had written, and `dedupe` lets each message pass once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.broker_process import BrokerProcess
from spark.conftest import Jobs, NewBroker
from spark.driver_process import DriverProcess
from spark.proxy import RecordingProxy
from spark.topics import NOW_MS, json_rows, produce, values
from support.waiting import wait_until

ROWS = 400
WAIT_S = 120.0


@pytest.fixture
def mortal(tmp_path: Path, new_broker: NewBroker) -> Iterator[BrokerProcess]:
    with new_broker(tmp_path / "broker") as broker:
        yield broker


def run_and_kill_the_broker(mortal: BrokerProcess, directory: Path, arguments: tuple[str, ...]) -> None:
    """The job goes on by itself when the broker is back, or is started again: either way it comes to its end."""
    with DriverProcess(directory, arguments) as driver:
        wait_until(lambda: "batch 1," in driver.said, WAIT_S, lambda: driver.said)
        mortal.stop(clean=False)
        assert driver.is_running, f"it was over before the broker was killed:\n{driver.said}"
        mortal.start()
        code = driver.wait()
    if code != 0:
        with DriverProcess(directory, arguments) as again:
            assert again.wait() == 0, again.said


def test_archive(mortal: BrokerProcess, jobs: Jobs, tmp_path: Path) -> None:
    produce(mortal.bootstrap, "t", json_rows({"id": number} for number in range(ROWS)))
    paths = ("--checkpoint", str(tmp_path / "c"), "--to-path", str(tmp_path / "a"))
    arguments = ("archive", "--bootstrap-servers", mortal.bootstrap, "--topics", "t", *paths, "--max-rows-per-batch", "40")
    run_and_kill_the_broker(mortal, tmp_path, arguments)
    rows = jobs.spark.read.parquet(str(tmp_path / "a")).collect()
    assert sorted(json.loads(row["value"])["id"] for row in rows) == list(range(ROWS))


def test_windows(mortal: BrokerProcess, tmp_path: Path, jars: Path) -> None:
    # One second a record, so a window of ten seconds has ten; the last record closes them all.
    rows = [row | {"partition": 0} for row in json_rows(({"id": number} for number in range(ROWS)), step_ms=1000)]
    produce(mortal.bootstrap, "t", [*rows, rows[-1] | {"timestamp_ms": NOW_MS + 10 * ROWS * 1000}])
    arguments = ("windows", "--bootstrap-servers", mortal.bootstrap, "--topics", "t", "--max-rows-per-batch", "40")
    arguments = (
        *arguments,
        "--checkpoint",
        str(tmp_path / "c"),
        "--window",
        "10 seconds",
        "--to-topic",
        "sums",
        "--create",
        "1",
    )
    run_and_kill_the_broker(mortal, tmp_path, arguments)
    # The sink may repeat a window's result, but never with another count.
    found = {(row["window_start"], row["count"]) for row in values(mortal.bootstrap, "sums")}
    assert len(found) == ROWS // 10
    assert {count for _, count in found} == {10}


@pytest.mark.timeout(600)
def test_dedupe_after_a_sink_whose_driver_was_killed_while_it_wrote(
    new_broker: NewBroker, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    messages = [
        {"value": json.dumps({"id": number, "text": "x" * 200}).encode(), "headers": [("message-id", b"%d" % number)]}
        for number in range(ROWS)
    ]
    validate = (
        "validate",
        "--topics",
        "in",
        "--json-schema",
        str(schema),
        "--checkpoint",
        str(tmp_path / "c"),
        "--create",
        "2",
    )
    validate = (*validate, "--to-topic", "out", "--dead-letter-topic", "bad", "--kafka-option", "batch.size=4096")

    with RecordingProxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with new_broker(tmp_path / "broker", advertised) as broker:
            proxy.lead_to(broker.bootstrap)
            produce(proxy.address, "in", messages)
            jobs = Jobs(spark, proxy.address, capsys)
            proxy.hold("Produce", after=2)
            with DriverProcess(tmp_path, (*validate, "--bootstrap-servers", proxy.address)) as driver:
                wait_until(proxy.holds_back, WAIT_S, lambda: driver.said)
                driver.kill()
            proxy.release()

            def ids(topic: str) -> list[int]:
                return sorted(row["id"] for row in values(proxy.address, topic))

            before = ids("out")
            assert 0 < len(before) < ROWS  # in the middle of its only batch
            jobs(*validate).summary()
            assert ids("out") == sorted([*range(ROWS), *before])  # at least once
            clean = ("--id-header", "message-id", "--to-topic", "clean", "--checkpoint", str(tmp_path / "d"))
            jobs("dedupe", "--topics", "out", *clean).summary()
            assert ids("clean") == list(range(ROWS))
