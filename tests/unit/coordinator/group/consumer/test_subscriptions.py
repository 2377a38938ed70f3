"""The hash of a group's topics: Apache Kafka's, byte for byte (tests/interop/groups compares), and what it depends on."""

from __future__ import annotations

from unit.coordinator.worlds import Cluster

from pybroker.coordinator.group.consumer.subscriptions import hash_of_topics


def test_topics_that_are_not_there_do_not_count() -> None:
    cluster = Cluster()
    assert hash_of_topics(["t"], cluster) == 0
    cluster.add("t", 3)
    assert hash_of_topics(["t", "nothing"], cluster) == hash_of_topics(["t"], cluster) != 0


def test_more_partitions_and_more_topics_are_another_hash() -> None:
    cluster = Cluster()
    cluster.add("t", 3)
    cluster.add("u", 1)
    both = hash_of_topics(["t", "u"], cluster)
    assert both == hash_of_topics({"u", "t"}, cluster)
    assert len({both, hash_of_topics(["t"], cluster), hash_of_topics(["u"], cluster)}) == 3
    cluster.add("t", 4)
    assert hash_of_topics(["t", "u"], cluster) != both
