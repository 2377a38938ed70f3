"""Merges small files of an archive that Spark's file sink has written.

The sink's log lists the files; every few batches it is written whole, as `N.compact`. Files of that list are merged, and the
list is replaced in one atomic write: before it the new files do not count, after it the old ones do not, and are deleted, but
only once the list was read back. The files of later batches wait for the next whole list. No stream may write meanwhile.

A note in the archive says what is under way. The next compaction removes what one that died has left.
"""

from __future__ import annotations

import json
import math
import uuid
from collections import defaultdict
from typing import Any
from urllib.parse import unquote

from spark_jobs.errors import FAILED, JobError
from spark_jobs.files import Folder

_VERSION = "v1"
_NOTE = "_compacting.json"
_SCRATCH = "_merging"


def compact(spark: Any, path: str, file_bytes: int) -> tuple[int, int]:
    """How many files were merged, and into how many."""
    archive = Folder(spark, path)
    log = Folder(spark, path + "/_spark_metadata")
    whole = [name for name in log.names() if name.endswith(".compact")]
    if not whole:
        return 0, 0
    newest = max(whole, key=_number)
    entries = _entries(log, newest)
    if archive.exists(_NOTE):
        later = [name for name in log.names() if name.isdigit() and int(name) > _number(newest)]
        _clean(spark, archive, {entry["path"] for name in (newest, *later) for entry in _entries(log, name)})
    groups = _groups(entries, file_bytes)
    if not groups:
        return 0, 0
    token = str(uuid.uuid4())
    merged = [entry for files, _ in groups.values() for entry in files]
    gone = {entry["path"] for entry in merged}
    archive.write_text(_NOTE, json.dumps({"token": token, "folders": list(groups), "old": sorted(gone)}))
    added = [entry for folder, (files, count) in groups.items() for entry in _merge(spark, folder, files, count, token)]
    _check_rows(spark, merged, added)
    kept = [entry for entry in entries if entry["path"] not in gone]
    text = "\n".join([_VERSION, *(json.dumps(entry, separators=(",", ":")) for entry in kept + added)])
    log.write_text(newest, text)
    if log.read_text(newest) != text:
        raise JobError(f"{log.uri(newest)} was written and reads as before; no file was deleted", FAILED)
    _clean(spark, archive, {entry["path"] for entry in kept + added})
    return len(merged), len(added)


def _number(name: str) -> int:
    return int(name[: -len(".compact")])


def _entries(log: Folder, name: str) -> list[dict[str, Any]]:
    version, *lines = log.read_text(name).splitlines()
    if version != _VERSION:
        raise JobError(f"{log.uri(name)} is of version {version}; expected {_VERSION}")
    return [json.loads(line) for line in lines]


def _groups(entries: list[dict[str, Any]], file_bytes: int) -> dict[str, tuple[list[dict[str, Any]], int]]:
    """By folder, the files to merge, and into how many."""
    small: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        if entry["size"] < file_bytes:
            small[entry["path"].rpartition("/")[0]].append(entry)
    counted = {folder: (files, math.ceil(sum(file["size"] for file in files) / file_bytes)) for folder, files in small.items()}
    return {folder: (files, count) for folder, (files, count) in counted.items() if len(files) > count}


def _merge(spark: Any, folder: str, files: list[dict[str, Any]], count: int, token: str) -> list[dict[str, Any]]:
    """New files beside the old ones, and their lines of the log, like those of the old."""
    target = Folder(spark, unquote(folder))
    scratch = Folder(spark, f"{unquote(folder)}/{_SCRATCH}")
    rows = spark.read.parquet(*(unquote(file["path"]) for file in files))
    split = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, "partition", "offset")
    split.sortWithinPartitions("partition", "offset").write.mode("overwrite").parquet(scratch.uri())
    entries = []
    for position, written in enumerate(name for name in scratch.names() if name.endswith(".parquet")):
        name = f"{_prefix(token)}{position}.parquet"
        size_bytes, modified_ms = target.take(scratch, written, name)
        entries.append(files[0] | {"path": f"{folder}/{name}", "size": size_bytes, "modificationTime": modified_ms})
    target.delete(_SCRATCH)
    return entries


def _check_rows(spark: Any, merged: list[dict[str, Any]], added: list[dict[str, Any]]) -> None:
    old, new = (spark.read.parquet(*(unquote(entry["path"]) for entry in entries)).count() for entries in (merged, added))
    if old != new:
        raise JobError(f"{len(merged)} files with {old} rows were merged into files with {new}; the old ones stay", FAILED)


def _clean(spark: Any, archive: Folder, listed: set[str]) -> None:
    """Delete what the note names and no list does: the old files after the list was replaced, the new ones of a compaction that
    died before."""
    note = json.loads(archive.read_text(_NOTE))
    for folder in note["folders"]:
        place = Folder(spark, unquote(folder))
        place.delete(_SCRATCH)
        for name in place.names():
            if name.startswith(_prefix(note["token"])) and f"{folder}/{name}" not in listed:
                place.delete(name)
    for path in note["old"]:
        if path not in listed:
            folder, _, name = path.rpartition("/")
            Folder(spark, unquote(folder)).delete(unquote(name))
    archive.delete(_NOTE)


def _prefix(token: str) -> str:
    return f"merged-{token}-"
