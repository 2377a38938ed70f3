"""ingest, replay and audit, and the batch reads under them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from spark.conftest import Jobs
from spark.topics import NOW_MS, json_rows, produce, records, values

ORDERS = [{"id": number, "user": f"u{number % 5}", "amount": number * 1.5} for number in range(100)]


@pytest.fixture
def json_lines(tmp_path: Path) -> str:
    path = tmp_path / "orders.jsonl"
    path.write_text("".join(json.dumps(order) + "\n" for order in ORDERS))
    return str(path)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_ingest_json(jobs: Jobs, json_lines: str, topic: str, codec: str) -> None:
    arguments = ("--to-topic", topic, "--key", "user", "--header", "of=user", "--compression", codec)
    run = jobs("ingest", json_lines, *arguments)  # the broker creates the topic
    assert run.summary().startswith("ingest: rows=100 batches=1 ")
    found = records(jobs.bootstrap, topic)
    assert sorted((json.loads(record.value) for record in found), key=lambda row: row["id"]) == ORDERS
    for record in found:
        assert record.key.decode() == json.loads(record.value)["user"]
        assert [(key, bytes(value)) for key, value in record.headers] == [("of", record.key)]
    assert "rows=100 " in jobs("audit", "--topics", topic).summary()  # Spark reads it, too
    ends = Counter(record.partition for record in found)
    assert all(f"{topic}[{partition}]=0..{ends[partition]} " in run.out for partition in ends)


def test_ingest_csv_and_parquet(jobs: Jobs, tmp_path: Path, topic: str) -> None:
    csv = tmp_path / "orders.csv"
    csv.write_text("id,user,slot\n1,ann,0\n2,bob,1\n3,cyd,1\n")
    assert (
        "rows=3 "
        in jobs("ingest", str(csv), "--to-topic", topic, "--create", "2", "--value", "user", "--partition", "slot").summary()
    )
    assert [(record.partition, record.value) for record in records(jobs.bootstrap, topic)] == [
        (0, b"ann"),
        (1, b"bob"),
        (1, b"cyd"),
    ]

    jobs.spark.createDataFrame([(7, "dee")], "id int, user string").write.parquet(str(tmp_path / "orders"))
    copy = f"{topic}-parquet"
    assert "rows=1 " in jobs("ingest", str(tmp_path / "orders"), "--format", "parquet", "--to-topic", copy).summary()
    assert values(jobs.bootstrap, copy) == [{"id": 7, "user": "dee"}]


def test_replay_keeps_keys_headers_and_timestamps(jobs: Jobs, topic: str) -> None:
    rows = json_rows(ORDERS, step_ms=1000)
    for row in rows:
        row["headers"] = [("trace", row["key"]), ("trace", b"")]
    produce(jobs.bootstrap, topic, rows)
    jobs("replay", "--topics", topic, "--to-topic", f"{topic}-again", "--keep-partitions").summary()

    def facts(name: str) -> list[tuple[object, ...]]:
        return [(r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp) for r in records(jobs.bootstrap, name)]

    assert facts(f"{topic}-again") == facts(topic)
    assert {fact[5] for fact in facts(topic)} == {NOW_MS + second * 1000 for second in range(100)}


def test_replay_of_a_range_of_offsets_and_of_time(jobs: Jobs, topic: str) -> None:
    produce(
        jobs.bootstrap,
        topic,
        [row | {"partition": position % 2} for position, row in enumerate(json_rows(ORDERS, step_ms=1000))],
    )
    offsets = json.dumps({topic: {"0": 10, "1": 40}}), json.dumps({topic: {"0": 20, "1": -1}})
    assert (
        "rows=20 "
        in jobs("replay", "--topics", topic, "--from", offsets[0], "--to", offsets[1], "--to-topic", f"{topic}-a").summary()
    )
    assert {value["id"] for value in values(jobs.bootstrap, f"{topic}-a")} == {*range(20, 40, 2), *range(81, 100, 2)}

    times = ("--from", str(NOW_MS + 30_000), "--to", "2024-11-07T17:20:40Z")
    by_time = jobs("replay", "--topics", topic, *times, "--to-topic", f"{topic}-b", "--timestamps", "header")
    assert "rows=10 " in by_time.summary()
    for record in records(jobs.bootstrap, f"{topic}-b"):
        stated = dict(record.headers)["origin.timestamp"]
        assert int(stated) == NOW_MS + json.loads(record.value)["id"] * 1000


def test_audit(jobs: Jobs, tmp_path: Path, topic: str) -> None:
    rows = [
        row | {"partition": 0 if position < 90 else 1} for position, row in enumerate(json_rows(ORDERS, key="user", step_ms=10))
    ]
    rows[50]["timestamp_ms"] = NOW_MS  # 490 ms before the one that it follows
    produce(jobs.bootstrap, topic, [*rows, rows[0]])
    produce(jobs.bootstrap, f"{topic}-copy", rows[1:])
    plot = tmp_path / "audit.png"
    run = jobs("audit", "--topics", topic, "--against", f"{topic}-copy", "--json", "--plot", str(plot))
    report = json.loads(run.out.splitlines()[0])
    assert report["rows"] == 101
    assert [(row["rows"], row["gaps"], row["out_of_order"]) for row in report["partitions"]] == [(91, 0, 2), (10, 0, 0)]
    assert report["partitions"][0]["max_late_ms"] == 890
    assert [row["is_hot"] for row in report["partitions"]] == [True, False]
    assert report["keys"][0] == {"key": "u0", "rows": 21, "share": 0.2079}
    assert report["repeated_rows"] == 1
    assert report["against"] == {"topic": f"{topic}-copy", "same": 99, "missing_there": 2, "only_there": 0}
    assert plot.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    table = jobs("audit", "--topics", topic, "--id-field", "id").out
    assert "repeated rows: 1\n" in table
    assert table.splitlines()[0].split()[:4] == ["topic", "partition", "rows", "bytes"]


def test_a_partition_beside_empty_ones_is_hot(jobs: Jobs, topic: str) -> None:
    produce(jobs.bootstrap, topic, [{"value": b"x", "partition": 0}])
    report = json.loads(jobs("audit", "--topics", topic, "--json").out.splitlines()[0])
    assert [(row["partition"], row["rows"], row["is_hot"]) for row in report["partitions"]] == [(0, 1, True)]


def test_other_ways_to_name_what_is_read(jobs: Jobs, topic: str) -> None:
    for name in (f"{topic}.a", f"{topic}.b"):
        produce(jobs.bootstrap, name, [{"value": b"x", "partition": partition} for partition in (0, 0, 1)])
    assert "rows=6 " in jobs("audit", "--topic-pattern", f"{topic}\\.[ab]", "--min-partitions", "8").summary()
    assigned = jobs("audit", "--assign", json.dumps({f"{topic}.a": [1], f"{topic}.b": [0]}), "--isolation", "read_uncommitted")
    assert "rows=3 " in assigned.summary()


def test_markers_of_transactions_are_gaps_and_aborted_records_are_not_read(jobs: Jobs, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": jobs.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, finish in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(topic, value, partition=0)
        producer.flush(30)  # or an abort drops what was not sent yet
        finish(30)
    produce(jobs.bootstrap, topic, [{"value": b"plain", "partition": 0}])
    assert "rows=6 " in jobs("audit", "--topics", topic).summary()
    assert "rows=11 " in jobs("audit", "--topics", topic, "--isolation", "read_uncommitted").summary()
    report = json.loads(jobs("audit", "--topics", topic, "--json").out.splitlines()[0])
    assert report["partitions"][0]["gaps"] == 7  # five that were aborted, two markers
