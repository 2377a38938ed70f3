"""The power goes on a disk that loses what was not synced: what becomes of logs that were just made, or just deleted."""

from __future__ import annotations

import random

import pytest
from unit.log.manager.helpers import OWNER, TOPIC_ID, ManualScheduler, append, partition, values

from pybroker.log.log_config import LogConfig
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.settings import ManagerSettings
from pybroker.testing.disk import SimDisk

SEEDS = 60
COUNT = 5
CONFIG = LogConfig.of()


class Machine:
    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.scheduler = ManualScheduler()

    def manager(self) -> LogManager:
        settings = ManagerSettings(log_dirs=("/data",))
        manager = LogManager(self.disk, settings, self.scheduler, now_ms=self.scheduler.clock, owner=OWNER)
        manager.load(lambda _: CONFIG)
        return manager

    def names(self) -> set[str]:
        return {entry.name for entry in self.disk.scan("/data") if entry.is_dir}


@pytest.mark.parametrize("is_clean", [False, True], ids=["running", "cleanly stopped"])
def test_logs_that_were_just_made_are_there_or_made_again(is_clean: bool) -> None:
    found = set()
    for seed in range(SEEDS):
        machine = Machine(seed)
        manager = machine.manager()
        written = manager.get_or_create(partition(COUNT), TOPIC_ID, CONFIG, is_new=True)
        append(written, b"value", machine.scheduler.now_ms)
        written.flush()
        for number in range(COUNT):
            manager.get_or_create(partition(number), TOPIC_ID, CONFIG, is_new=True)
        if is_clean:
            manager.shutdown()
        machine.disk.crash()
        again = machine.manager()
        found.add(len(again.all_logs()))
        for number in range(COUNT + 1):
            # As at a start: the replicas are known ones.
            log = again.get_or_create(partition(number), TOPIC_ID, CONFIG, is_new=False)
            assert log.topic_id == TOPIC_ID
            assert values(log) == ([b"value"] if number == COUNT else []), f"seed {seed}"
        assert len(again.all_logs()) == COUNT + 1
    # The checkpoints of a clean stop sync the names, though not the topic ids.
    assert found == {COUNT + 1} if is_clean else 1 in found


def test_deleted_logs_stay_deleted() -> None:
    for seed in range(SEEDS):
        machine = Machine(seed)
        manager = machine.manager()
        for number in range(COUNT):
            log = manager.get_or_create(partition(number), TOPIC_ID, CONFIG, is_new=True)
            append(log, b"value", machine.scheduler.now_ms)
            log.flush()
        assert not manager.async_delete_all(map(partition, range(COUNT)))
        machine.disk.crash()
        assert all(name.endswith("-delete") for name in machine.names()), f"seed {seed}"
        assert not machine.manager().all_logs()
