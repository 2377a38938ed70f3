"""A range of a topic or of an archive back into a topic.

Keys, headers and order within a source partition are kept. Spark's sink cannot set a record's timestamp: to keep those too,
rows go through one producer on the driver, one by one, which is slow. `--timestamps header` goes through the sink, at full
speed, and states the old time in a header.
"""

from __future__ import annotations

import argparse
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.arguments import (
    add_range,
    add_source,
    add_target,
    assigned_partitions,
    is_offsets,
    milliseconds,
    source_options,
    source_topics,
    stated_offsets,
)
from spark_jobs.columns import with_headers
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.files import Folder
from spark_jobs.jobs.archive import LAYOUT
from spark_jobs.offsets import range_options, source_partitions
from spark_jobs.producer import DriverProducer
from spark_jobs.summary import Summary, TopicPartition, between

TIMESTAMP_HEADER = "origin.timestamp"
TELL_EVERY = 10_000  # rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, required=False)
    parser.add_argument(
        "--archive", metavar="DIR", help="read what `archive` has written; --topics and the like then choose among what it has"
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
        context.begun.mark()
        with DriverProducer(context.kafka, given.to_topic, given.compression) as producer:
            for row in rows.select(*columns, F.unix_millis("timestamp").alias("timestamp_ms")).toLocalIterator():
                producer.send(row)
                if producer.sent >= told + TELL_EVERY:
                    told = producer.sent
                    context.say(f"replay: {told} rows")
        count = producer.sent
    else:
        stated = with_headers(F.col("headers"), {TIMESTAMP_HEADER: F.unix_millis("timestamp")})
        options = context.kafka.sink_options(given.compression) | {"topic": given.to_topic}
        stamped = rows.withColumn("headers", stated).select(*columns).persist()
        try:
            # What is counted is what is written: others may write to the source, and to the target, meanwhile.
            count = stamped.count()
            context.say(f"replay: {count} rows are written to {given.to_topic}")
            context.begun.mark()
            stamped.write.format("kafka").options(**options).save()
        finally:
            stamped.unpersist()
    offsets = between(before, context.kafka.end_offsets([given.to_topic]))
    return Summary(rows=count, batches=1, offsets=offsets)


def _from_topics(context: Context) -> Any:
    partitions = source_partitions(context, [context.given.to_topic])
    return context.kafka.read(source_options(context.given) | range_options(context, partitions))


def _from_archive(context: Context) -> Any:
    given = context.given
    if not Folder(context.spark, given.archive).exists("_spark_metadata"):
        raise JobError(f"{given.archive} is not an archive: it has no _spark_metadata, which `archive` writes")
    found = context.spark.read.parquet(given.archive)
    # The folders' names are text, also where a topic is called 007.
    schema = StructType([StructField(row.name, StringType()) if row.name in LAYOUT else row for row in found.schema])
    rows = context.spark.read.schema(schema).parquet(given.archive)
    present = sorted((row["topic"], row["partition"]) for row in rows.select("topic", "partition").distinct().collect())
    chosen = _chosen(given, present)
    if chosen != present:
        one_of = [(F.col("topic") == topic) & (F.col("partition") == partition) for topic, partition in chosen]
        rows = rows.filter(reduce(or_, one_of))
    for option, where in (("--from", given.start), ("--to", given.end)):
        if (condition := _bound(option, where, chosen)) is not None:
            rows = rows.filter(condition)
    return rows.repartitionByRange("topic", "partition").sortWithinPartitions("topic", "partition", "offset")


def _chosen(given: argparse.Namespace, present: list[TopicPartition]) -> list[TopicPartition]:
    """The partitions that are meant, all of which the archive has."""
    if given.topics is None and given.topic_pattern is None and given.assign is None:
        return present
    topics = sorted({topic for topic, _ in present})
    named = source_topics(given, topics)
    for topic in named:
        if topic not in topics:
            raise JobError(f"archive {given.archive} has no topic {topic}; it has: {', '.join(topics) or 'none'}")
    if given.assign is None:
        return [(topic, partition) for topic, partition in present if topic in named]
    assigned = assigned_partitions(given.assign)
    for topic, partition in sorted(assigned - set(present)):
        raise JobError(f"archive {given.archive} has nothing of {topic}[{partition}], which --assign names")
    return sorted(assigned)


def _bound(option: str, where: str, chosen: list[TopicPartition]) -> Any:
    """As Spark's source reads the same words: a start is included, an end is not, a partition that is not named is whole."""
    is_start = option == "--from"
    if where in ("earliest", "latest"):
        return None if where == ("earliest" if is_start else "latest") else F.lit(False)
    if not is_offsets(where):
        at = F.timestamp_millis(F.lit(milliseconds(where)))
        return F.col("timestamp") >= at if is_start else F.col("timestamp") < at
    named = F.lit(True)
    for (topic, partition), offset in sorted(stated_offsets(where).items()):
        if (topic, partition) not in chosen:
            raise JobError(f"{option} names {topic}[{partition}], which the archive does not have or is not replayed")
        if offset < 0:
            # -2 is the earliest, -1 the latest: all of it on one side.
            inside = F.lit((offset == -2) == is_start)
        else:
            inside = F.col("offset") >= offset if is_start else F.col("offset") < offset
        elsewhere = (F.col("topic") != topic) | (F.col("partition") != partition)
        named = named & (elsewhere | inside)
    return named
