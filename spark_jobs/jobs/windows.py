"""Aggregates over windows of time, to a topic.

A window's result is written once, when the watermark has passed its end (`--mode append`), or after every batch that changed
it (`--mode update`). Key: the group; value: JSON with the window, the group and the aggregates.
"""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arguments import add_target
from spark_jobs.columns import json_field
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.streaming import Checkpoint, add_stream, interval, read_stream, write_to_kafka
from spark_jobs.summary import Summary

_AGGREGATES = {"sum": F.sum, "avg": F.avg, "min": F.min, "max": F.max}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_stream(parser)
    parser.add_argument("--window", type=interval, required=True, metavar="'1 minute'", help="a window's length")
    parser.add_argument(
        "--slide", type=interval, metavar="'10 seconds'", help="a window begins every so often (default: its length)"
    )
    parser.add_argument(
        "--watermark", type=interval, default="1 minute", help="how late a record may come (default: %(default)s)"
    )
    parser.add_argument("--time-field", metavar="PATH", help="a field with an ISO time; otherwise the records' timestamps")
    parser.add_argument("--group-by", metavar="A,B", default="", help="fields of the value's JSON")
    parser.add_argument(
        "--aggregate", metavar="A,B", default="count", help="count, sum:FIELD, avg:, min:, max: (default: count)"
    )
    parser.add_argument("--mode", choices=("append", "update"), default="append", help="(default: %(default)s)")
    add_target(parser)


def check(given: argparse.Namespace) -> None:
    for part in given.aggregate.split(","):
        name, _, field = part.partition(":")
        if part != "count" and (name not in _AGGREGATES or not field):
            raise JobError(f"--aggregate {part!r} is not count, sum:FIELD, avg:FIELD, min:FIELD or max:FIELD")


def run(context: Context) -> Summary:
    given = context.given
    records = read_stream(context, targets=[given.to_topic])
    settings = {
        name: getattr(given, name) for name in ("window", "slide", "watermark", "group_by", "aggregate", "mode", "time_field")
    }
    checkpoint = Checkpoint(context, to_topic=given.to_topic, **settings)
    context.kafka.prepare_target(given.to_topic, given.create)
    checkpoint.claim()
    groups = [name for name in given.group_by.split(",") if name]
    time = F.col("timestamp") if given.time_field is None else json_field(given.time_field).try_cast("timestamp")
    fields = {part.partition(":")[2] for part in given.aggregate.split(",")} - {""}
    rows = records.select(
        time.alias("event_time"),
        *(json_field(name).alias(f"group {name}") for name in groups),
        *(json_field(name).try_cast("double").alias(f"field {name}") for name in sorted(fields)),
    ).withWatermark("event_time", given.watermark)
    window = F.window("event_time", given.window, given.slide or given.window)
    found = rows.groupBy(window, *(F.col(f"`group {name}`") for name in groups)).agg(
        *map(_aggregate, given.aggregate.split(","))
    )
    results = [part.replace(":", "_") for part in given.aggregate.split(",")]
    grouped = [F.col(f"`group {name}`").alias(name) for name in groups]
    value = F.to_json(
        F.struct(
            F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX").alias("window_start"),
            F.date_format("window.end", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX").alias("window_end"),
            *grouped,
            *(F.col(f"`{name}`") for name in results),
        )
    )
    key = F.to_json(F.struct(*grouped)) if groups else F.lit(None).cast("string")
    return write_to_kafka(context, found.select(key.alias("key"), value.alias("value")), given.mode)


def _aggregate(part: str) -> Any:
    name, _, field = part.partition(":")
    if name == "count":
        return F.count(F.lit(1)).alias("count")
    return _AGGREGATES[name](F.col(f"`field {field}`")).alias(f"{name}_{field}")
