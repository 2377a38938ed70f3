"""A streaming query from its checkpoint to its summary: what is in the checkpoint, when it runs, how far it came.

A checkpoint belongs to one job with one set of topics: a file in it says so, and another job is refused before Spark would
mix the two up.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from typing import Any

from spark_jobs.arguments import add_source, is_offsets, positive, source_options, starting_offsets
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.files import Folder
from spark_jobs.kafka import offsets_json, offsets_of
from spark_jobs.offsets import first_offsets, source_partitions
from spark_jobs.summary import Summary, TopicPartition

POLL_S = 0.2
_MARKER = "spark_job.json"
_INTERVAL = re.compile(r"\d+ (milliseconds?|seconds?|minutes?|hours?|days?)")


def add_stream(parser: argparse.ArgumentParser, *, checkpoint: bool = True) -> None:
    add_source(parser)
    if checkpoint:
        parser.add_argument("--checkpoint", required=True, metavar="DIR", help="where the job keeps how far it came")
    parser.add_argument(
        "--every", type=interval, metavar="'10 seconds'", help="go on for ever, a batch each time; otherwise all there is, once"
    )
    parser.add_argument(
        "--starting-offsets",
        type=starting_offsets,
        default="earliest",
        metavar="WHERE",
        help='earliest, latest or {"orders": {"0": 12}}, the first time (default: %(default)s)',
    )
    parser.add_argument(
        "--max-rows-per-batch", type=positive, metavar="N", help="split what there is into batches of about N rows"
    )


def interval(text: str) -> str:
    if not _INTERVAL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as '10 seconds' or '5 minutes'")
    return text


def read_stream(context: Context, *, targets: Iterable[str] = ()) -> Any:
    """The rows of the topics, which are there and are not among the targets."""
    given = context.given
    partitions = source_partitions(context, targets)
    starting = given.starting_offsets
    # Later starts go on from the checkpoint, whatever has become of those offsets.
    if is_offsets(starting) and not Folder(context.spark, f"{given.checkpoint}/offsets").names():
        starting = offsets_json(first_offsets(context, starting, partitions))
    return read_stream_from(context, starting)


def read_stream_from(context: Context, offsets: str) -> Any:
    given = context.given
    options = source_options(given) | {"startingOffsets": offsets}
    if given.max_rows_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(given.max_rows_per_batch)
    return context.kafka.read_stream(options)


class Checkpoint:
    """Refuses one of another job, of other topics, or a folder that is none. `claim` then writes down whose it is: only when
    nothing else can be refused, or a second try with another option would be, too."""

    def __init__(self, context: Context, **what: str | None) -> None:
        given = context.given
        self._mine = {"job": given.job, "topics": given.topics, "pattern": given.topic_pattern, "assign": given.assign} | what
        self._folder = Folder(context.spark, given.checkpoint)
        names = self._folder.names()
        if _MARKER in names:
            self._compare(given.checkpoint)
        elif names:
            raise JobError(
                f"{given.checkpoint} is not a checkpoint of these jobs (it has {names[0]}); --checkpoint takes a new folder"
            )
        self._is_new = not names
        self._begun = context.begun

    def claim(self) -> None:
        if self._is_new:
            self._begun.mark()
            self._folder.write_text(_MARKER, json.dumps(self._mine))

    def _compare(self, path: str) -> None:
        try:
            theirs = dict(json.loads(self._folder.read_text(_MARKER)))
        except (ValueError, TypeError):
            raise JobError(f"checkpoint {path} is damaged: its {_MARKER} does not say whose it is") from None
        for key, mine in self._mine.items():
            if mine != theirs.get(key):
                raise JobError(
                    f"checkpoint {path} is of a run with {key} {theirs.get(key)}, this one has {key} {mine}; "
                    "give each its own --checkpoint"
                )


def write_to_kafka(context: Context, rows: Any, mode: str = "append") -> Summary:
    """Run `rows` into the topics that their column `topic` names, or into --to-topic."""
    given = context.given
    options = context.kafka.sink_options(given.compression)
    if "topic" not in rows.columns:
        options["topic"] = given.to_topic
    return run_query(context, rows.writeStream.format("kafka").options(**options).outputMode(mode))


def run_query(context: Context, writer: Any, checkpoint: str | None = None) -> Summary:
    """Start the query, tell of every batch, wait for its end; ^C ends one that goes on for ever."""
    given = context.given
    checkpoint = checkpoint or given.checkpoint
    context.begun.mark()
    if given.every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=given.every)
    query = writer.option("checkpointLocation", checkpoint).start()
    summary = Summary()
    told: set[tuple[str, int]] = set()
    context.stop.is_heeded = True
    while not query.awaitTermination(POLL_S):
        _collect(context, query, summary, told, checkpoint)
        if context.stop.is_wanted:
            query.stop()
            if given.every is None:
                raise KeyboardInterrupt
            break
    _collect(context, query, summary, told, checkpoint)
    return summary


def _collect(context: Context, query: Any, summary: Summary, told: set[tuple[str, int]], checkpoint: str) -> None:
    for progress in query.recentProgress:
        rows, batch = progress["numInputRows"], progress["batchId"]
        # A query that waits reports the same batch again and again, without rows.
        if not rows or (progress["runId"], batch) in told:
            continue
        told.add((progress["runId"], batch))
        summary.rows += rows
        summary.batches += 1
        for state in progress["stateOperators"]:
            dropped = int(state["numRowsDroppedByWatermark"])
            summary.more["dropped_late"] = int(summary.more.get("dropped_late", 0)) + dropped
        for source in progress["sources"]:
            start, end = _offsets(source["startOffset"]), _offsets(source["endOffset"])
            if not start:
                start = _initial_offsets(context, checkpoint)
            for partition, offset in end.items():
                first = summary.offsets[partition][0] if partition in summary.offsets else start.get(partition, 0)
                summary.offsets[partition] = (first, offset)
        context.say(f"{context.given.job}: batch {batch}, {rows} rows, {progress['processedRowsPerSecond']:.0f} rows/s")


def _initial_offsets(context: Context, checkpoint: str) -> dict[TopicPartition, int]:
    """Where Spark's source began, which it wrote down: a byte of zero, its version, and the offsets."""
    text = Folder(context.spark, f"{checkpoint}/sources/0").read_text("0")
    return offsets_of(text.partition("\n")[2])


def _offsets(stated: Any) -> dict[TopicPartition, int]:
    """A source that has not begun states the word None."""
    return offsets_of(stated) if stated not in (None, "None", "null") else {}
