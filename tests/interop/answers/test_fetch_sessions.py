"""Fetch 7-18 with incremental sessions: the same answer as Apache Kafka's. Sessions are numbered as they are first seen."""

from __future__ import annotations

from typing import Any

import pytest
from interop.answers.admin import delete, delete_records
from interop.answers.case import Case, Pair, Step, family
from interop.answers.steps import AT_MOST_MS, LONG_MS, fetch, on, opened, timed, topic, while_waiting, written

case = family(1, "Fetch session")

TWO = (topic("t", 2), written("t", 3, 0), written("t", 2, 1))
BOTH = (on("t", 0), on("t", 1))


def more(*rows: Any, epoch: int = 1, **options: Any) -> Step:
    return fetch(*rows, session="s", epoch=epoch, text=f"epoch {epoch}", **options)


def session(name: str, *steps: Step, versions: str = "7+") -> Case:
    """Open a session over both partitions, which have 3 and 2 records, then `steps`."""
    return case(name, *TWO, opened("s", *BOTH), *steps, versions=versions)


CASES = [
    session("opened"),
    session("nothing new", more(on("t", 0, offset=3), on("t", 1, offset=2)), more(epoch=2)),
    session("the same offsets again", more()),
    session("one moved on", more(on("t", 0, offset=3)), more(epoch=2)),
    session(
        "new records in one",
        more(on("t", 0, offset=3), on("t", 1, offset=2)),
        written("t", 1, 1),
        more(epoch=2),
        more(epoch=3),
        versions="7",
    ),
    session(
        "new records in one, newest",
        more(on("t", 0, offset=3), on("t", 1, offset=2)),
        written("t", 1, 1),
        more(epoch=2),
        more(epoch=3),
        versions="18",
    ),
    session("one forgotten", more(forget=[on("t", 0)]), more(epoch=2)),
    session("both forgotten", more(forget=[on("t", 0), on("t", 1)]), more(epoch=2)),
    session("one forgotten twice", more(forget=[on("t", 0), on("t", 0)]), more(epoch=2)),
    session("one forgotten that was not there", more(forget=[on("t", 7)]), more(forget=[on("nobody")], epoch=2)),
    session("forgotten and wanted at once", more(on("t", 0), forget=[on("t", 0)]), more(epoch=2)),
    session("forgotten, then wanted", more(forget=[on("t", 0)]), more(on("t", 0, offset=1), epoch=2), more(epoch=3)),
    session("a partition joins", more(on("t", 7)), more(epoch=2)),
    session("an unknown topic joins", more(on("nobody")), more(epoch=2), more(forget=[on("nobody")], epoch=3)),
    session("out of range", more(on("t", 0, offset=99)), more(epoch=2), more(on("t", 0, offset=1), epoch=3)),
    session(
        "a wrong leader epoch",
        more(on("t", 0, epoch=5)),
        more(epoch=2),
        more(on("t", 0, offset=1, epoch=0), epoch=3),
        versions="9+",
    ),
    session("the epoch again", more(), more(epoch=1)),
    session("an epoch left out", more(epoch=2), more(epoch=1)),
    session("an epoch far off", more(epoch=99)),
    session("a negative epoch", more(epoch=-2)),
    session("another session id", fetch(session=1, epoch=1)),
    session("a negative session id", fetch(session=-1, epoch=1)),
    session("closed", more(on("t", 0), epoch=-1), more(epoch=1)),
    session("closed and opened", more(*BOTH, epoch=0), more(epoch=1)),
    session("closed without partitions", more(epoch=-1), more(epoch=1)),
    session("opened over nothing", more(epoch=0), more(epoch=1)),
    case("an epoch without a session", *TWO, fetch(*BOTH, session=0, epoch=1), versions="7+"),
    case("an unknown session", *TWO, fetch(*BOTH, session=12345, epoch=5), versions="7+"),
    case("an unknown session, epoch 0", *TWO, fetch(*BOTH, session=12345, epoch=0), versions="7+"),
    case("an unknown session, epoch -1", *TWO, fetch(*BOTH, session=12345, epoch=-1), versions="7+"),
    case("a session over an unknown topic", *TWO, opened("s", on("nobody"), on("t", 0)), more(), more(epoch=2), versions="7+"),
    case("a session over nothing", fetch(epoch=0), versions="7+"),
    case("a session over an empty partition", topic(), opened("s", on()), more(), more(epoch=2), versions="7+"),
    case("a session over a partition twice", *TWO, opened("s", on("t", 0), on("t", 0, offset=1)), more(), versions="7+"),
    case(
        "two sessions on a connection",
        *TWO,
        opened("s", on("t", 0)),
        opened("r", on("t", 1)),
        more(on("t", 0, offset=3)),
        fetch(session="r", epoch=1),
        more(epoch=2),
        versions="7+",
    ),
    session("max bytes turns the partitions", more(*BOTH, max_bytes=1), more(max_bytes=1, epoch=2), more(max_bytes=1, epoch=3)),
    session("partition max bytes changes", more(on("t", 0, offset=0, max_bytes=1)), more(epoch=2)),
    session(
        "waits when nothing is new",
        more(on("t", 0, offset=3), on("t", 1, offset=2)),
        timed(more(epoch=2, min_bytes=1, max_wait_ms=300), 290, AT_MOST_MS),
        versions="18",
    ),
    session(
        "woken by a produce",
        more(on("t", 0, offset=3), on("t", 1, offset=2)),
        while_waiting(more(epoch=2, min_bytes=1, max_wait_ms=LONG_MS), written("t", 1, 1), at_most_ms=AT_MOST_MS),
        versions="18",
    ),
    session(
        "records deleted before the position",
        more(on("t", 0, offset=3)),
        delete_records(on("t", 0, offset=3), version=2),
        more(epoch=2),
        more(epoch=3),
        versions="18",
    ),
    session(
        "records deleted behind the position",
        delete_records(on("t", 0, offset=2), version=2),
        more(),
        more(epoch=2),
        versions="18",
    ),
    session("the topic is deleted", delete("t", version=6), more(), more(epoch=2), versions="12"),
    session("the topic is deleted, with ids", delete("t", version=6), more(), more(epoch=2), versions="18"),
    session("names, then ids", fetch(on("t", 0), session="s", epoch=1, version=13), more(epoch=2), versions="12"),
    session("ids, then names", fetch(on("t", 0), session="s", epoch=1, version=12), more(epoch=2), versions="13"),
    session("read committed in between", more(isolation=1), more(on("t", 0, offset=1), epoch=2, isolation=1), versions="18"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
