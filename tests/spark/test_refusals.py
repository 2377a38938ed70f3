"""Bad input: one line, exit code 2, and nothing half-written: no topic, no checkpoint, no table."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from interop.broker_process import ask
from spark.conftest import Jobs, NewBroker
from spark.postgres_server import PostgresServer
from spark.topics import json_rows, produce, records

from pybroker.protocol.messages.metadata import MetadataRequest

CHECKPOINT = ("--checkpoint", "{folder}/checkpoint")
TARGET = ("--to-topic", "{topic}-out", "--create", "1")
READERS = {
    "archive": (*CHECKPOINT, "--to-path", "{folder}/archive"),
    "replay": TARGET,
    "validate": (*CHECKPOINT, *TARGET, "--json-schema", "{folder}/schema.json", "--dead-letter-topic", "{topic}-bad"),
    "dedupe": (*CHECKPOINT, *TARGET, "--id-key"),
    "windows": (*CHECKPOINT, *TARGET, "--window", "1 minute"),
    "audit": ("--plot", "{folder}/audit.png"),
}


def refused(jobs: Jobs, job: str, *arguments: str) -> str:
    """What it says, without its name."""
    run = jobs(job, *arguments)
    assert run.code == 2, run
    assert run.out == ""
    assert run.err.count("\n") == 1, run.err
    return run.err.removeprefix(f"{job}: ").rstrip("\n")


def reader(job: str, topic: str, folder: Path) -> tuple[str, ...]:
    """Arguments that would do, if the topic were there and what they name in the folder fine."""
    return (job, "--topics", topic, *(part.format(topic=topic, folder=folder) for part in READERS[job]))


def topics_like(jobs: Jobs, topic: str) -> list[str]:
    return sorted(row.name for row in ask(jobs.bootstrap, MetadataRequest(topics=None)).topics if row.name.startswith(topic))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schema.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("job", READERS)
def test_a_topic_that_is_missing(jobs: Jobs, job: str, topic: str, folder: Path) -> None:
    said = refused(jobs, *reader(job, topic, folder))
    assert said.startswith(f"topic {topic} does not exist; the cluster has: ")
    assert topics_like(jobs, topic) == []
    assert os.listdir(folder) == ["schema.json"]


def test_a_topic_that_is_missing_leaves_no_table(jobs: Jobs, topic: str, postgres: PostgresServer) -> None:
    postgres.sql("CREATE TABLE untouched (id int PRIMARY KEY)")
    said = refused(jobs, "to_postgres", "--topics", topic, "--database", postgres.url, "--table", "untouched")
    assert said.startswith(f"topic {topic} does not exist")
    assert postgres.sql("SELECT relname FROM pg_class WHERE relname LIKE 'untouched%' AND relkind = 'r'") == [("untouched",)]


def test_a_target_that_the_broker_does_not_create(
    new_broker: NewBroker, jobs: Jobs, tmp_path: Path, topic: str, folder: Path
) -> None:
    with new_broker(tmp_path / "broker", {"auto.create.topics.enable": "false"}) as broker:
        jobs.bootstrap = broker.bootstrap
        broker.create_topic(topic)
        dedupe = ("dedupe", "--topics", topic, "--checkpoint", str(folder / "c"), "--id-key", "--to-topic", "out")
        said = refused(jobs, *dedupe)
        assert said == "topic out does not exist and the broker does not create topics; create it, or pass --create N"
        assert not (folder / "c").exists()
        jobs(*dedupe[:-1], "other", "--create", "1").summary()  # the checkpoint was not taken by the first try


def test_a_broker_that_says_nothing(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.kafka.ASK_MS", 2_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        jobs.bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
        said = refused(jobs, "audit", "--topics", "t")
    assert said.startswith(f"the cluster at {jobs.bootstrap} did not answer: TimeoutException: ")


class TestRanges:
    """Of partitions and offsets that are not there."""

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (("--starting-offsets", '{"TOPIC": {"7": 0}}'), "--starting-offsets names TOPIC[7]; it has partitions 0, 1"),
            (("--starting-offsets", '{"nobody": {"0": 0}}'), "--starting-offsets names nobody[0]; that topic is not read"),
            (("--starting-offsets", '{"TOPIC": {"0": 99}}'), "--starting-offsets has offset 99 of TOPIC[0], which has 0 to 1"),
            (("--starting-offsets", "soon"), "argument --starting-offsets: 'soon' is not earliest, latest or offsets"),
            (("--starting-offsets", '{"TOPIC": {"0": "1"}}'), "does not state offsets; expected JSON such as"),
        ],
    )
    def test_a_start_of_a_stream(self, jobs: Jobs, topic: str, folder: Path, arguments: tuple[str, ...], problem: str) -> None:
        produce(jobs.bootstrap, topic, [{"value": b"x", "partition": 0}])
        said = refused(jobs, *reader("dedupe", topic, folder), *(part.replace("TOPIC", topic) for part in arguments))
        assert problem.replace("TOPIC", topic) in said
        assert topics_like(jobs, topic) == [topic]
        assert os.listdir(folder) == ["schema.json"]

    def test_a_start_in_postgresql_leaves_no_table(self, jobs: Jobs, topic: str, postgres: PostgresServer) -> None:
        produce(jobs.bootstrap, topic, [{"value": b"x", "partition": 0}])
        postgres.sql("CREATE TABLE unstarted (id int PRIMARY KEY)")
        job = ("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "unstarted")
        said = refused(jobs, *job, "--starting-offsets", json.dumps({topic: {"0": 5}}))
        assert said == f"--starting-offsets has offset 5 of {topic}[0], which has 0 to 1"
        assert postgres.sql("SELECT relname FROM pg_class WHERE relname ~ 'unstarted' AND relkind = 'r'") == [("unstarted",)]

    def test_what_a_batch_reads(self, jobs: Jobs, topic: str) -> None:
        produce(jobs.bootstrap, topic, [{"value": b"x", "partition": 0}])

        def replay(*arguments: str) -> str:
            return refused(jobs, "replay", *arguments, "--to-topic", f"{topic}-out", "--create", "1")

        said = replay("--topics", topic, "--from", json.dumps({topic: {"9": 0}}))
        assert said == f"--from names {topic}[9]; it has partitions 0, 1"
        said = replay("--topics", topic, "--to", json.dumps({topic: {"0": 2}}))
        assert said == f"--to has offset 2 of {topic}[0], which has 0 to 1"
        said = replay("--assign", json.dumps({topic: [0, 4]}))
        assert said == f"--assign names {topic}[4]; it has partitions 0, 1"
        assert "--assign '[0]' does not name partitions" in replay("--assign", "[0]")
        assert "'tomorrow' is neither a time" in replay("--topics", topic, "--from", "tomorrow")
        assert "--topic-pattern '(' is no regular expression" in replay("--topic-pattern", "(")
        assert replay("--topic-pattern", "nobody").startswith("no topic matches --topic-pattern 'nobody'; the cluster has: ")
        assert replay() == "nothing to replay: pass --topics, --topic-pattern, --assign or --archive"
        assert topics_like(jobs, topic) == [topic]

    def test_a_topic_that_would_be_read_and_written(self, jobs: Jobs, topic: str, folder: Path) -> None:
        produce(jobs.bootstrap, topic, [{"value": b"x"}])
        said = refused(jobs, "replay", "--topics", topic, "--to-topic", topic)
        assert said == f"topic {topic} would be read and written; name another target"
        checkpoint = ("--checkpoint", str(folder / "checkpoint"))
        dedupe = ("dedupe", "--topic-pattern", f"{topic}.*", "--id-key", "--to-topic", f"{topic}-out", *checkpoint)
        assert refused(jobs, *dedupe) == f"topic {topic}-out would be read and written; name another target"
        validate = reader("validate", topic, folder)[:-1]
        assert refused(jobs, *validate, topic) == f"topic {topic} would be read and written; name another target"
        assert topics_like(jobs, topic) == [topic]
        assert os.listdir(folder) == ["schema.json"]


def test_options_and_paths_that_do_not_fit(jobs: Jobs, topic: str, folder: Path) -> None:
    produce(jobs.bootstrap, topic, [{"value": b"x"}])
    assert "--compact rewrites the list" in refused(jobs, *reader("archive", topic, folder), "--compact", "--every", "1 second")
    plot = folder / "nowhere" / "audit.png"
    said = refused(jobs, "audit", "--topics", topic, "--plot", str(plot))
    assert said == f"--plot {plot}: there is no folder {plot.parent}"
    ingest = ("ingest", str(folder / "missing.jsonl"), "--to-topic", f"{topic}-out", "--create", "1")
    assert "the files cannot be read: " in refused(jobs, *ingest)
    assert "argument --header: 'of' is not KEY=VALUE" in refused(jobs, *ingest, "--header", "of")
    said = refused(jobs, "replay", "--archive", str(folder), "--to-topic", f"{topic}-out", "--create", "1")
    assert said == f"{folder} is not an archive: it has no _spark_metadata, which `archive` writes"
    assert topics_like(jobs, topic) == [topic]
    assert os.listdir(folder) == ["schema.json"]


def test_what_goes_wrong_after_a_write_is_no_refusal(
    jobs: Jobs, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.errors import JobError
    from spark_jobs.kafka import Kafka

    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\n')
    ends = Kafka.end_offsets

    def only_before(self: Kafka, topics: list[str]) -> dict[tuple[str, int], int]:
        found = ends(self, topics)
        if any(found.values()):
            raise JobError("the cluster at x did not answer: gone")
        return found

    monkeypatch.setattr(Kafka, "end_offsets", only_before)
    run = jobs("ingest", str(path), "--to-topic", topic, "--create", "1")
    assert run.code == 1
    said = "ingest: the cluster at x did not answer: gone; it had begun, what it wrote before stays"
    assert run.err.splitlines()[1:] == [said]
    assert len(records(jobs.bootstrap, topic)) == 1


class TestCheckpoints:
    @pytest.mark.parametrize("job", [name for name, arguments in READERS.items() if "--checkpoint" in arguments])
    def test_of_another_job(self, jobs: Jobs, job: str, topic: str, folder: Path) -> None:
        produce(jobs.bootstrap, topic, json_rows([{"id": 1}]))
        theirs = {"job": "another", "topics": topic, "pattern": None, "assign": None}
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir()
        (checkpoint / "spark_job.json").write_text(json.dumps(theirs))
        said = refused(jobs, *reader(job, topic, folder))
        assert said == (
            f"checkpoint {checkpoint} is of a run with job another, this one has job {job}; give each its own --checkpoint"
        )
        assert topics_like(jobs, topic) == [topic]
        assert sorted(os.listdir(folder)) == ["checkpoint", "schema.json"]

    def test_that_is_none(self, jobs: Jobs, topic: str, folder: Path) -> None:
        produce(jobs.bootstrap, topic, json_rows([{"id": 1}]))
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir()
        (checkpoint / "photo.png").write_bytes(b"")
        said = refused(jobs, *reader("dedupe", topic, folder))
        assert said == f"{checkpoint} is not a checkpoint of these jobs (it has photo.png); --checkpoint takes a new folder"
        (checkpoint / "spark_job.json").write_text("{")
        said = refused(jobs, *reader("dedupe", topic, folder))
        assert said == f"checkpoint {checkpoint} is damaged: its spark_job.json does not say whose it is"
        assert topics_like(jobs, topic) == [topic]


class TestSchemas:
    @pytest.mark.parametrize(
        ("name", "text", "line"),
        [
            ("x.jsonl", '{"id": 1}\n{"id": "one"}\n{"id": 2}\n', '{"id": "one"}'),
            ("x.csv", "id\n1\none\n2\n", "one"),
        ],
    )
    def test_lines_of_a_file_that_do_not_fit(
        self, jobs: Jobs, tmp_path: Path, topic: str, name: str, text: str, line: str
    ) -> None:
        path = tmp_path / name
        path.write_text(text)
        ingest = ("ingest", str(path), "--to-topic", topic, "--create", "1", "--schema")
        assert refused(jobs, *ingest, "id bigint") == f"a line does not fit the schema: {line!r}; nothing was written"
        assert refused(jobs, *ingest, "id bigint", "--key", "nobody") == "the files have no column nobody; they have id"
        assert "is not a list of columns such as" in refused(jobs, *ingest, "id no type")
        assert topics_like(jobs, topic) == []

    def test_csv_with_values_too_many_or_columns_of_other_names(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        path = tmp_path / "x.csv"
        ingest = ("ingest", str(path), "--to-topic", topic, "--create", "1")
        path.write_text("id,name\n1,ann\n2,bob,surplus\n")
        assert refused(jobs, *ingest) == "a line does not fit the schema: '2,bob,surplus'; nothing was written"
        path.write_text("name,id\n1,2\n")
        said = refused(jobs, *ingest, "--schema", "id bigint, name bigint")
        assert said.startswith("the files cannot be read: ")
        assert "CSV header does not conform to the schema" in said
        path.write_text("")
        assert refused(jobs, *ingest) == f"{path} has no columns; is it of another --format?"
        assert topics_like(jobs, topic) == []

    def test_parquet_with_a_column_of_another_type_or_with_bytes_that_are_none(
        self, jobs: Jobs, tmp_path: Path, topic: str
    ) -> None:
        folder = tmp_path / "x.parquet"
        jobs.spark.createDataFrame([(7, "dee")], "id int, user string").coalesce(1).write.parquet(str(folder))
        ingest = ("ingest", str(folder), "--to-topic", topic, "--create", "1")
        said = refused(jobs, *ingest, "--schema", "id timestamp, user string")
        assert said.startswith("the files cannot be read: ")
        said = refused(jobs, *ingest, "--schema", "id int, nobody string")
        assert said == "the files have no column nobody of --schema; they have id, user"
        (file,) = folder.glob("*.parquet")
        data = bytearray(file.read_bytes())
        data[4:40] = bytes(36)  # the first page; the footer, which alone says how many rows there are, is whole
        file.write_bytes(data)
        (folder / f".{file.name}.crc").unlink()
        assert refused(jobs, *ingest).endswith("; nothing was written")
        assert topics_like(jobs, topic) == []

    def test_partitions_that_the_topic_does_not_have(self, jobs: Jobs, tmp_path: Path, topic: str) -> None:
        path = tmp_path / "x.jsonl"
        path.write_text('{"slot": 0}\n{"slot": 2}\n')
        said = refused(jobs, "ingest", str(path), "--to-topic", topic, "--create", "2", "--partition", "slot")
        assert said == f"column slot has '2', {topic} has partitions 0 to 1; nothing was written"
        path.write_text('{"slot": "a"}\n')
        said = refused(jobs, "ingest", str(path), "--to-topic", topic, "--partition", "slot")
        assert said == f"column slot has 'a', {topic} has partitions from 0 on; nothing was written"
        assert topics_like(jobs, topic) == []

    @pytest.mark.parametrize(
        ("option", "text", "problem"),
        [
            ("--json-schema", None, "cannot be read: [Errno 2] No such file"),
            ("--json-schema", "{", "is no schema to check with: "),
            ("--json-schema", '{"unheardOf": 1}', "is no schema to check with: "),
            ("--json-schema", '{"minimum": "5"}', "is no schema to check with: schema.minimum is "),
            ("--avro-schema", '{"type": "unheardOf"}', "is no Avro schema: "),
        ],
    )
    def test_schemas_that_are_none(
        self, jobs: Jobs, tmp_path: Path, topic: str, option: str, text: str | None, problem: str
    ) -> None:
        produce(jobs.bootstrap, topic, json_rows([{"id": 1}]))
        path = tmp_path / "schema"
        if text is not None:
            path.write_text(text)
        targets = ("--to-topic", f"{topic}-good", "--dead-letter-topic", f"{topic}-bad", "--create", "1")
        checkpoint = ("--checkpoint", str(tmp_path / "c"))
        said = refused(jobs, "validate", "--topics", topic, option, str(path), *targets, *checkpoint)
        assert problem in said
        assert topics_like(jobs, topic) == [topic]
        assert not (tmp_path / "c").exists()

    def test_tables_that_do_not_fit(self, jobs: Jobs, topic: str, postgres: PostgresServer) -> None:
        produce(jobs.bootstrap, topic, json_rows([{"id": 1}]))
        postgres.sql("CREATE TABLE keyless (id int); CREATE TABLE no_outbox (id int)")
        to_postgres = ("to_postgres", "--topics", topic, "--database", postgres.url, "--table")
        said = refused(jobs, *to_postgres, "keyless")
        assert said == "table keyless has no primary key, which tells a change from a new row"
        assert refused(jobs, *to_postgres, "nowhere") == "the database has no table nowhere"
        said = refused(jobs, "outbox", "--database", postgres.url, "--table", "no_outbox")
        assert said == "table no_outbox has no column headers; an outbox has headers, id, key, sent_at, topic, value"
