"""DescribeConfigs 1-4, IncrementalAlterConfigs 0-1, AlterConfigs 0-2, ListConfigResources 0-1: the same answer as Apache
Kafka's, and the same configs in force afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from interop.answers.admin import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    delete,
    describe,
    list_resources,
    replace_configs,
)
from interop.answers.case import Case, Pair, family
from interop.answers.side import Side
from interop.answers.steps import on, produce, topic, written
from support.batches import sized_batch

describing, altering, replacing, listing = family(32), family(44), family(33), family(74)

T = (TOPIC, "t")
ONE = (BROKER, "1")  # the broker's own
ALL = (BROKER, "")  # the default of all brokers

# What a broker must have by itself: where it lies, how it is reached.
OWN = {
    "advertised.listeners",
    "controller.quorum.voters",
    "listeners",
    "log.dir",
    "log.dirs",
}


METRICS: dict[str, list[tuple[int, str, str | None]]] = {
    "all of them": [
        (SET, "interval.ms", "100"),
        (SET, "metrics", "a.b,c"),
        (SET, "match", "client_id=a.*,client_source_port=9+"),
    ],
    "no metrics": [(SET, "metrics", "")],
    "every metric": [(SET, "metrics", "*")],
    "a longer list": [(SET, "metrics", "a"), (APPEND, "metrics", "b")],
    "a shorter list": [(SET, "metrics", "a,b"), (SUBTRACT, "metrics", "b")],
    "an hour": [(SET, "interval.ms", "3600000")],
    "more than an hour": [(SET, "interval.ms", "3600001")],
    "not a number": [(SET, "interval.ms", "often")],
    "no match": [(SET, "match", "")],
    "a match of nothing": [(SET, "match", "client_id=")],
    "a match that is none": [(SET, "match", "client_id")],
    "a match of something unknown": [(SET, "match", "shoe=44")],
    "a match with blanks": [(SET, "match", " client_id = a , client_software_name = b ")],
    "a match that does not compile": [(SET, "match", "client_id=[")],
    "a match with two equal signs": [(SET, "match", "client_id=a=b")],
    "a match twice": [(SET, "match", "client_id=a,client_id=b")],
}
GROUP_KEYS = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "share.auto.offset.reset")
GROUPS: dict[str, list[tuple[int, str, str | None]]] = {
    "several": [(SET, "consumer.session.timeout.ms", "55000"), (SET, "consumer.heartbeat.interval.ms", "6000")],
    "heartbeats slower than the session": [(SET, "consumer.heartbeat.interval.ms", "15000")],
    "more than the broker allows": [(SET, "consumer.session.timeout.ms", "60001")],
    "not a number": [(SET, "consumer.session.timeout.ms", "soon")],
    "a share group": [(SET, "share.auto.offset.reset", "earliest")],
    "a share group by duration": [(SET, "share.auto.offset.reset", "by_duration:PT1H")],
    "a share group, badly": [(SET, "share.auto.offset.reset", "sometimes")],
    "what is no list": [(APPEND, "consumer.session.timeout.ms", "5")],
}


def without_own(_: Side, answer: Any) -> Any:
    for result in answer["results"].values():
        configs = result["configs"] or {}
        for name in OWN & set(configs):
            for field in ("value", "synonyms"):
                configs[name].pop(field, None)
    return answer


def only_the_code(_: Side, answer: Any) -> Any:
    return {name: result["error_code"] for name, result in answer["results"].items()}


DESCRIBE = [
    describing("a topic", topic(retention_ms=5000), describe(T)),
    describing("a topic with synonyms", topic(retention_ms=5000), describe(T, synonyms=True)),
    describing("a topic with documentation", topic(), describe(T, documentation=True), versions="3+"),
    describing("some keys", topic(retention_ms=5000), describe(T, keys=["retention.ms", "segment.bytes"])),
    describing("an unknown key", topic(), describe(T, keys=["no.such", "segment.bytes"])),
    describing("a key twice", topic(), describe(T, keys=["segment.bytes", "segment.bytes"])),
    describing("no keys", topic(), describe(T, keys=[])),
    describing("an unknown topic", describe((TOPIC, "nobody"))),
    describing("a bad name", describe((TOPIC, "=no/such"))),
    describing("an empty name", describe((TOPIC, "="))),
    describing(
        "several topics",
        topic("a"),
        topic("b", retention_ms=1),
        describe((TOPIC, "a"), (TOPIC, "b"), (TOPIC, "nobody"), keys=["retention.ms"]),
    ),
    describing("a topic twice", topic(), describe(T, T, keys=["retention.ms"])),
    describing("a topic that was deleted", topic(retention_ms=1), delete("t", version=6), describe(T)),
    describing("nothing", describe()),
    describing("the broker", describe(ONE, see=without_own)),
    describing("the broker with synonyms", describe(ONE, synonyms=True, see=without_own)),
    describing("the broker with documentation", describe(ONE, documentation=True, see=without_own), versions="3+"),
    describing(
        "some keys of the broker",
        describe(ONE, keys=["log.retention.ms", "log.retention.hours", "num.io.threads", "message.max.bytes"], synonyms=True),
    ),
    describing("an unknown key of the broker", describe(ONE, keys=["no.such"])),
    describing("the default of all brokers", describe(ALL)),
    describing("the default of all brokers with synonyms", describe(ALL, synonyms=True)),
    *(describing(f"broker {name!r}", describe((BROKER, name))) for name in ("2", "-1", "one", " 1", "99999999999")),
    *(describing(f"resource type {kind}", describe((kind, "x"))) for kind in (0, 1, 3, 5, 64, 127, -1)),
    describing("an unknown resource beside a topic", topic(), describe(T, (3, "x"), keys=["retention.ms"])),
    describing("loggers of the broker", describe((BROKER_LOGGER, "1"), see=only_the_code)),
    *(describing(f"loggers of broker {name!r}", describe((BROKER_LOGGER, name))) for name in ("2", "", "one")),
    describing("a group", describe((GROUP, "g"))),
    describing("a group without a name", describe((GROUP, ""))),
    describing("client metrics", describe((CLIENT_METRICS, "m"))),
    describing("client metrics without a name", describe((CLIENT_METRICS, ""))),
]

Changes = Sequence[tuple[int, str, str | None]]


def changed(name: str, *changes: tuple[int, str, str | None], **options: Any) -> Case:
    """Change a topic that has two configs of its own, and describe it."""
    made = topic(retention_ms=5000, cleanup_policy="compact")
    return altering(name, made, alter((T, changes), **options), describe(T, synonyms=True))


TOPIC_CHANGES: dict[str, Changes] = {
    "set": [(SET, "retention.ms", "7000")],
    "set one more": [(SET, "segment.bytes", "2000000")],
    "set several": [(SET, "segment.bytes", "2000000"), (SET, "retention.ms", "1"), (DELETE, "cleanup.policy", None)],
    "set the default": [(SET, "retention.ms", "604800000")],
    "set the same": [(SET, "retention.ms", "5000")],
    "delete": [(DELETE, "retention.ms", None)],
    "delete with a value": [(DELETE, "retention.ms", "5000")],
    "delete what is not set": [(DELETE, "segment.bytes", None)],
    "delete an unknown": [(DELETE, "no.such", None)],
    "append": [(APPEND, "cleanup.policy", "delete")],
    "append what is there": [(APPEND, "cleanup.policy", "compact")],
    "append nonsense": [(APPEND, "cleanup.policy", "burn")],
    "append to a number": [(APPEND, "retention.ms", "1")],
    "append to the default": [(APPEND, "leader.replication.throttled.replicas", "0:1")],
    "subtract": [(SUBTRACT, "cleanup.policy", "compact")],
    "subtract what is not there": [(SUBTRACT, "cleanup.policy", "delete")],
    "subtract from a number": [(SUBTRACT, "retention.ms", "1")],
    "append null": [(APPEND, "cleanup.policy", None)],
    "set null": [(SET, "retention.ms", None)],
    "set empty": [(SET, "retention.ms", "")],
    "set the policy empty": [(SET, "cleanup.policy", "")],
    "an unknown key": [(SET, "no.such", "1")],
    "an empty key": [(SET, "", "1")],
    "not a number": [(SET, "retention.ms", "soon")],
    "out of range": [(SET, "min.insync.replicas", "0")],
    "blanks around": [(SET, "retention.ms", " 1 ")],
    "an unknown operation": [(9, "retention.ms", "1")],
    "a negative operation": [(-1, "retention.ms", "1")],
    "a key twice": [(SET, "retention.ms", "1"), (SET, "retention.ms", "2")],
    "set and delete a key": [(SET, "retention.ms", "1"), (DELETE, "retention.ms", None)],
    "a good one and a bad one": [(SET, "segment.bytes", "2000000"), (SET, "retention.ms", "soon")],
    "no changes": [],
    "a key of the broker": [(SET, "log.retention.ms", "1")],
    "remote storage": [(SET, "remote.storage.enable", "true")],
}


def of_broker(name: str, resource: tuple[int, str], *changes: tuple[int, str, str | None], keys: Sequence[str] = ()) -> Case:
    """Change the broker, describe it, and undo that."""
    shown = list(keys or {key for _, key, _ in changes})
    undo = [(DELETE, key, None) for key in dict.fromkeys(key for _, key, _ in changes)]
    return altering(
        f"{name} of {'all brokers' if resource == ALL else 'the broker'}",
        alter((resource, changes)),
        describe(ONE, keys=shown, synonyms=True),
        describe(ALL, synonyms=True),
        alter((resource, undo)),
        describe(ONE, keys=shown, synonyms=True),
    )


BROKER_CHANGES: dict[str, Changes] = {
    "set a size": [(SET, "message.max.bytes", "900000")],
    "set threads": [(SET, "num.io.threads", "3")],
    "set a time": [(SET, "log.retention.ms", "99000000")],
    "set what needs a restart": [(SET, "broker.id", "5")],
    "set what needs a restart too": [(SET, "socket.request.max.bytes", "5000000")],
    "an unknown key": [(SET, "no.such", "1")],
    "not a number": [(SET, "num.io.threads", "many")],
    "out of range": [(SET, "num.io.threads", "0")],
    "far more threads": [(SET, "num.io.threads", "50")],
    "far fewer threads": [(SET, "num.replica.fetchers", "0")],
    "a level": [(SET, "log.cleaner.threads", "2")],
    "a topic's key": [(SET, "retention.ms", "1")],
    "delete what is not set": [(DELETE, "num.io.threads", None)],
    "append a reporter": [(APPEND, "metric.reporters", "no.such.Reporter")],
    "set connections": [(SET, "max.connections", "5000")],
    "set a listener's key": [(SET, "listener.name.plaintext.max.connections", "5000")],
}

ALTER = [
    *(changed(name, *changes) for name, changes in TOPIC_CHANGES.items()),
    *(
        changed(f"{name}, validated only", *TOPIC_CHANGES[name], validate_only=True)
        for name in ("set", "delete", "not a number", "an unknown key")
    ),
    altering("an unknown topic", alter(((TOPIC, "nobody"), [(SET, "retention.ms", "1")]))),
    altering("a bad name", alter(((TOPIC, "=no/such"), [(SET, "retention.ms", "1")]))),
    altering("an empty name", alter(((TOPIC, "="), [(SET, "retention.ms", "1")]))),
    altering("nothing", alter()),
    altering("a topic twice", topic(), alter((T, [(SET, "retention.ms", "1")]), (T, [(SET, "segment.ms", "1")])), describe(T)),
    altering(
        "two topics",
        topic("a"),
        topic("b"),
        alter(((TOPIC, "a"), [(SET, "retention.ms", "1")]), ((TOPIC, "b"), [(SET, "retention.ms", "x")])),
        describe((TOPIC, "a"), (TOPIC, "b"), keys=["retention.ms"]),
    ),
    *(altering(f"resource type {kind}", alter(((kind, "x"), [(SET, "a", "b")]))) for kind in (0, 1, 3, 5, 127, -1)),
    *(altering(f"broker {name!r}", alter(((BROKER, name), [(SET, "num.io.threads", "2")]))) for name in ("2", "-1", "one")),
    *(of_broker(name, ONE, *changes) for name, changes in BROKER_CHANGES.items()),
    *(of_broker(name, ALL, *changes) for name, changes in BROKER_CHANGES.items()),
    altering(
        "the broker over all brokers",
        alter((ALL, [(SET, "log.retention.ms", "98000000")])),
        alter((ONE, [(SET, "log.retention.ms", "97000000")])),
        describe(ONE, keys=["log.retention.ms"], synonyms=True),
        alter((ONE, [(DELETE, "log.retention.ms", None)])),
        describe(ONE, keys=["log.retention.ms"], synonyms=True),
        alter((ALL, [(DELETE, "log.retention.ms", None)])),
        describe(ONE, keys=["log.retention.ms"], synonyms=True),
    ),
    altering(
        "all brokers' default reaches a topic",
        topic(),
        alter((ALL, [(SET, "log.retention.ms", "98000000")])),
        describe(T, keys=["retention.ms"], synonyms=True),
        alter((ALL, [(DELETE, "log.retention.ms", None)])),
        describe(T, keys=["retention.ms"], synonyms=True),
    ),
    altering(
        "a smaller message size is in force",
        topic(),
        alter((T, [(SET, "max.message.bytes", "200")])),
        produce(on(records=sized_batch(201))),
        alter((T, [(DELETE, "max.message.bytes", None)])),
        produce(on(records=sized_batch(201))),
    ),
    altering(
        "keys become needed",
        topic(),
        alter((T, [(SET, "cleanup.policy", "compact")])),
        produce(on(records=sized_batch(100))),
        alter((T, [(SET, "cleanup.policy", "delete")])),
        written(),
    ),
    *(
        altering(f"a logger: {name}", alter(((BROKER_LOGGER, broker), [change])))
        for name, broker, change in (
            ("the root", "1", (SET, "root", "INFO")),
            ("no such level", "1", (SET, "root", "LOUD")),
            ("deleted", "1", (DELETE, "root", None)),
            ("appended", "1", (APPEND, "root", "INFO")),
            ("of another broker", "2", (SET, "root", "INFO")),
            ("of no broker", "", (SET, "root", "INFO")),
        )
    ),
    altering(
        "a group",
        alter(((GROUP, "g"), [(SET, "consumer.session.timeout.ms", "50000")])),
        describe((GROUP, "g")),
        alter(((GROUP, "g"), [(DELETE, "consumer.session.timeout.ms", None)])),
    ),
    altering(
        "a group, badly",
        alter(((GROUP, "g"), [(SET, "consumer.session.timeout.ms", "1")])),
        alter(((GROUP, "g"), [(SET, "no.such", "1")])),
        alter(((GROUP, ""), [(SET, "consumer.session.timeout.ms", "50000")])),
    ),
    altering(
        "client metrics",
        alter(((CLIENT_METRICS, "m"), [(SET, "interval.ms", "5000")])),
        describe((CLIENT_METRICS, "m")),
        alter(((CLIENT_METRICS, "m"), [(DELETE, "interval.ms", None)])),
    ),
    altering(
        "client metrics, badly",
        alter(((CLIENT_METRICS, "m"), [(SET, "interval.ms", "1")])),
        alter(((CLIENT_METRICS, "m"), [(SET, "no.such", "1")])),
        alter(((CLIENT_METRICS, ""), [(SET, "interval.ms", "5000")])),
    ),
    *(
        altering(
            f"client metrics, {text}",
            *(alter(((CLIENT_METRICS, "n"), [change])) for change in changes),
            describe((CLIENT_METRICS, "n")),
            alter(((CLIENT_METRICS, "n"), [(DELETE, name, None) for name in ("interval.ms", "metrics", "match")])),
        )
        for text, changes in METRICS.items()
    ),
    *(
        altering(
            f"a group, {text}",
            *(alter(((GROUP, "h"), [change])) for change in changes),
            describe((GROUP, "h")),
            alter(((GROUP, "h"), [(DELETE, name, None) for name in GROUP_KEYS])),
        )
        for text, changes in GROUPS.items()
    ),
]


def replaced(name: str, *pairs: tuple[str, str | None], **options: Any) -> Case:
    made = topic(retention_ms=5000, cleanup_policy="compact")
    return replacing(name, made, replace_configs((T, pairs), **options), describe(T, synonyms=True))


REPLACE = [
    replaced("one", ("segment.bytes", "2000000")),
    replaced("several", ("segment.bytes", "2000000"), ("retention.ms", "1")),
    replaced("none"),
    replaced("null", ("retention.ms", None)),
    replaced("an unknown key", ("no.such", "1")),
    replaced("not a number", ("retention.ms", "soon")),
    replaced("out of range", ("min.insync.replicas", "0")),
    replaced("a key twice", ("retention.ms", "1"), ("retention.ms", "2")),
    replaced("validated only", ("retention.ms", "1"), validate_only=True),
    replaced("validated only, and bad", ("retention.ms", "soon"), validate_only=True),
    replacing("an unknown topic", replace_configs(((TOPIC, "nobody"), [("retention.ms", "1")]))),
    replacing("a bad name", replace_configs(((TOPIC, "=no/such"), [("retention.ms", "1")]))),
    replacing("nothing", replace_configs()),
    replacing(
        "a topic twice",
        topic(),
        replace_configs((T, [("retention.ms", "1")]), (T, [("segment.ms", "1")])),
        describe(T),
        versions="2",
    ),
    *(replacing(f"resource type {kind}", replace_configs(((kind, "x"), [("a", "b")]))) for kind in (0, 1, 3, 127)),
    *(replacing(f"broker {name!r}", replace_configs(((BROKER, name), [("num.io.threads", "2")]))) for name in ("2", "one")),
    replacing(
        "the broker",
        replace_configs((ONE, [("log.retention.ms", "97000000")])),
        describe(ONE, keys=["log.retention.ms"], synonyms=True),
        replace_configs((ONE, [])),
        describe(ONE, keys=["log.retention.ms"], synonyms=True),
    ),
    replacing(
        "all brokers",
        replace_configs((ALL, [("log.retention.ms", "97000000")])),
        describe(ALL),
        replace_configs((ALL, [])),
        describe(ALL),
    ),
    replacing("the broker, what needs a restart", replace_configs((ONE, [("broker.id", "5")]))),
    replacing("the broker, not a number", replace_configs((ONE, [("num.io.threads", "many")]))),
    replacing("loggers", replace_configs(((BROKER_LOGGER, "1"), [("root", "INFO")]))),
    *(
        replacing(
            f"{text}",
            replace_configs((of, [(key, value)])),
            describe(of),
            replace_configs((of, [(key, "bad")])),
            replace_configs((of, [])),
            describe(of),
        )
        for text, of, key, value in (
            ("client metrics", (CLIENT_METRICS, "o"), "interval.ms", "5000"),
            ("a group", (GROUP, "i"), "consumer.session.timeout.ms", "50000"),
        )
    ),
]

LIST = [
    listing("client metrics by default", list_resources()),
    listing(
        "client metrics that are there",
        alter(((CLIENT_METRICS, "m"), [(SET, "interval.ms", "5000")]), version=1),
        list_resources(),
        alter(((CLIENT_METRICS, "m"), [(DELETE, "interval.ms", None)]), version=1),
    ),
    *(
        listing(f"type {kind}", topic(retention_ms=1), list_resources(kind), versions="1")
        for kind in (0, 1, 2, 3, 4, 8, 16, 32, 127, -1)
    ),
    listing("a topic without configs", topic(), list_resources(TOPIC), versions="1"),
    listing("several types", topic(retention_ms=1), list_resources(TOPIC, BROKER, CLIENT_METRICS), versions="1"),
    listing("a type twice", topic(retention_ms=1), list_resources(TOPIC, TOPIC), versions="1"),
    listing("a type that is unknown beside one that is not", topic(retention_ms=1), list_resources(TOPIC, 99), versions="1"),
    listing(
        "brokers with configs",
        alter((ONE, [(SET, "log.retention.ms", "97000000")]), version=1),
        list_resources(BROKER),
        alter((ONE, [(DELETE, "log.retention.ms", None)]), version=1),
        versions="1",
    ),
]


@pytest.mark.parametrize("case", [*DESCRIBE, *ALTER, *REPLACE, *LIST], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
