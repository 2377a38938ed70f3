"""OffsetCommit 2-10, OffsetFetch 1-10, OffsetDelete 0: the same answer as Apache Kafka's."""

from __future__ import annotations

import pytest
from interop.answers.case import Case, Pair, family
from interop.answers.group_steps import (
    commit,
    committed,
    committed_of,
    delete_offsets,
    describe,
    join,
    joined,
    leave,
    list_groups,
    stable,
)
from interop.answers.steps import on, topic, while_waiting

committing, fetching, deleting = family(8), family(9), family(47)

T = topic("t", 3)
ALL = committed(everything=True, version=9)
SOME = commit(on("t", 0, offset=10, metadata="some"), on("t", 1, offset=11, epoch=0), version=9)

COMMIT = [
    committing(
        "a simple consumer",
        T,
        commit(on("t", 0, offset=5, metadata="m"), on("t", 2, offset=6)),
        ALL,
        describe("g%", version=6),
        list_groups(version=5),
    ),
    committing("again and back", T, commit(on(offset=5)), commit(on(offset=9)), commit(on(offset=2)), ALL),
    committing("offset -1", T, commit(on(offset=-1)), ALL),
    committing("a negative offset", T, commit(on(offset=-7)), ALL),
    committing("a leader epoch", T, commit(on(offset=5, epoch=3)), ALL),
    committing("null metadata", T, commit(on(offset=5, metadata=None)), ALL),
    committing("the longest metadata", T, commit(on(offset=5, metadata="x" * 4096)), ALL),
    committing("longer metadata", T, commit(on("t", 0, offset=5, metadata="x" * 4097), on("t", 1, offset=6)), ALL),
    committing("longer metadata in Java's eyes", T, commit(on(offset=5, metadata="\U0001f40d" * 2049)), ALL),
    committing("a retention time", T, commit(on(offset=5), retention_ms=60_000), ALL, versions="2-4"),
    committing("an unknown topic", T, commit(on("nobody", offset=5)), ALL, list_groups(version=5)),
    committing("an unknown topic beside one", T, commit(on("nobody", offset=5), on("t", 0, offset=6)), ALL),
    committing("an unknown partition", T, commit(on("t", 3, offset=5), on("t", -1, offset=5)), ALL),
    committing("an unknown partition beside one", T, commit(on("t", 0, offset=5), on("t", 3, offset=5)), ALL),
    committing("a bad name", T, commit(on("=no/such", offset=5), on("=", offset=1)), versions="2-9"),
    committing("nothing", T, commit(), list_groups(version=5)),
    committing("a partition twice", T, commit(on("t", 0, offset=5), on("t", 0, offset=6)), ALL),
    committing("an empty group id", T, commit(on(offset=5), group="="), committed(on(), group="=", version=9)),
    committing("a generation of no group", T, commit(on(offset=5), generation=1, member="=m")),
    committing("generation 0 of no group", T, commit(on(offset=5), generation=0, member="=")),
    committing("a member without a generation of no group", T, commit(on(offset=5), member="=m"), ALL),
    committing("a member", T, commit(on(offset=1)), *stable(), commit(on(offset=5), member="m", generation=1), ALL),
    committing(
        "another generation",
        T,
        commit(on(offset=1)),
        *stable(),
        commit(on(offset=5), member="m", generation=0),
        commit(on(offset=5), member="m", generation=2),
        commit(on(offset=5), member="m"),
        ALL,
    ),
    committing("an unknown member", T, commit(on(offset=1)), *stable(), commit(on(offset=5), member="=x", generation=1), ALL),
    committing("a simple consumer of a group with members", T, commit(on(offset=1)), *stable(), commit(on(offset=5)), ALL),
    committing("before the assignment", T, commit(on(offset=1)), joined(), commit(on(offset=5), member="m", generation=1)),
    committing(
        "after all have left",
        T,
        commit(on(offset=1)),
        *stable(),
        leave("m", version=5),
        commit(on(offset=5)),
        commit(on(offset=6), member="m", generation=1),
        commit(on(offset=7), member="m", generation=2),
        ALL,
    ),
    committing(
        "an instance id",
        T,
        commit(on(offset=1)),
        *stable(instance="i"),
        commit(on(offset=5), member="m", generation=1, instance="i"),
        commit(on(offset=6), member="m", generation=1, instance="j"),
        commit(on(offset=7), member="=x", generation=1, instance="i"),
        ALL,
        versions="7+",
    ),
    committing(
        "in a rebalance",
        T,
        commit(on(offset=1)),
        *stable(),
        join("n", version=9),
        while_waiting(join("n", version=9), commit(on(offset=5), member="m", generation=1, version=9), leave("m", version=5)),
        ALL,
    ),
    committing(
        "a large commit", T, commit(*(on("t", number % 3, offset=number, metadata="x" * 4000) for number in range(300))), ALL
    ),
]

FETCH = [
    fetching("no group", T, committed(on("t", 0), on("t", 1), group="never")),
    fetching("an empty group id", T, committed(on("t", 2), group="=")),
    fetching("some", T, committed(on(), group="never"), SOME, committed(on("t", 0), on("t", 1), on("t", 2))),
    fetching("everything", T, committed(on(), group="never"), SOME, committed(everything=True), versions="2+"),
    fetching("everything of no group", T, committed(everything=True, group="never"), versions="2+"),
    fetching("an unknown topic", T, committed(on("nobody")), SOME, committed(on("nobody"), on("t", 0))),
    fetching("an unknown partition", T, committed(on("t", 7)), SOME, committed(on("t", 7), on("t", -1), on("t", 0))),
    fetching("a bad name", T, committed(on("=no/such"), on("=")), versions="1-9"),
    fetching("nothing", T, committed(), SOME, committed()),
    fetching("a partition twice", T, committed(on()), SOME, committed(on("t", 0), on("t", 0))),
    fetching(
        "stable offsets",
        T,
        committed(on(), stable_only=True),
        SOME,
        committed(on("t", 0), on("t", 2), stable_only=True),
        committed(everything=True, stable_only=True),
        versions="7+",
    ),
    fetching("of a group with members", T, committed(on()), SOME, *stable(), committed(on("t", 0), on("t", 1))),
    fetching(
        "several groups",
        T,
        committed_of(("g%", [on()]), ("h%", None), ("never", [on("t", 1)])),
        SOME,
        commit(on("t", 2, offset=3), group="h%", version=9),
        committed_of(("g%", [on()]), ("h%", None), ("never", [on("t", 1)]), ("never", None)),
        versions="8+",
    ),
    fetching(
        "a group twice",
        T,
        committed_of(("g%", [on()])),
        SOME,
        committed_of(("g%", [on()]), ("g%", [on("t", 1)])),
        versions="8+",
        ignore="groups",
    ),
    fetching("no groups", T, committed_of(), versions="8+"),
]

DELETE = [
    deleting("no group", T, delete_offsets(on(), group="never")),
    deleting("an empty group id", T, delete_offsets(on(), group="=")),
    deleting("some", T, delete_offsets(on(), group="never"), SOME, delete_offsets(on("t", 0), on("t", 2)), ALL),
    deleting("an unknown topic", T, SOME, delete_offsets(on("nobody"), on("t", 0)), delete_offsets(on("nobody")), ALL),
    deleting("an unknown partition", T, SOME, delete_offsets(on("t", 5), on("t", 0)), delete_offsets(on("t", 5)), ALL),
    deleting("an unknown topic of no group", T, delete_offsets(on("nobody"), group="never")),
    deleting("nothing", T, SOME, delete_offsets(), delete_offsets(group="never"), ALL),
    deleting(
        "a topic that members read",
        T,
        topic("u"),
        SOME,
        commit(on("u", offset=1), version=9),
        *stable(),
        delete_offsets(on("t"), on("u")),
        ALL,
    ),
    deleting("a topic that nobody has committed", T, topic("u"), SOME, delete_offsets(on("u"))),
    deleting("of a group that is not one of consumers", T, SOME, *stable(protocol_type="connect")[:1], delete_offsets(on())),
    deleting("a partition twice", T, SOME, delete_offsets(on("t", 0), on("t", 0)), ALL),
]


@pytest.mark.parametrize("case", [*COMMIT, *FETCH, *DELETE], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
