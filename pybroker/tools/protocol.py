"""`pybroker protocol`: the APIs as a table, and messages between JSON and hex, line by line, for people who debug.

A line is `KEY VERSION KIND PAYLOAD` and is answered by one line. KIND is request, response, request-header or
response-header, where KEY is an api key and VERSION the version of the API; or message, where KEY is the name of a schema.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from pybroker.protocol.api_table import API_BY_KEY, APIS, Listener
from pybroker.protocol.catalog import message_classes
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.json_form import from_json, to_json
from pybroker.protocol.message import Message
from pybroker.protocol.messages.headers import RequestHeader, ResponseHeader

KINDS = ("request", "response", "request-header", "response-header", "message")
LINE_HELP = "lines `KEY VERSION KIND {}` on standard input; KIND is " + ", ".join(KINDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every API with its versions, first flexible version and listeners")
    listing.add_argument("--internal", action="store_true", help="list the schemas for KIND message instead")
    listing.add_argument("--json", action="store_true", help="as JSON")
    actions.add_parser("encode", help="JSON to hex", description=LINE_HELP.format("JSON"))
    actions.add_parser("decode", help="hex to JSON", description=LINE_HELP.format("HEX"))


def run(args: argparse.Namespace) -> int:
    if args.action == "list":
        print_list(list_internal() if args.internal else list_apis(), args.json)
    else:
        sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
        convert(sys.stdin, encode_line if args.action == "encode" else decode_line)
    return 0


def convert(lines: Iterable[str], answer: Callable[[str], str]) -> None:
    for line in lines:
        try:
            text = answer(line)
        except ProtocolError as error:
            text = "ERROR " + " ".join(str(error).splitlines())
        sys.stdout.write(text + "\n")
        # Whoever talks to us through two pipes waits for this very line.
        sys.stdout.flush()


def encode_line(line: str) -> str:
    cls, version, payload = parse_line(line)
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    return from_json(cls, version, value).encode(version).hex()


def decode_line(line: str) -> str:
    cls, version, payload = parse_line(line)
    try:
        frame = bytes.fromhex(payload)
    except ValueError as error:
        raise ProtocolError(f"not hex: {error}") from None
    return json.dumps(to_json(cls.decode(version, frame), version), separators=(",", ":"))


def parse_line(line: str) -> tuple[type[Message], int, str]:
    """The class and version a line speaks of, and its payload."""
    parts = line.split(None, 3)
    if len(parts) < 3:
        raise ProtocolError("expected KEY VERSION KIND PAYLOAD")
    key, version_text, kind = parts[:3]
    try:
        version = int(version_text)
    except ValueError:
        raise ProtocolError(f"version {version_text!r} is not a number") from None
    cls, version = find_class(key, version, kind)
    return cls, version, parts[3].strip() if len(parts) == 4 else ""


@cache
def find_class(key: str, version: int, kind: str) -> tuple[type[Message], int]:
    """The message class, and its own version (a header's follows from the API's)."""
    if kind not in KINDS:
        raise ProtocolError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    if kind == "message":
        if key not in message_classes():
            raise ProtocolError(f"no message is called {key!r}; `pybroker protocol list --internal` lists them")
        return message_classes()[key], version
    api = API_BY_KEY.get(int(key)) if key.isdecimal() else None
    if api is None:
        raise ProtocolError(f"no API has the key {key!r}; `pybroker protocol list` lists them")
    if version not in api.versions:
        raise ProtocolError(f"no such version, there are {api.versions}", message=api.name, version=version)
    if kind == "request-header":
        return RequestHeader, api.request_header_version(version)
    if kind == "response-header":
        return ResponseHeader, api.response_header_version(version)
    return (api.request if kind == "request" else api.response), version


def list_apis() -> list[dict[str, Any]]:
    return [
        {
            "key": api.key,
            "name": api.name,
            "versions": str(api.versions),
            "unstable": str(api.versions.high) if api.request.UNSTABLE else "",
            "flexible": str(api.request.FLEXIBLE),
            "listeners": ",".join(listener.name or "" for listener in Listener if listener in api.listeners).lower(),
        }
        for api in APIS
    ]


def list_internal() -> list[dict[str, Any]]:
    on_the_wire = {cls for api in APIS for cls in (api.request, api.response)}
    return [
        {"name": name, "key": "" if cls.KEY is None else cls.KEY, "versions": str(cls.VERSIONS), "flexible": str(cls.FLEXIBLE)}
        for name, cls in sorted(message_classes().items())
        if cls not in on_the_wire
    ]


def print_list(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in rows[0]}
    for row in [{name: name for name in widths}, *rows]:
        print("  ".join(str(row[name]).ljust(width) for name, width in widths.items()).rstrip())
