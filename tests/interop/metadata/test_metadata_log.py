"""Our metadata log, snapshots and quorum-state in Apache Kafka's hands, and theirs in ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interop.apache_broker import ApacheBroker
from interop.apache_kafka import ApacheTools
from interop.broker_process import NODE_ID
from interop.metadata.metadata_dump import dump_metadata
from interop.metadata.our_node import DYNAMIC, STATIC, OurNode, apache_on, node_config

from pybroker.base.ids import uuid_to_text
from pybroker.metadata.controller.features import SUPPORTED
from pybroker.metadata.image import ResourceType
from pybroker.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pybroker.protocol.messages.metadata import MetadataRequest


def test_a_new_cluster_begins_as_apache_kafkas(tmp_path: Path, tools: ApacheTools) -> None:
    """With the features that we claim, and the min.insync.replicas that eligible leader replicas need."""
    log = Path("__cluster_metadata-0") / "00000000000000000000.log"
    OurNode(node_config(tmp_path / "ours", **{"min.insync.replicas": "2"})).stop()
    with ApacheBroker(tmp_path / "theirs", {"min.insync.replicas": "2"}) as apache:
        apache.stop()
    begun = []
    for path in (tmp_path / "ours" / log, apache.data_dir / log):
        first = [record for record in dump_metadata(tools, path) if record.type in ("FEATURE_LEVEL_RECORD", "CONFIG_RECORD")]
        begun.append([one.data for one in first if one.type == "CONFIG_RECORD" or one.data["name"] in SUPPORTED])
    ours, theirs = begun
    assert ours == theirs
    assert ours[-1] == {"resourceType": 4, "resourceName": "", "name": "min.insync.replicas", "value": "2"}


@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC])
def test_kafka_dump_log_reads_everything_we_write(tmp_path: Path, tools: ApacheTools, quorum: str) -> None:
    config = node_config(tmp_path, quorum)
    for _start in range(2):
        node = OurNode(config, quorum)
        if _start == 0:
            node.live()
        node.stop()
        image = node.image
    dumped = dump_metadata(tools, tmp_path / "__cluster_metadata-0" / "00000000000000000000.log")
    assert [record.offset for record in dumped] == list(range(image.offset + 1))
    assert {record.type: record.version for record in dumped} | {"KRaftVersion": 0, "KRaftVoters": 0} == {
        "LeaderChange": 0,
        "KRaftVersion": 0,
        "KRaftVoters": 0,
        "FEATURE_LEVEL_RECORD": 0,
        "REGISTER_CONTROLLER_RECORD": 0,
        "REGISTER_BROKER_RECORD": 4,
        "BROKER_REGISTRATION_CHANGE_RECORD": 3,
        "TOPIC_RECORD": 0,
        "PARTITION_RECORD": 2,
        "PARTITION_CHANGE_RECORD": 2,
        "CONFIG_RECORD": 0,
        "REMOVE_TOPIC_RECORD": 0,
        "PRODUCER_IDS_RECORD": 0,
    }
    assert [record.data["leaderId"] for record in dumped if record.type == "LeaderChange"] == [NODE_ID] * 2
    names = {record.data["name"]: record.data["topicId"] for record in dumped if record.type == "TOPIC_RECORD"}
    assert set(names) == {"kept", "gone", "grown"}
    assert names["kept"] == uuid_to_text(image.topics["kept"].topic_id)
    brokers = [record for record in dumped if record.type == "REGISTER_BROKER_RECORD"]
    assert [record.data["brokerEpoch"] for record in brokers] == [record.offset for record in brokers]
    partitions = [record.data for record in dumped if record.type == "PARTITION_RECORD"]
    assert len(partitions) == 3 + 2 + 1 + 3
    assert all(one["replicas"] == one["isr"] == [NODE_ID] and one["leader"] == NODE_ID for one in partitions)


@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC])
def test_apache_kafka_takes_over_our_directory_and_gives_it_back(tmp_path: Path, tools: ApacheTools, quorum: str) -> None:
    data = tmp_path / "apache" / "data"
    config = node_config(data, quorum)
    node = OurNode(config, quorum)
    node.live()
    ours = node.image
    epoch = node.leader_epoch
    node.stop()
    with apache_on(tmp_path / "apache", config, quorum) as broker:
        topics = {topic.name: topic for topic in broker.ask(MetadataRequest(topics=None)).topics}
        assert {name: (topic.topic_id, len(topic.partitions)) for name, topic in topics.items()} == {
            name: (topic.topic_id, len(topic.partitions)) for name, topic in ours.topics.items()
        }
        broker.wait_for_leaders("kept", 3)
        assert _config(broker, 2, "kept", "retention.ms") == "123456"
        assert _config(broker, 4, "", "log.retention.ms") == "99999"
        broker.create_topic("theirs", {"cleanup.policy": "compact"}, 2)
        broker.stop()
    state = json.loads((data / "__cluster_metadata-0" / "quorum-state").read_text())
    assert state["leaderEpoch"] > epoch
    node = OurNode(config, quorum)
    assert set(node.image.topics) == {"kept", "grown", "theirs"}
    assert node.image.topics["kept"].topic_id == ours.topics["kept"].topic_id
    assert node.image.config_of(ResourceType.TOPIC, "theirs") == {"cleanup.policy": "compact"}
    assert node.image.next_producer_id >= 1000
    assert node.leader_epoch > state["leaderEpoch"]
    # Apache Kafka left its partitions without a leader when it stopped; whoever comes back leads again.
    states = [state for topic in node.image.topics.values() for state in topic.partitions.values()]
    assert {state.leader for state in states} == {NODE_ID}
    node.create("ours-again")
    node.stop()
    dump_metadata(tools, data / "__cluster_metadata-0" / "00000000000000000000.log")


def test_apache_kafka_begins_with_a_snapshot_that_we_took_while_we_ran(tmp_path: Path, tools: ApacheTools) -> None:
    """It is all that is left of the metadata, voters and all."""
    data = tmp_path / "apache" / "data"
    config = node_config(data, DYNAMIC, **{"metadata.log.max.record.bytes.between.snapshots": "4000"})
    node = OurNode(config, DYNAMIC)
    node.live()
    metadata = data / "__cluster_metadata-0"

    def snapshots() -> list[Path]:
        return [path for path in sorted(metadata.glob("*.checkpoint")) if not path.name.startswith("0" * 20)]

    number = 0
    while not snapshots():
        number += 1
        node.create(f"more-{number}")
    node.stop()
    latest = snapshots()[-1]
    dumped = dump_metadata(tools, latest)
    types = [record.type for record in dumped]
    assert (types[:3], types[-1]) == (["SnapshotHeader", "KRaftVersion", "KRaftVoters"], "SnapshotFooter")
    ids = {record.data["name"]: record.data["topicId"] for record in dumped if record.type == "TOPIC_RECORD"}
    assert ids.keys() >= {"kept", "grown"}
    for path in (*metadata.glob("*.log"), *metadata.glob("*index"), *metadata.glob("*.snapshot")):
        path.unlink()
    (metadata / "leader-epoch-checkpoint").unlink()
    with apache_on(tmp_path / "apache", config, DYNAMIC) as broker:
        topics = broker.ask(MetadataRequest(topics=None)).topics
        assert {topic.name: uuid_to_text(topic.topic_id) for topic in topics} == ids
        broker.wait_for_leaders("kept", 3)
        assert _config(broker, 2, "kept", "retention.ms") == "123456"


def _config(broker: ApacheBroker, kind: int, name: str, key: str) -> str | None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    (result,) = broker.ask(DescribeConfigsRequest(resources=[resource])).results
    (found,) = result.configs
    return str(found.value)
