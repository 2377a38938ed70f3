"""InitProducerId 0-5, DescribeProducers 0, and Produce of idempotent producers: the same answer as Apache Kafka's."""

from __future__ import annotations

import pytest
from interop.answers.admin import delete_records, describe_producers, init_producer
from interop.answers.case import Case, Pair, Step, family
from interop.answers.steps import by, fetch, on, produce, producer, stored, topic, written

initialising, describing, producing = family(22), family(61), family(0)

MAX_SEQUENCE = 2**31 - 1


def batches(name: str, *rows: tuple[int, int, int], first: str = "p") -> Case:
    """Batches of (sequence, records, epoch), one request each; then the log and the producers."""
    writes = [produce(on(records=by(first, sequence, count, epoch))) for sequence, count, epoch in rows]
    return producing(name, topic(), producer(), *writes, fetch(on()), describe_producers(on()), versions="13")


INIT = [
    initialising("a new one", init_producer(), init_producer()),
    initialising("no timeout", init_producer(timeout_ms=0)),
    initialising("a negative timeout", init_producer(timeout_ms=-1)),
    initialising("an empty transactional id", init_producer(transactional_id="")),
    initialising("a producer id of its own", producer(), init_producer(producer_id="p", epoch=0), versions="3+"),
    initialising("a producer id that nobody has", init_producer(producer_id=123456789, epoch=3), versions="3+"),
    initialising("a producer id without an epoch", init_producer(producer_id=5, epoch=-1), versions="3+"),
    initialising("an epoch without a producer id", init_producer(producer_id=-1, epoch=5), versions="3+"),
    initialising("a negative producer id", init_producer(producer_id=-7, epoch=0), versions="3+"),
]

PRODUCE = [
    producing("every version", topic(), producer(), produce(on(records=by("p", 0, 2))), versions="3"),
    batches("in sequence", (0, 1, 0), (1, 2, 0), (3, 5, 0)),
    batches("a duplicate", (0, 3, 0), (0, 3, 0)),
    batches("a duplicate of an earlier one", (0, 1, 0), (1, 1, 0), (2, 1, 0), (0, 1, 0)),
    batches("a duplicate of the fifth last", *((number, 1, 0) for number in range(5)), (0, 1, 0)),
    batches("a duplicate of the sixth last", *((number, 1, 0) for number in range(6)), (0, 1, 0)),
    batches("a part of a duplicate", (0, 3, 0), (0, 2, 0)),
    batches("an overlap", (0, 3, 0), (2, 3, 0)),
    batches("a gap", (0, 1, 0), (2, 1, 0)),
    batches("a gap, then what was missing", (0, 1, 0), (2, 1, 0), (1, 1, 0)),
    batches("a sequence before", (5, 1, 0), (3, 1, 0)),
    batches("a first sequence above 0", (7, 1, 0), (8, 1, 0)),
    batches("a new epoch from 0", (0, 2, 0), (0, 1, 1)),
    batches("a new epoch from above 0", (0, 2, 0), (2, 1, 1)),
    batches("an old epoch", (0, 1, 3), (1, 1, 2)),
    batches("an old epoch after a new one", (0, 1, 0), (0, 1, 1), (1, 1, 0)),
    batches("wrap around", (MAX_SEQUENCE - 1, 2, 0), (0, 1, 0)),
    batches("wrap around within a batch", (MAX_SEQUENCE, 2, 0), (1, 1, 0)),
    batches("after the largest comes not the largest", (MAX_SEQUENCE, 1, 0), (1, 1, 0)),
    batches("a producer id that nobody has handed out", (0, 1, 0), (1, 1, 0), first="987654321"),
    batches("a negative sequence", (-2, 1, 0)),
    batches("no sequence", (-1, 1, 0)),
    batches("no epoch", (0, 1, -1)),
    producing(
        "two producers",
        topic(),
        producer("p"),
        producer("q"),
        *(produce(on(records=by(name, sequence))) for sequence in range(3) for name in ("p", "q")),
        fetch(on()),
        describe_producers(on()),
        versions="13",
    ),
    producing(
        "two partitions",
        topic("t", 2),
        producer(),
        produce(on("t", 0, records=by("p", 0)), on("t", 1, records=by("p", 0))),
        produce(on("t", 0, records=by("p", 1)), on("t", 1, records=by("p", 2))),
        describe_producers(on("t", 0), on("t", 1)),
        versions="13",
    ),
    producing(
        "a duplicate in every version", topic(), producer(), stored(on(records=by("p", 0))), produce(on(records=by("p", 0)))
    ),
    producing("a gap in every version", topic(), producer(), stored(on(records=by("p", 0))), produce(on(records=by("p", 5)))),
    producing(
        "an old epoch in every version",
        topic(),
        producer(),
        stored(on(records=by("p", 0, epoch=3))),
        produce(on(records=by("p", 1, epoch=2))),
    ),
    producing(
        "a duplicate after its records were deleted",
        topic(),
        producer(),
        stored(on(records=by("p", 0, 3))),
        delete_records(on(offset=-1), version=2),
        produce(on(records=by("p", 0, 3))),
        produce(on(records=by("p", 3))),
        describe_producers(on()),
        versions="13",
    ),
    producing(
        "a transactional batch outside of a transaction",
        topic(),
        producer(),
        produce(on(records=by("p", 0, transactional=True))),
        fetch(on()),
        versions="3-11",
    ),
    producing(
        "a duplicate with acks 1",
        topic(),
        producer(),
        produce(on(records=by("p", 0)), acks=1),
        produce(on(records=by("p", 0)), acks=1),
        versions="13",
    ),
    producing(
        "acks 0 from an idempotent producer",
        topic(),
        producer(),
        produce(on(records=by("p", 0)), acks=0, silent=True),
        describe_producers(on()),
        versions="13",
    ),
]

ONE = (topic("t", 2), producer(), stored(on("t", 0, records=by("p", 0, 3))))


def described(name: str, *steps: Step) -> Case:
    return describing(name, *ONE, *steps)


DESCRIBE = [
    described("one", describe_producers(on())),
    described("none", describe_producers(on("t", 1))),
    described("several", describe_producers(on("t", 0), on("t", 1), on("t", 2), on("nobody"), on("t", -1))),
    described("a partition twice", describe_producers(on("t", 0), on("t", 0))),
    described("nothing", describe_producers()),
    described("a bad name", describe_producers(on("=no/such"))),
    described("an empty name", describe_producers(on("="))),
    describing("after plain records", topic(), written(count=3), describe_producers(on())),
    describing(
        "after a later epoch",
        topic(),
        producer(),
        stored(on(records=by("p", 0, 2, epoch=4))),
        stored(on(records=by("p", 0, 2, epoch=6))),
        describe_producers(on()),
    ),
]


@pytest.mark.parametrize("case", [*INIT, *PRODUCE, *DESCRIBE], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
