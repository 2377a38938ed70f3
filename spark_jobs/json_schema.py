"""Whether a JSON document fits a JSON Schema, and if not, where and why. Pure; runs in Spark's Python workers.

The keywords of draft 2020-12 that speak of one document: types, numbers, strings, arrays, objects, combinations, and `$ref`
into the schema itself. A schema with a keyword that is not here is refused, rather than half checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Schema = dict[str, Any] | bool

_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and float(value).is_integer(),
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_ANNOTATIONS = {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "format"}
_ONE = {"additionalProperties", "items", "not", "propertyNames", "contains"}
_SEVERAL = {"allOf", "anyOf", "oneOf", "prefixItems"}
_NAMED = {"properties", "patternProperties", "$defs", "definitions"}
_MAX_DEPTH = 100


class SchemaError(ValueError):
    """The schema itself is at fault."""


def compile_schema(text: str) -> Callable[[bytes | str | None], str | None]:
    """A function from a document to what is wrong with it, None if nothing is."""
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        raise SchemaError(f"not JSON: {error}") from None
    _check(schema, schema, "schema")

    def reason(document: bytes | str | None) -> str | None:
        if document is None:
            return "no value"
        try:
            value = json.loads(document)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            return f"not JSON: {error}"
        return next(_problems(schema, schema, value, "value", 0), None)

    return reason


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(root: Schema, schema: Any, where: str) -> None:
    """Refuse what could not be checked."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise SchemaError(f"{where} is {json.dumps(schema)[:40]}; expected an object, true or false")
    for keyword, operand in schema.items():
        here = f"{where}.{keyword}"
        if keyword == "$ref":
            _resolve(root, operand)
        elif keyword == "type":
            for name in operand if isinstance(operand, list) else [operand]:
                if name not in _TYPES:
                    raise SchemaError(f"{here} is {name!r}; expected one of {', '.join(_TYPES)}")
        elif keyword in ("pattern", "patternProperties"):
            for pattern in operand if keyword == "patternProperties" else [operand]:
                try:
                    re.compile(pattern)
                except (re.error, TypeError) as error:
                    raise SchemaError(f"{here}: {pattern!r} is no regular expression: {error}") from None
        elif keyword not in _CHECKS and keyword not in _ANNOTATIONS:
            raise SchemaError(f"{here} is a keyword that this check does not know")
        if keyword in _ONE:
            _check(root, operand, here)
        elif keyword in _SEVERAL:
            for position, part in enumerate(operand):
                _check(root, part, f"{here}[{position}]")
        elif keyword in _NAMED:
            for name, part in operand.items():
                _check(root, part, f"{here}.{name}")


def _resolve(root: Schema, reference: str) -> Schema:
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise SchemaError(f"$ref {reference!r} leaves the schema; only #/... is followed")
    found: Any = root
    for part in filter(None, reference[1:].split("/")):
        try:
            found = found[part.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            raise SchemaError(f"$ref {reference!r} leads nowhere") from None
    return found  # type: ignore[no-any-return]


def _problems(root: Schema, schema: Schema, value: Any, at: str, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        yield f"{at} is nested more than {_MAX_DEPTH} deep"
        return
    if isinstance(schema, bool):
        if not schema:
            yield f"{at} is not allowed"
        return

    def inner(part: Schema, inside: Any, where: str) -> Iterator[str]:
        return _problems(root, part, inside, where, depth + 1)

    for keyword, operand in schema.items():
        if keyword == "$ref":
            yield from inner(_resolve(root, operand), value, at)
        elif (check := _CHECKS.get(keyword)) is not None:
            yield from check(operand, value, at, schema, inner)


Inner = Callable[[Schema, Any, str], Iterator[str]]


def _type(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    names = operand if isinstance(operand, list) else [operand]
    if not any(_TYPES[name](value) for name in names):
        found = next(name for name, holds in _TYPES.items() if holds(value))
        yield f"{at} is {found}, expected {' or '.join(names)}"


def _enum(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if not any(_same(value, allowed) for allowed in operand):
        yield f"{at} is {_short(value)}, expected one of {_short(operand)}"


def _const(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if not _same(value, operand):
        yield f"{at} is {_short(value)}, expected {_short(operand)}"


def _bound(holds: Callable[[Any, Any], bool], words: str) -> Callable[..., Iterator[str]]:
    def check(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
        if _is_number(value) and not holds(value, operand):
            yield f"{at} is {value}, expected {words} {operand}"

    return check


def _length(kind: type[Any], holds: Callable[[int, int], bool], words: str) -> Callable[..., Iterator[str]]:
    def check(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
        if isinstance(value, kind) and not holds(len(value), operand):
            yield f"{at} has length {len(value)}, expected {words} {operand}"

    return check


def _pattern(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, str) and re.search(operand, value) is None:
        yield f"{at} is {_short(value)}, expected to match {operand}"


def _required(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{at} has no {name}" for name in operand if name not in value)


def _properties(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in operand.items():
            if name in value:
                yield from inner(part, value[name], f"{at}.{name}")


def _pattern_properties(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, dict):
        for pattern, part in operand.items():
            for name in value:
                if re.search(pattern, name):
                    yield from inner(part, value[name], f"{at}.{name}")


def _additional_properties(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, dict):
        patterns = schema.get("patternProperties", {})
        for name in value:
            if name not in schema.get("properties", {}) and not any(re.search(pattern, name) for pattern in patterns):
                yield from inner(operand, value[name], f"{at}.{name}")


def _property_names(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, dict):
        for name in value:
            yield from inner(operand, name, f"the name {name} of {at}")


def _prefix_items(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, list):
        for position, (part, inside) in enumerate(zip(operand, value, strict=False)):
            yield from inner(part, inside, f"{at}[{position}]")


def _items(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, list):
        first = len(schema.get("prefixItems", ()))
        for position, inside in enumerate(value[first:], first):
            yield from inner(operand, inside, f"{at}[{position}]")


def _contains(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if isinstance(value, list) and all(any(inner(operand, inside, at)) for inside in value):
        yield f"{at} has no item as its schema's contains asks for"


def _unique_items(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if operand and isinstance(value, list) and len({_canonical(item) for item in value}) < len(value):
        yield f"{at} has an item twice"


def _all_of(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    for part in operand:
        yield from inner(part, value, at)


def _any_of(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if all(any(inner(part, value, at)) for part in operand):
        yield f"{at} fits none of {len(operand)} alternatives"


def _one_of(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    fitting = sum(not any(inner(part, value, at)) for part in operand)
    if fitting != 1:
        yield f"{at} fits {fitting} of {len(operand)} alternatives, expected one"


def _not(operand: Any, value: Any, at: str, schema: Any, inner: Inner) -> Iterator[str]:
    if not any(inner(operand, value, at)):
        yield f"{at} fits a schema that it must not fit"


_CHECKS: dict[str, Callable[..., Iterator[str]]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(lambda value, limit: value >= limit, "at least"),
    "maximum": _bound(lambda value, limit: value <= limit, "at most"),
    "exclusiveMinimum": _bound(lambda value, limit: value > limit, "more than"),
    "exclusiveMaximum": _bound(lambda value, limit: value < limit, "less than"),
    "multipleOf": _bound(lambda value, step: float(value / step).is_integer(), "a multiple of"),
    "minLength": _length(str, lambda length, limit: length >= limit, "at least"),
    "maxLength": _length(str, lambda length, limit: length <= limit, "at most"),
    "minItems": _length(list, lambda length, limit: length >= limit, "at least"),
    "maxItems": _length(list, lambda length, limit: length <= limit, "at most"),
    "minProperties": _length(dict, lambda length, limit: length >= limit, "at least"),
    "maxProperties": _length(dict, lambda length, limit: length <= limit, "at most"),
    "pattern": _pattern,
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "prefixItems": _prefix_items,
    "items": _items,
    "contains": _contains,
    "uniqueItems": _unique_items,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
}


def _canonical(value: Any) -> str:
    """Equal for equal documents: 1 and 1.0 are, 1 and true are not."""
    if _is_number(value):
        return json.dumps(int(value) if float(value).is_integer() else value)
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_canonical(value[name])}" for name in sorted(value)) + "}"
    return json.dumps(value)


def _same(left: Any, right: Any) -> bool:
    return _canonical(left) == _canonical(right)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"
