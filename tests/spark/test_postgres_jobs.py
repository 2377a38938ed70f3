"""outbox and to_postgres, with a real PostgreSQL; a driver that is killed around its commit."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from spark.conftest import Jobs, stop_when
from spark.driver_process import DriverProcess
from spark.postgres_server import PostgresServer
from spark.topics import produce, records

CREATE_OUTBOX = "CREATE TABLE {} (id bigserial, topic text, key text, value text, headers text, sent_at timestamptz)"


def changes(*rows: tuple[int, dict[str, object] | None]) -> list[dict[str, object]]:
    return [
        {"key": b"%d" % key, "value": None if row is None else json.dumps({"id": key} | row).encode(), "partition": key % 2}
        for key, row in rows
    ]


class TestOutbox:
    def test_rows_are_sent_in_order_and_marked(self, jobs: Jobs, postgres: PostgresServer, topic: str) -> None:
        postgres.sql(
            "CREATE TABLE shop_outbox (id bigserial PRIMARY KEY, topic text NOT NULL, key text, value text, headers jsonb,"
            " sent_at timestamptz)"
        )
        postgres.sql(
            "INSERT INTO shop_outbox (topic, key, value, headers)"
            f" SELECT '{topic}', 'k', 'v' || i, '{{\"of\": \"ann\"}}' FROM generate_series(1, 25) i"
        )
        relay = ("outbox", "--database", postgres.url, "--table", "shop_outbox", "--batch-rows", "10", "--create", "2")
        assert "rows=25 batches=3 " in jobs(*relay).summary()
        found = records(jobs.bootstrap, topic)
        assert [row.value.decode() for row in found] == [f"v{number}" for number in range(1, 26)]
        assert [dict(row.headers) for row in found[:2]] == [
            {"of": b"ann", "message-id": b"postgres.public.shop_outbox:%d" % number} for number in (1, 2)
        ]
        assert postgres.sql("SELECT count(*) FROM shop_outbox WHERE sent_at IS NULL") == [("0",)]
        assert "rows=0 batches=0 " in jobs(*relay).summary()

    def test_what_was_sent_but_not_marked_is_sent_again_and_dedupe_makes_it_once(
        self, jobs: Jobs, postgres: PostgresServer, tmp_path: Path, topic: str
    ) -> None:
        postgres.sql(CREATE_OUTBOX.format("outbox"))
        postgres.sql(f"INSERT INTO outbox (topic, value) SELECT '{topic}', i FROM generate_series(1, 5) i")
        relay = ("outbox", "--database", postgres.url)
        jobs(*relay).summary()
        postgres.sql("UPDATE outbox SET sent_at = NULL WHERE id > 3")  # as if the relay had died before it marked them
        jobs(*relay).summary()
        assert len(records(jobs.bootstrap, topic)) == 7
        clean = ("--id-header", "message-id", "--to-topic", f"{topic}-clean", "--checkpoint", str(tmp_path / "c"))
        jobs("dedupe", "--topics", topic, *clean).summary()
        assert sorted(int(row.value) for row in records(jobs.bootstrap, f"{topic}-clean")) == [1, 2, 3, 4, 5]

    def test_a_table_that_is_none(self, jobs: Jobs, postgres: PostgresServer) -> None:
        run = jobs("outbox", "--database", postgres.url, "--table", "nowhere")
        assert (run.code, run.err) == (2, "outbox: the database has no table nowhere\n")
        run = jobs("outbox", "--database", "jdbc:postgresql://127.0.0.1:1/postgres")
        assert run.code == 2
        assert run.err.startswith("outbox: PostgreSQL at jdbc:postgresql://127.0.0.1:1/postgres cannot be used: Connection to")
        assert run.err.count("\n") == 1

    def test_a_row_committed_after_one_with_a_higher_id_is_sent_later(
        self, jobs: Jobs, postgres: PostgresServer, topic: str
    ) -> None:
        postgres.sql(CREATE_OUTBOX.format("late_outbox"))
        relay = ("outbox", "--database", postgres.url, "--table", "late_outbox", "--name", "shop", "--create", "1")
        for number in (2, 1):
            postgres.sql(f"INSERT INTO late_outbox (id, topic) VALUES ({number}, '{topic}')")
            assert "rows=1 " in jobs(*relay).summary()
        assert [dict(row.headers)["message-id"] for row in records(jobs.bootstrap, topic)] == [b"shop:2", b"shop:1"]

    def test_it_looks_again_until_it_is_told_to_stop(self, jobs: Jobs, postgres: PostgresServer, topic: str) -> None:
        postgres.sql(CREATE_OUTBOX.format("live_outbox"))
        insert = f"INSERT INTO live_outbox (topic, value) VALUES ('{topic}', 'x')"
        postgres.sql(insert)

        def sent() -> bool:
            """The second row is written once the first is seen to be sent."""
            found = postgres.sql("SELECT count(sent_at), count(*) FROM live_outbox")[0]
            if found == ("1", "1"):
                postgres.sql(insert)
            return found == ("2", "2")

        with stop_when(sent):
            run = jobs("outbox", "--database", postgres.url, "--table", "live_outbox", "--every", "50")
        assert run.summary().startswith("outbox: rows=2 batches=2 ")
        assert run.err == "outbox: batch 1, 1 rows\noutbox: batch 2, 1 rows\n"

    def test_rows_that_cannot_be_sent(self, jobs: Jobs, postgres: PostgresServer, topic: str) -> None:
        postgres.sql(CREATE_OUTBOX.format("bad_outbox"))
        relay = ("outbox", "--database", postgres.url, "--table", "bad_outbox", "--create", "1", "--batch-rows")
        postgres.sql(f"INSERT INTO bad_outbox (topic, headers) VALUES ('{topic}', NULL), (NULL, NULL)")
        run = jobs(*relay, "10")
        assert (run.code, run.err) == (
            2,
            "outbox: row 2 of bad_outbox has topic None, which is no name for a topic; mend or delete it\n",
        )
        postgres.sql("UPDATE bad_outbox SET topic = 'a b' WHERE id = 2")
        assert "row 2 of bad_outbox has topic 'a b'" in jobs(*relay, "10").err
        postgres.sql(f"UPDATE bad_outbox SET topic = '{topic}', headers = '[]' WHERE id = 2")
        assert "row 2 of bad_outbox has headers that are no JSON object" in jobs(*relay, "10").err
        assert postgres.sql("SELECT count(sent_at) FROM bad_outbox") == [("0",)]

        run = jobs(*relay, "1")  # the first row goes by itself: what comes then is not a refusal any more
        assert run.code == 1
        assert run.err.splitlines()[1].endswith("mend or delete it; it had begun, what it wrote before stays")
        assert postgres.sql("SELECT id FROM bad_outbox WHERE sent_at IS NOT NULL") == [("1",)]

    def test_a_second_relay(self, jobs: Jobs, postgres: PostgresServer) -> None:
        from spark_jobs.postgres import Database

        postgres.sql(CREATE_OUTBOX.format("one_outbox"))
        with Database(jobs.spark, Namespace(database=postgres.url, database_user=None)) as other:
            assert other.lock("outbox postgres.public.one_outbox")
            run = jobs("outbox", "--database", postgres.url, "--table", "public.one_outbox")
        assert run.code == 2
        assert run.err == "outbox: another relay of public.one_outbox runs; two would send rows out of order\n"


def test_a_stage_has_a_name_of_its_own_that_postgresql_does_not_cut() -> None:
    from spark_jobs.jobs.to_postgres import stage_name

    names = [stage_name(job) for job in ("to_postgres users", "to_postgres_users", "x" * 200, "x" * 201, "jöb")]
    assert len(set(names)) == 5
    assert all(len(name.encode()) <= 63 for name in names)
    assert names[0].startswith("spark_job_stage_to_postgres_users_")


class TestToPostgres:
    def test_upserts_and_deletes(self, jobs: Jobs, postgres: PostgresServer, topic: str) -> None:
        postgres.sql("CREATE TABLE users (id int PRIMARY KEY, name text NOT NULL, at timestamptz, extra jsonb)")
        job = ("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "users", "--delete-field", "gone")
        first = changes(
            (1, {"name": "ann"}), (2, {"name": "bob", "extra": {"a": 1}}), (3, {"name": "cyd"}), (1, {"name": "Ann"})
        )
        produce(jobs.bootstrap, topic, first)
        assert "rows=4 " in jobs(*job).summary()
        expected = [("1", "Ann", ""), ("2", "bob", '{"a": 1}'), ("3", "cyd", "")]
        assert postgres.sql("SELECT id, name, extra FROM users ORDER BY id") == expected
        produce(
            jobs.bootstrap, topic, changes((2, None), (3, {"gone": True}), (4, {"name": "dee", "at": "2024-05-01T12:00:00Z"}))
        )
        assert f"rows=3 batches=1 {topic}[0]=1..3 {topic}[1]=3..4 " in jobs(*job).summary()
        assert postgres.sql("SELECT id, name, at AT TIME ZONE 'UTC' FROM users ORDER BY id") == [
            ("1", "Ann", ""),
            ("4", "dee", "2024-05-01 12:00:00"),
        ]
        assert "rows=0 batches=0 " in jobs(*job).summary()

    def test_a_batch_that_does_not_fit_is_not_half_written(self, jobs: Jobs, postgres: PostgresServer, topic: str) -> None:
        postgres.sql("CREATE TABLE strict (id int PRIMARY KEY, name text NOT NULL)")
        job = ("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "strict")
        produce(jobs.bootstrap, topic, changes((1, {"name": "ann"}), (2, {"name": None})))
        run = jobs(*job)
        assert run.code == 1
        assert 'null value in column "name"' in run.err
        assert run.err.count("\n") == 1
        assert postgres.sql("SELECT * FROM strict") == []
        assert postgres.sql(f"SELECT * FROM spark_job_offsets WHERE topic = '{topic}'") == []

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_driver_killed_around_its_commit_has_applied_every_change_once(
        self, jobs: Jobs, postgres: PostgresServer, tmp_path: Path, topic: str, when: str
    ) -> None:
        # A sum that grows by every change that is applied shows one that is applied twice.
        table = f"sums_{when}"
        postgres.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, amount int); CREATE TABLE log_{when} (id int, amount int)")
        postgres.sql(
            f"CREATE FUNCTION note_{when}() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$BEGIN INSERT INTO log_{when} VALUES (NEW.id, NEW.amount); RETURN NEW; END$$;"
            f" CREATE TRIGGER note AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION note_{when}()"
        )
        produce(jobs.bootstrap, topic, changes(*((number, {"amount": number}) for number in range(40))))
        arguments = ("to_postgres", "--topics", topic, "--database", postgres.url)
        arguments = (*arguments, "--table", table, "--max-rows-per-batch", "20")
        with DriverProcess(tmp_path, (*arguments, "--bootstrap-servers", jobs.bootstrap), kill=when) as killed:
            assert killed.wait() == -9
        applied = int(postgres.sql(f"SELECT count(*) FROM log_{when}")[0][0])
        assert applied == (0 if when == "before" else 20)
        assert f"rows={40 - applied} " in jobs(*arguments).summary()
        assert postgres.sql(f"SELECT count(*), sum(amount), count(DISTINCT id) FROM log_{when}") == [("40", "780", "40")]

    def test_columns_called_as_those_of_the_source(self, jobs: Jobs, postgres: PostgresServer, topic: str) -> None:
        names = ("rank", "value", "topic", "partition", "offset", "is_deleted", "key", "a.b")
        columns = ", ".join(f'"{name}" text' for name in names)
        postgres.sql(f"CREATE TABLE odd (id int PRIMARY KEY, {columns})")
        row = {name: f"of {name}" for name in names}
        produce(jobs.bootstrap, topic, changes((1, row | {"rank": "old"}), (1, row)))
        jobs("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "odd").summary()
        assert postgres.sql("SELECT * FROM odd") == [("1", *(f"of {name}" for name in names))]

    def test_a_value_that_is_no_object_is_not_written_as_nulls(self, jobs: Jobs, postgres: PostgresServer, topic: str) -> None:
        postgres.sql("CREATE TABLE kept (id int PRIMARY KEY, name text)")
        job = ("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "kept")
        produce(jobs.bootstrap, topic, [{"key": b"1", "value": b'{"name": "ann"}', "partition": 0}])
        jobs(*job).summary()
        values = (b"oops", b'[{"name": "bob"}]', b'{"name": "bob"} and more', b"null")
        produce(jobs.bootstrap, topic, [{"key": b"1", "value": value, "partition": 0} for value in values])
        for offset in range(1, 1 + len(values)):
            run = jobs(*job)
            said = f"{topic}[0] offset {offset} has a value that is no JSON object; nothing of its batch was written\n"
            assert (run.code, run.err) == (1, f"to_postgres: {said}")
            postgres.sql(f"UPDATE spark_job_offsets SET next_offset = {offset + 1} WHERE topic = '{topic}'")
        assert postgres.sql("SELECT * FROM kept") == [("1", "ann")]

    def test_a_change_without_a_key(self, jobs: Jobs, postgres: PostgresServer, topic: str) -> None:
        postgres.sql("CREATE TABLE keyed (id int PRIMARY KEY, name text)")
        produce(jobs.bootstrap, topic, [{"value": b'{"name": "ann"}', "partition": 1}])
        run = jobs("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "keyed")
        assert run.code == 1
        assert f"{topic}[1] offset 0 has no value for the key id of keyed; nothing of its batch was written" in run.err

    def test_latest_is_where_the_first_start_was_also_if_nothing_came(
        self, jobs: Jobs, postgres: PostgresServer, tmp_path: Path, topic: str
    ) -> None:
        postgres.sql("CREATE TABLE fresh (id int PRIMARY KEY)")
        job = ("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "fresh", "--starting-offsets", "latest")
        job = (*job, "--name", "fresh ones", "--scratch", str(tmp_path))
        theirs = tmp_path / "to_postgres" / "offsets"  # of another job, in the same place
        theirs.mkdir(parents=True)
        produce(jobs.bootstrap, topic, changes((1, {}), (2, {})))
        assert "rows=0 " in jobs(*job).summary()
        produce(jobs.bootstrap, topic, changes((3, {}), (5, {})))
        assert f"rows=2 batches=1 {topic}[0]=1..1 {topic}[1]=1..3 " in jobs(*job).summary()
        assert postgres.sql("SELECT id FROM fresh ORDER BY id") == [("3",), ("5",)]
        found = postgres.sql("SELECT \"partition\", next_offset FROM spark_job_offsets WHERE job = 'fresh ones' ORDER BY 1")
        assert found == [("0", "1"), ("1", "3")]
        assert [path.name for path in tmp_path.iterdir()] == ["to_postgres"]  # its own checkpoint is gone
        assert theirs.is_dir()

    def test_two_runs_of_one_job(
        self, jobs: Jobs, postgres: PostgresServer, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from spark_jobs.jobs.to_postgres import Target
        from spark_jobs.postgres import Database

        postgres.sql("CREATE TABLE single (id int PRIMARY KEY)")
        job = ("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "single")
        produce(jobs.bootstrap, topic, changes((2, {})))
        with Database(jobs.spark, Namespace(database=postgres.url, database_user=None)) as other:
            assert other.lock("to_postgres single")
            run = jobs(*job)
        assert run.code == 2
        assert run.err.startswith("to_postgres: another run of to_postgres single is under way; one at a time")
        jobs(*job).summary()

        # As if another had committed after this one had asked where to begin.
        def begin(self: Target, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
            return dict.fromkeys(partitions, 0)

        monkeypatch.setattr(Target, "starting_offsets", begin)
        run = jobs(*job)
        assert run.code == 1
        assert run.err == f"to_postgres: another run of to_postgres single has come further in {topic}[0]; one at a time\n"
        monkeypatch.undo()
        postgres.sql(f"UPDATE spark_job_offsets SET next_offset = 100 WHERE topic = '{topic}'")
        run = jobs(*job)
        assert run.code == 2
        assert run.err.endswith("the topic ends at 1; is it another cluster, or a topic made anew?\n")

    def test_a_table_that_is_called_as_a_stage_stays(self, jobs: Jobs, postgres: PostgresServer, topic: str) -> None:
        from spark_jobs.jobs.to_postgres import stage_name

        mine = stage_name("to_postgres precious")
        postgres.sql(
            f"CREATE TABLE precious (id int PRIMARY KEY); CREATE TABLE {mine} AS SELECT 1; CREATE TABLE precious_stage ()"
        )
        produce(jobs.bootstrap, topic, changes((1, {})))
        job = ("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "precious")
        run = jobs(*job)
        assert run.code == 2
        assert run.err.startswith(f"to_postgres: table {mine} is in the way: it is not a stage of these jobs")
        assert postgres.sql(f"SELECT count(*) FROM {mine}") == [("1",)]
        # One that a run which died has left is made anew, and goes at the end.
        postgres.sql(f"COMMENT ON TABLE {mine} IS 'stage of spark_jobs: dropped and made anew by each run'")
        jobs(*job).summary()
        found = postgres.sql("SELECT relname FROM pg_class WHERE relname ~ 'precious' AND relkind = 'r' ORDER BY 1")
        assert found == [("precious",), ("precious_stage",)]

    def test_what_others_have_staged_is_not_moved(
        self, jobs: Jobs, postgres: PostgresServer, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from spark_jobs.postgres import Database

        postgres.sql("CREATE TABLE mine (id int PRIMARY KEY)")
        append = Database.append

        def with_a_stranger(self: Database, rows: Any, table: str) -> None:
            append(self, rows, table)
            append(self, rows, table)  # a task that Spark has run twice
            postgres.sql(f"INSERT INTO {table} VALUES (77, false, 'of a run whose driver is dead')")

        monkeypatch.setattr(Database, "append", with_a_stranger)
        produce(jobs.bootstrap, topic, changes((1, {}), (2, {})))
        jobs("to_postgres", "--topics", topic, "--database", postgres.url, "--table", "mine").summary()
        assert postgres.sql("SELECT id FROM mine ORDER BY id") == [("1",), ("2",)]
