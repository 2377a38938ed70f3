"""The port to the disk: the few things that storage does with files, so that a simulated disk can stand in.

Nothing is durable before `sync` (a file's bytes) or `sync_dir` (names: creations, renames, removals) returns. Paths are
plain strings. A `File` closes itself when its last holder lets go, so whoever still sends from one need not be asked.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview


class Mapping(Protocol):
    """Bytes of a file in memory, written through to it; takes `struct` calls as any buffer does."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> bytes: ...
    def flush(self) -> object: ...
    def close(self) -> None: ...


class File(Protocol):
    """An open file. Positions are explicit: several threads read while one writes."""

    path: str

    def fileno(self) -> int: ...
    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def write(self, position: int, data: Buffer) -> None:
        """All of `data`, or an OSError, after which part of it may be there."""

    def reserve(self, position: int, size: int) -> None:
        """Take room on the disk for what will be written from `position` on, behind the end, which stays where it is. Of a disk
        that has none, or cannot do so, no word: the write will tell. What is not used then goes with the next `truncate`."""

    def truncate(self, size: int) -> None: ...
    def sync(self) -> None: ...

    def map(self, size: int) -> Mapping:
        """The first `size` bytes; the file grows with zeros if it is shorter. The mapping outlives the file object."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class DirEntry(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def is_dir(self) -> bool: ...
    @property
    def size(self) -> int: ...


class FileSystem(Protocol):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File: ...
    def exists(self, path: str) -> bool: ...
    def scan(self, path: str) -> Iterator[DirEntry]: ...
    def make_dirs(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; takes the place of `new` if that is there."""

    def remove(self, path: str) -> None: ...
    def remove_dir(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def modified_ms(self, path: str) -> int: ...
    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def lock(self, path: str) -> Lock | None:
        """An exclusive lock on the file, made if need be; None while somebody else holds it."""


def read_file(filesystem: FileSystem, path: str) -> bytes:
    file = filesystem.open(path, read_only=True)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def write_file(filesystem: FileSystem, path: str, data: bytes, *, sync: bool = True) -> None:
    """The whole file, replaced atomically: after a crash it holds the old bytes or the new ones."""
    temporary = path + ".tmp"
    if filesystem.exists(temporary):
        # Left by a crash. Its bytes are on disk, and without a sync the next crash would bring them back under our name.
        filesystem.remove(temporary)
    file = filesystem.open(temporary, create=True)
    try:
        file.write(0, data)
        if sync:
            file.sync()
    finally:
        file.close()
    filesystem.rename(temporary, path)
    if sync:
        filesystem.sync_dir(os.path.dirname(path))


def sync_file(filesystem: FileSystem, path: str) -> None:
    file = filesystem.open(path)
    try:
        file.sync()
    finally:
        file.close()


@contextmanager
def nothing_lost(path: str) -> Iterator[None]:
    """A sync that fails under it is an EIO, whatever the reason, a full disk too: what was to be written may be gone, and the
    next try would not miss it."""
    try:
        yield
    except OSError as error:
        raise OSError(errno.EIO, f"a flush failed: {error.strerror}", path) from error


def remove_tree(filesystem: FileSystem, path: str) -> None:
    for entry in list(filesystem.scan(path)):
        inside = f"{path}/{entry.name}"
        if entry.is_dir:
            remove_tree(filesystem, inside)
        else:
            filesystem.remove(inside)
    filesystem.remove_dir(path)


_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's, which can take room without making a file longer, as the standard library's cannot; None elsewhere."""
    import ctypes

    function = getattr(ctypes.CDLL(None), "fallocate", None)
    if function is None or ctypes.sizeof(ctypes.c_long) < ctypes.sizeof(ctypes.c_int64):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found: Callable[[int, int, int, int], int] = function
    return found


class OsFile:
    __slots__ = ("_fd", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._fd = -1
        self.path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        # Linux gives at most 2 GiB a call, and a signal may cut one short.
        parts = [data]
        while data and (size := size - len(data)):
            position += len(data)
            data = os.pread(self._fd, size, position)
            parts.append(data)
        return b"".join(parts)

    def write(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                more = os.pwrite(self._fd, view[written:], position + written)
                if more == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
                written += more

    def reserve(self, position: int, size: int) -> None:
        fallocate = _fallocate()
        if fallocate is not None:
            fallocate(self._fd, _KEEP_SIZE, position, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def map(self, size: int) -> mmap.mmap:
        present = os.fstat(self._fd).st_size
        if present < size:
            # A hole in a mapped file is a SIGBUS on a full disk: take the room now, while it can be refused.
            os.posix_fallocate(self._fd, present, size - present)
        return mmap.mmap(self._fd, size)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class OsLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsDirEntry:
    __slots__ = ("_entry",)

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self._entry = entry

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def is_dir(self) -> bool:
        return self._entry.is_dir(follow_symlinks=False)

    @property
    def size(self) -> int:
        return self._entry.stat(follow_symlinks=False).st_size


class OsFileSystem:
    """The real disk."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        return OsFile(path, os.O_RDONLY if read_only else os.O_RDWR | (os.O_CREAT if create else 0))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def scan(self, path: str) -> Iterator[OsDirEntry]:
        with os.scandir(path) as entries:
            for entry in entries:
                yield OsDirEntry(entry)

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(os.stat(path).st_atime_ns, modified_ms * 1_000_000))

    def lock(self, path: str) -> OsLock | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # flock holds against this very process too, lockf against Apache Kafka.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            return None
        return OsLock(fd)
