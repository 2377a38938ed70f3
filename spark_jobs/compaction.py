"""Merges small files of an archive that Spark's file sink has written.

The sink's log lists the files; every few batches it is written whole, as `N.compact`. Files of that list are merged, and the
list is replaced in one atomic write: before it the new files do not count, after it the old ones do not, and are deleted.
The files of later batches wait for the next whole list. No stream may write meanwhile.
"""

from __future__ import annotations

import json
import math
import uuid
from collections import defaultdict
from typing import Any
from urllib.parse import unquote

from spark_jobs.errors import JobError
from spark_jobs.files import Folder

_VERSION = "v1"


def compact(spark: Any, path: str, file_bytes: int) -> tuple[int, int]:
    """How many files were merged, and into how many."""
    log = Folder(spark, path + "/_spark_metadata")
    whole = [name for name in log.names() if name.endswith(".compact")]
    if not whole:
        return 0, 0
    newest = max(whole, key=lambda name: int(name.removesuffix(".compact")))
    version, *lines = log.read_text(newest).splitlines()
    if version != _VERSION:
        raise JobError(f"{path}/_spark_metadata/{newest} is of version {version}; expected {_VERSION}")
    entries = [json.loads(line) for line in lines]
    small: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        if entry["size"] < file_bytes:
            small[entry["path"].rpartition("/")[0]].append(entry)
    merged: list[dict[str, Any]] = []
    added: list[dict[str, Any]] = []
    for folder, files in small.items():
        count = math.ceil(sum(file["size"] for file in files) / file_bytes)
        if len(files) > count:
            added += _merge(spark, folder, files, count)
            merged += files
    if merged:
        gone = {entry["path"] for entry in merged}
        kept = [entry for entry in entries if entry["path"] not in gone]
        log.write_text(newest, "\n".join([_VERSION, *(json.dumps(entry, separators=(",", ":")) for entry in kept + added)]))
        for entry in merged:
            folder, _, name = entry["path"].rpartition("/")
            Folder(spark, unquote(folder)).delete(unquote(name))
    return len(merged), len(added)


def _merge(spark: Any, folder: str, files: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """New files beside the old ones, and their lines of the log, like those of the old."""
    target = Folder(spark, unquote(folder))
    scratch = Folder(spark, f"{unquote(folder)}/_merging")
    rows = spark.read.parquet(*(unquote(file["path"]) for file in files))
    split = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, "partition", "offset")
    split.sortWithinPartitions("partition", "offset").write.mode("overwrite").parquet(scratch.uri())
    entries = []
    for written in scratch.names():
        if written.endswith(".parquet"):
            name = f"merged-{uuid.uuid4()}.parquet"
            size_bytes, modified_ms = target.take(scratch, written, name)
            entries.append(files[0] | {"path": f"{folder}/{name}", "size": size_bytes, "modificationTime": modified_ms})
    target.delete("_merging")
    return entries
