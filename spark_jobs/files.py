"""Folders on any file system that Spark knows, through Hadoop's classes in the driver's JVM."""

from __future__ import annotations

from typing import Any

from spark_jobs.errors import FAILED, JobError


class Folder:
    """`path` may be local or a URI (hdfs://, s3a://); it need not exist."""

    def __init__(self, spark: Any, path: str) -> None:
        self._jvm = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()
        self._path = self._jvm.org.apache.hadoop.fs.Path(path)
        self._fs = self._path.getFileSystem(self._conf)

    def names(self) -> list[str]:
        """What is in it, in order; nothing where the folder does not exist. Files that begin with a dot do not count."""
        if not self._fs.exists(self._path):
            return []
        found = (str(status.getPath().getName()) for status in self._fs.listStatus(self._path))
        return sorted(name for name in found if not name.startswith("."))

    def exists(self, name: str = ".") -> bool:
        return bool(self._fs.exists(self._of(name)))

    def read_text(self, name: str) -> str:
        stream = self._fs.open(self._of(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        """All of it or nothing, in place of what is there: as Spark writes its own checkpoints."""
        manager = self._jvm.org.apache.spark.sql.execution.streaming.CheckpointFileManager.create(self._path, self._conf)
        self._fs.mkdirs(self._path)
        stream = manager.createAtomic(self._of(name), True)
        try:
            stream.write(bytearray(text.encode()))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def delete(self, name: str) -> None:
        self._fs.delete(self._of(name), True)

    def take(self, other: Folder, name: str, new_name: str) -> tuple[int, int]:
        """Move a file of another folder here; its size in bytes and when it was modified, in milliseconds."""
        if not self._fs.rename(other._of(name), self._of(new_name)):
            raise JobError(f"{other.uri(name)} could not be moved to {self.uri(new_name)}", FAILED)
        status = self._fs.getFileStatus(self._of(new_name))
        return int(status.getLen()), int(status.getModificationTime())

    def uri(self, name: str = ".") -> str:
        return str(self._fs.makeQualified(self._of(name)).toUri().toString())

    def _of(self, name: str) -> Any:
        return self._path if name == "." else self._jvm.org.apache.hadoop.fs.Path(self._path, name)
