"""kraft.version is a level of the quorum's own: a decision of the controller, written by the quorum."""

from __future__ import annotations

from unit.server.quorum.quorums import STATIC, ask, config_of, creation, started_on, with_broker

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.api_versions import FeatureUpdateKey, UpdateFeaturesRequest
from pybroker.server.quorum.metadata_quorum import MetadataQuorum
from pybroker.testing.disk import SimDisk


def update(quorum: MetadataQuorum, level: int, *, validate_only: bool = False) -> ErrorCode:
    row = FeatureUpdateKey(feature="kraft.version", max_version_level=level)
    response = ask(quorum, UpdateFeaturesRequest(feature_updates=[row], validate_only=validate_only), 2)
    return ErrorCode(response.error_code)


def test_fixed_voters_get_into_the_log_and_stay_there() -> None:
    disk = SimDisk()
    quorum = started_on(disk, config_of(STATIC))
    assert update(quorum, 1, validate_only=True) is ErrorCode.NONE
    assert "kraft.version" not in quorum.finalized_features()
    assert update(quorum, 1) is ErrorCode.NONE
    assert quorum.finalized_features()["kraft.version"] == 1
    assert update(quorum, 1) is ErrorCode.NONE
    assert update(quorum, 0) is ErrorCode.INVALID_UPDATE_VERSION
    quorum.stop()
    disk.crash()
    quorum = started_on(disk, config_of(STATIC))
    assert quorum.finalized_features()["kraft.version"] == 1
    quorum.stop()


def test_decisions_go_on_behind_the_quorums_own_records() -> None:
    quorum = with_broker(SimDisk(), config_of(STATIC))
    assert update(quorum, 1) is ErrorCode.NONE
    assert ask(quorum, creation("t")).topics[0].error_code == ErrorCode.NONE
    assert "t" in quorum.image.topics
    quorum.stop()
