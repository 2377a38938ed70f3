"""What a follower asks its leader for, and what it makes of the answers."""

from __future__ import annotations

import pytest

from pybroker.base.ids import Uuid
from pybroker.log.files import TopicPartition
from pybroker.log.leader_epochs import LeaderEpochs
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pybroker.protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pybroker.replication.fetch_session_client import Key
from pybroker.replication.fetcher import (
    AppendFetched,
    Fetcher,
    FetcherSettings,
    Position,
    StartOver,
    TruncateTo,
    TruncateToEpoch,
    truncation_offset,
)

TOPIC_ID = Uuid(b"orders-topic-id-")
EPOCH = 3
BACKOFF_MS = 100


def key(index: int) -> Key:
    return TOPIC_ID, index


class Following:
    def __init__(self, *indexes: int) -> None:
        self.now_ms = 0
        self.fetcher = Fetcher(9, FetcherSettings(1, 1, 1000, 5000, 500, BACKOFF_MS))
        for index in indexes:
            self.add(index)

    def add(self, index: int, *, epoch: int = EPOCH, end: int = 10, last_epoch: int = 2) -> None:
        self.fetcher.added(key(index), TopicPartition("orders", index), epoch, Position(0, end, last_epoch))

    def ask(self) -> FetchRequest:
        request = self.fetcher.next_request(self.now_ms, 77)
        assert isinstance(request, FetchRequest)
        return request

    def asked(self) -> dict[int, FetchPartition]:
        return {one.partition: one for topic in self.ask().topics for one in topic.partitions}

    def answer(self, *rows: PartitionData, session_id: int = 5, error: int = 0) -> list[object]:
        response = FetchResponse(
            error_code=error,
            session_id=session_id,
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(rows))] if rows else [],
        )
        return list(self.fetcher.fetch_answered(self.now_ms, response))


def data(index: int, *, error: int = 0, high_watermark: int = 10, diverging: tuple[int, int] | None = None) -> PartitionData:
    row = PartitionData(
        partition_index=index, error_code=error, high_watermark=high_watermark, aborted_transactions=None, records=b""
    )
    if diverging is not None:
        row.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return row


def test_the_first_fetch_says_who_asks_and_how_far_it_is() -> None:
    request = Following(0).ask()
    assert request.replica_state is not None
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 77)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 5000)
    assert (request.session_id, request.session_epoch) == (0, 0)
    (asked,) = request.topics[0].partitions
    assert (asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch, asked.partition_max_bytes) == (
        EPOCH,
        10,
        2,
        1000,
    )


def test_in_a_session_only_what_changed_is_named() -> None:
    one = Following(0, 1)
    assert sorted(one.asked()) == [0, 1]
    assert [type(effect) for effect in one.answer(data(0), data(1))] == [AppendFetched, AppendFetched]
    one.fetcher.log_changed(key(0), EPOCH, Position(0, 12, 3))
    request = one.ask()
    assert (request.session_id, request.session_epoch) == (5, 1)
    assert [(row.partition, row.fetch_offset, row.last_fetched_epoch) for row in request.topics[0].partitions] == [(0, 12, 3)]
    one.answer()
    one.fetcher.removed(key(1))
    request = one.ask()
    assert (request.topics, request.forgotten_topics_data[0].partitions) == ([], [1])


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_that_is_gone_begins_anew_with_everything(code: ErrorCode) -> None:
    one = Following(0, 1)
    one.ask()
    one.answer(data(0), data(1))
    one.ask()
    assert one.answer(error=code) == []
    request = one.ask()
    assert request.session_epoch == 0
    assert request.session_id == (0 if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else 5)
    assert len(request.topics[0].partitions) == 2


def test_a_leader_without_room_for_a_session_is_told_everything_each_time() -> None:
    one = Following(0, 1)
    one.ask()
    one.answer(data(0), data(1), session_id=0)
    assert sorted(one.asked()) == [0, 1]


def test_a_request_that_failed_pauses_the_fetcher_longer_and_longer() -> None:
    one = Following(0)
    one.ask()
    one.fetcher.failed(one.now_ms)
    assert one.fetcher.next_request(19, 77) is None
    assert one.fetcher.deadline_ms == 20
    one.now_ms = 20
    one.ask()
    one.fetcher.failed(20)
    assert one.fetcher.deadline_ms == 60
    for now_ms in (60, 200, 400):
        one.fetcher.failed(now_ms)
    assert one.fetcher.deadline_ms == 400 + BACKOFF_MS


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_partition_with_an_error_is_left_out_for_a_while(code: ErrorCode) -> None:
    one = Following(0, 1)
    one.ask()
    one.answer(data(0, error=code), data(1))
    request = one.ask()
    assert [row.partitions for row in request.forgotten_topics_data] == [[0]]
    one.answer()
    one.now_ms = 20
    assert sorted(one.asked()) == [0]


def test_a_fenced_epoch_waits_for_metadata() -> None:
    one = Following(0)
    one.ask()
    one.answer(data(0, error=ErrorCode.FENCED_LEADER_EPOCH))
    one.now_ms = 1_000_000
    assert one.fetcher.next_request(one.now_ms, 77) is None
    assert one.fetcher.deadline_ms is None
    one.add(0, epoch=EPOCH + 1)
    assert one.asked()[0].current_leader_epoch == EPOCH + 1


def test_logs_that_parted_are_cut_back_before_anything_else() -> None:
    one = Following(0)
    one.ask()
    assert one.answer(data(0, diverging=(1, 7))) == [TruncateToEpoch(key(0), EPOCH, 1, 7)]
    one.fetcher.log_changed(key(0), EPOCH, Position(0, 7, 1))
    request = one.ask()
    # The high watermark of that answer was not taken in, and would not come again in the same session.
    assert request.session_epoch == 0
    assert request.topics[0].partitions[0].fetch_offset == 7


def test_an_answer_to_what_was_asked_in_another_epoch_is_not_taken_in() -> None:
    one = Following(0)
    one.ask()
    one.add(0, epoch=EPOCH + 1)
    assert one.answer(data(0)) == []
    assert one.ask().session_epoch == 0


def test_an_effect_that_could_not_be_run_is_tried_again_or_not_at_all() -> None:
    one = Following(0, 1)
    one.ask()
    one.answer(data(0), data(1))
    one.fetcher.not_done(0, key(0), EPOCH)
    one.fetcher.not_done(0, key(1), EPOCH, is_final=True)
    assert one.fetcher.next_request(0, 77) is None
    one.now_ms = 20
    assert sorted(one.asked()) == [0]


def offsets(index: int, offset: int, error: int = 0) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(partition_index=index, error_code=error, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[row])])


def out_of_range(one: Following) -> ListOffsetsRequest:
    one.ask()
    assert one.answer(data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE)) == []
    request = one.fetcher.next_request(one.now_ms, 77)
    assert isinstance(request, ListOffsetsRequest)
    return request


def test_out_of_range_and_the_leader_ends_before() -> None:
    one = Following(0)
    request = out_of_range(one)
    assert (request.replica_id, request.topics[0].partitions[0].timestamp) == (1, -1)
    assert request.topics[0].partitions[0].current_leader_epoch == EPOCH
    assert one.fetcher.offsets_answered(0, offsets(0, 4)) == [TruncateTo(key(0), EPOCH, 4)]
    one.fetcher.log_changed(key(0), EPOCH, Position(0, 4, 2))
    assert one.asked()[0].fetch_offset == 4


def test_out_of_range_and_the_leader_starts_behind() -> None:
    one = Following(0)
    out_of_range(one)
    assert one.fetcher.offsets_answered(0, offsets(0, 50)) == []
    request = one.fetcher.next_request(0, 77)
    assert isinstance(request, ListOffsetsRequest)
    assert request.topics[0].partitions[0].timestamp == -2
    assert one.fetcher.offsets_answered(0, offsets(0, 30)) == [StartOver(key(0), EPOCH, 30)]


def test_out_of_range_that_has_passed_is_asked_again() -> None:
    one = Following(0)
    out_of_range(one)
    one.fetcher.offsets_answered(0, offsets(0, 50))
    one.fetcher.next_request(0, 77)
    assert one.fetcher.offsets_answered(0, offsets(0, 0)) == []
    one.now_ms = 20
    assert one.asked()[0].fetch_offset == 10


def test_the_leader_may_have_no_offsets_to_tell() -> None:
    one = Following(0)
    out_of_range(one)
    assert one.fetcher.offsets_answered(0, offsets(0, -1, ErrorCode.UNKNOWN_LEADER_EPOCH)) == []
    assert one.fetcher.next_request(0, 77) is None
    assert isinstance(one.fetcher.next_request(20, 77), ListOffsetsRequest)
    assert one.fetcher.offsets_answered(20, offsets(0, -1, ErrorCode.FENCED_LEADER_EPOCH)) == []
    assert one.fetcher.next_request(10_000, 77) is None


def test_throttled_partitions_wait_unless_they_are_in_sync() -> None:
    one = Following(0, 1)
    request = one.fetcher.next_request(0, 77)
    one.answer(data(0, high_watermark=10), data(1, high_watermark=90))
    request = one.fetcher.next_request(0, 77, [key(0), key(1)])
    assert isinstance(request, FetchRequest)
    assert [row.partitions for row in request.forgotten_topics_data] == [[1]]
    one.answer()
    assert sorted(one.asked()) == [1]


@pytest.mark.parametrize(
    ("epoch", "leaders_end", "expected"),
    [
        (2, 25, 25),  # the follower has more of epoch 2
        (2, 40, 30),  # or less
        (1, 15, 10),  # it has none of epoch 1: the end of epoch 0 here, and the next fetch tells more
        (0, 5, 5),
        (4, 90, 50),  # the end of the log
        (-1, -1, 33),  # nothing is known: the high watermark
    ],
)
def test_where_a_log_is_cut(epoch: int, leaders_end: int, expected: int) -> None:
    own = LeaderEpochs.__new__(LeaderEpochs)
    own._replace(())
    for start in ((0, 0), (2, 10), (3, 30)):
        own._assign(*start)
    assert truncation_offset(lambda wanted: own.end_offset_for(wanted, 50), 50, 33, epoch, leaders_end) == expected
