"""Everything that a decision about brokers and partitions looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pybroker.metadata.controller.decisions import Setting
from pybroker.metadata.controller.heartbeats import Heartbeats
from pybroker.metadata.controller.partition_index import PartitionIndex
from pybroker.metadata.image import MetadataImage


@dataclass(slots=True, frozen=True)
class View:
    now_ms: int
    image: MetadataImage
    next_offset: int
    setting: Setting
    index: PartitionIndex
    heartbeats: Heartbeats
    # The offsets of the brokers' registrations, or ones not before them.
    registered_at: Mapping[int, int]
