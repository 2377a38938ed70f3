"""The names of files and directories: what a partition's directory may hold, and what the suffixes mean.

A directory is `topic-partition`, or that and `.{32 hex digits}` and `-delete`, `-future` or `-stray`. A segment's files are
called by its base offset in 20 digits.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETED: Final = ".deleted"  # to be removed, once file.delete.delay.ms is over
CLEANED: Final = ".cleaned"  # written by the cleaner, not complete
SWAP: Final = ".swap"  # written by the cleaner, complete, about to take the place of the originals

DELETE: Final = "delete"
FUTURE: Final = "future"
STRAY: Final = "stray"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

MAX_NAME_BYTES: Final = 255

_PARTITION_DIR = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d{1,10})")
_MARKED_DIR = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d{1,10})\.(?P<id>\w{1,32})-(?P<mark>delete|future|stray)")
_SEGMENT_FILE = re.compile(
    r"(?P<offset>\d{20})(?P<suffix>\.(?:log|index|timeindex|txnindex|snapshot))(?P<state>\.(?:deleted|cleaned|swap))?"
)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionDir(NamedTuple):
    name: str
    partition: TopicPartition
    mark: str | None = None  # delete, future or stray


class SegmentFile(NamedTuple):
    name: str
    base_offset: int
    suffix: str
    state: str | None = None  # .deleted, .cleaned or .swap


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_file(name: str) -> SegmentFile | None:
    """What `name` says of a file in a partition's directory; None for one that is no part of a segment."""
    match = _SEGMENT_FILE.fullmatch(name)
    return match and SegmentFile(name, int(match["offset"]), match["suffix"], match["state"])


def parse_dir(name: str) -> PartitionDir | None:
    """What `name` says of a directory in a log directory; None for one that is no partition's."""
    if match := _PARTITION_DIR.fullmatch(name):
        return PartitionDir(name, TopicPartition(match["topic"], int(match["partition"])))
    if match := _MARKED_DIR.fullmatch(name):
        return PartitionDir(name, TopicPartition(match["topic"], int(match["partition"])), match["mark"])
    return None


def marked_dir(partition: TopicPartition, unique_id: str, mark: str) -> str:
    """The name of a directory about to be deleted, filled, or found stray; a long topic name gives way."""
    tail = f"-{partition.partition}.{unique_id}-{mark}"
    return partition.topic[: MAX_NAME_BYTES - len(tail)] + tail
