from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from unit.metadata.clusters import uuid

from pybroker.metadata.image import (
    EMPTY_IMAGE,
    ConfigResource,
    MetadataImage,
    PartitionState,
    ResourceType,
    TopicImage,
)


def test_an_empty_cluster() -> None:
    assert (EMPTY_IMAGE.offset, EMPTY_IMAGE.topics, EMPTY_IMAGE.brokers, EMPTY_IMAGE.next_producer_id) == (-1, {}, {}, 0)
    assert EMPTY_IMAGE.config_of(ResourceType.TOPIC, "t") == {}
    with pytest.raises(TypeError):
        EMPTY_IMAGE.topics["t"] = TopicImage("t", uuid("id"))  # type: ignore[index]


def test_configs_are_found_by_the_numbers_of_the_protocol() -> None:
    image = MetadataImage(configs={ConfigResource(2, "t"): {"a": "1"}, ConfigResource(4, ""): {"b": "2"}})
    assert image.config_of(ResourceType.TOPIC, "t") == {"a": "1"}
    assert image.config_of(4, "") == {"b": "2"}
    assert image.config_of(4, "1") == {}


def test_a_replica_and_its_directory() -> None:
    state = PartitionState((3, 1), (1,), leader=1, directories=(uuid("of 3"), uuid("of 1")))
    assert state.directory_of(1) == uuid("of 1")
    with pytest.raises(ValueError, match="not in tuple"):
        state.directory_of(2)


def test_nothing_in_an_image_can_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        EMPTY_IMAGE.offset = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        PartitionState((1,), (1,)).leader = 2  # type: ignore[misc]
