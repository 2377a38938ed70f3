"""The windows over which quotas are measured, and the throttles of replication."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import CLASS, CLUSTER_WIDE, INT, LONG, READ_ONLY
from pybroker.config.types import LONG_MAX
from pybroker.config.validators import ANY, at_least

JAVA_CLASS = "names a Java class"

KEYS = (
    Key("quota.window.num",                                     INT,   11,   at_least(1), READ_ONLY,
        "How many past windows count for client quotas."),
    Key("quota.window.size.seconds",                            INT,   1,    at_least(1), READ_ONLY,
        "The length of a window for client quotas."),
    Key("controller.quota.window.num",                          INT,   11,   at_least(1), READ_ONLY,
        "How many past windows count for quotas on topic changes."),
    Key("controller.quota.window.size.seconds",                 INT,   1,    at_least(1), READ_ONLY,
        "The length of a window for quotas on topic changes."),
    Key("replication.quota.window.num",                         INT,   11,   at_least(1), READ_ONLY,
        "How many past windows count for replication throttles."),
    Key("replication.quota.window.size.seconds",                INT,   1,    at_least(1), READ_ONLY,
        "The length of a window for replication throttles."),
    Key("alter.log.dirs.replication.quota.window.num",          INT,   11,   at_least(1), READ_ONLY,
        "How many past windows count for moves between folders."),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT,   1,    at_least(1), READ_ONLY,
        "The length of a window for moves between folders."),
    Key("client.quota.callback.class",                          CLASS, None, ANY,         READ_ONLY,
        "A plugin that decides quotas.", ignored=JAVA_CLASS),
)

# Set while a broker runs, by kafka-configs and kafka-reassign-partitions; in a file they have no effect.
WHILE_RUNNING = (
    Key("leader.replication.throttled.rate",                    LONG,  LONG_MAX, at_least(0), CLUSTER_WIDE,
        "How many bytes a second a leader sends to throttled replicas."),
    Key("follower.replication.throttled.rate",                  LONG,  LONG_MAX, at_least(0), CLUSTER_WIDE,
        "How many bytes a second a follower takes for throttled replicas."),
    Key("replica.alter.log.dirs.io.max.bytes.per.second",       LONG,  LONG_MAX, at_least(0), CLUSTER_WIDE,
        "How many bytes a second are moved between the folders of a broker."),
)
