"""Files (CSV, JSON lines, Parquet) to a topic.

A row becomes the JSON of its columns, or of one column as it is. Files with a line that does not fit are refused before
anything is written.
"""

from __future__ import annotations

import argparse
from pathlib import PurePosixPath
from typing import Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_jobs.arguments import add_target, key_value
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.kafka import HEADERS_TYPE
from spark_jobs.summary import Summary, between

_FORMATS = {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet"}
_CORRUPT = "_corrupt_record"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="PATH", help="files or folders, all of one format")
    parser.add_argument("--format", choices=("csv", "json", "parquet"), help="otherwise by the first name's ending")
    parser.add_argument(
        "--schema", metavar="DDL", help="'id bigint, name string'; otherwise inferred (CSV has a line of names)"
    )
    parser.add_argument("--key", metavar="COLUMN", help="the records' key")
    parser.add_argument("--value", metavar="COLUMN", help="the records' value; otherwise the JSON of all columns")
    parser.add_argument("--partition", metavar="COLUMN", help="the partition's number; otherwise by the key's hash")
    parser.add_argument("--header", action="append", type=key_value, default=[], metavar="NAME=COLUMN", help="may be repeated")
    add_target(parser)


def run(context: Context) -> Summary:
    given = context.given
    rows = _read(context)
    data = [name for name in rows.columns if name != _CORRUPT]
    columns = [given.key, given.value, given.partition, *(column for _, column in given.header)]
    for column in columns:
        if column is not None and column not in data:
            raise JobError(f"the files have no column {column}; they have {', '.join(data)}")
    count = _count_lines(rows, given)

    value = F.to_json(F.struct(*data), {"ignoreNullFields": "false"}) if given.value is None else _plain(rows, given.value)
    records = [value.alias("value")]
    if given.key is not None:
        records.append(_plain(rows, given.key).alias("key"))
    if given.partition is not None:
        records.append(F.col(given.partition).try_cast("int").alias("partition"))
    if given.header:
        pairs = [
            F.struct(F.lit(name).alias("key"), _plain(rows, column).cast("binary").alias("value"))
            for name, column in given.header
        ]
        records.append(F.array(*pairs).cast(HEADERS_TYPE).alias("headers"))

    before = context.kafka.end_offsets([given.to_topic])
    if given.partition is not None:
        _check_partitions(rows, given, len(before) or given.create)
    context.kafka.prepare_target(given.to_topic, given.create)
    context.say(f"ingest: {count} rows fit, they are written to {given.to_topic}")
    options = context.kafka.sink_options(given.compression) | {"topic": given.to_topic}
    rows.select(*records).write.format("kafka").options(**options).save()
    after = context.kafka.end_offsets([given.to_topic])
    return Summary(rows=count, batches=1, offsets=between(before, after))


def _read(context: Context) -> Any:
    given = context.given
    kind = given.format or _FORMATS.get(PurePosixPath(given.files[0]).suffix.lstrip("."))
    if kind is None:
        raise JobError(f"the format of {given.files[0]} is not plain from its name; pass --format")
    reader = context.spark.read
    if kind == "csv":
        reader = reader.option("header", "true").option("inferSchema", str(given.schema is None).lower())
    if kind != "parquet":
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)
    if given.schema is not None:
        try:
            schema = StructType.fromDDL(given.schema)
        except Exception:
            raise JobError(f"--schema {given.schema!r} is not a list of columns such as 'id bigint, name string'") from None
        reader = reader.schema(schema if kind == "parquet" else schema.add(_CORRUPT, "string"))
    return reader.format(kind).load(given.files)


def _count_lines(rows: Any, given: argparse.Namespace) -> int:
    """How many there are, all of which fit."""
    if _CORRUPT not in rows.columns:
        return int(rows.count())
    if len(rows.columns) == 1:
        raise JobError(f"{given.files[0]} has no line of JSON; is it of another --format?")
    # All columns are asked for, since Spark reads no more of a line than it has to.
    bad = F.first(F.when(F.col(_CORRUPT).isNotNull(), F.struct(*rows.columns)), ignorenulls=True)
    found = rows.agg(F.count(F.lit(1)).alias("rows"), bad.alias("bad")).collect()[0]
    if found["bad"] is not None:
        line = str(found["bad"][_CORRUPT]).strip()
        raise JobError(f"a line does not fit the schema: {line[:200]!r}; nothing was written")
    return int(found["rows"])


def _check_partitions(rows: Any, given: argparse.Namespace, count: int | None) -> None:
    """A producer waits a minute for a partition that is not there, with other rows written meanwhile. How many the broker will
    create is not known."""
    number = F.col(given.partition).try_cast("int")
    is_there = number >= 0 if count is None else number.between(0, count - 1)
    bad = rows.filter(F.col(given.partition).isNotNull() & (number.isNull() | ~is_there))
    for row in bad.select(F.col(given.partition).cast("string")).limit(1).collect():
        which = "from 0 on" if count is None else f"0 to {count - 1}"
        raise JobError(f"column {given.partition} has {row[0]!r}, {given.to_topic} has partitions {which}; nothing was written")


def _plain(rows: Any, column: str) -> Any:
    """Text and bytes as they are, everything else as text."""
    kind = dict(rows.dtypes)[column]
    if kind in ("string", "binary"):
        return F.col(column)
    return F.to_json(F.col(column)) if kind.startswith(("struct", "array", "map")) else F.col(column).cast("string")
