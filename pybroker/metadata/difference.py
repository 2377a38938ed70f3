"""What lies between two images that no run of records connects: when a snapshot takes the place of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage

K = TypeVar("K")
V = TypeVar("V")


def difference(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """A delta that says to publishers what is different in `new`; it goes on from there."""
    delta = MetadataDelta(new)
    for topic_id, topic in new.topics_by_id.items():
        before = old.topics_by_id.get(topic_id)
        if before is None:
            delta.changed_topics[topic_id] = set(topic.partitions)
        elif before is not topic:
            changed = _changed(before.partitions, topic.partitions)
            if changed:
                delta.changed_topics[topic_id] = changed
    for topic_id, topic in old.topics_by_id.items():
        if topic_id not in new.topics_by_id:
            delta.deleted_topics[topic_id] = topic
    delta.changed_configs |= _changed(old.configs, new.configs)
    delta.changed_brokers |= _changed(old.brokers, new.brokers)
    delta.changed_features |= _changed(old.features, new.features)
    delta.acls.changed |= _changed(old.acls, new.acls)
    delta.scram_credentials.changed |= _changed(old.scram_credentials, new.scram_credentials)
    delta.client_quotas.changed |= _changed(old.client_quotas, new.client_quotas)
    delta.delegation_tokens.changed |= _changed(old.delegation_tokens, new.delegation_tokens)
    return delta


def _changed(old: Mapping[K, V], new: Mapping[K, V]) -> set[K]:
    """The keys that came, went, or mean something else."""
    if old is new:
        return set()
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
