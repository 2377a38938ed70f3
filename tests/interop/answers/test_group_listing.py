"""FindCoordinator 0-6, ListGroups 0-5, DescribeGroups 0-6, DeleteGroups 0-2: the same answer as Apache Kafka's."""

from __future__ import annotations

import pytest
from interop.answers.admin import delete
from interop.answers.case import Case, Pair, family
from interop.answers.group_steps import (
    SHARE,
    commit,
    committed,
    delete_groups,
    describe,
    find,
    join,
    joined,
    leave,
    list_groups,
    stable,
)
from interop.answers.steps import eventually, on, topic

finding, listing, describing, deleting = family(10), family(16), family(15), family(42)

SIMPLE = commit(on(offset=1), group="simple%", version=9)
ALL = committed(everything=True, version=9)

FIND = [
    finding("a group", find("g")),
    finding("an empty group id", find("")),
    finding("an unknown key type", find("g", kind=7), versions="1+"),
    finding("a negative key type", find("g", kind=-1), versions="1+"),
    finding("a share group", find("g", kind=SHARE), versions="1+"),
    finding("several groups", find("g", "h", "g", "", "\u00fc\U0001f40d"), versions="4+"),
    finding("no groups", find(), versions="4+"),
]

LIST = [
    listing(
        "groups of all states",
        topic(),
        list_groups(),
        SIMPLE,
        *stable("m", "stable%"),
        join("n", "pending%", version=9),
        joined("o", "joined%"),
        *stable("p", "left%"),
        leave("p", group="left%", version=5),
        *stable("c", "connect%", protocol_type="connect")[:1],
        list_groups(),
    ),
    listing(
        "by state",
        topic(),
        list_groups(),
        SIMPLE,
        *stable("m", "stable%"),
        list_groups(["Stable"]),
        list_groups(["eMPTY"]),
        list_groups(["Dead"]),
        list_groups(["Stable", "Empty"]),
        list_groups(["no such"]),
        list_groups([""]),
        list_groups([" stable "]),
        versions="4+",
    ),
    listing(
        "by type",
        topic(),
        list_groups(),
        SIMPLE,
        list_groups([], ["classic"]),
        list_groups([], ["Classic"]),
        list_groups([], ["consumer"]),
        list_groups([], ["share"]),
        list_groups([], ["no such"]),
        list_groups([], [""]),
        list_groups(["Empty"], ["classic", "consumer"]),
        versions="5+",
    ),
]

DESCRIBE = [
    describing("no group", describe("never", "=")),
    describing("nothing", describe()),
    describing(
        "groups of all states",
        topic(),
        describe("never"),
        SIMPLE,
        *stable("m", "stable%"),
        join("n", "pending%", version=9),
        joined("o", "joined%"),
        *stable("p", "left%"),
        leave("p", group="left%", version=5),
        describe("simple%", "stable%", "pending%", "joined%", "left%", "never"),
    ),
    describing("a static member", describe("never"), *stable(instance="i"), describe("g%")),
    describing(
        "operations",
        topic(),
        describe("never", operations=True),
        *stable(),
        describe("g%", "never", operations=True),
        versions="3+",
    ),
    describing("a group twice", topic(), describe("never"), SIMPLE, describe("simple%", "simple%"), ignore="groups"),
]

DELETE = [
    deleting("no group", delete_groups("never", "=")),
    deleting("nothing", delete_groups()),
    deleting(
        "a simple group",
        topic(),
        delete_groups("never"),
        SIMPLE,
        delete_groups("simple%"),
        delete_groups("simple%"),
        committed(on(), group="simple%", version=9),
        list_groups(version=5),
        describe("simple%", version=6),
    ),
    deleting("a group with members", delete_groups("never"), *stable(), delete_groups("g%"), describe("g%", version=6)),
    deleting(
        "a group whose members have left",
        topic(),
        delete_groups("never"),
        *stable(),
        commit(on(offset=3), member="m", generation=1, version=9),
        leave("m", version=5),
        delete_groups("g%"),
        ALL,
        describe("g%", version=6),
        join("n", version=9),
    ),
    deleting(
        "a group with a member id that was only given",
        delete_groups("never"),
        join(version=9),
        delete_groups("g%"),
        join(version=9),
    ),
    deleting("several", topic(), delete_groups("never"), SIMPLE, *stable(), delete_groups("simple%", "g%", "never", "simple%")),
    deleting(
        "a topic takes its offsets with it",
        topic("a"),
        topic("b"),
        delete_groups("never"),
        commit(on("a", offset=1), on("b", offset=2), version=9),
        delete("a", version=6),
        eventually(ALL, lambda answer: len(next(iter(answer["groups"].values()))["topics"]) < 2),
        versions="2",
    ),
]


@pytest.mark.parametrize("case", [*FIND, *LIST, *DESCRIBE, *DELETE], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
