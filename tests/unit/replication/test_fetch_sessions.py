from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from pybroker.replication.fetch_sessions import MAX_EPOCH, MIN_EVICTION_MS, FetchContext, FetchSessions, next_epoch

NAMES = 12
IDS = 13
FOO, BAR = Uuid(b"f" * 16), Uuid(b"b" * 16)

Asked = dict[tuple[str | Uuid, int], int]
Told = dict[tuple[str | Uuid, int], PartitionData]


class Client:
    """Asks as a consumer does, with fetch offsets by topic (or topic id) and partition."""

    def __init__(self, slots: int = 10, *, draw_below: Callable[[int], int] | None = None) -> None:
        self.sessions = FetchSessions(slots, draw_below or random.Random(1).randrange)
        self.names: dict[Uuid, str] = {FOO: "foo", BAR: "bar"}
        self.now_ms = 1000

    def context(
        self,
        session_id: int,
        epoch: int,
        asked: Asked | None = None,
        *,
        forgotten: Iterable[tuple[str | Uuid, int]] = (),
        version: int = NAMES,
        is_follower: bool = False,
    ) -> FetchContext:
        def named(topic: str | Uuid) -> dict[str, object]:
            return {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}

        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchTopic(
                    **named(topic), partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=10)]
                )
                for (topic, index), offset in (asked or {}).items()
            ],
            forgotten_topics_data=[ForgottenTopic(**named(topic), partitions=[index]) for topic, index in forgotten],
        )
        return self.sessions.context_for(request, version, self.names.get, self.now_ms, is_follower=is_follower)

    def answer(self, context: FetchContext, told: Told | None = None) -> FetchResponse:
        results = [(wanted, (told or {}).get(wanted.key) or data(wanted.index)) for wanted in context.partitions]
        return context.response(results, self.now_ms)

    def open(self, asked: Asked, *, version: int = NAMES, is_follower: bool = False) -> int:
        return self.answer(self.context(0, 0, asked, version=version, is_follower=is_follower)).session_id


def data(
    index: int,
    *,
    high_watermark: int = 10,
    log_start_offset: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    records: bytes = b"",
    preferred: int = -1,
    diverging: EpochEndOffset | None = None,
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start_offset,
        aborted_transactions=None,
        records=records,
        preferred_read_replica=preferred,
        diverging_epoch=diverging,
    )


def asked_by(context: FetchContext) -> list[tuple[str | None, int, int]]:
    return [(wanted.topic, wanted.index, wanted.request.fetch_offset) for wanted in context.partitions]


def told_in(response: FetchResponse) -> list[tuple[str, int]]:
    return [(topic.topic, partition.partition_index) for topic in response.responses for partition in topic.partitions]


# Epochs.


def test_epochs_go_round_past_the_special_ones() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, MAX_EPOCH - 1, MAX_EPOCH)] == [1, 2, MAX_EPOCH, 1]


def test_a_fetch_of_epoch_minus_one_has_no_session() -> None:
    client = Client()
    context = client.context(0, -1, {("foo", 0): 5})
    assert asked_by(context) == [("foo", 0, 5)]
    response = client.answer(context)
    assert response.session_id == 0
    assert told_in(response) == [("foo", 0)]
    assert len(client.sessions) == 0


def test_a_full_fetch_opens_a_session_and_is_answered_in_full() -> None:
    client = Client()
    context = client.context(0, 0, {("foo", 0): 5, ("foo", 1): 6, ("bar", 0): 7})
    assert asked_by(context) == [("foo", 0, 5), ("foo", 1, 6), ("bar", 0, 7)]
    response = client.answer(context)
    assert response.error_code == 0
    assert response.session_id > 0
    assert told_in(response) == [("foo", 0), ("foo", 1), ("bar", 0)]
    assert [len(topic.partitions) for topic in response.responses] == [2, 1]
    assert client.sessions.cached_partitions == 3


def test_an_incremental_fetch_asks_for_all_partitions_of_the_session_with_what_changed() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5, ("foo", 1): 6})
    context = client.context(session_id, 1, {("foo", 1): 60, ("bar", 2): 7})
    assert asked_by(context) == [("foo", 0, 5), ("foo", 1, 60), ("bar", 2, 7)]
    assert client.answer(context).session_id == session_id
    assert asked_by(client.context(session_id, 2)) == [("foo", 0, 5), ("foo", 1, 60), ("bar", 2, 7)]


def test_forgotten_partitions_leave_the_session() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5, ("foo", 1): 6})
    context = client.context(session_id, 1, forgotten=[("foo", 0), ("unheard of", 9)])
    assert asked_by(context) == [("foo", 1, 6)]


def test_a_session_whose_last_partition_is_forgotten_is_closed() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5})
    response = client.answer(client.context(session_id, 1, forgotten=[("foo", 0)]))
    assert response.session_id == 0
    assert response.error_code == 0
    assert told_in(response) == []
    assert client.context(session_id, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_that_is_asked_for_and_forgotten_at_once_is_fetched_without_a_session() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5})
    context = client.context(session_id, 1, {("foo", 0): 50}, forgotten=[("foo", 0)])
    assert asked_by(context) == [("foo", 0, 50)]
    assert client.answer(context).session_id == 0


def test_an_unknown_session_is_an_error() -> None:
    client = Client()
    for session_id in (77, 0, -5):
        context = client.context(session_id, 1, {("foo", 0): 5})
        assert context.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        response = client.answer(context)
        assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert told_in(response) == []


@pytest.mark.parametrize("epoch", [2, 5, -2])
def test_an_epoch_other_than_the_next_is_an_error_and_changes_nothing(epoch: int) -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5})
    context = client.context(session_id, epoch, {("foo", 0): 50})
    assert context.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert client.answer(context).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert asked_by(client.context(session_id, 1)) == [("foo", 0, 5)]


def test_a_request_that_is_overtaken_by_the_next_one_is_answered_with_an_error() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5})
    overtaken = client.context(session_id, 1)
    following = client.context(session_id, 2)
    response = client.answer(overtaken, {("foo", 0): data(0, records=b"x")})
    assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id)
    assert told_in(response) == []
    assert client.answer(following).error_code == 0


@pytest.mark.parametrize(("opened", "used"), [(NAMES, IDS), (IDS, NAMES)])
def test_a_session_of_names_is_not_for_ids_nor_the_other_way_round(opened: int, used: int) -> None:
    client = Client()
    session_id = client.open({("foo" if opened == NAMES else FOO, 0): 5}, version=opened)
    context = client.context(session_id, 1, version=used)
    assert context.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_fetch_that_names_a_session_closes_it_and_opens_another() -> None:
    client = Client()
    first = client.open({("foo", 0): 5})
    second = client.answer(client.context(first, 0, {("bar", 0): 5})).session_id
    assert second not in (0, first)
    assert len(client.sessions) == 1
    assert client.context(first, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_final_fetch_closes_its_session() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5})
    response = client.answer(client.context(session_id, -1, {("foo", 0): 6}))
    assert response.session_id == 0
    assert told_in(response) == [("foo", 0)]
    assert len(client.sessions) == 0


def test_session_ids_are_drawn_anew_until_one_is_free() -> None:
    draws = iter([41, 41, 41, 6])
    client = Client(draw_below=lambda bound: next(draws))
    assert [client.open({("foo", 0): 5}), client.open({("foo", 0): 5})] == [42, 7]


def test_of_a_partition_that_is_asked_for_twice_the_last_counts() -> None:
    client = Client()
    rows = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1)
        for index, offset in ((0, 1), (1, 2), (0, 3))
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="foo", partitions=rows)])
    context = client.sessions.context_for(request, NAMES, client.names.get, 0)
    assert asked_by(context) == [("foo", 0, 3), ("foo", 1, 2)]


# What an answer may leave out.


def test_an_incremental_answer_leaves_out_what_did_not_change() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5, ("foo", 1): 6, ("bar", 0): 7})
    response = client.answer(client.context(session_id, 1), {("foo", 1): data(1, high_watermark=11)})
    assert told_in(response) == [("foo", 1)]
    assert told_in(client.answer(client.context(session_id, 2), {("foo", 1): data(1, high_watermark=11)})) == []


@pytest.mark.parametrize(
    "news",
    [
        data(0, records=b"batch"),
        data(0, high_watermark=9),
        data(0, log_start_offset=3),
        data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1, log_start_offset=-1),
        data(0, preferred=2),
        data(0, diverging=EpochEndOffset(epoch=1, end_offset=3)),
    ],
    ids=["records", "high watermark", "log start", "error", "preferred replica", "diverging epoch"],
)
def test_what_must_be_told(news: PartitionData) -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5})
    assert told_in(client.answer(client.context(session_id, 1))) == []
    assert told_in(client.answer(client.context(session_id, 2), {("foo", 0): news})) == [("foo", 0)]


def test_an_error_is_told_each_time_and_its_end_too() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5})
    for epoch in (1, 2):
        response = client.answer(client.context(session_id, epoch), {("foo", 0): data(0, error=ErrorCode.KAFKA_STORAGE_ERROR)})
        assert told_in(response) == [("foo", 0)]
    assert told_in(client.answer(client.context(session_id, 3))) == [("foo", 0)]
    assert told_in(client.answer(client.context(session_id, 4))) == []


def test_partitions_left_out_of_the_results_count_as_unchanged() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 5, ("foo", 1): 5})
    context = client.context(session_id, 1)
    response = context.response([(context.partitions[1], data(1, records=b"x"))], client.now_ms)
    assert told_in(response) == [("foo", 1)]
    assert len(client.context(session_id, 2).partitions) == 2


def test_what_had_records_comes_last_in_the_next_fetch() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 0, ("foo", 1): 0, ("foo", 2): 0, ("foo", 3): 0})
    order = lambda context: [wanted.index for wanted in context.partitions]  # noqa: E731
    first = client.context(session_id, 1)
    assert order(first) == [0, 1, 2, 3]
    told = {("foo", 0): data(0, records=b"x"), ("foo", 2): data(2, records=b"x"), ("foo", 1): data(1, high_watermark=99)}
    client.answer(first, told)
    assert order(client.context(session_id, 2)) == [1, 3, 0, 2]


def test_a_partition_forgotten_while_its_records_are_sent_stays_forgotten() -> None:
    client = Client()
    session_id = client.open({("foo", 0): 0, ("foo", 1): 0})
    context = client.context(session_id, 1)
    session = client.sessions._sessions[session_id]
    del session.partitions[("foo", 0)]
    client.answer(context, {("foo", 0): data(0, records=b"x")})
    assert list(session.partitions) == [("foo", 1)]


# Topic ids.


def test_ids_are_resolved_to_names_and_come_back_in_the_answer() -> None:
    client = Client()
    context = client.context(0, 0, {(FOO, 0): 5}, version=IDS)
    assert asked_by(context) == [("foo", 0, 5)]
    response = client.answer(context)
    assert [topic.topic_id for topic in response.responses] == [FOO]
    context = client.context(response.session_id, 1, forgotten=[(FOO, 0)], version=IDS)
    assert context.partitions == []


def test_an_id_that_is_not_known_yet_is_resolved_later() -> None:
    client = Client()
    new = Uuid(b"n" * 16)
    session_id = client.open({(new, 0): 5, (FOO, 0): 6}, version=IDS)
    assert asked_by(client.context(session_id, 1, version=IDS)) == [(None, 0, 5), ("foo", 0, 6)]
    client.names[new] = "new"
    assert asked_by(client.context(session_id, 2, version=IDS)) == [("new", 0, 5), ("foo", 0, 6)]


def test_unknown_ids_are_told_apart_in_the_answer() -> None:
    client = Client()
    first, second = Uuid(b"1" * 16), Uuid(b"2" * 16)
    response = client.answer(client.context(0, 0, {(first, 0): 5, (second, 0): 6}, version=IDS))
    assert [topic.topic_id for topic in response.responses] == [first, second]


def test_names_come_back_with_the_zero_id() -> None:
    client = Client()
    response = client.answer(client.context(0, 0, {("foo", 0): 5}))
    assert [(topic.topic, topic.topic_id) for topic in response.responses] == [("foo", ZERO_UUID)]


# The limit and who must go.


def test_without_slots_there_are_no_sessions() -> None:
    client = Client(slots=0)
    assert client.open({("foo", 0): 5}) == 0
    assert len(client.sessions) == 0


def test_a_full_cache_refuses_newcomers_of_the_same_kind() -> None:
    client = Client(slots=2)
    assert client.open({("foo", 0): 5})
    assert client.open({("foo", 0): 5})
    assert client.open({("foo", 0): 5, ("foo", 1): 5}) == 0
    assert client.sessions.evictions == 0


def test_a_session_unused_for_long_gives_way_to_any() -> None:
    client = Client(slots=2)
    stale = client.open({("foo", 0): 5, ("foo", 1): 5}, is_follower=True)
    used = client.open({("foo", 0): 5})
    client.now_ms += MIN_EVICTION_MS
    client.answer(client.context(used, 1))
    assert client.open({("bar", 0): 5}) == 0
    client.now_ms += 1
    newcomer = client.open({("bar", 0): 5})
    assert newcomer
    assert set(client.sessions._sessions) == {used, newcomer}
    assert stale not in client.sessions._sessions
    assert client.sessions.evictions == 1


def test_a_larger_one_takes_the_place_of_a_smaller_one_that_had_its_time() -> None:
    client = Client(slots=2)
    small = client.open({("foo", 0): 5})
    large = client.open({("foo", index): 5 for index in range(5)})
    client.now_ms += MIN_EVICTION_MS + 1
    for session_id in (small, large):
        client.answer(client.context(session_id, 1))
    assert client.open({("bar", 0): 5}) == 0
    newcomer = client.open({("bar", 0): 5, ("bar", 1): 5})
    assert set(client.sessions._sessions) == {large, newcomer}


def test_a_follower_takes_the_place_of_a_consumer_but_not_the_other_way_round() -> None:
    client = Client(slots=1)
    client.open({("foo", index): 5 for index in range(9)})
    follower = client.open({("foo", 0): 5}, is_follower=True)
    assert set(client.sessions._sessions) == {follower}
    client.now_ms += MIN_EVICTION_MS + 1
    client.answer(client.context(follower, 1))
    assert client.open({("foo", index): 5 for index in range(9)}) == 0


def test_of_followers_the_larger_counts_more_once_the_smaller_had_its_time() -> None:
    client = Client(slots=1)
    first = client.open({("foo", 0): 5}, is_follower=True)
    assert client.open({("foo", 0): 5, ("foo", 1): 5}, is_follower=True) == 0
    client.now_ms += MIN_EVICTION_MS + 1
    client.answer(client.context(first, 1))
    assert client.open({("foo", 0): 5}, is_follower=True) == 0
    assert client.open({("foo", 0): 5, ("foo", 1): 5}, is_follower=True)


def test_a_refused_newcomer_is_let_in_soon_after_a_place_can_be_had() -> None:
    client = Client(slots=1)
    held = client.open({("foo", 0): 5})
    client.now_ms += MIN_EVICTION_MS
    client.answer(client.context(held, 1))
    assert client.open({("foo", 0): 5, ("foo", 1): 5}) == 0
    client.now_ms += 1
    client.answer(client.context(held, 2))
    client.now_ms += 1000
    assert client.open({("foo", 0): 5, ("foo", 1): 5})
