"""Names of files and directories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.log.files import (
    DELETE,
    MAX_NAME_BYTES,
    SEGMENT_SUFFIXES,
    STRAY,
    PartitionDir,
    SegmentFile,
    TopicPartition,
    file_name,
    marked_dir,
    parse_dir,
    parse_file,
)

UNIQUE = "0123456789abcdef0123456789abcdef"


def test_a_file_is_called_by_its_base_offset_in_20_digits() -> None:
    assert file_name(0, ".log") == "00000000000000000000.log"
    assert file_name(2**63 - 1, ".timeindex") == "09223372036854775807.timeindex"


@given(
    offset=st.integers(0, 2**63 - 1),
    suffix=st.sampled_from([*SEGMENT_SUFFIXES, ".snapshot"]),
    state=st.sampled_from([None, ".deleted", ".cleaned", ".swap"]),
)
def test_names_are_read_as_they_are_written(offset: int, suffix: str, state: str | None) -> None:
    name = file_name(offset, suffix) + (state or "")
    assert parse_file(name) == SegmentFile(name, offset, suffix, state)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.log",
        "00000000000000000000",
        "00000000000000000000.txt",
        "00000000000000000000.log.tmp",
        "00000000000000000000.snapshot.tmp",
        "00000000000000000000.log.swap.deleted",
        "0000000000000000000x.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "00000000000000000000.log\n",
    ],
)
def test_other_files_are_no_part_of_a_segment(name: str) -> None:
    assert parse_file(name) is None


@pytest.mark.parametrize(
    ("name", "topic", "partition", "mark"),
    [
        ("t-0", "t", 0, None),
        ("a-b-c-12", "a-b-c", 12, None),
        ("__consumer_offsets-49", "__consumer_offsets", 49, None),
        ("t.x-1", "t.x", 1, None),
        (f"t-0.{UNIQUE}-delete", "t", 0, "delete"),
        (f"a-b-7.{UNIQUE}-future", "a-b", 7, "future"),
        (f"t-0.{UNIQUE}-stray", "t", 0, "stray"),
    ],
)
def test_directories(name: str, topic: str, partition: int, mark: str | None) -> None:
    assert parse_dir(name) == PartitionDir(name, TopicPartition(topic, partition), mark)


@pytest.mark.parametrize("name", ["", "t", "t-", "-0", "t-x", "t-0-", "lost+found", "t 0-1", "t-0.-delete", "t-12345678901"])
def test_other_directories_are_no_partition(name: str) -> None:
    assert parse_dir(name) is None


def test_the_name_of_a_partition() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"


def test_a_marked_directory_says_which_partition_it_was() -> None:
    partition = TopicPartition("topic", 3)
    assert marked_dir(partition, UNIQUE, DELETE) == f"topic-3.{UNIQUE}-delete"
    assert parse_dir(marked_dir(partition, UNIQUE, STRAY)) == PartitionDir(f"topic-3.{UNIQUE}-stray", partition, "stray")


def test_a_long_topic_name_gives_way() -> None:
    name = marked_dir(TopicPartition("x" * 249, 2**31 - 1), UNIQUE, DELETE)
    assert len(name) == MAX_NAME_BYTES
    assert name.endswith(f"-2147483647.{UNIQUE}-delete")
