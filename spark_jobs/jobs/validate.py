"""Records that fit a schema to one topic, the others to a dead-letter topic.

A dead letter keeps key, value and headers, and says in more headers why it is one and where it comes from.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.arguments import add_target
from spark_jobs.columns import with_headers
from spark_jobs.context import Context
from spark_jobs.errors import JobError
from spark_jobs.json_schema import SchemaError, compile_schema
from spark_jobs.streaming import Checkpoint, add_stream, read_stream, write_to_kafka
from spark_jobs.summary import Summary

REASON_HEADER = "error.reason"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_stream(parser)
    schema = parser.add_mutually_exclusive_group(required=True)
    schema.add_argument("--json-schema", type=Path, metavar="FILE", help="a JSON Schema that values have to fit")
    schema.add_argument("--avro-schema", type=Path, metavar="FILE", help="an Avro schema that values have to be of")
    parser.add_argument("--skip-bytes", type=int, default=0, metavar="N", help="before Avro's: 5 for a schema registry's id")
    add_target(parser)
    parser.add_argument("--dead-letter-topic", required=True, metavar="TOPIC", help="the topic for the others")


def check(given: argparse.Namespace) -> None:
    path = given.json_schema or given.avro_schema
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"the schema {path} cannot be read: {error}") from None
    if given.json_schema is not None:
        try:
            compile_schema(text)
        except SchemaError as error:
            raise JobError(f"{path} is no schema to check with: {error}") from None
    if given.to_topic == given.dead_letter_topic:
        raise JobError(f"good and bad records would both go to {given.to_topic}; name another --dead-letter-topic")


def run(context: Context) -> Summary:
    given = context.given
    records = read_stream(context, targets=[given.to_topic, given.dead_letter_topic])
    reason = _json_reason(given) if given.json_schema is not None else _avro_reason(context)
    checkpoint = Checkpoint(context, to_topic=given.to_topic, dead_letter_topic=given.dead_letter_topic)
    for topic in (given.to_topic, given.dead_letter_topic):
        context.kafka.prepare_target(topic, given.create)
    checkpoint.claim()
    origin = {
        REASON_HEADER: F.col("reason"),
        "origin.topic": F.col("topic"),
        "origin.partition": F.col("partition"),
        "origin.offset": F.col("offset"),
        "origin.timestamp": F.unix_millis("timestamp"),
    }
    is_bad = F.col("reason").isNotNull()
    rows = records.withColumn("reason", reason).select(
        "key",
        "value",
        F.when(is_bad, with_headers(F.col("headers"), origin)).otherwise(F.col("headers")).alias("headers"),
        F.when(is_bad, F.lit(given.dead_letter_topic)).otherwise(F.lit(given.to_topic)).alias("topic"),
    )
    return write_to_kafka(context, rows)


def _json_reason(given: argparse.Namespace) -> Any:
    text = given.json_schema.read_text()
    compiled: list[Any] = []

    def reason(value: bytearray | None) -> str | None:
        if not compiled:  # once a worker
            compiled.append(compile_schema(text))
        return compiled[0](None if value is None else bytes(value))  # type: ignore[no-any-return]

    return F.udf(reason, "string")(F.col("value"))


def _avro_reason(context: Context) -> Any:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql.avro.functions import from_avro

    given = context.given
    text = given.avro_schema.read_text()
    try:
        schema = context.spark._jvm.org.apache.avro.Schema.Parser().parse(text)
    except Py4JJavaError as error:
        raise JobError(
            f"{given.avro_schema} is no Avro schema: {str(error.java_exception.getMessage()).splitlines()[0]}"
        ) from None
    body = F.col("value") if not given.skip_bytes else F.expr(f"substring(value, {given.skip_bytes + 1})")
    decoded = from_avro(body, text, {"mode": "PERMISSIVE"})
    # Spark gives a record of nulls for what it cannot decode. A record that has nothing but nulls is told by its bytes.
    is_bad = F.to_json(F.struct(decoded.alias("row"))).isin("{}", '{"row":{}}')
    if (nulls := bytes_of_nulls(json.loads(str(schema.toString())))) is not None:
        is_bad = is_bad & (body != F.lit(nulls))
    return F.when(F.col("value").isNull(), F.lit("no value")).when(is_bad, F.lit(f"not Avro of {schema.getFullName()}"))


def bytes_of_nulls(schema: Any) -> bytes | None:
    """How Avro writes a record whose fields are all null; None if a field cannot be."""
    if isinstance(schema, list):
        # The branch's number, zigzag: a union has few, so a byte is enough.
        return bytes([schema.index("null") << 1]) if "null" in schema and schema.index("null") < 64 else None
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "null":
        return b""
    if kind != "record":
        return None
    parts = [bytes_of_nulls(field["type"]) for field in schema["fields"]]
    return b"".join(part for part in parts if part is not None) if None not in parts else None
