"""Share groups."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import CLUSTER_WIDE, INT, LIST, READ_ONLY, STRING
from pybroker.config.validators import ANY, NON_EMPTY_LIST, at_least, between

PERSISTER = "org.apache.kafka.server.share.persister.DefaultStatePersister"
HOUR_MS = 3_600_000
SHARE = "share groups are not served"

KEYS = (
    Key("group.share.assignors",                      LIST,   ("simple",), NON_EMPTY_LIST,           READ_ONLY,
        "The server-side assignor for share groups.", ignored=SHARE),
    Key("group.share.session.timeout.ms",             INT,    45_000,      at_least(1),              READ_ONLY,
        "A share group member unheard of for this long is removed.", ignored=SHARE),
    Key("group.share.min.session.timeout.ms",         INT,    45_000,      at_least(1),              READ_ONLY,
        "The least that a share group may set for its session timeout.", ignored=SHARE),
    Key("group.share.max.session.timeout.ms",         INT,    60_000,      at_least(1),              READ_ONLY,
        "The most that a share group may set for its session timeout.", ignored=SHARE),
    Key("group.share.heartbeat.interval.ms",          INT,    5000,        at_least(1),              READ_ONLY,
        "How often members of share groups are told to send heartbeats.", ignored=SHARE),
    Key("group.share.min.heartbeat.interval.ms",      INT,    5000,        at_least(1),              READ_ONLY,
        "The least that a share group may set for its heartbeat interval.", ignored=SHARE),
    Key("group.share.max.heartbeat.interval.ms",      INT,    15_000,      at_least(1),              READ_ONLY,
        "The most that a share group may set for its heartbeat interval.", ignored=SHARE),
    Key("group.share.assignment.interval.ms",         INT,    1000,        at_least(0),              CLUSTER_WIDE,
        "The least time between two assignments of a share group.", ignored=SHARE),
    Key("group.share.min.assignment.interval.ms",     INT,    0,           at_least(0),              READ_ONLY,
        "The least that a share group may set for its assignment interval.", ignored=SHARE),
    Key("group.share.max.assignment.interval.ms",     INT,    15_000,      at_least(0),              READ_ONLY,
        "The most that a share group may set for its assignment interval.", ignored=SHARE),
    Key("group.share.record.lock.duration.ms",        INT,    30_000,      between(1000, HOUR_MS),   READ_ONLY,
        "How long a consumer holds a record before another may get it.", ignored=SHARE),
    Key("group.share.min.record.lock.duration.ms",    INT,    15_000,      between(1000, 30_000),    READ_ONLY,
        "The least that a share group may set for its record locks.", ignored=SHARE),
    Key("group.share.max.record.lock.duration.ms",    INT,    60_000,      between(30_000, HOUR_MS), READ_ONLY,
        "The most that a share group may set for its record locks.", ignored=SHARE),
    Key("group.share.delivery.count.limit",           INT,    5,           between(2, 10),           READ_ONLY,
        "How often a record is delivered before it is given up.", ignored=SHARE),
    Key("group.share.min.delivery.count.limit",       INT,    2,           between(2, 5),            READ_ONLY,
        "The least that a share group may set for its delivery limit.", ignored=SHARE),
    Key("group.share.max.delivery.count.limit",       INT,    10,          between(5, 25),           READ_ONLY,
        "The most that a share group may set for its delivery limit.", ignored=SHARE),
    Key("group.share.partition.max.record.locks",     INT,    2000,        between(100, 10_000),     READ_ONLY,
        "How many records of a partition may be in flight.", ignored=SHARE),
    Key("group.share.min.partition.max.record.locks", INT,    100,         between(100, 2000),       READ_ONLY,
        "The least that a share group may set for its records in flight.", ignored=SHARE),
    Key("group.share.max.partition.max.record.locks", INT,    4000,        between(2000, 10_000),    READ_ONLY,
        "The most that a share group may set for its records in flight.", ignored=SHARE),
    Key("group.share.max.share.sessions",             INT,    2000,        at_least(1),              READ_ONLY,
        "How many share sessions a broker remembers.", ignored=SHARE),
    Key("group.share.max.size",                       INT,    200,         between(1, 1000),         READ_ONLY,
        "The most members of a share group.", ignored=SHARE),
    Key("group.share.initialize.retry.interval.ms",   INT,    30_000,      at_least(1),              READ_ONLY,
        "How long before setting up a share partition is tried again.", ignored=SHARE, internal=True),
    Key("group.share.persister.class.name",           STRING, PERSISTER,   ANY,                      READ_ONLY,
        "What keeps the state of share groups; the default is the share coordinator.", ignored=SHARE, internal=True),
)
