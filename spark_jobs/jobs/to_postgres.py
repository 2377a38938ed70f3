"""A stream of changes into a table of PostgreSQL: upserts and deletes, exactly once.

Rows and offsets are written in one transaction, and a start goes on from the offsets in the database: whatever dies, and
whenever, a change is applied once. Values are JSON objects with the table's columns; no value means that the key's row is
deleted, and so does a field that says so (--delete-field deleted).
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arguments import assigned_partitions, source_topics, sql_name
from spark_jobs.columns import json_field
from spark_jobs.context import Context
from spark_jobs.errors import FAILED, JobError
from spark_jobs.files import Folder
from spark_jobs.kafka import offsets_json
from spark_jobs.postgres import Database, add_database, check_database
from spark_jobs.streaming import add_stream, read_stream, run_query
from spark_jobs.summary import Summary, TopicPartition

_OFFSETS = "spark_job_offsets"
_CREATE_OFFSETS = f"""
CREATE TABLE IF NOT EXISTS {_OFFSETS} (
  job text, topic text, "partition" int, next_offset bigint NOT NULL, PRIMARY KEY (job, topic, "partition")
)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_stream(parser, checkpoint=False)
    add_database(parser)
    parser.add_argument("--table", type=sql_name, required=True, help="it is there, with a primary key")
    parser.add_argument("--name", help=f"the job's name in the table {_OFFSETS} (default: to_postgres TABLE)")
    parser.add_argument("--delete-field", metavar="PATH", help="a field of the value that is true for a deletion")
    parser.add_argument("--scratch", metavar="DIR", help="for Spark's own checkpoint, which is not kept; shared, on a cluster")


def check(given: argparse.Namespace) -> None:
    check_database(given)


def run(context: Context) -> Summary:
    given = context.given
    context.kafka.require_topics(source_topics(given, context.kafka.topics()))  # before tables are made
    with Database(context.spark, given) as database:
        target = Target(context, database)
        starting = target.starting_offsets()
        records = read_stream(context, starting_offsets=starting)
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="to-postgres-")) if given.scratch is None else None
            if scratch is None:
                # The offsets in the database are the truth; what an earlier run has left here is not.
                Folder(context.spark, given.scratch).delete("to_postgres")
                scratch = f"{given.scratch}/to_postgres"
            return run_query(context, records.writeStream.foreachBatch(target.apply), scratch, starting)


class Target:
    """The table, its stage and its offsets. `apply` runs on the thread that Spark calls foreachBatch on."""

    def __init__(self, context: Context, database: Database) -> None:
        given = context.given
        self._context = context
        self._database = database
        self._table = given.table
        self._job = given.name or f"to_postgres {given.table}"
        self._stage = f"{given.table}_stage"
        self._keys = self._primary_key()
        self._columns = [
            str(name)
            for (name,) in database.query(
                "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped"
                " AND attgenerated = '' ORDER BY attnum",
                given.table,
            )
        ]
        database.execute(_CREATE_OFFSETS)
        # What is staged is written again after a crash: it needs no log. It may lack the values that the table demands.
        database.execute(f"DROP TABLE IF EXISTS {self._stage}")
        kinds = ", ".join(f'"{name}"' for name in self._columns)
        database.execute(
            f"CREATE UNLOGGED TABLE {self._stage} AS SELECT {kinds}, false AS is_deleted FROM {given.table} WITH NO DATA"
        )

    def starting_offsets(self) -> str | None:
        """Where the database says, and from the beginning for partitions that it does not know."""
        stored = {
            (str(topic), int(partition)): int(offset)
            for topic, partition, offset in self._database.query(
                f'SELECT topic, "partition", next_offset FROM {_OFFSETS} WHERE job = ?', self._job
            )
        }
        if not stored:
            return None  # the first time, from where the command line says
        given = self._context.given
        present = self._context.kafka.end_offsets(source_topics(given, self._context.kafka.topics()))
        if given.assign is not None:
            present = {partition: end for partition, end in present.items() if partition in assigned_partitions(given.assign)}
        for partition, offset in stored.items():
            if partition in present and present[partition] < offset:
                raise JobError(
                    f"{_OFFSETS} says that {self._job} has read {partition[0]}[{partition[1]}] up to {offset}, "
                    f"the topic ends at {present[partition]}; is it another cluster, or a topic made anew?"
                )
        return offsets_json({partition: stored.get(partition, -2) for partition in present})

    def apply(self, batch: Any, _: int) -> None:
        """One batch, whole or not at all."""
        rows = batch.select(
            "topic",
            "partition",
            "offset",
            F.col("key").cast("string").alias("key"),
            F.col("value").cast("string").alias("value"),
        ).persist()
        try:
            ends = {
                (row["topic"], row["partition"]): (row["first"], row["last"] + 1)
                for row in rows.groupBy("topic", "partition")
                .agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
                .collect()
            }
            if not ends:
                return
            changes = self._changes(rows)
            self._check(changes)
            self._database.execute(f"TRUNCATE {self._stage}")
            self._database.append(changes.select(*self._columns, "is_deleted"), self._stage)
            with self._database.transaction():
                self._move_offsets(ends)
                self._merge()
        finally:
            rows.unpersist()

    def _changes(self, rows: Any) -> Any:
        """The last change of each key, as columns of text: PostgreSQL reads each as its column's type."""
        is_deleted = F.col("value").isNull()
        if self._context.given.delete_field is not None:
            is_deleted = is_deleted | (F.coalesce(json_field(self._context.given.delete_field), F.lit("false")) == "true")
        values = F.from_json("value", ", ".join(f"`{name}` string" for name in self._columns))
        keys = F.from_json("key", ", ".join(f"`{name}` string" for name in self._keys))
        # A key that is not an object is the primary key itself, if that is one column.
        plain = F.when(~F.col("key").startswith("{"), F.trim(F.col("key"), F.lit('"'))) if len(self._keys) == 1 else F.lit(None)
        columns = [
            F.coalesce(values[name], keys[name], plain).alias(name) if name in self._keys else values[name].alias(name)
            for name in self._columns
        ]
        parsed = rows.select("topic", "partition", "offset", "value", is_deleted.alias("is_deleted"), *columns)
        # A key's changes are in one partition; over several topics, or after one has grown, the higher offset counts.
        latest = Window.partitionBy(*(F.col(f"`{name}`") for name in self._keys)).orderBy(F.desc("offset"), F.desc("partition"))
        return parsed.withColumn("rank", F.row_number().over(latest)).filter("rank = 1")

    def _check(self, changes: Any) -> None:
        no_key = F.lit(False)
        for name in self._keys:
            no_key = no_key | F.col(f"`{name}`").isNull()
        bad = changes.filter(no_key).select("topic", "partition", "offset").limit(1).collect()
        if bad:
            at = bad[0]
            raise JobError(
                f"{at['topic']}[{at['partition']}] offset {at['offset']} has no value for the key {', '.join(self._keys)} of "
                f"{self._table}; nothing of its batch was written",
                FAILED,
            )

    def _move_offsets(self, ends: dict[TopicPartition, tuple[int, int]]) -> None:
        for (topic, partition), (first, end) in sorted(ends.items()):
            stored = self._database.query(
                f'SELECT next_offset FROM {_OFFSETS} WHERE job = ? AND topic = ? AND "partition" = ? FOR UPDATE',
                self._job,
                topic,
                partition,
            )
            if stored and stored[0][0] > first:
                raise JobError(f"another run of {self._job} has come further in {topic}[{partition}]; one at a time", FAILED)
            self._database.execute(
                f'INSERT INTO {_OFFSETS} VALUES (?, ?, ?, ?) ON CONFLICT (job, topic, "partition")'
                " DO UPDATE SET next_offset = excluded.next_offset",
                self._job,
                topic,
                partition,
                end,
            )

    def _merge(self) -> None:
        names = [f'"{name}"' for name in self._columns]
        keys = [f'"{name}"' for name in self._keys]
        same = " AND ".join(f"old.{key} = new.{key}" for key in keys)
        others = ", ".join(f"{name} = excluded.{name}" for name in names if name not in keys)
        self._database.execute(f"DELETE FROM {self._table} old USING {self._stage} new WHERE new.is_deleted AND {same}")
        self._database.execute(
            f"INSERT INTO {self._table} ({', '.join(names)}) SELECT {', '.join(names)} FROM {self._stage} WHERE NOT is_deleted"
            f" ON CONFLICT ({', '.join(keys)}) DO {f'UPDATE SET {others}' if others else 'NOTHING'}"
        )

    def _primary_key(self) -> list[str]:
        if self._database.query("SELECT to_regclass(?)::text", self._table) == [(None,)]:
            raise JobError(f"the database has no table {self._table}")
        found = self._database.query(
            "SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
            " WHERE a.attnum = ANY (i.indkey) AND i.indrelid = to_regclass(?) AND i.indisprimary",
            self._table,
        )
        if not found:
            raise JobError(f"table {self._table} has no primary key, which tells a change from a new row")
        return [str(name) for (name,) in found]
