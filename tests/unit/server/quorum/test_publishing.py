from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from unit.server.clusters import Cluster

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pybroker.server.quorum.publishing import Publishing

WAIT_S = 20.0


@pytest.fixture
def publishing() -> Iterator[Publishing]:
    one = Publishing()
    one.start()
    yield one
    one.stop()


class Seen:
    def __init__(self) -> None:
        self.told: list[tuple[set[str], set[str]]] = []  # the names of topics: that changed, that are there

    def __call__(self, delta: MetadataDelta, image: MetadataImage) -> None:
        changed = {image.topics_by_id[topic_id].name for topic_id in delta.changed_topics}
        self.told.append((changed, set(image.topics)))


def test_who_is_there_from_the_start_sees_every_change(publishing: Publishing) -> None:
    seen = Seen()
    publishing.add(seen)
    cluster = Cluster(publishing.publish)
    cluster.topic("a")
    cluster.topic("b")
    publishing.drain()
    assert seen.told == [({"a"}, {"a"}), ({"b"}, {"a", "b"})]
    assert publishing.image is cluster.image


def test_who_comes_later_is_told_everything_first(publishing: Publishing) -> None:
    cluster = Cluster(publishing.publish)
    cluster.topic("a")
    cluster.topic("b")
    seen = Seen()
    publishing.add(seen)
    cluster.topic("c")
    publishing.drain()
    assert seen.told == [({"a", "b"}, {"a", "b"}), ({"c"}, {"a", "b", "c"})]


def test_who_has_looked_at_an_image_is_told_that_and_then_what_came_since(publishing: Publishing) -> None:
    """A broker loads its logs by an image; until its replicas are published to, the image may have moved on."""
    cluster = Cluster(publishing.publish)
    cluster.topic("a")
    looked_at = cluster.image
    cluster.topic("b")
    seen = Seen()
    publishing.add(seen, looked_at)
    publishing.drain()
    assert seen.told == [({"a"}, {"a"}), ({"b"}, {"a", "b"})]


def test_the_image_is_there_when_all_have_applied_it(publishing: Publishing) -> None:
    images: list[MetadataImage] = []
    publishing.add(lambda delta, image: images.append(publishing.image))
    cluster = Cluster(publishing.publish)
    cluster.topic("a")
    publishing.drain()
    assert images == [EMPTY_IMAGE]
    assert publishing.image is cluster.image


def test_what_is_posted_finds_everything_before_it_applied(publishing: Publishing) -> None:
    cluster = Cluster(publishing.publish)
    found: list[set[str]] = []
    cluster.topic("a")
    publishing.post(lambda: found.append(set(publishing.image.topics)))
    cluster.topic("b")
    publishing.drain()
    assert found == [{"a"}]


def test_a_publisher_that_fails_does_not_stop_the_others(publishing: Publishing, caplog: pytest.LogCaptureFixture) -> None:
    def broken(delta: MetadataDelta, image: MetadataImage) -> None:
        raise RuntimeError("a publisher's own mistake")

    seen = Seen()
    publishing.add(broken)
    publishing.add(seen)
    cluster = Cluster(publishing.publish)
    with caplog.at_level(logging.ERROR):
        cluster.topic("a")
        publishing.post(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        cluster.topic("b")
        publishing.drain()
    assert len(seen.told) == 2
    assert "could not be applied" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_waiting_ends_when_the_condition_holds_or_the_time_is_up(publishing: Publishing) -> None:
    cluster = Cluster(publishing.publish)
    assert not publishing.wait_until(lambda: "a" in publishing.image.topics, 0.01)
    threading.Thread(target=cluster.topic, args=("a",)).start()
    assert publishing.wait_until(lambda: "a" in publishing.image.topics, WAIT_S)


def test_a_stop_does_what_is_queued_first() -> None:
    publishing = Publishing()
    publishing.start()
    done: list[int] = []
    for number in range(100):
        publishing.post(lambda number=number: done.append(number))  # type: ignore[misc]
    publishing.stop()
    assert done == list(range(100))


def test_one_that_was_never_started_can_be_stopped() -> None:
    Publishing().stop()
