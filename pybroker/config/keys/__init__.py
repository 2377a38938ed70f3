"""The tables: one row per config key, one module per theme. Immutable once imported.

A row's columns are name, type, default, what is allowed, how it is updated; below them what it does. `ignored` says why
pybroker does not honour a key that it knows, `fallbacks` whose value counts when the key is not given.
"""

from __future__ import annotations

from types import MappingProxyType

from pybroker.config.keys import (
    access,
    client_metrics,
    group,
    groups,
    log,
    metrics,
    network,
    quorum,
    quotas,
    replication,
    sasl,
    share,
    share_state,
    ssl,
    tiered,
    topic,
    transactions,
)

BROKER_THEMES = {
    "Roles and quorum": quorum.KEYS,
    "Network": network.KEYS,
    "Log": log.KEYS,
    "Replication": replication.KEYS,
    "Groups": groups.KEYS,
    "Share groups": share.KEYS,
    "Share coordinator": share_state.KEYS,
    "Transactions": transactions.KEYS,
    "TLS": ssl.KEYS,
    "SASL": sasl.KEYS,
    "Access": access.KEYS,
    "Quotas": quotas.KEYS,
    "Metrics": metrics.KEYS,
    "Tiered storage": tiered.KEYS,
}

BROKER = MappingProxyType({key.name: key for keys in BROKER_THEMES.values() for key in keys})
WHILE_RUNNING = MappingProxyType({key.name: key for key in quotas.WHILE_RUNNING})
TOPIC = MappingProxyType({key.name: key for key in topic.KEYS})
GROUP = MappingProxyType({key.name: key for key in group.KEYS})
CLIENT_METRICS = MappingProxyType({key.name: key for key in client_metrics.KEYS})

# Keys that can be set with a listener's prefix; of these, the connection keys for the whole cluster at once as well,
# and the stores, while the broker runs, with the prefix only.
CONNECTIONS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
PER_LISTENER = frozenset(key.name for key in (*ssl.KEYS, *sasl.KEYS)) | CONNECTIONS | {"principal.builder.class"}
STORES = frozenset(key.name for key in ssl.KEYS if key.name.startswith(("ssl.keystore.", "ssl.truststore.", "ssl.key.")))
