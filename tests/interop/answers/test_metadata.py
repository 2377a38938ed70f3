"""Metadata 0-13, DescribeCluster 0-2, DescribeTopicPartitions 0: the same answer as Apache Kafka's."""

from __future__ import annotations

import pytest
from interop.answers.admin import delete, describe_cluster, describe_partitions, grow, learn, metadata_of
from interop.answers.case import Case, Pair, family
from interop.answers.steps import eventually, topic

metadata, cluster, partitions = family(3), family(60), family(75)


def has_leader(answer: dict[str, dict[str, dict[str, object]]]) -> bool:
    return all(row["error_code"] == "NONE" for row in answer["topics"].values())


METADATA = [
    metadata("a topic", topic(), metadata_of("t")),
    metadata("several topics", topic("a", 2), topic("b", 3), metadata_of("a", "b")),
    metadata("all topics", topic("a"), topic("b", 2), metadata_of(everything=True)),
    metadata("all topics, none created", topic("a"), metadata_of(everything=True, auto_create=True), versions="4+"),
    metadata("no topics", topic(), metadata_of(), versions="1+"),
    metadata("an unknown topic", metadata_of("nobody"), versions="4+"),
    metadata("an unknown topic beside a known one", topic(), metadata_of("nobody", "t"), versions="4+"),
    metadata("a topic twice", topic(), metadata_of("t", "t")),
    metadata("an unknown topic twice", topic(), metadata_of("nobody", "nobody"), versions="4+"),
    metadata("many partitions", topic("t", 100), metadata_of("t")),
    metadata("after it has grown", topic(), grow(("t", 3), version=3), metadata_of("t")),
    metadata("after it was deleted", topic(), delete("t", version=6), metadata_of("t"), versions="4+"),
    *(
        metadata(f"a bad name: {name!r}", metadata_of(f"={name}"), versions="4+")
        for name in ("", ".", "no/such", "nö", "x" * 249, "x" * 250)
    ),
    *(
        metadata(f"a bad name, to be created: {name!r}", metadata_of(f"={name}", auto_create=True))
        for name in ("", ".", "no/such", "nö", "x" * 250)
    ),
    metadata("authorized operations", topic(), metadata_of("t", operations=True), versions="8+"),
    metadata("authorized operations of an unknown topic", metadata_of("nobody", operations=True), versions="8+"),
    metadata("by id", topic(), metadata_of("t", ids=True, names=False), versions="12+"),
    metadata("by id in a version that may not", topic(), metadata_of("t", ids=True, names=False), versions="10-11"),
    metadata("by an unknown id", metadata_of("nobody", ids=True, names=False), versions="12+"),
    metadata("by a known and an unknown id", topic(), metadata_of("t", "nobody", ids=True, names=False), versions="12+"),
    metadata("by an id twice", topic(), metadata_of("t", "t", ids=True, names=False), versions="12+"),
    metadata("by name and id", topic(), metadata_of("t", ids=True), versions="10+"),
    metadata("by name and another's id", topic("a"), metadata_of("nobody", ids=True), versions="10+"),
    metadata("by nothing", metadata_of(None), versions="10+"),
    metadata(
        "by id after it was deleted", topic(), delete("t", version=6), metadata_of("t", ids=True, names=False), versions="12+"
    ),
    # The first answer may say that it is not there yet; who asks again gets it.
    metadata("created by asking", eventually(metadata_of("t%", auto_create=True), has_leader)),
    metadata("the first answer of one that is created by asking", metadata_of("t%", auto_create=True)),
    metadata("not created by asking", metadata_of("t%"), metadata_of("t%", version=12), versions="4+"),
    metadata("a name that collides, created by asking", topic("a.b"), metadata_of("a_b", auto_create=True)),
]

CLUSTER = [
    cluster("brokers", describe_cluster()),
    cluster("authorized operations", describe_cluster(operations=True)),
    cluster("controllers", describe_cluster(endpoint_type=2), versions="1+"),
    *(cluster(f"endpoint type {kind}", describe_cluster(endpoint_type=kind), versions="1+") for kind in (0, 3, -1)),
    cluster("fenced brokers", describe_cluster(fenced=True), versions="2"),
]

TWO = (topic("a", 3), topic("b", 2))

PARTITIONS = [
    partitions("a topic", *TWO, describe_partitions("a")),
    partitions("two topics", *TWO, describe_partitions("b", "a")),
    partitions("a topic twice", *TWO, describe_partitions("a", "a")),
    partitions("an unknown topic", *TWO, describe_partitions("nobody", "a")),
    partitions("a bad name", describe_partitions("=no/such")),
    partitions("an empty name", describe_partitions("=")),
    *(
        partitions(f"at most {limit}", *TWO, describe_partitions("a", "b", limit=limit))
        for limit in (1, 2, 3, 4, 5, 6, 0, -1, 10_000)
    ),
    partitions("at most one, unknown topics too", *TWO, describe_partitions("nobody", "a", "nobody2", limit=1)),
    *(
        partitions(f"from {index} of {symbol} on", *TWO, describe_partitions("a", "b", cursor=(symbol, index)))
        for symbol, index in (
            ("a", 0),
            ("a", 1),
            ("a", 2),
            ("a", 3),
            ("b", 0),
            ("b", 1),
            ("b", 9),
            ("aa", 0),
            ("c", 0),
            ("0", 0),
        )
    ),
    partitions("from a negative one on", *TWO, describe_partitions("a", "b", cursor=("a", -1))),
    partitions("a page from the middle", *TWO, describe_partitions("a", "b", cursor=("a", 1), limit=3)),
    partitions("any topics, from here on", *TWO, describe_partitions(cursor=("a", 1), limit=4)),
    partitions("after a deletion", *TWO, delete("a", version=6), describe_partitions("a", "b")),
    partitions("after growing", *TWO, grow(("b", 4), version=3), learn("b"), describe_partitions("b")),
]


@pytest.mark.parametrize("case", [*METADATA, *CLUSTER, *PARTITIONS], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
