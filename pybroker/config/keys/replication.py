"""Replicas: fetching from leaders, the in-sync set, elections."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import BOOLEAN, CLUSTER_WIDE, INT, LONG, READ_ONLY, STRING
from pybroker.config.validators import ANY, at_least, one_of

REPLICA = "org.apache.kafka.common.replica"
SELECTORS = one_of(f"{REPLICA}.LeaderSelector", f"{REPLICA}.RackAwareReplicaSelector")

KEYS = (
    Key("min.insync.replicas",                           INT,     1,          at_least(1), CLUSTER_WIDE,
        "How many replicas must be in sync for a write with acks=all to be taken."),
    Key("num.replica.fetchers",                          INT,     1,          at_least(1), CLUSTER_WIDE,
        "Fetchers per leader broker."),
    Key("num.replica.alter.log.dirs.threads",            INT,     None,       ANY,         READ_ONLY,
        "Workers that move replicas between folders; unset, one per folder."),
    Key("replica.lag.time.max.ms",                       LONG,    30_000,     ANY,         READ_ONLY,
        "A follower that has not caught up for this long leaves the in-sync set."),
    Key("replica.fetch.max.bytes",                       INT,     1_048_576,  at_least(0), READ_ONLY,
        "The bytes a follower asks for per partition; a single larger batch still comes."),
    Key("replica.fetch.min.bytes",                       INT,     1,          ANY,         READ_ONLY,
        "A leader with fewer new bytes than this lets the follower wait."),
    Key("replica.fetch.wait.max.ms",                     INT,     500,        ANY,         READ_ONLY,
        "The longest a leader lets a follower wait for new bytes."),
    Key("replica.fetch.backoff.ms",                      INT,     1000,       at_least(0), READ_ONLY,
        "The pause of a follower after a failed fetch."),
    Key("replica.fetch.response.max.bytes",              INT,     10_485_760, at_least(0), READ_ONLY,
        "The bytes a follower asks for in one fetch response."),
    Key("replica.socket.timeout.ms",                     INT,     30_000,     ANY,         READ_ONLY,
        "How long a follower waits for its leader's answer."),
    Key("replica.socket.receive.buffer.bytes",           INT,     65_536,     ANY,         READ_ONLY,
        "The receive buffer of a follower's sockets.", ignored="it is left to the system"),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG,    5000,       ANY,         READ_ONLY,
        "How often the high watermarks are written down."),
    Key("replica.selector.class",                        STRING,  None,       SELECTORS,   READ_ONLY,
        "Which replica a consumer reads from: unset, the leader; with RackAwareReplicaSelector, one in its rack."),
    Key("auto.leader.rebalance.enable",                  BOOLEAN, True,       ANY,         READ_ONLY,
        "Moves leadership back to preferred replicas."),
    Key("leader.imbalance.check.interval.seconds",       LONG,    300,        at_least(1), READ_ONLY,
        "How often leaders are compared with preferred replicas."),
    Key("unclean.leader.election.enable",                BOOLEAN, False,      ANY,         CLUSTER_WIDE,
        "Lets a replica that is not in sync lead when no other lives, at the price of records."),
    Key("unclean.leader.election.interval.ms",           LONG,    300_000,    at_least(1), READ_ONLY,
        "How often leaderless partitions are looked for that may be led uncleanly.", internal=True),
    Key("pybroker.broker.death.grace.ms",                INT,     300,        at_least(0), READ_ONLY,
        "A broker whose connections all broke is fenced after this long, before its session ends; 0 = off."),
    Key("pybroker.metadata.departed.broker.linger.ms",   INT,     9_000,      at_least(0), READ_ONLY,
        "Metadata names a coordinator this long after it was fenced: clients that wait for it look elsewhere; 0 = off."),
)
