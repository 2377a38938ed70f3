"""What a node says of itself when it registers, as broker or as controller."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from pybroker.metadata.controller.features import SUPPORTED
from pybroker.protocol.messages.cluster import Feature


def own_name() -> str:
    """For a listener that names no host under which it is reached."""
    return os.uname().nodename


def supported_features(also: Mapping[str, int] = MappingProxyType({})) -> list[Feature]:
    """`also`: levels of features that this release does not know, and is to work at all the same."""
    ranges = {name: (one.min_version, one.max_version) for name, one in SUPPORTED.items()}
    for name, level in also.items():
        low, high = ranges.get(name, (0, level))
        ranges[name] = (min(low, level), max(high, level))
    return [Feature(name=name, min_supported_version=low, max_supported_version=high) for name, (low, high) in ranges.items()]
