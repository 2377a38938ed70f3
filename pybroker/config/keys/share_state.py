"""The share coordinator, which keeps the state of share groups in a topic of its own."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import CLUSTER_WIDE, INT, READ_ONLY, SHORT
from pybroker.config.keys.share import SHARE
from pybroker.config.validators import CODEC, at_least, between

KEYS = (
    Key("share.coordinator.threads",                              INT,   1,           at_least(1),       READ_ONLY,
        "Threads that run the share coordinator.", ignored=SHARE),
    Key("share.coordinator.append.linger.ms",                     INT,   -1,          at_least(-1),      READ_ONLY,
        "How long share state is gathered before it is written; -1 adapts to the load.", ignored=SHARE),
    Key("share.coordinator.cached.buffer.max.bytes",              INT,   1_048_588,   at_least(524_288), CLUSTER_WIDE,
        "The largest write buffer that a share shard keeps for its next write.", ignored=SHARE),
    Key("share.coordinator.write.timeout.ms",                     INT,   5000,        at_least(1),       READ_ONLY,
        "How long a write of share state waits for its replicas.", ignored=SHARE),
    Key("share.coordinator.load.buffer.size",                     INT,   5_242_880,   at_least(1),       READ_ONLY,
        "Bytes read at a time when a share shard is loaded.", ignored=SHARE),
    Key("share.coordinator.snapshot.update.records.per.snapshot", INT,   500,         between(0, 500),   READ_ONLY,
        "Updates of a share partition between two snapshots of it.", ignored=SHARE),
    Key("share.coordinator.cold.partition.snapshot.interval.ms",  INT,   300_000,     at_least(1),       READ_ONLY,
        "How often quiet share partitions get a fresh snapshot.", ignored=SHARE, internal=True),
    Key("share.coordinator.state.topic.num.partitions",           INT,   50,          at_least(1),       READ_ONLY,
        "Partitions of the topic of share state; not to be changed later."),
    Key("share.coordinator.state.topic.replication.factor",       SHORT, 3,           at_least(1),       READ_ONLY,
        "Replicas of the topic of share state."),
    Key("share.coordinator.state.topic.min.isr",                  SHORT, 2,           at_least(1),       READ_ONLY,
        "min.insync.replicas of the topic of share state."),
    Key("share.coordinator.state.topic.segment.bytes",            INT,   104_857_600, at_least(1),       READ_ONLY,
        "Segment size of the topic of share state."),
    Key("share.coordinator.state.topic.compression.codec",        INT,   0,           CODEC,             READ_ONLY,
        "The codec of the topic of share state, by its number.", ignored=SHARE),
    Key("share.coordinator.state.topic.prune.interval.ms",        INT,   300_000,     at_least(1),       READ_ONLY,
        "How often share state that nothing needs any more is cut off.", ignored=SHARE, internal=True),
)
