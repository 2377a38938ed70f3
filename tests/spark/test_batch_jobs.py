"""ingest, replay and audit, and the batch reads under them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from spark.conftest import Jobs
from spark.topics import NOW_MS, codecs, json_rows, produce, records, values

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
    assert {name for partition in ends for name in codecs(jobs.bootstrap, topic, partition)} == {codec}
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

    for name, row in (("one", {"id": 7, "user.name": "dee"}), ("two", {"id": 8, "more": "x"})):
        jobs.spark.createDataFrame([row]).write.parquet(str(tmp_path / "orders" / f"part={name}"))
    copy = f"{topic}-parquet"
    arguments = ("--format", "parquet", "--key", "user.name", "--header", "of=user.name", "--to-topic", copy)
    assert "rows=2 " in jobs("ingest", str(tmp_path / "orders"), *arguments).summary()
    # Of each file all columns, also those that others have not, and with a dot in the name.
    found = sorted(values(jobs.bootstrap, copy), key=lambda row: row["id"])
    assert found == [
        {"id": 7, "user.name": "dee", "more": None, "part": "one"},
        {"id": 8, "user.name": None, "more": "x", "part": "two"},
    ]
    assert {record.key for record in records(jobs.bootstrap, copy)} == {b"dee", None}


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
    # A partition that is not named is whole, and the words may stand on either side.
    one = json.dumps({topic: {"0": -1}})
    assert "rows=50 " in jobs("audit", "--topics", topic, "--from", one).summary()
    assert "rows=0 " in jobs("audit", "--topics", topic, "--from", "latest").summary()
    assert {value["id"] for value in values(jobs.bootstrap, f"{topic}-a")} == {*range(20, 40, 2), *range(81, 100, 2)}

    times = ("--from", str(NOW_MS + 30_000), "--to", "2024-11-07T17:20:40Z")
    by_time = jobs("replay", "--topics", topic, *times, "--to-topic", f"{topic}-b", "--timestamps", "header")
    assert "rows=10 " in by_time.summary()
    assert by_time.err == f"replay: 10 rows are written to {topic}-b\n"
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
    report = json.loads(run.out)  # and nothing else
    assert run.err.splitlines()[0] == "audit: 101 rows in 2 partitions"
    assert run.err.splitlines()[-1].startswith("audit: rows=101 batches=1 ")
    assert report["rows"] == 101
    assert [(row["rows"], row["gaps"], row["out_of_order"]) for row in report["partitions"]] == [(91, 0, 2), (10, 0, 0)]
    assert report["partitions"][0]["max_late_ms"] == 890
    assert [row["is_hot"] for row in report["partitions"]] == [True, False]
    assert report["keys"][0] == {"key": "u0", "rows": 21, "share": 0.2079}
    assert report["repeated_rows"] == 1
    assert report["against"] == {"topic": f"{topic}-copy", "same": 99, "missing_there": 2, "only_there": 0}
    # The range holds for both; offsets may name partitions of both.
    ends = json.dumps({topic: {"0": 3}, f"{topic}-copy": {"1": 0}})
    part = json.loads(jobs("audit", "--topics", topic, "--against", f"{topic}-copy", "--to", ends, "--json").out)
    assert part["against"] == {"topic": f"{topic}-copy", "same": 2, "missing_there": 11, "only_there": 87}
    until = ("--to", str(NOW_MS + 15))
    early = json.loads(jobs("audit", "--topics", topic, "--against", f"{topic}-copy", *until, "--json").out)
    assert early["against"] == {"topic": f"{topic}-copy", "same": 1, "missing_there": 1, "only_there": 0}
    assert plot.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    table = jobs("audit", "--topics", topic, "--id-field", "id").out
    assert "repeated rows: 1\n" in table
    assert table.splitlines()[0].split()[:4] == ["topic", "partition", "rows", "bytes"]


def test_a_partition_beside_empty_ones_is_hot(jobs: Jobs, topic: str) -> None:
    produce(jobs.bootstrap, topic, [{"value": b"x", "partition": 0}])
    report = json.loads(jobs("audit", "--topics", topic, "--json").out)
    assert [(row["partition"], row["rows"], row["is_hot"]) for row in report["partitions"]] == [(0, 1, True)]


def test_other_ways_to_name_what_is_read(jobs: Jobs, topic: str) -> None:
    from spark_jobs.kafka import Kafka

    for name in (f"{topic}.a", f"{topic}.b"):
        produce(jobs.bootstrap, name, [{"value": b"x", "partition": partition} for partition in (0, 0, 1)])
    assert "rows=6 " in jobs("audit", "--topic-pattern", f"{topic}\\.[ab]", "--min-partitions", "8").summary()
    rows = Kafka(jobs.spark, jobs.bootstrap).read({"subscribe": f"{topic}.a", "minPartitions": "3"})
    assert rows.rdd.getNumPartitions() == 3
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
    report = json.loads(jobs("audit", "--topics", topic, "--json").out)
    assert report["partitions"][0]["gaps"] == 7  # five that were aborted, two markers


def test_replay_counts_its_own_rows_and_not_those_of_others(jobs: Jobs, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_jobs.kafka import Kafka

    produce(jobs.bootstrap, topic, json_rows(ORDERS[:5]))
    ends = Kafka.end_offsets

    def while_another_writes(self: Kafka, topics: Any) -> Any:
        found = ends(self, topics)
        produce(jobs.bootstrap, f"{topic}-again", [{"value": b"of another"}])
        return found

    monkeypatch.setattr(Kafka, "end_offsets", while_another_writes)
    for timestamps in ("keep", "header"):
        again = ("--to-topic", f"{topic}-again", "--timestamps", timestamps)
        assert "replay: rows=5 " in jobs("replay", "--topics", topic, *again).summary()


class TestReplayOfAnArchive:
    @pytest.fixture
    def archive(self, jobs: Jobs, tmp_path: Path, topic: str) -> str:
        """Two topics of two partitions, one of which is called as a number."""
        for name in (topic, self.number(topic)):
            rows = [row | {"partition": position % 2} for position, row in enumerate(json_rows(ORDERS[:20], step_ms=1000))]
            produce(jobs.bootstrap, name, [row | {"headers": [("trace", row["key"]), ("empty", b"")]} for row in rows])
        path = str(tmp_path / "archive")
        both = ("--topics", f"{topic},{self.number(topic)}", "--checkpoint", str(tmp_path / "c"))
        jobs("archive", *both, "--to-path", path).summary()
        return path

    @staticmethod
    def number(topic: str) -> str:
        return f"00{int(topic.rpartition('.')[2], 16)}"

    def test_ranges_and_choices(self, jobs: Jobs, archive: str, topic: str) -> None:
        number = self.number(topic)
        offsets = json.dumps({topic: {"0": 4, "1": -1}}), json.dumps({topic: {"0": -1, "1": -2}})
        for position, (arguments, ids) in enumerate(
            [
                (("--topics", topic, "--from", offsets[0]), range(8, 20, 2)),
                (("--topics", topic, "--to", offsets[1]), range(0, 20, 2)),
                (("--topics", topic, "--from", str(NOW_MS + 5000), "--to", "2024-11-07T17:20:08Z"), range(5, 8)),
                (("--topic-pattern", number[:-1] + "."), range(20)),
                (("--assign", json.dumps({topic: [1]})), range(1, 20, 2)),
            ]
        ):
            target = f"{topic}-{position}"
            run = jobs("replay", "--archive", archive, *arguments, "--to-topic", target, "--create", "1")
            assert f"rows={len(ids)} " in run.summary()
            assert sorted(row["id"] for row in values(jobs.bootstrap, target)) == list(ids)
        found = records(jobs.bootstrap, f"{topic}-2")
        assert [list(row.headers) for row in found] == [[("trace", row.key), ("empty", b"")] for row in found]
        assert sorted(row.timestamp for row in found) == [NOW_MS + second * 1000 for second in (5, 6, 7)]

        def refused(*arguments: str) -> str:
            run = jobs("replay", "--archive", archive, *arguments, "--to-topic", f"{topic}-none", "--create", "1")
            assert (run.code, run.out) == (2, "")
            assert run.err.count("\n") == 1
            return run.err

        assert f"has no topic nobody; it has: {number}, {topic}" in refused("--topics", f"{topic},nobody")
        assert "no topic matches --topic-pattern 'nobody'" in refused("--topic-pattern", "nobody")
        assert f"has nothing of {topic}[7], which --assign names" in refused("--assign", json.dumps({topic: [0, 7]}))
        assert f"--from names {number}[0], which" in refused("--topics", topic, "--from", json.dumps({number: {"0": 1}}))
        assert records(jobs.bootstrap, f"{topic}-none") == []
