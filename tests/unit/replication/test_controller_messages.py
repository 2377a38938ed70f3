"""AlterPartition and AssignReplicasToDirs: batched, one request under way, sent again until the controller decides."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pybroker.base.ids import Uuid
from pybroker.base.timer import Timer
from pybroker.log.files import TopicPartition
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages.log_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from pybroker.protocol.messages.partitions import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from pybroker.replication.directory_assignments import RETRY_MS as DIRECTORY_RETRY_MS
from pybroker.replication.directory_assignments import DirectoryAssignments
from pybroker.replication.isr import IsrProposal, IsrUpdated
from pybroker.replication.isr_updates import RETRY_MS, IsrUpdates

TOPIC_ID = Uuid(b"orders-topic-id-")
BROKER = 1
BROKER_EPOCH = 44


class Controller:
    def __init__(self) -> None:
        self.now_ms = 0
        self.timer = Timer(0)
        self.asked: list[tuple[Any, Callable[[Message | None], None]]] = []

    def ask(self, request: Message, done: Callable[[Message | None], None]) -> None:
        self.asked.append((request, done))

    def answer(self, response: Message | None) -> Any:
        request, done = self.asked.pop(0)
        done(response)
        return request

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for entry in self.timer.take_due(self.now_ms):
            entry.run()


def proposal(*isr: int) -> IsrProposal:
    return IsrProposal(tuple((broker, 10 * broker) for broker in isr), leader_epoch=3, partition_epoch=8)


def partition(index: int) -> Any:
    return SimpleNamespace(topic_id=TOPIC_ID, topic_partition=TopicPartition("orders", index))


def decided(*rows: tuple[int, int]) -> AlterPartitionResponse:
    partitions = [
        AlterPartitionResponsePartitionData(
            partition_index=index, error_code=code, leader_id=BROKER, leader_epoch=3, isr=[1, 2], partition_epoch=9
        )
        for index, code in rows
    ]
    return AlterPartitionResponse(
        error_code=0, topics=[AlterPartitionResponseTopicData(topic_id=TOPIC_ID, partitions=partitions)]
    )


class Updates(Controller):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[int, object]] = []
        self.updates = IsrUpdates(self.ask, BROKER, lambda: BROKER_EPOCH, self.timer, lambda: self.now_ms, self._answered)

    def _answered(self, of: Any, proposed: IsrProposal, answer: IsrUpdated | ErrorCode) -> None:
        self.answers.append((of.topic_partition.partition, answer))


def test_an_isr_goes_out_with_the_epochs_of_its_members() -> None:
    controller = Updates()
    controller.updates.submit(partition(0), proposal(1, 2))
    (request, _) = controller.asked[0]
    assert isinstance(request, AlterPartitionRequest)
    assert (request.broker_id, request.broker_epoch) == (BROKER, BROKER_EPOCH)
    (row,) = request.topics[0].partitions
    assert (row.leader_epoch, row.partition_epoch, row.leader_recovery_state) == (3, 8, 0)
    assert [(one.broker_id, one.broker_epoch) for one in row.new_isr_with_epochs] == [(1, 10), (2, 20)]
    controller.answer(decided((0, 0)))
    assert controller.answers == [(0, IsrUpdated((1, 2), 3, 9, 0))]


def test_what_comes_while_a_request_is_under_way_goes_out_together_in_the_next() -> None:
    controller = Updates()
    for index in range(3):
        controller.updates.submit(partition(index), proposal(1, 2))
    assert len(controller.asked) == 1
    controller.answer(decided((0, ErrorCode.FENCED_LEADER_EPOCH)))
    assert controller.answers == [(0, ErrorCode.FENCED_LEADER_EPOCH)]
    request = controller.answer(decided((1, 0), (2, 0)))
    assert [row.partition_index for row in request.topics[0].partitions] == [1, 2]
    assert not controller.asked


def test_without_an_answer_or_refused_as_a_whole_it_goes_out_again() -> None:
    controller = Updates()
    controller.updates.submit(partition(0), proposal(1, 2))
    newer = 9999  # than any code that is known here
    for answer in (None, *(AlterPartitionResponse(error_code=one, topics=[]) for one in (ErrorCode.STALE_BROKER_EPOCH, newer))):
        controller.answer(answer)
        assert not controller.asked
        controller.pass_time(RETRY_MS)
        assert len(controller.asked) == 1
    assert controller.answers == []
    controller.answer(decided((0, 0)))
    assert [index for index, _ in controller.answers] == [0]


def test_a_later_proposal_of_a_partition_takes_the_place_of_one_that_waits() -> None:
    controller = Updates()
    controller.updates.submit(partition(0), proposal(1, 2))
    controller.updates.submit(partition(1), proposal(1, 2))
    controller.updates.submit(partition(1), proposal(1))
    controller.answer(decided((0, 0)))
    request = controller.answer(decided((1, 0)))
    assert [one.broker_id for one in request.topics[0].partitions[0].new_isr_with_epochs] == [1]


def test_a_partition_that_the_answer_leaves_out_is_not_forgotten() -> None:
    controller = Updates()
    controller.updates.submit(partition(0), proposal(1, 2))
    controller.answer(decided())
    assert controller.answers == [(0, ErrorCode.UNKNOWN_SERVER_ERROR)]


def test_directories_go_out_by_directory_and_topic_and_again_if_they_must() -> None:
    controller = Controller()
    assignments = DirectoryAssignments(
        controller.ask, BROKER, lambda: BROKER_EPOCH, controller.timer, lambda: controller.now_ms
    )
    first, second = Uuid(b"a" * 16), Uuid(b"b" * 16)
    assignments.submit((TOPIC_ID, 0), first)
    assignments.submit((TOPIC_ID, 1), first)
    assignments.submit((TOPIC_ID, 1), second)
    assert controller.answer(None).directories[0].id == first
    controller.pass_time(DIRECTORY_RETRY_MS)
    request = controller.answer(AssignReplicasToDirsResponse(error_code=0, directories=[]))
    assert isinstance(request, AssignReplicasToDirsRequest)
    assert {
        (row.partition_index, one.id) for one in request.directories for topic in one.topics for row in topic.partitions
    } == {(0, first), (1, second)}
    assert (request.broker_id, request.broker_epoch) == (BROKER, BROKER_EPOCH)
    assert not controller.asked


def test_whoever_asks_for_a_directory_hears_of_the_answer_that_counts() -> None:
    controller = Controller()
    assignments = DirectoryAssignments(
        controller.ask, BROKER, lambda: BROKER_EPOCH, controller.timer, lambda: controller.now_ms
    )
    first, second = Uuid(b"a" * 16), Uuid(b"b" * 16)
    heard: list[tuple[str, bool]] = []

    def hears(name: str) -> Callable[[bool], None]:
        return lambda is_accepted: heard.append((name, is_accepted))

    assignments.submit((TOPIC_ID, 0), first, hears("taken"))
    assignments.submit((TOPIC_ID, 1), first, hears("overtaken"))
    controller.answer(None)
    assert heard == []
    controller.pass_time(DIRECTORY_RETRY_MS)
    assignments.submit((TOPIC_ID, 1), second, hears("refused"))
    controller.answer(AssignReplicasToDirsResponse(error_code=0, directories=[]))
    assert heard == [("overtaken", False), ("taken", True)]
    refusal = AssignReplicasToDirsResponsePartitionData(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    topics = [AssignReplicasToDirsResponseTopicData(topic_id=TOPIC_ID, partitions=[refusal])]
    directories = [AssignReplicasToDirsResponseDirectoryData(id=second, topics=topics)]
    controller.answer(AssignReplicasToDirsResponse(error_code=0, directories=directories))
    assert heard[2:] == [("refused", False)]
    assignments.submit((TOPIC_ID, 0), first)
    assignments.submit((TOPIC_ID, 1), first, hears("never sent"))
    assignments.submit((TOPIC_ID, 1), second)
    assert heard[3:] == [("never sent", False)]


def test_a_cluster_that_knows_no_directories_has_nothing_against_one() -> None:
    controller = Controller()
    assignments = DirectoryAssignments(
        controller.ask, BROKER, lambda: BROKER_EPOCH, controller.timer, lambda: controller.now_ms
    )
    heard: list[bool] = []
    assignments.submit((TOPIC_ID, 0), Uuid(b"a" * 16), heard.append)
    controller.answer(AssignReplicasToDirsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, directories=[]))
    controller.pass_time(DIRECTORY_RETRY_MS)
    assert (heard, controller.asked) == ([True], [])
