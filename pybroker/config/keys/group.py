"""The configs of a group. Where a group sets none, the broker key named as fallback gives the default."""

from __future__ import annotations

from pybroker.config.key import Fallback, Key
from pybroker.config.keys.columns import BOOLEAN, INT, PER_RESOURCE, STRING
from pybroker.config.keys.groups import STREAMS
from pybroker.config.keys.share import SHARE
from pybroker.config.validators import ANY, OFFSET_RESET, at_least, one_of

ISOLATION = one_of("read_committed", "read_uncommitted")

KEYS = (
    Key("consumer.session.timeout.ms",        INT,     45_000,             at_least(1),    PER_RESOURCE,
        "A member of this consumer group unheard of for this long is removed.",
        fallbacks=(Fallback("group.consumer.session.timeout.ms"),)),
    Key("consumer.heartbeat.interval.ms",     INT,     5000,               at_least(1),    PER_RESOURCE,
        "How often members of this consumer group are told to send heartbeats.",
        fallbacks=(Fallback("group.consumer.heartbeat.interval.ms"),)),
    Key("consumer.assignment.interval.ms",    INT,     1000,               at_least(0),    PER_RESOURCE,
        "The least time between two assignments of this consumer group.",
        fallbacks=(Fallback("group.consumer.assignment.interval.ms"),)),
    Key("share.session.timeout.ms",           INT,     45_000,             at_least(1),    PER_RESOURCE,
        "A member of this share group unheard of for this long is removed.",
        ignored=SHARE, fallbacks=(Fallback("group.share.session.timeout.ms"),)),
    Key("share.heartbeat.interval.ms",        INT,     5000,               at_least(1),    PER_RESOURCE,
        "How often members of this share group are told to send heartbeats.",
        ignored=SHARE, fallbacks=(Fallback("group.share.heartbeat.interval.ms"),)),
    Key("share.assignment.interval.ms",       INT,     1000,               at_least(0),    PER_RESOURCE,
        "The least time between two assignments of this share group.",
        ignored=SHARE, fallbacks=(Fallback("group.share.assignment.interval.ms"),)),
    Key("share.record.lock.duration.ms",      INT,     30_000,             at_least(1000), PER_RESOURCE,
        "How long a consumer holds a record before another may get it.",
        ignored=SHARE, fallbacks=(Fallback("group.share.record.lock.duration.ms"),)),
    Key("share.delivery.count.limit",         INT,     5,                  at_least(2),    PER_RESOURCE,
        "How often a record is delivered before it is given up.",
        ignored=SHARE, fallbacks=(Fallback("group.share.delivery.count.limit"),)),
    Key("share.partition.max.record.locks",   INT,     2000,               at_least(100),  PER_RESOURCE,
        "How many records of a partition may be in flight.",
        ignored=SHARE, fallbacks=(Fallback("group.share.partition.max.record.locks"),)),
    Key("share.auto.offset.reset",            STRING,  "latest",           OFFSET_RESET,   PER_RESOURCE,
        "Where a share group begins on a partition it has not read before.", ignored=SHARE),
    Key("share.isolation.level",              STRING,  "read_uncommitted", ISOLATION,      PER_RESOURCE,
        "Whether a share group sees records of open and aborted transactions.", ignored=SHARE),
    Key("share.renew.acknowledge.enable",     BOOLEAN, True,               ANY,            PER_RESOURCE,
        "Whether a consumer may prolong its hold on a record.", ignored=SHARE),
    Key("streams.session.timeout.ms",         INT,     45_000,             at_least(1),    PER_RESOURCE,
        "A member of this streams group unheard of for this long is removed.",
        ignored=STREAMS, fallbacks=(Fallback("group.streams.session.timeout.ms"),)),
    Key("streams.heartbeat.interval.ms",      INT,     5000,               at_least(1),    PER_RESOURCE,
        "How often members of this streams group are told to send heartbeats.",
        ignored=STREAMS, fallbacks=(Fallback("group.streams.heartbeat.interval.ms"),)),
    Key("streams.assignment.interval.ms",     INT,     1000,               at_least(0),    PER_RESOURCE,
        "The least time between two assignments of this streams group.",
        ignored=STREAMS, fallbacks=(Fallback("group.streams.assignment.interval.ms"),)),
    Key("streams.initial.rebalance.delay.ms", INT,     3000,               at_least(0),    PER_RESOURCE,
        "How long this streams group, when new, waits for more members.",
        ignored=STREAMS, fallbacks=(Fallback("group.streams.initial.rebalance.delay.ms"),)),
    Key("streams.num.standby.replicas",       INT,     0,                  at_least(0),    PER_RESOURCE,
        "Standby copies of each stateful task.",
        ignored=STREAMS, fallbacks=(Fallback("group.streams.num.standby.replicas"),)),
)
