"""The partitions that this broker has a replica of: the shell between the cluster's metadata, the logs and the handlers.

Any thread. Lookups take no lock: the tables change only in `publish`, which one thread at a time calls. An I/O error under a
request counts against the log's directory and becomes KAFKA_STORAGE_ERROR. Waiting operations are tested with no lock held.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pybroker.base.filesystem import Buffer
from pybroker.base.ids import Uuid
from pybroker.base.purgatory import Purgatory
from pybroker.log.files import TopicPartition
from pybroker.log.log import Appended, Log
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.scheduler import monotonic_ms as monotonic_clock_ms
from pybroker.log.producer_entry import AppendOrigin
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import EMPTY_IMAGE, NO_LEADER, BrokerState, MetadataImage, PartitionState, ResourceType, TopicImage
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.replication.fetchers import Fetchers
from pybroker.replication.isr import Effect, IsrProposal, IsrUpdated, ProposeIsr
from pybroker.replication.partition import Company, Partition
from pybroker.replication.replica_selector import replica_in_rack
from pybroker.replication.throttle import UNTHROTTLED, ReplicationThrottle

logger = logging.getLogger(__name__)


class Assign(Protocol):
    """Tells the controller in which directory a replica is to be counted; `answered` hears whether it does."""

    def __call__(
        self, key: tuple[Uuid, int], directory_id: Uuid, answered: Callable[[bool], None] | None = None, /
    ) -> None: ...


class Unmade(NamedTuple):
    """A replica without a log. `is_new`: it never had one, so that an empty one may be made."""

    state: PartitionState
    is_new: bool


@dataclass(slots=True)
class HostedTopic:
    """A topic of the cluster, with the partitions of it that are here."""

    name: str
    topic_id: Uuid
    partitions: dict[int, Partition] = field(default_factory=dict)
    # Replicas that should be here and cannot be used: their directory is offline, or there was no room to make a log.
    offline: dict[int, Unmade] = field(default_factory=dict)

    def error_of(self, index: int) -> ErrorCode:
        """What a client is told of a partition that is not here."""
        return ErrorCode.KAFKA_STORAGE_ERROR if index in self.offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ReplicaManager:
    def __init__(
        self,
        logs: LogManager,
        broker_id: int,
        config_of: Callable[[str], LogConfig],
        now_ms: Callable[[], int],
        fetches: Purgatory[TopicPartition],
        *,
        monotonic_ms: Callable[[], int] = monotonic_clock_ms,
        max_lag_ms: int = 30_000,
        own_epoch: Callable[[], int] = lambda: -1,
        picks_by_rack: bool = False,
        leader_throttle: ReplicationThrottle = UNTHROTTLED,
    ) -> None:
        """`config_of` gives a topic's config; `fetches` are those that wait for more bytes, by partition. `monotonic_ms` is
        the clock of their timer, `max_lag_ms` is replica.lag.time.max.ms, `own_epoch` the epoch of this broker's
        registration; `picks_by_rack`: consumers are sent to a replica in their rack (replica.selector.class)."""
        self.logs = logs
        self.broker_id = broker_id
        self.fetches = fetches
        # Those of followers wait for what is appended, those of consumers for what is committed.
        self.follower_fetches: Purgatory[TopicPartition] = Purgatory(fetches.timer)
        # Those with acks=all that wait for the other replicas in sync.
        self.produces: Purgatory[TopicPartition] = Purgatory(fetches.timer)
        # DeleteRecords that wait for the followers to delete, too.
        self.deletes: Purgatory[TopicPartition] = Purgatory(fetches.timer)
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[Uuid, HostedTopic] = {}
        self._config_of = config_of
        self.now_ms = now_ms
        self.monotonic_ms = monotonic_ms
        self.image = EMPTY_IMAGE
        self.leader_throttle = leader_throttle
        self._picks_by_rack = picks_by_rack
        self._company = Company(max_lag_ms, self._broker_of, own_epoch, monotonic_ms)
        self._fetchers: Fetchers | None = None
        self._propose: Callable[[Partition, IsrProposal], None] | None = None
        self._assign: Assign | None = None
        self._told: dict[tuple[Uuid, int], Uuid] = {}  # directories that the controller was told of and did not confirm yet
        self._checkpointed: dict[str, dict[TopicPartition, int]] = {}
        self._on_committed: dict[TopicPartition, Callable[[], None]] = {}
        self.generation = 0  # changes with every change of what is here
        self._is_started = False
        self._changes = threading.Lock()

    # Metadata.

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Bring the replicas here in line with `image`. The first call, at the start, finds all logs loaded."""
        with self._changes:
            self.image = image
            if not self._is_started:
                self._checkpointed = {log_dir.path: log_dir.read_high_watermarks() for log_dir in self.logs.online_dirs}
            changed: list[Partition] = []
            for topic in delta.deleted_topics.values():
                self._delete(topic)
            for topic_id, indexes in delta.changed_topics.items():
                changed += self._change(image.topics_by_id[topic_id], indexes)
            for resource in delta.changed_configs:
                if resource.type == ResourceType.TOPIC and resource.name in self.topics:
                    changed += self._reconfigured(self.topics[resource.name])
            self._is_started = True
            self._checkpointed = {}
            self.generation += 1
        for partition in changed:
            self._look_again(partition)

    def replicate(
        self,
        fetchers: Fetchers,
        propose: Callable[[Partition, IsrProposal], None],
        assign: Assign,
    ) -> None:
        """From now on follow the leaders, and tell the controller of what is in sync where this broker leads, by `propose`, and
        in which directories its replicas lie, by `assign`."""
        with self._changes:
            self._fetchers, self._propose, self._assign = fetchers, propose, assign
            partitions = [one for hosted in self.topics.values() for one in hosted.partitions.values()]
            fetchers.follow([partition for partition in partitions if _follows(partition)])
        for partition in partitions:
            self.tell_directory(partition)

    def resize_fetchers(self, number_of_each: int) -> None:
        with self._changes:
            if self._fetchers is not None:
                self._fetchers.resize(number_of_each)

    def stop_replicating(self) -> None:
        with self._changes:
            if self._fetchers is not None:
                self._fetchers.stop()
            self._fetchers = self._propose = None
            self._assign = _told_to_nobody  # a move that waits for an answer goes on at the next start

    def tell_directory(self, partition: Partition) -> None:
        """Let the controller know of the directory that holds the replica, if it thinks of another, or is about to."""
        directory_id = self.logs.directory_id_of(partition.log)
        if self._assign is not None and directory_id is not None and not self._knows(partition, directory_id):
            self._told[partition.key] = directory_id
            self._assign(partition.key, directory_id)

    def claim_directory(self, partition: Partition, future: Log, answered: Callable[[bool], None]) -> bool:
        """Whether the controller counts the replica as in the directory of its future log. If not, it is asked to, and
        `answered` hears, once and on any thread, whether it does and nobody said anything else in the meantime."""
        directory_id = self.logs.directory_id_of(future)
        if self._assign is None or directory_id is None or self._knows(partition, directory_id):
            return True
        self._told[partition.key] = directory_id
        self._assign(partition.key, directory_id, answered)
        return False

    def _knows(self, partition: Partition, directory_id: Uuid) -> bool:
        return partition.directory_id == directory_id == self._told.get(partition.key, directory_id)

    def retry_offline(self) -> None:
        """Make the logs that there was no room for; called now and then."""
        with self._changes:
            for hosted in self.topics.values():
                for index, unmade in list(hosted.offline.items()):
                    self._host(hosted, index, unmade.state, is_new=unmade.is_new)

    def _change(self, topic: TopicImage, indexes: set[int]) -> list[Partition]:
        """The partitions whose role, or company, is another one now."""
        hosted = self.topics_by_id.get(topic.topic_id)
        if hosted is None:
            hosted = HostedTopic(topic.name, topic.topic_id)
        gone = []
        changed: list[Partition] = []
        restarted: list[Partition] = []
        made: Counter[str] = Counter()
        for index in sorted(indexes):
            state = topic.partitions[index]
            partition = hosted.partitions.get(index)
            if self.broker_id not in state.replicas:
                hosted.offline.pop(index, None)
                if partition is not None:
                    gone.append(index)
            elif partition is None:
                # One that is offline here is no new one because its state changes.
                unmade = hosted.offline.get(index)
                is_new = self._is_started if unmade is None else unmade.is_new
                if (path := self._host(hosted, index, state, is_new=is_new)) is not None:
                    made[path] += 1
            else:
                if self._update(partition, state):
                    restarted.append(partition)
                changed.append(partition)
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = hosted
        for path, count in made.items():
            logger.info("made %d %s for topic %s in %s", count, "log" if count == 1 else "logs", topic.name, path)
        if restarted and self._fetchers is not None:
            self._fetchers.follow(restarted)
        if gone:
            self._drop(hosted, gone)
        return changed

    def _update(self, partition: Partition, state: PartitionState) -> bool:
        """Whether it is to be fetched anew, from whoever leads now."""
        epoch_before = partition.leader_epoch
        if state.leader == self.broker_id and self._fetchers is not None:
            # Before it leads: what the last leader sent must not get in behind that.
            self._fetchers.leave((partition,))
        partition.update(state)
        if self._told.get(partition.key) == partition.directory_id:
            self._told.pop(partition.key, None)
        self._report(partition)
        if state.leader == NO_LEADER and self._fetchers is not None:
            self._fetchers.leave((partition,))
        return _follows(partition) and partition.leader_epoch > epoch_before

    def _report(self, partition: Partition) -> None:
        """What the disk did when the role changed. If that has failed, `dir_failed` has the partition offline."""
        error, partition.io_error = partition.io_error, None
        if error is not None:
            self.storage_error(partition, error, "a change of leader")

    def _reconfigured(self, hosted: HostedTopic) -> list[Partition]:
        """min.insync.replicas decides on what is committed."""
        partitions = [partition for partition in hosted.partitions.values() if partition.is_leader]
        for partition in partitions:
            self._run(partition, partition.lag_checked())
        return partitions

    def _host(self, hosted: HostedTopic, index: int, state: PartitionState, *, is_new: bool) -> str | None:
        """The log directory in which a log was made for it, if one was."""
        name = TopicPartition(hosted.name, index)
        directory = self.logs.dir_with_id(state.directory_of(self.broker_id))
        was_there = self.logs.get(name) is not None
        try:
            log = self.logs.get_or_create(
                name,
                hosted.topic_id,
                self._config_of(hosted.name),
                is_new=is_new,
                preferred=None if directory is None else directory.path,
            )
        except KafkaError as error:
            if index not in hosted.offline:
                logger.error("%s is offline here: %s", name, error.message)
            hosted.offline[index] = Unmade(state, is_new)
            return None
        path = os.path.dirname(log.directory)
        high_watermark = self._checkpointed.get(path, {}).get(name)
        if high_watermark is not None:
            log.set_high_watermark(high_watermark)
        partition = hosted.partitions[index] = Partition(name, hosted.topic_id, log, state, self.broker_id, self._company)
        self._report(partition)
        if hosted.partitions.get(index) is not partition:
            return None
        if self._fetchers is not None and _follows(partition):
            self._fetchers.follow((partition,))
        self.tell_directory(partition)
        if hosted.offline.pop(index, None) is not None:
            logger.info("%s is online again", name)
        return None if was_there else path

    def _delete(self, topic: TopicImage) -> None:
        hosted = self.topics_by_id.pop(topic.topic_id, None)
        if hosted is None:
            return
        # A topic of the same name may be there again by now.
        if self.topics.get(topic.name) is hosted:
            del self.topics[topic.name]
        self._drop(hosted, list(hosted.partitions))

    def _drop(self, hosted: HostedTopic, indexes: list[int]) -> None:
        # One whose directory failed meanwhile is not there any more.
        dropped = [found for index in indexes if (found := hosted.partitions.pop(index, None)) is not None]
        names = [partition.topic_partition for partition in dropped]
        if self._fetchers is not None:
            self._fetchers.leave(dropped)
        for partition in dropped:
            partition.retire()
            self._told.pop(partition.key, None)
        if names:
            delay_ms = self.logs.settings.file_delete_delay_ms
            logger.info("%d logs of topic %s are deleted in %d ms", len(names), hosted.name, delay_ms)
        for name, error in self.logs.async_delete_all(names).items():
            logger.error("the log of %s cannot be deleted: %s", name, error.message)
        for partition in dropped:
            self._look_again(partition)

    def dir_failed(self, path: str) -> None:
        """The replicas in the log directory at `path` are of no use any more. Any thread, under any lock."""
        failed = next((log_dir.directory_id for log_dir in self.logs.dirs if log_dir.path == path), None)
        for hosted in list(self.topics.values()):
            for index, partition in list(hosted.partitions.items()):
                if os.path.dirname(partition.log.directory) != path:
                    if failed is not None and self._told.get(partition.key) == failed:
                        self.tell_directory(partition)  # it was to move there
                else:
                    hosted.offline[index] = Unmade(partition.state, is_new=False)
                    hosted.partitions.pop(index, None)
                    partition.lose()
                    # If a move had the controller think of another directory: it must not take the replica for well.
                    self.tell_directory(partition)
                    self.produces.check(partition.topic_partition)
        self.generation += 1

    def check_lag(self) -> None:
        """Now and then: followers that have fallen behind leave the ISR; every half of replica.lag.time.max.ms."""
        for hosted in list(self.topics.values()):
            for partition in list(hosted.partitions.values()):
                if partition.is_leader and len(partition.state.replicas) > 1:
                    self._run(partition, partition.lag_checked())

    # Followers of what is led here.

    def follower_fetched(
        self,
        partition: Partition,
        leader_epoch: int,
        replica_id: int,
        replica_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
    ) -> None:
        """`leader_epoch`: in which it was found that the follower may fetch, and that `fetch_offset` is where the two agree."""
        effects = partition.follower_fetched(leader_epoch, replica_id, replica_epoch, fetch_offset, log_start_offset)
        self._run(partition, effects)
        self.follower_seen(partition)

    def follower_seen(self, partition: Partition, *, is_advanced: bool = False) -> None:
        """A follower fetched, as it had to; `is_advanced`: more is committed by that."""
        if is_advanced:
            self.committed_more(partition)
        if self.deletes:
            self.deletes.check(partition.topic_partition)

    def holds_back(self, partition: Partition, replica_id: int) -> bool:
        """Whether a follower gets nothing now: it is not in sync, and the throttle of its replica is exceeded."""
        throttle, leadership = self.leader_throttle, partition.leadership
        return (
            throttle.is_exceeded()
            and (leadership is None or replica_id not in leadership.isr)
            and throttle.is_throttled(partition.topic_partition)
        )

    def preferred_replica(self, partition: Partition, rack: str, fetch_offset: int) -> int | None:
        """The follower that a consumer in `rack` is to read from; None: the leader."""
        leadership = partition.leadership
        if not self._picks_by_rack or leadership is None:
            return None
        return replica_in_rack(rack, fetch_offset, self._broker_of(self.broker_id), leadership, self._broker_of)

    def proposal_answered(self, partition: Partition, proposal: IsrProposal, answer: IsrUpdated | ErrorCode) -> None:
        """The controller decided on an ISR."""
        self._run(partition, partition.proposal_answered(proposal, answer))
        self.committed_more(partition)

    def _run(self, partition: Partition, effects: list[Effect]) -> None:
        """Do what is left of them when the log has been seen to."""
        is_advanced = False
        for effect in effects:
            if not isinstance(effect, ProposeIsr):
                is_advanced = True
            elif self._propose is not None:
                self._propose(partition, effect.proposal)
        if is_advanced:
            self.committed_more(partition)

    def _look_again(self, partition: Partition) -> None:
        """Its role has changed, or its company: whoever waits for anything of it is to look again."""
        self.follower_fetches.check(partition.topic_partition)
        self.committed_more(partition)

    def committed_more(self, partition: Partition) -> None:
        """The high watermark has moved: whoever waits for that is to look again."""
        name = partition.topic_partition
        self.produces.check(name)
        if self.fetches:
            self.fetches.check(name)
        if self.deletes:
            self.deletes.check(name)
        if self._on_committed:
            on_committed = self._on_committed.get(name)
            if on_committed is not None:
                on_committed()

    def watch_commits(self, name: TopicPartition, on_committed: Callable[[], None] | None) -> None:
        """Have `on_committed` called, on any thread, whenever more of the partition may be committed; None ends that."""
        if on_committed is None:
            self._on_committed.pop(name, None)
        else:
            self._on_committed[name] = on_committed

    def _broker_of(self, broker_id: int) -> BrokerState | None:
        return self.image.brokers.get(broker_id)

    # Lookups.

    def partition_or_error(self, hosted: HostedTopic | None, index: int) -> Partition | ErrorCode:
        """The replica here, or what a client is told instead; no topic at all is UNKNOWN_TOPIC_OR_PARTITION."""
        if hosted is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return hosted.partitions.get(index) or hosted.error_of(index)

    def partition(self, topic: str, index: int) -> Partition | ErrorCode:
        return self.partition_or_error(self.topics.get(topic), index)

    def is_stray(self, log: Log, image: MetadataImage) -> bool:
        """Whether the cluster's metadata knows nothing of a replica here: a topic deleted while this node was down, say."""
        topic = image.topics.get(log.partition.topic)
        if topic is None or (log.topic_id is not None and topic.topic_id != log.topic_id):
            return True
        state = topic.partitions.get(log.partition.partition)
        return state is None or self.broker_id not in state.replicas

    def is_assigned(self, log: Log, image: MetadataImage) -> bool:
        """Whether the cluster's metadata counts the replica as in the directory of `log`, a future one."""
        topic = image.topics.get(log.partition.topic)
        state = None if topic is None else topic.partitions.get(log.partition.partition)
        if state is None or self.broker_id not in state.replicas or not state.directories:
            return False
        return state.directory_of(self.broker_id) == self.logs.directory_id_of(log)

    # Requests.

    def append(
        self,
        partition: Partition,
        records: Buffer,
        required_acks: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = -1,
        verification_guard: int = 0,
    ) -> Appended:
        """Append a batch as the leader. Whoever waits for it is woken by `wake`, once all of a request is appended."""
        try:
            return partition.append(
                records,
                required_acks,
                self.now_ms(),
                origin=origin,
                transaction_version=transaction_version,
                verification_guard=verification_guard,
            )
        except OSError as error:
            raise self.storage_error(partition, error, "an append") from error

    def wake(self, partition: Partition) -> None:
        """Something was appended to `partition`."""
        name = partition.topic_partition
        if self.follower_fetches.has_watchers(name):
            self.follower_fetches.check(name)
        log = partition.log
        if log.high_watermark < log.log_end_offset:
            return  # followers have to be waited for: when they have it, consumers hear of it
        if self.fetches.has_watchers(name):
            self.fetches.check(name)
        if self._on_committed:
            on_committed = self._on_committed.get(name)
            if on_committed is not None:
                on_committed()

    def storage_error(self, partition: Partition, error: OSError, doing: str) -> KafkaError:
        self.logs.on_io_error(partition.log.directory, error, doing=f"{doing} to {partition.topic_partition}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.topic_partition}: {doing} failed: {error}")


def _told_to_nobody(key: tuple[Uuid, int], directory_id: Uuid, answered: Callable[[bool], None] | None = None, /) -> None:
    """There is no answer either."""


def _follows(partition: Partition) -> bool:
    return partition.state.leader not in (NO_LEADER, partition.broker_id)
