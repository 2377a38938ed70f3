"""kraft.version goes from 0 to 1 on a running node with fixed voters, as on Apache Kafka: from then on they are in the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop.apache_broker import ApacheBroker
from interop.apache_kafka import ApacheTools
from interop.broker_process import BrokerProcess
from interop.metadata.metadata_dump import dump_metadata
from interop.pybroker_node import PybrokerNode

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.api_versions import ApiVersionsRequest, FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE = 1, 2


def update(broker: BrokerProcess, level: int, kind: int = UPGRADE, *, validate_only: bool = False) -> ErrorCode:
    row = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[row], validate_only=validate_only)
    return ErrorCode(broker.ask(request, 2).error_code)


def level_of(broker: BrokerProcess) -> int:
    answer = broker.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    return next((one.max_version_level for one in answer.finalized_features if one.name == "kraft.version"), 0)


@pytest.mark.parametrize("kind", [ApacheBroker, PybrokerNode])
def test_from_fixed_voters_to_voters_in_the_log(tmp_path: Path, tools: ApacheTools, kind: type[BrokerProcess]) -> None:
    with kind(tmp_path) as broker:
        assert level_of(broker) == 0
        assert update(broker, 2) is ErrorCode.INVALID_UPDATE_VERSION
        assert update(broker, 1, validate_only=True) is ErrorCode.NONE
        assert level_of(broker) == 0
        assert update(broker, 1) is ErrorCode.NONE
        assert update(broker, 1) is ErrorCode.NONE
        assert update(broker, 0, SAFE_DOWNGRADE) is ErrorCode.INVALID_UPDATE_VERSION
        assert level_of(broker) == 1
        broker.restart()
        assert level_of(broker) == 1
        broker.create_topic("t")
        broker.stop()
    dumped = dump_metadata(tools, broker.data_dir / "__cluster_metadata-0" / "00000000000000000000.log")
    levels = [record.data["kRaftVersion"] for record in dumped if record.type == "KRaftVersion"]
    voters = [record.data["voters"] for record in dumped if record.type == "KRaftVoters"]
    assert levels == [1]
    assert [[voter["voterId"] for voter in row] for row in voters] == [[1]]
