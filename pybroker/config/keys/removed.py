"""Keys that Apache Kafka had and version 4 has no more, which old files still hold: known, warned about, without effect."""

from __future__ import annotations

ZOOKEEPER = "there is no ZooKeeper; controllers keep the metadata"
FORMAT    = "there is one message format, version 2"
LISTENERS = "listeners and advertised.listeners took its place"
QUOTAS    = "quotas are set in the running cluster, for users and clients"
FEATURES  = "versions are features of the cluster, set when it is formatted and upgraded"

REMOVED = {
    "advertised.host.name":                       LISTENERS,
    "advertised.port":                            LISTENERS,
    "broker.id.generation.enable":                "ids are given with node.id",
    "control.plane.listener.name":                "controllers have listeners of their own, controller.listener.names",
    "controlled.shutdown.max.retries":            "a stopping broker asks until the controller lets it go",
    "controlled.shutdown.retry.backoff.ms":       "a stopping broker asks until the controller lets it go",
    "eligible.leader.replicas.enable":            FEATURES,
    "group.coordinator.new.enable":               "there is one group coordinator",
    "group.share.enable":                         FEATURES,
    "host.name":                                  LISTENERS,
    "inter.broker.protocol.version":              FEATURES,
    "leader.imbalance.per.broker.percentage":     "any imbalance is put right",
    "log.message.downconversion.enable":          FORMAT,
    "log.message.format.version":                 FORMAT,
    "log.message.timestamp.difference.max.ms":    "log.message.timestamp.before.max.ms and .after.max.ms took its place",
    "password.encoder.cipher.algorithm":          ZOOKEEPER,
    "password.encoder.iterations":                ZOOKEEPER,
    "password.encoder.key.length":                ZOOKEEPER,
    "password.encoder.keyfactory.algorithm":      ZOOKEEPER,
    "password.encoder.old.secret":                ZOOKEEPER,
    "password.encoder.secret":                    ZOOKEEPER,
    "port":                                       LISTENERS,
    "quota.consumer.default":                     QUOTAS,
    "quota.producer.default":                     QUOTAS,
    "reserved.broker.max.id":                     "ids are given with node.id",
    "zookeeper.clientCnxnSocket":                 ZOOKEEPER,
    "zookeeper.connect":                          ZOOKEEPER,
    "zookeeper.connection.timeout.ms":            ZOOKEEPER,
    "zookeeper.max.in.flight.requests":           ZOOKEEPER,
    "zookeeper.metadata.migration.enable":        ZOOKEEPER,
    "zookeeper.metadata.migration.min.batch.size":ZOOKEEPER,
    "zookeeper.session.timeout.ms":               ZOOKEEPER,
    "zookeeper.set.acl":                          ZOOKEEPER,
    "zookeeper.ssl.client.enable":                ZOOKEEPER,
}


def removed(name: str) -> str | None:
    """Why the key is no more, if it ever was one of Apache Kafka's."""
    return REMOVED.get(name) or (ZOOKEEPER if name.startswith("zookeeper.") else None)
