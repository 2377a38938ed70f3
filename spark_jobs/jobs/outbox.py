"""Rows of an outbox table in PostgreSQL to topics, in order, then marked as sent.

A service writes its change and the message about it in one transaction; this relay sends what was committed, in the order of
`id`. A row that was sent but not yet marked when a relay dies is sent again, with the same `message-id` in its headers: the
relay's name and the row's id. `dedupe --id-header message-id` makes that exactly once.
"""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arguments import CODECS, positive, sql_name
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.kafka import HEADERS_TYPE
from spark_jobs.postgres import Database, add_database, check_database
from spark_jobs.summary import Summary, between

ID_HEADER = "message-id"
_COLUMNS = {"id", "topic", "key", "value", "headers", "sent_at"}
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_ROW = "id bigint, topic string, key string, value string, headers string"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    parser.add_argument(
        "--table", type=sql_name, default="outbox", help="(default: %(default)s); docs/spark.md has its columns"
    )
    parser.add_argument("--name", help="goes before the ids in message-id (default: DATABASE.SCHEMA.TABLE)")
    parser.add_argument(
        "--batch-rows", type=positive, default=1000, metavar="N", help="rows sent at once (default: %(default)s)"
    )
    parser.add_argument(
        "--every", type=positive, metavar="MS", help="go on for ever, look that often; otherwise all there is, once"
    )
    parser.add_argument("--create", type=positive, metavar="N", help="create topics that are missing, with N partitions")
    parser.add_argument("--compression", choices=CODECS, help="the codec of the batches written")


def check(given: argparse.Namespace) -> None:
    check_database(given)


def run(context: Context) -> Summary:
    given = context.given
    summary = Summary()
    with Database(context.spark, given) as database:
        table = _check_table(database, given.table)
        if not database.lock(f"outbox {table}"):
            raise JobError(f"another relay of {given.table} runs; two would send rows out of order")
        known: dict[tuple[str, int], int] = {}
        context.stop.is_heeded = True
        while not context.stop.is_wanted:
            sent = _relay(context, database, given.name or table, known)
            summary.rows += sent
            summary.batches += sent > 0
            if sent:
                context.say(f"outbox: batch {summary.batches}, {sent} rows")
            elif given.every is None:
                break
            else:
                context.stop.wait(given.every / 1000)
    if context.stop.is_wanted and given.every is None:
        raise KeyboardInterrupt
    summary.offsets = between(known, context.kafka.end_offsets({topic for topic, _ in known}))
    return summary


def _check_table(database: Database, table: str) -> str:
    """Its whole name, the same whatever the search path."""
    found = database.query("SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0", table)
    if not found:
        raise JobError(f"the database has no table {table}")
    missing = _COLUMNS - {str(name) for (name,) in found}
    if missing:
        raise JobError(f"table {table} has no column {min(missing)}; an outbox has {', '.join(sorted(_COLUMNS))}")
    whole = database.query(
        "SELECT current_database() || '.' || n.nspname || '.' || c.relname FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(?)",
        table,
    )
    return str(whole[0][0])


def _relay(context: Context, database: Database, name: str, known: dict[tuple[str, int], int]) -> int:
    """Send and mark one batch; `known` gains the end offsets that topics had before their first batch."""
    given = context.given
    rows = database.read(
        f"SELECT id::bigint AS id, topic::text, key::text, value::text, headers::text FROM {given.table}"
        f" WHERE sent_at IS NULL ORDER BY id LIMIT {given.batch_rows}"
    ).collect()
    if not rows:
        return 0
    rows.sort(key=lambda row: row["id"])
    _check_rows(given.table, rows)
    for topic in sorted({row["topic"] for row in rows} - {topic for topic, _ in known}):
        context.kafka.prepare_target(topic, given.create)
        known.update(context.kafka.end_offsets([topic]) or {(topic, 0): 0})
    # One task, so that one producer sends them in this order.
    frame = context.spark.createDataFrame(rows, _ROW).coalesce(1)
    headers = F.from_json("headers", "map<string, string>")
    listed = F.transform(
        F.map_entries(F.coalesce(headers, F.create_map().cast("map<string, string>"))),
        lambda entry: F.struct(entry["key"].alias("key"), entry["value"].cast("binary").alias("value")),
    )
    message_id = F.concat(F.lit(f"{name}:"), F.col("id").cast("string"))
    stated = F.array(F.struct(F.lit(ID_HEADER).alias("key"), message_id.cast("binary").alias("value")))
    written = frame.select("topic", "key", "value", F.concat(listed, stated).cast(HEADERS_TYPE).alias("headers"))
    context.begun.mark()
    written.write.format("kafka").options(**context.kafka.sink_options(given.compression)).save()
    _mark(database, given.table, rows)
    return len(rows)


def _check_rows(table: str, rows: list[Any]) -> None:
    """Nothing of a batch with a row that cannot be sent is sent, or those behind it would overtake it."""
    for row in rows:
        if row["topic"] is None or not _TOPIC.fullmatch(row["topic"]):
            raise JobError(
                f"row {row['id']} of {table} has topic {row['topic']!r}, which is no name for a topic; mend or delete it"
            )
        try:
            is_object = row["headers"] is None or isinstance(json.loads(row["headers"]), dict)
        except ValueError:
            is_object = False
        if not is_object:
            raise JobError(f"row {row['id']} of {table} has headers that are no JSON object; mend or delete it")


def _mark(database: Database, table: str, rows: list[Any]) -> None:
    ids = json.dumps([row["id"] for row in rows]).strip("[]")
    database.execute(f"UPDATE {table} SET sent_at = now() WHERE id = ANY (string_to_array(?, ', ')::bigint[])", ids)
