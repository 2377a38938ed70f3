"""Column expressions that several jobs use."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kafka import HEADERS_TYPE


def column(name: str) -> Any:
    """The one of exactly that name, dots and all."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def header(name: str) -> Any:
    """The first header of that name as text, null without one."""
    found = F.filter(F.col("headers"), lambda row: row["key"] == F.lit(name))
    return F.get(found, F.lit(0))["value"].cast("string")


def json_field(path: str, value: str = "value") -> Any:
    """What is at `path` (order.id) of the value's JSON, as text; null where there is nothing."""
    return F.get_json_object(F.col(value).cast("string"), "$." + path)


def with_headers(headers: Any, more: dict[str, Any]) -> Any:
    """`headers`, which may be null, and then those of `more`, name by name; a null value leaves its header out."""
    added = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in more.items()
        )
    )
    present = F.filter(added, lambda row: row["value"].isNotNull())
    return F.concat(F.coalesce(headers, F.array().cast(HEADERS_TYPE)), present)
