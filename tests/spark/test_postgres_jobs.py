"""outbox and to_postgres, with a real PostgreSQL; a driver that is killed around its commit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spark.conftest import Jobs
from spark.driver_process import DriverProcess
from spark.postgres_server import PostgresServer
from spark.topics import produce, records


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
        assert [dict(row.headers) for row in found[:2]] == [{"of": b"ann", "message-id": b"%d" % number} for number in (1, 2)]
        assert postgres.sql("SELECT count(*) FROM shop_outbox WHERE sent_at IS NULL") == [("0",)]
        assert "rows=0 batches=0 " in jobs(*relay).summary()

    def test_what_was_sent_but_not_marked_is_sent_again_and_dedupe_makes_it_once(
        self, jobs: Jobs, postgres: PostgresServer, tmp_path: Path, topic: str
    ) -> None:
        postgres.sql("CREATE TABLE outbox (id bigserial, topic text, key text, value text, headers text, sent_at timestamptz)")
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
