"""Taking the log directories of a node at its start: made if missing, locked, and checked to be this node's.

A directory that cannot be used (unreadable, read-only, a broken disk) is offline and the others go on. One that another
process holds, or that belongs to another cluster or node, is a mistake of the operator: nothing is opened then, and the
locks taken so far are let go.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pybroker.base.filesystem import FileSystem
from pybroker.base.ids import Uuid, uuid_to_text
from pybroker.log.checkpoints import (
    META_PROPERTIES,
    CorruptFileError,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from pybroker.log.manager.log_dir import LOCK_FILE, LogDir

logger = logging.getLogger(__name__)


class LogDirError(Exception):
    """A node cannot start, or go on, with its log directories as they are."""


@dataclass(slots=True, frozen=True)
class Owner:
    """Whose the directories must be. `writes_meta`: a directory without meta.properties, or without an id in it, gets one."""

    cluster_id: str
    node_id: int
    writes_meta: bool = False


def random_uuid() -> Uuid:
    """As Apache Kafka draws them: none whose text begins with a dash, which a command line would take for an option."""
    while True:
        drawn = Uuid(uuid.uuid4().bytes)
        if not uuid_to_text(drawn).startswith("-"):
            return drawn


def open_log_dirs(
    filesystem: FileSystem,
    paths: Sequence[str],
    owner: Owner | None,
    *,
    now_ms: int,
    new_uuid: Callable[[], Uuid] = random_uuid,
) -> list[LogDir]:
    """Every directory of `paths`, in order, locked or offline; LogDirError if the node must not start."""
    dirs = [LogDir(filesystem, os.path.abspath(path)) for path in paths]
    _refuse_duplicate_paths(dirs)
    try:
        for log_dir in dirs:
            try:
                _take(log_dir)
                _check_meta(log_dir, owner, now_ms, new_uuid)
                log_dir.read_shutdown_mark()
            except OSError as error:
                log_dir.failure = error
                log_dir.unlock()
        _refuse_duplicate_ids(dirs)
        if not any(log_dir.is_online for log_dir in dirs):
            reasons = "; ".join(f"{log_dir.path}: {log_dir.failure}" for log_dir in dirs)
            raise LogDirError(f"none of log.dirs can be used ({reasons}); expected at least one to be readable and writable")
    except BaseException:
        for log_dir in dirs:
            log_dir.unlock()
        raise
    return dirs


def _take(log_dir: LogDir) -> None:
    filesystem = log_dir.filesystem
    if not filesystem.exists(log_dir.path):
        logger.info("log directory %s is not there; it is made", log_dir.path)
        filesystem.make_dirs(log_dir.path)
        filesystem.sync_dir(os.path.dirname(log_dir.path))
    next(iter(filesystem.scan(log_dir.path)), None)
    log_dir.lock = filesystem.lock(log_dir.file(LOCK_FILE))
    if log_dir.lock is None:
        raise LogDirError(
            f"log directory {log_dir.path} is locked: another process holds {log_dir.file(LOCK_FILE)}. "
            "Stop the broker that uses it, or give this one another directory in log.dirs."
        )


def _check_meta(log_dir: LogDir, owner: Owner | None, now_ms: int, new_uuid: Callable[[], Uuid]) -> None:
    path = log_dir.file(META_PROPERTIES)
    try:
        meta = read_meta_properties(log_dir.filesystem, path)
    except CorruptFileError as error:
        raise LogDirError(f"{error}. Restore the file; without it nobody knows whose logs these are.") from error
    if owner is None:
        log_dir.directory_id = None if meta is None else meta.directory_id
        return
    if meta is None:
        if not owner.writes_meta:
            raise LogDirError(f"{path} is not there: log directory {log_dir.path} must be formatted before it is used.")
        meta = MetaProperties(owner.cluster_id, owner.node_id, None)
    if meta.cluster_id != owner.cluster_id:
        raise LogDirError(
            f"{path}: found cluster.id {meta.cluster_id}, expected {owner.cluster_id}: the directory belongs to another "
            "cluster. Correct log.dirs, or move the directory away."
        )
    if meta.node_id != owner.node_id:
        raise LogDirError(
            f"{path}: found node.id {meta.node_id}, expected {owner.node_id}: the directory belongs to another node. "
            "Correct log.dirs or node.id."
        )
    if meta.directory_id is None and owner.writes_meta:
        meta = MetaProperties(meta.cluster_id, meta.node_id, new_uuid())
        write_meta_properties(log_dir.filesystem, path, meta, now_ms)
    log_dir.directory_id = meta.directory_id


def _refuse_duplicate_paths(dirs: Sequence[LogDir]) -> None:
    seen: set[str] = set()
    for log_dir in dirs:
        if log_dir.path in seen:
            raise LogDirError(f"log directory {log_dir.path} is named twice in log.dirs; expected each once")
        seen.add(log_dir.path)


def _refuse_duplicate_ids(dirs: Sequence[LogDir]) -> None:
    by_id: dict[Uuid, LogDir] = {}
    for log_dir in dirs:
        if not log_dir.is_online or log_dir.directory_id is None:
            continue
        other = by_id.setdefault(log_dir.directory_id, log_dir)
        if other is not log_dir:
            raise LogDirError(
                f"{other.file(META_PROPERTIES)} and {log_dir.file(META_PROPERTIES)} both have directory.id "
                f"{uuid_to_text(log_dir.directory_id)}; expected each directory to have its own. Was one copied from the other?"
            )
