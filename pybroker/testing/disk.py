"""A disk in memory that loses at a crash whatever a real one may lose; a `FileSystem`, repeatable from its `Random`.

Of what was not synced each write survives, is lost or is torn by itself, a later one without an earlier one too; a lost
write that made the file longer may leave zeros. A shrinking holds for everything behind it: journaled disks keep sizes in
order. Of the operations on the names in a directory a prefix survives. Nothing mapped, written or named becomes durable but
by `sync`, `flush` and `sync_dir`. Any thread; an operation is atomic.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, NoReturn, Self

from pybroker.base.filesystem import Buffer

SECTOR_BYTES: Final = 512


class PowerCutError(BaseException):
    """The machine stopped: no handler of ordinary errors runs."""


class Write(NamedTuple):
    position: int
    data: bytes


class Resize(NamedTuple):
    size: int
    shrinks: bool


class Node:
    """What a name stands for: a file's bytes as everybody sees them, and what of them is safe."""

    def __init__(self, now_ms: int) -> None:
        self.content = bytearray()
        self.durable = b""
        self.pending: list[Write | Resize] = []
        self.mappings: list[SimMapping] = []
        self.modified_ms = now_ms
        self.is_locked = False


class Directory:
    def __init__(self) -> None:
        self.names: dict[str, Node | Directory] = {}
        self.durable: dict[str, Node | Directory] = {}


class Change(NamedTuple):
    """Names that take effect together: (directory, name, what it stands for from now on)."""

    names: tuple[tuple[Directory, str, Node | Directory | None], ...]


class SimEntry(NamedTuple):
    name: str
    is_dir: bool
    size: int


class SimMapping(mmap.mmap):
    """Memory of its own, which the disk compares with the file whenever somebody looks."""

    _disk: SimDisk
    _node: Node
    seen: bytes

    def __new__(cls, disk: SimDisk, node: Node, size: int) -> Self:
        mapping = super().__new__(cls, -1, size)
        mapping._disk = disk
        mapping._node = node
        mapping[:] = mapping.seen = bytes(node.content[:size])
        return mapping

    def flush(self, offset: int = 0, size: int = 0) -> None:
        self._disk._sync_mapping(self, self._node)

    def close(self) -> None:
        node = self._node
        with self._disk.lock_all:
            if self in node.mappings:
                self._disk._fold(node)
            super().close()
            if self in node.mappings:
                node.mappings.remove(self)


class SimFile:
    def __init__(self, disk: SimDisk, path: str, node: Node, *, read_only: bool) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._read_only = read_only
        self._boot = disk.boots
        self._is_open = True

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file of the simulated disk has no descriptor", self.path)

    def size(self) -> int:
        with self._disk.lock_all:
            self._look()
            return len(self._node.content)

    def read(self, position: int, size: int) -> bytes:
        with self._disk.lock_all:
            self._look()
            self._disk._fold(self._node)
            return bytes(self._node.content[position : position + size])

    def write(self, position: int, data: Buffer) -> None:
        disk, node = self._disk, self._node
        with disk.lock_all:
            self._change(errno.EBADF)
            data = bytes(data)
            room = disk._room(position + len(data) - len(node.content))
            fitting = data if room is None else data[: max(0, len(data) + room)]
            disk._fold(node)
            disk._write(node, position, fitting)
            disk._show(node)
            disk._count()
            if fitting != data:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def reserve(self, position: int, size: int) -> None:
        """Room is what is written: the disk is full when that no longer fits."""

    def truncate(self, size: int) -> None:
        with self._disk.lock_all:
            self._change(errno.EINVAL)
            self._disk._fold(self._node)
            self._disk._resize(self._node, size)
            self._disk._count()

    def sync(self) -> None:
        with self._disk.lock_all:
            self._look()
            self._disk._count()
            self._disk._sync(self._node)

    def map(self, size: int) -> SimMapping:
        disk, node = self._disk, self._node
        with disk.lock_all:
            self._change(errno.EACCES)
            disk._fold(node)
            if len(node.content) < size:
                if disk._room(size - len(node.content)) is not None:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
                disk._resize(node, size)
                disk._count()
            mapping = SimMapping(disk, node, size)
            node.mappings.append(mapping)
            return mapping

    def close(self) -> None:
        self._is_open = False

    def _look(self) -> None:
        if not self._is_open or self._boot != self._disk.boots:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._disk._check(self.path)

    def _change(self, error: int) -> None:
        self._look()
        if self._read_only:
            raise OSError(error, os.strerror(error), self.path)
        self._disk._check(self.path, changes=True)


class SimLock:
    def __init__(self, node: Node) -> None:
        self._node: Node | None = node

    def release(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            node.is_locked = False


class SimDisk:
    """Faults are set on plain attributes: `broken` (path prefix to errno, for every access), `read_only` (path prefixes),
    `capacity_bytes` (of all files together), `cut_at` (the power goes when that many operations have changed something).

    After a cut every access raises PowerCutError until `crash` brings the machine up again.
    """

    def __init__(self, rng: random.Random | None = None, clock: Callable[[], int] = lambda: 0) -> None:
        self.rng = rng or random.Random(0)
        self.clock = clock
        self.operations = 0
        self.boots = 0
        self.cut_at: int | None = None
        self.is_cut = False
        self.broken: dict[str, int] = {}
        self.read_only: set[str] = set()
        self.capacity_bytes: int | None = None
        self.lock_all = threading.RLock()
        self._root = Directory()
        self._changes: list[Change] = []

    @property
    def used_bytes(self) -> int:
        return sum(len(node.content) for node in _nodes(self._root))

    # The port.

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimFile:
        with self.lock_all:
            self._check(path)
            parent, name = self._parent(path)
            node = parent.names.get(name)
            if isinstance(node, Directory) or not name:
                _fail(errno.EISDIR, path)
            if node is None:
                if not create or read_only:
                    _fail(errno.ENOENT, path)
                self._check(path, changes=True)
                node = Node(self.clock())
                self._change((parent, name, node))
            elif not read_only:
                self._check(path, changes=True)
            return SimFile(self, path, node, read_only=read_only)

    def exists(self, path: str) -> bool:
        with self.lock_all:
            self._check(path)
            return self._find(path) is not None

    def scan(self, path: str) -> Iterator[SimEntry]:
        with self.lock_all:
            self._check(path)
            names = list(self._directory(path).names.items())
            self.rng.shuffle(names)
            entries = [
                SimEntry(name, True, 0) if isinstance(node, Directory) else SimEntry(name, False, len(node.content))
                for name, node in names
            ]
        yield from entries

    def make_dirs(self, path: str) -> None:
        with self.lock_all:
            self._check(path)
            directory = self._root
            for name in _parts(path):
                below = directory.names.get(name)
                if isinstance(below, Node):
                    _fail(errno.EEXIST, path)
                if below is None:
                    self._check(path, changes=True)
                    below = Directory()
                    self._change((directory, name, below))
                directory = below

    def rename(self, old: str, new: str) -> None:
        with self.lock_all:
            self._check(old, changes=True)
            self._check(new, changes=True)
            source, old_name = self._parent(old)
            target, new_name = self._parent(new)
            moved, present = source.names.get(old_name), target.names.get(new_name)
            if moved is None:
                _fail(errno.ENOENT, old)
            if moved is present:
                return
            if isinstance(moved, Directory):
                if isinstance(present, Node):
                    _fail(errno.ENOTDIR, new)
                if present is not None and present.names:
                    _fail(errno.ENOTEMPTY, new)
            elif isinstance(present, Directory):
                _fail(errno.EISDIR, new)
            self._change((source, old_name, None), (target, new_name, moved))

    def remove(self, path: str) -> None:
        with self.lock_all:
            self._check(path, changes=True)
            parent, name = self._parent(path)
            node = parent.names.get(name)
            if node is None:
                _fail(errno.ENOENT, path)
            if isinstance(node, Directory):
                _fail(errno.EISDIR, path)
            self._change((parent, name, None))

    def remove_dir(self, path: str) -> None:
        with self.lock_all:
            self._check(path, changes=True)
            parent, name = self._parent(path)
            if self._directory(path).names:
                _fail(errno.ENOTEMPTY, path)
            self._change((parent, name, None))

    def sync_dir(self, path: str) -> None:
        with self.lock_all:
            self._check(path)
            directory = self._directory(path)
            self._count()
            needed = {directory}
            synced = []
            for change in reversed(self._changes):
                if any(touched in needed for touched, _, _ in change.names):
                    needed.update(touched for touched, _, _ in change.names)
                    synced.append(change)
            for change in reversed(synced):
                _settle(change)
            settled = set(map(id, synced))
            self._changes = [change for change in self._changes if id(change) not in settled]

    def modified_ms(self, path: str) -> int:
        with self.lock_all:
            self._check(path)
            node = self._find(path)
            if node is None:
                _fail(errno.ENOENT, path)
            if isinstance(node, Directory):
                return 0
            self._fold(node)
            return node.modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with self.lock_all:
            self._check(path, changes=True)
            node = self._find(path)
            if node is None:
                _fail(errno.ENOENT, path)
            assert isinstance(node, Node), f"{path} is a directory, which has no time here"
            self._fold(node)
            node.modified_ms = modified_ms
            self._count()

    def lock(self, path: str) -> SimLock | None:
        with self.lock_all:
            node = self.open(path, create=True)._node
            if node.is_locked:
                return None
            node.is_locked = True
            return SimLock(node)

    # The end of a process, and of the power.

    def kill(self) -> None:
        """The process is gone, the machine goes on: handles and locks are dead, every byte is as it was written."""
        with self.lock_all:
            for node in _nodes(self._root):
                self._fold(node)
                self._forget_holders(node)
            self._start_again()

    def crash(self) -> None:
        """The power fails and comes back; what was not synced is now kept, lost or torn."""
        with self.lock_all:
            stopped: set[Directory] = set()
            loss = self.rng.choice((0.0, 0.2, 0.5, 1.0))
            for change in self._changes:
                touched = {directory for directory, _, _ in change.names}
                if touched & stopped or self.rng.random() < loss:
                    stopped |= touched
                else:
                    _settle(change)
            self._changes = []
            _restore(self._root)
            for node in _nodes(self._root):
                self._fold(node)
                node.durable = self._survivor(node)
                node.content = bytearray(node.durable)
                node.pending.clear()
                self._forget_holders(node)
            self._start_again()

    def _start_again(self) -> None:
        self.boots += 1
        self.is_cut = False
        self.cut_at = None

    def _forget_holders(self, node: Node) -> None:
        node.mappings.clear()
        node.is_locked = False

    def _survivor(self, node: Node) -> bytes:
        rng = self.rng
        content = bytearray(node.durable)
        loss = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for change in node.pending:
            is_lost = rng.random() < loss
            if isinstance(change, Resize):
                if not is_lost:
                    _resized(content, change.size)
                elif change.shrinks:
                    break
            elif not is_lost:
                _put(content, change.position, change.data)
            else:
                self._tear(content, change)
        return bytes(content)

    def _tear(self, content: bytearray, write: Write) -> None:
        """Nothing of a write, some bytes at its start, or some of its sectors; the length perhaps without the bytes."""
        rng = self.rng
        position, data = write
        end = position + len(data)
        how = rng.randrange(4)
        if how == 0:
            return
        if how == 1:
            _put(content, position, data[: rng.randrange(len(data) + 1)])
        elif how == 2:
            start = position
            while start < end:
                stop = min(end, start - start % SECTOR_BYTES + SECTOR_BYTES)
                if rng.random() < 0.5:
                    _put(content, start, data[start - position : stop - position])
                start = stop
        if how >= 2 and len(content) < end and rng.random() < 0.5:
            _resized(content, end)

    # Called with the lock held.

    def _check(self, path: str, *, changes: bool = False) -> None:
        if self.is_cut:
            raise PowerCutError
        for prefix, error in self.broken.items():
            if path.startswith(prefix):
                _fail(error, path)
        if changes and any(path.startswith(prefix) for prefix in self.read_only):
            _fail(errno.EROFS, path)

    def _count(self) -> None:
        """One more operation has changed something; the power may go just now, with nothing of it safe."""
        self.operations += 1
        if self.cut_at is not None and self.operations >= self.cut_at:
            self.is_cut = True
            raise PowerCutError

    def _room(self, growth: int) -> int | None:
        """None if the disk has room for `growth` more bytes, or by how many (below zero) it has not."""
        if self.capacity_bytes is None or growth <= 0:
            return None
        free = self.capacity_bytes - self.used_bytes
        return None if growth <= free else max(free, 0) - growth

    def _find(self, path: str) -> Node | Directory | None:
        found: Node | Directory | None = self._root
        for name in _parts(path):
            found = found.names.get(name) if isinstance(found, Directory) else None
        return found

    def _directory(self, path: str) -> Directory:
        found = self._find(path)
        if found is None:
            _fail(errno.ENOENT, path)
        if isinstance(found, Node):
            _fail(errno.ENOTDIR, path)
        return found

    def _parent(self, path: str) -> tuple[Directory, str]:
        *above, name = _parts(path) or [""]
        return self._directory("/".join(above)), name

    def _change(self, *names: tuple[Directory, str, Node | Directory | None]) -> None:
        change = Change(names)
        self._changes.append(change)
        for directory, name, node in names:
            _name(directory.names, name, node)
        self._count()

    def _write(self, node: Node, position: int, data: bytes) -> None:
        if data:
            _put(node.content, position, data)
            node.pending.append(Write(position, data))
            node.modified_ms = self.clock()

    def _resize(self, node: Node, size: int) -> None:
        shrinks = size < len(node.content)
        assert not shrinks or all(len(mapping) <= size for mapping in node.mappings), "a file shrinks under its mapping"
        _resized(node.content, size)
        node.pending.append(Resize(size, shrinks))
        node.modified_ms = self.clock()

    def _fold(self, node: Node) -> None:
        """What was stored through mappings is in the file: take it over, sector by sector."""
        for mapping in node.mappings:
            now, seen = mapping[:], mapping.seen
            if now != seen:
                for start in range(0, len(now), SECTOR_BYTES):
                    sector = now[start : start + SECTOR_BYTES]
                    if sector != seen[start : start + SECTOR_BYTES]:
                        self._write(node, start, sector)
                self._show(node)

    def _show(self, node: Node) -> None:
        """Let the mappings have what the file has."""
        for mapping in node.mappings:
            content = bytes(node.content[: len(mapping)])
            if content != mapping.seen:
                mapping[:] = mapping.seen = content

    def _sync(self, node: Node) -> None:
        self._fold(node)
        node.durable = bytes(node.content)
        node.pending.clear()

    def _sync_mapping(self, mapping: SimMapping, node: Node) -> None:
        with self.lock_all:
            if self.is_cut:
                raise PowerCutError
            if mapping in node.mappings:
                self._count()
                self._sync(node)


def _fail(error: int, path: str) -> NoReturn:
    raise OSError(error, os.strerror(error), path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _name(names: dict[str, Node | Directory], name: str, node: Node | Directory | None) -> None:
    if node is None:
        del names[name]
    else:
        names[name] = node


def _settle(change: Change) -> None:
    for directory, name, node in change.names:
        _name(directory.durable, name, node)


def _restore(directory: Directory) -> None:
    directory.names = dict(directory.durable)
    for below in directory.names.values():
        if isinstance(below, Directory):
            _restore(below)


def _nodes(directory: Directory) -> Iterator[Node]:
    for node in directory.names.values():
        if isinstance(node, Directory):
            yield from _nodes(node)
        else:
            yield node


def _put(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        _resized(content, position)
    content[position : position + len(data)] = data


def _resized(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
