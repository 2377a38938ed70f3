"""DescribeClientQuotas 0-1, AlterClientQuotas 0-1: the same answer as Apache Kafka's, and the same quotas afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from interop.answers.case import Case, Pair, Step, family
from interop.answers.side import Side
from interop.answers.steps import asks

from pybroker.protocol.message import Message
from pybroker.protocol.messages import quotas

describing, altering = family(48), family(49)

EXACT, DEFAULT, SPECIFIED = range(3)
RATE = "producer_byte_rate"
PLENTY = 1e6  # Apache Kafka keeps to it, and the cases are clients too
USER = {"user": "u%"}

Entity = dict[str, str | None] | list[tuple[str, str | None]]
Ops = dict[str, float | None] | list[tuple[str, float | None]]


def own(side: Side, kind: str, name: str | None) -> str | None:
    return side.name(name) if name and kind in ("user", "client-id") else name


def alter(*rows: tuple[Entity, Ops], validate_only: bool = False) -> Step:
    """The value None takes a quota away."""

    def build(side: Side, _: int) -> Message:
        return quotas.AlterClientQuotasRequest(
            entries=[
                quotas.AlterClientQuotasRequestEntryData(
                    entity=[
                        quotas.EntityData(entity_type=kind, entity_name=own(side, kind, name)) for kind, name in pairs(entity)
                    ],
                    ops=[
                        quotas.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in pairs(ops)
                    ],
                )
                for entity, ops in rows
            ],
            validate_only=validate_only,
        )

    return asks(49, build, f"alter {rows}", changes=True)


def pairs(rows: dict[str, object] | Sequence[tuple[str, object]]) -> Sequence[tuple[str, object]]:
    return list(rows.items()) if isinstance(rows, dict) else rows


def describe(*components: tuple[str, int, str | None], strict: bool = False) -> Step:
    def build(side: Side, _: int) -> Message:
        return quotas.DescribeClientQuotasRequest(
            components=[
                quotas.ComponentData(entity_type=kind, match_type=match, match=own(side, kind, name))
                for kind, match, name in components
            ],
            strict=strict,
        )

    return asks(48, build, f"describe {components}")


IT = describe(("user", EXACT, "u%"))
BOTH: Entity = {"user": "u%", "client-id": "c"}
DEFAULTS: Entity = {"user": "u%", "client-id": None}

BAD_VALUES: dict[str, tuple[str, float]] = {
    "nothing a second": (RATE, 0.0),
    "less than nothing": (RATE, -1.0),
    "half a byte": (RATE, 1.5),
    "nearly a whole": (RATE, 1.0000001),
    "too much": (RATE, 1e19),
    "just the largest": (RATE, float(2**63)),
    "an unknown key": ("no_such_rate", 1.0),
    "a key of addresses": ("connection_creation_rate", 1.0),
    "half a percent": ("request_percentage", 0.5),
    "half a mutation": ("controller_mutation_rate", 0.5),
    "not much at all": ("request_percentage", 1e-300),
    "no percent": ("request_percentage", 0.0),
}
BAD_ENTITIES: dict[str, Entity] = {
    "nobody": {},
    "an unknown type": {"group": "g"},
    "an unknown type beside a user": {"user": "u%", "group": "g"},
    "an empty user": {"user": ""},
    "an empty client id": {"client-id": ""},
    "an empty type": {"": "u"},
    "a user and an address": {"user": "u%", "ip": "127.0.0.1"},
    "a user twice": [("user", "u%"), ("user", "v%")],
}

ALTER = [
    altering("a user", alter((USER, {RATE: 1000.0, "request_percentage": 12.5})), IT),
    altering("a client id", alter(({"client-id": "c%"}, {RATE: 1.0})), describe(("client-id", EXACT, "c%"))),
    altering("a user with a client id", alter((BOTH, {RATE: 1.0})), IT, describe(("user", EXACT, "u%"), strict=True)),
    altering("a user with any client id", alter((DEFAULTS, {RATE: 1.0})), IT),
    altering("set and changed", alter((USER, {RATE: 1.0})), alter((USER, {RATE: 2.0})), IT),
    altering("set and taken away", alter((USER, {RATE: 1.0})), alter((USER, {RATE: None})), IT),
    altering("one of two taken away", alter((USER, {RATE: 1.0, "consumer_byte_rate": 2.0})), alter((USER, {RATE: None})), IT),
    altering("what is not there taken away", alter((USER, {RATE: None, "no_such_rate": None})), IT),
    altering("validated only", alter((USER, {RATE: 1.0}), validate_only=True), IT),
    altering("nothing", alter()),
    altering("nothing of a user", alter((USER, {})), IT),
    altering("a key twice", alter((USER, [(RATE, 1.0), (RATE, 2.0)])), IT),
    altering("an entity twice", alter((USER, {RATE: 1.0}), (USER, {"consumer_byte_rate": 2.0})), IT),
    altering("a bad one beside a good one", alter((USER, {RATE: 1.0}), ({"user": "v%"}, {RATE: -1.0})), IT),
    altering("a good key beside a bad one", alter((USER, {RATE: 1.0, "x": 1.0})), IT),
    *(altering(f"with {name}", alter((USER, {key: value})), IT) for name, (key, value) in BAD_VALUES.items()),
    *(altering(f"of {name}", alter((entity, {RATE: 1.0})), IT) for name, entity in BAD_ENTITIES.items()),
    *(
        altering(
            f"of the address {name!r}",
            alter(({"ip": name}, {"connection_creation_rate": PLENTY})),
            describe(("ip", EXACT, name)),
        )
        for name in ("127.0.0.1", "::1", "10.1.2.3", "localhost", "no such host", "999.1.1.1")
    ),
    *(
        altering(f"of an address, {name}", alter(({"ip": "10.9.9.9"}, {key: value})), describe(("ip", EXACT, "10.9.9.9")))
        for name, key, value in (
            ("a fraction", "connection_creation_rate", 1.5),
            ("too much", "connection_creation_rate", 3e9),
            ("a key of users", RATE, 1.0),
        )
    ),
]

SETUP = alter((USER, {RATE: 1.0}), (BOTH, {RATE: 2.0}), (DEFAULTS, {RATE: 3.0}))
FILTERS: dict[str, list[tuple[str, int, str | None]]] = {
    "a user": [("user", EXACT, "u%")],
    "a user and a client id": [("user", EXACT, "u%"), ("client-id", EXACT, "c")],
    "a user and the default client id": [("user", EXACT, "u%"), ("client-id", DEFAULT, None)],
    "a user and any client id": [("user", EXACT, "u%"), ("client-id", SPECIFIED, None)],
    "a user unnamed": [("user", EXACT, None)],
    "a default that is named": [("user", DEFAULT, "u")],
    "any that is named": [("user", SPECIFIED, "u")],
    "an unknown type": [("group", EXACT, "g")],
    "an empty type": [("", EXACT, "g")],
    "a type twice": [("user", EXACT, "u%"), ("user", SPECIFIED, None)],
    "a user and an address": [("user", EXACT, "u%"), ("ip", SPECIFIED, None)],
    "an unknown match": [("user", 3, None)],
    "an address by default": [("ip", DEFAULT, None)],
}
DESCRIBE = [
    describing(f"{name}{', strictly' if strict else ''}", SETUP, describe(*filters, strict=strict))
    for name, filters in FILTERS.items()
    for strict in (False, True)
]


@pytest.mark.parametrize("case", [*ALTER, *DESCRIBE], ids=str)
def test_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
