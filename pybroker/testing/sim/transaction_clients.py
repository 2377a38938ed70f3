"""Transactional producers and a reader, as client libraries are: they retry what may be retried, and know when they are fenced.

A producer runs transactions one after the other: records to several partitions and perhaps offsets of a group, then commit or
abort. It may die with all it knows, or stand still until others have taken its place. An old one (transaction.version 0 or 1)
adds partitions before it writes to them; a new one (2) just writes, and has a new epoch after every end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from pybroker.base.timer import Timer
from pybroker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.message import Message
from pybroker.protocol.messages import fetch, produce
from pybroker.protocol.messages import transactions as messages
from pybroker.protocol.records.batch import iter_batches
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.control import ControlType, control_type
from pybroker.testing.sim.coordinator_node import WALL_MS
from pybroker.testing.sim.coordinator_world import ClientNode, CoordinatorWorld
from pybroker.testing.sim.data_node import ALL_IN_SYNC, Done

TOPIC: Final = "t"
BACKOFF_MS: Final = 60
BETWEEN_MS: Final = 40
FENCED_MS: Final = 1_500  # until a fenced producer is started anew
PRODUCE_TIMEOUT_MS: Final = 500
READ_COMMITTED: Final = 1
FETCH_VERSION: Final = 12
INIT_VERSION, ADD_VERSION, ADD_OFFSETS_VERSION = 4, 3, 3
# Of an old producer and of a new one.
PRODUCE_VERSIONS, OFFSETS_VERSIONS, END_VERSIONS = (11, 12), (4, 5), (4, 5)

AGAIN: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
)
FENCED: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING))


class Write(NamedTuple):
    """A record of a transaction; `partition` of None: an offset of its group."""

    partition: int | None
    number: int


class Asked:
    """A transaction, as its producer knows it."""

    def __init__(self, tag: int, who: str) -> None:
        self.tag = tag
        self.who = who
        self.writes: list[Write] = []
        self.acked: set[Write] = set()
        self.wants_commit = False  # it has been asked for: all was acknowledged before
        self.outcome: bool | None = None  # what the coordinator has acknowledged


class TransactionSetting(Protocol):
    """What the clients' world hears."""

    def new_transaction(self, who: str) -> Asked: ...

    def acknowledged(self, asked: Asked, write: Write) -> None: ...

    def became(self, client: TransactionalClient, producer_id: int, epoch: int) -> None: ...

    def delivered(self, partition: int, offset: int, value: bytes) -> None: ...


class TransactionalClient(ClientNode):
    def __init__(
        self,
        world: CoordinatorWorld,
        setting: TransactionSetting,
        number: int,
        transactional_id: str,
        group: str,
        timeout_ms: int,
        *,
        is_new: bool,
    ) -> None:
        super().__init__(world, number)
        self.setting = setting
        self.transactional_id = transactional_id
        self.group = group
        self.is_new = is_new
        self._timeout_ms = timeout_ms
        self._index = self.index_of(TRANSACTIONS_TOPIC, transactional_id)
        self._group_index = self.index_of(OFFSETS_TOPIC, group)

    def boot(self) -> None:
        """A new process, which knows nothing."""
        self.timer = Timer(self.now_ms())
        self.producer_id = self.epoch = -1
        self.is_done = False
        self._leaders.clear()
        self._sequences: dict[int, int] = {}
        self._added: set[int | None] = set()
        self._init(recovers=False)

    # InitProducerId.

    def _init(self, *, recovers: bool) -> None:
        if self.is_stopping:
            self.is_done = True
            return
        request = messages.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
        )
        if recovers:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        retry = self._again(lambda: self._init(recovers=recovers))

        def done(response: Any) -> None:
            if response is None or self._is_retried(response.error_code):
                retry()
            elif response.error_code == ErrorCode.NONE:
                self._became(response.producer_id, response.producer_epoch)
                self._begin()
            else:
                self._be_fenced()

        self._ask_coordinator(request, INIT_VERSION, done)

    def _became(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch
        self.setting.became(self, producer_id, epoch)

    def _be_fenced(self) -> None:
        """Another one goes on in its place; after a while somebody starts this one again."""
        self.say("is fenced")
        self.later(1 + self.world.draw_below(FENCED_MS), lambda: self._init(recovers=False))

    # A transaction.

    def _begin(self) -> None:
        if self.is_stopping:
            self.is_done = True
            return
        draw = self.world.draw_below
        self.asked = asked = self.setting.new_transaction(self.transactional_id)
        self._added.clear()
        partitions = self.world.topics[TOPIC]
        for number in range(1 + draw(4)):
            asked.writes.append(Write(None if draw(5) == 0 else draw(partitions), number))
        self._commits = draw(5) > 0
        self._gives_up_in = draw(20)  # retries of a write, if it does at all
        self._go_on(0)

    def _go_on(self, place: int) -> None:
        """With the write at `place`, or the end."""
        if place == len(self.asked.writes):
            self._end_transaction(commits=self._commits)
            return
        write = self.asked.writes[place]
        if not self.is_new and write.partition not in self._added:
            self._add(place, write.partition)
        elif write.partition is None:
            self._commit_offset(place, write)
        else:
            self._produce(place, write, write.partition)

    def _add(self, place: int, partition: int | None) -> None:
        if partition is None:
            request: Message = messages.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=self.group,
            )
        else:
            request = messages.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[messages.AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
            )

        def done(response: Any) -> None:
            if isinstance(response, messages.AddPartitionsToTxnResponse):
                code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            else:
                code = ErrorCode.NETWORK_EXCEPTION if response is None else response.error_code
            if code == ErrorCode.NONE:
                self._added.add(partition)
                self._go_on(place)
            else:
                self._not_written(code, place)

        self._ask_coordinator(request, ADD_OFFSETS_VERSION if partition is None else ADD_VERSION, done)

    def _produce(self, place: int, write: Write, partition: int) -> None:
        sequence = self._sequences.get(partition, 0)
        builder = BatchBuilder(
            producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence, transactional=True
        )
        builder.append(WALL_MS + self.now_ms(), None, f"{self.asked.tag} {write.number}".encode())
        data = produce.PartitionProduceData(index=partition, records=builder.build())
        request = produce.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL_IN_SYNC,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[produce.TopicProduceData(name=TOPIC, partition_data=[data])],
        )

        def done(response: Any) -> None:
            code = ErrorCode.NETWORK_EXCEPTION
            if response is not None:
                code = response.responses[0].partition_responses[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[partition] = sequence + 1
                self._written(place, write)
            else:
                self.forget(TOPIC, partition)
                self._not_written(code, place)

        self.ask_leader(TOPIC, partition, request, PRODUCE_VERSIONS[self.is_new], done, may_repeat=True)

    def _commit_offset(self, place: int, write: Write) -> None:
        row = messages.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.asked.tag, committed_metadata=str(write.number)
        )
        request = messages.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[messages.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
        )

        def done(response: Any) -> None:
            code = ErrorCode.NETWORK_EXCEPTION if response is None else response.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                self._written(place, write)
            else:
                self.forget(OFFSETS_TOPIC, self._group_index)
                self._not_written(code, place)

        # What an old one sends twice, a transaction behind this one may take for its own: it has the same epoch.
        version = OFFSETS_VERSIONS[self.is_new]
        self.ask_leader(OFFSETS_TOPIC, self._group_index, request, version, done, may_repeat=self.is_new)

    def _written(self, place: int, write: Write) -> None:
        self.asked.acked.add(write)
        self.setting.acknowledged(self.asked, write)
        self._go_on(place + 1)

    def _not_written(self, code: int, place: int) -> None:
        if self._is_retried(code):
            self._gives_up_in -= 1
            if self._gives_up_in == 0:
                self._abort()
            else:
                self.later(BACKOFF_MS, lambda: self._go_on(place))
        elif code in FENCED:
            self._recover()
        else:
            self._abort()

    def _abort(self) -> None:
        """Something of it may still be on its way."""
        self._end_transaction(commits=False, needs_epoch=not self.is_new)

    def _recover(self) -> None:
        self.later(BACKOFF_MS, lambda: self._init(recovers=True))

    # EndTxn.

    def _end_transaction(self, *, commits: bool, needs_epoch: bool = False) -> None:
        asked = self.asked
        asked.wants_commit |= commits
        request = messages.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        retry = self._again(lambda: self._end_transaction(commits=commits, needs_epoch=needs_epoch))

        def done(response: Any) -> None:
            if response is None or self._is_retried(response.error_code):
                retry()
            elif response.error_code == ErrorCode.NONE:
                asked.outcome = commits
                if self.is_new:
                    self._became(response.producer_id, response.producer_epoch)
                self.later(1 + self.world.draw_below(BETWEEN_MS), self._recover if needs_epoch else self._begin)
            else:
                self._recover()

        self._ask_coordinator(request, END_VERSIONS[self.is_new], done, may_repeat=self.is_new)

    def _ask_coordinator(self, request: Message, version: int, done: Done, *, may_repeat: bool = False) -> None:
        self.ask_leader(TRANSACTIONS_TOPIC, self._index, request, version, done, may_repeat=may_repeat)

    def _is_retried(self, code: int) -> bool:
        if code in AGAIN:
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self.forget(TRANSACTIONS_TOPIC, self._index)
            return True
        return False

    def _again(self, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: self.later(BACKOFF_MS, action)


class Reader(ClientNode):
    """A consumer with read_committed, of all partitions: what it is given, less what it is told was aborted."""

    def __init__(self, world: CoordinatorWorld, setting: TransactionSetting, number: int) -> None:
        super().__init__(world, number)
        self.setting = setting

    def boot(self) -> None:
        self.timer = Timer(self.now_ms())
        self._leaders.clear()
        self.positions = dict.fromkeys(range(self.world.topics[TOPIC]), 0)
        for partition in self.positions:
            self._fetch(partition)

    def _fetch(self, partition: int) -> None:
        wanted = fetch.FetchPartition(
            partition=partition, fetch_offset=self.positions[partition], partition_max_bytes=1 + self.world.draw_below(4000)
        )
        request = fetch.FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=[fetch.FetchTopic(topic=TOPIC, partitions=[wanted])],
        )

        def done(response: Any) -> None:
            data = None if response is None or not response.responses else response.responses[0].partitions[0]
            if data is None or data.error_code:
                self.forget(TOPIC, partition)
            elif data.records:
                self._take(partition, data)
            self.later(BACKOFF_MS, lambda: self._fetch(partition))

        self.ask_leader(TOPIC, partition, request, FETCH_VERSION, done)

    def _take(self, partition: int, data: Any) -> None:
        aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
        out: set[int] = set()
        for batch in iter_batches(data.records):
            while aborted and aborted[0][0] <= batch.last_offset:
                out.add(aborted.pop(0)[1])
            if batch.is_control:
                if any(control_type(record.key) is ControlType.ABORT for record in batch.records()):
                    out.discard(batch.producer_id)
            elif batch.producer_id not in out or not batch.is_transactional:
                for record in batch.records():
                    if record.offset >= self.positions[partition]:
                        assert record.value is not None
                        self.setting.delivered(partition, record.offset, bytes(record.value))
            self.positions[partition] = max(self.positions[partition], batch.next_offset)
