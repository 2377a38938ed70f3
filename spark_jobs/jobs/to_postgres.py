"""A stream of changes into a table of PostgreSQL: upserts and deletes, exactly once.

Rows and offsets are written in one transaction, and a start goes on from the offsets in the database: whatever dies, and
whenever, a change is applied once. Values are JSON objects with the table's columns; no value means that the key's row is
deleted, and so does a field that says so (--delete-field deleted).

A batch is staged in a table of the job's own, which is dropped at the end. One run of a job at a time: it holds a lock of the
database's, and what it staged itself is all that it moves.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arguments import sql_name
from spark_jobs.columns import column, json_field, quoted
from spark_jobs.context import Context
from spark_jobs.errors import FAILED, JobError
from spark_jobs.files import Folder
from spark_jobs.kafka import offsets_json
from spark_jobs.offsets import first_offsets, source_partitions
from spark_jobs.postgres import Database, add_database, check_database
from spark_jobs.streaming import add_stream, read_stream_from, run_query
from spark_jobs.summary import Summary, TopicPartition

_OFFSETS = "spark_job_offsets"
_CREATE_OFFSETS = f"""
CREATE TABLE IF NOT EXISTS {_OFFSETS} (
  job text, topic text, "partition" int, next_offset bigint NOT NULL, PRIMARY KEY (job, topic, "partition")
)"""
# Of a stage, so that nothing else is ever dropped.
_COMMENT = "stage of spark_jobs: dropped and made anew by each run"
# Columns of ours stand beside those of the table, which may be called topic, value or rank.
_TOPIC, _PARTITION, _OFFSET, _KEY, _VALUE = (f"_spark_job_{name}" for name in ("topic", "partition", "offset", "key", "value"))
_CORRUPT, _DELETED, _RANK, _BATCH = (f"_spark_job_{name}" for name in ("corrupt", "is_deleted", "rank", "batch"))


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
    partitions = source_partitions(context)  # before tables are made
    with Database(context.spark, context.given) as database:
        target = Target(context, database)
        starting = target.starting_offsets(partitions)
        with target.prepared(starting), _scratch(context, target.job) as scratch:
            records = read_stream_from(context, offsets_json(starting))
            return run_query(context, records.writeStream.foreachBatch(target.apply), scratch)


@contextlib.contextmanager
def _scratch(context: Context, job: str) -> Iterator[str]:
    """For Spark's checkpoint. The offsets in the database are the truth; what an earlier run has left here is not."""
    given = context.given
    if given.scratch is None:
        with tempfile.TemporaryDirectory(prefix="to-postgres-") as folder:
            yield folder
        return
    # Others may have theirs in the same place.
    name = f"to_postgres-{_digest(given.database.partition('?')[0], job)}"
    place = Folder(context.spark, given.scratch)
    place.delete(name)
    try:
        yield f"{given.scratch}/{name}"
    finally:
        place.delete(name)


def stage_name(job: str) -> str:
    """Of at most 63 bytes, which is what PostgreSQL takes, and of this job alone."""
    readable = re.sub("[^a-z0-9]+", "_", job.lower())[:30]
    return f"spark_job_stage_{readable}_{_digest(job)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _sql(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Target:
    """The table, its stage and its offsets. Nothing is made before `prepared`. `apply` runs on the thread that Spark calls
    foreachBatch on."""

    def __init__(self, context: Context, database: Database) -> None:
        given = context.given
        self._context = context
        self._database = database
        self._table = given.table
        self.job = given.name or f"to_postgres {given.table}"
        self._stage = stage_name(self.job)
        self._keys = self._primary_key()
        self._columns = [
            str(name)
            for (name,) in database.query(
                "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped"
                " AND attgenerated = '' ORDER BY attnum",
                given.table,
            )
        ]
        if not database.lock(self.job):
            raise JobError(f"another run of {self.job} is under way; one at a time, or give each its own --name")
        found = database.query("SELECT to_regclass(?)::text, obj_description(to_regclass(?), 'pg_class')", *[self._stage] * 2)
        if found[0][0] is not None and found[0][1] != _COMMENT:
            raise JobError(f"table {self._stage} is in the way: it is not a stage of these jobs; rename it, or pass --name")

    def starting_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the database says, and from the beginning for partitions that it does not know. The first time, where the
        command line says."""
        stored = {}
        if self._database.query("SELECT to_regclass(?)::text", _OFFSETS) != [(None,)]:
            found = self._database.query(f'SELECT topic, "partition", next_offset FROM {_OFFSETS} WHERE job = ?', self.job)
            stored = {(str(topic), int(partition)): int(offset) for topic, partition, offset in found}
        first = first_offsets(self._context, "earliest" if stored else self._context.given.starting_offsets, partitions)
        ends = self._context.kafka.offsets(partitions)
        for partition, offset in stored.items():
            if partition in ends and ends[partition] < offset:
                raise JobError(
                    f"{_OFFSETS} says that {self.job} has read {partition[0]}[{partition[1]}] up to {offset}, "
                    f"the topic ends at {ends[partition]}; is it another cluster, or a topic made anew?"
                )
        return {partition: stored.get(partition, first[partition]) for partition in partitions}

    @contextlib.contextmanager
    def prepared(self, starting: dict[TopicPartition, int]) -> Iterator[None]:
        """Make what is missing, and write down where the job begins: `latest` means another place the next time, also if
        nothing has come by then."""
        self._context.begun.mark()
        self._database.execute(_CREATE_OFFSETS)
        if self._context.given.starting_offsets != "earliest":
            rows = [{"topic": topic, "number": number, "next": offset} for (topic, number), offset in starting.items()]
            self._database.execute(
                f"INSERT INTO {_OFFSETS} SELECT ?, topic, number, next"
                " FROM jsonb_to_recordset(?::jsonb) AS stated (topic text, number int, next bigint) ON CONFLICT DO NOTHING",
                self.job,
                json.dumps(rows),
            )
        names = ", ".join(map(_sql, self._columns))
        # What is staged is written again after a crash: it needs no log. It may lack the values that the table demands.
        # One statement, so that there is no stage without its comment.
        self._database.execute(
            f"DO $stage$ BEGIN DROP TABLE IF EXISTS {self._stage};"
            f" CREATE UNLOGGED TABLE {self._stage} AS SELECT {names}, false AS {_DELETED}, ''::text AS {_BATCH}"
            f" FROM {self._table} WITH NO DATA; COMMENT ON TABLE {self._stage} IS '{_COMMENT}'; END $stage$"
        )
        try:
            yield
        finally:
            # Without a connection it stays, until the next run.
            with contextlib.suppress(JobError):
                self._database.execute(f"DROP TABLE IF EXISTS {self._stage}")

    def apply(self, batch: Any, _: int) -> None:
        """One batch, whole or not at all."""
        rows = batch.select(
            F.col("topic").alias(_TOPIC),
            F.col("partition").alias(_PARTITION),
            F.col("offset").alias(_OFFSET),
            F.col("key").cast("string").alias(_KEY),
            F.col("value").cast("string").alias(_VALUE),
        ).persist()
        try:
            ends = {
                (row[_TOPIC], row[_PARTITION]): (row["first"], row["last"] + 1)
                for row in rows.groupBy(_TOPIC, _PARTITION)
                .agg(F.min(_OFFSET).alias("first"), F.max(_OFFSET).alias("last"))
                .collect()
            }
            if not ends:
                return
            parsed = self._parsed(rows)
            self._check(parsed)
            batch_id = str(uuid.uuid4())
            staged = self._latest(parsed).select(*map(column, self._columns), _DELETED, F.lit(batch_id).alias(_BATCH))
            self._database.execute(f"TRUNCATE {self._stage}")
            self._database.append(staged, self._stage)
            with self._database.transaction():
                self._move_offsets(ends)
                self._merge(batch_id)
        finally:
            rows.unpersist()

    def _parsed(self, rows: Any) -> Any:
        """The changes as columns of text: PostgreSQL reads each as its column's type."""
        is_deleted = F.col(_VALUE).isNull()
        if self._context.given.delete_field is not None:
            is_deleted = is_deleted | (
                F.coalesce(json_field(self._context.given.delete_field, _VALUE), F.lit("false")) == "true"
            )
        values = F.from_json(_VALUE, _schema([*self._columns, _CORRUPT]), {"columnNameOfCorruptRecord": _CORRUPT})
        keys = F.from_json(_KEY, _schema(self._keys))
        # A key that is not an object is the primary key itself, if that is one column.
        plain = F.when(~F.col(_KEY).startswith("{"), F.trim(F.col(_KEY), F.lit('"'))) if len(self._keys) == 1 else F.lit(None)
        columns = [
            F.coalesce(values[name], keys[name], plain).alias(name) if name in self._keys else values[name].alias(name)
            for name in self._columns
        ]
        # Spark's parser stops at an object's end, and takes the first of a list.
        trimmed = F.trim(F.col(_VALUE), F.lit(" \t\r\n"))
        is_object = values[_CORRUPT].isNull() & trimmed.startswith("{") & trimmed.endswith("}")
        is_corrupt = F.col(_VALUE).isNotNull() & ~F.coalesce(is_object, F.lit(False))
        return rows.select(_TOPIC, _PARTITION, _OFFSET, is_corrupt.alias(_CORRUPT), is_deleted.alias(_DELETED), *columns)

    def _latest(self, parsed: Any) -> Any:
        """The last change of each key. A key's changes are in one partition; over several topics, or after one has grown, the
        higher offset counts."""
        latest = Window.partitionBy(*map(column, self._keys)).orderBy(F.desc(_OFFSET), F.desc(_PARTITION))
        return parsed.withColumn(_RANK, F.row_number().over(latest)).filter(F.col(_RANK) == 1)

    def _check(self, parsed: Any) -> None:
        no_key = F.lit(False)
        for name in self._keys:
            no_key = no_key | column(name).isNull()
        bad = parsed.filter(F.col(_CORRUPT) | no_key).orderBy(_TOPIC, _PARTITION, _OFFSET)
        for at in bad.select(_TOPIC, _PARTITION, _OFFSET, _CORRUPT).limit(1).collect():
            lacks = f"no value for the key {', '.join(self._keys)} of {self._table}"
            raise JobError(
                f"{at[_TOPIC]}[{at[_PARTITION]}] offset {at[_OFFSET]} has "
                f"{'a value that is no JSON object' if at[_CORRUPT] else lacks}; nothing of its batch was written",
                FAILED,
            )

    def _move_offsets(self, ends: dict[TopicPartition, tuple[int, int]]) -> None:
        for (topic, partition), (first, end) in sorted(ends.items()):
            stored = self._database.query(
                f'SELECT next_offset FROM {_OFFSETS} WHERE job = ? AND topic = ? AND "partition" = ? FOR UPDATE',
                self.job,
                topic,
                partition,
            )
            if stored and stored[0][0] > first:
                raise JobError(f"another run of {self.job} has come further in {topic}[{partition}]; one at a time", FAILED)
            self._database.execute(
                f'INSERT INTO {_OFFSETS} VALUES (?, ?, ?, ?) ON CONFLICT (job, topic, "partition")'
                " DO UPDATE SET next_offset = excluded.next_offset",
                self.job,
                topic,
                partition,
                end,
            )

    def _merge(self, batch_id: str) -> None:
        """What an executor of another run has staged meanwhile, or a task twice, does not count."""
        names, keys = ", ".join(map(_sql, self._columns)), ", ".join(map(_sql, self._keys))
        same = " AND ".join(f"old.{_sql(key)} = new.{_sql(key)}" for key in self._keys)
        others = ", ".join(f"{_sql(name)} = excluded.{_sql(name)}" for name in self._columns if name not in self._keys)
        self._database.execute(
            f"DELETE FROM {self._table} old USING {self._stage} new WHERE new.{_DELETED} AND new.{_BATCH} = ? AND {same}",
            batch_id,
        )
        self._database.execute(
            f"INSERT INTO {self._table} ({names}) SELECT DISTINCT ON ({keys}) {names} FROM {self._stage}"
            f" WHERE NOT {_DELETED} AND {_BATCH} = ?"
            f" ON CONFLICT ({keys}) DO {f'UPDATE SET {others}' if others else 'NOTHING'}",
            batch_id,
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


def _schema(names: list[str]) -> str:
    return ", ".join(f"{quoted(name)} string" for name in names)
