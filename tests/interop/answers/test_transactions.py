"""InitProducerId 0-5 with a transactional id, AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, TxnOffsetCommit 0-5, EndTxn 0-5,
WriteTxnMarkers 1-2, DescribeTransactions 0, ListTransactions 0-2, and what Produce, Fetch and ListOffsets make of a
transaction: the same answer as Apache Kafka's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from interop.answers.admin import describe_producers, list_offsets
from interop.answers.case import Case, Pair, Step, family
from interop.answers.group_steps import TRANSACTION, find
from interop.answers.steps import fetch, on, topic, written
from interop.answers.transaction_steps import (
    add,
    add_offsets,
    commit_offsets,
    describe,
    end,
    init,
    list_transactions,
    markers,
    ready,
    sent,
)

COMMITTED = 1
OLD, NEW = 11, 12  # Produce before and with KIP-890


def anew(key: int) -> Callable[..., Case]:
    """Cases of an API in which everything but the making of topics is done in every version."""
    cases = family(key)

    def case(name: str, *steps: Step, versions: str = "") -> Case:
        first = next(number for number, step in enumerate(steps) if not step.text.startswith("topic"))
        begin = Step("begin", lambda *_: None, key)
        return cases(name, *steps[:first], begin, *steps[first:], versions=versions)

    return case


def made(symbol: str = "t%") -> Step:
    """A topic of its own for every version."""
    return replace(topic(symbol), text=f"make {symbol}")


initialising, adding, adding_offsets, ending = anew(22), anew(24), anew(25), anew(26)
marking, committing, producing, fetching, listing_offsets = anew(27), anew(28), anew(0), anew(1), anew(2)
describing, listing, finding = anew(65), anew(66), anew(10)

INIT = [
    initialising("a transactional id", init(), init(), describe("x")),
    initialising("too long a timeout", init(timeout_ms=900_001)),
    initialising("no timeout for transactions", init(timeout_ms=0)),
    initialising("recovers", init(), init(recovers=True), init(recovers=True, epoch=-1), versions="3+"),
    initialising("recovers with another's epoch", init(), init(recovers=True, epoch=5), versions="3+"),
    initialising("recovers after another came", init(), init(), init(recovers=True, epoch=-1), versions="3+"),
    initialising("recovers from nothing", init(recovers=True), versions="3+"),
    initialising(
        "while a transaction is open",
        topic(),
        init(),
        sent(on(), version=NEW),
        init(patient=False),
        init(),
        describe("x"),
        fetch(on(), isolation=COMMITTED),
        versions="5",
    ),
    initialising(
        "a zombie recovers while its successor has a transaction open",
        topic(),
        init(),
        init(),
        sent(on(), version=NEW),
        init(recovers=True, epoch=-1, patient=False),
        describe("x"),
        versions="5",
    ),
    initialising(
        "after transactions of the new kind",
        topic(),
        init(),
        sent(on(), version=NEW),
        end(commit=True, version=5),
        init(recovers=True, epoch=-1),
        init(recovers=True),
        describe("x"),
        versions="5",
    ),
]

ADD = [
    adding("partitions", topic("t", 3), ready(), add(on("t", 0), on("t", 2)), add(on("t", 2)), describe("x")),
    adding("no such partition", topic(), ready(), add(on("t", 0), on("t", 7), on("=nobody")), describe("x")),
    adding("a wrong epoch", topic(), ready(), add(on(), epoch=3), add(on(), epoch=-1)),
    adding("nobody's id", topic(), add(on(), name="nobody")),
    adding("an empty id", topic(), add(on(), name="=")),
    adding("verification", topic("t", 2), ready(), add(on("t", 0)), add(on("t", 0), on("t", 1), verify=True), versions="4+"),
    adding("verification of another's", topic(), ready(), add(on(), verify=True, epoch=1), versions="4+"),
    adding("verification of nothing", topic(), ready(), add(on(), verify=True), versions="4+"),
    adding_offsets("of a group", ready(), add_offsets(), describe("x")),
    adding_offsets("with a wrong epoch", ready(), add_offsets(epoch=1)),
    adding_offsets("of nobody's transaction", add_offsets(name="nobody")),
    adding_offsets("without an id", add_offsets(name="=")),
]

END = [
    ending("nothing to commit", ready(), end(commit=True), describe("x")),
    ending("nothing to abort", ready(), end(commit=False), describe("x")),
    ending("a wrong epoch", topic(), ready(), add(on(), version=3), end(commit=True, epoch=3), end(commit=True, epoch=-1)),
    ending("nobody's", end(commit=True, name="nobody")),
    ending("without an id", end(commit=True, name="=")),
    ending(
        "old commits, sent again",
        made("t%"),
        ready(),
        add(on("t%"), version=3),
        sent(on("t%"), version=OLD),
        end(commit=True),
        end(commit=True),
        end(commit=False),
        fetch(on("t%"), isolation=COMMITTED),
        versions="0-4",
    ),
    ending(
        "old aborts, sent again",
        made("t%"),
        ready(),
        add(on("t%"), version=3),
        sent(on("t%"), version=OLD),
        end(commit=False),
        end(commit=False),
        end(commit=True),
        fetch(on("t%"), isolation=COMMITTED),
        versions="0-4",
    ),
    *(
        ending(
            f"a new {name}, sent again",
            topic("t"),
            ready(),
            sent(on("t"), version=NEW),
            end(commit=commits),
            end(commit=commits, epoch=-1),
            end(commit=not commits, epoch=-1),
            end(commit=True),
            end(commit=False),
            describe("x"),
            fetch(on("t"), isolation=COMMITTED),
            describe_producers(on("t")),
            versions="5",
        )
        for name, commits in (("commit", True), ("abort", False))
    ),
]

MARKERS = [
    marking("for partitions here and not here", topic("t", 2), markers(on("t", 0), on("t", 1), on("t", 7), commit=True)),
    marking("for no such topic", markers(on("=nobody"), commit=True)),
    marking(
        "of another coordinator", made("t%"), *(markers(on("t%"), commit=False, coordinator_epoch=one) for one in (5, 4, 5))
    ),
    marking("of an old epoch", made("t%"), *(markers(on("t%"), commit=False, epoch=one) for one in (5, 4, 5))),
    *(
        marking(
            f"for an open transaction, version {level}, {epoch} epochs on",
            topic(),
            ready(),
            sent(on(), version=NEW),
            markers(on(), commit=False, epoch=epoch, transaction_version=level),
            fetch(on(), isolation=COMMITTED),
            describe_producers(on()),
            versions="2",
        )
        for level in (0, 2)
        for epoch in (0, 1)
    ),
    marking("for the offsets of groups", markers(on("=__consumer_offsets"), commit=True)),
]

OFFSETS = [
    committing("added", topic(), ready(), add_offsets(version=4), commit_offsets(on(offset=3)), end(commit=True, version=4)),
    committing("not added", topic(), ready(), commit_offsets(on())),
    committing("of a wrong epoch", topic(), ready(), add_offsets(version=4), commit_offsets(on(), epoch=1)),
    committing("of nobody", topic(), commit_offsets(on(), name="nobody")),
    committing(
        "of no such partition", topic(), ready(), add_offsets(version=4), commit_offsets(on(), on("t", 9), on("=nobody"))
    ),
    committing("without a group", topic(), ready(), commit_offsets(on(), group="=")),
    committing("of a generation that is not", topic(), ready(), add_offsets(version=4), commit_offsets(on(), generation=3)),
    committing("with long words", topic(), ready(), add_offsets(version=4), commit_offsets(on(metadata="x" * 5000))),
]

PRODUCE = [
    producing("not added", topic(), ready(), sent(on()), versions="3-11"),
    producing("added by itself", topic(), ready(), sent(on()), sent(on(sequence=1)), describe("x"), versions="12"),
    producing("a first sequence above 0 in a transaction", topic(), ready(), sent(on(sequence=5)), versions="12"),
    producing("of a wrong epoch", topic(), ready(), sent(on(), epoch=2)),
    producing("of nobody's transaction", topic(), sent(on(), name="nobody")),
    producing(
        "outside of the transaction",
        topic(),
        ready(),
        sent(on(), version=NEW),
        end(commit=True, version=5),
        sent(on(sequence=1), epoch=-1),
        versions="11-12",
    ),
    producing(
        "two partitions, of which one is added",
        topic("t", 2),
        ready(),
        add(on("t", 0), version=3),
        sent(on("t", 0), on("t", 1)),
        versions="11",
    ),
]


def _two_transactions() -> tuple[Step, ...]:
    return (
        made(),
        ready("a"),
        ready("b"),
        written("t%", count=2),
        sent(on("t%"), name="a", version=NEW),
        sent(on("t%"), name="b", version=NEW),
        end(commit=False, name="a", version=5),
        written("t%", count=1),
    )


READ = [
    fetching("before the end of one", *_two_transactions(), fetch(on("t%"), isolation=COMMITTED), fetch(on("t%"))),
    fetching(
        "behind the end of both",
        *_two_transactions(),
        end(commit=True, name="b", version=5),
        fetch(on("t%"), isolation=COMMITTED),
        fetch(on("t%", offset=3), isolation=COMMITTED),
        fetch(on("t%", offset=5), isolation=COMMITTED),
        versions="4+",
    ),
    listing_offsets(
        "before the end of one",
        *_two_transactions(),
        *(list_offsets(on("t%", at=at), isolation=isolation) for at in (-1, -2, 0) for isolation in (0, 1)),
        versions="2+",
    ),
]

OUTSIDE = [
    finding("a transactional id", find("x", kind=TRANSACTION), versions="1+"),
    finding("an empty transactional id", find("", kind=TRANSACTION), versions="1+"),
    finding("several transactional ids", find("x", "y", "x", kind=TRANSACTION), versions="4+"),
    describing("several", topic(), ready(), ready("y"), sent(on(), name="y", version=NEW), describe("x", "y", "nobody", "=")),
    listing("all", topic(), ready(), ready("y"), sent(on(), name="y", version=NEW), list_transactions("x", "y")),
    listing("by state", ready(), list_transactions("x", states=["Empty", "Nonsense"]), list_transactions("x", states=["Dead"])),
    listing(
        "by pattern", ready(), list_transactions("x", pattern=r".*\.x.*"), list_transactions("x", pattern="x"), versions="2"
    ),
    listing("by a broken pattern", list_transactions(pattern="(")),
    listing(
        "by duration", ready(), list_transactions("x", duration_ms=0), list_transactions("x", duration_ms=10**15), versions="1+"
    ),
]


@pytest.mark.parametrize(
    "case",
    [*INIT, *ADD, *END, *MARKERS, *OFFSETS, *PRODUCE, *READ, *OUTSIDE],
    ids=lambda case: f"{case.family}: {case.name}",
)
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
