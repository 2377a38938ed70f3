from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.base.filesystem import OsFileSystem
from pybroker.base.ids import Uuid
from pybroker.log import checkpoints
from pybroker.log.checkpoints import CorruptFileError, MetaProperties
from pybroker.log.files import TopicPartition

FILESYSTEM = OsFileSystem()
TOPIC_ID = Uuid(bytes(range(16)))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "file")


def write(path: str, text: str | bytes) -> None:
    Path(path).write_bytes(text.encode() if isinstance(text, str) else text)


def corrupt(path: str, line: int, problem: str) -> str:
    return f"^{re.escape(f'{path}: line {line}: {problem}')}"


def test_an_offset_checkpoint_is_version_count_and_lines(path: str) -> None:
    offsets = {TopicPartition("a.b-c_d", 0): 5, TopicPartition("a", 12): 2**63 - 1}
    checkpoints.write_offsets(FILESYSTEM, path, offsets)
    assert Path(path).read_text() == "0\n2\na.b-c_d 0 5\na 12 9223372036854775807\n"
    assert checkpoints.read_offsets(FILESYSTEM, path) == offsets


def test_a_write_replaces_the_file_and_leaves_no_other(path: str) -> None:
    checkpoints.write_offsets(FILESYSTEM, path, {TopicPartition("a", 0): 5})
    checkpoints.write_offsets(FILESYSTEM, path, {})
    assert Path(path).read_text() == "0\n0\n"
    assert [entry.name for entry in Path(path).parent.iterdir()] == ["file"]


def test_what_is_not_there_reads_as_nothing(path: str) -> None:
    assert checkpoints.read_offsets(FILESYSTEM, path) == {}
    assert checkpoints.read_epochs(FILESYSTEM, path) == []
    assert checkpoints.read_topic_id(FILESYSTEM, path) is None
    assert checkpoints.read_meta_properties(FILESYSTEM, path) is None
    assert checkpoints.read_clean_shutdown(FILESYSTEM, path) is None


@pytest.mark.parametrize("text", ["", "0\n0\n", "0\n0", "0\r\n0\r\n"])
def test_an_empty_checkpoint(path: str, text: str) -> None:
    write(path, text)
    assert checkpoints.read_offsets(FILESYSTEM, path) == {}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("1\n0\n", 1, "the version is 1; expected 0"),
        ("x\n0\n", 1, "found 'x'; expected a version"),
        ("\n", 1, "found ''; expected a version"),
        ("0\n", 2, "the file ends; expected the number of entries"),
        ("0\n-1\n", 2, "found '-1'; expected the number of entries, a number from 0 to 2147483647"),
        ("0\n1.0\n", 2, "found '1.0'; expected the number of entries"),
        ("0\n2\na 0 1\n", 4, "the file ends behind 1 entries; expected the 2 of line 2"),
        ("0\n1\na 0 1\nb 0 1\n", 4, "found 'b 0 1'; expected the end of the file behind the 1 entries of line 2"),
        ("0\n1\na 0 1\n\n", 4, "found ''; expected the end of the file"),
        ("0\n1\na 0\n", 3, "found 'a 0'; expected 'topic partition offset'"),
        ("0\n1\na 0 1 2\n", 3, "found 'a 0 1 2'; expected 'topic partition offset'"),
        ("0\n1\na b 1\n", 3, "found 'b'; expected a partition, a number from 0 to 2147483647"),
        ("0\n1\na 2147483648 1\n", 3, "found '2147483648'; expected a partition"),
        ("0\n1\na 0 -1\n", 3, "found '-1'; expected an offset, a number from 0 to 9223372036854775807"),
        ("0\n1\na 0 9223372036854775808\n", 3, "found '9223372036854775808'; expected an offset"),
        ("0\n1\na 0 ٣\n", 3, "found '٣'; expected an offset"),
        ("0\n2\na 0 1\na 0 2\n", 4, "a-0 is there a second time; expected each partition once"),
        (b"0\n1\n\xff\xfe 0 1\n", 3, "found bytes that are no UTF-8; expected text"),
        (b"\0" * 20, 1, "found '\\x00"),
    ],
)
def test_a_damaged_offset_checkpoint(path: str, text: str | bytes, line: int, problem: str) -> None:
    write(path, text)
    with pytest.raises(CorruptFileError, match=corrupt(path, line, problem)):
        checkpoints.read_offsets(FILESYSTEM, path)


@given(st.binary(max_size=60) | st.text("01 \n-a\r", max_size=30).map(str.encode))
def test_whatever_the_bytes_one_error_comes_out(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = str(tmp_path_factory.getbasetemp() / "bytes")
    write(path, data)
    for read in (
        checkpoints.read_offsets,
        checkpoints.read_epochs,
        checkpoints.read_topic_id,
        checkpoints.read_meta_properties,
        checkpoints.read_clean_shutdown,
    ):
        try:
            read(FILESYSTEM, path)
        except CorruptFileError as error:
            assert error.path == path
            assert Path(path).read_bytes() == data


def test_a_leader_epoch_checkpoint(path: str) -> None:
    checkpoints.write_epochs(FILESYSTEM, path, [(0, 0), (3, 17)])
    assert Path(path).read_text() == "0\n2\n0 0\n3 17\n"
    assert checkpoints.read_epochs(FILESYSTEM, path) == [(0, 0), (3, 17)]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("1", "found '1'; expected 'epoch offset'"),
        ("-1 0", "found '-1'; expected an epoch"),
        ("0 -1", "found '-1'; expected a start offset"),
    ],
)
def test_a_damaged_leader_epoch_checkpoint(path: str, row: str, problem: str) -> None:
    write(path, f"0\n1\n{row}\n")
    with pytest.raises(CorruptFileError, match=corrupt(path, 3, problem)):
        checkpoints.read_epochs(FILESYSTEM, path)


def test_partition_metadata(path: str) -> None:
    checkpoints.write_topic_id(FILESYSTEM, path, TOPIC_ID)
    assert Path(path).read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.read_topic_id(FILESYSTEM, path) == TOPIC_ID


def test_partition_metadata_of_a_later_version_may_say_more(path: str) -> None:
    write(path, "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw\nmore: 5\n")
    assert checkpoints.read_topic_id(FILESYSTEM, path) == TOPIC_ID


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 1, "the file ends; expected 'version: '"),
        ("version: 0\n", 2, "the file ends; expected 'topic_id: '"),
        ("version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", 1, "found '-1'; expected a version"),
        ("version 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw", 1, "found 'version 0'; expected 'version: ' and a value"),
        ("version: 0\ntopic_id: ", 2, "found 'topic_id: '; expected 'topic_id: ' and a value"),
        ("version: 0\ntopic_id: short", 2, "'short' is not a uuid"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2, "the topic id is all zeros"),
        ("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\nmore", 3, "found 'more'; expected the end of the file"),
    ],
)
def test_damaged_partition_metadata(path: str, text: str, line: int, problem: str) -> None:
    write(path, text)
    with pytest.raises(CorruptFileError, match=corrupt(path, line, problem)):
        checkpoints.read_topic_id(FILESYSTEM, path)


def test_meta_properties(path: str) -> None:
    meta = MetaProperties(cluster_id="a cluster", node_id=3, directory_id=TOPIC_ID)
    checkpoints.write_meta_properties(FILESYSTEM, path, meta, 1_699_000_000_000)
    assert Path(path).read_text() == (
        "#\n#Fri Nov 03 08:26:40 UTC 2023\nversion=1\ncluster.id=a cluster\nnode.id=3\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n"
    )
    assert checkpoints.read_meta_properties(FILESYSTEM, path) == meta


def test_meta_properties_from_before_directory_ids(path: str) -> None:
    write(path, "#comment\n\nnode.id = 0\nversion: 1\ncluster.id c\nunknown=1\n")
    assert checkpoints.read_meta_properties(FILESYSTEM, path) == MetaProperties("c", 0, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "version is missing"),
        ("version=1\ncluster.id=c\n", "node.id is missing"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=0\nbroker.id=1\n", "line 1: version is '0'; expected 1, that of a KRaft cluster"),
        ("version=1\nnode.id=x\ncluster.id=c\n", "line 2: found 'x'; expected a node.id"),
        ("version=1\nnode.id=-1\ncluster.id=c\n", "line 2: found '-1'; expected a node.id"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=d\n", "line 4: directory.id: 'd' is not a uuid"),
        ("version=1\nnode.id=1\nnode.id=2\ncluster.id=c\n", "line 3: node.id: already given on line 2"),
        ("version=1\nnode.id=\\u12\ncluster.id=c\n", "line 2: node.id: a \\u escape needs four hexadecimal digits"),
    ],
)
def test_damaged_meta_properties(path: str, text: str, problem: str) -> None:
    write(path, text)
    with pytest.raises(CorruptFileError, match=f"^{re.escape(f'{path}: {problem}')}"):
        checkpoints.read_meta_properties(FILESYSTEM, path)


def test_clean_shutdown(path: str) -> None:
    checkpoints.write_clean_shutdown(FILESYSTEM, path, 77)
    assert Path(path).read_text() == '{"version":0,"brokerEpoch":77}'
    assert checkpoints.read_clean_shutdown(FILESYSTEM, path) == 77


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"brokerEpoch":null}', '{"brokerEpoch":"7"}', b"\xff"])
def test_a_clean_shutdown_without_an_epoch(path: str, text: str | bytes) -> None:
    write(path, text)
    assert checkpoints.read_clean_shutdown(FILESYSTEM, path) is None
