from __future__ import annotations

import random
from typing import Any

import pytest
from support.batches import batch, sized_batch
from support.requests import AskedRequest
from unit.server.handlers.nodes import NOW_MS, Replicas

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pybroker.protocol.records.batch import iter_batches
from pybroker.replication.fetch_sessions import FetchSessions
from pybroker.server.dispatch import WOULD_BLOCK
from pybroker.server.handlers.fetch import FOLLOWER_ROOM_BYTES, FetchHandlers

MIB = 1 << 20
FIRST_WITH_IDS = 13
SESSIONLESS = -1
BROKER_MAX_BYTES = 10 * MIB


class Fetcher:
    """The handlers over some replicas, and a client of them."""

    def __init__(self, replicas: Replicas, *, makes_room: bool = True) -> None:
        self.replicas = replicas
        self.handlers = FetchHandlers(
            replicas.manager,
            FetchSessions(10, random.Random(1).randrange),
            max_bytes=lambda: BROKER_MAX_BYTES,
            monotonic_ms=lambda: replicas.monotonic_ms,
            makes_room=makes_room,
        )

    def request(
        self,
        offsets: dict[int, int],
        topic: str = "orders",
        *,
        version: int = 12,
        topic_id: Uuid = ZERO_UUID,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = MIB,
        partition_max_bytes: int = MIB,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = SESSIONLESS,
        leader_epoch: int = -1,
        replica_id: int = -1,
        may_block: bool = True,
    ) -> AskedRequest:
        wanted = [
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=leader_epoch,
            )
            for index, offset in offsets.items()
        ]
        name = topic if version < FIRST_WITH_IDS else ""
        message = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=wanted)] if wanted else [],
        )
        if version >= 15:
            message.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=-1)
        else:
            message.replica_id = replica_id
        return AskedRequest(message, version, may_block=may_block)

    def ask(self, one: AskedRequest) -> Any:
        return self.handlers.handle_fetch(one, one.message)  # type: ignore[arg-type]

    def __call__(self, offsets: dict[int, int], *args: Any, **options: Any) -> dict[int, Any]:
        """The answer's partitions, which must come at once."""
        response = self.ask(self.request(offsets, *args, **options))
        assert response is not None, "it waits"
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}


@pytest.fixture
def fetch(replicas: Replicas) -> Fetcher:
    return Fetcher(replicas)


def append(replicas: Replicas, *values: bytes, topic: str = "orders", index: int = 0, size: int = 0) -> None:
    data = sized_batch(size, timestamp=NOW_MS) if size else batch(list(values), timestamp=NOW_MS)
    partition = replicas.partition(topic, index)
    partition.append(data, 1, NOW_MS)
    replicas.manager.wake(partition)


def values(data: Any) -> list[bytes | None]:
    return [record.value for one in iter_batches(data.records.read() if data.records else b"") for record in one.records()]


@pytest.mark.parametrize("version", range(4, 19))
def test_what_was_written_is_read_in_every_version(replicas: Replicas, fetch: Fetcher, version: int) -> None:
    topic_id = replicas.create("orders") if version >= FIRST_WITH_IDS else (replicas.create("orders"), ZERO_UUID)[1]
    append(replicas, b"a", b"b")
    data = fetch({0: 0}, version=version, topic_id=topic_id)[0]
    assert (data.error_code, data.high_watermark, values(data)) == (0, 2, [b"a", b"b"])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"version": 13, "topic_id": Uuid(b"no such topic id")}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"leader_epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": 4}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"replica_id": 4, "leader_epoch": 0}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_an_error_is_answered_at_once(replicas: Replicas, fetch: Fetcher, options: Any, code: ErrorCode) -> None:
    replicas.create("orders")
    data = fetch({0: 0}, max_wait_ms=1000, **options)[0]
    assert (ErrorCode(data.error_code), data.high_watermark, data.records) == (code, -1, b"")


@pytest.mark.parametrize(
    ("replica_id", "session_epoch", "is_made"), [(4, 0, True), (4, -1, True), (4, 7, False), (-1, 0, False)]
)
def test_room_is_made_for_the_answers_to_a_follower_once_in_a_session(
    replicas: Replicas, fetch: Fetcher, replica_id: int, session_epoch: int, is_made: bool
) -> None:
    replicas.create("orders")
    request = fetch.request({0: 0}, replica_id=replica_id, session_epoch=session_epoch)
    fetch.ask(request)
    assert request.room_bytes == (FOLLOWER_ROOM_BYTES if is_made else 0)


def test_no_room_is_made_where_it_is_left_to_the_system(replicas: Replicas) -> None:
    replicas.create("orders")
    fetch = Fetcher(replicas, makes_room=False)
    request = fetch.request({0: 0}, replica_id=4, session_epoch=0)
    fetch.ask(request)
    assert request.room_bytes == 0


def test_an_offset_out_of_range_does_not_wait(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders")
    assert fetch({0: 5}, max_wait_ms=1000)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_first_batch_comes_though_it_is_larger_than_every_limit(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders", 2)
    append(replicas, size=5000)
    append(replicas, size=3000, index=1)
    found = fetch({0: 0, 1: 0}, max_bytes=10, partition_max_bytes=10)
    assert [len(found[index].records) for index in (0, 1)] == [5000, 0]


def test_partitions_share_the_bytes_of_a_request(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders", 3)
    for index in range(3):
        for _ in range(4):
            append(replicas, size=1000, index=index)
    found = fetch({0: 0, 1: 0, 2: 0}, max_bytes=5000, partition_max_bytes=3000)
    assert [len(found[index].records) for index in range(3)] == [3000, 2000, 0]


def test_no_answer_is_larger_than_the_broker_allows(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders")
    for _ in range(11):
        append(replicas, size=MIB)
    assert len(fetch({0: 0}, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)[0].records) == BROKER_MAX_BYTES


def test_a_fetch_waits_until_there_is_something(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders")
    waiting = fetch.request({0: 0}, max_wait_ms=500)
    assert fetch.ask(waiting) is None
    assert waiting.answers == []
    append(replicas, b"a")
    assert values(waiting.answer.responses[0].partitions[0]) == [b"a"]
    replicas.advance(1000)
    assert len(waiting.answers) == 1
    assert len(replicas.fetches) == 0


def test_a_fetch_waits_until_there_is_enough_of_all_its_partitions(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders", 2)
    waiting = fetch.request({0: 0, 1: 0}, max_wait_ms=500, min_bytes=1500)
    assert fetch.ask(waiting) is None
    append(replicas, size=1000)
    assert waiting.answers == []
    append(replicas, size=1000, index=1)
    assert [len(data.records) for data in waiting.answer.responses[0].partitions] == [1000, 1000]


def test_a_fetch_is_answered_with_what_there_is_when_its_time_is_over(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders")
    append(replicas, b"a")
    waiting = fetch.request({0: 0}, max_wait_ms=500, min_bytes=10_000)
    assert fetch.ask(waiting) is None
    replicas.advance(499)
    assert waiting.answers == []
    replicas.advance(1)
    assert values(waiting.answer.responses[0].partitions[0]) == [b"a"]


def test_a_waiting_fetch_hears_that_its_topic_is_deleted(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders")
    waiting = fetch.request({0: 0}, max_wait_ms=500)
    assert fetch.ask(waiting) is None
    replicas.delete("orders")
    assert waiting.answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_fetch_hears_of_a_new_leader_epoch(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders")
    waiting = fetch.request({0: 0}, max_wait_ms=500, leader_epoch=0)
    assert fetch.ask(waiting) is None
    partition = replicas.partition("orders")
    partition.leader_epoch = 1
    replicas.manager.wake(partition)
    assert waiting.answer.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_session_answers_only_with_what_is_new(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders", 2)
    opened = fetch.ask(fetch.request({0: 0, 1: 0}, session_epoch=0))
    assert opened.session_id != 0
    append(replicas, b"a", index=1)
    response = fetch.ask(fetch.request({}, session_id=opened.session_id, session_epoch=1))
    assert [data.partition_index for topic in response.responses for data in topic.partitions] == [1]
    gone = fetch.ask(fetch.request({}, session_id=opened.session_id + 1, session_epoch=1))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_on_a_network_thread_only_segments_that_are_written_to_are_read(replicas: Replicas, fetch: Fetcher) -> None:
    replicas.create("orders", segment_bytes=2000)
    for _ in range(3):
        append(replicas, size=1500)
    assert fetch.ask(fetch.request({0: 0}, may_block=False)) is WOULD_BLOCK
    assert len(fetch({0: 2}, may_block=False)[0].records) == 1500
    assert len(fetch({0: 0})[0].records) == 1500


@pytest.mark.parametrize("version", [12, 13])
def test_what_a_session_remembers_is_not_read_from_the_disk_on_a_network_thread_either(
    replicas: Replicas, fetch: Fetcher, version: int
) -> None:
    topic_id = replicas.create("orders", 2, segment_bytes=2000)
    names = {"version": version, "topic_id": topic_id if version >= FIRST_WITH_IDS else ZERO_UUID}
    append(replicas, size=1500)
    opened = fetch.ask(fetch.request({0: 0, 1: 0}, session_epoch=0, **names))
    goes_on = fetch.request({}, session_id=opened.session_id, session_epoch=1, may_block=False, **names)
    # The first partition was not named again, since its bytes had no room in an answer; now its segment is closed.
    append(replicas, size=1500)
    assert fetch.ask(goes_on) is WOULD_BLOCK
    goes_on.may_block = True
    assert fetch.ask(goes_on).error_code == ErrorCode.NONE
    caught_up = fetch.request({0: 2}, session_id=opened.session_id, session_epoch=2, **names)
    assert fetch.ask(caught_up).error_code == ErrorCode.NONE
    append(replicas, b"a", index=1)
    hot = fetch.ask(fetch.request({}, session_id=opened.session_id, session_epoch=3, may_block=False, **names))
    assert [data.partition_index for topic in hot.responses for data in topic.partitions] == [1]


@pytest.mark.parametrize(("version", "is_told"), [(15, False), (16, True)])
def test_a_client_of_an_old_epoch_is_told_of_the_leader_where_its_version_has_a_place_for_that(
    replicas: Replicas, fetch: Fetcher, version: int, is_told: bool
) -> None:
    topic_id = replicas.create("orders", leader_epoch=5)
    data = fetch({0: 0}, version=version, topic_id=topic_id, leader_epoch=4)[0]
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    told = None if data.current_leader is None else (data.current_leader.leader_id, data.current_leader.leader_epoch)
    assert told == ((1, 5) if is_told else None)
