from __future__ import annotations

import logging

import pytest
from unit.server.quorum.quorums import NOW_MS, Node, Nodes, code_of, creation

from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.metadata.controller.decisions import Result
from pybroker.metadata.controller.features import METADATA_VERSION, RELEASES
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    TopicRecord,
)
from pybroker.protocol.message import Message
from pybroker.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from pybroker.raft.events import ResignRequested, SnapshotId
from pybroker.server.metadata_snapshot import record_batches
from pybroker.server.quorum.store import MetadataLogError, MetadataStore

MINUTE_MS = 60_000


def alone(**keys: object) -> tuple[Nodes, Node]:
    """A quorum of one, with a broker."""
    nodes = Nodes((1,), **keys)
    node = nodes.start()
    node.join()
    return nodes, node


def three(**keys: object) -> tuple[Nodes, Node]:
    """Voters that are brokers, too, the leader registered."""
    nodes = Nodes((1, 2, 3), **keys)
    leader = nodes.start()
    leader.join()
    return nodes, leader


def records_of(node: Node) -> list[Message]:
    entries = node.store.entries(0, node.store.end_offset)
    return [entry.record for entry in entries if entry.record is not None]


def write_by_hand(node: Node, *records: Message) -> None:
    """As an earlier process would have left them."""
    store = MetadataStore(node.disk, node.config, NOW_MS)
    for data in record_batches([(record, 0) for record in records], store.end_offset, 1, NOW_MS, 1 << 20):
        store.append(bytes(data), NOW_MS)
    store.flush(NOW_MS)
    store.close()


class TestAlone:
    def test_it_leads_at_once_and_begins_the_log_of_a_new_cluster(self) -> None:
        nodes = Nodes((1,))
        node = nodes.start()
        assert nodes.now_ms == NOW_MS, "nothing had to be waited for"
        assert node.leaders[-1] == (1, 1)
        assert node.replica.image.features[METADATA_VERSION] == max(RELEASES.values())

    def test_what_was_answered_is_in_the_image_and_there_after_a_crash(self) -> None:
        nodes, node = alone()
        assert code_of(node.ask(creation("t", partitions=3))) is ErrorCode.NONE
        topic = node.replica.image.topics["t"]
        node.crash()
        assert nodes.start(1) is node
        assert node.replica.image.topics["t"] == topic
        assert node.replica.quorum.epoch == 2, "a start is an epoch of its own"

    def test_nothing_is_answered_before_it_is_flushed(self) -> None:
        _nodes, node = alone()
        answers = node.submit(creation("t"))
        assert not answers
        assert "t" not in node.replica.image.topics
        node.replica.end_round(NOW_MS)
        assert code_of(answers[0]) is ErrorCode.NONE
        assert "t" in node.replica.image.topics

    def test_a_later_request_of_a_round_sees_what_an_earlier_one_did_and_waits_with_it(self) -> None:
        _nodes, node = alone()
        first, second = node.submit(creation("t")), node.submit(creation("t"))
        assert not second, "decided by what may be lost still"
        node.replica.end_round(NOW_MS)
        assert (code_of(first[0]), code_of(second[0])) == (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    def test_what_writes_nothing_needs_no_flush(self) -> None:
        _nodes, node = alone()
        offset = node.replica.image.offset
        (answer,) = node.submit(CreateTopicsRequest(topics=creation("t").topics, validate_only=True))
        assert (code_of(answer), node.replica.quorum.log_end_offset) == (ErrorCode.NONE, offset + 1)

    def test_every_change_is_published_before_it_is_answered(self) -> None:
        _nodes, node = alone()
        node.ask(creation("t"))
        delta, image = node.published[-1]
        assert delta.changed_topics == {image.topics["t"].topic_id: {0}}

    def test_a_start_publishes_what_the_log_holds(self) -> None:
        nodes, node = alone()
        node.ask(creation("t"))
        node.stop()
        node.published.clear()
        nodes.start(1)
        delta, image = node.published[0]
        assert set(delta.changed_topics) == {image.topics["t"].topic_id}
        assert delta.changed_brokers == {1}

    def test_what_is_too_much_for_a_batch_is_a_transaction(self) -> None:
        _nodes, node = alone(internal_metadata_max_batch_size_in_bytes=300)
        before = len(records_of(node))
        node.ask(creation(*(f"t{number}" for number in range(40))))
        written = records_of(node)[before:]
        assert isinstance(written[0], BeginTransactionRecord)
        assert isinstance(written[-1], EndTransactionRecord)
        assert len(node.replica.image.topics) == 40

    def test_a_decision_that_fails_is_one_requests_error(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        _nodes, node = alone()
        monkeypatch.setattr("pybroker.metadata.controller.topics.create_topics", lambda *_: 1 / 0)
        with caplog.at_level(logging.ERROR):
            assert code_of(node.ask(creation("t"))) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "ZeroDivisionError" in caplog.text
        monkeypatch.undo()
        assert code_of(node.ask(creation("t"))) is ErrorCode.NONE

    def test_a_decision_that_no_record_can_carry_is_one_requests_error_and_writes_nothing(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        _nodes, node = alone()
        before = len(records_of(node))
        decided = Result([TopicRecord(name="t" * 40_000, topic_id=ZERO_UUID)], CreateTopicsResponse(topics=[]))
        monkeypatch.setattr("pybroker.metadata.controller.topics.create_topics", lambda *_: decided)
        with caplog.at_level(logging.ERROR):
            assert code_of(node.ask(creation("t"))) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "cannot be written" in caplog.text
        monkeypatch.undo()
        assert len(records_of(node)) == before
        assert code_of(node.ask(creation("t"))) is ErrorCode.NONE

    @pytest.mark.parametrize("what", ["decide", "write"])
    def test_a_controller_that_fails_by_itself_resigns_instead_of_trying_for_ever(
        self, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        nodes, node = alone()
        controller = node.replica.controller
        assert controller is not None
        unwritable = TopicRecord(name="x" * 40_000, topic_id=ZERO_UUID)
        monkeypatch.setattr(
            controller, "tick", lambda now_ms: 1 / 0 if what == "decide" else Result([unwritable], NoOpRecord())
        )
        due_ms = controller.deadline_ms
        assert due_ms is not None
        nodes.now_ms = due_ms
        with caplog.at_level(logging.ERROR):
            node.replica.deadline_passed(due_ms)
        assert len(caplog.records) == 1
        assert not node.replica.is_active
        assert node.replica.deadline_ms > due_ms, "it spins"
        assert nodes.leader() is node, "there is nobody else: it begins anew"
        assert node.replica.controller is not controller

    def test_an_answer_that_cannot_be_given_keeps_nobody_waiting(self, caplog: pytest.LogCaptureFixture) -> None:
        _nodes, node = alone()

        def gone(response: Message) -> None:
            raise OSError("the connection is closed")

        with caplog.at_level(logging.ERROR):
            node.replica.submit(NOW_MS, creation("t"), 7, gone)
            assert code_of(node.ask(creation("t"))) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert "could not be given" in caplog.text

    def test_a_request_for_somebody_else_is_a_mistake_of_the_caller(self) -> None:
        _nodes, node = alone()
        with pytest.raises(AssertionError, match="the controller knows no"):
            node.submit(NoOpRecord())

    def test_a_log_that_contradicts_itself_is_a_clear_error(self) -> None:
        nodes = Nodes((1,))
        write_by_hand(nodes[1], *[TopicRecord(name="t", topic_id=Uuid(b"x" * 16))] * 2)
        with pytest.raises(MetadataLogError, match="the metadata log, after offset 0: topic t is created, but it is there"):
            nodes.start()

    @pytest.mark.parametrize("times", [1, 2])
    def test_a_transaction_that_was_left_open_is_aborted(self, times: int, caplog: pytest.LogCaptureFixture) -> None:
        nodes = Nodes((1,))
        node = nodes[1]
        write_by_hand(
            node,
            FeatureLevelRecord(name=METADATA_VERSION, feature_level=30),
            BeginTransactionRecord(),
            TopicRecord(name="half", topic_id=Uuid(b"x" * 16)),
        )
        for start in range(times):
            nodes.start()
            node.join()
            assert not node.replica.image.topics
            assert ("left open" in caplog.text) == (start == 0)
            caplog.clear()
            node.stop()
        store = MetadataStore(node.disk, node.config, NOW_MS)
        found = [entry.record for entry in store.entries(0, store.end_offset)]
        assert sum(isinstance(record, AbortTransactionRecord) for record in found) == 1

    def test_an_epoch_is_never_used_twice_even_if_nothing_was_written_in_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = Nodes((1,))
        node = nodes[1]
        with monkeypatch.context() as patch:
            patch.setattr(MetadataStore, "flush", lambda store, now_ms: None)
            node.start()
        node.crash()
        nodes.start()
        assert node.replica.quorum.epoch == 2

    def test_an_election_is_durable_before_anything_comes_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The vote for itself is on disk before the epoch's first record is written."""
        node = Nodes((1,))[1]
        done: list[str] = []
        for name in ("persist_election", "append"):
            original = getattr(MetadataStore, name)

            def noted(*args: object, original: object = original, name: str = name) -> None:
                done.append(name)
                original(*args)  # type: ignore[operator]

            monkeypatch.setattr(MetadataStore, name, noted)
        node.start()
        assert done[0] == "persist_election"
        assert done.index("append") == max(at for at, name in enumerate(done) if name == "persist_election") + 1


class TestFailures:
    def test_a_write_that_fails_refuses_the_request_and_is_the_end_of_the_replica(self) -> None:
        _nodes, node = alone()
        earlier = node.submit(creation("earlier"))
        node.disk.capacity_bytes = 0
        answers: list[object] = []
        with pytest.raises(OSError, match="No space left"):
            node.replica.submit(NOW_MS, creation("t"), 7, answers.append)
        assert code_of(answers[0]) is ErrorCode.KAFKA_STORAGE_ERROR
        node.replica.fail("No space left on device")
        assert code_of(earlier[0]) is ErrorCode.KAFKA_STORAGE_ERROR, "whether it will be there nobody knows"
        assert "No space left" in earlier[0].topics[0].error_message
        assert not node.replica.is_active
        assert node.leaders[-1] == (1, None)
        assert code_of(node.submit(creation("u"))[0]) is ErrorCode.KAFKA_STORAGE_ERROR

    def test_it_begins_anew_from_what_is_on_disk(self) -> None:
        nodes, node = alone()
        node.ask(creation("before"))
        node.disk.capacity_bytes = 0
        with pytest.raises(OSError, match="No space left"):
            node.submit(creation("t"))
        node.replica.fail("full")
        assert set(node.replica.image.topics) == {"before"}, "the last image stands"
        with pytest.raises(OSError, match="No space left"):
            node.replica.restart(nodes.now_ms)
        node.replica.fail("still full")
        node.disk.capacity_bytes = None
        node.replica.restart(nodes.now_ms)
        node.replica.end_round(nodes.now_ms)
        assert code_of(node.ask(creation("t"))) is ErrorCode.NONE
        assert set(node.replica.image.topics) == {"before", "t"}
        node.crash()
        nodes.start()
        assert set(node.replica.image.topics) == {"before", "t"}

    def test_while_it_has_failed_it_hears_nothing(self) -> None:
        _nodes, node = alone()
        node.replica.fail("broken")
        end_offset = node.replica.quorum.log_end_offset
        node.replica.deadline_passed(NOW_MS + MINUTE_MS)
        node.replica.step(NOW_MS, ResignRequested())
        node.replica.end_round(NOW_MS)
        assert node.replica.quorum.log_end_offset == end_offset
        assert node.replica.deadline_ms > NOW_MS + 1000 * MINUTE_MS


class TestSeveral:
    def test_what_was_answered_is_there_under_the_next_controller(self) -> None:
        nodes, leader = three()
        assert code_of(leader.ask(creation("t"))) is ErrorCode.NONE
        topic = leader.replica.image.topics["t"]
        leader.crash()
        successor = nodes.leader()
        assert successor is not leader
        assert successor.replica.image.topics["t"].topic_id == topic.topic_id
        leader.start()
        nodes.run_until(lambda: leader.replica.image.offset >= successor.replica.image.offset)
        assert leader.replica.image.topics == successor.replica.image.topics
        assert leader.leaders[-1] == (successor.replica.quorum.epoch, successor.id)

    def test_who_loses_leadership_refuses_what_is_pending(self) -> None:
        nodes, leader = three()
        followers = [node for node in nodes.running() if node is not leader]
        for follower in followers:
            follower.is_up = False
        answers = leader.submit(creation("t"))
        leader.replica.end_round(nodes.now_ms)
        assert not answers, "one of three is no majority"
        nodes.run_until(lambda: bool(answers))
        assert code_of(answers[0]) is ErrorCode.NOT_CONTROLLER
        assert not leader.replica.is_active
        assert code_of(leader.submit(creation("u"))[0]) is ErrorCode.NOT_CONTROLLER

    def test_a_controller_that_cannot_follow_its_own_records_hands_over(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        nodes, leader = three()
        assert leader.replica.controller is not None
        monkeypatch.setattr(leader.replica.controller, "replay", lambda *_: 1 / 0)
        assert code_of(leader.ask(creation("t"))) is ErrorCode.NOT_CONTROLLER
        assert "cannot follow its own records" in caplog.text
        assert nodes.leader().replica.quorum.epoch > 1

    def test_an_observer_gets_every_image_and_decides_nothing(self) -> None:
        nodes = Nodes((1,), observers=(5,))
        leader = nodes.start()
        leader.join()
        leader.ask(creation("t"))
        observer = nodes[5]
        nodes.run_until(lambda: "t" in observer.replica.image.topics)
        assert code_of(observer.submit(creation("u"))[0]) is ErrorCode.NOT_CONTROLLER

    def test_a_follower_remembers_the_voted_and_the_leader(self) -> None:
        nodes, leader = three()
        follower = next(node for node in nodes.running() if node is not leader)
        nodes.run_until(lambda: follower.store.recovered().election.leader_id == leader.id)
        assert follower.store.recovered().election.epoch == leader.replica.quorum.epoch


class TestNoOps:
    def idle(self, nodes: Nodes, node: Node, for_ms: int) -> int:
        """How many there are after so long with nothing to do."""
        before = sum(isinstance(record, NoOpRecord) for record in records_of(node))
        nodes.run(for_ms)
        return sum(isinstance(record, NoOpRecord) for record in records_of(node)) - before

    def test_none_while_nobody_follows(self) -> None:
        nodes = Nodes((1,))
        assert self.idle(nodes, nodes.start(), MINUTE_MS) == 0

    def test_one_each_interval_when_somebody_does(self) -> None:
        nodes = Nodes((1,), observers=(5,))
        leader = nodes.start()
        nodes.run_until(lambda: nodes[5].replica.image.offset == leader.replica.image.offset)
        assert self.idle(nodes, leader, 10_000) in range(18, 22), "every 500 ms"

    def test_none_if_the_interval_is_0(self) -> None:
        nodes = Nodes((1, 2), metadata_max_idle_interval_ms=0)
        assert self.idle(nodes, nodes.start(), 10_000) == 0


class TestSnapshots:
    def test_after_so_many_bytes(self) -> None:
        nodes, node = alone(metadata_log_max_record_bytes_between_snapshots=2000)
        node.jobs = []
        number = 0
        while not node.jobs:
            number += 1
            assert code_of(node.ask(creation(f"t{number}"))) is ErrorCode.NONE
        (job,) = node.jobs
        assert 5 < number < 15
        assert job.snapshot == SnapshotId(node.replica.image.offset + 1, 1)
        node.finish(job)
        assert node.store.latest_snapshot == job.snapshot
        node.stop()
        node.published.clear()
        nodes.start()
        assert set(node.published[0][1].topics) == {f"t{one}" for one in range(1, number + 1)}

    def test_bytes_of_earlier_lives_count(self) -> None:
        nodes, node = alone(metadata_log_max_record_bytes_between_snapshots=2000)
        node.jobs = []
        starts = 1
        while not node.jobs:
            assert starts < 20
            node.ask(creation(f"t{starts}"))
            node.stop()
            nodes.start()
            starts += 1
        assert starts > 3

    def test_after_so_long_if_there_is_something_new(self) -> None:
        nodes, node = alone(metadata_log_max_snapshot_interval_ms=10 * MINUTE_MS)
        nodes.run(9 * MINUTE_MS)
        assert node.store.latest_snapshot is None
        nodes.run(2 * MINUTE_MS)
        first = node.store.latest_snapshot
        assert first is not None
        assert first.end_offset == node.replica.image.offset + 1

    def test_never_by_time_if_the_interval_is_0(self) -> None:
        nodes, node = alone(metadata_log_max_snapshot_interval_ms=0)
        nodes.run(600 * MINUTE_MS)
        assert node.store.latest_snapshot is None

    def test_nothing_is_written_of_nothing(self) -> None:
        """A voter that never met the others has no metadata to take a snapshot of."""
        nodes = Nodes((1, 2), metadata_log_max_snapshot_interval_ms=MINUTE_MS)
        nodes[1].start()
        nodes[1].jobs = []
        nodes.run(3 * MINUTE_MS)
        assert nodes[1].jobs == []

    def test_one_that_could_not_be_written_does_not_stand_in_the_way_of_the_next(self) -> None:
        nodes, node = alone(metadata_log_max_snapshot_interval_ms=MINUTE_MS)
        node.jobs = []
        nodes.run(3 * MINUTE_MS)
        (job,) = node.jobs
        node.replica.snapshot_failed(job.snapshot)
        nodes.run(2 * MINUTE_MS)
        assert len(node.jobs) == 2
        node.finish(node.jobs[-1])
        assert node.store.latest_snapshot == job.snapshot

    def test_old_ones_and_the_log_before_them_go(self) -> None:
        nodes, node = alone(
            metadata_log_max_record_bytes_between_snapshots=2000,
            metadata_max_retention_bytes=6000,
            internal_metadata_log_segment_bytes=2000,
        )
        for number in range(100):
            node.ask(creation(f"t{number}"))
            nodes.run(1)
        assert node.replica.quorum.log_start_offset > 100
        node.crash()
        nodes.start()
        assert len(node.replica.image.topics) == 100

    def test_a_restart_does_not_begin_what_is_still_being_written(self) -> None:
        """Two would write the same file."""
        nodes, node = alone(metadata_log_max_snapshot_interval_ms=MINUTE_MS)
        node.jobs = []
        nodes.run(3 * MINUTE_MS)
        (job,) = node.jobs
        node.replica.fail("a disk that was full for a moment")
        node.replica.restart(nodes.now_ms)
        nodes.run(3 * MINUTE_MS)
        assert node.jobs == [job]
        node.finish(job)
        assert node.store.latest_snapshot == job.snapshot
        nodes.run(3 * MINUTE_MS)
        assert len(node.jobs) == 2

    def test_one_of_more_than_a_restart_left_in_the_log_is_not_taken(self) -> None:
        """What is committed may be in memory only, here."""
        nodes, node = alone(metadata_log_max_snapshot_interval_ms=MINUTE_MS)
        node.jobs = []
        nodes.run(2 * MINUTE_MS)
        (job,) = node.jobs
        node.replica.fail("a write failed")
        node.store.truncate_to(job.snapshot.end_offset - 1, nodes.now_ms)
        node.replica.restart(nodes.now_ms)
        node.finish(job)
        assert node.store.latest_snapshot is None

    def far_behind(self, fetch_bytes: int = 1_048_576) -> tuple[Nodes, Node, Node]:
        """A leader, and one that is down and needs a snapshot."""
        nodes, leader = three(
            metadata_log_max_record_bytes_between_snapshots=2000,
            metadata_max_retention_bytes=3000,
            internal_metadata_log_segment_bytes=2000,
            controller_quorum_fetch_snapshot_max_bytes=fetch_bytes,
        )
        behind = next(node for node in nodes.running() if node is not leader)
        nodes.run_until(lambda: bool(behind.replica.image.brokers))
        behind.crash()
        leader.ask(creation("early"))
        while leader.replica.quorum.log_start_offset <= behind.replica.quorum.log_end_offset:
            leader.ask(creation(f"t{leader.replica.image.offset}"))
            nodes.run(1)
        return nodes, leader, behind

    def test_one_that_did_not_arrive_whole_is_fetched_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes, leader, behind = self.far_behind()
        right, broken = MetadataStore.store_chunk, list[SnapshotId]()

        def store_chunk(store: MetadataStore, snapshot: SnapshotId, position: int, data: bytes) -> None:
            if store is behind.store and len(broken) < 3:
                broken.append(snapshot)
                data = data[:-1] + bytes([data[-1] ^ 1])
            right(store, snapshot, position, data)

        monkeypatch.setattr(MetadataStore, "store_chunk", store_chunk)
        behind.start()
        nodes.run_until(lambda: behind.replica.image.offset >= leader.replica.image.offset)
        assert len(broken) == 3
        assert behind.replica.image.topics == leader.replica.image.topics

    @pytest.mark.parametrize("fetch_bytes", [1_048_576, 300])
    def test_a_replica_that_is_too_far_behind_installs_one(self, fetch_bytes: int) -> None:
        nodes, leader, behind = self.far_behind(fetch_bytes)
        behind.published.clear()
        behind.start()
        nodes.run_until(lambda: behind.replica.image.offset >= leader.replica.image.offset)
        installed = behind.store.latest_snapshot
        assert installed is not None
        assert behind.replica.quorum.log_start_offset == installed.end_offset > 0
        assert behind.replica.image.topics == leader.replica.image.topics
        assert any("early" in image.topics and delta.changed_topics for delta, image in behind.published)
        behind.crash()
        behind.start()
        assert "early" in behind.replica.image.topics, "it is there at once"
