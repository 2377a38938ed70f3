"""The invariants of the cluster's metadata, held against the committed records, one by one, and against every published image.

A model of its own, far smaller than the image, follows the records: brokers with their epochs, partitions with leader and
ISR. What the active controller answered with success is remembered with the offset at which it did: every image from there on,
on whatever node, must show it. Under that lie the invariants of the quorum, by the batches that the nodes write and load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pybroker.base.ids import Uuid
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType
from pybroker.protocol.internal.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from pybroker.protocol.message import Message
from pybroker.server.quorum.store import Entry
from pybroker.testing.sim.raft_checks import InvariantError

Entries = Callable[[int, int], Iterable[Entry]]  # committed ones of a node's log, from an offset to before another
PartitionKey = tuple[Uuid, int]

NO_LEADER = -1
NO_CHANGE = -2
UNCLEAN = "unclean.leader.election.enable"


@dataclass(slots=True)
class ModelBroker:
    epoch: int
    incarnation_id: Uuid
    is_fenced: bool
    fences: int = 0  # of this incarnation


@dataclass(slots=True, frozen=True)
class ModelPartition:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    is_reassigning: bool
    leader: int

    def is_clean(self, leader: int, in_sync: Collection[int]) -> bool:
        """Whether the next leader has all that is committed. Of a partition with nobody in sync it may be the last leader, when
        nobody is eligible or those who were lost what they had (KIP-966). `in_sync` were said to be so by the old leader, with
        which a reassignment was complete."""
        if leader in in_sync or leader in self.isr or leader in self.elr:
            return True
        return not self.isr and self.last_known == (leader,)


@dataclass(slots=True)
class Promise:
    """What was answered with success, and at which offset it was seen to be so."""

    offset: int
    topic_id: Uuid | None = None  # it exists
    partitions: int = 0  # at least
    configs: dict[str, set[str]] = field(default_factory=dict)  # a key has one of these values


@dataclass(slots=True)
class PartitionPromise:
    """Of an AlterPartition: the state that an epoch of the partition stands for, or a later epoch."""

    offset: int
    partition_epoch: int
    leader_epoch: int
    leader: int
    isr: frozenset[int]


class StoredBatch(NamedTuple):
    """What tells a batch of the log from any other at its offset."""

    base_offset: int
    epoch: int
    crc: int


class QuorumChecks:
    """One leader in an epoch; where two logs have a batch of the same offset and epoch it is the same, and follows the same;
    what is committed never changes, is never cut off, and a node's high watermark does not go back."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}
        self._links: dict[tuple[int, int], tuple[int, int | None]] = {}  # (offset, epoch): crc, epoch of the batch before
        self._committed: dict[int, StoredBatch] = {}  # by base offset

    def announced(self, node_id: int, epoch: int, leader_id: int) -> None:
        known = self._leaders.setdefault(epoch, leader_id)
        require(known == leader_id, f"node {node_id}: epoch {epoch} has two leaders, nodes {known} and {leader_id}")

    def appended(self, node_id: int, epoch_before: int | None, batches: Iterable[StoredBatch]) -> None:
        for offset, epoch, crc in batches:
            known_crc, known_before = self._links.get((offset, epoch), (crc, None))
            require(known_crc == crc, f"node {node_id}: log matching: another batch at offset {offset} in epoch {epoch}")
            require(
                None in (known_before, epoch_before) or known_before == epoch_before,
                f"node {node_id}: log matching: offset {offset} of epoch {epoch} follows epoch {epoch_before}, elsewhere "
                f"{known_before}",
            )
            require(
                epoch_before is None or epoch_before <= epoch,
                f"node {node_id}: epoch {epoch} follows {epoch_before} at {offset}",
            )
            self._links[offset, epoch] = (crc, epoch_before if known_before is None else known_before)
            epoch_before = epoch

    def truncated(self, node_id: int, gone: Iterable[StoredBatch]) -> None:
        for batch in gone:
            require(
                self._committed.get(batch.base_offset) != batch,
                f"node {node_id}: the committed batch at offset {batch.base_offset} of epoch {batch.epoch} was cut off",
            )

    def committed(self, node_id: int, batches: Iterable[StoredBatch]) -> None:
        """Whatever a node loads of its log."""
        for batch in batches:
            known = self._committed.setdefault(batch.base_offset, batch)
            require(
                known == batch,
                f"node {node_id}: the committed batch at offset {batch.base_offset} was of epoch {known.epoch}, here it is "
                f"another one, of {batch.epoch}",
            )

    def advanced(self, node_id: int, before: int, offset: int) -> None:
        require(offset >= before, f"node {node_id}: the high watermark went back from {before} to {offset}")


class ClusterChecks:
    def __init__(self) -> None:
        self.quorum = QuorumChecks()
        self.brokers: dict[int, ModelBroker] = {}
        self.partitions: dict[tuple[Uuid, int], ModelPartition] = {}
        self.names: dict[Uuid, str] = {}
        self.next_offset = 0
        self.unclean_elections = 0
        self.fences = 0
        self.leader_changes = 0
        self.images_compared = 0
        self._unclean: dict[str, str | None] = {}  # by topic; "" for all
        self._epochs: dict[int, int] = {}  # every epoch ever held: by which broker
        self._buffer: list[Message] | None = None  # of a metadata transaction
        self._image = EMPTY_IMAGE
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._promises: dict[str, Promise] = {}
        self._unsure: dict[str, dict[str, set[str]]] = {}  # config values that may or may not have been set
        self._deletable: set[str] = set()
        self._deleted: dict[Uuid, int] = {}
        self._next_producer_id = 0
        self._in_sync: dict[tuple[PartitionKey, int], set[int]] = {}  # as leaders said
        self._preferred_led: set[PartitionKey] = set()  # that an election gave to the preferred replica
        self._registrations: dict[int, tuple[int, int, Uuid]] = {}  # of a broker: offset, epoch, incarnation
        self._altered: dict[PartitionKey, PartitionPromise] = {}
        self._targets: dict[str, set[frozenset[int] | None]] = {}  # of partition 0 of a topic: whatever was asked for
        self._reassigned: dict[str, tuple[int, Uuid]] = {}  # at which offset such a wish was granted

    # Committed records.

    def committed(self, entries: Iterable[Entry]) -> None:
        """Whatever a node published that nobody did before."""
        written: list[Message] = []
        records: list[Message] = []  # without those of transactions that are open or aborted
        epoch = self._image.epoch
        for entry in entries:
            offset, epoch, record = entry
            require(offset == self.next_offset, f"offset {offset} was published; expected {self.next_offset}")
            self.next_offset = offset + 1
            if record is None:
                continue
            written.append(record)
            match record:
                case BeginTransactionRecord():
                    self._buffer = []
                case EndTransactionRecord():
                    records += self._buffer or []
                    self._buffer = None
                case AbortTransactionRecord():
                    self._buffer = None
                case _:
                    (records if self._buffer is None else self._buffer).append(record)
        for record in records:
            self._apply(record)
        for record in written:
            self._delta.replay(record)
        if self._buffer is None:
            self._require_live_leaders()
            self._image = self._delta.image(self.next_offset - 1, epoch)
            self._delta = MetadataDelta(self._image)

    def _apply(self, record: Message) -> None:
        match record:
            case RegisterBrokerRecord():
                self._register(record)
            case UnregisterBrokerRecord():
                del self.brokers[record.broker_id]
            case BrokerRegistrationChangeRecord():
                self._change_broker(record)
            case TopicRecord():
                self.names[record.topic_id] = record.name
            case RemoveTopicRecord():
                name = self.names.pop(record.topic_id)
                require(name in self._deletable, f"topic {name} was removed, but nobody asked for it")
                self._unclean.pop(name, None)
                for key in [key for key in self.partitions if key[0] == record.topic_id]:
                    del self.partitions[key]
            case ConfigRecord() if record.name == UNCLEAN:
                self._unclean[record.resource_name] = record.value
            case PartitionRecord():
                elr, last_known = tuple(record.eligible_leader_replicas or ()), tuple(record.last_known_elr or ())
                state = ModelPartition(tuple(record.replicas), tuple(record.isr), elr, last_known, False, record.leader)
                self._require_sound(record.topic_id, record.partition_id, state)
                self.partitions[record.topic_id, record.partition_id] = state
            case PartitionChangeRecord():
                self._change_partition(record)

    def _register(self, record: RegisterBrokerRecord) -> None:
        id_, epoch = record.broker_id, record.broker_epoch
        known = self.brokers.get(id_)
        is_same = known is not None and known.incarnation_id == record.incarnation_id
        holder = self._epochs.setdefault(epoch, id_)
        require(holder == id_, f"brokers {holder} and {id_} both hold epoch {epoch}")
        require(
            known is None or epoch > known.epoch or (is_same and epoch == known.epoch),
            f"broker {id_} was registered with epoch {epoch} after {known.epoch if known else None}",
        )
        if is_same and known is not None:
            known.epoch, known.is_fenced = epoch, record.fenced
        else:
            self.brokers[id_] = ModelBroker(epoch, record.incarnation_id, record.fenced)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        require(broker is not None, f"broker {record.broker_id} was changed, but is not registered")
        assert broker is not None
        require(
            broker.epoch == record.broker_epoch,
            f"broker {record.broker_id} of epoch {broker.epoch} was changed by a record for epoch {record.broker_epoch}",
        )
        if record.fenced == 1 and not broker.is_fenced:
            broker.fences += 1
            self.fences += 1
        if record.fenced:
            broker.is_fenced = record.fenced == 1

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        key = (record.topic_id, record.partition_id)
        old = self.partitions.get(key)
        require(old is not None, f"partition {self._name(*key)} was changed, but does not exist")
        assert old is not None
        new = ModelPartition(
            old.replicas if record.replicas is None else tuple(record.replicas),
            old.isr if record.isr is None else tuple(record.isr),
            old.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            old.last_known if record.last_known_elr is None else tuple(record.last_known_elr),
            _is_reassigning(old, record),
            old.leader if record.leader == NO_CHANGE else record.leader,
        )
        self._require_sound(*key, new)
        if new.leader not in (old.leader, NO_LEADER):
            self.leader_changes += 1
            completes = old.is_reassigning and not new.is_reassigning
            is_clean = old.is_clean(new.leader, self._in_sync.get((key, old.leader), ()) if completes else ())
            if new.leader == new.replicas[0]:
                self._preferred_led.add(key)
            if not is_clean:
                self.unclean_elections += 1
            require(
                is_clean or self._allows_unclean(self.names[key[0]]),
                f"{self._name(*key)}: {new.leader} was made leader, but the ISR was {old.isr}, the ELR {old.elr}, and unclean "
                "election is not allowed",
            )
        self.partitions[key] = new

    def _require_sound(self, topic_id: Uuid, index: int, state: ModelPartition) -> None:
        require(bool(state.isr) or bool(state.elr) or state.leader == NO_LEADER, f"{self._name(topic_id, index)}: {state}")
        require(
            state.leader == NO_LEADER or state.leader in state.isr,
            f"{self._name(topic_id, index)}: leader {state.leader} is not in its ISR {state.isr}",
        )
        require(
            all(id_ in state.replicas for id_ in (*state.isr, *state.elr)),
            f"{self._name(topic_id, index)}: ISR {state.isr} and ELR {state.elr} of replicas {state.replicas}",
        )

    def _require_live_leaders(self) -> None:
        """Between decisions, no partition is led by a broker that is fenced or gone."""
        for key, state in self.partitions.items():
            if state.leader != NO_LEADER:
                broker = self.brokers.get(state.leader)
                require(
                    broker is not None and not broker.is_fenced,
                    f"{self._name(*key)} is led by {state.leader}, which is {'fenced' if broker else 'not registered'}",
                )

    def _allows_unclean(self, topic: str) -> bool:
        value = self._unclean.get(topic)
        return (value if value is not None else self._unclean.get("")) == "true"

    def _name(self, topic_id: Uuid, index: int) -> str:
        return f"{self.names.get(topic_id, topic_id.hex())}-{index}"

    # Answers.

    def topic_created(self, offset: int, name: str, topic_id: Uuid, partitions: int) -> None:
        # It may have been seen, and its deletion asked for, before the answer was given.
        if name not in self._deletable:
            self._promises.setdefault(name, Promise(offset, topic_id, partitions))

    def partitions_created(self, offset: int, name: str, count: int) -> None:
        known = self._promises.get(name)
        if known is not None:
            self._promises[name] = replace(known, offset=max(offset, known.offset), partitions=max(count, known.partitions))

    def deletion_asked(self, name: str) -> None:
        """From here on the topic may be gone in any image."""
        self._deletable.add(name)
        self._promises.pop(name, None)

    def topic_deleted(self, offset: int, topic_id: Uuid) -> None:
        self._deleted[topic_id] = offset

    def config_asked(self, name: str, key: str, value: str) -> None:
        """From here on the value may be set; until it is answered with success nobody knows."""
        self._unsure.setdefault(name, {}).setdefault(key, set()).add(value)
        known = self._promises.get(name)
        if known is not None and key in known.configs:
            known.configs[key].add(value)

    def config_set(self, offset: int, name: str, key: str, value: str) -> None:
        known = self._promises.get(name)
        if known is None:
            return
        # Whatever else is still under way may come after it.
        known.configs[key] = {value, *self._unsure.get(name, {}).get(key, ())}
        known.offset = max(offset, known.offset)

    def config_failed(self, name: str, key: str, value: str) -> None:
        """It was refused, and is not under way any more."""
        self._unsure.get(name, {}).get(key, set()).discard(value)

    def isr_asked(self, topic_id: Uuid, index: int, leader: int, isr: Iterable[int]) -> None:
        """A leader says who is in sync with it."""
        self._in_sync.setdefault(((topic_id, index), leader), set()).update(isr)

    def isr_altered(
        self, offset: int, topic_id: Uuid, index: int, epochs: tuple[int, int], leader: int, isr: Iterable[int]
    ) -> None:
        """`epochs` are those of the partition and of its leader."""
        known = self._altered.get((topic_id, index))
        if known is None or known.partition_epoch < epochs[0]:
            self._altered[topic_id, index] = PartitionPromise(offset, *epochs, leader, frozenset(isr))

    def preferred_elected(self, name: str, index: int) -> None:
        found = [id_ for id_, known in self.names.items() if known == name]
        require(
            not found or (found[0], index) in self._preferred_led,
            f"{name}-{index}: an election of the preferred leader was answered with success, but none is committed",
        )

    def broker_registered(self, offset: int, broker_id: int, epoch: int, incarnation_id: Uuid) -> None:
        known = self._registrations.get(broker_id)
        if known is None or known[1] < epoch:
            self._registrations[broker_id] = (offset, epoch, incarnation_id)

    def reassignment_asked(self, name: str, replicas: Iterable[int] | None) -> None:
        """Of partition 0; None to cancel. From here on it may be so, whenever the request comes."""
        self._targets.setdefault(name, set()).add(None if replicas is None else frozenset(replicas))

    def reassignment_begun(self, offset: int, name: str, topic_id: Uuid) -> None:
        self._reassigned.setdefault(name, (offset, topic_id))

    def producer_ids_given(self, start: int, count: int) -> None:
        """Blocks are given in order, each once."""
        require(start >= self._next_producer_id, f"producer ids from {start} on were given a second time")
        self._next_producer_id = start + count

    # Images.

    def published(self, node_id: int, image: MetadataImage, entries_of: Entries) -> None:
        if image.offset >= self.next_offset:
            self.committed(entries_of(self.next_offset, image.offset + 1))
        if image.offset == self._image.offset and (image.offset % 4 == 0 or len(image.topics) < 5):
            self.require_same(node_id, image)
        epochs = [broker.epoch for broker in image.brokers.values()]
        require(len(set(epochs)) == len(epochs), f"node {node_id}: two brokers hold the same epoch: {sorted(epochs)}")
        self._require_promises(node_id, image)
        self._require_states(node_id, image)

    def require_same(self, node_id: int, image: MetadataImage) -> None:
        self.images_compared += 1
        require(image == self._image, f"node {node_id}: its image at offset {image.offset} is not what is committed")

    def _require_promises(self, node_id: int, image: MetadataImage) -> None:
        for name, promise in self._promises.items():
            if image.offset < promise.offset:
                continue
            topic = image.topics.get(name)
            require(
                topic is not None and topic.topic_id == promise.topic_id,
                f"node {node_id}: topic {name}, there by offset {promise.offset}, is not in the image at {image.offset}",
            )
            assert topic is not None
            require(
                len(topic.partitions) >= promise.partitions,
                f"node {node_id}: topic {name} was given {promise.partitions} partitions, but has {len(topic.partitions)}",
            )
            for key, values in promise.configs.items():
                found = image.config_of(ResourceType.TOPIC, name).get(key)
                require(found in values, f"node {node_id}: {key} of topic {name} is {found}; expected one of {sorted(values)}")
        for topic_id, offset in self._deleted.items():
            require(
                image.offset < offset or topic_id not in image.topics_by_id,
                f"node {node_id}: a topic that was deleted by offset {offset} is in the image at {image.offset}",
            )

    def _require_states(self, node_id: int, image: MetadataImage) -> None:
        for broker_id, (offset, epoch, incarnation_id) in self._registrations.items():
            broker = image.brokers.get(broker_id)
            require(
                image.offset < offset
                or (
                    broker is not None
                    and (broker.epoch > epoch or (broker.epoch, broker.incarnation_id) == (epoch, incarnation_id))
                ),
                f"node {node_id}: broker {broker_id} was registered with epoch {epoch} by offset {offset}, but is {broker}",
            )
        for (topic_id, index), promise in self._altered.items():
            topic = image.topics_by_id.get(topic_id)
            if image.offset < promise.offset or topic is None:
                continue
            state = topic.partitions[index]
            is_it = (state.leader_epoch, state.leader, frozenset(state.isr)) == (
                promise.leader_epoch,
                promise.leader,
                promise.isr,
            )
            require(
                state.partition_epoch > promise.partition_epoch or (state.partition_epoch == promise.partition_epoch and is_it),
                f"node {node_id}: {topic.name}-{index} was answered to be {promise}, but is {state}",
            )
        for name, (offset, topic_id) in self._reassigned.items():
            known = image.topics_by_id.get(topic_id)
            targets = self._targets[name]
            if image.offset < offset or known is None or None in targets:
                continue
            state = known.partitions[0]
            stays = frozenset(state.replicas).difference(state.removing_replicas)
            require(stays in targets, f"node {node_id}: {name}-0 goes to {sorted(stays)}, which nobody asked for")

    @property
    def image_offset(self) -> int:
        return self._image.offset


def _is_reassigning(old: ModelPartition, record: PartitionChangeRecord) -> bool:
    adding, removing = record.adding_replicas, record.removing_replicas
    if adding is None and removing is None:
        return old.is_reassigning
    return bool(adding or removing)


def require(condition: bool, text: str) -> None:
    if not condition:
        raise InvariantError(text)
