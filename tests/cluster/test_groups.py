"""Groups in a cluster of real processes: the coordinator moves, and neither members nor offsets are lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from cluster.groups import (
    PARTITIONS,
    PROPERTIES,
    ROLES,
    WAIT_S,
    committed,
    coordinator,
    create_topic,
    described,
    members_of,
    produce,
    state_of,
)
from cluster.processes import Cluster, cluster
from interop.clients.group_members import (
    SERVER_SIDE,
    shared_ownerships,
    wait_for_even_shares,
    wait_for_records,
    wait_for_shares,
)
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from pybroker.protocol.messages import groups


@pytest.mark.parametrize("name", ["kafka-python", "confluent-kafka", "aiokafka"])
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_coordinators_broker_goes_and_the_group_goes_on(tmp_path: Path, name: str, how: str) -> None:
    with cluster(tmp_path, ROLES, PROPERTIES) as nodes:
        nodes.start()
        create_topic(nodes, "t")
        first, second = members_of(nodes, "t", name, 2)
        with first, second:
            wait_for_shares(PARTITIONS, first, second)
            wait_for_records(produce(nodes, "t"), first, second)
            wait_until(lambda: committed(nodes, "t") == dict.fromkeys(range(PARTITIONS), 5), WAIT_S, lambda: "not committed")
            old = coordinator(nodes, "t")
            old.kill() if how == "kill" else old.stop()
            assert coordinator(nodes, "t").id != old.id
            before = committed(nodes, "t")
            assert all(before[partition] >= 5 for partition in range(PARTITIONS))
            wait_for_records(produce(nodes, "t"), first, second)
            wait_for_shares(PARTITIONS, first, second)
            old.start()
            old.wait_ready()
            wait_for_records(produce(nodes, "t"), first, second)
        read = sorted(place for member in (first, second) for place in member.records)
        assert set(read) >= {(partition, offset) for partition in range(PARTITIONS) for offset in range(15)}


@pytest.mark.parametrize(
    ("name", "assignor"), [("kafka-python", "range"), ("confluent-kafka", "range"), ("confluent-kafka", "cooperative-sticky")]
)
def test_the_coordinator_is_killed_in_the_middle_of_a_rebalance(tmp_path: Path, name: str, assignor: str) -> None:
    with cluster(tmp_path, ROLES, PROPERTIES) as nodes:
        nodes.start()
        create_topic(nodes, "t")
        first, second, third = members_of(nodes, "t", name, 3, assignor)
        with first, second:
            wait_for_shares(PARTITIONS, first, second)
            wait_for_records(produce(nodes, "t"), first, second)
            wait_until(lambda: committed(nodes, "t") == dict.fromkeys(range(PARTITIONS), 5), WAIT_S, lambda: "not committed")
            with third:
                wait_until(lambda: state_of(nodes, "t") == "PreparingRebalance", WAIT_S, lambda: "there is no rebalance")
                coordinator(nodes, "t").kill()
                wait_for_shares(PARTITIONS, first, second, third)
                wait_for_records(produce(nodes, "t"), first, second, third)
                found = committed(nodes, "t")
                assert all(found[partition] >= 5 for partition in range(PARTITIONS)), found
                wait_until(lambda: state_of(nodes, "t") == "Stable", WAIT_S, lambda: f"it is {state_of(nodes, 't')}")
                assert shared_ownerships(first, second, third) == []


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_the_coordinator_is_killed_while_the_group_waits_for_its_leader_to_assign(tmp_path: Path, assignor: str) -> None:
    """The leader, which the test plays, dies with it. Of the generation that had begun the log knows nothing."""
    with cluster(tmp_path, ROLES, PROPERTIES) as nodes:
        nodes.start()
        create_topic(nodes, "t")
        leader = ScriptedLeader(nodes, "t", assignor)
        leader.join()
        leader.sync()
        members = members_of(nodes, "t", "confluent-kafka", 2, assignor)
        with members[0], members[1]:
            leader.wait_for_members(3)
            leader.join()
            assert state_of(nodes, "t") == "CompletingRebalance"
            coordinator(nodes, "t").kill()
            wait_for_even_shares(PARTITIONS, *members)
            wait_for_records(produce(nodes, "t"), *members)
            wait_until(lambda: committed(nodes, "t") == dict.fromkeys(range(PARTITIONS), 5), WAIT_S, lambda: "not committed")
            wait_until(lambda: state_of(nodes, "t") == "Stable", WAIT_S, lambda: f"it is {state_of(nodes, 't')}")
            assert shared_ownerships(*members) == []


class ScriptedLeader:
    """The first member of a group, request by request."""

    def __init__(self, nodes: Cluster, group: str, protocol: str) -> None:
        self._nodes = nodes
        self._group = group
        self._protocol = protocol
        self._id = ""
        self._generation = -1

    def join(self) -> None:
        metadata = b"\0\0" + ConsumerProtocolSubscription(topics=[self._group]).encode(0)
        request = groups.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=30_000,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[groups.JoinGroupRequestProtocol(name=self._protocol, metadata=metadata)],
        )
        is_there = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
        answer = wait_until(
            lambda: one if (one := self._ask(request)).error_code in is_there else None, WAIT_S, lambda: "it cannot join"
        )
        self._id, self._generation = answer.member_id, answer.generation_id
        if answer.error_code:
            self.join()
        else:
            assert answer.leader == self._id, answer

    def sync(self) -> None:
        request = groups.SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._id,
            protocol_type="consumer",
            protocol_name=self._protocol,
            assignments=[groups.SyncGroupRequestAssignment(member_id=self._id, assignment=b"")],
        )
        assert self._ask(request).error_code == ErrorCode.NONE

    def wait_for_members(self, count: int) -> None:
        """Until all of them are there and it is the one that they wait for."""
        heartbeat = groups.HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._id)
        described = groups.DescribeGroupsRequest(groups=[self._group])

        def are_there() -> bool:
            self._ask(heartbeat)
            return len(self._ask(described).groups[0].members) == count

        wait_until(are_there, WAIT_S, lambda: f"{self._ask(described)}")

    def _ask(self, request: Any) -> Any:
        with coordinator(self._nodes, self._group).client() as client:
            return client.ask(request)


@pytest.mark.parametrize("round_", range(2))
def test_the_coordinator_is_killed_while_consumers_of_the_new_protocol_reconcile(tmp_path: Path, round_: int) -> None:
    """KIP-848: some have given up what others are to get when the coordinator dies; its heir knows all of it from the log."""
    with cluster(tmp_path, ROLES, PROPERTIES) as nodes:
        nodes.start()
        create_topic(nodes, "t")
        first, second, third = members = members_of(nodes, "t", "confluent-kafka", 3, SERVER_SIDE)
        with first, second:
            wait_for_even_shares(PARTITIONS, first, second)
            wait_for_records(produce(nodes, "t"), first, second)
            wait_until(lambda: committed(nodes, "t") == dict.fromkeys(range(PARTITIONS), 5), WAIT_S, lambda: "not committed")
            before = described(nodes, "t").group_epoch
            watch = Watch(nodes, "t")
            with third, watch:
                # A member more, and not everybody has come to the new epoch: at its beginning, or in the midst of it.
                states = ("Assigning", "Reconciling") if round_ == 0 else ("Reconciling",)
                wait_until(lambda: described(nodes, "t").group_state in states, WAIT_S, lambda: "it does not reconcile")
                old = coordinator(nodes, "t")
                old.kill()
                found = committed(nodes, "t")
                assert all(found[partition] >= 5 for partition in range(PARTITIONS)), found
                wait_for_even_shares(PARTITIONS, *members)
                wait_for_records(produce(nodes, "t"), *members)
                wait_until(lambda: described(nodes, "t").group_state == "Stable", WAIT_S, lambda: f"{described(nodes, 't')}")
                row = described(nodes, "t")
                assert row.group_epoch > before
                assert {one.member_epoch for one in row.members} == {row.group_epoch}
                old.start()
                old.wait_ready()
                wait_for_records(produce(nodes, "t"), *members)
            assert watch.seen > 0
            assert watch.doubly_owned == []
            assert shared_ownerships(*members) == []
        read = {place for member in members for place in member.records}
        assert read >= {(partition, offset) for partition in range(PARTITIONS) for offset in range(15)}


class Watch:
    """Looks at a consumer group all the time: which partitions its coordinator has given to two members at once."""

    def __init__(self, nodes: Cluster, group: str) -> None:
        self.seen = 0
        self.doubly_owned: list[str] = []
        self._nodes = nodes
        self._group = group
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        while not self._is_over.wait(0.05):
            row = described(self._nodes, self._group)
            owned = [one for member in row.members for topic in member.assignment.topic_partitions for one in topic.partitions]
            self.seen += 1
            if len(owned) != len(set(owned)):
                self.doubly_owned.append(str(row))
