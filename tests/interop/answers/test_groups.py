"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5: the same answer as Apache Kafka's.

Every version has groups of its own ("g%"): what a case needs of them is made behind its first request of the API in question.
"""

from __future__ import annotations

import pytest
from interop.answers.case import Case, Pair, family
from interop.answers.group_steps import describe, heartbeat, join, joined, leave, stable, sync
from interop.answers.steps import pause, while_waiting

joining, syncing, beating, leaving = family(11), family(14), family(12), family(13)


NOBODY_JOINS = join("=nobody", "never", version=9)

JOIN = [
    joining("a new group", join(), join(), join()),
    joining("an empty group id", join(group="=")),
    joining("a short session", join(session_ms=299)),
    joining("the shortest session", join(session_ms=300)),
    joining("a long session", join(session_ms=1_800_001)),
    joining("a negative session", join(session_ms=-1)),
    joining("an unknown member of no group", join("=somebody", "never")),
    joining("an unknown member of a group", join("m"), joined("m"), join("=somebody")),
    joining("no protocols", join(protocols=())),
    joining("no protocol type", join(protocol_type="")),
    joining("no protocols, then some", join(protocols=()), join(), join()),
    joining("an empty subscription", join(metadata=b""), join(metadata=b"")),
    joining("not a subscription", join(metadata=b"\x7f\xff\xff"), join(metadata=b"\x7f\xff\xff")),
    joining("Connect", join(protocol_type="connect", protocols=("default", "sessioned")), join(protocol_type="connect")),
    joining("several protocols", join(protocols=("range", "roundrobin")), join(protocols=("roundrobin", "range"))),
    joining("another protocol type", join(), *stable(), join("n", protocol_type="connect")),
    joining("another protocol", join(), *stable(), join("n", protocols=("roundrobin",))),
    joining("another protocol as a member", join(), *stable(), join(protocols=("roundrobin",)), join(protocols=("range",))),
    joining("the leader of a stable group again", join(), *stable(), join(), join()),
    joining("before the assignment again", join(), joined(), join(), join()),
    joining("a reason", join(reason="because"), join(reason="because"), versions="8+"),
    joining("a static member", join(instance="i"), join(instance="i"), join("n", instance="i"), versions="5+"),
    joining("an empty instance id", join(instance=""), versions="5+"),
    joining(
        "a static member of a stable group comes back",
        join(),
        leave("m", version=5),
        *stable("s", instance="i"),
        join("new", instance="i"),
        describe("g%", version=6),
        join("s", instance="i"),
        versions="5+",
    ),
    joining(
        "a static member with other topics",
        join(),
        leave("m", version=5),
        *stable("s", instance="i"),
        join("new", instance="i", topics=("t", "u")),
        describe("g%", version=6),
        versions="5+",
    ),
    joining(
        "a static member with other protocols",
        join(),
        leave("m", version=5),
        *stable("s", instance="i"),
        join("new", instance="i", protocols=("roundrobin",)),
        describe("g%", version=6),
        versions="5+",
    ),
    joining(
        "a static member with more protocols",
        join(),
        leave("m", version=5),
        *stable("s", instance="i"),
        join("new", instance="i", protocols=("range", "roundrobin")),
        describe("g%", version=6),
        versions="5+",
    ),
    joining("an instance id that nobody has", join(), joined(), join("m", instance="other"), versions="5+"),
    joining(
        "a second member",
        join("m"),
        *stable("m"),
        join("n"),
        while_waiting(join("n"), heartbeat("m", version=4), join("m", version=9)),
        heartbeat("m", generation=2, version=4),
        describe("g%", version=6),
        versions="4+",
    ),
    joining(
        "a second member with other protocols",
        join("m", protocols=("range", "sticky")),
        *stable("m", protocols=("range", "sticky")),
        join("n", protocols=("sticky", "range")),
        while_waiting(
            join("n", protocols=("sticky", "range")),
            heartbeat("m", version=4),
            join("m", protocols=("range", "sticky"), version=9),
        ),
        versions="4+",
    ),
    joining(
        "an old member id is not needed",
        join(),
        leave("m", version=5),
        *stable("n"),
        while_waiting(join("o"), heartbeat("n", version=4), join("n", version=9)),
        versions="0-3",
    ),
    joining(
        "a member that leaves while another waits",
        join("m"),
        *stable("m"),
        join("n"),
        while_waiting(join("n"), heartbeat("m", version=4), leave("m", version=5)),
        describe("g%", version=6),
        versions="4+",
    ),
    joining(
        "a member that dies while another waits",
        join("m"),
        *stable("m", session_ms=600),
        join("n"),
        while_waiting(join("n"), pause(1)),
        describe("g%", version=6),
        versions="4+",
    ),
    joining(
        "a group that is full",
        join("m"),
        *stable("m"),
        joined("s1", "=full", instance="a"),
        join("n"),
        join("o"),
        join("p"),
        describe("g%", version=6),
        versions="5+",
    ),
    joining("a member id that is not used in time", join(session_ms=600), pause(1.6), join(session_ms=600), versions="4+"),
    joining(
        "a session that is over", join(), *stable(session_ms=600), pause(1.6), join(), describe("g%", version=6), versions="4+"
    ),
    joining(
        "the rebalance timeout",
        join("m"),
        *stable("m", rebalance_ms=500),
        join("n"),
        while_waiting(join("n"), heartbeat("m", version=4)),
        heartbeat("m", generation=1, version=4),
        heartbeat("n", generation=2, version=4),
        describe("g%", version=6),
        versions="4+",
    ),
]

SYNC = [
    syncing("no group", sync("=m", "never")),
    syncing("an empty group id", sync("=m", "=")),
    syncing("the leader", sync("=x"), joined(), sync(assignments={"m": b"mine"}), sync(), describe("g%", version=6)),
    syncing("without assignments", sync("=x"), joined(), sync(), describe("g%", version=6)),
    syncing(
        "an assignment for a stranger", sync("=x"), joined(), sync(assignments={"=x": b"yours"}), describe("g%", version=6)
    ),
    syncing("another generation", sync("=x"), joined(), sync(generation=0), sync(generation=2), sync(generation=-1)),
    syncing("an unknown member", sync("=x"), joined(), sync("=x")),
    syncing("another protocol type", sync("=x"), joined(), sync(protocol_type="connect"), versions="5+"),
    syncing("another protocol", sync("=x"), joined(), sync(protocol="sticky"), versions="5+"),
    syncing("no protocol", sync("=x"), joined(), sync(protocol=None), sync(protocol_type=None), versions="5+"),
    syncing("an empty group", sync("=x"), joined(), leave("m", version=5), sync()),
    syncing(
        "an instance id",
        sync("=x"),
        joined(instance="i"),
        sync(instance="i", assignments={"m": b"mine"}),
        sync(instance="other"),
        sync("=x", instance="i"),
        versions="3+",
    ),
    syncing(
        "a member that is fenced",
        sync("=x"),
        *stable("m", instance="i"),
        joined("n", instance="i"),
        sync("m", instance="i"),
        sync("n", instance="i"),
        versions="3+",
    ),
    syncing("a large assignment", sync("=x"), joined(), sync(assignments={"m": b"x" * 2_000_000}), describe("g%", version=6)),
    syncing(
        "a member's before the leader's",
        sync("=x"),
        *stable("m"),
        join("n", version=9),
        while_waiting(join("n", version=9), join("m", version=9)),
        while_waiting(sync("n", generation=2), sync("m", generation=2, assignments={"m": b"1", "n": b"2"}, version=5)),
        describe("g%", version=6),
    ),
    syncing(
        "nobody syncs", sync("=x"), joined(rebalance_ms=600, session_ms=10_000), pause(1.6), sync(), describe("g%", version=6)
    ),
]

BEAT = [
    beating("no group", heartbeat("=m", "never")),
    beating("an empty group id", heartbeat("=m", "=")),
    beating("a stable group", heartbeat("=x"), *stable(), heartbeat(), heartbeat(generation=0), heartbeat(generation=2)),
    beating("before the assignment", heartbeat("=x"), joined(), heartbeat()),
    beating("an unknown member", heartbeat("=x"), *stable(), heartbeat("=x"), heartbeat("=")),
    beating("an empty group", heartbeat("=x"), *stable(), leave("m", version=5), heartbeat(), heartbeat(generation=2)),
    beating(
        "a rebalance",
        heartbeat("=x"),
        *stable(),
        join("n", version=9),
        while_waiting(join("n", version=9), heartbeat(), leave("m", version=5)),
    ),
    beating(
        "an instance id",
        heartbeat("=x"),
        *stable(instance="i"),
        heartbeat(instance="i"),
        heartbeat(instance="j"),
        heartbeat("=x", instance="i"),
        versions="3+",
    ),
    beating("keeps the session", heartbeat("=x"), *stable(session_ms=2000), pause(1.1), heartbeat(), pause(1.1), heartbeat()),
    beating("a session that is over", heartbeat("=x"), *stable(session_ms=600), pause(1.6), heartbeat()),
]

LEAVE = [
    leaving("no group", leave("=m", group="never")),
    leaving("an empty group id", leave("=m", group="=")),
    leaving("a stable group", leave("=x"), *stable(), leave("m"), leave("m"), describe("g%", version=6)),
    leaving("before the assignment", leave("=x"), joined(), leave("m"), describe("g%", version=6)),
    leaving("an unknown member", leave("=x"), *stable(), leave("=x"), leave("="), describe("g%", version=6)),
    leaving("a member id that was only given", leave("=x"), join(version=9), leave("m"), join(version=9)),
    leaving("several", leave("=x"), *stable(), leave("=a", "m", "=b", ("=", "i"), ("=", "i")), versions="3+"),
    leaving("nobody", leave("=x"), *stable(), leave(), versions="3+"),
    leaving(
        "by instance id",
        leave("=x"),
        *stable(instance="i"),
        leave(("=", "j")),
        leave(("=", "i")),
        leave(("=", "i")),
        describe("g%", version=6),
        versions="3+",
    ),
    leaving(
        "by both",
        leave("=x"),
        *stable(instance="i"),
        leave(("=x", "i")),
        leave(("m", "j")),
        leave(("m", "i")),
        describe("g%", version=6),
        versions="3+",
    ),
    leaving("a static member by its id", leave("=x"), *stable(instance="i"), leave("m"), describe("g%", version=6)),
]


@pytest.mark.parametrize("case", [*JOIN, *SYNC, *BEAT, *LEAVE], ids=lambda case: f"{case.family}: {case.name}")
def test_the_same_answer(pair: Pair, case: Case) -> None:
    pair.compare(case)
