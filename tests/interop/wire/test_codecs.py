"""Random messages of every kind and version, byte for byte as Apache Kafka writes and reads them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

from interop.wire.message_lines import ask
from support.random_messages import message_versions, random_message

from pybroker.protocol.api_table import APIS
from pybroker.protocol.json_form import from_json, to_json
from pybroker.protocol.message import Message

ROUNDS = int(os.environ.get("WIRE_ROUNDS", "30"))

Case = tuple[str, int, Message, bytes]


def cases(seed: int, *, unknown_tags: bool = False) -> list[Case]:
    found = []
    for cls, version in message_versions():
        rng = random.Random(f"{seed} {cls.__name__} {version}")
        for _ in range(ROUNDS):
            message = random_message(rng, cls, version, unknown_tags=unknown_tags)
            found.append((cls.__name__, version, message, message.encode(version)))
    return found


def json_line(message: Message, version: int) -> str:
    return json.dumps(to_json(message, version))


def differences(ours: list[str], theirs: list[str], all_cases: list[Case]) -> Iterator[str]:
    for mine, kafkas, (name, version, message, _) in zip(ours, theirs, all_cases, strict=True):
        if mine != kafkas:
            yield f"{name} v{version}\n  ours  {mine[:400]}\n  Kafka {kafkas[:400]}\n  of    {repr(message)[:400]}"


def test_what_we_encode_is_what_kafka_encodes() -> None:
    all_cases = cases(seed=1)
    answers = ask([f"encode {name} {version} {json_line(message, version)}" for name, version, message, _ in all_cases])
    wrong = list(differences([encoded.hex() for *_, encoded in all_cases], answers, all_cases))
    assert not wrong, f"{len(wrong)} of {len(all_cases)} differ:\n" + "\n".join(wrong[:5])
    checked = {(name, version) for name, version, *_ in all_cases}
    print(f"{len(all_cases)} messages of {len(checked)} message-versions encode alike")
    assert len(checked) > sum(2 * (api.versions.high - api.versions.low + 1) for api in APIS)


def test_what_kafka_decodes_of_ours_is_what_we_meant() -> None:
    all_cases = cases(seed=2, unknown_tags=True)
    answers = ask([f"decode {name} {version} {encoded.hex()}" for name, version, _, encoded in all_cases])
    ours, theirs = [], []
    for (_, version, message, encoded), answer in zip(all_cases, answers, strict=True):
        text, _, again = answer.partition("\t")
        ours.append(f"{normal(to_json(message, version))} {encoded.hex()}")
        theirs.append(f"{text if text.startswith('ERROR') else normal(json.loads(text))} {again}")
    wrong = list(differences(ours, theirs, all_cases))
    assert not wrong, f"{len(wrong)} of {len(all_cases)} differ:\n" + "\n".join(wrong[:5])


def test_what_kafka_encodes_is_what_we_decode() -> None:
    all_cases = cases(seed=3)
    answers = ask([f"encode {name} {version} {json_line(message, version)}" for name, version, message, _ in all_cases])
    for (name, version, message, _), answer in zip(all_cases, answers, strict=True):
        decoded = type(message).decode(version, bytes.fromhex(answer))
        assert to_json(decoded, version) == to_json(message, version), f"{name} v{version}"
        assert decoded == from_json(type(message), version, to_json(message, version)), f"{name} v{version}"


def normal(value: Any) -> str:
    """JSON in one spelling. Kafka's converter writes every records field as empty, so its content is left to the bytes."""
    if isinstance(value, dict):
        value = without_records(value)
    return json.dumps(value, sort_keys=True)


def without_records(value: Any) -> Any:
    if isinstance(value, list):
        return [without_records(item) for item in value]
    if isinstance(value, dict):
        return {key: without_records(item) for key, item in value.items() if key not in ("records", "unalignedRecords")}
    return value
