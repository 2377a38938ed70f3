"""Stock clients of other languages as members of a group on three nodes: they join, read, commit and leave, and go on when the
coordinator's broker is killed. Those of Python: tests/cluster/test_groups.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.groups import (
    PARTITIONS,
    PROPERTIES,
    ROLES,
    committed,
    coordinator,
    create_topic,
    members_of,
    produce,
    wait_for_commits,
)
from cluster.processes import cluster
from interop.clients.group_members import SERVER_SIDE, SETTLE_S, wait_for_even_shares, wait_for_records, wait_for_shares

# Longer than anything is waited for: whoever gets a share of one that has left gets it because that one has said so.
SESSION_MS = 2 * int(SETTLE_S * 1000)
SERVER_SIDE_PROPERTIES = {
    "group.consumer.max.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.mark.parametrize(
    ("name", "assignor", "max_poll_ms"),
    [
        ("java-4", "range", SESSION_MS),
        ("java-4", SERVER_SIDE, SESSION_MS),
        ("franz-go", "cooperative-sticky", SESSION_MS),
        # It never looks for another coordinator: it gives up and comes back as a new member, while a rebalance waits for the
        # old one.
        ("kafkajs", "roundrobin", 10_000),
    ],
    ids=["java-classic", "java-consumer", "franz-go", "kafkajs"],
)
def test_two_share_one_leaves_the_coordinator_is_killed_and_nothing_is_lost(
    tmp_path: Path, name: str, assignor: str, max_poll_ms: int
) -> None:
    with cluster(tmp_path, ROLES, PROPERTIES | SERVER_SIDE_PROPERTIES) as nodes:
        staying, leaving, late = members_of(nodes, "t", name, 3, assignor, session_ms=SESSION_MS, max_poll_ms=max_poll_ms)
        nodes.start()
        create_topic(nodes, "t")
        with staying:
            with leaving:
                wait_for_even_shares(PARTITIONS, staying, leaving)
                wait_for_records(produce(nodes, "t"), staying, leaving)
                wait_for_commits(nodes, "t")
            wait_for_shares(PARTITIONS, staying)
            wait_for_records(produce(nodes, "t"), staying)
            before = wait_for_commits(nodes, "t")

            old = coordinator(nodes, "t")
            old.kill()
            assert coordinator(nodes, "t").id != old.id
            assert committed(nodes, "t") == before
            read = len(staying.records)
            wait_for_records(produce(nodes, "t"), staying)
            wait_for_commits(nodes, "t")

            # The heir has all that its predecessor knew of the group, and takes in another member.
            with late:
                wait_for_even_shares(PARTITIONS, staying, late)
                wait_for_records(produce(nodes, "t"), staying, late)
                wait_for_commits(nodes, "t")
            again = [
                (partition, offset) for partition, offset in staying.records[read:] + late.records if offset < before[partition]
            ]
            assert again == [], "what was committed was read again"
