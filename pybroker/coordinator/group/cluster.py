"""What a group shard has to know of the cluster: topics, and the configs of groups. A port: the server fills it in.

A view is immutable; a decision looks at one. Any thread may make one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from pybroker.base.ids import Uuid


class Topic(NamedTuple):
    topic_id: Uuid
    name: str
    partitions: int


class ClusterView(Protocol):
    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""

    def topic(self, name: str) -> Topic | None: ...

    def topic_by_id(self, topic_id: Uuid) -> Topic | None: ...

    def topic_names(self) -> Collection[str]: ...

    def partition_racks(self, name: str) -> Sequence[Sequence[str]]:
        """For each partition of a topic, in order, the racks of its replicas, sorted."""

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """What the group sets for itself."""
