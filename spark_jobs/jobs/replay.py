"""A range of a topic or of an archive back into a topic.

Keys, headers and order within a source partition are kept. Spark's sink cannot set a record's timestamp: to keep those too,
rows go through one producer on the driver, one by one, which is slow. `--timestamps header` goes through the sink, at full
speed, and states the old time in a header.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arguments import add_range, add_source, add_target, milliseconds, range_options, source_options, source_topics
from spark_jobs.columns import with_headers
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.files import Folder
from spark_jobs.producer import DriverProducer
from spark_jobs.summary import Summary, between

TIMESTAMP_HEADER = "origin.timestamp"
TELL_EVERY = 10_000  # rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, required=False)
    parser.add_argument(
        "--archive", metavar="DIR", help="read what `archive` has written; --topics then chooses among its topics"
    )
    add_range(parser)
    add_target(parser)
    parser.add_argument(
        "--keep-partitions", action="store_true", help="into the partition of the same number; otherwise by key"
    )
    parser.add_argument("--timestamps", choices=("keep", "header"), default="keep", help="(default: %(default)s)")


def check(given: argparse.Namespace) -> None:
    if given.archive is None and not (given.topics or given.topic_pattern or given.assign):
        raise JobError("nothing to replay: pass --topics, --topic-pattern, --assign or --archive")


def run(context: Context) -> Summary:
    given = context.given
    rows = _from_topics(context) if given.archive is None else _from_archive(context)
    context.kafka.prepare_target(given.to_topic, given.create)
    before = context.kafka.end_offsets([given.to_topic])
    columns = ["key", "value", "headers", *(["partition"] if given.keep_partitions else [])]
    if given.timestamps == "keep":
        told = 0
        with DriverProducer(context.kafka, given.to_topic, given.compression) as producer:
            for row in rows.select(*columns, F.unix_millis("timestamp").alias("timestamp_ms")).toLocalIterator():
                producer.send(row)
                if producer.sent >= told + TELL_EVERY:
                    told = producer.sent
                    context.say(f"replay: {told} rows")
    else:
        stated = with_headers(F.col("headers"), {TIMESTAMP_HEADER: F.unix_millis("timestamp")})
        options = context.kafka.sink_options(given.compression) | {"topic": given.to_topic}
        rows.withColumn("headers", stated).select(*columns).write.format("kafka").options(**options).save()
    offsets = between(before, context.kafka.end_offsets([given.to_topic]))
    return Summary(rows=sum(end - start for start, end in offsets.values()), batches=1, offsets=offsets)


def _from_topics(context: Context) -> Any:
    given = context.given
    options = source_options(given) | range_options(given)
    context.kafka.require_topics(source_topics(given, context.kafka.topics()))
    return context.kafka.read(options)


def _from_archive(context: Context) -> Any:
    given = context.given
    if not Folder(context.spark, given.archive).exists("_spark_metadata"):
        raise JobError(f"{given.archive} is not an archive: it has no _spark_metadata, which `archive` writes")
    rows = context.spark.read.parquet(given.archive)
    if given.topics is not None:
        names = [name.strip() for name in given.topics.split(",")]
        rows = rows.filter(F.col("topic").isin(names))
    for where, is_start in ((given.start, True), (given.end, False)):
        if (condition := _bound(where, is_start)) is not None:
            rows = rows.filter(condition)
    return rows.repartitionByRange("topic", "partition").sortWithinPartitions("topic", "partition", "offset")


def _bound(where: str, is_start: bool) -> Any:
    """As Spark's source reads the same words: a start is included, an end is not, a partition that is not named is whole."""
    if where == ("earliest" if is_start else "latest"):
        return None
    if where in ("earliest", "latest"):
        return F.lit(False)
    if not where.lstrip().startswith("{"):
        at = F.timestamp_millis(F.lit(milliseconds(where)))
        return F.col("timestamp") >= at if is_start else F.col("timestamp") < at
    named = F.lit(True)
    range_options(argparse.Namespace(start=where, end=where))  # refuses what is not offsets
    for topic, partitions in json.loads(where).items():
        for partition, offset in partitions.items():
            elsewhere = (F.col("topic") != topic) | (F.col("partition") != int(partition))
            inside = F.col("offset") >= offset if is_start else F.col("offset") < offset
            named = named & (elsewhere | inside)
    return named
