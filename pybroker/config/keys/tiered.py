"""Tiered storage: copying closed segments away, reading them back, their metadata."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import BOOLEAN, CLUSTER_WIDE, DOUBLE, INT, LONG, READ_ONLY, STRING
from pybroker.config.types import LONG_MAX
from pybroker.config.validators import ANY, NON_EMPTY, at_least, between, one_of

NO_JARS = "a Python broker loads no jars"
TOPIC_BASED = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
METADATA_MANAGERS = one_of(TOPIC_BASED)

KEYS = (
    Key("remote.log.storage.system.enable",                   BOOLEAN, False,          ANY,               READ_ONLY,
        "Switches tiered storage on for this broker; topics then choose it with remote.storage.enable."),
    Key("remote.log.storage.manager.class.name",              STRING,  None,           NON_EMPTY,         READ_ONLY,
        "The store of remote segments."),
    Key("remote.log.storage.manager.class.path",              STRING,  None,           ANY,               READ_ONLY,
        "Where the store's Java classes lie.", ignored=NO_JARS),
    Key("remote.log.storage.manager.impl.prefix",             STRING,  "rsm.config.",  NON_EMPTY,         READ_ONLY,
        "Keys that begin with this go to the store."),
    Key("remote.log.metadata.manager.class.name",             STRING,  TOPIC_BASED,    METADATA_MANAGERS, READ_ONLY,
        "What remembers the remote segments; the default is the topic __remote_log_metadata."),
    Key("remote.log.metadata.manager.class.path",             STRING,  None,           ANY,               READ_ONLY,
        "Where its Java classes lie.", ignored=NO_JARS),
    Key("remote.log.metadata.manager.impl.prefix",            STRING,  "rlmm.config.", NON_EMPTY,         READ_ONLY,
        "Keys that begin with this go to the metadata manager."),
    Key("remote.log.metadata.manager.listener.name",          STRING,  None,           NON_EMPTY,         READ_ONLY,
        "The listener over which the metadata topic is reached."),
    Key("remote.log.metadata.custom.metadata.max.bytes",      INT,     128,            at_least(0),       READ_ONLY,
        "The most bytes a store may keep in a segment's metadata."),
    Key("remote.log.index.file.cache.total.size.bytes",       LONG,    1_073_741_824,  at_least(1),       CLUSTER_WIDE,
        "Disk space for indexes of remote segments."),
    Key("remote.log.index.file.cache.ttl.ms",                 LONG,    900_000,        at_least(-1),      READ_ONLY,
        "How long an unused cached index stays; -1 = for ever.", internal=True),
    Key("remote.log.manager.thread.pool.size",                INT,     2,              at_least(1),       READ_ONLY,
        "Workers for whatever has no pool of its own."),
    Key("remote.log.manager.copier.thread.pool.size",         INT,     10,             at_least(1),       CLUSTER_WIDE,
        "Workers that copy segments away."),
    Key("remote.log.manager.expiration.thread.pool.size",     INT,     10,             at_least(1),       CLUSTER_WIDE,
        "Workers that delete expired remote segments."),
    Key("remote.log.manager.follower.thread.pool.size",       INT,     2,              at_least(1),       CLUSTER_WIDE,
        "Workers that read the remote metadata of followed partitions."),
    Key("remote.log.manager.task.interval.ms",                LONG,    30_000,         at_least(1),       READ_ONLY,
        "How often segments to copy and to delete are looked for."),
    Key("remote.log.manager.task.retry.backoff.ms",           LONG,    500,            at_least(1),       READ_ONLY,
        "The first pause after a failed copy or delete.", internal=True),
    Key("remote.log.manager.task.retry.backoff.max.ms",       LONG,    30_000,         at_least(1),       READ_ONLY,
        "The longest pause after a failed copy or delete.", internal=True),
    Key("remote.log.manager.task.retry.jitter",               DOUBLE,  0.2,            between(0, 0.5),   READ_ONLY,
        "The random part of that pause.", internal=True),
    Key("remote.log.manager.copy.max.bytes.per.second",       LONG,    LONG_MAX,       at_least(1),       CLUSTER_WIDE,
        "The most bytes a second copied away."),
    Key("remote.log.manager.copy.quota.window.num",           INT,     11,             at_least(1),       READ_ONLY,
        "How many past windows count for that limit."),
    Key("remote.log.manager.copy.quota.window.size.seconds",  INT,     1,              at_least(1),       READ_ONLY,
        "The length of a window for that limit."),
    Key("remote.log.manager.fetch.max.bytes.per.second",      LONG,    LONG_MAX,       at_least(1),       CLUSTER_WIDE,
        "The most bytes a second read back."),
    Key("remote.log.manager.fetch.quota.window.num",          INT,     11,             at_least(1),       READ_ONLY,
        "How many past windows count for the limit of reads."),
    Key("remote.log.manager.fetch.quota.window.size.seconds", INT,     1,              at_least(1),       READ_ONLY,
        "The length of a window for the limit of reads."),
    Key("remote.log.reader.threads",                          INT,     10,             at_least(1),       CLUSTER_WIDE,
        "Workers that read remote segments for fetches."),
    Key("remote.log.reader.max.pending.tasks",                INT,     100,            at_least(1),       READ_ONLY,
        "How many remote reads may wait for a worker."),
    Key("remote.fetch.max.wait.ms",                           INT,     500,            at_least(1),       CLUSTER_WIDE,
        "The longest a fetch waits for remote data."),
    Key("remote.list.offsets.request.timeout.ms",             LONG,    30_000,         at_least(1),       CLUSTER_WIDE,
        "The longest a search by time waits for remote data."),
    Key("follower.fetch.last.tiered.offset.enable",           BOOLEAN, False,          ANY,               CLUSTER_WIDE,
        "A new follower starts after what is stored remotely, with nothing to copy before it."),
    Key("log.local.retention.ms",                             LONG,    -2,             at_least(-2),      CLUSTER_WIDE,
        "The age at which a record already stored remotely may leave the local disk; -2 = as log.retention.ms."),
    Key("log.local.retention.bytes",                          LONG,    -2,             at_least(-2),      CLUSTER_WIDE,
        "The local size above which segments stored remotely may go; -2 = as log.retention.bytes."),
)
