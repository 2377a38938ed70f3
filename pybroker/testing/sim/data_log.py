"""The logs of a simulated broker, in memory: what a `Log` and a `LogManager` are to replication, and nothing of the files.

A record is (offset, epoch, sequence). Everything that was written survives a crash, as it does in the page cache when a process
is killed; the high watermark comes back as it was checkpointed last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from pybroker.log.files import TopicPartition
from pybroker.log.leader_epochs import LeaderEpochs
from pybroker.log.log import Appended
from pybroker.log.log_reader import Fetched
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.testing.sim.raft_checks import InvariantError

DIRECTORY: Final = "/data"
FOLLOWS: Final = -1


class Record(NamedTuple):
    offset: int
    epoch: int
    sequence: int


OnCommitted = Callable[["MemoryLog", int, int], None]


class Slice:
    """Records that a follower is sent as a part of a file: it gets what lies there when they leave, which may be as late as
    they arrive."""

    __slots__ = ("_length", "_log", "_start")

    def __init__(self, log: MemoryLog, start: int, length: int) -> None:
        self._log = log
        self._start = start
        self._length = length

    def __len__(self) -> int:
        return self._length

    def read(self) -> Sequence[Record]:
        """Nothing, if the file was cut off meanwhile: the connection ends then."""
        found = self._log.records[self._start : self._start + self._length]
        return found if len(found) == self._length else ()


class MemoryEpochs(LeaderEpochs):
    def __init__(self) -> None:
        super().__init__(None, "epochs")  # type: ignore[arg-type]

    def flush(self, *, missing_dir_ok: bool = False) -> None: ...


class MemoryLog:
    def __init__(self, name: TopicPartition, config: Any, batch_records: int, on_committed: OnCommitted) -> None:
        """A read gives at most `batch_records`. `on_committed` hears the old and the new high watermark."""
        self.partition = name
        self.directory = f"{DIRECTORY}/{name}"
        self.config = config
        self.topic_id = None
        self.lock: AbstractContextManager[None] = nullcontext()
        self.leader_epochs: LeaderEpochs = MemoryEpochs()
        self.records: list[Record] = []
        self.log_start_offset = 0
        self._batch_records = batch_records
        self._on_committed = on_committed
        self.opened()

    def opened(self) -> None:
        """A new process has it."""
        self.high_watermark = self.log_start_offset
        self._led_epoch: int | None = None
        self._commits_at_once = True

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    # Roles.

    def lead(self, leader_epoch: int, *, commits_at_once: bool) -> None:
        self._led_epoch, self._commits_at_once = leader_epoch, commits_at_once
        if commits_at_once:
            self.set_high_watermark(self.log_end_offset)

    def is_led_in(self, leader_epoch: int) -> bool:
        return self._led_epoch == leader_epoch

    def follow(self) -> None:
        self._led_epoch, self._commits_at_once = FOLLOWS, False

    # Appends.

    def append_as_leader(self, records: Any, leader_epoch: int, now_ms: int, *, commits: bool, **_: object) -> Appended:
        """`records` is the sequence number of the only one."""
        if self._led_epoch != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.partition} is not led in epoch {leader_epoch}.")
        sequence: int = records
        last = self.records[-1].sequence if self.records else -1
        if sequence <= last:
            offset = next(record.offset for record in self.records if record.sequence == sequence)
            return Appended(offset, offset, -1, self.log_start_offset, 0, True)
        if sequence > last + 1:
            raise InvariantError(
                f"{self.partition}: the producer goes on with {sequence}, all before it acknowledged; the leader of epoch "
                f"{leader_epoch} has {last} as the last"
            )
        offset = self.log_end_offset
        self._append(Record(offset, leader_epoch, sequence))
        if commits and self._commits_at_once:
            self.set_high_watermark(self.log_end_offset)
        return Appended(offset, offset, -1, self.log_start_offset, 1)

    def append_as_follower(self, records: Slice, now_ms: int, leader_epoch: int) -> Appended:
        first_offset = self.log_end_offset
        for record in records.read():
            if record.epoch > leader_epoch:
                break
            if record.offset != self.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.partition}: {record} at {self.log_end_offset}")
            self._append(record)
        end_offset = self.log_end_offset
        return Appended(first_offset, end_offset - 1, -1, self.log_start_offset, end_offset - first_offset)

    def _append(self, record: Record) -> None:
        if record.epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(record.epoch, record.offset)
        self.records.append(record)

    # Reads.

    def read(self, offset: int, max_bytes: int, *, upper: int | None = None, min_one: bool = True) -> Fetched:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.partition} has no {offset}")
        bound = self.log_end_offset if upper is None else upper
        found: Any = self._slice(offset, min(bound - offset, self._batch_records))
        return Fetched(found, offset, self.log_start_offset)

    def tail(self, offset: int, max_bytes: int) -> Slice | None:
        count = self.log_end_offset - offset
        return self._slice(offset, count) if count <= self._batch_records else None

    def _slice(self, offset: int, count: int) -> Slice | None:
        return Slice(self, offset, count) if count > 0 else None

    # Offsets.

    def set_high_watermark(self, offset: int) -> None:
        before = self.high_watermark
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
        if self.high_watermark > before:
            self._on_committed(self, before, self.high_watermark)

    def advance_log_start_offset(self, offset: int) -> bool:
        return False

    def truncate_to(self, offset: int) -> None:
        self.leader_epochs.truncate_from_end(offset)
        del self.records[offset:]
        self.high_watermark = min(self.high_watermark, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        raise InvariantError(f"{self.partition}: no leader deletes records here, yet a follower starts over at {offset}")


class MemoryLogs:
    """A broker's LogManager and its only directory."""

    def __init__(self, new_log: Callable[[TopicPartition], MemoryLog]) -> None:
        self._new_log = new_log
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.path = DIRECTORY
        self.online_dirs = [self]
        self.settings = SimpleNamespace(file_delete_delay_ms=0)
        self._checkpoint: dict[TopicPartition, int] = {}

    def reopen(self) -> None:
        for log in self.logs.values():
            log.opened()

    def get(self, name: TopicPartition) -> MemoryLog | None:
        return self.logs.get(name)

    def get_or_create(self, name: TopicPartition, *_: object, **__: object) -> MemoryLog:
        if name not in self.logs:
            self.logs[name] = self._new_log(name)
        return self.logs[name]

    def dir_with_id(self, directory_id: object) -> None:
        return None

    def directory_id_of(self, log: MemoryLog) -> None:
        return None

    def async_delete_all(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError]:
        for name in names:
            self.logs.pop(name, None)
            self._checkpoint.pop(name, None)
        return {}

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        for name, offset in offsets.items():
            self.logs[name].truncate_to(offset)

    def truncate_fully_and_start_at(self, name: TopicPartition, offset: int) -> None:
        self.logs[name].truncate_fully_and_start_at(offset)

    def checkpoint(self) -> None:
        self._checkpoint = {name: log.high_watermark for name, log in self.logs.items()}

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return self._checkpoint
