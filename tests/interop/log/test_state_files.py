"""Our checkpoints, snapshots and transaction indexes are Apache Kafka's, and our producer state decides as its log does."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.apache_kafka import java_command

from pybroker.base.filesystem import OsFileSystem
from pybroker.base.ids import Uuid, uuid_from_text, uuid_to_text
from pybroker.log import checkpoints
from pybroker.log.checkpoints import MetaProperties
from pybroker.log.files import TRANSACTION_INDEX, TopicPartition, file_name
from pybroker.log.leader_epochs import LeaderEpochs
from pybroker.log.producer_entry import NO_TRANSACTION, AppendOrigin, BatchMetadata, ProducerEntry
from pybroker.log.producer_snapshot import read_snapshot, snapshot_offsets, snapshot_path, write_snapshot
from pybroker.log.producer_state import ProducerStates
from pybroker.log.transaction_index import AbortedTransaction, TransactionIndex
from pybroker.protocol.errors import KafkaError
from pybroker.protocol.records.batch import MAX_SEQUENCE, NO_SEQUENCE, RecordBatch
from pybroker.protocol.records.builder import BatchBuilder
from pybroker.protocol.records.control import ControlType, end_transaction_marker

FILESYSTEM = OsFileSystem()
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """One JSON line to java/StateFiles.java, one back."""
    with subprocess.Popen(
        java_command("StateFiles"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def answer(op: str, **request: Any) -> dict[str, Any]:
            stdin.write(json.dumps({"op": op, **request}) + "\n")
            stdin.flush()
            line = stdout.readline()
            assert line, "StateFiles ended"
            found: dict[str, Any] = json.loads(line)
            assert "error" not in found, (op, request, found)
            return found

        yield answer
        stdin.close()
        process.wait(60)


def same_file(tmp_path: Path, ask: Ask, ours: Callable[[str], object], op: str, name: str, **request: Any) -> str:
    """Write a file by `ours` and by Apache Kafka's `op`: the bytes are the same. The path of Apache Kafka's."""
    (tmp_path / "ours").mkdir(exist_ok=True)
    (tmp_path / "theirs").mkdir(exist_ok=True)
    ours(str(tmp_path / "ours" / name))
    theirs = tmp_path / "theirs" / name
    ask(op, path=str(theirs), **request)
    assert (tmp_path / "ours" / name).read_bytes() == theirs.read_bytes()
    return str(theirs)


@pytest.mark.parametrize("seed", range(10))
def test_offset_checkpoint(tmp_path: Path, ask: Ask, seed: int) -> None:
    draw = random.Random(seed)
    offsets = {
        TopicPartition(f"topic_{draw.randrange(50)}.a-{seed}", draw.randrange(100)): draw.choice(
            [0, draw.randrange(1000), 2**63 - 1]
        )
        for _ in range(draw.choice([0, 1, 40]))
    }
    rows = [[*key, offset] for key, offset in offsets.items()]
    path = same_file(
        tmp_path,
        ask,
        lambda path: checkpoints.write_offsets(FILESYSTEM, path, offsets),
        "write-offsets",
        "recovery-point-offset-checkpoint",
        rows=rows,
    )
    assert checkpoints.read_offsets(FILESYSTEM, path) == offsets
    ours = str(tmp_path / "ours" / "recovery-point-offset-checkpoint")
    assert sorted(ask("read-offsets", path=ours).get("rows", [])) == sorted(rows)


@pytest.mark.parametrize("seed", range(10))
def test_leader_epoch_checkpoint(tmp_path: Path, ask: Ask, seed: int) -> None:
    draw = random.Random(seed)
    count = draw.choice([0, 1, 30])
    epochs = list(zip(sorted(draw.sample(range(10_000), count)), sorted(draw.sample(range(2**40), count)), strict=True))
    path = same_file(
        tmp_path,
        ask,
        lambda path: checkpoints.write_epochs(FILESYSTEM, path, epochs),
        "write-epochs",
        "leader-epoch-checkpoint",
        rows=epochs,
    )
    assert LeaderEpochs.open(FILESYSTEM, path).entries == tuple(epochs)
    assert ask("read-epochs", path=path)["rows"] == [list(entry) for entry in epochs]


def test_partition_metadata(tmp_path: Path, ask: Ask) -> None:
    topic_id = Uuid(bytes(range(200, 216)))
    path = same_file(
        tmp_path,
        ask,
        lambda path: checkpoints.write_topic_id(FILESYSTEM, path, topic_id),
        "write-topic-id",
        "partition.metadata",
        id=uuid_to_text(topic_id),
    )
    assert checkpoints.read_topic_id(FILESYSTEM, path) == topic_id
    assert ask("read-topic-id", path=path)["id"] == uuid_to_text(topic_id)


@pytest.mark.parametrize("directory_id", [None, "AAECAwQFBgcICQoLDA0ODw"])
def test_meta_properties(tmp_path: Path, ask: Ask, directory_id: str | None) -> None:
    uuid = None if directory_id is None else uuid_from_text(directory_id)
    meta = MetaProperties(cluster_id="a=b:c d\\é#!", node_id=7, directory_id=uuid)
    fields = {"cluster_id": meta.cluster_id, "node_id": 7, "directory_id": directory_id}
    path = str(tmp_path / "meta.properties")
    checkpoints.write_meta_properties(FILESYSTEM, path, meta, 1_700_000_000_000)
    assert ask("read-meta", path=path) == {"version": 1, **fields}
    ask("write-meta", path=path, **fields)
    assert checkpoints.read_meta_properties(FILESYSTEM, path) == meta


def test_clean_shutdown(tmp_path: Path, ask: Ask) -> None:
    path = same_file(
        tmp_path,
        ask,
        lambda path: checkpoints.write_clean_shutdown(FILESYSTEM, path, 2**40),
        "write-shutdown",
        ".kafka_cleanshutdown",
        epoch=2**40,
    )
    assert checkpoints.read_clean_shutdown(FILESYSTEM, path) == 2**40
    assert ask("read-shutdown", path=path)["epoch"] == 2**40


def random_entry(draw: random.Random, producer_id: int) -> ProducerEntry:
    timestamp = draw.randrange(2**41)
    batch = None
    if draw.random() < 0.8:
        delta = draw.randrange(1000)
        batch = BatchMetadata(draw.choice([0, 5, MAX_SEQUENCE]), draw.randrange(delta, 2**50), delta, timestamp)
    first_offset = draw.choice([NO_TRANSACTION, draw.randrange(2**50)])
    return ProducerEntry(producer_id, draw.randrange(2**15), draw.randrange(-1, 2**31 - 1), timestamp, first_offset, batch)


def snapshot_row(entry: ProducerEntry) -> list[int]:
    batch = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, -1, 0, -1)
    return [
        *(entry.producer_id, entry.epoch, batch.last_sequence, batch.last_offset, batch.offset_delta),
        *(entry.last_timestamp, entry.coordinator_epoch, entry.current_txn_first_offset),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_producer_snapshot(tmp_path: Path, ask: Ask, seed: int) -> None:
    draw = random.Random(seed)
    entries = [random_entry(draw, producer_id) for producer_id in draw.sample(range(2**62), draw.choice([0, 1, 200]))]
    rows = [snapshot_row(entry) for entry in entries]
    path = same_file(
        tmp_path,
        ask,
        lambda path: write_snapshot(FILESYSTEM, path, entries),
        "write-snapshot",
        "00000000000000000010.snapshot",
        rows=rows,
    )
    assert [snapshot_row(entry) for entry in read_snapshot(FILESYSTEM, path)] == rows
    assert ask("read-snapshot", path=path)["rows"] == rows


def random_aborts(draw: random.Random, base_offset: int) -> list[AbortedTransaction]:
    rows = []
    last_offset = base_offset - 1
    for _ in range(draw.choice([1, 5, 60])):
        last_offset += draw.randrange(1, 20)
        first_offset = last_offset - draw.randrange(min(last_offset, 60) + 1)
        stable = last_offset + 1 - draw.randrange(min(last_offset, 40) + 1)
        rows.append(AbortedTransaction(draw.randrange(100), first_offset, last_offset, stable))
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_transaction_index(tmp_path: Path, ask: Ask, seed: int) -> None:
    draw = random.Random(seed)
    base_offset = draw.choice([0, 1000])
    rows = random_aborts(draw, base_offset)
    name = file_name(base_offset, TRANSACTION_INDEX)

    def write(path: str) -> None:
        index = TransactionIndex(FILESYSTEM, path, base_offset)
        for row in rows:
            index.append(row)

    path = same_file(tmp_path, ask, write, "write-transactions", name, base_offset=base_offset, rows=rows)
    ours = TransactionIndex(FILESYSTEM, path, base_offset)
    ours.sanity_check()
    assert ours.rows() == rows
    assert ask("read-transactions", path=path, base_offset=base_offset)["rows"] == [list(row) for row in rows]
    for _ in range(30):
        start = draw.randrange(base_offset, rows[-1].last_offset + 30)
        end = start + draw.randrange(100)
        theirs = ask("collect", path=path, base_offset=base_offset, **{"from": start, "to": end})
        found, is_complete = ours.collect(start, end)
        assert ([list(row) for row in found], is_complete) == (theirs["rows"], theirs["complete"])
    offset = draw.randrange(base_offset, rows[-1].last_offset + 5)
    ask("cut", path=path, base_offset=base_offset, to=offset)
    cut = TransactionIndex(FILESYSTEM, str(tmp_path / "ours" / name), base_offset)
    cut.truncate_to(offset)
    assert (tmp_path / "ours" / name).read_bytes() == Path(path).read_bytes()


@pytest.mark.parametrize("seed", range(40))
def test_leader_epochs(tmp_path: Path, ask: Ask, seed: int) -> None:
    draw = random.Random(seed)
    ours = LeaderEpochs(FILESYSTEM, str(tmp_path / "ours"))
    calls: list[list[Any]] = []
    answers: list[Any] = []
    epoch, offset = 0, 0
    for _ in range(150):
        what = draw.choice(["assign"] * 5 + ["from_end", "from_start"] + ["end_offset", "for_offset", "previous", "next"])
        near_epoch = max(-1, epoch + draw.randrange(-8, 3))
        near_offset = max(0, offset + draw.randrange(-60, 10))
        answer: Any = None
        match what:
            case "assign":
                if draw.random() < 0.7:
                    epoch, offset = epoch + draw.randrange(2), offset + draw.randrange(12)
                    near_epoch, near_offset = epoch, offset
                near_epoch = max(0, near_epoch)
                ours.assign(near_epoch, near_offset)
                calls.append([what, near_epoch, near_offset])
            case "from_end":
                ours.truncate_from_end(near_offset, flush=draw.random() < 0.5)
                calls.append([what, near_offset])
            case "from_start":
                near_offset = max(0, near_offset - 40)
                ours.truncate_from_start(near_offset, flush=draw.random() < 0.5)
                calls.append([what, near_offset])
            case "end_offset":
                answer = list(ours.end_offset_for(near_epoch, offset))
                calls.append([what, near_epoch, offset])
            case "for_offset":
                found = ours.epoch_for_offset(near_offset)
                answer = -1 if found is None else found
                calls.append([what, near_offset])
            case "previous" | "next":
                found = (ours.previous_epoch if what == "previous" else ours.next_epoch)(near_epoch)
                answer = -1 if found is None else found
                calls.append([what, near_epoch])
        answers.append(answer)
    theirs = ask("epochs", path=str(tmp_path / "theirs"), calls=calls)
    assert theirs["answers"] == answers
    assert theirs["rows"] == [list(entry) for entry in ours.entries]
    previous = ours.previous_epoch()
    assert theirs["previous"] == (-1 if previous is None else previous)
    ours.flush()
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


# The producer state, against a real log.

EXPIRATION_MS = 100_000
TIMEOUT_MS = 60_000


class OurLog:
    """As much of a log as the producer state needs around it."""

    def __init__(self, directory: Path, *, verifies: bool) -> None:
        self.directory = directory
        self.verifies = verifies
        self.batches: list[RecordBatch] = []
        self.segments = [0]
        self.start = self.end = self.high_watermark = 0
        self.states = self._new_states()

    def _new_states(self) -> ProducerStates:
        return ProducerStates(
            FILESYSTEM,
            str(self.directory),
            TopicPartition("topic", 0),
            producer_id_expiration_ms=EXPIRATION_MS,
            verifies_transactions=self.verifies,
            snapshots=snapshot_offsets(FILESYSTEM, str(self.directory)),
        )

    def index(self, base_offset: int) -> TransactionIndex:
        return TransactionIndex(FILESYSTEM, str(self.directory / file_name(base_offset, TRANSACTION_INDEX)), base_offset)

    def append(self, batches: list[RecordBatch], origin: AppendOrigin, guard: int, version: int) -> dict[str, Any]:
        try:
            for batch in batches:
                known = self.states.check(batch, origin, verification_guard=guard, transaction_version=version)
                if known is not None:
                    return {"code": "DUPLICATE", "first_offset": known.first_offset, "last_offset": known.last_offset}
        except KafkaError as error:
            return {"code": error.code.name}
        first_offset = self.end
        for batch in batches:
            batch.stamp(self.end, 0)
            self.end = batch.next_offset
            self.batches.append(batch)
            self.replay(batch, self.index(self.segments[-1]))
        self.states.map_end_offset = self.end
        return {"code": "NONE", "first_offset": first_offset, "last_offset": self.end - 1}

    def replay(self, batch: RecordBatch, index: TransactionIndex | None = None) -> None:
        completed = self.states.update(batch)
        if completed is not None:
            if index is not None and completed.is_aborted:
                index.append(AbortedTransaction(*completed[:3], self.states.last_stable_offset(completed)))
            self.states.complete(completed)

    def roll(self) -> None:
        if self.segments[-1] != self.end:
            self.segments.append(self.end)
            self.states.map_end_offset = self.end
            self.states.take_snapshot()

    def truncate(self, offset: int, now_ms: int) -> None:
        if offset >= self.end:
            return
        self.end = offset
        for base_offset in self.segments:
            if base_offset > offset:
                (self.directory / file_name(base_offset, TRANSACTION_INDEX)).unlink(missing_ok=True)
        self.segments = [base_offset for base_offset in self.segments if base_offset <= offset]
        self.index(self.segments[-1]).truncate_to(offset)
        self.batches = [batch for batch in self.batches if batch.base_offset < offset]
        self.rebuild(now_ms)
        if self.high_watermark >= offset:
            self.set_high_watermark(offset)

    def rebuild(self, now_ms: int) -> None:
        was_empty = self.states.is_empty and self.states.map_end_offset >= self.end
        self.states.truncate_and_reload(self.start, self.end, now_ms)
        if self.end > self.states.map_end_offset and not was_empty:
            first = max(base_offset for base_offset in self.segments if base_offset <= self.states.map_end_offset)
            for base_offset in self.segments[self.segments.index(first) :]:
                start = max(base_offset, self.states.map_end_offset, self.start)
                self.states.map_end_offset = start
                if base_offset in self.segments[-2:]:
                    self.states.take_snapshot()
                for batch in self.batches:
                    if batch.next_offset > start and self.segment_of(batch) == base_offset:
                        self.replay(batch)
        self.states.map_end_offset = self.end
        self.states.take_snapshot()

    def segment_of(self, batch: RecordBatch) -> int:
        return max(base_offset for base_offset in self.segments if base_offset <= batch.base_offset)

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.states.on_high_watermark_updated(offset)

    def reopen(self, now_ms: int) -> None:
        self.states.take_snapshot()
        self.states = self._new_states()
        self.states.snapshots.delete_strays(self.segments)
        self.high_watermark = self.start
        self.rebuild(now_ms)

    def state(self) -> dict[str, Any]:
        states = self.states
        rows = []
        for entry in sorted(states.entries(), key=lambda entry: entry.producer_id):
            waiting = states.verification(entry.producer_id)
            rows.append(
                [
                    *(entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.last_timestamp),
                    entry.current_txn_first_offset,
                    [list(batch) for batch in entry.batches],
                    waiting and [waiting.lowest_sequence, waiting.epoch, waiting.supports_epoch_bump],
                ]
            )
        unstable = states.first_unstable_offset
        return {
            "producers": rows,
            "first_unstable": or_minus_one(unstable),
            "first_undecided": or_minus_one(states.first_undecided_offset),
            "map_end": states.map_end_offset,
            "latest_snapshot": or_minus_one(states.snapshots.latest),
            "oldest_snapshot": or_minus_one(states.snapshots.oldest),
            "empty": states.is_empty,
            "end": self.end,
            "start": self.start,
        }


def or_minus_one(offset: int | None) -> int:
    return -1 if offset is None else offset


class Both:
    """The same calls on a log of Apache Kafka and on ours, with the answers compared."""

    def __init__(self, ask: Ask, tmp_path: Path, draw: random.Random, *, verifies: bool) -> None:
        self.ask = ask
        self.draw = draw
        self.verifies = verifies
        self.now_ms = 1_000_000
        self.theirs = tmp_path / "theirs" / "topic-0"
        self.theirs.mkdir(parents=True)
        (tmp_path / "ours").mkdir()
        self.ours = OurLog(tmp_path / "ours", verifies=verifies)
        self.guards = [0]  # ours, by Apache Kafka's number
        self.first_epochs = [0, 0, 2**15 - 3, 0]  # of a producer that is not known
        self.sent: list[tuple[int, int, int, int, bool]] = []
        self.codes: list[str] = []
        self.open()

    def open(self) -> None:
        self.ask(
            "log-open",
            path=str(self.theirs),
            start=self.ours.start,
            now=self.now_ms,
            timeout=TIMEOUT_MS,
            expiration=EXPIRATION_MS,
            verifies=self.verifies,
            clean=True,
        )

    def step(self) -> None:
        draw, ours = self.draw, self.ours
        self.now_ms += draw.choice([1, 1, 1, 100, 5_000])
        for entry in ours.states.entries():
            self.first_epochs[entry.producer_id] = max(0, entry.epoch)
        what = draw.choices(
            ["client", "commit", "marker", "replicate", "roll", "truncate", "start", "hw", "expire", "reopen"],
            [50, 5, 14, 8, 3, 1, 1, 10, 1, 1],
        )[0]
        match what:
            case "client":
                self.client()
            case "commit":
                producer_id = draw.randrange(3)
                self.append(
                    [self.data(producer_id, self.epoch(producer_id), NO_SEQUENCE, draw.random() < 0.7)],
                    AppendOrigin.COORDINATOR,
                )
            case "marker":
                self.append([self.marker(draw.randrange(3))], AppendOrigin.COORDINATOR, version=draw.randrange(3))
            case "replicate":
                self.replicate()
            case "roll":
                self.ask("log-roll")
                ours.roll()
            case "truncate":
                if ours.batches:
                    offset = draw.choice(ours.batches[-10:]).base_offset
                    if offset > ours.start:
                        self.ask("log-truncate", offset=offset, now=self.now_ms)
                        ours.truncate(offset, self.now_ms)
            case "start":
                offset = draw.choice([batch.base_offset for batch in ours.batches] or [0])
                if ours.start < offset <= ours.high_watermark:
                    self.ask("log-start", offset=offset)
                    ours.start = offset
                    ours.states.on_log_start_offset_incremented(offset)
            case "hw":
                offset = draw.choice([ours.end, draw.randrange(ours.high_watermark, ours.end + 1)])
                self.ask("log-hw", offset=offset)
                ours.set_high_watermark(offset)
            case "expire":
                self.now_ms += draw.choice([0, EXPIRATION_MS])
                self.ask("log-expire", now=self.now_ms)
                ours.states.remove_expired(self.now_ms)
            case "reopen":
                self.ask("log-close")
                self.open()
                ours.reopen(self.now_ms)
                self.guards = [0]
        theirs = self.ask("log-state", now=self.now_ms)
        stable = theirs.pop("last_stable")
        assert theirs == ours.state(), what
        if what == "hw":
            unstable = ours.states.first_unstable_offset
            assert stable == min(ours.high_watermark, ours.end if unstable is None else max(unstable, ours.start))

    def epoch(self, producer_id: int, *, may_be_old: bool = True) -> int:
        known = self.ours.states.entry(producer_id)
        epoch = self.first_epochs[producer_id] if known is None else known.epoch
        return max(0, min(2**15 - 1, epoch + self.draw.choices([0, 1, -1 if may_be_old else 0], [88, 8, 4])[0]))

    def client(self) -> None:
        draw = self.draw
        producer_id = draw.randrange(4)
        known = self.ours.states.entry(producer_id)
        epoch = self.epoch(producer_id)
        again = draw.choice(self.sent[-12:]) if self.sent and draw.random() < 0.12 else None
        if again and (self.ours.states.entry(again[0]) is not None or again[1] >= self.first_epochs[again[0]]):
            batch = self.data(*again)
        else:
            if known is None:
                sequence = draw.choice([0, 7, MAX_SEQUENCE, MAX_SEQUENCE - 5])
            elif epoch != known.epoch:
                sequence = draw.choices([0, 3], [85, 15])[0]
            else:
                jump = draw.choices([0, 1, -3], [90, 5, 5])[0]
                sequence = (known.last_sequence + 1 + jump) & MAX_SEQUENCE
            is_open = known is not None and known.has_transaction
            transactional = producer_id != 3 and (is_open or draw.random() < 0.6)
            if draw.random() < 0.03:
                transactional = not transactional
            batch = self.data(producer_id, epoch, sequence, transactional)
        guard = 0
        if batch.is_transactional and draw.random() < 0.9:
            guard = self.verify(batch)
            if draw.random() < 0.1:
                guard = draw.randrange(len(self.guards))
            if draw.random() < 0.1:
                self.append([self.marker(batch.producer_id)], AppendOrigin.COORDINATOR, version=2)
        self.append([batch], AppendOrigin.CLIENT, guard=guard)

    def verify(self, batch: RecordBatch) -> int:
        """Apache Kafka's number of the guard that both gave."""
        bump = self.draw.random() < 0.5
        producer_id, sequence, epoch = batch.producer_id, batch.base_sequence, batch.producer_epoch
        theirs = self.ask("log-verify", producer_id=producer_id, sequence=sequence, epoch=epoch, bump=bump, now=self.now_ms)
        try:
            guard = self.ours.states.start_verification(
                producer_id, sequence, epoch, supports_epoch_bump=bump, now_ms=self.now_ms
            )
        except KafkaError as error:
            assert theirs == {"code": error.code.name}
            return 0
        if guard not in self.guards:
            self.guards.append(guard)
        assert theirs == {"code": "NONE", "guard": self.guards.index(guard)}
        return self.guards.index(guard)

    def replicate(self) -> None:
        """One to three batches in one append, and perhaps a marker as the last.

        Epochs do not go back, here and when a producer has expired: of its batches in one append, or in one segment that
        is replayed, Apache Kafka then keeps others than if it had seen them one by one. Markers come last: the row in the
        transaction index would otherwise get an LSO that knows of later batches of the same append.
        """
        draw = self.draw
        batches = []
        for producer_id in draw.sample(range(3), draw.randrange(1, 4)):
            known = self.ours.states.entry(producer_id)
            is_open = known is not None and known.has_transaction
            sequence = draw.choice([0, 5, 5, MAX_SEQUENCE])
            epoch = self.epoch(producer_id, may_be_old=False)
            batches.append(self.data(producer_id, epoch, sequence, is_open or draw.random() < 0.5))
        if draw.random() < 0.5:
            batches.append(self.marker(batches[-1].producer_id, batches[-1].producer_epoch))
        self.append(batches, AppendOrigin.REPLICATION)

    def data(self, producer_id: int, epoch: int, sequence: int, transactional: bool, count: int = 0) -> RecordBatch:
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        for _ in range(count or self.draw.randrange(1, 5)):
            builder.append(self.now_ms - self.draw.randrange(3), None, b"v")
        return RecordBatch(builder.build())

    def marker(self, producer_id: int, lowest_epoch: int = 0) -> RecordBatch:
        draw = self.draw
        known = self.ours.states.entry(producer_id)
        coordinator_epoch = max(0, (0 if known is None else known.coordinator_epoch) + draw.choices([0, 1, -1], [80, 15, 5])[0])
        return RecordBatch(
            end_transaction_marker(
                draw.choice([ControlType.COMMIT, ControlType.ABORT]),
                producer_id=producer_id,
                producer_epoch=max(lowest_epoch, min(2**15 - 1, self.epoch(producer_id) + draw.randrange(2))),
                coordinator_epoch=coordinator_epoch,
                timestamp=self.now_ms,
            )
        )

    def append(self, batches: list[RecordBatch], origin: AppendOrigin, *, guard: int = 0, version: int = 0) -> None:
        end = self.ours.end
        if origin is AppendOrigin.REPLICATION:
            for batch in batches:
                batch.stamp(end, 0)
                end = batch.next_offset
        data = b"".join(batch.view() for batch in batches)
        theirs = self.ask("log-append", hex=data.hex(), origin=origin.name, guard=guard, version=version, now=self.now_ms)
        message = theirs.pop("message", None)
        ours = self.ours.append(batches, origin, self.guards[guard], version)
        assert theirs == ours, (message, batches, origin)
        self.codes.append(f"{origin.name} {theirs['code']}")
        if origin is AppendOrigin.CLIENT and theirs["code"] == "NONE":
            (batch,) = batches
            row = (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional, batch.count)
            self.sent.append(row)

    def close(self) -> None:
        """The files that both wrote, compared."""
        self.ask("log-close")
        self.ours.states.take_snapshot()
        ours, theirs = self.ours.directory, self.theirs
        assert snapshot_offsets(FILESYSTEM, str(ours)) == snapshot_offsets(FILESYSTEM, str(theirs))
        for offset in snapshot_offsets(FILESYSTEM, str(ours)):
            rows = self.ask("read-snapshot", path=snapshot_path(str(ours), offset))["rows"]
            assert sorted(rows) == sorted(map(snapshot_row, read_snapshot(FILESYSTEM, snapshot_path(str(theirs), offset))))
        indexes = [path.name for path in theirs.iterdir() if path.suffix == TRANSACTION_INDEX and path.stat().st_size]
        assert indexes or not list(ours.glob(f"*{TRANSACTION_INDEX}"))
        for name in indexes:
            assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


SEEN: dict[str, int] = {}


@pytest.mark.parametrize("seed", range(40))
def test_producer_state_decides_as_a_log_of_apache_kafka(tmp_path: Path, ask: Ask, seed: int) -> None:
    both = Both(ask, tmp_path, random.Random(seed), verifies=seed % 3 == 0)
    for _ in range(250):
        both.step()
    both.close()
    for code in both.codes:
        SEEN[code] = SEEN.get(code, 0) + 1


def test_every_verdict_was_among_them() -> None:
    if not SEEN:
        pytest.skip("the scenarios did not run")
    print(json.dumps(SEEN, indent=1, sort_keys=True))
    assert SEEN.keys() >= {
        *("CLIENT NONE", "CLIENT DUPLICATE", "CLIENT OUT_OF_ORDER_SEQUENCE_NUMBER", "CLIENT INVALID_PRODUCER_EPOCH"),
        *("CLIENT INVALID_TXN_STATE", "COORDINATOR NONE", "COORDINATOR INVALID_PRODUCER_EPOCH"),
        *("COORDINATOR TRANSACTION_COORDINATOR_FENCED", "COORDINATOR INVALID_TXN_STATE", "REPLICATION NONE"),
    }
