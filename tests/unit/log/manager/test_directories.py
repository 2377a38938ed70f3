from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from unit.log.manager.helpers import OWNER, Node, names

from pybroker.base.filesystem import OsFileSystem
from pybroker.base.ids import Uuid, uuid_to_text
from pybroker.log.checkpoints import MetaProperties, read_meta_properties, write_meta_properties
from pybroker.log.manager.directories import LogDirError, Owner, open_log_dirs, random_uuid

FILESYSTEM = OsFileSystem()
DIRECTORY_ID = Uuid(b"directory-id-16b")


def write_meta(
    path: Path, cluster_id: str = OWNER.cluster_id, node_id: int = 1, directory_id: Uuid | None = DIRECTORY_ID
) -> str:
    path.mkdir(parents=True, exist_ok=True)
    file = str(path / "meta.properties")
    write_meta_properties(FILESYSTEM, file, MetaProperties(cluster_id, node_id, directory_id), 0)
    return file


def test_a_missing_directory_is_made_and_gets_meta_properties(tmp_path: Path) -> None:
    node = Node(tmp_path / "not" / "there", dirs=2)
    manager = node.manager()
    for log_dir, path in zip(manager.dirs, node.paths, strict=True):
        assert read_meta_properties(FILESYSTEM, str(path / "meta.properties")) == MetaProperties(
            OWNER.cluster_id, OWNER.node_id, log_dir.directory_id
        )
    first, second = (log_dir.directory_id for log_dir in manager.dirs)
    assert first is not None
    assert first != second
    manager.shutdown()
    assert [log_dir.directory_id for log_dir in node.manager().dirs] == [first, second]


def test_an_id_is_added_to_a_meta_properties_without_one(tmp_path: Path) -> None:
    node = Node(tmp_path)
    file = write_meta(node.paths[0], directory_id=None)
    (log_dir,) = node.manager().dirs
    meta = read_meta_properties(FILESYSTEM, file)
    assert meta is not None
    assert meta.directory_id == log_dir.directory_id is not None


def test_an_unformatted_directory_is_refused_where_nothing_may_be_written(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with pytest.raises(LogDirError, match=r"meta\.properties is not there: .* must be formatted"):
        node.manager(Owner(OWNER.cluster_id, 1))


def test_a_foreign_cluster_id_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    node = Node(tmp_path)
    file = write_meta(node.paths[0], cluster_id="another")
    before = Path(file).read_bytes()
    with pytest.raises(
        LogDirError, match=r"meta\.properties: found cluster\.id another, expected cluster-of-the-test"
    ) as caught:
        node.manager()
    assert file in str(caught.value)
    assert Path(file).read_bytes() == before


def test_a_foreign_node_id_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    file = write_meta(node.paths[0], node_id=7)
    with pytest.raises(LogDirError, match=r"found node\.id 7, expected 1") as caught:
        node.manager()
    assert file in str(caught.value)


def test_meta_properties_of_another_version_or_damaged_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.paths[0].mkdir()
    (node.paths[0] / "meta.properties").write_text("version=0\nbroker.id=1\n")
    with pytest.raises(LogDirError, match=r"meta\.properties: .*version is '0'; expected 1"):
        node.manager()


def test_a_directory_id_that_two_directories_share_is_refused_and_the_locks_are_let_go(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    for path in node.paths:
        write_meta(path)
    with pytest.raises(LogDirError, match=r"data-1/meta\.properties and .*data-2/meta\.properties both have directory\.id"):
        node.manager()
    write_meta(node.paths[1], directory_id=random_uuid())
    assert len(node.manager().online_dirs) == 2


def test_a_directory_named_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogDirError, match="named twice"):
        open_log_dirs(FILESYSTEM, [str(tmp_path), f"{tmp_path}/"], None, now_ms=0)


def test_two_managers_cannot_have_one_directory(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    first = node.manager()
    with pytest.raises(LogDirError, match=r"data-1 is locked: another process holds .*/\.lock\. Stop the broker"):
        node.manager()
    first.shutdown()
    node.manager().shutdown()


def test_a_directory_locked_by_another_process_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.manager().shutdown()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pybroker.base.filesystem import OsFileSystem; "
            "lock = OsFileSystem().lock(sys.argv[1]); print(lock is not None, flush=True); sys.stdin.read()",
            str(node.paths[0] / ".lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with pytest.raises(LogDirError, match="is locked"):
            node.manager()
    finally:
        holder.communicate("")
    node.manager()


@pytest.mark.parametrize(("operation", "code"), [("lock", errno.EROFS), ("scan", errno.EACCES), ("make_dirs", errno.EROFS)])
def test_a_directory_that_cannot_be_used_is_offline_and_the_others_go_on(
    tmp_path: Path, operation: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, dirs=2)
    node.filesystem.break_under(node.paths[0], code, (operation,))
    with caplog.at_level(logging.ERROR):
        manager = node.loaded()
    assert [log_dir.path for log_dir in manager.online_dirs] == [str(node.paths[1])]
    (failure,) = node.failures
    assert (failure.path, failure.is_last) == (str(node.paths[0]), False)
    assert f"log directory {node.paths[0]} is offline" in caplog.text
    assert os.strerror(code) in caplog.text
    assert node.create(manager).directory == str(node.paths[1] / "orders-0")


def test_the_only_directory_must_be_usable(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.filesystem.break_under(node.paths[0], errno.EROFS, ("lock",))
    with pytest.raises(LogDirError, match=r"none of log\.dirs can be used .*data-1.*Read-only file system"):
        node.manager()


def test_a_file_in_the_place_of_a_directory_is_offline(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    node.paths[0].write_text("no directory")
    manager = node.manager()
    assert [log_dir.path for log_dir in manager.offline_dirs] == [str(node.paths[0])]
    assert node.paths[0].read_text() == "no directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a read-only directory")
def test_a_directory_without_write_permission_is_offline(tmp_path: Path) -> None:
    node = Node(tmp_path, dirs=2)
    node.paths[0].mkdir()
    node.paths[0].chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert [log_dir.path for log_dir in node.manager().offline_dirs] == [str(node.paths[0])]
    finally:
        node.paths[0].chmod(stat.S_IRWXU)


def test_without_an_owner_nothing_is_checked_or_written(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (log_dir,) = node.manager(owner=None).dirs
    assert log_dir.directory_id is None
    assert names(node.paths[0]) == {".lock"}


def test_a_random_uuid_never_looks_like_an_option() -> None:
    assert not any(uuid_to_text(random_uuid()).startswith("-") for _ in range(500))
