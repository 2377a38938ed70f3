"""What the dynamic configs in an image make of this node's file.

Reading a configuration costs milliseconds, so the last one is kept: it is good for as long as the image has the same maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pybroker.config.broker import Config
from pybroker.config.resources import Levels, levels_of
from pybroker.metadata.image import EMPTY, MetadataImage, ResourceType


class Effective(NamedTuple):
    config: Config
    levels: Levels


class EffectiveConfigs:
    def __init__(self, static: Config) -> None:
        self._static = static
        self._broker_name = str(static["node.id"])
        self._seen: tuple[Mapping[str, str], Mapping[str, str]] = (EMPTY, EMPTY)
        self._last = self._read(EMPTY, EMPTY)

    def of(self, image: MetadataImage) -> Effective:
        cluster = image.config_of(ResourceType.BROKER, "")
        broker = image.config_of(ResourceType.BROKER, self._broker_name)
        if cluster is not self._seen[0] or broker is not self._seen[1]:
            self._seen, self._last = (cluster, broker), self._read(cluster, broker)
        return self._last

    def _read(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Effective:
        """Where the dynamic configs are such that this release cannot take them, the file alone counts."""
        config = self._static.with_changes(cluster, broker).config if cluster or broker else self._static
        return Effective(config or self._static, levels_of(self._static, cluster, broker))
