"""CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3: the same answer as Apache Kafka's."""

from __future__ import annotations

from typing import Any

import pytest
from interop.answers.admin import TOPIC, create, delete, describe, grow, learn, metadata_of, new
from interop.answers.case import Case, Pair, family
from interop.answers.steps import topic, written

creating, deleting, growing = family(19), family(20), family(37)

NAMES = {
    "an empty name": "=",
    "a name of a dot": "=.",
    "a name of two dots": "=..",
    "a slash in the name": "=no/such",
    "a space in the name": "=no such",
    "an umlaut in the name": "=nö",
    "a colon in the name": "=a:b",
    "a name too long": "=" + "x" * 250,
    "a newline in the name": "=a\nb",
}
CONFIGS: dict[str, dict[str, str | None]] = {
    "several configs": {"retention.ms": "1000", "cleanup.policy": "compact,delete", "compression.type": "zstd"},
    "an unknown config": {"no.such.config": "1"},
    "a config that is not a number": {"retention.ms": "soon"},
    "a config out of range": {"min.insync.replicas": "0"},
    "a config with null": {"retention.ms": None},
    "an empty config": {"cleanup.policy": ""},
    "a config of a broker": {"log.retention.ms": "1"},
    "an unknown policy": {"cleanup.policy": "burn"},
    "an unknown codec": {"compression.type": "rar"},
    "a number with blanks": {"retention.ms": " 1000 "},
    "a boolean in capitals": {"preallocate": "TRUE"},
    "not a boolean": {"preallocate": "maybe"},
    "a number too large": {"segment.bytes": "99999999999"},
    "a small segment": {"segment.bytes": "14"},
    "more in sync than replicas": {"min.insync.replicas": "3"},
    "local retention above retention": {"retention.ms": "1000", "local.retention.ms": "2000"},
    "a compression level out of range": {"compression.type": "gzip", "compression.gzip.level": "10"},
    "throttled replicas": {"leader.replication.throttled.replicas": "0:1"},
    "malformed throttled replicas": {"leader.replication.throttled.replicas": "0-1"},
    "remote storage without a remote storage": {"remote.storage.enable": "true"},
    "an obsolete message format": {"message.format.version": "3.0"},
    "a timestamp type": {"message.timestamp.type": "LogAppendTime"},
    "an unknown timestamp type": {"message.timestamp.type": "logappendtime"},
}
ASSIGNMENTS: dict[str, list[tuple[int, list[int]]]] = {
    "an unknown broker": [(0, [9])],
    "a negative broker": [(0, [-1])],
    "a broker twice": [(0, [1, 1])],
    "no replicas": [(0, [])],
    "one unknown of two": [(0, [1, 2])],
    "a gap in the partitions": [(0, [1]), (2, [1])],
    "not from zero on": [(1, [1])],
    "a partition twice": [(0, [1]), (0, [1])],
    "a negative partition": [(-1, [1])],
    "unequal replicas": [(0, [1]), (1, [1, 2])],
}


def refused(name: str, **row: Any) -> Case:
    return creating(name, create(new(**row)))


CREATE = [
    creating("one partition", create(new()), metadata_of("t%"), describe((TOPIC, "t%"))),
    creating("several partitions", create(new(partitions=7)), metadata_of("t%")),
    creating("several topics", create(new("a%"), new("b%", 2)), metadata_of("a%", "b%")),
    creating("defaults for partitions and replicas", create(new(partitions=-1, replication=-1)), metadata_of("t%")),
    creating("nothing", create()),
    creating("assigned", create(new(partitions=-1, replication=-1, assignments={0: [1], 1: [1]})), metadata_of("t%")),
    creating(
        "assigned in disorder", create(new(partitions=-1, replication=-1, assignments=[(1, [1]), (0, [1])])), metadata_of("t%")
    ),
    *(
        creating(f"assigned, {name}", create(new(partitions=-1, replication=-1, assignments=rows)), metadata_of("t%"))
        for name, rows in ASSIGNMENTS.items()
    ),
    refused("assigned, and a number of partitions", partitions=1, replication=-1, assignments={0: [1]}),
    refused("assigned, and a replication factor", partitions=-1, replication=1, assignments={0: [1]}),
    *(refused(name, symbol=symbol) for name, symbol in NAMES.items()),
    *(refused(f"{count} partitions", partitions=count) for count in (0, -2, -(2**31))),
    *(refused(f"{count} replicas", replication=count) for count in (0, -2, 2, 32767)),
    refused("10,001 partitions", partitions=10_001),
    refused("too many partitions", partitions=2**31 - 1),
    creating("too many partitions in sum", create(new("a%", 6000), new("b%", 6000))),
    creating("a topic that is there", topic(), create(new("t"))),
    creating("a topic that is there, validated", topic(), create(new("t"), validate_only=True)),
    creating("a topic twice", create(new("t%"), new("t%", 2)), metadata_of("t%")),
    creating("a topic twice beside another", create(new("t%"), new("t%"), new("u%")), metadata_of("t%", "u%")),
    creating("a name that collides", topic("a.b"), create(new("a_b"))),
    creating("names that collide with one another", create(new("a.b%"), new("a_b%")), ignore="a.b|a_b"),
    creating("a bad one beside a good one", create(new("t%"), new("=no/such"), new("u%", 0)), metadata_of("t%")),
    creating("validated only", create(new(partitions=3), validate_only=True), metadata_of("t%")),
    creating("validated only, and bad", create(new(partitions=0), validate_only=True), metadata_of("t%")),
    creating("no time", create(new(), timeout_ms=0), ignore="t./error"),
    refused("the metadata topic", symbol="=__cluster_metadata"),
    *(creating(f"with {name}", create(new(configs=rows)), describe((TOPIC, "t%"))) for name, rows in CONFIGS.items()),
    creating(
        "with a config twice", create(new(configs=[("retention.ms", "1"), ("retention.ms", "2")])), describe((TOPIC, "t%"))
    ),
    creating("with configs, validated only", create(new(configs={"retention.ms": "1"}), validate_only=True)),
]

DELETE = [
    deleting("by name", create(new("a"), new("b"), version=7), delete("a"), metadata_of("a", "b")),
    deleting("and made again", topic(), delete("t"), create(new("t"), version=7), metadata_of("t")),
    deleting(
        "made again with another id",
        topic(),
        written(),
        delete("t"),
        create(new("t"), version=7),
        learn("t"),
        metadata_of("t", ids=True),
    ),
    deleting("an unknown name", delete("nobody")),
    deleting("a bad name", delete("=no/such")),
    deleting("an empty name", delete("=")),
    deleting("several", create(new("a"), new("b"), version=7), delete("a", "nobody", "b"), metadata_of("a", "b")),
    deleting("nothing", delete()),
    deleting("a name twice", topic(), delete("t", "t"), metadata_of("t")),
    deleting("by id", topic(), delete("t", ids=True, names=False), metadata_of("t"), versions="6"),
    deleting("an unknown id", delete("nobody", ids=True, names=False), versions="6"),
    deleting("by name and id", topic(), delete("t", ids=True), metadata_of("t"), versions="6"),
    deleting("neither name nor id", delete("t", names=False), versions="6"),
    deleting("an id twice", topic(), delete("t", "t", ids=True, names=False), metadata_of("t"), versions="6"),
    deleting("no time", topic("u"), delete("nobody", timeout_ms=0)),
]

# No case with very many: Apache Kafka sets no limit here, and makes them.
GROW = [
    growing("more", topic(), grow(("t", 3)), metadata_of("t"), versions="0"),
    growing("more in every version", topic("t"), grow(("t", 9)), metadata_of("t")),
    growing("as many as there are", topic("t", 2), grow(("t", 2))),
    growing("fewer", topic("t", 2), grow(("t", 1))),
    *(growing(f"{count}", topic("t", 2), grow(("t", count))) for count in (0, -1, -(2**31))),
    growing("an unknown topic", grow(("nobody", 2))),
    growing("a bad name", grow(("=no/such", 2))),
    growing("nothing", grow()),
    growing("a topic twice", topic(), grow(("t", 2), ("t", 3)), metadata_of("t")),
    growing("validated only", topic(), grow(("t", 2), validate_only=True), metadata_of("t")),
    growing("validated only, and bad", topic(), grow(("t", 1), validate_only=True), metadata_of("t")),
    growing("assigned", topic(), grow(("t", 2, [[1]])), metadata_of("t")),
    growing("assigned, too few", topic(), grow(("t", 3, [[1]])), metadata_of("t")),
    growing("assigned, too many", topic(), grow(("t", 2, [[1], [1]])), metadata_of("t")),
    growing("assigned, an unknown broker", topic(), grow(("t", 2, [[9]])), metadata_of("t")),
    growing("assigned, a broker twice", topic(), grow(("t", 2, [[1, 1]])), metadata_of("t")),
    growing("assigned, no replicas", topic(), grow(("t", 2, [[]])), metadata_of("t")),
    growing("assigned, another number of replicas", topic(), grow(("t", 2, [[1, 2]])), metadata_of("t")),
    growing("assigned, unequal", topic(), grow(("t", 3, [[1], [1, 2]])), metadata_of("t")),
    growing("assigned, none", topic(), grow(("t", 2, [])), metadata_of("t")),
    growing(
        "a good one beside a bad one", topic("a"), topic("b", 4), grow(("a", 2), ("b", 2), ("nobody", 2)), metadata_of("a", "b")
    ),
]


@pytest.mark.parametrize("case", [*CREATE, *DELETE, *GROW], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
