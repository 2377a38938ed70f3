"""Every row of our tables against the schemas that Apache Kafka's jars carry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from interop.apache_kafka import jar
from interop.wire.message_lines import ask

from pybroker.base.ids import ZERO_UUID
from pybroker.protocol.api_table import API_BY_KEY, APIS, Listener
from pybroker.protocol.catalog import message_classes
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.schema import Column, StructMeta, Versions

ARTIFACTS = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
    "kafka-metadata",
    "kafka-raft",
    "kafka-storage",
)
Row = dict[str, Any]


@cache
def schemas() -> dict[str, Row]:
    """The schemas by name, without those that 4.0 took away."""
    found = {}
    for artifact in ARTIFACTS:
        with jar(artifact) as archive:
            for path in archive.namelist():
                if path.endswith(".json") and "/" in path:
                    text = archive.read(path).decode()
                    schema = json.loads(re.sub(r"^\s*//.*$|\s//[^\"\n]*$", "", text, flags=re.MULTILINE))
                    if schema.get("validVersions", "none") != "none":
                        found[schema["name"]] = schema
    return found


def test_every_schema_has_its_message() -> None:
    assert set(schemas()) == set(message_classes())


def test_every_message_is_of_the_schemas_key_and_versions() -> None:
    for name, schema in schemas().items():
        cls = message_classes()[name]
        assert schema.get("apiKey") == cls.KEY, name
        assert Versions.parse(schema["validVersions"]) == cls.VERSIONS, name
        assert Versions.parse(schema.get("flexibleVersions", "none")) == cls.FLEXIBLE, name
        if schema["type"] == "request":
            assert schema.get("latestVersionUnstable", False) == cls.UNSTABLE, name


def test_every_row_is_the_schemas_row() -> None:
    compared = 0
    for name, schema in schemas().items():
        theirs = [describe(name, row, path) for path, row in walk_schema(schema)]
        ours = [describe_column(name, column, path) for path, column in walk_class(message_classes()[name])]
        for mine, kafkas in zip(ours, theirs, strict=True):
            assert mine == kafkas, name
        compared += len(theirs)
    print(f"{compared} rows of {len(schemas())} schemas compared")
    assert compared > 2000


def walk_schema(schema: Row) -> Iterator[tuple[str, Row]]:
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}

    def walk(rows: list[Row], path: str) -> Iterator[tuple[str, Row]]:
        for row in rows:
            here = f"{path}.{row['name'][0].lower()}{row['name'][1:]}"
            yield here, row
            element = row["type"].removeprefix("[]")
            if element[0].isupper():
                yield from walk(row.get("fields") or common[element], here)

    return walk(schema["fields"], "")


def walk_class(cls: StructMeta, path: str = "") -> Iterator[tuple[str, Column]]:
    for column in cls.COLUMNS:
        here = f"{path}.{column.json_name}"
        yield here, column
        if column.is_struct:
            yield from walk_class(cls.struct_of(column), here)


def describe(message: str, row: Row, path: str) -> Row:
    return {
        "path": path,
        "type": type_name(message, row["type"]),
        "versions": Versions.parse(row.get("versions") or row["taggedVersions"]),
        "nullable": Versions.parse(row.get("nullableVersions", "none")),
        "default": default_of(row),
        "tag": row.get("tag"),
        "ignorable": row.get("ignorable", False),
        "flexible": row.get("flexibleVersions"),
        "zero_copy": row.get("zeroCopy", False),
    }


def type_name(message: str, type_: str) -> str:
    """A struct's name without its message's, which ours has before it where a family has two structs of one name."""
    return re.sub(rf"^(\[\])?{message}", r"\1", type_)


def default_of(row: Row) -> Any:
    """What Kafka's generator makes of a default; a JSON null there counts as none given."""
    type_, given = row["type"], row.get("default")
    if given == "null":
        return None
    if type_.startswith("[]"):
        return []
    if type_[0].isupper() or type_ == "records":
        return None
    if type_ == "string":
        return given or ""
    if type_ == "bytes":
        return b""
    if type_ == "uuid":
        return ZERO_UUID
    if type_ == "bool":
        return str(given).lower() == "true"
    if type_ == "float64":
        return float(given or 0)
    return int(str(given or 0), 0)


def describe_column(message: str, column: Column, path: str) -> Row:
    return {
        "path": path,
        "type": type_name(message, column.type),
        "versions": column.versions,
        "nullable": column.nullable,
        "default": column.stand_in,
        "tag": column.tag,
        "ignorable": column.ignorable,
        "flexible": None if column.flexible is None else str(column.flexible),
        "zero_copy": column.zero_copy,
    }


def test_the_api_table_is_kafkas() -> None:
    for name, schema in schemas().items():
        if schema["type"] == "request":
            api = API_BY_KEY[schema["apiKey"]]
            assert api.name == name.removesuffix("Request")
            assert {listener.name.lower() for listener in Listener if listener in api.listeners} == set(schema["listeners"])
            assert api.response.__name__ == f"{api.name}Response"
    (answer,) = ask(["apis"])
    ours = {f"{api.key}:{api.name}:{api.stable_versions.low}:{api.stable_versions.high}" for api in APIS}
    assert {row.replace("KEY:", "") for row in answer.split()} == ours
    assert len(ours) == 89


def test_the_error_codes_are_kafkas() -> None:
    (answer,) = ask(["errors"])
    ours = [f"{code.name}:{code.value}:{str(code.retriable).lower()}" for code in ErrorCode]
    assert answer.split() == ours
