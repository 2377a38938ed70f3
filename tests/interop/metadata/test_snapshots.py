"""Snapshots of the metadata: what we make of Apache Kafka's image, and what its tools and its broker make of ours."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from interop.apache_broker import ApacheBroker
from interop.apache_kafka import METADATA_SHELL, ApacheTools, apache_tool
from interop.broker_process import CLUSTER_ID, BrokerProcess
from interop.metadata.metadata_dump import DumpedRecord, dump_metadata
from interop.metadata.our_node import STATIC, OurNode, apache_on, node_config
from support.waiting import wait_until
from unit.metadata.test_image_records import image_of, life_of_a_cluster

from pybroker.base.filesystem import OsFileSystem
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.metadata.image_records import image_records
from pybroker.protocol.message import Message
from pybroker.protocol.messages import acls, configs, credentials, metadata, quotas
from pybroker.raft.events import SnapshotId
from pybroker.server.metadata_snapshot import SnapshotReader, list_snapshots, snapshot_name, write_snapshot

FILESYSTEM = OsFileSystem()
LOG_DIR = "__cluster_metadata-0"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

SCRAM = credentials.AlterUserScramCredentialsRequest(
    deletions=[],
    upsertions=[
        credentials.ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted password"
        )
    ],
)
USER_QUOTA = quotas.AlterClientQuotasRequest(
    entries=[
        quotas.AlterClientQuotasRequestEntryData(
            entity=[quotas.EntityData(entity_type="user", entity_name="alice")],
            ops=[quotas.OpData(key="producer_byte_rate", value=1e6, remove=False)],
        )
    ],
    validate_only=False,
)
QUOTA = quotas.AlterClientQuotasRequest(
    entries=[
        quotas.AlterClientQuotasRequestEntryData(
            entity=[
                quotas.EntityData(entity_type="user", entity_name="alice"),
                quotas.EntityData(entity_type="client-id", entity_name=None),
            ],
            ops=[quotas.OpData(key="producer_byte_rate", value=1e6, remove=False)],
        )
    ],
    validate_only=False,
)
ACL = acls.CreateAclsRequest(
    creations=[
        acls.AclCreation(
            resource_type=2,
            resource_name="orders-",
            resource_pattern_type=4,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
    ]
)


def config(kind: int, resource: str, name: str, value: str) -> Message:
    change = configs.IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=0, value=value)
    row = configs.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=resource, configs=[change]
    )
    return configs.IncrementalAlterConfigsRequest(resources=[row], validate_only=False)


def loaded(path: Path) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    with SnapshotReader(FILESYSTEM, str(path)) as reader:
        for record in reader.records():
            delta.replay(record)
    return delta.image(0, 0)


def comparable(records: list[DumpedRecord]) -> list[str]:
    """What the records say, in any order: maps have one of their own in Java."""
    shown = []
    for record in records:
        data: dict[str, Any] = dict(record.data)
        for name in ("features", "endPoints", "entity"):
            if name in data:
                data[name] = sorted(map(repr, data[name]))
        if record.type != "SnapshotHeader":
            shown.append(f"{record.type} v{record.version} {data}")
    return sorted(shown)


def test_our_records_of_apache_kafkas_image_are_its_own(tmp_path: Path, tools: ApacheTools) -> None:
    properties = {"metadata.log.max.record.bytes.between.snapshots": "1", **AUTHORIZER}
    with ApacheBroker(tmp_path / "apache", properties) as broker:
        broker.create_topic("orders", {"retention.ms": "5000"}, 3)
        for request in (
            *(SCRAM, QUOTA, ACL),
            config(4, "", "log.retention.ms", "99999"),
            config(16, "metrics", "interval.ms", "1000"),
            config(32, "group", "consumer.session.timeout.ms", "50000"),
        ):
            broker.ask(request)
        directory = broker.data_dir / LOG_DIR

        def has_all() -> bool:
            snapshots = list_snapshots(FILESYSTEM, str(directory))
            return bool(snapshots) and any(
                resource.type == 32 for resource in loaded(directory / snapshot_name(snapshots[-1])).configs
            )

        wait_until(has_all, 30, lambda: f"no snapshot with everything in {list(directory.iterdir())}")
        broker.stop()
    latest = list_snapshots(FILESYSTEM, str(directory))[-1]
    theirs = directory / snapshot_name(latest)
    ours = tmp_path / snapshot_name(latest)
    image = loaded(theirs)
    assert (len(image.acls), len(image.scram_credentials), len(image.client_quotas)) == (1, 1, 1)
    write_snapshot(FILESYSTEM, str(ours), image_records(image), now_ms=time.time_ns() // 1_000_000, epoch=latest.epoch)
    found = [dump_metadata(tools, path) for path in (theirs, ours)]
    assert comparable(found[1]) == comparable(found[0])
    assert len(found[0]) > 15


@pytest.fixture(scope="module")
def image() -> MetadataImage:
    """Everything there is in an image."""
    return next(
        image
        for image in (image_of(life_of_a_cluster(random.Random(seed))) for seed in range(100))
        if image.topics and image.acls and image.scram_credentials and image.client_quotas and image.delegation_tokens
    )


def test_kafka_dump_log_reads_every_record_of_our_snapshot(tmp_path: Path, tools: ApacheTools, image: MetadataImage) -> None:
    path = tmp_path / snapshot_name(SnapshotId(image.offset + 1, image.epoch))
    write_snapshot(FILESYSTEM, str(path), image_records(image), now_ms=1, epoch=image.epoch, last_timestamp_ms=1)
    dumped = dump_metadata(tools, path)
    assert [record.type for record in dumped[:1] + dumped[-1:]] == ["SnapshotHeader", "SnapshotFooter"]
    expected = [_type_of(record) for record, _ in image_records(image)]
    assert [record.type.replace("_", "") for record in dumped[1:-1]] == expected
    assert [record.version for record in dumped[1:-1]] == [version for _, version in image_records(image)]


def _type_of(record: Message) -> str:
    return type(record).__name__.upper()


def shell(path: Path, *command: str, until: str) -> str:
    """The shell may answer before it has loaded all: what it says once `until` is in it."""
    said: list[str] = []

    def has_said() -> bool:
        run = apache_tool(METADATA_SHELL, "--snapshot", str(path), *command)
        assert run.exit_code == 0, run
        said.append(run.stdout)
        return until in run.stdout

    wait_until(has_said, 60, lambda: f"kafka-metadata-shell says {said[-1]}")
    return said[-1]


def test_kafka_metadata_shell_shows_our_snapshot(tmp_path: Path, image: MetadataImage) -> None:
    path = tmp_path / snapshot_name(SnapshotId(image.offset + 1, image.epoch))
    write_snapshot(FILESYSTEM, str(path), image_records(image), now_ms=1, epoch=image.epoch, last_timestamp_ms=1)
    (token, *_), (topic, *_) = image.delegation_tokens, image.topics
    shown = shell(path, "tree", "/image", until=token)
    assert "4.3-IV0" in shown
    for name in (*image.topics, *(user.name for user in image.scram_credentials), *image.delegation_tokens):
        assert name in shown
    assert f"{image.next_producer_id}" in shown
    partition = shell(path, "cat", f"/image/topics/byName/{topic}/0", until="leader")
    assert f"leader={image.topics[topic].partitions[0].leader}" in partition.replace(" ", "")


def test_kafka_metadata_shell_shows_our_log(tmp_path: Path) -> None:
    node = OurNode(node_config(tmp_path))
    node.live()
    node.ask(USER_QUOTA)
    node.stop()
    shown = shell(tmp_path / LOG_DIR / "00000000000000000000.log", "tree", "/image", until="producer_byte_rate")
    assert "kept" in shown
    assert "grown" in shown
    assert "retention.ms" in shown


def test_apache_kafka_starts_on_our_snapshot_alone(tmp_path: Path, tools: ApacheTools) -> None:
    data = tmp_path / "apache" / "data"
    node_properties = node_config(data, STATIC)
    node = OurNode(node_properties, STATIC)
    node.live()
    for request in (SCRAM, QUOTA):
        node.ask(request)
    image, epoch = node.image, node.leader_epoch
    node.stop()
    snapshot = SnapshotId(image.offset + 1, epoch)
    for file in (data / LOG_DIR).iterdir():
        if file.name.startswith("0000") or file.name == "leader-epoch-checkpoint":
            file.unlink()
    write_snapshot(
        FILESYSTEM,
        str(data / LOG_DIR / snapshot_name(snapshot)),
        image_records(image),
        now_ms=1,
        epoch=epoch,
        last_timestamp_ms=1,
    )
    with apache_on(tmp_path / "apache", node_properties, STATIC) as broker:
        topics = broker.ask(metadata.MetadataRequest(topics=None)).topics
        assert {topic.name: topic.topic_id for topic in topics} == {
            topic.name: topic.topic_id for topic in image.topics.values()
        }
        broker.wait_for_leaders("kept", 3)
        assert described_users(broker) == ["alice"]
        (entry,) = broker.ask(quotas.DescribeClientQuotasRequest(components=[], strict=False)).entries
        assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 1e6)]
        broker.stop()
    state = json.loads((data / LOG_DIR / "quorum-state").read_text())
    assert state["leaderEpoch"] > epoch
    assert CLUSTER_ID in (data / "meta.properties").read_text()


def described_users(broker: BrokerProcess) -> list[str]:
    request = credentials.DescribeUserScramCredentialsRequest(users=None)
    return [one.user for one in broker.ask(request).results]
