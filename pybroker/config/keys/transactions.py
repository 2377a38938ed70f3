"""The transaction coordinator and its log."""

from __future__ import annotations

from pybroker.config.key import Key
from pybroker.config.keys.columns import BOOLEAN, CLUSTER_WIDE, INT, READ_ONLY, SHORT
from pybroker.config.validators import ANY, at_least

KEYS = (
    Key("transactional.id.expiration.ms",                              INT,     604_800_000, at_least(1), READ_ONLY,
        "How long a transactional id without transactions is remembered."),
    Key("transaction.max.timeout.ms",                                  INT,     900_000,     at_least(1), READ_ONLY,
        "The longest transaction timeout a producer may ask for."),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT,     10_000,      at_least(1), READ_ONLY,
        "How often transactions that ran out of time are looked for."),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms",  INT,     3_600_000,   at_least(1), READ_ONLY,
        "How often transactional ids to forget are looked for."),
    Key("transaction.partition.verification.enable",                   BOOLEAN, True,        ANY,         CLUSTER_WIDE,
        "Asks the coordinator, before a transactional write, that the transaction is open there."),
    Key("transaction.two.phase.commit.enable",                         BOOLEAN, False,       ANY,         READ_ONLY,
        "Lets a producer prepare a transaction and commit it whenever an outside coordinator says."),
    Key("transaction.state.log.num.partitions",                        INT,     50,          at_least(1), READ_ONLY,
        "Partitions of the transaction log; not to be changed later."),
    Key("transaction.state.log.replication.factor",                    SHORT,   3,           at_least(1), READ_ONLY,
        "Replicas of the transaction log."),
    Key("transaction.state.log.min.isr",                               INT,     2,           at_least(1), READ_ONLY,
        "min.insync.replicas of the transaction log."),
    Key("transaction.state.log.segment.bytes",                         INT,     104_857_600, at_least(1), READ_ONLY,
        "Segment size of the transaction log."),
    Key("transaction.state.log.load.buffer.size",                      INT,     5_242_880,   at_least(1), READ_ONLY,
        "Bytes read at a time when a transaction shard is loaded."),
    Key("add.partitions.to.txn.retry.backoff.ms",                      INT,     20,          at_least(1), READ_ONLY,
        "The first pause before adding a partition to a transaction is tried again on the server."),
    Key("add.partitions.to.txn.retry.backoff.max.ms",                  INT,     100,         at_least(0), READ_ONLY,
        "How long the server tries again before the client has to."),
)
