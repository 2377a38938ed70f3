"""Topics to Parquet files, by topic, date and hour (UTC) of the records.

Every record lands exactly once: the file sink's log (_spark_metadata) says which files count, and Spark's readers follow it.
--compact then merges the small files that earlier runs have left.
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arguments import positive
from spark_jobs.compaction import compact
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.files import Folder
from spark_jobs.streaming import Checkpoint, add_stream, read_stream, run_query
from spark_jobs.summary import Summary

LAYOUT = ("topic", "date", "hour")
COLUMNS = ("key", "value", "headers", "partition", "offset", "timestamp", "timestampType")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_stream(parser)
    parser.add_argument("--to-path", required=True, metavar="DIR", help="the archive")
    parser.add_argument("--compact", action="store_true", help="merge small files afterwards; nobody may read meanwhile")
    parser.add_argument(
        "--file-mb", type=positive, default=128, metavar="N", help="the size to merge up to (default: %(default)s)"
    )


def check(given: argparse.Namespace) -> None:
    if given.compact and given.every is not None:
        raise JobError(
            "--compact rewrites the list of files that --every goes on writing; run it apart, with all there is, once"
        )


def run(context: Context) -> Summary:
    given = context.given
    records = read_stream(context)
    checkpoint = Checkpoint(context, to_path=given.to_path)
    _check_archive(context)
    checkpoint.claim()
    day_and_hour = (F.date_format("timestamp", "yyyy-MM-dd").alias("date"), F.date_format("timestamp", "HH").alias("hour"))
    # One file a folder and batch, where every task would write its own.
    rows = records.select(*COLUMNS, "topic", *day_and_hour).repartition(*LAYOUT)
    writer = rows.writeStream.format("parquet").option("path", given.to_path).partitionBy(*LAYOUT).outputMode("append")
    summary = run_query(context, writer)
    if given.compact:
        merged, into = compact(context.spark, given.to_path, given.file_mb << 20)
        summary.more |= {"merged_files": merged, "into_files": into}
    return summary


def _check_archive(context: Context) -> None:
    """Batches are numbered by the checkpoint and logged in the archive: one without the other would skip or repeat them."""
    given = context.given
    is_begun = Folder(context.spark, given.checkpoint).exists("commits")
    is_logged = Folder(context.spark, given.to_path).exists("_spark_metadata")
    if is_logged and not is_begun:
        raise JobError(
            f"{given.to_path} was written with another checkpoint than {given.checkpoint}; pass that one, or a new --to-path"
        )
    if is_begun and not is_logged and Folder(context.spark, given.checkpoint + "/commits").names():
        raise JobError(f"checkpoint {given.checkpoint} goes on from an archive that is not at {given.to_path} any more")
