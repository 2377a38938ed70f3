from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.config.configs import config_with
from unit.metadata.clusters import CLUSTER_ID

from pybroker.base.ids import ZERO_UUID
from pybroker.metadata.controller import feature_levels, feature_updates
from pybroker.metadata.controller.decisions import Result, Setting
from pybroker.metadata.controller.effective_configs import EffectiveConfigs
from pybroker.metadata.controller.feature_updates import UpgradeType, update_features
from pybroker.metadata.controller.features import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, RELEASES, SUPPORTED
from pybroker.metadata.image import (
    BrokerState,
    ConfigResource,
    ControllerState,
    MetadataImage,
    ResourceType,
    VersionRange,
)
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import ConfigRecord, FeatureLevelRecord
from pybroker.protocol.messages.api_versions import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE, UNSAFE = UpgradeType
IMAGE = MetadataImage(
    features={METADATA_VERSION: RELEASES["4.2-IV0"]},
    brokers={1: BrokerState(1, 5, ZERO_UUID, features=SUPPORTED)},
    controllers={2: ControllerState(2, ZERO_UUID, features=SUPPORTED)},
)


def setting(**changes: Any) -> Setting:
    config = config_with()
    made = Setting(config, CLUSTER_ID, EffectiveConfigs(config), lambda: ZERO_UUID, lambda bound: 0)
    return replace(made, **changes)


def update(
    *rows: tuple[str, int, int],
    image: MetadataImage = IMAGE,
    given: Setting | None = None,
    validate_only: bool = False,
    version: int = 2,
) -> Result:
    updates = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in rows]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    return update_features(image, given or setting(), request, version)


def refusal(*rows: tuple[str, int, int], image: MetadataImage = IMAGE, given: Setting | None = None) -> str:
    with pytest.raises(KafkaError) as caught:
        update(*rows, image=image, given=given)
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    return caught.value.message


def test_an_upgrade() -> None:
    level = RELEASES["4.3-IV0"]
    result = update((METADATA_VERSION, level, UPGRADE))
    assert result.records == [FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)]
    assert [one.feature for one in result.response.results] == [METADATA_VERSION]  # type: ignore[attr-defined]
    assert update((METADATA_VERSION, level, UPGRADE), validate_only=True).records == []


def test_a_downgrade_over_levels_that_store_nothing_new() -> None:
    level = RELEASES["4.1-IV0"]
    assert "ask for a downgrade" in refusal((METADATA_VERSION, level, UPGRADE))
    for kind in (SAFE, UNSAFE):
        assert update((METADATA_VERSION, level, kind)).records == [
            FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
        ]


def test_a_downgrade_that_would_lose_metadata() -> None:
    level = RELEASES["4.0-IV0"]
    assert "4.0-IV1 might be lost" in refusal((METADATA_VERSION, level, SAFE))
    assert "not supported" in refusal((METADATA_VERSION, level, UNSAFE))


def test_in_version_0_a_downgrade_is_allowed_or_not() -> None:
    allowed = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=RELEASES["4.1-IV0"], allow_downgrade=True)
    result = update_features(IMAGE, setting(), UpdateFeaturesRequest(feature_updates=[allowed]), 0)
    assert len(result.records) == 1
    allowed.allow_downgrade = False
    with pytest.raises(KafkaError, match="ask for a downgrade"):
        update_features(IMAGE, setting(), UpdateFeaturesRequest(feature_updates=[allowed]), 0)


@pytest.mark.parametrize(
    ("name", "level", "kind", "problem"),
    [
        (METADATA_VERSION, -1, UPGRADE, "0 or more"),
        (METADATA_VERSION, 99, UPGRADE, "This controller supports levels 7 to 30 only"),
        (METADATA_VERSION, 30, SAFE, "does not lead to a higher level"),
        (METADATA_VERSION, 30, 0, "no type of upgrade 0"),
        (METADATA_VERSION, 30, 4, "no type of upgrade 4"),
        ("shoe.size", 44, UPGRADE, "no such feature"),
        ("shoe.size", 0, SAFE, "no such feature"),
    ],
)
def test_refused(name: str, level: int, kind: int, problem: str) -> None:
    assert problem in refusal((name, level, kind))


def test_every_node_must_support_the_level() -> None:
    old = {METADATA_VERSION: VersionRange(7, 29)}
    update_30 = (METADATA_VERSION, 30, UPGRADE)
    broker = replace(IMAGE.brokers[1], features=old)
    assert "Broker 1 supports levels 7 to 29 only" in refusal(update_30, image=replace(IMAGE, brokers={1: broker}))
    controller = replace(IMAGE.controllers[2], features={})
    assert "Controller 2 supports no level" in refusal(update_30, image=replace(IMAGE, controllers={2: controller}))


def test_a_voter_that_has_not_registered() -> None:
    config = config_with(controller_quorum_voters="1@a:1,3@b:1")
    assert "Controller 3 has not registered" in refusal((METADATA_VERSION, 30, UPGRADE), given=setting(config=config))


def test_features_are_updated_together_or_not_at_all() -> None:
    assert "shoe.size" in refusal((METADATA_VERSION, 30, UPGRADE), ("shoe.size", 1, UPGRADE))


def test_a_level_that_another_feature_must_have(monkeypatch: pytest.MonkeyPatch) -> None:
    supported = {**SUPPORTED, "wings": VersionRange(0, 1)}
    for module in (feature_updates, feature_levels):
        monkeypatch.setattr(module, "SUPPORTED", supported)
    rows = (feature_levels.Level("3.3-IV3"), feature_levels.Level("4.3-IV0", {METADATA_VERSION: RELEASES["4.3-IV0"]}))
    monkeypatch.setattr(feature_levels, "LEVELS", {"wings": rows})
    image = replace(IMAGE, brokers={}, controllers={})
    assert "requires metadata.version at 30" in refusal(("wings", 1, UPGRADE), image=image)
    assert len(update(("wings", 1, UPGRADE), (METADATA_VERSION, 30, UPGRADE), image=image).records) == 2


def test_kraft_version_is_an_order_to_the_quorum() -> None:
    changeable = setting(check_kraft_version=lambda level: None)
    assert update((KRAFT_VERSION, 1, UPGRADE), given=changeable)[::2] == ([], 1)
    assert update((KRAFT_VERSION, 0, UPGRADE), given=changeable)[::2] == ([], None)
    assert update((KRAFT_VERSION, 1, UPGRADE), given=changeable, validate_only=True)[::2] == ([], None)
    at_1 = setting(kraft_version=lambda: 1)
    assert update((KRAFT_VERSION, 1, UPGRADE), given=at_1)[::2] == ([], None)
    assert "never goes down" in refusal((KRAFT_VERSION, 0, SAFE), given=at_1)


def test_a_quorum_that_cannot_change_its_version() -> None:
    assert "cannot change kraft.version while it runs" in refusal((KRAFT_VERSION, 1, UPGRADE))


def test_eligible_leader_replicas_bring_one_min_insync_replicas_for_all() -> None:
    own = ConfigResource(ResourceType.BROKER, "1")
    broker = replace(IMAGE.brokers[1], features=SUPPORTED)
    image = replace(IMAGE, brokers={1: broker}, controllers={}, configs={own: {"min.insync.replicas": "2"}})
    result = update((ELR_VERSION, 1, UPGRADE), image=image)
    assert result.records == [
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="min.insync.replicas", value="1"),
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="1", name="min.insync.replicas", value=None),
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
    ]
    again = replace(image, features={**image.features, ELR_VERSION: 1})
    assert update((ELR_VERSION, 1, UPGRADE), image=again).records == [FeatureLevelRecord(name=ELR_VERSION, feature_level=1)]
