"""Whether a JSON document fits a JSON Schema, and if not, where and why. Pure; runs in Spark's Python workers.

The keywords of draft 2020-12 that speak of one document: types, numbers, strings, arrays, objects, combinations, and `$ref`
into the schema itself. A schema with a keyword that is not here is refused, rather than half checked; `format` is read as a
remark. Whatever a document has in it, the answer is a reason and no exception: a stream goes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Union

Schema = Union[dict[str, Any], bool]

_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and _is_whole(value),
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
_MAX_DIGITS = 1000  # of a number, before and after the point: beyond them sums take their time
_MAX_REASON = 300
_TOO_DEEP = f"value is nested more than {_MAX_DEPTH} deep"


class SchemaError(ValueError):
    """The schema itself is at fault."""


def compile_schema(text: str) -> Callable[[bytes | str | None], str | None]:
    """A function from a document to what is wrong with it, None if nothing is."""
    try:
        schema = _parse(text)
        _check(schema, schema, "schema", set())
    except SchemaError:
        raise
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"not JSON: {error}") from None

    def reason(document: bytes | str | None) -> str | None:
        if document is None:
            return "no value"
        try:
            value = _parse(document)
        except RecursionError:
            return _TOO_DEEP
        except ValueError as error:
            return _sendable(f"not JSON: {error}")
        if _is_too_deep(value):
            return _TOO_DEEP
        try:
            found = next(_problems(schema, schema, value, "value", 0), None)
        except (ArithmeticError, RecursionError, ValueError) as error:
            found = f"cannot be checked: {error}"
        return None if found is None else _sendable(found)

    return reason


def _parse(text: bytes | str) -> Any:
    """Numbers exactly as they are written, so that 0.3 is a multiple of 0.1."""
    return json.loads(text, parse_int=_whole_number, parse_float=_number, parse_constant=_no_number)


def _whole_number(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(text)} digits, more than {_MAX_DIGITS}")
    return int(text)


def _number(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except ArithmeticError:
        value = None
    if value is None or len(text) > _MAX_DIGITS or abs(value.adjusted()) > _MAX_DIGITS:
        raise ValueError(f"the number {text[:20]} has more than {_MAX_DIGITS} digits")
    return value


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _sendable(reason: str) -> str:
    """As text that can be written down: half a pair of surrogates cannot."""
    return reason[:_MAX_REASON].encode("utf-8", "replace").decode()


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        level = [
            inside
            for outer in level
            for inside in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
        ]
        if not level:
            return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _is_whole(value: int | Decimal) -> bool:
    return isinstance(value, int) or value == value.to_integral_value()


def _is_count(value: Any) -> bool:
    return _is_number(value) and _is_whole(value) and value >= 0


def _is_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


_OPERANDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (lambda value: isinstance(value, (str, list)) and bool(value), "a type or a list of types"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "pattern": (lambda value: isinstance(value, str), "a regular expression"),
    "uniqueItems": (lambda value: isinstance(value, bool), "true or false"),
    "required": (lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value), "a list of names"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (_is_number, "a number")),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), (_is_count, "a whole number from 0 on")),
    **dict.fromkeys(("minProperties", "maxProperties"), (_is_count, "a whole number from 0 on")),
    **dict.fromkeys(_SEVERAL, (_is_schemas, "a list of schemas")),
    **dict.fromkeys(_NAMED, (lambda value: isinstance(value, dict), "an object of schemas")),
}


def _check(root: Schema, schema: Any, where: str, seen: set[int]) -> None:
    """Refuse what could not be checked. `seen` are the schemas that were looked at: a reference may lead back."""
    if isinstance(schema, bool) or id(schema) in seen:
        return
    if not isinstance(schema, dict):
        raise SchemaError(f"{where} is {_short(schema)}; expected an object, true or false")
    seen.add(id(schema))
    for keyword, operand in schema.items():
        here = f"{where}.{keyword}"
        if keyword in _OPERANDS and not _OPERANDS[keyword][0](operand):
            raise SchemaError(f"{here} is {_short(operand)}; expected {_OPERANDS[keyword][1]}")
        if keyword == "$ref":
            _check(root, _resolve(root, operand), here, seen)
        elif keyword == "type":
            for name in operand if isinstance(operand, list) else [operand]:
                if not isinstance(name, str) or name not in _TYPES:
                    raise SchemaError(f"{here} is {name!r}; expected one of {', '.join(_TYPES)}")
        elif keyword in ("pattern", "patternProperties"):
            for pattern in operand if keyword == "patternProperties" else [operand]:
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise SchemaError(f"{here}: {pattern!r} is no regular expression: {error}") from None
        elif keyword not in _CHECKS and keyword not in _ANNOTATIONS:
            raise SchemaError(f"{here} is a keyword that this check does not know")
        if keyword in _ONE:
            _check(root, operand, here, seen)
        elif keyword in _SEVERAL:
            for position, part in enumerate(operand):
                _check(root, part, f"{here}[{position}]", seen)
        elif keyword in _NAMED:
            for name, part in operand.items():
                _check(root, part, f"{here}.{name}", seen)


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
        # Not a problem of the document's, which `not` would take for a fit: the schema's references go round.
        raise ValueError(f"the schema's references lead more than {_MAX_DEPTH} deep at {at}")
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
            yield f"{at} is {_short(value)}, expected {words} {_short(operand)}"

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
        for position, (part, inside) in enumerate(zip(operand, value)):
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
    "multipleOf": _bound(lambda value, step: (Fraction(value) / Fraction(step)).denominator == 1, "a multiple of"),
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


def _canonical(value: Any) -> Any:
    """Equal, and of one hash, for equal documents: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, list):
        return ("list", *map(_canonical, value))
    if isinstance(value, dict):
        return ("object", *((name, _canonical(value[name])) for name in sorted(value)))
    return (isinstance(value, bool), value)


def _same(left: Any, right: Any) -> bool:
    return bool(_canonical(left) == _canonical(right))


def _short(value: Any) -> str:
    text = json.dumps(value, default=float)
    return text if len(text) <= 60 else text[:59] + "…"
