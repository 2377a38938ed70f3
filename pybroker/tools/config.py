"""`pybroker config`: prints the tables of keys, or checks a server.properties file.

The markdown form is docs/configuration.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pybroker.config import load_file
from pybroker.config.key import REQUIRED, Key, Update
from pybroker.config.keys import BROKER_THEMES, CLIENT_METRICS, GROUP, TOPIC
from pybroker.config.problems import errors
from pybroker.config.types import to_text

Tables = Mapping[str, Iterable[Key]]

SCOPES: Mapping[str, Tables] = {
    "broker": BROKER_THEMES,
    "topic": {"Topics": TOPIC.values()},
    "group": {"Groups": GROUP.values()},
    "client-metrics": {"Client metrics": CLIENT_METRICS.values()},
}

INTRODUCTION = """\
# Configuration

A node reads one file of Java properties, such as `config/server.properties`; `pybroker config --check FILE` tells
everything that is wrong with it. Keys, types, defaults and limits are those of Apache Kafka 4.3.1; keys that begin with
`pybroker.` are our own. This page is written by `make docs`.

- *update* says how a running cluster takes a new value: not at all (read-only), for one broker, or for the whole cluster.
- *fallbacks* are the keys that count, in this order, where the key itself is not given; a factor converts their unit.
- A TLS, SASL or connection key can be set for one listener as `listener.name.{listener}.{key}`, a SASL key also for one
  mechanism as `listener.name.{listener}.{mechanism}.{key}`, in lower case.
- A key marked *no effect* is known, and using it gives a warning with the reason.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--describe", action="store_true", help="print the keys")
    action.add_argument("--check", metavar="FILE", type=Path, help="tell everything that is wrong with a properties file")
    parser.add_argument("--all", action="store_true", help="also the keys that have no effect here, and internal ones")
    parser.add_argument("--scope", choices=SCOPES, help="only these keys")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="check with this value instead of the file's"
    )


def run(args: argparse.Namespace) -> int:
    if args.check is not None:
        return _check(args.check, args.override)
    render = {"text": _text, "json": _json, "markdown": _markdown}[args.format]
    scopes = [args.scope] if args.scope else list(SCOPES)
    sys.stdout.writelines(f"{line}\n" for line in render(_select(scopes, everything=args.all)))
    return 0


def _check(path: Path, overrides: list[str]) -> int:
    problems = load_file(path, overrides).problems
    for problem in problems:
        print(problem, file=sys.stderr)
    if errors(problems):
        return 1
    print(f"{path}: ok" + (f", with {len(problems)} warning{'s' * (len(problems) > 1)}" if problems else ""))
    return 0


def _select(scopes: list[str], *, everything: bool) -> dict[str, dict[str, list[Key]]]:
    return {
        scope: {
            title: [key for key in keys if everything or (key.implemented and not key.internal)]
            for title, keys in SCOPES[scope].items()
        }
        for scope in scopes
    }


Selection = Mapping[str, Mapping[str, list[Key]]]


def _text(selection: Selection) -> Iterator[str]:
    for tables in selection.values():
        for title, keys in tables.items():
            yield f"# {title}"
            for key in keys:
                yield key.name
                yield f"    {_facts(key)}"
                yield f"    {_sentence(key)}"
            yield ""


def _facts(key: Key) -> str:
    default = "required" if key.default is REQUIRED else f"default {_shown_default(key)}"
    facts = [key.type.label, default, key.allowed.text, key.update.value if key.update is not Update.PER_RESOURCE else ""]
    if key.fallbacks:
        facts.append(f"fallbacks {_fallbacks(key)}")
    return "; ".join(fact for fact in facts if fact)


def _sentence(key: Key) -> str:
    return f"{'Internal. ' if key.internal else ''}{key.doc}" + (f" No effect: {key.ignored}." if key.ignored else "")


def _shown_default(key: Key) -> str:
    if key.default is REQUIRED:
        return "required"
    return {None: "none", "": "empty"}.get(text := to_text(key.default), text or "")


def _fallbacks(key: Key) -> str:
    return ", ".join(one.name + (f" x {one.factor}" if one.factor != 1 else "") for one in key.fallbacks)


def _json(selection: Selection) -> Iterator[str]:
    rows = [
        {"scope": scope, "theme": title, **_json_row(key)}
        for scope, tables in selection.items()
        for title, keys in tables.items()
        for key in keys
    ]
    yield json.dumps(rows, indent=1)


def _json_row(key: Key) -> dict[str, Any]:
    return {
        "name": key.name,
        "type": key.type.label,
        "required": key.default is REQUIRED,
        "default": None if key.default is REQUIRED else key.default,
        "allowed": key.allowed.text,
        "update": key.update.value,
        "fallbacks": [{"name": one.name, "factor": one.factor} for one in key.fallbacks],
        "internal": key.internal,
        "ignored": key.ignored,
        "doc": key.doc,
    }


def _markdown(selection: Selection) -> Iterator[str]:
    yield INTRODUCTION
    for scope, tables in selection.items():
        yield f"## {scope.capitalize().replace('-', ' ')} keys"
        yield ""
        for title, keys in tables.items():
            if len(tables) > 1:
                yield f"### {title}"
                yield ""
            extra = "update" if scope == "broker" else "fallbacks"
            yield f"| key | type | default | allowed | {extra} | |"
            yield "|---|---|---|---|---|---|"
            yield from (_markdown_row(key, extra) for key in keys)
            yield ""


def _markdown_row(key: Key, extra: str) -> str:
    name = f"`{key.name}`" if key.implemented else f"`{key.name}` *no effect*"
    sentence = _sentence(key)
    if extra == "update" and key.fallbacks:
        sentence += f" Fallbacks: {_fallbacks(key)}."
    column = key.update.value if extra == "update" else _fallbacks(key)
    cells = [name, key.type.label, _shown_default(key), key.allowed.text, column, sentence]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") if cell != name else cell for cell in cells) + " |"
