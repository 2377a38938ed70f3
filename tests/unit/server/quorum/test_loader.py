"""What the loader makes of committed entries."""

from __future__ import annotations

import pytest

from pybroker.base.ids import Uuid
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.internal.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    TopicRecord,
)
from pybroker.protocol.message import Message
from pybroker.raft.events import SnapshotId
from pybroker.server.quorum.loader import MetadataLoader
from pybroker.server.quorum.store import Entry, MetadataLogError


class Published:
    def __init__(self) -> None:
        self.images: list[MetadataImage] = []
        self.deltas: list[MetadataDelta] = []
        self.loader = MetadataLoader(self._publish)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.images.append(image)
        self.deltas.append(delta)

    def load(self, *records: Message | None) -> None:
        start = self.loader.next_offset
        self.loader.replay(Entry(start + at, 1, record) for at, record in enumerate(records))
        self.loader.publish()


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=Uuid(name.encode().ljust(16, b"-")))


def test_an_open_transaction_does_not_hide_what_was_committed_before_it() -> None:
    """Cluster swarm seed 9. A controller took over after reading, in one go, several transactions that were complete and one
    that its writer did not live to end: it started from the image before all of them, and decided by it."""
    seen = Published()
    seen.load(topic("before"))
    seen.load(
        BeginTransactionRecord(), topic("whole"), EndTransactionRecord(), None, BeginTransactionRecord(), topic("half"),
    )  # fmt: skip
    assert seen.loader.in_transaction
    assert list(seen.loader.image.topics) == ["before", "whole"]
    assert seen.loader.image.offset == 4, "everything before the transaction that is open"

    seen.load(AbortTransactionRecord(reason="the controller changed"), topic("after"))
    assert list(seen.loader.image.topics) == ["before", "whole", "after"]
    assert seen.loader.image.offset == 8


def test_a_transaction_counts_when_its_end_is_committed() -> None:
    seen = Published()
    seen.load(BeginTransactionRecord(), topic("one"))
    assert seen.images == []
    seen.load(topic("two"), EndTransactionRecord())
    assert [list(image.topics) for image in seen.images] == [["one", "two"]]


def test_what_is_between_the_replicas_moves_the_image_on_without_a_change() -> None:
    seen = Published()
    seen.load(topic("t"), None)
    seen.load(None)
    assert [(image.offset, list(image.topics)) for image in seen.images] == [(1, ["t"]), (2, ["t"])]


def test_without_anything_new_nothing_is_published() -> None:
    seen = Published()
    seen.load()
    seen.load(topic("t"))
    seen.load()
    assert len(seen.images) == 1


def test_a_snapshot_is_compared_with_what_was_loaded() -> None:
    seen = Published()
    seen.load(topic("stays"), topic("goes"))
    seen.loader.replace(SnapshotId(100, 7), [topic("stays"), topic("comes")])
    delta, image = seen.deltas[-1], seen.images[-1]
    assert (image.offset, image.epoch, set(image.topics)) == (99, 7, {"stays", "comes"})
    assert set(delta.changed_topics) == {topic("comes").topic_id}
    assert set(delta.deleted_topics) == {topic("goes").topic_id}
    seen.load(topic("after"))
    assert seen.images[-1].offset == 100


def test_a_snapshot_stands_for_a_transaction_that_was_half_loaded() -> None:
    seen = Published()
    seen.load(BeginTransactionRecord(), topic("t"))
    seen.loader.replace(SnapshotId(100, 7), [topic("t")])
    assert not seen.loader.in_transaction
    assert list(seen.images[-1].topics) == ["t"]


def test_what_contradicts_itself_is_a_clear_error() -> None:
    seen = Published()
    with pytest.raises(MetadataLogError, match="the metadata log, after offset 0: topic t is created, but it is there already"):
        seen.load(topic("t"), topic("t"))
    with pytest.raises(MetadataLogError, match=r"snapshot 0{18}10-0{9}1: topic t is created"):
        seen.loader.replace(SnapshotId(10, 1), [topic("t"), topic("t")])


def test_nothing_is_loaded_twice() -> None:
    seen = Published()
    seen.load(topic("t"))
    with pytest.raises(AssertionError, match="offset 0 comes again; expected 1"):
        seen.loader.replay([Entry(0, 1, topic("u"))])
