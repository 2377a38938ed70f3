"""One record for each message id, to a clean topic: exactly once for writers that repeat themselves.

An id is remembered for as long as --within says, by the records' timestamps. A record without an id passes. One that is older
than the newest by more than --within is dropped, repeated or not, and counted in the summary (dropped_late).
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arguments import add_target
from spark_jobs.columns import header, json_field
from spark_jobs.context import Context
from spark_jobs.streaming import Checkpoint, add_stream, interval, read_stream, write_to_kafka
from spark_jobs.summary import Summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_stream(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--id-header", metavar="NAME", help="the message id is in this header")
    where.add_argument("--id-field", metavar="PATH", help="… in this field of the value's JSON (order.id)")
    where.add_argument("--id-key", action="store_true", help="… the key")
    parser.add_argument(
        "--within", type=interval, default="1 hour", help="how late a repetition may come (default: %(default)s)"
    )
    add_target(parser)


def run(context: Context) -> Summary:
    given = context.given
    records = read_stream(context, targets=[given.to_topic])
    if given.id_key:
        identity = "key"
    else:
        identity = f"header {given.id_header}" if given.id_header is not None else f"field {given.id_field}"
    checkpoint = Checkpoint(context, to_topic=given.to_topic, id=identity, within=given.within)
    context.kafka.prepare_target(given.to_topic, given.create)
    checkpoint.claim()
    if given.id_header is not None:
        message_id = header(given.id_header)
    elif given.id_field is not None:
        message_id = json_field(given.id_field)
    else:
        message_id = F.hex("key")
    unique = F.concat_ws(" ", "topic", "partition", "offset")
    marked = records.withColumn("id", F.coalesce(F.concat(F.lit("id "), message_id), F.concat(F.lit("at "), unique)))
    clean = marked.withWatermark("timestamp", given.within).dropDuplicatesWithinWatermark(["id"])
    return write_to_kafka(context, clean.select("key", "value", "headers"))
