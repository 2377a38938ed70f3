from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from unit.server.quorum.quorums import DIRECTORY, NOW_MS, STATIC, config_of, formatted

from pybroker.base.filesystem import FileSystem, read_file, write_file
from pybroker.base.ids import ZERO_UUID, Uuid
from pybroker.config import Config
from pybroker.protocol.internal.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
    VotersRecordVoter,
)
from pybroker.protocol.internal.metadata_log import TopicRecord
from pybroker.protocol.message import Message
from pybroker.protocol.records.control import ControlType, control_batch
from pybroker.raft.events import ElectionState, EpochStart, ReplicaKey, SnapshotId, VotersAt
from pybroker.server.metadata_snapshot import PART, SnapshotError, record_batches, write_snapshot
from pybroker.server.quorum.store import FETCHED, MetadataLogError, MetadataStore
from pybroker.testing.disk import PowerCutError, SimDisk

HOUR_MS = 3_600_000
NOBODY = VotersRecord(version=0, voters=[])


class LaterRecord(Message, key=99, versions="0", flexible="0+"):
    """Of a release that is not written yet."""


def opened(disk: FileSystem, config: Config | None = None) -> MetadataStore:
    return MetadataStore(disk, config_of() if config is None else config, NOW_MS)


def new_store(config: Config | None = None) -> tuple[SimDisk, MetadataStore]:
    disk = SimDisk()
    formatted(disk, config_of() if config is None else config)
    return disk, opened(disk, config)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=Uuid(number.to_bytes(16, "big")))


def append(store: MetadataStore, records: Sequence[Message], epoch: int = 1, max_batch_bytes: int = 1 << 20) -> None:
    batches = record_batches([(one, 0) for one in records], store.end_offset, epoch, NOW_MS, max_batch_bytes)
    store.append(b"".join(batches), NOW_MS)


def append_control(store: MetadataStore, *rows: tuple[ControlType, Message], epoch: int = 1) -> None:
    encoded = [(kind, message.encode(0)) for kind, message in rows]
    data = control_batch(encoded, timestamp=NOW_MS, base_offset=store.end_offset, partition_leader_epoch=epoch)
    store.append(bytes(data), NOW_MS)


def leader_change() -> tuple[ControlType, Message]:
    return ControlType.LEADER_CHANGE, LeaderChangeMessage(version=0, leader_id=1, voters=[], granting_voters=[])


def records_in(store: MetadataStore) -> list[Message]:
    return [record for _, _, record in store.entries(0, store.end_offset) if record is not None]


def snapshot(disk: FileSystem, store: MetadataStore, end_offset: int, epoch: int = 1, *records: Message) -> SnapshotId:
    taken = SnapshotId(end_offset, epoch)
    write_snapshot(disk, store.path_of(taken), [(one, 0) for one in records], now_ms=NOW_MS, epoch=epoch)
    store.taken(taken)
    return taken


def state_of(disk: FileSystem) -> object:
    return json.loads(read_file(disk, f"{DIRECTORY}/quorum-state"))


class TestElection:
    VOTED = ElectionState(epoch=7, voted=ReplicaKey(3, Uuid(b"the disk of 3...")))
    LED = ElectionState(epoch=8, leader_id=2)

    @pytest.mark.parametrize("state", [ElectionState(epoch=1), VOTED, LED])
    @pytest.mark.parametrize("keys", [{}, STATIC], ids=["dynamic", "static"])
    def test_what_was_persisted_is_recovered_after_a_crash(self, state: ElectionState, keys: dict[str, str | None]) -> None:
        """Also when nothing was ever written to the log."""
        disk, store = new_store(config_of(keys))
        store.persist_election(state, 1)
        disk.crash()
        assert opened(disk, config_of(keys)).recovered().election == state

    def test_with_kraft_version_0_the_file_has_the_voters_and_no_directory(self) -> None:
        disk, store = new_store(config_of(STATIC))
        store.persist_election(self.VOTED, 0)
        assert state_of(disk) == {
            "clusterId": "",
            "leaderId": -1,
            "leaderEpoch": 7,
            "votedId": 3,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": 1}],
            "data_version": 0,
        }
        assert opened(disk, config_of(STATIC)).recovered().election.voted == ReplicaKey(3, ZERO_UUID)

    def test_with_kraft_version_1_it_has_the_directory_and_no_voters(self) -> None:
        disk, store = new_store()
        store.persist_election(self.VOTED, 1)
        assert state_of(disk) == {
            "leaderId": -1,
            "leaderEpoch": 7,
            "votedId": 3,
            "votedDirectoryId": "dGhlIGRpc2sgb2YgMy4uLg",
            "data_version": 1,
        }

    @pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"data_version":0}', b'{"data_version":9,"leaderId":1}'])
    def test_one_that_is_damaged_is_not_guessed_at(self, content: bytes) -> None:
        disk, store = new_store()
        write_file(disk, f"{DIRECTORY}/quorum-state", content)
        with pytest.raises(MetadataLogError, match="quorum-state is not readable"):
            store.recovered()

    def test_without_a_file_the_log_says_which_epochs_were(self) -> None:
        _disk, store = new_store()
        append(store, [topic(1)], epoch=6)
        assert store.recovered().election == ElectionState(epoch=6)


class TestLog:
    def test_what_was_flushed_survives_a_crash_and_the_rest_may_be_lost(self) -> None:
        disk, store = new_store()
        append(store, [topic(1), topic(2)])
        assert store.flush(NOW_MS) == 2
        assert store.flush(NOW_MS) is None, "nothing was written since"
        append(store, [topic(3)])
        disk.crash()
        assert records_in(opened(disk))[:2] == [topic(1), topic(2)]

    def test_entries_have_offset_epoch_and_record_and_nothing_for_what_is_between_the_replicas(self) -> None:
        _disk, store = new_store()
        append_control(store, leader_change())
        append(store, [topic(1), topic(2)])
        append(store, [topic(3)], epoch=2)
        everything = [(0, 1, None), (1, 1, topic(1)), (2, 1, topic(2)), (3, 2, topic(3))]
        assert list(store.entries(0, 4)) == everything
        assert list(store.entries(2, 3)) == everything[2:3], "from the middle of a batch"

    def test_a_recovery_finds_epochs_voters_and_kraft_version(self) -> None:
        disk, store = new_store(config_of(STATIC))
        levels = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
        five = VotersRecordVoter(voter_id=5, voter_directory_id=ZERO_UUID, endpoints=[], k_raft_version_feature=levels)
        voters = VotersRecord(version=0, voters=[five])
        append_control(store, leader_change())
        append_control(
            store,
            (ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=1)),
            (ControlType.KRAFT_VOTERS, NOBODY),
        )
        append(store, [topic(1)], epoch=4)
        append_control(store, (ControlType.KRAFT_VOTERS, voters), epoch=4)
        store.flush(NOW_MS)
        store.close()
        found = opened(disk, config_of(STATIC)).recovered()
        assert (found.log_start_offset, found.log_end_offset, found.kraft_version) == (0, 5, 1)
        assert found.epochs == (EpochStart(1, 0), EpochStart(4, 3))
        assert found.voters == (VotersAt(2, NOBODY), VotersAt(4, voters))

    def test_the_voters_of_the_formatting_are_those_of_the_bootstrap_snapshot(self) -> None:
        _disk, store = new_store()
        found = store.recovered()
        assert (found.snapshot, found.kraft_version) == (SnapshotId(0, 0), 1)
        assert [(at.offset, [one.voter_id for one in at.record.voters]) for at in found.voters] == [(-1, [1])]

    def test_static_voters_leave_kraft_version_at_0(self) -> None:
        _disk, store = new_store(config_of(STATIC))
        found = store.recovered()
        assert (found.snapshot, found.kraft_version, found.voters) == (None, 0, ())

    def test_a_truncation_takes_the_end_away(self) -> None:
        _disk, store = new_store()
        append(store, [topic(1)])
        append(store, [topic(2)], epoch=2)
        store.truncate_to(1, NOW_MS)
        append(store, [topic(3)], epoch=3)
        assert store.flush(NOW_MS) == 2
        assert records_in(store) == [topic(1), topic(3)]
        assert store.recovered().epochs == (EpochStart(1, 0), EpochStart(3, 1))

    def test_a_read_gives_whole_batches_and_one_at_least(self) -> None:
        _disk, store = new_store()
        append(store, [topic(1), topic(2)])
        append(store, [topic(3)])
        first, both = store.read(0, 1), store.read(0, 1 << 20)
        assert first is not None
        assert both is not None
        assert store.size_from(0) == len(both) > len(first) > 0
        assert store.size_from(2) == len(both) - len(first)
        assert store.read(3, 1 << 20) is None

    def test_a_full_disk_leaves_nothing_of_what_did_not_fit(self) -> None:
        disk, store = new_store()
        append(store, [topic(1)])
        store.flush(NOW_MS)
        disk.capacity_bytes = 0
        with pytest.raises(OSError, match="No space left"):
            append(store, [topic(number) for number in range(2, 9)])
        disk.capacity_bytes = None
        store.reopen(NOW_MS)
        append(store, [topic(9)])
        assert records_in(store) == [topic(1), topic(9)]

    def test_a_record_of_a_later_release_is_a_clear_error(self) -> None:
        _disk, store = new_store()
        append(store, [topic(1), LaterRecord()])
        with pytest.raises(MetadataLogError, match=f"{DIRECTORY}, offset 1: there is no metadata record of type 99"):
            records_in(store)

    @pytest.mark.parametrize("seed", range(40))
    def test_after_a_crash_what_was_flushed_is_there_and_of_the_rest_a_beginning(self, seed: int) -> None:
        rng = random.Random(seed)
        disk, config = SimDisk(rng), config_of()
        formatted(disk, config)
        written: list[int] = []
        flushed = 0
        for epoch in range(1, 4):
            with suppress(PowerCutError):
                store = opened(disk, config)
                disk.cut_at = disk.operations + rng.randint(1, 60)
                store.persist_election(ElectionState(epoch, leader_id=1), 1)
                for _step in range(30):
                    numbers = [rng.randrange(1 << 40) for _ in range(rng.choice((1, 2, 5, 30)))]
                    written += numbers
                    append(store, [topic(number) for number in numbers], epoch, max_batch_bytes=300)
                    if rng.random() < 0.5:
                        store.flush(NOW_MS)
                        flushed = len(written)
            disk.crash()
            store = opened(disk, config)
            found = [int(record.name[1:]) for record in records_in(store) if isinstance(record, TopicRecord)]
            assert found == written[: len(found)], "not in order"
            assert len(found) >= flushed, "what was flushed is gone"
            assert store.recovered().election.epoch <= epoch
            store.close()
            written, flushed = found, len(found)


class TestLock:
    def test_a_directory_of_its_own_is_locked(self) -> None:
        config = config_of({"metadata.log.dir": "/meta"})
        disk, store = new_store(config)
        with pytest.raises(MetadataLogError, match=r"/meta is locked: another process holds /meta/\.lock"):
            opened(disk, config)
        store.close()
        opened(disk, config)

    def test_a_mere_controller_locks_its_log_directory(self) -> None:
        own = {"process.roles": "controller", "listeners": "CONTROLLER://localhost:9093", "advertised.listeners": None}
        config = config_of(own)
        disk, _store = new_store(config)
        with pytest.raises(MetadataLogError, match=r"/data is locked"):
            opened(disk, config)

    def test_a_disk_that_fails_at_the_close_leaves_no_lock_behind(self, tmp_path: Path) -> None:
        disk, config = FaultyDisk(), config_of({"log.dirs": f"{tmp_path}/data", "metadata.log.dir": f"{tmp_path}/meta"})
        formatted(disk, config)
        store = opened(disk, config)
        append(store, [topic(1)])
        disk.broken.add(f"{tmp_path}/meta")
        with pytest.raises(OSError, match="Input/output error"):
            store.close()
        disk.broken.clear()
        opened(disk, config).close()


class TestSnapshots:
    def test_one_from_elsewhere_stands_for_the_log_before_it(self) -> None:
        config = config_of(STATIC)
        disk, store = new_store(config)
        taken = snapshot(disk, store, 1000, 5, topic(1))
        store.close()
        store = opened(disk, config)
        found = store.recovered()
        assert (found.snapshot, found.log_start_offset, found.log_end_offset) == (taken, 1000, 1000)
        assert found.epochs == (EpochStart(5, 1000),)
        append(store, [topic(2)], epoch=6)
        store.flush(NOW_MS)
        store.close()
        assert list(opened(disk, config).entries(1000, 1001)) == [(1000, 6, topic(2))]

    def test_pieces_of_one_are_read_and_put_together_elsewhere(self) -> None:
        config = config_of(STATIC)
        disk, store = new_store(config)
        taken = snapshot(disk, store, 40, 3, topic(1), topic(2))
        other_disk, other = new_store(config)
        append(other, [topic(8), topic(9)])
        position, size = 0, 1
        while position < size:
            chunk = store.read_chunk(taken, position, 50)
            assert chunk is not None
            size = chunk[0]
            other.store_chunk(taken, position, chunk[1])
            position += len(chunk[1])
        assert other.latest_snapshot is None, "it is not whole before it is installed"
        assert tuple(other.install(taken, NOW_MS).records()) == (topic(1), topic(2))
        other_disk.crash()
        other = opened(other_disk, config)
        assert read_file(other_disk, other.path_of(taken)) == read_file(disk, store.path_of(taken))
        assert (other.latest_snapshot, other.end_offset, records_in(other)) == (taken, 40, [])

    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize(
        ("tail", "taken"),
        [
            (4, SnapshotId(125, 5)),  # the log is longer than the snapshot, but parts from it
            (7, SnapshotId(125, 5)),  # and its epoch may even be higher
            (4, SnapshotId(400, 5)),  # it is shorter
        ],
        ids=["longer", "later", "shorter"],
    )
    def test_a_crash_at_any_step_of_an_install_leaves_the_old_log_or_one_behind_the_snapshot(
        self, tail: int, taken: SnapshotId, seed: int
    ) -> None:
        """Never the snapshot and a log that parts from it: the next leader would tell it to truncate what is committed."""
        config = config_of(STATIC | {"internal.metadata.log.segment.bytes": "2000"})
        source_disk, source = new_store(config)
        snapshot(source_disk, source, *taken, topic(1))
        data = read_file(source_disk, source.path_of(taken))
        is_done, at = False, 0
        outcomes = set()
        while not is_done:
            at += 1
            disk = SimDisk(random.Random(seed))
            formatted(disk, config)
            store = opened(disk, config)
            append(store, [topic(number) for number in range(124)], epoch=1, max_batch_bytes=300)
            append(store, [topic(number) for number in range(124, 127)], epoch=tail)
            store.flush(NOW_MS)
            disk.cut_at = disk.operations + at
            with suppress(PowerCutError):
                store.store_chunk(taken, 0, data)
                store.install(taken, NOW_MS)
                append(store, [topic(500), topic(501)], epoch=8)
                is_done = store.flush(NOW_MS) == taken.end_offset + 2
            disk.crash()
            store = opened(disk, config)
            found = store.recovered()
            epochs = [one.epoch for one in found.epochs]
            assert epochs == sorted(epochs)
            if found.snapshot is None:
                assert found.log_end_offset == 127
                assert not is_done
            else:
                assert found.log_start_offset == taken.end_offset
                names = [record.name for record in records_in(store) if isinstance(record, TopicRecord)]
                assert names == ["t500", "t501"][: len(names)]
                assert not is_done or len(names) == 2
            outcomes.add((found.snapshot, found.log_end_offset))
        assert len(outcomes) >= 3, "else it was not cut on the way"

    def test_one_that_was_begun_before_a_later_one_came_is_no_reason_to_begin_anew(self) -> None:
        disk, store = new_store(config_of(STATIC))
        later = SnapshotId(29, 3)
        source_disk, source = new_store(config_of(STATIC))
        store.store_chunk(later, 0, read_file(source_disk, source.path_of(snapshot(source_disk, source, *later, topic(1)))))
        store.install(later, NOW_MS).close()
        earlier = snapshot(disk, store, 26, 3)
        assert store.leads_to(earlier)
        assert store.latest_snapshot == later

    def test_a_fetch_that_begins_anew_forgets_the_first_one(self) -> None:
        _disk, store = new_store(config_of(STATIC))
        source_disk, source = new_store(config_of(STATIC))
        taken = snapshot(source_disk, source, 9, 1, topic(1))
        store.store_chunk(taken, 0, b"x" * 5000)
        store.store_chunk(taken, 0, read_file(source_disk, source.path_of(taken)))
        assert tuple(store.install(taken, NOW_MS).records()) == (topic(1),)

    def test_one_that_is_not_whole_is_not_installed(self) -> None:
        disk, store = new_store(config_of(STATIC))
        append(store, [topic(1)])
        store.store_chunk(SnapshotId(9, 1), 0, b"half of it")
        with pytest.raises(SnapshotError, match="is no whole snapshot"):
            store.install(SnapshotId(9, 1), NOW_MS)
        assert (store.latest_snapshot, records_in(store)) == (None, [topic(1)])
        assert not disk.exists(store.path_of(SnapshotId(9, 1)))
        assert not disk.exists(store.path_of(SnapshotId(9, 1)) + FETCHED)

    def test_there_is_nothing_of_one_that_is_not_there(self) -> None:
        _disk, store = new_store()
        assert store.read_chunk(SnapshotId(9, 1), 0, 100) is None

    def test_halves_are_gone_after_a_start(self) -> None:
        disk, store = new_store(config_of(STATIC))
        store.store_chunk(SnapshotId(9, 1), 0, b"half of it")
        write_file(disk, store.path_of(SnapshotId(8, 1)) + PART, b"half of it, too")
        store.close()
        opened(disk, config_of(STATIC))
        assert not [entry.name for entry in disk.scan(DIRECTORY) if entry.name.endswith((FETCHED, PART))]


class TestCleaning:
    """By metadata.max.retention.*: an old snapshot goes, and the log before the next one."""

    def store_with(self, **retention: int) -> tuple[SimDisk, MetadataStore]:
        """Three segments, 0 to 9, 10 to 19 and 20 to 29, and snapshots at 10, 20 and 30, an hour apart."""
        keys = {f"metadata.max.retention.{key}": str(value) for key, value in retention.items()}
        config = config_of(STATIC | {"internal.metadata.log.segment.bytes": "400"} | keys)
        disk, store = new_store(config)
        for first in (0, 10, 20):
            append(store, [topic(number) for number in range(first, first + 10)])
            store.flush(NOW_MS)
            taken = snapshot(disk, store, first + 10)
            disk.set_modified_ms(store.path_of(taken), NOW_MS + first // 10 * HOUR_MS)
        store.set_high_watermark(30)
        return disk, store

    def left(self, disk: SimDisk) -> list[str]:
        names = sorted(entry.name for entry in disk.scan(DIRECTORY))
        return [name.removesuffix("-0000000001.checkpoint").lstrip("0") for name in names if name.endswith(".checkpoint")]

    def test_what_is_not_old_nor_too_much_stays(self) -> None:
        disk, store = self.store_with(ms=10 * HOUR_MS)
        assert store.clean(NOW_MS + 3 * HOUR_MS) is None
        assert self.left(disk) == ["10", "20", "30"]

    def test_by_age(self) -> None:
        disk, store = self.store_with(ms=2 * HOUR_MS)
        assert store.clean(NOW_MS + 2 * HOUR_MS + 1) == 20
        assert self.left(disk) == ["20", "30"]
        assert store.latest_snapshot == SnapshotId(30, 1)
        assert store.recovered().log_start_offset == 20
        assert [entry.offset for entry in store.entries(20, 30)] == list(range(20, 30))

    def test_the_latest_stays_however_old_it_is(self) -> None:
        disk, store = self.store_with(ms=HOUR_MS)
        assert store.clean(NOW_MS + 100 * HOUR_MS) == 30
        assert self.left(disk) == ["30"]

    def test_by_size_no_more_goes_than_must(self) -> None:
        disk, store = self.store_with(bytes=-1)
        size = store.size_from(0) + 3 * len(read_file(disk, store.path_of(SnapshotId(10, 1))))
        disk, store = self.store_with(bytes=size)
        assert store.clean(NOW_MS) is None
        disk, store = self.store_with(bytes=size - 1)
        assert store.clean(NOW_MS) == 20
        assert self.left(disk) == ["20", "30"]

    def test_a_snapshot_that_was_cleaned_away_is_not_given_out(self) -> None:
        _disk, store = self.store_with(ms=HOUR_MS)
        store.clean(NOW_MS + 100 * HOUR_MS)
        assert store.read_chunk(SnapshotId(10, 1), 0, 100) is None
