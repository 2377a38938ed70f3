"""The logs of a node: how they are loaded, created, moved, removed and closed, and the threads and files around that.

Any thread. `_changes` is held while a log is created, replaced or removed; which logs there are is `OnlineLogs`' business.
Stop the scheduler first, then the manager: a rolled segment's flush is then done, and no job runs into the closing.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from pybroker.base.filesystem import FileSystem, remove_tree
from pybroker.base.ids import Uuid, uuid_to_text
from pybroker.log.checkpoints import CorruptFileError, write_topic_id
from pybroker.log.files import DELETE, FUTURE, PARTITION_METADATA, STRAY, PartitionDir, TopicPartition, marked_dir
from pybroker.log.loader import open_log
from pybroker.log.log import Log
from pybroker.log.log_config import LogConfig
from pybroker.log.manager.checkpointing import Checkpointing
from pybroker.log.manager.cleaner_port import Cleaner
from pybroker.log.manager.closing import close_dir
from pybroker.log.manager.directories import LogDirError, Owner, open_log_dirs, random_uuid
from pybroker.log.manager.failures import DirBackground, DirFailure, is_out_of_files
from pybroker.log.manager.jobs import Jobs
from pybroker.log.manager.loading import PROGRESS_MS, load_dir
from pybroker.log.manager.log_dir import LogDir
from pybroker.log.manager.online_logs import LogTable, OnlineLogs, parent_of, paths_of
from pybroker.log.manager.parallel import in_parallel
from pybroker.log.manager.scheduler import Scheduler
from pybroker.log.manager.settings import ManagerSettings
from pybroker.log.open_segments import OpenSegments
from pybroker.log.recovery import OrderedMap, one_by_one
from pybroker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

ConfigOf = Callable[[str], LogConfig]
IsStray = Callable[[Log], bool]


def _no_stray(_: Log) -> bool:
    return False


class LogManager:
    def __init__(
        self,
        filesystem: FileSystem,
        settings: ManagerSettings,
        scheduler: Scheduler,
        *,
        now_ms: Callable[[], int],
        owner: Owner | None = None,
        cleaner: Cleaner | None = None,
        on_dir_failure: Callable[[DirFailure], None] | None = None,
        open_segments: OpenSegments | None = None,
        new_uuid: Callable[[], Uuid] = random_uuid,
    ) -> None:
        """Locks and checks the log directories; LogDirError if the node must not start with them.

        `now_ms` is the wall clock. `on_dir_failure` hears of every directory that goes offline, once, from any thread.
        The `cleaner`, which may want to know of the logs, may also be set later, before `start`.
        """
        self.filesystem = filesystem
        self.settings = settings
        self.jobs = Jobs(self, now_ms)
        self._scheduler = scheduler
        self._now_ms = now_ms
        self.cleaner = cleaner
        self._on_dir_failure = on_dir_failure
        self._open_segments = OpenSegments() if open_segments is None else open_segments
        self._new_uuid = new_uuid
        self._changes = threading.RLock()
        self._is_stopping = False
        self.dirs = open_log_dirs(filesystem, settings.log_dirs, owner, now_ms=now_ms(), new_uuid=new_uuid)
        self._logs = OnlineLogs(self.dirs, now_ms, self._dir_failed)
        self._checkpointing = Checkpointing(self._logs)
        self._backgrounds = {
            log_dir.path: DirBackground(scheduler, log_dir, partial(self.on_io_error, doing="background work"))
            for log_dir in self.dirs
        }
        for log_dir in self.offline_dirs:
            self._logs.report_failure(log_dir, "opening it", 0, is_last=False)

    # Lookups.

    @property
    def online_dirs(self) -> list[LogDir]:
        return self._logs.online_dirs

    @property
    def offline_dirs(self) -> list[LogDir]:
        return self._logs.offline_dirs

    def is_cordoned(self, log_dir: LogDir) -> bool:
        """Whether it takes no new logs (KIP-1066), but for those that were assigned to it."""
        cordoned = self.settings.cordoned_log_dirs
        return "*" in cordoned or log_dir.path in map(os.path.abspath, cordoned)

    def directory_id_of(self, log: Log) -> Uuid | None:
        """The id of the log directory that holds it; None where directories have no ids."""
        return self._logs.dir_of(log.directory).directory_id

    def dir_with_id(self, directory_id: Uuid) -> LogDir | None:
        return next((log_dir for log_dir in self.online_dirs if log_dir.directory_id == directory_id), None)

    @property
    def previous_broker_epoch(self) -> int | None:
        """The epoch this broker had at its last stop, if that was clean in all directories."""
        epochs = {log_dir.shutdown_epoch if log_dir.is_online else None for log_dir in self.dirs}
        return epochs.pop() if len(epochs) == 1 else None

    @property
    def changes(self) -> AbstractContextManager[bool]:
        """Held by whoever must not have a log created, replaced or removed meanwhile. Before a log's own lock."""
        return self._changes

    def get(self, partition: TopicPartition, *, is_future: bool = False) -> Log | None:
        return self._logs.get(partition, is_future=is_future)

    def all_logs(self) -> list[Log]:
        """Future logs too."""
        return self._logs.all()

    def current_logs(self) -> LogTable:
        """A copy, for the cleaner to choose from."""
        return self._logs.current()

    def logs_by_dir(self) -> dict[str, LogTable]:
        """Future logs too; every online directory is there."""
        return self._logs.by_dir()

    # Start.

    def load(self, config_of: ConfigOf, is_stray: IsStray = _no_stray) -> None:
        """Open every log in the directories. `config_of` gives a topic's config; a log that `is_stray` is set aside."""
        started_ms = self._now_ms()
        online = self.online_dirs
        try:
            in_parallel("log-loading", len(online), partial(self._load_dir, config_of, is_stray), online)
            if not self.online_dirs:
                reasons = "; ".join(f"{log_dir.path}: {log_dir.failure}" for log_dir in self.dirs)
                raise LogDirError(f"none of log.dirs could be loaded ({reasons})")
        except BaseException:
            self._abandon()
            raise
        by_dir = self.logs_by_dir()
        recovered = sum(len(by_dir[log_dir.path]) for log_dir in self.online_dirs if not log_dir.was_clean)
        logger.info("loaded %d logs in %d ms, %d with recovery", len(self.all_logs()), self._now_ms() - started_ms, recovered)

    def start(self) -> None:
        """Begin the regular jobs and the cleaning."""
        self.jobs.start(self._scheduler, self.settings)
        if self.cleaner is not None:
            self.cleaner.start()

    def _load_dir(self, config_of: ConfigOf, is_stray: IsStray, log_dir: LogDir) -> None:
        def load(
            log_dir: LogDir,
            found: PartitionDir,
            *,
            log_start_offset: int,
            recovery_point: int,
            cleaned_to: int,
            map_segments: OrderedMap,
        ) -> Log:
            log = self._open(
                log_dir,
                found,
                config_of(found.partition.topic),
                log_start_offset=log_start_offset,
                recovery_point=recovery_point,
                cleaned_to=cleaned_to,
                is_clean=log_dir.was_clean,
                map_segments=map_segments,
            )
            if is_stray(log):
                self._set_aside(log)
            else:
                self._release(log)
                self._logs.add(log, is_future=found.mark == FUTURE)
            return log

        try:
            contents = load_dir(log_dir, load, self.settings.recovery_threads, self._now_ms)
        except (OSError, CorruptFileError) as error:
            if isinstance(error, OSError) and is_out_of_files(error):
                raise LogDirError(
                    f"{log_dir.path} could not be loaded: {error}. Let the process have more open files (ulimit -n)."
                ) from error
            # A full disk is no exception here: nobody knows of the logs that are not loaded, and others would be made anew.
            self._logs.take_offline(log_dir, error, "loading its logs")
            return
        if not log_dir.was_clean:
            # Recovery may have cut a log below its old recovery point, which would vouch for what is written there next.
            self._checkpointing.write_recovery_points([log_dir])
        for found in contents.to_delete:
            self._delete_later(log_dir, found.partition, log_dir.file(found.name))

    def _open(
        self,
        log_dir: LogDir,
        place: PartitionDir,
        config: LogConfig,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        cleaned_to: int = 0,
        is_clean: bool = False,
        topic_id: Uuid | None = None,
        map_segments: OrderedMap = one_by_one,
    ) -> Log:
        return open_log(
            self.filesystem,
            log_dir.file(place.name),
            place.partition,
            config,
            now_ms=self._now_ms(),
            background=self._backgrounds[log_dir.path],
            open_segments=self._open_segments,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            cleaned_to=cleaned_to,
            is_clean=is_clean,
            topic_id=topic_id,
            draw_below=random.randrange,
            producer_id_expiration_ms=self.settings.producer_id_expiration_ms,
            verifies_transactions=self.settings.verifies_transactions,
            on_segment_recovered=self._recovery_report(place),
            map_segments=map_segments,
        )

    def _recovery_report(self, place: PartitionDir) -> Callable[[int], None]:
        reported_ms = self._now_ms()

        def report(remaining: int) -> None:
            nonlocal reported_ms
            if remaining and (now_ms := self._now_ms()) - reported_ms >= PROGRESS_MS:
                reported_ms = now_ms
                logger.info("%s: %d segments are left to recover", place.name, remaining)

        return report

    def _release(self, log: Log) -> None:
        """Loading opened its files; they need not stay open until somebody uses the log."""
        for segment in log.segments:
            segment.forget()

    # Coming and going.

    def get_or_create(
        self,
        partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        *,
        is_new: bool,
        is_future: bool = False,
        preferred: str | None = None,
    ) -> Log:
        """The log of `partition`, made in the `preferred` log directory, or the one with the fewest, if there is none.

        `is_new`: the replica never was on this broker; otherwise its log may lie in a directory that is offline, and no
        empty one is made in its place. A future log needs a preferred directory other than that of the current one.
        """
        with self._changes:
            log = self.get(partition, is_future=is_future)
            if log is None:
                if self._is_stopping:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"No log is made for {partition}: the broker is stopping.")
                if not is_new and (offline := self.offline_dirs):
                    raise KafkaError(
                        ErrorCode.KAFKA_STORAGE_ERROR,
                        f"No log is made for {partition}: it may lie in {paths_of(offline)}, which is offline.",
                    )
                dirs = self._dirs_for_new(partition, preferred, is_future=is_future)
                log = self._create(partition, topic_id, config, dirs, is_future=is_future)
            self._check_topic_id(log, topic_id)
            return log

    def _dirs_for_new(self, partition: TopicPartition, preferred: str | None, *, is_future: bool) -> list[LogDir]:
        if preferred is None:
            assert not is_future, f"the future log of {partition} needs a directory to be moved to"
            # A node whose directories are all cordoned gets no replicas; one that it was given nonetheless has to be somewhere.
            online = self.online_dirs
            open_dirs = [log_dir for log_dir in online if not self.is_cordoned(log_dir)] or online
            return sorted(open_dirs, key=self._logs.count_in)
        log_dir = self._logs.dir_of(os.path.abspath(preferred))
        current = self.get(partition)
        assert not is_future or (current is not None and parent_of(current) != log_dir.path), (
            f"the future log of {partition} in {log_dir.path} needs a current one elsewhere; found {current}"
        )
        if not log_dir.is_online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"No log is made for {partition}: {log_dir.path} is offline.")
        return [log_dir]

    def _create(
        self, partition: TopicPartition, topic_id: Uuid | None, config: LogConfig, dirs: list[LogDir], *, is_future: bool
    ) -> Log:
        name = self._marked(partition, FUTURE) if is_future else str(partition)
        failure: Exception | None = None
        for log_dir in dirs:
            was_there = True
            try:
                was_there = self.filesystem.exists(log_dir.file(name))
                log = self._open(log_dir, PartitionDir(name, partition), config, topic_id=topic_id)
            except OSError as error:
                failure = error
                if not self.on_io_error(log_dir.path, error, doing=f"making a log for {partition}") and not was_there:
                    self._remove_half_made(log_dir, log_dir.file(name))
                continue
            except CorruptFileError as error:
                failure = error
                continue
            if self._logs.add(log, is_future=is_future):
                logger.debug("made a log for %s in %s", partition, log.directory)
                return log
            failure = log_dir.failure
        tried = f" ({paths_of(dirs)}: {failure})" if dirs else ""
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"No log directory could take {partition}{tried}.") from failure

    def _remove_half_made(self, log_dir: LogDir, path: str) -> None:
        """What is left of a log that there was no room for: another directory gets it, and it must not be in both."""
        try:
            if self.filesystem.exists(path):
                remove_tree(self.filesystem, path)
        except OSError as error:
            self.on_io_error(log_dir.path, error, doing="removing a log that could not be made")

    def _check_topic_id(self, log: Log, topic_id: Uuid | None) -> None:
        if topic_id is None or log.topic_id == topic_id:
            return
        if log.topic_id is not None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.partition} in {log.directory} is of topic id {uuid_to_text(log.topic_id)}; "
                f"expected {uuid_to_text(topic_id)}.",
            )
        with self._logs.storage(log, "writing the topic id"):
            write_topic_id(self.filesystem, f"{log.directory}/{PARTITION_METADATA}", topic_id)
        log.topic_id = topic_id

    def update_configs(self, config_of: ConfigOf, topics: Collection[str] | None = None) -> None:
        """Give the logs of `topics`, or of all topics, their new configs."""
        for log in self.all_logs():
            topic = log.partition.topic
            if topics is not None and topic not in topics:
                continue
            config = config_of(topic)
            if log.config != config:
                self._update_config(log, config)

    def _update_config(self, log: Log, config: LogConfig) -> None:
        was_compacted = log.config.is_compacted
        log.update_config(config)
        if was_compacted and not config.is_compacted:
            # Retention may delete its segments now: a cleaning under way must not bring them back.
            with self._cleaning_paused(log.partition):
                pass

    def reconfigure(self, settings: ManagerSettings) -> None:
        """Go on with new settings; the directories, and how often the jobs run, stay as they were at the start."""
        self.settings = settings
        for log in self.all_logs():
            log.producers.producer_id_expiration_ms = settings.producer_id_expiration_ms
            log.producers.verifies_transactions = settings.verifies_transactions

    def async_delete(self, partition: TopicPartition, *, is_future: bool = False) -> Log | None:
        """Take the log away; its files go after file.delete.delay.ms."""
        with self._changes:
            log = self._remove(partition, is_future=is_future)
        if log is not None:
            self._checkpointing.after_change_in([self._logs.dir_of(log.directory)])
        return log

    def async_delete_all(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError]:
        """Current and future logs, with one checkpoint for all; returns those that could not be taken away, and why."""
        errors: dict[TopicPartition, KafkaError] = {}
        touched: dict[str, LogDir] = {}
        with self._changes:
            for partition in partitions:
                for is_future in (False, True):
                    if (log := self.get(partition, is_future=is_future)) is None:
                        continue
                    log_dir = self._logs.dir_of(log.directory)
                    touched[log_dir.path] = log_dir
                    try:
                        # The checkpoint at the end syncs the directory, once for all.
                        self._remove(partition, is_future=is_future, sync=False)
                    except KafkaError as error:
                        errors[partition] = error
        self._checkpointing.after_change_in(touched.values())
        return errors

    def _remove(self, partition: TopicPartition, *, is_future: bool, sync: bool = True) -> Log | None:
        log = self._logs.take(partition, is_future=is_future)
        if log is None:
            if offline := self.offline_dirs:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{partition} cannot be deleted: it may lie in {paths_of(offline)}, which is offline.",
                )
            return None
        if self.cleaner is not None and not is_future:
            with self._cleaning_paused(partition):
                self.cleaner.removed(partition, parent_of(log))
        self._mark_deleted(log, sync=sync)
        return log

    def _set_aside(self, log: Log) -> None:
        was = log.directory
        log.flush()
        log.close()
        log.rename_directory(self._marked(log.partition, STRAY))
        logger.warning("%s is not this node's partition: it is set aside as %s", was, log.directory)

    def _mark_deleted(self, log: Log, *, sync: bool = True) -> None:
        """Nobody has it any more: it gets the name of one to be deleted. A full disk may have no room for that; then it is
        tried again. KafkaError if the directory is offline for it."""
        log_dir = self._logs.dir_of(log.directory)
        log.close_files()
        try:
            log.rename_directory(self._marked(log.partition, DELETE), sync=sync)
        except FileNotFoundError:
            logger.warning("%s is not there any more; somebody else has removed it", log.directory)
            return
        except OSError as error:
            if self.on_io_error(log_dir.path, error, doing="renaming a log to be deleted"):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{log.partition}: renaming a log to be deleted failed: {error}"
                ) from error
            retry = partial(self._mark_deleted_at_last, log)
            self._backgrounds[log_dir.path].run(retry, delay_ms=self.settings.file_delete_delay_ms)
            return
        self._delete_later(log_dir, log.partition, log.directory, log.close_files)

    def _mark_deleted_at_last(self, log: Log) -> None:
        with self._changes:
            # A new replica of that name may have its log there by now.
            if not self._is_stopping and all(other.directory != log.directory for other in self.all_logs()):
                self._mark_deleted(log)

    def _delete_later(
        self, log_dir: LogDir, partition: TopicPartition, path: str, release: Callable[[], None] | None = None
    ) -> None:
        """`release` lets go of what late readers opened again: their files would take room on."""

        def delete() -> None:
            remove_tree(self.filesystem, path)
            if release is not None:
                release()
            logger.debug("deleted the log of %s in %s", partition, path)

        logger.debug("the log of %s in %s is deleted in %d ms", partition, path, self.settings.file_delete_delay_ms)
        self._backgrounds[log_dir.path].run(delete, delay_ms=self.settings.file_delete_delay_ms)

    def replace_current_with_future(self, partition: TopicPartition) -> Log:
        """The end of a move between directories: the future log takes over, the old one is deleted."""
        with self._changes:
            current, future = self.get(partition), self.get(partition, is_future=True)
            if current is None or future is None:
                what = "current" if current is None else "future"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The {what} log of {partition} is offline or not there.")
            future.set_high_watermark(current.high_watermark)
            self._take_over(future, current)
        return future

    def recover_abandoned_futures(self, is_assigned: Callable[[Log], bool]) -> list[TopicPartition]:
        """At the start: future logs without a current one take over, if the cluster's metadata counts them as the replica. One
        that has a current one is moved on, which may have more; and that may lie in a directory that is offline."""
        recovered = []
        with self._changes:
            if self.offline_dirs:
                return []
            for future in self._logs.futures():
                partition = future.partition
                if self.get(partition) is None and is_assigned(future):
                    logger.info("%s: the move to %s was not finished; it is now", partition, future.directory)
                    try:
                        self._take_over(future, None)
                        recovered.append(partition)
                    except KafkaError as error:
                        logger.error("%s stays without a log: %s", partition, error.message)
        return recovered

    def _take_over(self, future: Log, current: Log | None) -> None:
        """KafkaError if it cannot be; once the future log is promoted nothing of what is left to do keeps it from that."""
        partition = future.partition
        with self._cleaning_paused(partition):
            with self._logs.storage(future, "renaming a future log"):
                future.rename_directory(str(partition))
            if not self._logs.promote(partition):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The future log of {partition} is offline.")
            if current is not None and self.cleaner is not None:
                self.cleaner.moved(partition, parent_of(current), parent_of(future))
        logger.info("%s is in %s now", partition, future.directory)
        if current is not None:
            try:
                self._mark_deleted(current)
            except KafkaError as error:
                logger.error("%s stays where it was, too: %s", partition, error.message)
        self._checkpointing.after_change_in([self._logs.dir_of(log.directory) for log in (future, current) if log is not None])

    # Truncation, which the cleaner must know of.

    def truncate_to(self, offsets: Mapping[TopicPartition, int], *, is_future: bool = False) -> None:
        """Partitions without a log are left out."""
        touched: dict[str, LogDir] = {}
        for partition, offset in offsets.items():
            if (log := self.get(partition, is_future=is_future)) is None:
                continue
            log_dir = self._logs.dir_of(log.directory)
            if is_future or offset >= log.active.base_offset:
                with self._logs.storage(log, "truncating a log"):
                    is_truncated = log.truncate_to(offset, self._now_ms())
            else:
                with self._cleaning_paused(partition), self._logs.storage(log, "truncating a log"):
                    is_truncated = log.truncate_to(offset, self._now_ms())
                    self._tell_truncated(log)
            if is_truncated:
                touched[log_dir.path] = log_dir
        self._checkpointing.write_recovery_points(touched.values())

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int, *, is_future: bool = False) -> None:
        if (log := self.get(partition, is_future=is_future)) is None:
            return
        with self._cleaning_paused(None if is_future else partition), self._logs.storage(log, "truncating a log"):
            log.truncate_fully_and_start_at(offset, self._now_ms())
            if not is_future:
                self._tell_truncated(log)
        self._checkpointing.write_recovery_points([self._logs.dir_of(log.directory)])

    def _tell_truncated(self, log: Log) -> None:
        if self.cleaner is not None:
            self.cleaner.truncated(log.partition, parent_of(log), log.active.base_offset)

    @contextmanager
    def _cleaning_paused(self, partition: TopicPartition | None) -> Iterator[None]:
        if self.cleaner is None or partition is None:
            yield
            return
        self.cleaner.pause(partition)
        try:
            yield
        finally:
            self.cleaner.resume(partition)

    # Checkpoints.

    def checkpoint_recovery_points(self) -> None:
        self._checkpointing.write_recovery_points()

    def checkpoint_log_start_offsets(self) -> None:
        self._checkpointing.write_log_start_offsets()

    def checkpoint_high_watermarks(self) -> None:
        """For whoever sets the high watermarks: a loaded log's stands at its start until then."""
        self._checkpointing.write_high_watermarks()

    # Failure.

    def on_io_error(self, path: str, error: OSError, *, doing: str = "an access") -> bool:
        """An access to something at `path` failed with `error`; True if its log directory is offline for it.

        A full disk leaves the directory online: reads go on, and appends once there is room.
        """
        return self._logs.on_io_error(path, error, doing=doing)

    def _dir_failed(self, failure: DirFailure) -> None:
        if self.cleaner is not None:
            self.cleaner.dir_failed(failure.path)
        if self._on_dir_failure is not None:
            self._on_dir_failure(failure)

    # Stop.

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Flush and close all logs, write the checkpoints, mark what closed well, and let go of the directories."""
        with self._changes:
            if self._is_stopping:
                return
            self._is_stopping = True
        self.jobs.stop()
        self._checkpointing.stop()
        if self.cleaner is not None:
            try:
                self.cleaner.stop()
            except Exception:
                logger.exception("the cleaner did not stop well")
        by_dir = self.logs_by_dir()

        def close(log_dir: LogDir) -> None:
            close_dir(log_dir, by_dir.get(log_dir.path, {}), self.settings.recovery_threads, broker_epoch)

        try:
            in_parallel("log-closing", len(self.dirs), close, self.online_dirs)
        finally:
            self._let_go()
        logger.info("closed %d logs", sum(map(len, by_dir.values())))

    def _abandon(self) -> None:
        """Let go of everything, writing nothing."""
        self._is_stopping = True
        self._checkpointing.stop()
        for log in self.all_logs():
            log.close_files()
        self._let_go()

    def _let_go(self) -> None:
        self._logs.clear()
        for log_dir in self.dirs:
            log_dir.unlock()

    def _marked(self, partition: TopicPartition, mark: str) -> str:
        return marked_dir(partition, self._new_uuid().hex(), mark)
