from __future__ import annotations

from random import Random

import pytest
from unit.metadata.clusters import TestCluster

from pybroker.metadata.controller.features import ELR_VERSION
from pybroker.metadata.controller.partition_index import PartitionIndex, Partitions
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.internal.metadata_log import (
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)

BROKERS = (1, 2, 3, 4)


def told(index: PartitionIndex, image: MetadataImage) -> dict[str, object]:
    def names(partitions: Partitions) -> list[tuple[str, int]]:
        return sorted((topic.name, number) for topic, number in partitions.within(image))

    return {
        "in sync": {one: names(index.in_sync(one)) for one in BROKERS},
        "eligible": {one: names(index.eligible(one)) for one in BROKERS},
        "leads": {one: index.leads(one) for one in BROKERS},
        "leaderless": names(index.leaderless),
        "not preferred": names(index.not_preferred),
        "reassigning": names(index.reassigning),
    }


@pytest.mark.parametrize("seed", range(10))
def test_what_replay_keeps_is_what_the_image_says(seed: int) -> None:
    random = Random(seed)
    cluster = TestCluster(BROKERS)
    cluster.replay(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
    for number in range(5):
        cluster.create(f"t-{number}", 4, 3)
    for _ in range(200):
        topic = random.choice([*cluster.image.topics.values()])
        replicas = topic.partitions[0].replicas
        isr = random.sample(replicas, random.randint(0, 3))
        change = PartitionChangeRecord(
            partition_id=random.randrange(4),
            topic_id=topic.topic_id,
            isr=isr,
            leader=random.choice([-1, *isr]),
            eligible_leader_replicas=[one for one in replicas if one not in isr and random.random() < 0.5],
            adding_replicas=random.choice([None, [], [4]]),
        )
        cluster.replay(change)
        if random.random() < 0.02:
            cluster.replay(ClearElrRecord(topic_name=random.choice(["", topic.name])))
        if random.random() < 0.01 and len(cluster.image.topics) > 2:
            cluster.replay(RemoveTopicRecord(topic_id=topic.topic_id))
    kept, image = cluster.controller._index, cluster.image
    assert told(kept, image) == told(PartitionIndex(image), image)
    assert told(kept, image) == by_hand(image)


def by_hand(image: MetadataImage) -> dict[str, object]:
    every = sorted((name, number, state) for name, topic in image.topics.items() for number, state in topic.partitions.items())
    return {
        "in sync": {one: [(name, number) for name, number, state in every if one in state.isr] for one in BROKERS},
        "eligible": {
            one: [(name, number) for name, number, state in every if one in state.eligible_leader_replicas] for one in BROKERS
        },
        "leads": {one: any(state.leader == one for _name, _number, state in every) for one in BROKERS},
        "leaderless": [(name, number) for name, number, state in every if state.leader == -1],
        "not preferred": [(name, number) for name, number, state in every if state.leader != state.replicas[0]],
        "reassigning": [(name, number) for name, number, state in every if state.is_reassigning],
    }


def test_records_of_an_open_transaction_are_not_indexed_yet() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2])
    topic_id = cluster.image.topics["t"].topic_id
    cluster.replay(BeginTransactionRecord(), PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-1))
    assert not cluster.controller._index.leaderless
    cluster.replay(EndTransactionRecord())
    assert len(cluster.controller._index.leaderless) == 1
