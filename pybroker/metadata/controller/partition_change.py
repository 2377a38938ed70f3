"""From what a partition is to what it shall be: who leads it, who is in sync, and which epochs rise.

`PartitionRules` is how brokers, topics and features stand for one decision. A `PartitionChange` begins as the partition is;
whoever decides sets what they want changed, and `record` adds what follows from it: a reassignment that is complete, an
election, eligible leader replicas (KIP-966). A leader named in the record raises the leader epoch, any record the partition's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import NamedTuple

from pybroker.base.ids import Uuid
from pybroker.metadata.controller.decisions import Setting
from pybroker.metadata.controller.features import DIRECTORIES, SHRINK_KEEPS_EPOCH, is_elr_enabled, metadata_version
from pybroker.metadata.delta import NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE
from pybroker.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    BrokerState,
    ConfigResource,
    LeaderRecoveryState,
    MetadataImage,
    PartitionState,
    ResourceType,
    TopicImage,
)
from pybroker.protocol.internal.metadata_log import PartitionChangeRecord

MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


class Election(Enum):
    ONLINE = auto()  # whoever is in sync; the present leader, if it can
    PREFERRED = auto()  # the first replica, if it is in sync
    UNCLEAN = auto()  # as ONLINE, but anybody who lives rather than nobody


class TopicRules(NamedTuple):
    min_isr: int
    is_unclean_allowed: bool


class PartitionRules:
    def __init__(
        self, image: MetadataImage, setting: Setting, *, leaving: Collection[int] = (), coming: int | None = None
    ) -> None:
        """`leaving` are brokers that can lead no more and `coming` is one that now can, whatever the image says."""
        self.image = image
        self.level = metadata_version(image)
        self.has_elr = is_elr_enabled(image)
        config = setting.effective.of(image).config
        self._default = TopicRules(config.int(MIN_ISR), config.flag(UNCLEAN_ELECTION))
        self._topics: dict[Uuid, TopicRules] = {}
        leaders = {broker.id for broker in image.brokers.values() if broker.is_active}
        if coming is not None:
            leaders.add(coming)
        self._leaders = leaders.difference(leaving)

    def of_topic(self, topic: TopicImage) -> TopicRules:
        rules = self._topics.get(topic.topic_id)
        if rules is None:
            min_isr, is_unclean_allowed = self._default
            configs = self.image.configs.get(ConfigResource(ResourceType.TOPIC, topic.name))
            if configs is not None:
                min_isr = int(configs.get(MIN_ISR, min_isr))
                if UNCLEAN_ELECTION in configs:
                    is_unclean_allowed = configs[UNCLEAN_ELECTION].strip().lower() == "true"
            min_isr = min(min_isr, len(topic.partitions[0].replicas))
            rules = self._topics[topic.topic_id] = TopicRules(min_isr, is_unclean_allowed)
        return rules

    def can_lead(self, broker_id: int, partition: PartitionState) -> bool:
        """Whether the broker lives and so does the directory that its replica is in."""
        if broker_id not in self._leaders or broker_id not in partition.replicas:
            return False
        return is_online(self.image.brokers[broker_id], partition.directory_of(broker_id))

    def directory_of_new(self, broker_id: int) -> Uuid:
        broker = self.image.brokers.get(broker_id)
        return UNASSIGNED_DIRECTORY if broker is None else directory_of_new(broker)


def is_online(broker: BrokerState, directory: Uuid) -> bool:
    if directory == LOST_DIRECTORY:
        return False
    # A broker that registered before directories were registered has none to be told.
    return directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY) or not broker.log_dirs or directory in broker.log_dirs


def directory_of_new(broker: BrokerState) -> Uuid:
    """Where a broker keeps a new replica: one with several directories chooses itself, and says so later."""
    if not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


class PartitionChange:
    __slots__ = ("_elr", "_index", "_old", "_rules", "_topic", "adding", "directories", "election", "isr",
                 "recovery_state", "removing", "replicas", "unclean_shutdowns")  # fmt: skip

    def __init__(self, rules: PartitionRules, topic: TopicImage, index: int) -> None:
        self._rules = rules
        self._topic = topic
        self._index = index
        old = self._old = topic.partitions[index]
        self.isr = old.isr
        self.replicas = old.replicas
        self.adding = old.adding_replicas
        self.removing = old.removing_replicas
        self.recovery_state = old.leader_recovery_state
        self.election = Election.ONLINE
        self.directories: dict[int, Uuid] | None = None  # of the replicas whose directory changes
        self.unclean_shutdowns: Collection[int] = ()  # brokers that may have lost what they had
        self._elr = old.eligible_leader_replicas

    def record(self) -> PartitionChangeRecord | None:
        """None if nothing changes."""
        rules, old = self._rules, self._old
        self._complete_reassignment()
        if rules.has_elr:
            self._renew_elr()
        record = PartitionChangeRecord(partition_id=self._index, topic_id=self._topic.topic_id)
        is_unclean = self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not _holds(self.replicas, old.replicas):
            record.leader = old.leader
        if is_unclean or not rules.has_elr:
            self._elr = ()
        if self._elr != old.eligible_leader_replicas:
            record.eligible_leader_replicas = list(self._elr)
        # Without eligible leader replicas the last ones in sync stay so, for want of another way to remember them.
        if not is_unclean and self.isr != old.isr and (self.isr or rules.has_elr):
            record.isr = list(self.isr)
        if (
            rules.level < SHRINK_KEEPS_EPOCH
            and record.leader == NO_LEADER_CHANGE
            and record.isr is not None
            and not _holds(record.isr, old.isr)
        ):
            record.leader = old.leader
        if rules.has_elr:
            self._note_last_leader(record)
        self._assign(record)
        if self.recovery_state != old.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        return None if _is_empty(record) else record

    def _complete_reassignment(self) -> None:
        """Once all that come are in sync, those that shall go go; if fewer come than go, all that stay must be in sync."""
        adding, removing = self.adding, self.removing
        if not adding and not removing:
            return
        isr, replicas = _without(self.isr, removing), _without(self.replicas, removing)
        if removing and not (isr and replicas):
            return
        if _holds(isr, adding) and (len(adding) >= len(removing) or _holds(isr, replicas)):
            self.isr, self.replicas, self.adding, self.removing = isr, replicas, (), ()

    def _renew_elr(self) -> None:
        """While fewer than min.insync.replicas are in sync nothing is committed: who left since then has it all."""
        if len(self.isr) >= self._rules.of_topic(self._topic).min_isr:
            self._elr = ()
        else:
            left = {*self._elr, *self._old.isr}.difference(self.isr, self.unclean_shutdowns)
            # Who is no replica any more deletes its log, and if it is made one again, it comes with nothing. Apache Kafka keeps
            # it eligible: its partition may then be led by an empty log, or by nobody ever.
            self._elr = tuple(sorted(left.intersection(self.replicas)))

    def _elect(self, record: PartitionChangeRecord) -> bool:
        """Whether the election was unclean."""
        old = self._old
        leader = self._clean_leader()
        is_unclean = False
        if leader == NO_LEADER:
            leader = self._unclean_leader()
            is_unclean = leader != NO_LEADER
        if leader == old.leader:
            return False
        if leader in self._elr:
            self.isr = (leader,)
            # One that commits alone leaves the others behind. Apache Kafka keeps them eligible, and may lose records by that.
            commits_alone = self._rules.of_topic(self._topic).min_isr <= 1
            self._elr = () if commits_alone else _without(self._elr, (leader,))
        record.leader = leader
        if is_unclean:
            record.isr = [leader]
            if old.leader_recovery_state != LeaderRecoveryState.RECOVERING:
                record.leader_recovery_state = LeaderRecoveryState.RECOVERING
        return is_unclean

    def _clean_leader(self) -> int:
        candidates = self.isr or self._elr
        if self.election is Election.PREFERRED:
            order: Iterable[int] = (self.replicas[0], self._old.leader, *self.replicas[1:])
        else:
            order = (self._old.leader, *self.replicas)
        can_lead, old = self._rules.can_lead, self._old
        return next((one for one in order if one in candidates and can_lead(one, old)), NO_LEADER)

    def _unclean_leader(self) -> int:
        rules, old = self._rules, self._old
        last_known = old.last_known_elr
        if rules.has_elr and not self.isr and not self._elr and len(last_known) == 1:
            (leader,) = last_known
            if leader in self.replicas and rules.can_lead(leader, old):
                return leader
        if self.election is Election.UNCLEAN:
            return next((one for one in self.replicas if rules.can_lead(one, old)), NO_LEADER)
        return NO_LEADER

    def _note_last_leader(self, record: PartitionChangeRecord) -> None:
        """A partition without a leader remembers the last one, who may lead again if nobody is eligible."""
        old = self._old
        if record.leader == NO_LEADER and not old.last_known_elr:
            record.last_known_elr = [old.leader]
        elif record.leader >= 0 and old.last_known_elr:
            record.last_known_elr = []

    def _assign(self, record: PartitionChangeRecord) -> None:
        old, rules = self._old, self._rules
        if self.replicas != old.replicas:
            record.replicas = list(self.replicas)
        if rules.level >= DIRECTORIES and (self.directories is not None or self.replicas != old.replicas):
            known = dict(zip(old.replicas, old.directories, strict=True)) | (self.directories or {})
            directories = [known[one] if one in known else rules.directory_of_new(one) for one in self.replicas]
            if tuple(directories) != old.directories:
                record.directories = directories
        if self.removing != old.removing_replicas:
            record.removing_replicas = list(self.removing)
        if self.adding != old.adding_replicas:
            record.adding_replicas = list(self.adding)


def _holds(all_of: Collection[int], these: Iterable[int]) -> bool:
    return all(one in all_of for one in these)


def _without(values: tuple[int, ...], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(one for one in values if one not in gone)


def _is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.directories is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
    )
