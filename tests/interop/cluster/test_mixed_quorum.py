"""A metadata quorum of two of our controllers and one of Apache Kafka's: they elect one another, follow one another's log, and
any one of them may be missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from interop.cluster.mixed import APACHE, BROKER, CONTROLLER, OURS, WAIT_S, Nodes, mixed
from interop.cluster.test_mixed_nodes import finalized
from support.waiting import wait_until

from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

PATIENCE = {"controller.quorum.fetch.timeout.ms": "2000", "controller.quorum.election.timeout.ms": "1000"}
OF_APACHE = 3


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    kinds = {1: (OURS, CONTROLLER), 2: (OURS, CONTROLLER), OF_APACHE: (APACHE, CONTROLLER), 11: (OURS, BROKER)}
    with mixed(tmp_path_factory.mktemp("mixed-quorum"), kinds, PATIENCE) as nodes:
        nodes.start()
        yield nodes


def ends(nodes: Nodes) -> dict[int, int]:
    """How far each voter has the log, as the leader knows it."""
    row = nodes.quorum_seen_by(nodes.leader()[0])
    return {} if row is None else {one.replica_id: one.log_end_offset for one in row.current_voters}


def wait_until_level(nodes: Nodes) -> None:
    def are_level() -> bool:
        found = ends(nodes)
        return len(found) == 3 and max(found.values()) - min(found.values()) <= 1

    wait_until(are_level, WAIT_S, lambda: f"{ends(nodes)}\n{nodes.last_words()}")


def create(nodes: Nodes, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])

    def is_made() -> bool:
        (answer,) = nodes[11].ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
        return answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    wait_until(is_made, WAIT_S, nodes.last_words)
    nodes.wait_for_topic(name)


def make_one_lead(nodes: Nodes, wanted: set[int]) -> tuple[int, int]:
    """Kill leaders until one of these leads; its id and epoch."""
    for _ in range(20):
        leader, epoch = nodes.leader()
        if leader in wanted:
            return leader, epoch
        wait_until_level(nodes)
        nodes[leader].stop(clean=False)
        nodes.leader(newer_than=epoch)
        nodes[leader].start()
    raise AssertionError(f"none of {wanted} was ever elected\n{nodes.last_words()}")


def test_all_have_the_same_log(nodes: Nodes) -> None:
    create(nodes, "first")
    wait_until_level(nodes)

    def levels() -> dict[int, dict[str, int]]:
        return {node_id: finalized(nodes[node_id].controller) for node_id in nodes.controllers}

    # What they have is known; when each has taken it in, they tell.
    wait_until(lambda: len({frozenset(one.items()) for one in levels().values()}) == 1, WAIT_S, lambda: f"{levels()}")


@pytest.mark.parametrize("lost", [1, 2, OF_APACHE])
def test_each_may_be_killed_in_turn(nodes: Nodes, lost: int) -> None:
    wait_until_level(nodes)
    _, epoch = nodes.leader()
    nodes[lost].stop(clean=False)
    leader, _ = nodes.leader()
    assert leader != lost
    create(nodes, f"without-{lost}")
    nodes[lost].start()
    wait_until_level(nodes)
    assert nodes.leader()[1] >= epoch
    assert {"first", f"without-{lost}"} <= nodes.topics_at(11)


@pytest.mark.parametrize("wanted", [{OF_APACHE}, {1, 2}], ids=["Apache's", "ours"])
def test_either_make_leads_the_other(nodes: Nodes, wanted: set[int]) -> None:
    leader, epoch = make_one_lead(nodes, wanted)
    create(nodes, f"led-by-{leader}-in-{epoch}")
    wait_until_level(nodes)
    # What it wrote is the others' when it is gone; it hands over, so that they need not wait for a timeout.
    nodes[leader].stop()
    create(nodes, f"after-{leader}-in-{epoch}")
    nodes[leader].start()
    wait_until_level(nodes)
    assert {"first", f"led-by-{leader}-in-{epoch}", f"after-{leader}-in-{epoch}"} <= nodes.topics_at(11)


def test_what_they_wrote_of_one_anothers_is_the_same_to_the_byte(nodes: Nodes) -> None:
    wait_until_level(nodes)
    nodes[11].stop()
    files = [nodes[node_id].data_dir / "__cluster_metadata-0" / f"{0:020}.log" for node_id in nodes.controllers]
    for node_id in nodes.controllers:
        nodes[node_id].stop()
    first, *others = (file.read_bytes() for file in files)
    for other in others:
        length = min(len(first), len(other))
        assert length > 1_000
        assert first[:length] == other[:length]
