"""Files (CSV, JSON lines, Parquet) to a topic.

A row becomes the JSON of its columns, or of one column as it is. All files are read once before anything is written: one with a
line that does not fit, a value too many or a column of another type is refused.
"""

from __future__ import annotations

import argparse
from pathlib import PurePosixPath
from typing import Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.arguments import add_target, key_value
from spark_jobs.columns import column
from spark_jobs.context import Context
from spark_jobs.errors import JobError, explain
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
    if not data:
        raise JobError(f"{given.files[0]} has no columns; is it of another --format?")
    for name in (given.key, given.value, given.partition, *(source for _, source in given.header)):
        if name is not None and name not in data:
            raise JobError(f"the files have no column {name}; they have {', '.join(data)}")

    value = (
        F.to_json(F.struct(*map(column, data)), {"ignoreNullFields": "false"})
        if given.value is None
        else _plain(rows, given.value)
    )
    records = [value.alias("value")]
    if given.key is not None:
        records.append(_plain(rows, given.key).alias("key"))
    if given.partition is not None:
        records.append(column(given.partition).try_cast("int").alias("partition"))
    if given.header:
        pairs = [
            F.struct(F.lit(name).alias("key"), _plain(rows, source).cast("binary").alias("value"))
            for name, source in given.header
        ]
        records.append(F.array(*pairs).cast(HEADERS_TYPE).alias("headers"))

    try:
        count = _count_rows(rows, rows.select(*records), given)
    except JobError:
        raise
    except Exception as error:
        raise JobError(f"the files cannot be read: {explain(error)}; nothing was written") from None
    before = context.kafka.end_offsets([given.to_topic])
    if given.partition is not None:
        _check_partitions(rows, given, len(before) or given.create)
    context.kafka.prepare_target(given.to_topic, given.create)
    context.say(f"ingest: {count} rows fit, they are written to {given.to_topic}")
    options = context.kafka.sink_options(given.compression) | {"topic": given.to_topic}
    context.begun.mark()
    rows.select(*records).write.format("kafka").options(**options).save()
    after = context.kafka.end_offsets([given.to_topic])
    return Summary(rows=count, batches=1, offsets=between(before, after))


def _read(context: Context) -> Any:
    given = context.given
    kind = given.format or _FORMATS.get(PurePosixPath(given.files[0]).suffix.lstrip("."))
    if kind is None:
        raise JobError(f"the format of {given.files[0]} is not plain from its name; pass --format")
    schema = None
    if given.schema is not None:
        try:
            schema = StructType.fromDDL(given.schema)
        except Exception:
            raise JobError(f"--schema {given.schema!r} is not a list of columns such as 'id bigint, name string'") from None
    try:
        return {"csv": _read_csv, "json": _read_json, "parquet": _read_parquet}[kind](context.spark.read, given.files, schema)
    except JobError:
        raise
    except Exception as error:
        raise JobError(f"the files cannot be read: {explain(error)}") from None


def _read_csv(reader: Any, files: list[str], schema: StructType | None) -> Any:
    reader = reader.format("csv").option("header", "true")
    if schema is None:
        schema = reader.option("inferSchema", "true").load(files).schema
    # With a column for lines that do not fit, or Spark would drop the values that a line has too many; by names, as the first
    # lines of the files have them, or it would take the columns in any order for those of the schema.
    reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT).option("enforceSchema", "false")
    return reader.schema(StructType([*schema.fields, StructField(_CORRUPT, StringType())])).load(files)


def _read_json(reader: Any, files: list[str], schema: StructType | None) -> Any:
    reader = reader.format("json").option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)
    if schema is not None:
        reader = reader.schema(StructType([*schema.fields, StructField(_CORRUPT, StringType())]))
    rows = reader.load(files)
    if rows.columns == [_CORRUPT]:
        raise JobError(f"{files[0]} has no line of JSON; is it of another --format?")
    return rows


def _read_parquet(reader: Any, files: list[str], schema: StructType | None) -> Any:
    found = reader.format("parquet").option("mergeSchema", "true").load(files)
    if schema is None:
        return found
    for name in schema.names:
        if name not in found.columns:
            raise JobError(f"the files have no column {name} of --schema; they have {', '.join(found.columns)}")
    return reader.format("parquet").schema(schema).load(files)


def _count_rows(rows: Any, records: Any, given: argparse.Namespace) -> int:
    """How many there are, all of which fit."""
    if _CORRUPT not in rows.columns:
        # A count alone would read no column.
        records.write.format("noop").mode("overwrite").save()
        return int(rows.count())
    # All columns are asked for, since Spark reads no more of a line than it has to.
    bad = F.first(F.when(F.col(_CORRUPT).isNotNull(), F.struct(*map(column, rows.columns))), ignorenulls=True)
    found = rows.agg(F.count(F.lit(1)).alias("rows"), bad.alias("bad")).collect()[0]
    if found["bad"] is not None:
        line = str(found["bad"][_CORRUPT]).strip()
        raise JobError(f"a line does not fit the schema: {line[:200]!r}; nothing was written")
    return int(found["rows"])


def _check_partitions(rows: Any, given: argparse.Namespace, count: int | None) -> None:
    """A producer waits a minute for a partition that is not there, with other rows written meanwhile. How many the broker will
    create is not known."""
    number = column(given.partition).try_cast("int")
    is_there = number >= 0 if count is None else number.between(0, count - 1)
    bad = rows.filter(column(given.partition).isNotNull() & (number.isNull() | ~is_there))
    for row in bad.select(column(given.partition).cast("string")).limit(1).collect():
        which = "from 0 on" if count is None else f"0 to {count - 1}"
        raise JobError(f"column {given.partition} has {row[0]!r}, {given.to_topic} has partitions {which}; nothing was written")


def _plain(rows: Any, name: str) -> Any:
    """Text and bytes as they are, everything else as text."""
    kind = dict(rows.dtypes)[name]
    if kind in ("string", "binary"):
        return column(name)
    return F.to_json(column(name)) if kind.startswith(("struct", "array", "map")) else column(name).cast("string")
