"""`__consumer_offsets` changes hands: the same requests leave the same records, and either broker goes on with the other's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from interop.apache_broker import ApacheBroker
from interop.apache_kafka import DUMP_LOG_SEGMENTS, STORAGE_TOOL, ApacheTools, apache_tool
from interop.broker_process import CLUSTER_ID, BrokerProcess
from interop.groups.scripted import Played, committed, described, play, stored, wait_for_coordinator
from interop.pybroker_node import PybrokerNode

from pybroker.metadata.controller.feature_levels import LEVELS
from pybroker.metadata.controller.features import SUPPORTED
from pybroker.protocol.errors import ErrorCode

# What Apache Kafka would finalize by itself and a node of ours cannot take over yet.
_WITHOUT = [word for name in LEVELS if name not in SUPPORTED for word in ("--feature", f"{name}=0")]
GROUPS = ("two", "simple", "static", "workers", "left", "gone")


class ClassicApache(ApacheBroker):
    """Apache Kafka in a cluster without the features that our nodes do not have."""

    def format(self, config: Path) -> None:
        run = apache_tool(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(config), *_WITHOUT)
        assert run.exit_code == 0, run


def test_the_same_requests_leave_the_same_records(tmp_path: Path, tools: ApacheTools) -> None:
    found = []
    dumps = []
    for number, broker_class in enumerate((ApacheBroker, PybrokerNode)):
        with broker_class(tmp_path / str(number)) as broker:
            play(broker)
            broker.stop()
            found.append(stored(broker))
            log = broker.partition_dir("__consumer_offsets") / f"{0:020}.log"
            dumps.append(tools.run(DUMP_LOG_SEGMENTS, "--offsets-decoder", "--files", str(log)).checked())
    theirs, ours = found
    assert ours == theirs
    assert len(ours) > 15
    assert "isvalid: false" not in dumps[1]
    assert _payloads(dumps[1]) == _payloads(dumps[0])


def _payloads(dump: str) -> list[str]:
    """Keys and values in the tool's own words."""
    rows = re.findall(r"key: (.*)", dump)
    assert rows
    unequal = (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r'imestamp":\d+', r'"topicId":"[^"]+"')
    return [re.sub("|".join(unequal), "", row) if '"two"' not in row else row[:30] for row in rows]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [(PybrokerNode, ApacheBroker), (ClassicApache, PybrokerNode)],
    ids=["ours to Apache", "Apache's to us"],
)
def test_the_other_broker_goes_on_with_the_groups(
    tmp_path: Path, writer: type[BrokerProcess], reader: type[BrokerProcess]
) -> None:
    with writer(tmp_path) as broker:
        played = play(broker)
        groups = described(broker, *GROUPS)
        offsets = {group: committed(broker, group) for group in GROUPS}
        broker.stop()
    with reader(tmp_path) as broker:
        broker.wait_for_leaders("t", 2)
        wait_for_coordinator(broker)
        assert described(broker, *GROUPS) == groups
        assert {group: committed(broker, group) for group in GROUPS} == offsets
        _go_on(played, broker)


def _go_on(played: Played, broker: BrokerProcess) -> None:
    for member in (played.first, played.second, played.static, played.worker):
        member.broker = broker
        assert member.heartbeat() is ErrorCode.NONE
    assert played.second.sync().assignment == b"other"
    played.first.commit(50)
    assert committed(broker, "two")["t", 0][0] == 50
    played.second.leave()
    assert played.first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert played.first.join().generation_id == 3
