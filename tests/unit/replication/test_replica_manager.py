from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.batches import batch
from unit.server.handlers.nodes import Replicas

from pybroker.metadata.image import EMPTY_IMAGE
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.internal.metadata_log import PartitionChangeRecord
from pybroker.replication.partition import Partition
from pybroker.replication.replica_manager import ReplicaManager


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    replicas = Replicas(tmp_path, "a", "b")
    yield replicas
    replicas.close()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


def test_the_logs_of_a_topic_are_told_of_in_one_line_for_each_directory(
    replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        replicas.create("orders", 5)
    first, second = replicas.dirs
    assert told(caplog) == [f"made 3 logs for topic orders in {first}", f"made 2 logs for topic orders in {second}"]
    assert "made a log for orders-4 in" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        replicas.create("payments")
    assert told(caplog) == [f"made 1 log for topic payments in {second}"]


def test_logs_that_were_found_at_the_start_are_not_told_of_and_one_that_is_gone_is_made_again(
    replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    replicas.create("orders", 4)
    lost = replicas.partition("orders", 2).log
    replicas.logs.async_delete(lost.partition)
    shutil.rmtree(lost.directory)
    started = ReplicaManager(replicas.logs, replicas.manager.broker_id, replicas.config_of, lambda: 0, replicas.fetches)
    replicas.manager, replicas.image = started, EMPTY_IMAGE
    caplog.clear()
    with caplog.at_level(logging.INFO):
        replicas.create("orders", 4)
    assert told(caplog) == [f"made 1 log for topic orders in {lost.directory.rpartition('/')[0]}"]
    assert all(isinstance(started.partition("orders", index), Partition) for index in range(4))


def test_the_deletion_of_a_topic_is_told_of_in_one_line(replicas: Replicas, caplog: pytest.LogCaptureFixture) -> None:
    replicas.create("orders", 5)
    with caplog.at_level(logging.INFO):
        replicas.delete("orders")
    assert told(caplog) == ["5 logs of topic orders are deleted in 60000 ms"]


def test_a_replica_whose_directory_failed_is_not_begun_anew_elsewhere_when_its_state_changes(replicas: Replicas) -> None:
    """The controller answers to a failed directory with a partition that has no leader; that is no new partition."""
    topic_id = replicas.create("orders", 2)
    first, second = replicas.dirs
    in_first = next(index for index in range(2) if replicas.partition("orders", index).log.directory.startswith(first))
    replicas.logs.on_io_error(first, OSError(errno.EIO, "no"), doing="a test")
    replicas.manager.dir_failed(first)
    replicas.apply(PartitionChangeRecord(partition_id=in_first, topic_id=topic_id, isr=[], leader=-1))
    replicas.manager.retry_offline()
    assert replicas.manager.partition("orders", in_first) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not (Path(second) / f"orders-{in_first}").exists()


def test_a_replica_that_goes_elsewhere_while_its_directory_is_offline_is_not_tried_again(replicas: Replicas) -> None:
    topic_id = replicas.create("orders", 2)
    first, second = replicas.dirs
    in_first = next(index for index in range(2) if replicas.partition("orders", index).log.directory.startswith(first))
    replicas.manager.dir_failed(first)
    replicas.apply(PartitionChangeRecord(partition_id=in_first, topic_id=topic_id, replicas=[9], isr=[9], leader=9))
    replicas.manager.retry_offline()
    assert not replicas.manager.topics["orders"].offline
    assert not isinstance(replicas.manager.partition("orders", in_first), Partition)
    assert not (Path(second) / f"orders-{in_first}").exists()


def test_a_read_that_comes_too_late_for_a_deleted_log_costs_no_directory(replicas: Replicas) -> None:
    """The fetch had found its partition when the topic was deleted."""
    replicas.create("orders")
    partition = replicas.partition("orders")
    replicas.manager.append(partition, batch([b"a"]), 1)
    replicas.delete("orders")
    shutil.rmtree(partition.log.directory)
    with pytest.raises(FileNotFoundError) as caught:
        partition.log.read(0, 1000)
    refused = replicas.manager.storage_error(partition, caught.value, "a read")
    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(replicas.logs.online_dirs) == 2
