"""archive, validate, dedupe and windows: checkpoints, restarts, late records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spark.conftest import Jobs, stop_when
from spark.topics import NOW_MS, delete_before, json_rows, produce, records, values

NUMBERS = [{"id": number} for number in range(60)]


class TestArchive:
    def test_every_record_once_over_restarts_and_after_merging_files(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        path, arguments = str(tmp_path / "archive"), ("--topics", topic, "--checkpoint", str(tmp_path / "checkpoint"))
        archive = ("archive", *arguments, "--to-path", path)
        for part in range(3):
            produce(jobs.bootstrap, topic, json_rows(NUMBERS[part * 20 : part * 20 + 20]))
            assert "rows=20 batches=1 " in jobs(*archive).summary()
        assert "rows=0 batches=0 " in jobs(*archive).summary()
        folder = tmp_path / "archive" / f"topic={topic}" / "date=2024-11-07" / "hour=17"
        assert len(list(folder.glob("*.parquet"))) == 3

        produce(jobs.bootstrap, topic, json_rows([{"id": 60}]))
        merged = jobs(*archive, "--compact").summary()
        assert "rows=1 batches=1 merged_files=4 into_files=1 " in merged
        assert len(list(folder.glob("*.parquet"))) == 1

        def archived() -> list[tuple[int, int, int]]:
            rows = jobs.spark.read.parquet(path).collect()
            return sorted((row["partition"], row["offset"], json.loads(row["value"])["id"]) for row in rows)

        expected = [(row.partition, row.offset, json.loads(row.value)["id"]) for row in records(jobs.bootstrap, topic)]
        assert archived() == expected
        produce(jobs.bootstrap, topic, json_rows([{"id": 61}]))
        assert "rows=1 " in jobs(*archive).summary()  # the log that was rewritten is gone on with
        assert len(archived()) == 62

        jobs("replay", "--archive", path, "--topics", topic, "--to-topic", f"{topic}-back", "--keep-partitions").summary()
        back = [
            (row.partition, row.offset, row.key, row.value, row.timestamp) for row in records(jobs.bootstrap, f"{topic}-back")
        ]
        assert back == [
            (row.partition, row.offset, row.key, row.value, row.timestamp) for row in records(jobs.bootstrap, topic)
        ]

    def test_in_batches_until_it_is_told_to_stop(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        produce(jobs.bootstrap, topic, [row | {"partition": 0} for row in json_rows(NUMBERS)])
        paths = ("--checkpoint", str(tmp_path / "c"), "--to-path", str(tmp_path / "a"))

        def all_is_there() -> bool:
            return len(list((tmp_path / "a" / "_spark_metadata").glob("[0-9]*"))) >= 3

        with stop_when(all_is_there):
            run = jobs("archive", "--topics", topic, *paths, "--every", "1 seconds", "--max-rows-per-batch", "20")
        assert run.summary().startswith(f"archive: rows=60 batches=3 {topic}[0]=0..60 ")
        assert "archive: batch 0, 20 rows, " in run.err

    def test_the_first_run_says_where_it_really_began(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        produce(jobs.bootstrap, topic, [row | {"partition": id % 2} for id, row in enumerate(json_rows(NUMBERS[:20]))])
        delete_before(jobs.bootstrap, topic, 0, 3)

        def archive(name: str, *arguments: str) -> str:
            paths = ("--checkpoint", str(tmp_path / f"{name}-c"), "--to-path", str(tmp_path / name))
            return jobs("archive", "--topics", topic, *paths, *arguments).summary()

        assert f"rows=17 batches=1 {topic}[0]=3..10 {topic}[1]=0..10 " in archive("all")
        # A partition that is not named is read from its beginning.
        some = ("--starting-offsets", json.dumps({topic: {"1": 8}}))
        assert f"rows=9 batches=1 {topic}[0]=3..10 {topic}[1]=8..10 " in archive("some", *some)
        delete_before(jobs.bootstrap, topic, 1, 9)
        assert "rows=0 " in archive("some", *some)  # it goes on from its checkpoint, though the offset is gone

    def test_an_archive_and_its_checkpoint_belong_together(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        produce(jobs.bootstrap, topic, json_rows(NUMBERS[:1]))
        one, two, path = (str(tmp_path / name) for name in ("one", "two", "archive"))
        jobs("archive", "--topics", topic, "--checkpoint", one, "--to-path", path).summary()
        run = jobs("archive", "--topics", topic, "--checkpoint", two, "--to-path", path)
        assert run.code == 2
        assert f"{path} was written with another checkpoint than {two}" in run.err
        run = jobs("dedupe", "--topics", topic, "--checkpoint", one, "--id-key", "--to-topic", f"{topic}-x")
        assert run.code == 2
        assert f"checkpoint {one} is of a run with job archive, this one has job dedupe" in run.err
        assert run.err.count("\n") == 1


class TestValidate:
    def test_json(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        schema = tmp_path / "schema.json"
        schema.write_text('{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "maximum": 9}}}')
        rows = [b'{"id": 1}', b'{"id": 10}', b"{", b'{"name": "x"}', None, b'{"id": %s}' % (b"9" * 5000), b"[" * 5000]
        produce(jobs.bootstrap, topic, [{"key": b"k", "value": row, "partition": 0, "headers": [("h", b"1")]} for row in rows])
        targets = ("--to-topic", f"{topic}-good", "--dead-letter-topic", f"{topic}-bad", "--create", "1")
        jobs(
            "validate", "--topics", topic, "--json-schema", str(schema), "--checkpoint", str(tmp_path / "c"), *targets
        ).summary()
        (good,) = records(jobs.bootstrap, f"{topic}-good")
        assert (good.key, good.value, list(good.headers)) == (b"k", b'{"id": 1}', [("h", b"1")])
        bad = records(jobs.bootstrap, f"{topic}-bad")
        assert [row.value for row in bad] == rows[1:]
        told = [dict(row.headers) for row in bad]
        assert [headers["error.reason"].decode().partition(": Expecting")[0] for headers in told] == [
            "value.id is 10, expected at most 9",
            "not JSON",
            "value has no id",
            "no value",
            "not JSON: a number has 5000 digits, more than 1000",
            "value is nested more than 100 deep",
        ]
        assert [(headers["origin.topic"], headers["origin.offset"]) for headers in told] == [
            (topic.encode(), b"%d" % offset) for offset in range(1, 7)
        ]
        assert all(headers["h"] == b"1" for headers in told)

    def test_avro(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        schema = tmp_path / "schema.avsc"
        schema.write_text(
            '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "of", "type": "string"}]}'
        )
        # Zigzag of 21, then a string of three bytes; a length that the bytes do not have; nothing.
        rows = [b"\x2a\x06ann", b"\x2a\x40ann", b""]
        produce(jobs.bootstrap, topic, [{"value": b"\0\0\0\0\1" + row, "partition": 0} for row in rows])
        targets = ("--to-topic", f"{topic}-good", "--dead-letter-topic", f"{topic}-bad", "--create", "1", "--skip-bytes", "5")
        jobs(
            "validate", "--topics", topic, "--avro-schema", str(schema), "--checkpoint", str(tmp_path / "c"), *targets
        ).summary()
        assert [row.value[5:] for row in records(jobs.bootstrap, f"{topic}-good")] == rows[:1]
        bad = records(jobs.bootstrap, f"{topic}-bad")
        assert [row.value[5:] for row in bad] == rows[1:]
        assert {dict(row.headers)["error.reason"] for row in bad} == {b"not Avro of Order"}

    def test_an_avro_record_of_nothing_but_nulls_is_none_that_cannot_be_read(
        self, jobs: Jobs, tmp_path: Path, topic: str
    ) -> None:
        from spark_jobs.jobs.validate import bytes_of_nulls

        fields = [{"name": "a", "type": ["null", "long"]}, {"name": "b", "type": ["string", "null"]}]
        schema = {"type": "record", "name": "Maybe", "fields": fields}
        assert bytes_of_nulls(schema) == b"\x00\x02"
        assert bytes_of_nulls({**schema, "fields": [*fields, {"name": "c", "type": "long"}]}) is None
        (tmp_path / "schema.avsc").write_text(json.dumps(schema))
        rows = [b"\x00\x02", b"\x02\x2a\x02", b"\x00\x40", b"\x08"]
        produce(jobs.bootstrap, topic, [{"value": row, "partition": 0} for row in rows])
        targets = ("--to-topic", f"{topic}-good", "--dead-letter-topic", f"{topic}-bad", "--create", "1")
        paths = ("--avro-schema", str(tmp_path / "schema.avsc"), "--checkpoint", str(tmp_path / "c"))
        jobs("validate", "--topics", topic, *paths, *targets).summary()
        assert [row.value for row in records(jobs.bootstrap, f"{topic}-good")] == rows[:2]
        assert [row.value for row in records(jobs.bootstrap, f"{topic}-bad")] == rows[2:]


class TestDedupe:
    def test_a_repeated_id_passes_once_also_after_a_restart(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        dedupe = (
            "dedupe",
            "--topics",
            topic,
            "--id-header",
            "id",
            "--to-topic",
            f"{topic}-clean",
            "--checkpoint",
            str(tmp_path / "c"),
        )

        def send(*ids: int) -> None:
            rows = [{"value": b"%d" % number, "headers": [("id", b"%d" % number)], "timestamp_ms": NOW_MS} for number in ids]
            produce(jobs.bootstrap, topic, rows)

        send(1, 2, 2, 3, 1)
        assert "rows=5 " in jobs(*dedupe).summary()
        send(3, 4, 1)
        produce(jobs.bootstrap, topic, [{"value": b"0"}, {"value": b"0"}])  # without an id
        assert "rows=5 " in jobs(*dedupe).summary()
        assert sorted(int(row.value) for row in records(jobs.bootstrap, f"{topic}-clean")) == [0, 0, 1, 2, 3, 4]

    def test_ids_in_a_field_and_records_that_are_too_late(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        target = ("--to-topic", f"{topic}-clean", "--checkpoint", str(tmp_path / "c"))
        dedupe = ("dedupe", "--topics", topic, "--within", "10 seconds", *target)

        def send(*rows: tuple[int, int]) -> None:
            for number, second in rows:
                value = json.dumps({"order": {"id": number}}).encode()
                produce(jobs.bootstrap, topic, [{"value": value, "timestamp_ms": NOW_MS + second * 1000, "partition": 0}])

        send((1, 0), (1, 5), (2, 60))
        assert "rows=3 batches=1 dropped_late=0 " in jobs(*dedupe, "--id-field", "order.id").summary()
        send((3, 20), (1, 61))  # before 60 s less 10: dropped, though it is no repetition; 1 is forgotten by then
        assert "rows=2 batches=1 dropped_late=1 " in jobs(*dedupe, "--id-field", "order.id").summary()
        assert [row["order"]["id"] for row in values(jobs.bootstrap, f"{topic}-clean")].count(1) == 2
        assert {row["order"]["id"] for row in values(jobs.bootstrap, f"{topic}-clean")} == {1, 2}
        run = jobs(*dedupe, "--id-header", "order.id")  # the ids in its state are others
        assert run.code == 2
        assert "of a run with id field order.id, this one has id header order.id" in run.err


class TestWindows:
    def test_a_window_is_written_once_when_the_watermark_has_passed_it(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        windows = ("windows", "--topics", topic, "--window", "10 seconds", "--watermark", "5 seconds", "--group-by", "user")
        windows = (*windows, "--aggregate", "count,sum:amount,max:amount", "--to-topic", f"{topic}-sums", "--create", "1")
        windows = (*windows, "--checkpoint", str(tmp_path / "c"))
        rows = [{"user": "ann" if second % 2 else "bob", "amount": second} for second in range(20)]
        produce(jobs.bootstrap, topic, json_rows(rows, key="user", step_ms=1000))
        jobs(*windows).summary()
        first = [
            {"window_start": "2024-11-07T17:20:00.000Z", "window_end": "2024-11-07T17:20:10.000Z", "user": user}
            | {"count": 5, "sum_amount": total, "max_amount": most}
            for user, total, most in (("ann", 25.0, 9.0), ("bob", 20.0, 8.0))
        ]

        def written() -> list[dict[str, object]]:
            return sorted(values(jobs.bootstrap, f"{topic}-sums"), key=lambda row: (row["window_start"], row["user"]))

        assert written() == first  # 17:20:19 is the last time seen, less 5 s is within the second window
        late = json_rows([{"user": "ann", "amount": 100}], key="user")
        later = [row | {"timestamp_ms": NOW_MS + 60_000} for row in json_rows([{"user": "ann", "amount": 1}], key="user")]
        produce(jobs.bootstrap, topic, late + later)
        jobs(*windows).summary()
        assert written()[:2] == first
        assert [(row["user"], row["count"], row["sum_amount"]) for row in written()[2:]] == [("ann", 5, 75.0), ("bob", 5, 70.0)]

    def test_windows_that_overlap_by_a_time_in_the_value(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        rows = [{"id": second, "at": f"2024-11-07T17:20:{second:02}Z"} for second in (1, 6, 40)]
        produce(jobs.bootstrap, topic, json_rows(rows))
        windows = ("windows", "--topics", topic, "--window", "10 seconds", "--slide", "5 seconds", "--watermark", "1 second")
        target = ("--time-field", "at", "--to-topic", f"{topic}-n", "--create", "1", "--checkpoint", str(tmp_path / "c"))
        jobs(*windows, *target).summary()
        found = {row["window_start"][14:19]: row["count"] for row in values(jobs.bootstrap, f"{topic}-n")}
        assert found == {"19:55": 1, "20:00": 2, "20:05": 1}

    def test_update_writes_a_window_with_every_batch(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        windows = (
            "windows",
            "--topics",
            topic,
            "--window",
            "1 minute",
            "--mode",
            "update",
            "--to-topic",
            f"{topic}-n",
            "--create",
            "1",
        )
        for _ in range(2):
            produce(jobs.bootstrap, topic, json_rows(NUMBERS[:3]))
            jobs(*windows, "--checkpoint", str(tmp_path / "c")).summary()
        assert [row["count"] for row in values(jobs.bootstrap, f"{topic}-n")] == [3, 6]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--window", "soon"), "'soon' is not a duration such as '10 seconds' or '5 minutes'"),
        (("--window", "1 minute", "--aggregate", "median:x"), "--aggregate 'median:x' is not count, sum:FIELD"),
    ],
)
def test_windows_that_cannot_be(jobs: Jobs, arguments: tuple[str, ...], problem: str) -> None:
    run = jobs("windows", "--topics", "t", "--to-topic", "u", "--checkpoint", "c", *arguments)
    assert run.code == 2
    assert problem in run.err
    assert run.err.count("\n") == 1
