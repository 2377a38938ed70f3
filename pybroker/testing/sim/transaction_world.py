"""A run at the level of transactions: transactional producers on coordinators and partitions that move, from one seed.

What holds all the time: markers go out for what is committed; of a transaction all partitions have the same verdict, and a
commit only if it was asked for; no partition takes anything of an epoch below one that it knows; no replica's last stable
offset passes an open transaction; what a read_committed consumer gets is committed; an epoch is given to one producer only, the
last of an id, which in most runs comes soon, to nobody; what is acknowledged is in the log. In the end no transaction is open
anywhere, each committed one is there as a whole and once, and coordinators are what their logs say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pybroker.coordinator.group.records import GROUP_RECORD_TYPES
from pybroker.coordinator.group.shard import GroupShard
from pybroker.coordinator.records import decode_record
from pybroker.coordinator.shard import Effect
from pybroker.coordinator.transaction.records import TRANSACTION_RECORD_TYPES
from pybroker.coordinator.transaction.requests import SendMarkers
from pybroker.coordinator.transaction.shard import TransactionShard
from pybroker.coordinator.transaction.transaction import EPOCH_BUMP, MAX_EPOCH
from pybroker.log.files import TopicPartition
from pybroker.log.log import Log
from pybroker.metadata.controller.features import TRANSACTION_VERSION
from pybroker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pybroker.protocol.internal.transaction_state import TransactionLogValue
from pybroker.protocol.records.batch import RecordBatch
from pybroker.protocol.records.control import ControlType, control_type
from pybroker.testing.sim.coordinator_node import CoordinatorBroker
from pybroker.testing.sim.coordinator_world import CoordinatorWorld
from pybroker.testing.sim.raft_checks import InvariantError
from pybroker.testing.sim.replays import check_group_replay, check_transaction_replay
from pybroker.testing.sim.trace import Trace
from pybroker.testing.sim.transaction_clients import TOPIC, Asked, Reader, TransactionalClient, Write

MAX_JUMP_MS: Final = 5_000
GROUPS: Final = ("g0", "g1")  # both in the only partition of their coordinator


class Open:
    """A transaction in a partition's log, without a marker so far."""

    def __init__(self, first_offset: int, tag: int) -> None:
        self.first_offset = first_offset
        self.tag = tag
        self.records: list[tuple[int, int]] = []  # offset and number


class PartitionTruth:
    """The transactions of a partition, as the committed log has them."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.open: dict[int, Open] = {}  # by producer id
        self.epochs: dict[int, int] = {}
        self.visible: dict[int, tuple[int, int]] = {}  # tag and number by offset
        self.appended: set[tuple[int, int]] = set()  # (tag, number)
        self.groups: dict[int, str] = {}  # whose offset a record is, by its own

    def take(self, batch: RecordBatch) -> tuple[int, bool] | None:
        """The tag of a transaction that ends here, and whether it was committed."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        known = self.epochs.get(producer_id, -1)
        if epoch < known:
            raise InvariantError(f"{self.name}: {batch} is of epoch {epoch}, behind one of epoch {known}")
        self.epochs[producer_id] = epoch
        if batch.is_control:
            ended = self.open.pop(producer_id, None)
            if ended is None:
                return None
            commits = any(control_type(record.key) is ControlType.COMMIT for record in batch.records())
            if commits:
                self.visible |= {offset: (ended.tag, number) for offset, number in ended.records}
            return ended.tag, commits
        for offset, tag, number, group in _written(self.name.topic, batch):
            self.groups[offset] = group
            current = self.open.setdefault(producer_id, Open(offset, tag))
            if current.tag != tag:
                raise InvariantError(f"{self.name}: {tag} is written into the transaction {current.tag}, which is open")
            current.records.append((offset, number))
            self.appended.add((tag, number))
        return None

    def first_open(self) -> int | None:
        return min((one.first_offset for one in self.open.values()), default=None)


def _written(topic: str, batch: RecordBatch) -> list[tuple[int, int, int, str]]:
    """Offset, tag and number of the records of a transaction, and the group of an offset."""
    out = []
    for row in batch.records():
        group = ""
        if topic == TOPIC:
            assert row.value is not None
            tag, number = map(int, bytes(row.value).split())
        else:
            record = decode_record(GROUP_RECORD_TYPES, row.key, row.value)
            assert record is not None
            key: Any = record.key
            value: Any = record.value
            tag, number, group = value.offset, int(value.metadata), key.group
        out.append((row.offset, tag, number, group))
    return out


class TransactionWorld(CoordinatorWorld):
    def __init__(self, seed: int, *, swarm: bool = False, trace: Trace | None = None) -> None:
        self.version = 0
        super().__init__(seed, swarm=swarm, trace=trace)
        random = self.random
        self.max_jump_ms = MAX_JUMP_MS
        self.max_producer_epoch = random.choice((4, 5, 6, 8, MAX_EPOCH))
        self.topics = {
            OFFSETS_TOPIC: 1,
            TRANSACTIONS_TOPIC: random.choice((1, 1, 2)),
            TOPIC: random.choice((1, 2, 3)),
        }
        self.partitions: dict[TopicPartition, PartitionTruth] = {}
        self.asked: dict[int, Asked] = {}
        self.verdicts: dict[int, bool] = {}
        self.decided: set[tuple[int, int, int]] = set()  # producer id, epoch and state of each committed record
        self.holders: dict[tuple[int, int], tuple[int, int]] = {}  # of a producer id and epoch: node and life
        self.facts |= dict.fromkeys(("committed", "aborted", "delivered"), 0)
        for number in range(random.choice((1, 2, 3))):
            for _ in range(random.choice((1, 1, 2))):
                self.add_client(
                    TransactionalClient(
                        self,
                        self,
                        len(self.clients),
                        f"x{number}",
                        random.choice(GROUPS),
                        random.choice((600, 3_000)),
                        is_new=self.version >= EPOCH_BUMP and random.random() < 0.7,
                    )
                )
        self.reader = Reader(self, self, len(self.clients))
        self.add_client(self.reader)

    def feature_levels(self) -> Mapping[str, int]:
        self.version = self.random.choice((0, 1, EPOCH_BUMP, EPOCH_BUMP))
        return {TRANSACTION_VERSION: self.version}

    @property
    def producers(self) -> list[TransactionalClient]:
        return [one for one in self.clients if isinstance(one, TransactionalClient)]

    # What a TransactionSetting has.

    def new_transaction(self, who: str) -> Asked:
        asked = Asked(len(self.asked) + 1, who)
        self.asked[asked.tag] = asked
        return asked

    def became(self, client: TransactionalClient, producer_id: int, epoch: int) -> None:
        if epoch >= self.max_producer_epoch:
            raise InvariantError(f"{client.transactional_id}: epoch {epoch} of {producer_id} is given out, the last one")
        who = (client.node_id, client.life)
        other = self.holders.setdefault((producer_id, epoch), who)
        if other != who:
            raise InvariantError(
                f"{client.transactional_id}: epoch {epoch} of {producer_id} is given to {who}, and was to {other}"
            )

    def acknowledged(self, asked: Asked, write: Write) -> None:
        if not any((asked.tag, write.number) in self._truth_of(name).appended for name in self._places(write)):
            raise InvariantError(f"{write} of {asked.tag} is acknowledged, and is not committed")

    def _places(self, write: Write) -> list[TopicPartition]:
        if write.partition is not None:
            return [TopicPartition(TOPIC, write.partition)]
        return [TopicPartition(OFFSETS_TOPIC, index) for index in range(self.topics[OFFSETS_TOPIC])]

    def delivered(self, partition: int, offset: int, value: bytes) -> None:
        self.facts["delivered"] += 1
        if offset not in self._truth_of(TopicPartition(TOPIC, partition)).visible:
            raise InvariantError(f"{TOPIC}-{partition}: {value!r} at {offset} is given to a consumer, and is not committed")

    # The log.

    def _truth_of(self, name: TopicPartition) -> PartitionTruth:
        if name not in self.partitions:
            self.partitions[name] = PartitionTruth(name)
        return self.partitions[name]

    def committed(self, name: TopicPartition, batch: RecordBatch) -> None:
        if name.topic == TRANSACTIONS_TOPIC:
            self._note_decisions(batch)
        if name.topic == TRANSACTIONS_TOPIC or not batch.is_transactional:
            return
        ended = self._truth_of(name).take(batch)
        if ended is None:
            return
        tag, commits = ended
        if commits and not self.asked[tag].wants_commit:
            raise InvariantError(f"{name}: {tag} is committed, which nobody asked for")
        if self.verdicts.setdefault(tag, commits) != commits:
            raise InvariantError(f"{name}: {tag} is {'committed' if commits else 'aborted'} here, and elsewhere not")

    def _note_decisions(self, batch: RecordBatch) -> None:
        for row in batch.records():
            record = decode_record(TRANSACTION_RECORD_TYPES, row.key, row.value)
            assert record is not None
            if isinstance(record.value, TransactionLogValue):
                value = record.value
                self.decided.add((value.producer_id, value.producer_epoch, value.transaction_status))

    def carries_out(self, broker: CoordinatorBroker, effect: Effect) -> None:
        """No marker goes out before the decision is committed, or for one that another coordinator never saw."""
        if isinstance(effect, SendMarkers):
            self.observe(broker)
            if (*effect.producer, effect.prepared.state) not in self.decided:
                raise InvariantError(f"broker {broker.node_id} sends markers, and {effect.prepared} is not committed")

    def advanced(self, log: Log) -> None:
        first = self._truth_of(log.partition).first_open()
        if first is not None and log.last_stable_offset > first:
            raise InvariantError(
                f"{log.partition}: the last stable offset is {log.last_stable_offset}; a transaction is open from {first} on"
            )

    # The end.

    def stop_clients(self) -> None:
        for client in self.clients:
            client.is_stopping = True

    def is_whole(self) -> bool:
        return (
            self.has_all_in_sync()
            and self.has_all_coordinators()
            and all(client.is_done for client in self.producers)
            and not any(truth.open for truth in self.partitions.values())
            and all(self._is_idle(index) for index in range(self.topics[TRANSACTIONS_TOPIC]))
            and all(self._is_stable(name) for name in self.partitions)
            and all(self._is_read(index) for index in range(self.topics[TOPIC]))
        )

    def _is_idle(self, index: int) -> bool:
        shard = self.active_shard(TRANSACTIONS_TOPIC, index)
        return isinstance(shard, TransactionShard) and all(one.state.is_idle for one in shard.transactions.values())

    def _is_stable(self, name: TopicPartition) -> bool:
        log: Log | None = self.brokers[self.leader_of(*name)].log_of(*name)
        return log is not None and log.last_stable_offset == log.high_watermark

    def _is_read(self, index: int) -> bool:
        truth = self.truth.get(TopicPartition(TOPIC, index))
        return truth is None or self.reader.positions[index] == truth.end

    def standing(self) -> str:
        clients = ", ".join(
            f"{one.node_id} {one.transactional_id} {one.producer_id}/{one.epoch}{'' if one.is_done else ' not done'}"
            for one in self.producers
        )
        left = {str(name): [one.tag for one in truth.open.values()] for name, truth in self.partitions.items() if truth.open}
        shards = [self.active_shard(TRANSACTIONS_TOPIC, index) for index in range(self.topics[TRANSACTIONS_TOPIC])]
        states = [
            f"{one.transactional_id} {one.state.name} {one.producer_id}/{one.epoch} {sorted(one.partitions)}"
            for shard in shards
            if isinstance(shard, TransactionShard)
            for one in shard.transactions.values()
        ]
        return f"{clients}; open: {left}; {states}; read {self.reader.positions}; {self.replication_standing()}"

    def check_end(self) -> None:
        visible: dict[int, list[Write]] = {}
        for name, truth in self.partitions.items():
            for _, (tag, number) in sorted(truth.visible.items()):
                write = Write(name.partition if name.topic == TOPIC else None, number)
                seen = visible.setdefault(tag, [])
                # An offset that is committed again is the same one.
                if write.partition is not None or write not in seen:
                    seen.append(write)
        for tag, asked in self.asked.items():
            verdict = self.verdicts.get(tag)
            seen = visible.get(tag, [])
            self.facts["committed" if verdict else "aborted"] += 1
            if sorted(seen, key=lambda one: one.number) != (asked.writes if verdict else []):
                raise InvariantError(f"{tag} of {asked.who}: {seen} of {asked.writes} can be seen, and it was {verdict}")
            for partition in {one.partition for one in seen}:
                numbers = [one.number for one in seen if one.partition == partition]
                if numbers != sorted(numbers):
                    raise InvariantError(f"{tag} of {asked.who}: {seen} are not in order")
            if asked.outcome is not None and asked.acked and asked.outcome != bool(verdict):
                raise InvariantError(f"{tag} of {asked.who}: its producer was told {asked.outcome}, and it was {verdict}")
        for index in range(self.topics[TRANSACTIONS_TOPIC]):
            check_transaction_replay(self, index, self.version)
        for index in range(self.topics[OFFSETS_TOPIC]):
            check_group_replay(self, index, GROUPS)
            self._check_offsets(index)

    def _check_offsets(self, index: int) -> None:
        """The last that a committed transaction has committed is what counts."""
        shard = self.active_shard(OFFSETS_TOPIC, index)
        assert isinstance(shard, GroupShard), f"nobody coordinates {OFFSETS_TOPIC}-{index}"
        truth = self._truth_of(TopicPartition(OFFSETS_TOPIC, index))
        last = {truth.groups[offset]: tag for offset, (tag, _) in sorted(truth.visible.items())}
        for group in GROUPS:
            known = shard.committed.get(group, TOPIC, 0)
            if (None if known is None else known.offset) != last.get(group):
                raise InvariantError(f"{group}: a transaction has committed {last.get(group)}; the coordinator has {known}")
