"""UpdateFeatures: the features of a request are updated together or not at all.

A level must be one that every broker and every controller supports. metadata.version goes down only over levels that store
nothing new, since nobody can yet rewrite the metadata for less. kraft.version is the quorum's own: what is decided here is
given to it in the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from pybroker.metadata.controller import elr
from pybroker.metadata.controller.decisions import Result, Setting
from pybroker.metadata.controller.feature_levels import unmet
from pybroker.metadata.controller.features import (
    CONTROLLER_REGISTRATION,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    STORES_MORE,
    SUPPORTED,
    is_elr_enabled,
    metadata_version,
    name_of_level,
)
from pybroker.metadata.image import MetadataImage, VersionRange
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.api_versions import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_DISABLED = VersionRange(0, 0)


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(image: MetadataImage, setting: Setting, request: UpdateFeaturesRequest, version: int) -> Result:
    updates = {one.feature: (one.max_version_level, _upgrade_type(one, version)) for one in request.feature_updates}
    proposed = {**image.features, METADATA_VERSION: metadata_version(image)}
    proposed |= {name: level for name, (level, _) in updates.items()}
    records: list[Message] = []
    kraft_version = None
    for name, (level, upgrade_type) in updates.items():
        _check_update(image, setting, name, level, upgrade_type)
        if name == KRAFT_VERSION:
            kraft_version = None if level == setting.kraft_version() else level
            continue
        missing = unmet(name, level, proposed)
        if missing is not None:
            raise _invalid(name, level, f"It requires {missing[0]} at {missing[1]} or above.")
        if name == ELR_VERSION and level > 0 and not is_elr_enabled(image):
            records += elr.enabling(image, setting.config)
        records.append(FeatureLevelRecord(name=name, feature_level=level))
    results = [
        UpdatableFeatureResult(feature=one.feature, error_code=ErrorCode.NONE, error_message=ErrorCode.NONE.name)
        for one in request.feature_updates
    ]
    response = UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=results)
    if request.validate_only:
        return Result([], response)
    return Result(records, response, kraft_version)


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    if version == 0:
        return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    return update.upgrade_type


def _check_update(image: MetadataImage, setting: Setting, name: str, level: int, upgrade_type: int) -> None:
    if upgrade_type not in tuple(UpgradeType):
        raise _invalid(name, level, f"There is no type of upgrade {upgrade_type}; expected 1 to 3.")
    if level < 0:
        raise _invalid(name, level, "A level is 0 or more.")
    problem = next(_who_cannot(image, setting, name, level), None)
    if problem is not None:
        raise _invalid(name, level, problem)
    current = _current(image, setting, name)
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        raise _invalid(name, level, f"It is at {current}: to lower it the request must ask for a downgrade.")
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        raise _invalid(name, level, f"It is at {current}: a downgrade does not lead to a higher level.")
    if name == METADATA_VERSION and level < current:
        _check_downgrade(current, level, upgrade_type)
    if name == KRAFT_VERSION and level < current:
        raise _invalid(name, level, f"It is at {current} and never goes down.")
    if name == KRAFT_VERSION and level > current:
        refusal = setting.check_kraft_version(level)
        if refusal is not None:
            raise refusal


def _current(image: MetadataImage, setting: Setting, name: str) -> int:
    if name == METADATA_VERSION:
        return metadata_version(image)
    if name == KRAFT_VERSION:
        return setting.kraft_version()
    return image.features.get(name, 0)


def _check_downgrade(current: int, level: int, upgrade_type: int) -> None:
    lost = [name_of_level(one) for one in STORES_MORE if level < one <= current]
    if not lost:
        return
    if upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
        raise _invalid(METADATA_VERSION, level, f"Metadata of {', '.join(lost)} would be lost, which is not supported.")
    raise _invalid(METADATA_VERSION, level, f"Metadata that came with {', '.join(lost)} might be lost.")


def _who_cannot(image: MetadataImage, setting: Setting, name: str, level: int) -> Iterator[str]:
    """What the nodes that do not support the level say."""
    if name not in SUPPORTED:
        yield f"There is no such feature; expected one of {', '.join(SUPPORTED)}."
    yield from _missing("This controller", SUPPORTED, name, level)
    for broker in image.brokers.values():
        yield from _missing(f"Broker {broker.id}", broker.features, name, level)
    if metadata_version(image) < CONTROLLER_REGISTRATION:
        return
    own_id = setting.config.int("node.id")
    for controller in image.controllers.values():
        if controller.id != own_id:
            yield from _missing(f"Controller {controller.id}", controller.features, name, level)
    for voter in setting.config.items_of("controller.quorum.voters"):
        voter_id = int(voter.partition("@")[0])
        if voter_id != own_id and voter_id not in image.controllers:
            yield f"Controller {voter_id} has not registered: nobody knows whether it supports the level."


def _missing(who: str, supported: Mapping[str, VersionRange], name: str, level: int) -> Iterator[str]:
    levels = supported.get(name, _DISABLED)
    # Level 0 is the absence of a feature, which a node supports that does not know it.
    if not levels.min_version <= level <= levels.max_version:
        known = f"levels {levels.min_version} to {levels.max_version} only" if name in supported else "no level of it"
        yield f"{who} supports {known}."


def _invalid(name: str, level: int, message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Feature {name} cannot be set to {level}: {message}")
