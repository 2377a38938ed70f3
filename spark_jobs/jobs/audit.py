"""What is in a topic: counts, gaps, skewed keys, hot partitions, repetitions, times out of order; and how two topics differ.

A gap is an offset without a record: compaction, deleted records and the markers of transactions leave them. With --against,
records count as the same if key and value are; the range holds for both, and offsets may name partitions of both.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arguments import add_range, add_source, positive, source_options
from spark_jobs.columns import header, json_field
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.offsets import range_options, source_partitions
from spark_jobs.png import bar_chart
from spark_jobs.summary import Summary, TopicPartition

Row = dict[str, Any]
HOT_FACTOR = 2.0  # a partition with more than that many times the mean of its topic's others is hot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_range(parser)
    identity = parser.add_mutually_exclusive_group()
    identity.add_argument("--id-header", metavar="NAME", help="records with the same such header are repetitions")
    identity.add_argument(
        "--id-field", metavar="PATH", help="… with the same field of the value's JSON; otherwise key and value"
    )
    parser.add_argument("--against", metavar="TOPIC", help="another topic that should hold the same records")
    parser.add_argument("--top", type=positive, default=5, metavar="N", help="how many keys to show (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a PNG of partitions and keys")


def check(given: argparse.Namespace) -> None:
    if given.plot is not None and not given.plot.resolve().parent.is_dir():
        raise JobError(f"--plot {given.plot}: there is no folder {given.plot.resolve().parent}")


def run(context: Context) -> Summary:
    given = context.given
    partitions = source_partitions(context)
    other, theirs = None, []
    if given.against is not None:
        context.kafka.require_topics([given.against])
        theirs = context.kafka.partitions([given.against])
        named = argparse.Namespace(**vars(given) | {"topics": given.against, "topic_pattern": None, "assign": None})
        other = context.kafka.read(source_options(named) | range_options(context, theirs, partitions))
    rows = context.kafka.read(source_options(given) | range_options(context, partitions, theirs)).persist()
    try:
        report = _report(context, rows, partitions, other)
    finally:
        rows.unpersist()
    if given.json:
        print(json.dumps(report), flush=True)
    else:
        _print_tables(report)
    if given.plot is not None:
        given.plot.write_bytes(_chart(report))
    found: list[Row] = report["partitions"]
    offsets = {(row["topic"], row["partition"]): (row["first_offset"], row["last_offset"] + 1) for row in found}
    return Summary(rows=report["rows"], batches=1, offsets=offsets)


def _report(context: Context, rows: Any, present: Iterable[TopicPartition], other: Any) -> Row:
    given = context.given
    partitions = _partitions(rows, present)
    total = sum(row["rows"] for row in partitions)
    context.say(f"audit: {total} rows in {len(partitions)} partitions")
    report: Row = {
        "rows": total,
        "partitions": partitions,
        "keys": _keys(rows, total, given.top),
        "repeated_rows": _repeated(rows, given),
    }
    if other is not None:
        context.say(f"audit: compared with {given.against}")
        report["against"] = {"topic": given.against} | _compare(rows, other)
    return report


def _partitions(rows: Any, present: Iterable[TopicPartition]) -> list[Row]:
    """Those with records. `present` are all that there are: the empty ones count where load is compared."""
    in_order = Window.partitionBy("topic", "partition").orderBy("offset")
    before = F.max("timestamp").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    late_ms = F.unix_millis(before) - F.unix_millis("timestamp")
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    found = (
        rows.select("topic", "partition", "offset", "timestamp", "key", size.alias("size"), late_ms.alias("late_ms"))
        .groupBy("topic", "partition")
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.sum("size").alias("bytes"),
            F.count_if(F.col("key").isNull()).alias("without_key"),
            F.date_format(F.min("timestamp"), "yyyy-MM-dd'T'HH:mm:ss.SSSXXX").alias("first_time"),
            F.date_format(F.max("timestamp"), "yyyy-MM-dd'T'HH:mm:ss.SSSXXX").alias("last_time"),
            F.count_if(F.col("late_ms") > 0).alias("out_of_order"),
            F.greatest(F.coalesce(F.max("late_ms"), F.lit(0)), F.lit(0)).alias("max_late_ms"),
            F.count_if(F.col("timestamp") > F.current_timestamp()).alias("in_future"),
        )
        .orderBy("topic", "partition")
        .collect()
    )
    partitions = [row.asDict() for row in found]
    for row in partitions:
        row["gaps"] = row["last_offset"] - row["first_offset"] + 1 - row["rows"]
        others = sum(1 for topic, number in present if topic == row["topic"] and number != row["partition"])
        in_others = sum(other["rows"] for other in partitions if other["topic"] == row["topic"]) - row["rows"]
        row["is_hot"] = row["rows"] * others > HOT_FACTOR * in_others
    return partitions


def _keys(rows: Any, total: int, top: int) -> list[Row]:
    counted = rows.filter("key IS NOT NULL").groupBy("key").count().orderBy(F.desc("count"), "key").limit(top).collect()
    return [
        {
            "key": bytes(row["key"]).decode(errors="backslashreplace"),
            "rows": row["count"],
            "share": round(row["count"] / total, 4),
        }
        for row in counted
    ]


def _repeated(rows: Any, given: argparse.Namespace) -> int:
    """How many rows there are beyond the first of each id."""
    if given.id_header is not None:
        identity = header(given.id_header)
    elif given.id_field is not None:
        identity = json_field(given.id_field)
    else:
        identity = _fingerprint()
    counted = rows.select(identity.alias("id")).filter("id IS NOT NULL").groupBy("id").count()
    found = counted.agg(F.coalesce(F.sum(F.col("count") - 1), F.lit(0)).alias("repeated")).collect()
    return int(found[0]["repeated"])


def _fingerprint() -> Any:
    """Of key and value, where null is not the same as empty."""
    parts = [F.coalesce(F.sha2(F.col(name), 256), F.lit("null")) for name in ("key", "value")]
    return F.concat_ws(" ", *parts)


def _compare(left: Any, right: Any) -> Row:
    one = left.groupBy(_fingerprint().alias("id")).agg(F.count(F.lit(1)).alias("here"))
    two = right.groupBy(_fingerprint().alias("id")).agg(F.count(F.lit(1)).alias("there"))
    here, there = F.coalesce("here", F.lit(0)), F.coalesce("there", F.lit(0))
    found = one.join(two, "id", "full_outer").agg(
        F.coalesce(F.sum(F.least(here, there)), F.lit(0)).alias("same"),
        F.coalesce(F.sum(F.greatest(here - there, F.lit(0))), F.lit(0)).alias("missing_there"),
        F.coalesce(F.sum(F.greatest(there - here, F.lit(0))), F.lit(0)).alias("only_there"),
    )
    return {name: int(value) for name, value in found.collect()[0].asDict().items()}


def _print_tables(report: Row) -> None:
    columns = (
        "topic",
        "partition",
        "rows",
        "bytes",
        "first_offset",
        "last_offset",
        "gaps",
        "without_key",
        "first_time",
        "last_time",
    )
    _print_table(report["partitions"], (*columns, "out_of_order", "max_late_ms", "in_future", "is_hot"))
    _print_table(report["keys"], ("key", "rows", "share"))
    print(f"repeated rows: {report['repeated_rows']}")
    if "against" in report:
        print(
            "against {topic}: same {same}, missing there {missing_there}, only there {only_there}".format(**report["against"])
        )


def _print_table(rows: list[Row], columns: tuple[str, ...]) -> None:
    lines = [columns, *(tuple(str(row[column]) for column in columns) for row in rows)]
    widths = [max(len(line[position]) for line in lines) for position in range(len(columns))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    print()


def _chart(report: Row) -> bytes:
    partitions = [(f"{row['topic']}[{row['partition']}]", row["rows"], row["is_hot"]) for row in report["partitions"]]
    keys = [(row["key"], row["rows"], False) for row in report["keys"]]
    return bar_chart([("rows per partition", partitions), ("rows per key", keys)])
