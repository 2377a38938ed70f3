"""A cluster of several brokers under our controller and under Apache Kafka's: the same answers, the same partitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from interop.apache_broker import ApacheBroker
from interop.metadata.two_controllers import TwoControllers, directory

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages import cluster

# Nothing is fenced because time passes.
PATIENT = {"broker.session.timeout.ms": "600000", "auto.leader.rebalance.enable": "false"}
PREFERRED, UNCLEAN = 0, 1
NONE = ErrorCode.NONE
NOBODYS = 999_999

names = (f"topic-{number}" for number in count())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoControllers]:
    without = ("--feature", "eligible.leader.replicas.version=0")
    with ApacheBroker(tmp_path_factory.mktemp("plain"), PATIENT, format_options=without) as broker:
        yield with_brokers(TwoControllers(broker, has_elr=False))


@pytest.fixture(scope="module")
def elr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoControllers]:
    with ApacheBroker(tmp_path_factory.mktemp("elr"), PATIENT) as broker:
        yield with_brokers(TwoControllers(broker, has_elr=True))


def with_brokers(both: TwoControllers) -> TwoControllers:
    for broker_id in (11, 12, 13, 14):
        assert both.register(broker_id, directories=2)["error_code"] == NONE
    both.unfence(11, 12, 13, 14)
    return both


def test_registrations_and_heartbeats(plain: TwoControllers) -> None:
    both = plain
    assert both.register(21)["error_code"] == NONE
    assert both.heartbeat(21, current_metadata_offset=0) == {
        "error_code": NONE, "is_caught_up": False, "is_fenced": True, "should_shut_down": False
    }  # fmt: skip
    both.unfence(21)
    # Not there, another epoch, another cluster; the id of a process that lives.
    assert both.heartbeat(99)["error_code"] == ErrorCode.STALE_BROKER_EPOCH
    assert both.heartbeat(21, broker_epoch=NOBODYS)["error_code"] == ErrorCode.STALE_BROKER_EPOCH
    assert both.register(22, cluster_id="another")["error_code"] == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert both.register(21, incarnation=1)["error_code"] == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    # The same process registers again, and is what it was.
    assert both.register(21)["error_code"] == NONE
    assert not both.heartbeat(21)["is_fenced"]
    # Directories and features.
    for log_dirs in ([], [ZERO_UUID], [directory(22), directory(22)], [directory(11)]):
        assert both.register(22, log_dirs=log_dirs)["error_code"] == ErrorCode.INVALID_REGISTRATION
    old = cluster.Feature(name="metadata.version", min_supported_version=7, max_supported_version=29)
    assert both.register(22, features=[old])["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert both.register(22, features=[])["error_code"] in (ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION)
    # Out it goes.
    assert both.unregister(21)["error_code"] == NONE
    assert both.unregister(21)["error_code"] == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert both.heartbeat(21)["error_code"] == ErrorCode.STALE_BROKER_EPOCH


def test_fenced_brokers_lose_their_partitions(plain: TwoControllers) -> None:
    both, topic, alone = plain, next(names), next(names)
    assert both.create(topic, [11, 12, 13], [12, 13, 11]) == NONE
    assert both.create(alone, [13]) == NONE

    def leaders() -> list[int]:
        return [both.partition(topic, 0).leader, both.partition(topic, 1).leader, both.partition(alone).leader]

    both.fence(13)
    assert leaders() == [11, 12, -1]
    both.fence(11)
    assert leaders() == [12, 12, -1]
    both.fence(12)
    assert leaders() == [-1, -1, -1]
    assert both.partition(topic).isr == (12,)  # the last one stays in sync
    both.unfence(13)
    assert leaders() == [-1, -1, 13]
    both.unfence(12, 11)
    assert leaders() == [12, 12, 13]


def test_an_unclean_election_where_the_topic_allows_it(plain: TwoControllers) -> None:
    both, topic = plain, next(names)
    assert both.create(topic, [11, 12], configs={"unclean.leader.election.enable": "true"}) == NONE
    both.fence(12, 11)
    assert both.partition(topic).leader == -1
    both.unfence(12)
    assert (both.partition(topic).leader, both.partition(topic).leader_recovery_state) == (12, 1)
    both.unfence(11)
    # A leader that recovers is alone until it says that it has.
    assert both.alter_isr(topic, [12, 11], leader_recovery_state=1)["error_code"] == ErrorCode.INVALID_REQUEST
    assert both.alter_isr(topic, [12, 11])["error_code"] == NONE
    assert both.alter_isr(topic, [12, 11], leader_recovery_state=1)["error_code"] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [2, 3])
def test_alter_partition(plain: TwoControllers, version: int) -> None:
    both, topic = plain, next(names)
    assert both.create(topic, [11, 12, 13]) == NONE
    state = both.partition(topic)
    assert both.alter_isr(topic, [11, 12], version=version)["isr"] == [11, 12]
    assert both.partition(topic).leader_epoch == state.leader_epoch
    assert both.alter_isr(topic, [11, 12, 13], version=version)["error_code"] == NONE
    assert both.alter_isr(topic, [11, 12, 13], version=version)["error_code"] == NONE
    epoch, partition_epoch = both.partition(topic).leader_epoch, both.partition(topic).partition_epoch
    for changes, code in (
        ({"leader_epoch": epoch + 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": partition_epoch + 1}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": epoch - 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": partition_epoch - 1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"by": 12}, ErrorCode.INVALID_REQUEST),
        ({"broker_epoch": NOBODYS}, ErrorCode.STALE_BROKER_EPOCH),
        ({"topic_id": Uuid(b"no such topic id")}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        assert both.alter_isr(topic, [11], version=version, **changes)["error_code"] == code, changes
    for isr in ([12, 13], [11, 14], [11, 11], []):
        assert both.alter_isr(topic, isr, version=version)["error_code"] == ErrorCode.INVALID_REQUEST, isr
    both.fence(13)
    assert both.alter_isr(topic, [11, 12, 13], version=version)["error_code"] == ErrorCode.INELIGIBLE_REPLICA
    both.unfence(13)
    assert both.alter_isr(topic, [11, 12, 13], version=version)["error_code"] == NONE


def test_elections(plain: TwoControllers) -> None:
    both, topic = plain, next(names)
    alone = next(names)
    assert both.create(topic, [11, 12], [12, 11]) == NONE
    assert both.create(alone, [11]) == NONE
    both.fence(11)
    assert both.partition(topic).leader == 12
    row = both.elect(PREFERRED, (topic, [0, 1, 9]), (alone, [0]), ("nobody", [0]))["replica_election_results"]
    codes = {(one["topic"], two["partition_id"]): two["error_code"] for one in row for two in one["partition_result"]}
    assert codes == {
        (topic, 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        (topic, 1): ErrorCode.ELECTION_NOT_NEEDED,
        (alone, 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        (topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nobody", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    rows = both.elect(UNCLEAN, (topic, [0]), (alone, [0]))["replica_election_results"]
    codes = {one["topic"]: one["partition_result"][0]["error_code"] for one in rows}
    assert codes == {topic: ErrorCode.ELECTION_NOT_NEEDED, alone: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    both.unfence(11)
    assert both.alter_isr(topic, [12, 11])["error_code"] == NONE
    assert both.elect(PREFERRED, (topic, [0]))["error_code"] == NONE
    assert both.partition(topic).leader == 11
    assert both.elect(7, (topic, [0]))["error_code"] == ErrorCode.INVALID_REQUEST


def test_an_unclean_election_on_an_operators_word(plain: TwoControllers) -> None:
    both, topic = plain, next(names)
    assert both.create(topic, [11, 12]) == NONE
    both.fence(12, 11)
    both.unfence(12)
    assert both.partition(topic).leader == -1
    both.elect(UNCLEAN, (topic, [0]))
    assert (both.partition(topic).leader, both.partition(topic).isr) == (12, (12,))
    both.unfence(11)


def test_reassignment(plain: TwoControllers) -> None:
    both, topic = plain, next(names)
    assert both.create(topic, [11, 12], [13, 14]) == NONE
    assert both.reassign(topic, [13, 14]) == NONE
    assert both.partition(topic).replicas == (13, 14, 11, 12)
    (listed,) = both.reassignments(of_all=True)
    assert listed["partitions"][0]["adding_replicas"] == [13, 14]
    assert both.reassignments((topic, [0, 1, 7]), ("nobody", [0])) == [listed]
    # Half of the new ones, all of them.
    assert both.alter_isr(topic, [11, 12, 13])["error_code"] == NONE
    assert both.partition(topic).is_reassigning
    assert both.alter_isr(topic, [11, 12, 13, 14])["error_code"] == ErrorCode.NEW_LEADER_ELECTED
    assert (both.partition(topic).replicas, both.partition(topic).leader) == ((13, 14), 13)
    assert both.reassignments(of_all=True) == []
    # Another order is done at once.
    assert both.reassign(topic, [14, 13]) == NONE
    assert not both.partition(topic).is_reassigning
    # One replica less, when the others are in sync.
    assert both.reassign(topic, [13]) == NONE
    assert both.partition(topic).replicas == (13,)


def test_a_reassignment_over_another_and_its_end(plain: TwoControllers) -> None:
    both, topic = plain, next(names)
    assert both.create(topic, [11, 12]) == NONE
    assert both.reassign(topic, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert both.reassign(topic, [13, 12]) == NONE
    assert both.reassign(topic, [14, 12]) == NONE
    assert both.alter_isr(topic, [11, 12, 13])["error_code"] == NONE
    assert both.reassign(topic, None) == NONE
    assert not both.partition(topic).is_reassigning
    for replicas in ([], [11, 11], [11, 99]):
        assert both.reassign(topic, replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert both.reassign(topic, [11], index=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert both.reassign("nobody", [11]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert both.reassign(topic, [11], may_change_count=False) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_cancelled_reassignment_must_not_lose_records(plain: TwoControllers) -> None:
    both, topic = plain, next(names)
    assert both.create(topic, [11]) == NONE
    assert both.reassign(topic, [12, 13]) == NONE
    assert both.alter_isr(topic, [11, 12])["error_code"] == NONE
    both.fence(11)
    assert both.partition(topic).isr == (12,)
    assert both.reassign(topic, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    both.unfence(11)


def test_controlled_shutdown(plain: TwoControllers) -> None:
    both, topic = plain, next(names)
    assert both.create(topic, [14, 13], [13, 14]) == NONE
    first = both.heartbeat(14, want_shut_down=True)
    assert (first["should_shut_down"], first["is_fenced"]) == (False, False)
    assert both.partition(topic).leader == 13
    assert both.alter_isr(topic, [13, 14])["error_code"] == ErrorCode.INELIGIBLE_REPLICA
    assert both.create(next(names), [14]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    # The others have not seen it all, then they have.
    both.heartbeat(12, current_metadata_offset=0)
    assert not both.heartbeat(14, want_shut_down=True)["should_shut_down"]
    for broker_id in (11, 12, 13):
        both.heartbeat(broker_id)
    last = both.shut_down(14)
    assert (last["should_shut_down"], last["is_fenced"]) == (True, True)


def test_a_lost_directory(plain: TwoControllers) -> None:
    both, topic = plain, next(names)
    assert both.create(topic, [12, 13], [13, 12]) == NONE
    lost, kept = directory(12, 0), directory(12, 1)
    assert both.assign(12, lost, topic) == NONE
    assert both.assign(12, kept, topic, 1) == NONE
    assert both.assign(12, kept, topic, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert both.assign(11, directory(11), topic) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert both.assign(12, kept, topic, topic_id=Uuid(b"no such topic id")) == ErrorCode.UNKNOWN_TOPIC_ID
    assert both.assign(12, kept, topic, broker_epoch=NOBODYS) == ErrorCode.STALE_BROKER_EPOCH
    both.heartbeat(12, offline_log_dirs=[lost])
    assert (both.partition(topic).leader, both.partition(topic).isr) == (13, (13,))
    assert both.partition(topic, 1).isr == (13, 12)


# Eligible leader replicas.


def test_who_left_the_isr_below_its_minimum_may_lead_again(elr: TwoControllers) -> None:
    both, topic = elr, next(names)
    assert both.create(topic, [11, 12, 13], configs={"min.insync.replicas": "2"}) == NONE
    both.fence(13)
    assert both.partition(topic).eligible_leader_replicas == ()
    both.fence(12)
    assert (both.partition(topic).isr, both.partition(topic).eligible_leader_replicas) == ((11,), (12,))
    both.fence(11)
    assert (both.partition(topic).isr, both.partition(topic).eligible_leader_replicas) == ((), (11, 12))
    assert both.partition(topic).last_known_elr == (11,)
    both.unfence(13)
    assert both.partition(topic).leader == -1
    both.unfence(12)
    assert (both.partition(topic).leader, both.partition(topic).isr) == (12, (12,))
    both.unfence(11)
    assert both.alter_isr(topic, [12, 11])["error_code"] == NONE
    assert both.partition(topic).eligible_leader_replicas == ()


def test_an_unclean_restart_is_not_eligible(elr: TwoControllers) -> None:
    both, topic = elr, next(names)
    assert both.create(topic, [11, 14], configs={"min.insync.replicas": "2"}) == NONE
    assert both.heartbeat(14, want_fence=True)["is_fenced"]
    assert both.partition(topic).eligible_leader_replicas == (14,)
    assert both.unregister(14)["error_code"] == NONE
    assert both.register(14, directories=2, incarnation=1)["error_code"] == NONE
    assert both.partition(topic).eligible_leader_replicas == ()
    both.unfence(14)


def test_the_last_leader_leads_when_nobody_is_eligible(elr: TwoControllers) -> None:
    both, topic = elr, next(names)
    assert both.create(topic, [14]) == NONE
    both.fence(14)
    assert (both.partition(topic).isr, both.partition(topic).eligible_leader_replicas) == ((), (14,))
    assert both.unregister(14)["error_code"] == NONE
    assert both.register(14, directories=2, incarnation=2)["error_code"] == NONE
    assert (both.partition(topic).eligible_leader_replicas, both.partition(topic).last_known_elr) == ((), (14,))
    both.unfence(14)
    assert (both.partition(topic).leader, both.partition(topic).leader_recovery_state) == (14, 1)
