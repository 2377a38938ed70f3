"""The real disk with faults that a test switches on and off while a node runs on it."""

from __future__ import annotations

import errno
import mmap
import os

from pybroker.base.filesystem import Buffer, OsFile, OsFileSystem


class FaultyFile(OsFile):
    __slots__ = ("_disk",)

    def __init__(self, disk: FaultyDisk, path: str, flags: int) -> None:
        super().__init__(path, flags)
        self._disk = disk

    def read(self, position: int, size: int) -> bytes:
        self._disk.check(self.path)
        return super().read(position, size)

    def write(self, position: int, data: Buffer) -> None:
        self._disk.check(self.path, grows=position + len(data) > self.size())
        super().write(position, data)

    def truncate(self, size: int) -> None:
        self._disk.check(self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._disk.check(self.path)
        super().sync()

    def map(self, size: int) -> mmap.mmap:
        self._disk.check(self.path, grows=size > self.size())
        return super().map(size)


class FaultyDisk(OsFileSystem):
    """`broken` holds path prefixes below which every access fails; below those in `full` nothing can grow."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.full: set[str] = set()

    def check(self, path: str, *, grows: bool = False) -> None:
        for prefixes, error in ((self.broken, errno.EIO), (self.full if grows else (), errno.ENOSPC)):
            if any(path.startswith(prefix) for prefix in prefixes):
                raise OSError(error, os.strerror(error), path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        self.check(path, grows=create and not os.path.exists(path))
        return FaultyFile(self, path, os.O_RDONLY if read_only else os.O_RDWR | (os.O_CREAT if create else 0))

    def make_dirs(self, path: str) -> None:
        self.check(path, grows=not os.path.isdir(path))
        super().make_dirs(path)

    def rename(self, old: str, new: str) -> None:
        self.check(old)
        self.check(new)
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.check(path)
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        self.check(path)
        super().sync_dir(path)
