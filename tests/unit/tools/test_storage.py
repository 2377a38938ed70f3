from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.base.filesystem import OsFileSystem
from pybroker.base.ids import uuid_from_text
from pybroker.protocol.internal.metadata_log import UserScramCredentialRecord
from pybroker.server.metadata_snapshot import read_snapshot
from pybroker.tools.main import main

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
log.dirs={0}/one,{0}/two
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(PROPERTIES.format(tmp_path))
    return path


def run(*args: str | Path) -> int:
    return main(["storage", *map(str, args)])


def test_a_drawn_uuid_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("random-uuid") == 0
    assert uuid_from_text(capsys.readouterr().out.strip())


def test_directories_are_formatted_and_shown(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("format", "-t", CLUSTER, "-c", config, "--standalone") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"{tmp_path}/one: formatted for metadata, with voters, metadata.version 4.3-IV0, directory.id ")
    assert out[1].startswith(f"{tmp_path}/two: formatted for data, metadata.version 4.3-IV0, directory.id ")
    assert run("info", "-c", config) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["Directories:", f"  {tmp_path}/one"]
    assert out[2].startswith(f"    cluster.id={CLUSTER} node.id=1 directory.id=")
    assert len(out) == 5


def test_info_tells_what_is_wrong(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two").mkdir()
    assert run("info", "--config", config) == 1
    out = capsys.readouterr().out
    assert f"Problems:\n  {tmp_path}/one is not there\n  {tmp_path}/two is not formatted\n" in out


def test_what_is_formatted_already(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("format", "--cluster-id", CLUSTER, "-c", config, "-s") == 0
    assert run("format", "--cluster-id", CLUSTER, "-c", config, "-s") == 1
    assert "formatted already. With --ignore-formatted only the others are formatted." in capsys.readouterr().err
    assert run("format", "--cluster-id", CLUSTER, "-c", config, "-s", "--ignore-formatted") == 0
    assert capsys.readouterr().out.endswith("all directories are formatted already\n")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["-r", "4.1"], "metadata.version 4.1-IV1"),
        (["--release-version", "3.9-IV0"], "metadata.version 3.9-IV0"),
        (["--feature", "metadata.version=25"], "metadata.version 4.0-IV3"),
        (["-f", "kraft.version=1", "-r", "4.0"], "metadata.version 4.0-IV3"),
    ],
)
def test_levels(config: Path, capsys: pytest.CaptureFixture[str], options: list[str], line: str) -> None:
    assert run("format", "-t", CLUSTER, "-c", config, "-s", *options) == 0
    assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "nothing says who the voters are"),
        (["-s", "-r", "9.9"], "--release-version 9.9 is not known; expected one of 3.3-IV3"),
        (["-s", "-f", "what"], "--feature what: expected name=level"),
        (["-s", "-f", "share.version=1"], "feature share.version is not supported"),
        (["-s", "-f", "kraft.version=1", "-f", "kraft.version=1"], "--feature kraft.version is given twice"),
        (["-s", "-r", "4.1", "-f", "metadata.version=25"], "expected one of them"),
        (["-s", "-S", "PLAIN=[name=alice,password=secret]"], "--add-scram: it begins with 'PLAIN'"),
        (["-s", "-r", "3.5-IV1", "-S", "SCRAM-SHA-256=[name=a,password=b]"], "3.5-IV1 has no SCRAM users; expected 3.5-IV2"),
        (["-I", "1@localhost:9093"], "expected id@host:port:directory-id"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], problem: str
) -> None:
    assert run("format", "-t", CLUSTER, "-c", config, *options) == 1
    err = capsys.readouterr().err
    assert err.startswith("pybroker storage: ")
    assert problem in err
    assert not (tmp_path / "one").exists()


def test_users_that_the_cluster_begins_with(config: Path, tmp_path: Path) -> None:
    users = ("-S", "SCRAM-SHA-256=[name=alice,password=secret]", "--add-scram", "SCRAM-SHA-512=[name=bob,password=x]")
    assert run("format", "-t", CLUSTER, "-c", config, "-s", *users) == 0
    records = read_snapshot(OsFileSystem(), str(tmp_path / "one" / "bootstrap.checkpoint")).records
    found = [(one.name, one.mechanism) for one in records if isinstance(one, UserScramCredentialRecord)]
    assert found == [("alice", 1), ("bob", 2)]


def test_the_features_of_a_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("version-mapping") == 0
    assert capsys.readouterr().out.startswith("metadata.version=30 (4.3-IV0)\nkraft.version=1\n")
    assert run("version-mapping", "-r", "3.8") == 0
    assert capsys.readouterr().out.startswith("metadata.version=20 (3.8)\nkraft.version=0\n")
    assert run("version-mapping", "--release-version", "9.9") == 1
    assert "9.9 is not known" in capsys.readouterr().err


def test_what_features_require(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("-f", "eligible.leader.replicas.version=1", "-f", "metadata.version=30", "--feature", "kraft.version=1")
    assert run("feature-dependencies", *options) == 0
    assert capsys.readouterr().out.splitlines() == [
        "eligible.leader.replicas.version=1 requires:",
        "    metadata.version=23 (4.0-IV1)",
        "metadata.version=30 (4.3-IV0) has no dependencies.",
        "kraft.version=1 has no dependencies.",
    ]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("shoe.size=44", "there is no feature shoe.size"),
        ("kraft.version=9", "feature kraft.version has no level 9"),
        ("metadata.version=99", "feature metadata.version has no level 99"),
        ("kraft.version", "expected name=level"),
    ],
)
def test_features_that_are_not_there(capsys: pytest.CaptureFixture[str], setting: str, problem: str) -> None:
    assert run("feature-dependencies", "-f", setting) == 1
    assert problem in capsys.readouterr().err


def test_initial_controllers(config: Path, tmp_path: Path) -> None:
    controllers = "1@localhost:9093:JEXY6aqzQY-32P5TStzaFg,2@localhost:9094:MvDxzVmcRsaTz33bUuRU6A"
    assert run("format", "-t", CLUSTER, "-c", config, "--initial-controllers", controllers) == 0
    assert "directory.id=JEXY6aqzQY-32P5TStzaFg" in (tmp_path / "one" / "meta.properties").read_text()


@pytest.mark.parametrize("options", [["-s", "-N"], ["-s", "-I", "x"]])
def test_ways_to_say_who_votes_exclude_each_other(config: Path, options: list[str]) -> None:
    with pytest.raises(SystemExit):
        run("format", "-t", CLUSTER, "-c", config, *options)


def test_a_configuration_with_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=x\n")
    assert run("format", "-t", CLUSTER, "-c", path, "-s") == 1
    assert "node.id=x is not allowed" in capsys.readouterr().err
    assert run("info", "-c", tmp_path / "none") == 1
    assert "cannot be read" in capsys.readouterr().err
