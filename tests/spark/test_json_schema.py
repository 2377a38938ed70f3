"""The schema check by itself."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from spark_jobs.json_schema import SchemaError, compile_schema


@pytest.mark.parametrize(
    ("schema", "document", "reason"),
    [
        ({"type": "integer"}, 1.0, None),
        ({"type": "integer"}, True, "value is boolean, expected integer"),
        ({"type": ["string", "null"]}, None, None),
        ({"type": "number"}, "1", "value is string, expected number"),
        ({"enum": [1, "a"]}, True, 'value is true, expected one of [1, "a"]'),
        ({"const": {"a": 1}}, {"a": 1.0}, None),
        ({"minimum": 2}, 1, "value is 1, expected at least 2"),
        ({"exclusiveMaximum": 2}, 2, "value is 2, expected less than 2"),
        ({"multipleOf": 0.5}, 1.25, "value is 1.25, expected a multiple of 0.5"),
        ({"multipleOf": 0.1}, 0.3, None),
        ({"maxLength": 2}, "abc", "value has length 3, expected at most 2"),
        ({"minItems": 1}, [], "value has length 0, expected at least 1"),
        ({"pattern": "^a"}, "ba", 'value is "ba", expected to match ^a'),
        ({"required": ["a", "b"]}, {"a": 1}, "value has no b"),
        (
            {"properties": {"a": {"properties": {"b": {"type": "null"}}}}},
            {"a": {"b": 1}},
            "value.a.b is integer, expected null",
        ),
        ({"properties": {"a": True}, "additionalProperties": False}, {"a": 1, "b": 2}, "value.b is not allowed"),
        ({"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}, {"x1": "a"}, None),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "the name ab of value has length 2, expected at most 1"),
        (
            {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
            ["a", "b"],
            "value[1] is string, expected integer",
        ),
        ({"contains": {"const": 1}}, [2, 3], "value has no item as its schema's contains asks for"),
        ({"uniqueItems": True}, [1, 1.0], "value has an item twice"),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 3, "value is 3, expected at most 2"),
        ({"anyOf": [{"type": "null"}, {"minimum": 5}]}, 3, "value fits none of 2 alternatives"),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "value fits 2 of 2 alternatives, expected one"),
        ({"not": {"type": "null"}}, None, "value fits a schema that it must not fit"),
        (
            {"$defs": {"id": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/id"}}},
            {"a": "x"},
            "value.a is string, expected integer",
        ),
    ],
)
def test_a_document_and_what_is_wrong_with_it(schema: Any, document: Any, reason: str | None) -> None:
    assert compile_schema(json.dumps(schema))(json.dumps(document)) == reason


def test_what_is_not_json() -> None:
    check = compile_schema("true")
    assert check(b'{"a": 1}') is None
    assert check(None) == "no value"
    assert str(check(b"{")).startswith("not JSON: ")
    assert str(check(b"\xff")).startswith("not JSON: ")


@pytest.mark.parametrize(
    ("schema", "document", "reason"),
    [
        ({"type": "integer"}, "1" * 400, None),  # more than a float holds
        ({"maximum": 5}, "1" * 400, f"value is {'1' * 59}…, expected at most 5"),
        ({"type": "integer"}, "1e400", None),
        ({"multipleOf": 0.1}, "1e400", None),
        ({}, "1" * 5000, "not JSON: a number has 5000 digits, more than 1000"),
        ({}, "1e5000", "not JSON: the number 1e5000 has more than 1000 digits"),
        ({}, "NaN", "not JSON: NaN is no number"),
        ({"enum": [1]}, "[" * 500 + "]" * 500, "value is nested more than 100 deep"),
        ({"uniqueItems": True}, "[" * 500 + "]" * 500, "value is nested more than 100 deep"),
        ({"additionalProperties": False}, r'{"\ud800": 1}', "value.? is not allowed"),  # half a pair cannot be sent on
        ({"not": {"$ref": "#"}}, "1", "cannot be checked: the schema's references lead more than 100 deep at value"),
    ],
)
def test_documents_that_would_break_the_check_get_a_reason(schema: Any, document: str, reason: str | None) -> None:
    assert compile_schema(json.dumps(schema))(document.encode()) == reason


def test_brackets_without_end_get_a_reason() -> None:
    assert compile_schema("true")(b"[" * 100_000) == "value is nested more than 100 deep"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "not JSON"),
        ('{"minimum": "5"}', 'schema.minimum is "5"; expected a number'),
        ('{"enum": 5}', "schema.enum is 5; expected a list"),
        ('{"multipleOf": 0}', "schema.multipleOf is 0; expected a number above 0"),
        ('{"maxLength": -1}', "schema.maxLength is -1; expected a whole number from 0 on"),
        ('{"properties": []}', "schema.properties is []; expected an object of schemas"),
        ('{"allOf": 3}', "schema.allOf is 3; expected a list of schemas"),
        ('{"required": "id"}', 'schema.required is "id"; expected a list of names'),
        ('{"type": [["null"]]}', "schema.type is ['null']; expected one of"),
        ('{"title": "x", "$ref": "#/title"}', 'schema.$ref is "x"; expected an object'),
        ('{"type": "text"}', "schema.type is 'text'"),
        ('{"properties": {"a": {"unevaluatedItems": false}}}', "schema.properties.a.unevaluatedItems is a keyword"),
        ('{"pattern": "("}', "is no regular expression"),
        ('{"$ref": "http://x/y"}', "leaves the schema"),
        ('{"$ref": "#/$defs/a"}', "leads nowhere"),
        ("3", "schema is 3; expected an object"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: str, problem: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(problem)):
        compile_schema(schema)
