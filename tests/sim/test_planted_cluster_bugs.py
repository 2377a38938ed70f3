"""The simulator finds mistakes of the controller and of what drives it, too."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest

from pybroker.metadata.controller import brokers, leadership, reassignment
from pybroker.metadata.controller.decisions import Result
from pybroker.metadata.controller.partition_change import PartitionChange, PartitionRules, TopicRules
from pybroker.metadata.controller.view import View
from pybroker.metadata.image import TopicImage
from pybroker.protocol.internal.metadata_log import PartitionChangeRecord, RegisterBrokerRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.cluster import BrokerRegistrationRequest
from pybroker.protocol.messages.partitions import AlterPartitionReassignmentsRequest
from pybroker.server.quorum.loader import MetadataLoader
from pybroker.server.quorum.replica import MetadataReplica
from pybroker.server.quorum.store import Entry, MetadataStore
from pybroker.testing.sim.cluster_world import ClusterWorld

pytestmark = pytest.mark.sim

SEEDS = 200


def require_found(expected: str) -> None:
    for seed in range(SEEDS):
        error = ClusterWorld(seed, swarm=True).run().error
        if error is not None:
            print(f"seed {seed}: {error}")
            if re.search(expected, str(error)):
                return
    raise AssertionError(f"{SEEDS} seeds saw nothing of {expected!r}")


def test_an_answer_that_does_not_wait_for_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(replica: MetadataReplica) -> None:
        while replica._pending:
            one = replica._pending.popleft()
            one.done(one.response)

    monkeypatch.setattr(MetadataReplica, "_answer", answer)
    require_found("is not in the image|was given|expected one of|is in the image")


def test_a_flush_that_does_not_reach_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by what every node loads of its log, not by the first of them only."""

    def flush(store: MetadataStore, now_ms: int) -> int | None:
        is_dirty, store._is_dirty = store._is_dirty, False
        return store.end_offset if is_dirty else None

    monkeypatch.setattr(MetadataStore, "flush", flush)
    require_found("the committed batch at offset|told to truncate to|log matching")


def test_a_reassignment_is_complete_before_the_new_replicas_are_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    right = PartitionChange._complete_reassignment

    def complete(change: PartitionChange) -> None:
        if change._old.is_reassigning:
            change.isr = change.replicas
        right(change)

    monkeypatch.setattr(PartitionChange, "_complete_reassignment", complete)
    require_found("unclean election is not allowed")


def test_a_reassignment_that_is_answered_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reassignment.alter_partition_reassignments

    def alter(view: View, request: AlterPartitionReassignmentsRequest) -> Result:
        return right(view, request)._replace(records=[])

    monkeypatch.setattr(reassignment, "alter_partition_reassignments", alter)
    require_found("which nobody asked for")


def test_a_fenced_broker_goes_on_leading(monkeypatch: pytest.MonkeyPatch) -> None:
    right = leadership.fenced

    def fenced(view: View, broker_ids: Collection[int]) -> list[Message]:
        return [record for record in right(view, broker_ids) if not isinstance(record, PartitionChangeRecord)]

    monkeypatch.setattr(leadership, "fenced", fenced)
    require_found("is led by .*, which is fenced")


def test_an_unclean_election_where_it_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = PartitionRules.of_topic

    def of_topic(rules: PartitionRules, topic: TopicImage) -> TopicRules:
        return right(rules, topic)._replace(is_unclean_allowed=True)

    monkeypatch.setattr(PartitionRules, "of_topic", of_topic)
    require_found("unclean election is not allowed")


def test_two_brokers_get_the_same_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    right = brokers.register_broker

    def register_broker(view: View, request: BrokerRegistrationRequest, version: int) -> Result:
        result = right(view, request, version)
        for record in result.records:
            if isinstance(record, RegisterBrokerRecord):
                record.broker_epoch = 7
        return result

    monkeypatch.setattr(brokers, "register_broker", register_broker)
    require_found("both hold epoch 7")


def test_a_replica_that_forgets_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is lost between the log and the image, now and then."""
    right = MetadataLoader.replay

    def replay(loader: MetadataLoader, entries: object) -> None:
        def lossy() -> object:
            for entry in entries:  # type: ignore[attr-defined]
                lost = entry.offset % 50 == 49 and loader.image.offset % 2
                yield Entry(entry.offset, entry.epoch, None) if lost else entry

        right(loader, lossy())  # type: ignore[arg-type]

    monkeypatch.setattr(MetadataLoader, "replay", replay)
    require_found("is not what is committed|is not in the image")
