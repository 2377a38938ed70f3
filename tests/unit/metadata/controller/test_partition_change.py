"""The rules by which a partition changes, one at a time. Apache Kafka's are compared with them in the interop tests."""

from __future__ import annotations

from typing import Any

import pytest
from unit.metadata.clusters import TestCluster, uuid

from pybroker.metadata.controller.features import ELR_VERSION, METADATA_VERSION, RELEASES
from pybroker.metadata.controller.partition_change import (
    Election,
    PartitionChange,
    PartitionRules,
    directory_of_new,
    is_online,
)
from pybroker.metadata.delta import NO_LEADER_CHANGE
from pybroker.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerState,
    PartitionState,
    TopicImage,
)
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord, PartitionChangeRecord


class Partition:
    """One partition of replicas 1, 2 and 3 in a cluster where `fenced` are; min.insync.replicas is 2 unless told."""

    def __init__(
        self, *, fenced: tuple[int, ...] = (), elr: bool = False, level: str = "4.3-IV0", min_isr: int = 2, **state: Any
    ) -> None:
        cluster = TestCluster((1, 2, 3, 4), min_insync_replicas=str(min_isr))
        cluster.replay(FeatureLevelRecord(name=METADATA_VERSION, feature_level=RELEASES[level]))
        if elr:
            cluster.replay(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
        for broker_id in fenced:
            cluster.fence(broker_id)
        fields: dict[str, Any] = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1}
        self.state = PartitionState(**(fields | {"directories": (UNASSIGNED_DIRECTORY,) * 3} | state))
        self._rules = PartitionRules(cluster.image, cluster.controller._setting)

    def change(self, **wanted: Any) -> PartitionChangeRecord | None:
        change = PartitionChange(self._rules, TopicImage("t", uuid("t"), {0: self.state}), 0)
        for name, value in wanted.items():
            setattr(change, name, value)
        return change.record()


def test_nothing_wanted_is_no_record() -> None:
    assert Partition().change() is None


def test_an_isr_change_raises_no_leader_epoch() -> None:
    record = Partition().change(isr=(1, 3))
    assert record is not None
    assert (record.isr, record.leader) == ([1, 3], NO_LEADER_CHANGE)


def test_before_release_3_6_a_shrinking_isr_needs_a_new_leader_epoch() -> None:
    shrunk = Partition(level="3.5-IV2").change(isr=(1, 3))
    assert shrunk is not None
    assert shrunk.leader == 1
    grown = Partition(level="3.5-IV2", isr=(1,)).change(isr=(1, 3))
    assert grown is not None
    assert grown.leader == NO_LEADER_CHANGE


@pytest.mark.parametrize(
    ("election", "fenced", "isr", "leader", "elected"),
    [
        (Election.ONLINE, (), (1, 2, 3), 2, None),  # the leader that can stay stays
        (Election.PREFERRED, (), (1, 2, 3), 2, 1),
        (Election.PREFERRED, (1,), (1, 2, 3), 2, None),
        (Election.PREFERRED, (1, 2), (1, 2, 3), 2, 3),
        (Election.ONLINE, (1,), (3, 2), 1, 2),  # in the order of the replicas, not of the ISR
        (Election.ONLINE, (1,), (1,), 1, -1),
        (Election.UNCLEAN, (1,), (1,), 1, 2),
        (Election.UNCLEAN, (1,), (1, 3), 1, 3),  # somebody in sync comes first even so
        (Election.UNCLEAN, (1, 2, 3), (1,), 1, -1),
    ],
)
def test_who_leads(election: Election, fenced: tuple[int, ...], isr: tuple[int, ...], leader: int, elected: int | None) -> None:
    record = Partition(fenced=fenced, isr=isr, leader=leader).change(election=election)
    assert (None if record is None else record.leader) == elected


def test_an_unclean_leader_is_alone_in_sync_and_has_to_recover() -> None:
    record = Partition(fenced=(1,), isr=(1,)).change(election=Election.UNCLEAN)
    assert record is not None
    assert (record.leader, record.isr, record.leader_recovery_state) == (2, [2], 1)


def test_the_isr_never_becomes_empty_without_eligible_leader_replicas() -> None:
    record = Partition(fenced=(1,), isr=(1,)).change(isr=())
    assert record is not None
    assert (record.leader, record.isr) == (-1, None)


def test_who_leaves_below_the_minimum_is_eligible() -> None:
    record = Partition(elr=True, isr=(1, 2)).change(isr=(1,))
    assert record is not None
    assert (record.isr, record.eligible_leader_replicas) == ([1], [2])
    enough = Partition(elr=True).change(isr=(1, 2))
    assert enough is not None
    assert (enough.isr, enough.eligible_leader_replicas) == ([1, 2], None)


def test_with_enough_in_sync_nobody_needs_to_be_eligible() -> None:
    record = Partition(elr=True, isr=(1,), eligible_leader_replicas=(2, 3)).change(isr=(1, 3))
    assert record is not None
    assert (record.isr, record.eligible_leader_replicas) == ([1, 3], [])


def test_an_eligible_replica_leads_when_nobody_is_in_sync() -> None:
    partition = Partition(elr=True, fenced=(1, 2), isr=(), leader=-1, eligible_leader_replicas=(2, 3), last_known_elr=(2,))
    record = partition.change()
    assert record is not None
    assert (record.leader, record.isr, record.eligible_leader_replicas, record.last_known_elr) == (3, [3], [2], [])
    assert record.leader_recovery_state == -1


def test_with_a_minimum_of_one_nobody_stays_eligible_beside_a_leader_that_commits_alone() -> None:
    """Seed 40192: one that was left behind was elected later, and what was acknowledged meanwhile was gone."""
    partition = Partition(elr=True, min_isr=1, fenced=(1, 2), isr=(), leader=-1, eligible_leader_replicas=(2, 3))
    record = partition.change()
    assert record is not None
    assert (record.leader, record.isr, record.eligible_leader_replicas) == (3, [3], [])


def test_a_replica_that_was_moved_away_is_no_longer_eligible() -> None:
    """Seed 101212: moved away it deleted its log, moved back it was elected with an empty one, and all that was acknowledged
    was cut off the others."""
    state = {"replicas": (3, 1, 2), "isr": (2,), "leader": 2, "eligible_leader_replicas": (1,)}
    partition = Partition(elr=True, adding_replicas=(3,), removing_replicas=(2,), **state)
    record = partition.change(isr=(2, 3))
    assert record is not None
    assert (record.replicas, record.isr, record.leader) == ([3, 1], [3], 3)
    assert record.eligible_leader_replicas is None  # broker 1, as before


def test_a_partition_whose_only_eligible_replica_was_moved_away_is_led_by_its_last_leader() -> None:
    """Seed 102223: it waited for ever for a broker that had no replica of it."""
    partition = Partition(elr=True, isr=(), leader=-1, eligible_leader_replicas=(4,), last_known_elr=(2,))
    record = partition.change()
    assert record is not None
    assert (record.leader, record.eligible_leader_replicas, record.last_known_elr) == (2, [], [])


def test_nor_does_a_last_leader_lead_that_was_moved_away() -> None:
    assert Partition(elr=True, isr=(), leader=-1, last_known_elr=(4,)).change() is None


def test_the_last_leader_is_remembered_and_leads_if_nobody_is_eligible() -> None:
    lost = Partition(elr=True, fenced=(1,), isr=(1,)).change(isr=(), unclean_shutdowns=(1,))
    assert lost is not None
    assert (lost.leader, lost.isr, lost.eligible_leader_replicas, lost.last_known_elr) == (-1, [], None, [1])
    found = Partition(elr=True, isr=(), leader=-1, last_known_elr=(1,)).change()
    assert found is not None
    assert (found.leader, found.isr, found.leader_recovery_state, found.last_known_elr) == (1, [1], 1, [])


def test_when_the_feature_is_off_who_was_eligible_is_forgotten() -> None:
    record = Partition(isr=(1,), eligible_leader_replicas=(2,)).change(isr=(1, 3))
    assert record is not None
    assert record.eligible_leader_replicas == []


def test_a_dropped_replica_raises_the_leader_epoch() -> None:
    record = Partition().change(replicas=(1, 2), isr=(1, 2))
    assert record is not None
    assert (record.leader, record.replicas) == (1, [1, 2])


def test_a_reassignment_is_complete_when_the_new_replicas_are_in_sync() -> None:
    moving: dict[str, Any] = {"replicas": (3, 4, 1, 2), "adding_replicas": (3, 4), "removing_replicas": (1, 2)}
    partition = Partition(isr=(1, 2), directories=(UNASSIGNED_DIRECTORY,) * 4, **moving)
    half = partition.change(isr=(1, 2, 3))
    assert half is not None
    assert half.replicas is None
    whole = partition.change(isr=(2, 3, 4))
    assert whole is not None
    assert (whole.replicas, whole.isr, whole.leader) == ([3, 4], [3, 4], 3)
    assert (whole.adding_replicas, whole.removing_replicas, whole.directories) == ([], [], [UNASSIGNED_DIRECTORY] * 2)


def test_a_lost_directory_cannot_lead() -> None:
    directories = (LOST_DIRECTORY, uuid("gone"), uuid("directory 3"))
    record = Partition(directories=directories).change()
    assert record is not None
    assert record.leader == 3


def test_which_directories_are_online() -> None:
    broker = BrokerState(1, 1, uuid("i"), log_dirs=(uuid("a"), uuid("b")))
    online = [
        is_online(broker, one) for one in (uuid("a"), uuid("c"), LOST_DIRECTORY, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)
    ]
    assert online == [True, False, False, True, True]
    assert is_online(BrokerState(1, 1, uuid("i")), uuid("any"))


def test_where_a_new_replica_goes() -> None:
    def of(*directories: str) -> BrokerState:
        return BrokerState(1, 1, uuid("i"), log_dirs=tuple(map(uuid, directories)))

    assert directory_of_new(of("a")) == uuid("a")
    assert directory_of_new(of("a", "b")) == UNASSIGNED_DIRECTORY
    assert directory_of_new(of()) == MIGRATING_DIRECTORY
