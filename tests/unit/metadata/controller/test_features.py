from __future__ import annotations

import pytest
from unit.metadata.clusters import TestCluster

from pybroker.metadata.controller.features import (
    METADATA_VERSION,
    RELEASES,
    level_of_release,
    metadata_version,
    name_of_level,
    record_version,
    unsupported,
)
from pybroker.metadata.image import EMPTY_IMAGE
from pybroker.protocol.internal.metadata_log import PartitionRecord, RegisterBrokerRecord, TopicRecord
from pybroker.protocol.message import Message


def test_names_of_releases() -> None:
    assert (RELEASES["3.3-IV3"], RELEASES["4.3-IV0"]) == (7, 30)
    assert level_of_release("4.0") == level_of_release("4.0-IV3") == 25
    assert level_of_release("4.0-IV1") == 23
    assert level_of_release("9.9") is None
    assert name_of_level(30) == "4.3-IV0"
    assert name_of_level(99) == "level 99"


@pytest.mark.parametrize(
    ("kind", "level", "version"),
    [
        (RegisterBrokerRecord, 30, 4),
        (RegisterBrokerRecord, 29, 3),
        (RegisterBrokerRecord, 16, 2),
        (RegisterBrokerRecord, 7, 1),
        (PartitionRecord, 23, 2),
        (PartitionRecord, 17, 1),
        (PartitionRecord, 16, 0),
        (TopicRecord, 30, 0),
    ],
)
def test_records_are_written_in_the_version_of_the_level(kind: type[Message], level: int, version: int) -> None:
    assert record_version(kind, level) == version


def test_the_level_of_a_cluster() -> None:
    assert metadata_version(TestCluster().image) == 30
    assert metadata_version(EMPTY_IMAGE) == 7


def test_what_is_not_implemented_is_not_claimed() -> None:
    assert unsupported({METADATA_VERSION: 30, "share.version": 1}) == {"share.version": 1}
    assert unsupported({METADATA_VERSION: 31}) == {METADATA_VERSION: 31}
