"""What becomes of partitions when brokers come and go."""

from __future__ import annotations

import pytest
from unit.metadata.clusters import TestCluster, uuid
from unit.metadata.controller.test_brokers import registration

from pybroker.metadata.controller.features import ELR_VERSION, METADATA_VERSION
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import BrokerRegistrationChangeRecord, FeatureLevelRecord, PartitionChangeRecord
from pybroker.protocol.messages.cluster import BrokerHeartbeatRequest, Feature, UnregisterBrokerRequest


def cluster_with_elr(*brokers: int) -> TestCluster:
    cluster = TestCluster(brokers)
    cluster.replay(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
    return cluster


def fence(cluster: TestCluster, *brokers: int) -> None:
    cluster.heartbeat(*brokers, want_fence=True)


def test_leaders_are_elected_from_the_isr_in_the_order_of_the_replicas() -> None:
    cluster = TestCluster((1, 2, 3))
    cluster.assign("t", [1, 2, 3], [1, 3, 2], [2, 1, 3])
    fence(cluster, 1)
    assert cluster.leaders("t") == [2, 3, 2]
    assert [cluster.partition("t", index).isr for index in range(3)] == [(2, 3), (3, 2), (2, 3)]
    assert [cluster.partition("t", index).leader_epoch for index in range(3)] == [1, 1, 0]


def test_a_broker_leaves_its_partitions_before_it_is_fenced_and_is_unfenced_before_it_leads() -> None:
    cluster = TestCluster((1,))
    cluster.assign("t", [1])
    order = []
    for want_fence in (True, False):
        request = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=10, current_metadata_offset=100, want_fence=want_fence, want_shut_down=False
        )
        records = cluster.handle(request).records
        order.append([type(record) for record in records])
        cluster.replay(*records)
    assert order == [
        [PartitionChangeRecord, BrokerRegistrationChangeRecord],
        [BrokerRegistrationChangeRecord, PartitionChangeRecord],
    ]


def test_the_last_in_sync_stays_so_and_leads_again() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2])
    fence(cluster, 2, 1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (-1, (1,))
    cluster.heartbeat(2)
    assert cluster.leaders("t") == [-1]
    cluster.heartbeat(1)
    assert (cluster.leaders("t"), cluster.partition("t").leader_epoch) == ([1], 2)


def test_an_unclean_leader_where_the_topic_allows_it() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2], unclean_leader_election_enable="true")
    fence(cluster, 2, 1)
    cluster.heartbeat(2)
    state = cluster.partition("t")
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), 1)


def test_an_unclean_leader_where_the_cluster_allows_it() -> None:
    cluster = TestCluster((1, 2), unclean_leader_election_enable="true")
    cluster.assign("t", [1, 2])
    cluster.assign("strict", [1, 2], unclean_leader_election_enable="false")
    fence(cluster, 2, 1)
    cluster.heartbeat(2)
    assert (cluster.leaders("t"), cluster.leaders("strict")) == ([2], [-1])


# Controlled shutdown.


def test_a_broker_shuts_down_when_it_leads_nothing_and_all_others_know() -> None:
    cluster = TestCluster((1, 2, 3))
    cluster.assign("t", [1, 2, 3], [2, 1, 3])
    cluster.heartbeat(1, 2, 3)
    first = cluster.heartbeat(1, want_shut_down=True)
    assert (first.should_shut_down, first.is_fenced) == (False, False)
    assert cluster.leaders("t") == [2, 2]
    assert [cluster.partition("t", index).isr for index in (0, 1)] == [(2, 3), (2, 3)]
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(2)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(3)
    last = cluster.heartbeat(1, want_shut_down=True)
    assert (last.should_shut_down, last.is_fenced) == (True, True)
    assert cluster.image.brokers[1].fenced


def test_a_controlled_shutdown_goes_on_under_another_controller() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2])
    cluster.heartbeat(1, want_shut_down=True)
    cluster.controller.start(cluster.now_ms)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_without_leaderships_goes_at_once() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [2, 1])
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.partition("t").isr == (2,)


def test_a_fenced_broker_goes_at_once_and_nothing_is_written() -> None:
    cluster = TestCluster((1, 2))
    fence(cluster, 1)
    offset = cluster.image.offset
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.image.offset == offset


def test_the_last_broker_may_shut_down_too() -> None:
    cluster = TestCluster((1,))
    cluster.assign("t", [1])
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert (cluster.leaders("t"), cluster.partition("t").isr) == ([-1], (1,))


# Registration.


def test_a_broker_is_unfenced_when_it_has_read_its_registration() -> None:
    cluster = TestCluster((1,))
    cluster.assign("t", [1])
    cluster.heartbeat(1)
    cluster.pass_time(9001)
    epoch = cluster.ask(registration(1)).broker_epoch
    behind = cluster.heartbeat(1, current_metadata_offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    there = cluster.heartbeat(1, current_metadata_offset=cluster.image.offset)
    assert (there.is_caught_up, there.is_fenced) == (True, False)


@pytest.mark.parametrize(
    ("features", "code"),
    [
        ([Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=29)], ErrorCode.UNSUPPORTED_VERSION),
        ([Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30)], ErrorCode.UNSUPPORTED_VERSION),
        ([Feature(name="x", min_supported_version=0, max_supported_version=2)], ErrorCode.INVALID_REGISTRATION),
        (
            [
                Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30),
                Feature(name="x", min_supported_version=0, max_supported_version=2),
                Feature(name="y", min_supported_version=1, max_supported_version=1),
            ],
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_a_broker_must_support_every_level_that_is_finalized(features: list[Feature], code: ErrorCode) -> None:
    cluster = TestCluster((1,))
    cluster.replay(FeatureLevelRecord(name="x", feature_level=2))
    assert cluster.ask(registration(7, features=features)).error_code == code


def test_an_unclean_restart_takes_the_broker_out_of_the_eligible_leaders() -> None:
    cluster = cluster_with_elr(1, 2)
    cluster.assign("t", [1, 2], min_insync_replicas="2")
    fence(cluster, 2)
    assert cluster.partition("t").eligible_leader_replicas == (2,)
    epoch = cluster.image.brokers[2].epoch
    cluster.pass_time(9001, 1)
    features = [
        Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30),
        Feature(name=ELR_VERSION, min_supported_version=0, max_supported_version=1),
    ]
    clean = cluster.handle(registration(2, previous_broker_epoch=epoch, features=features))
    assert [type(record).__name__ for record in clean.records] == ["RegisterBrokerRecord"]
    cluster.ask(registration(2, features=features))
    assert cluster.partition("t").eligible_leader_replicas == ()


def test_an_unregistered_broker_leaves_everything() -> None:
    cluster = TestCluster((1, 2))
    cluster.assign("t", [1, 2])
    assert cluster.ask(UnregisterBrokerRequest(broker_id=1)).error_code == ErrorCode.NONE
    assert (cluster.leaders("t"), cluster.partition("t").isr, list(cluster.image.brokers)) == ([2], (2,), [2])
    assert cluster.ask(UnregisterBrokerRequest(broker_id=1)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.heartbeat(1).error_code == ErrorCode.STALE_BROKER_EPOCH


# Directories.


def two_directories(cluster: TestCluster) -> None:
    epoch = cluster.image.brokers[1].epoch
    directories = [uuid("kept"), uuid("lost")]
    cluster.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, log_dirs=directories))
    cluster.assign("t", [1, 2], [1, 2])
    topic_id = cluster.image.topics["t"].topic_id
    for index, directory in enumerate(directories):
        both = [directory, uuid("directory 2")]
        cluster.replay(PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=both))


def test_partitions_leave_a_directory_that_is_lost() -> None:
    cluster = TestCluster((1, 2))
    two_directories(cluster)
    cluster.heartbeat(1, offline_log_dirs=[uuid("lost"), uuid("never heard of")])
    assert cluster.leaders("t") == [1, 2]
    assert [cluster.partition("t", index).isr for index in (0, 1)] == [(1, 2), (2,)]
    assert cluster.image.brokers[1].log_dirs == (uuid("kept"),)
    offset = cluster.image.offset
    cluster.heartbeat(1, offline_log_dirs=[uuid("lost")])
    assert cluster.image.offset == offset


def test_a_broker_that_comes_back_with_a_lost_directory_leads_only_what_it_still_has() -> None:
    cluster = TestCluster((1, 2))
    two_directories(cluster)
    fence(cluster, 2, 1)
    assert cluster.leaders("t") == [-1, -1]
    cluster.heartbeat(1, offline_log_dirs=[uuid("lost")])
    assert cluster.leaders("t") == [1, -1]


def test_directories_are_cordoned_off_and_opened_again() -> None:
    cluster = TestCluster((1, 2))
    cluster.heartbeat(1, cordoned_log_dirs=[uuid("directory 1")])
    assert cluster.image.brokers[1].cordoned_log_dirs == (uuid("directory 1"),)
    cluster.create("t", 2)
    assert cluster.leaders("t") == [2, 2]
    offset = cluster.image.offset
    cluster.heartbeat(1, cordoned_log_dirs=[uuid("directory 1")])
    cluster.heartbeat(1)
    assert cluster.image.offset == offset
    cluster.heartbeat(1, cordoned_log_dirs=[])
    assert cluster.image.brokers[1].cordoned_log_dirs == ()
