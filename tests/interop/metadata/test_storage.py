"""`pybroker storage` beside kafka-storage: what either formats, the other shows and starts on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from interop.apache_kafka import STORAGE_TOOL, ApacheTools, apache_tool
from interop.broker_process import CLUSTER_ID
from interop.metadata.metadata_dump import DumpedRecord, dump_metadata
from interop.metadata.our_node import DYNAMIC, STATIC, OurNode, apache_on, node_config

from pybroker.config import Config
from pybroker.metadata.controller.feature_levels import LEVELS, default_levels
from pybroker.metadata.controller.features import RELEASES, SUPPORTED, level_of_release
from pybroker.metadata.image import ResourceType
from pybroker.tools.main import main

VOTERS = Path("__cluster_metadata-0") / "00000000000000000000-0000000000.checkpoint"
BOOTSTRAP = Path("bootstrap.checkpoint")
# What Apache Kafka would finalize by itself and ours does not claim.
WITHOUT = tuple(option for name in LEVELS if name not in SUPPORTED for option in ("--feature", f"{name}=0"))
OPTIONS = {STATIC: (), DYNAMIC: ("--standalone",)}


def write(config: Config, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={one.value}\n" for name, one in config.given.items()))
    return path


def comparable(records: list[DumpedRecord]) -> list[Any]:
    """Without what is drawn or read from the clock."""
    text = re.sub(r"'voterDirectoryId': '[^']+'", "'voterDirectoryId': ''", repr(records))
    return [re.sub(r"'lastContainedLogTimestamp': \d{2,}", "'lastContainedLogTimestamp': ''", text)]


@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC])
@pytest.mark.parametrize("release", ["4.3", "3.9"])
def test_both_write_the_same(tmp_path: Path, tools: ApacheTools, quorum: str, release: str) -> None:
    files = {}
    config = node_config(tmp_path / "ours", quorum)
    ours = write(config, tmp_path / "ours.properties")
    theirs = tmp_path / "theirs.properties"
    theirs.write_text(ours.read_text().replace(str(tmp_path / "ours"), str(tmp_path / "theirs")))
    release_option = ("--release-version", release)
    assert main(["storage", "format", "-t", CLUSTER_ID, "-c", str(ours), *OPTIONS[quorum], *release_option]) == 0
    # kafka-storage takes a release or the levels of features, not both.
    level = level_of_release(release)
    levels = ("--feature", f"metadata.version={level}", *WITHOUT) if release == "4.3" else release_option
    run = apache_tool(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(theirs), *OPTIONS[quorum], *levels)
    assert run.exit_code == 0, run
    for name in ("ours", "theirs"):
        directory = tmp_path / name
        files[name] = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert files["ours"] == files["theirs"]
    assert (str(VOTERS) in files["ours"]) == (quorum == DYNAMIC)
    for file in (BOOTSTRAP, VOTERS):
        if str(file) in files["ours"]:
            found = [dump_metadata(tools, tmp_path / name / file) for name in ("ours", "theirs")]
            assert comparable(found[0]) == comparable(found[1])
            assert len(found[0]) >= 3
            assert (tmp_path / "ours" / file).stat().st_size == (tmp_path / "theirs" / file).stat().st_size


@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC])
def test_apache_kafka_shows_and_starts_on_what_we_formatted(tmp_path: Path, quorum: str) -> None:
    config = node_config(tmp_path / "node" / "data", quorum)
    path = write(config, tmp_path / "our.properties")
    assert main(["storage", "format", "-t", CLUSTER_ID, "-c", str(path), *OPTIONS[quorum]]) == 0
    said = apache_tool(STORAGE_TOOL, "info", "-c", str(path))
    assert said.exit_code == 0, said
    assert f"cluster.id={CLUSTER_ID}" in said.stdout
    assert "problem" not in said.stdout.lower()
    with apache_on(tmp_path / "node", config, quorum) as broker:
        broker.create_topic("t")


@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC])
def test_we_show_and_start_on_what_apache_kafka_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quorum: str
) -> None:
    config = node_config(tmp_path / "data", quorum)
    path = write(config, tmp_path / "their.properties")
    run = apache_tool(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(path), *OPTIONS[quorum])
    assert run.exit_code == 0, run
    assert main(["storage", "info", "-c", str(path)]) == 0
    said = capsys.readouterr().out
    directory_id = re.search(r"directory\.id=(\S+)", (tmp_path / "data" / "meta.properties").read_text())
    assert directory_id is not None
    assert f"cluster.id={CLUSTER_ID} node.id=1 directory.id={directory_id[1]}" in said
    node = OurNode(config, quorum)
    node.create("t")
    theirs = {"metadata.version": 30, **default_levels(30), "kraft.version": int(quorum == DYNAMIC)}
    assert node.finalized_features() == {name: level for name, level in theirs.items() if level}
    assert node.image.features["streams.version"] == 1
    assert node.image.config_of(ResourceType.BROKER, "") == {"min.insync.replicas": "1"}
    node.stop()


def test_both_refuse_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    static = write(node_config(tmp_path / "static"), tmp_path / "static.properties")
    dynamic = write(node_config(tmp_path / "dynamic", DYNAMIC), tmp_path / "dynamic.properties")
    done = write(node_config(tmp_path / "done"), tmp_path / "done.properties")
    assert main(["storage", "format", "-t", CLUSTER_ID, "-c", str(done)]) == 0
    for options in (
        (static, "--standalone"),
        (static, "--feature", "kraft.version=1"),
        (dynamic,),
        (dynamic, "--standalone", "--release-version", "9.9"),
        (dynamic, "--standalone", "--feature", "shoe.size=44"),
        (dynamic, "--standalone", "--feature", "metadata.version=99"),
        (dynamic, "--initial-controllers", "1@localhost"),
        (done,),
        (tmp_path / "none",),
    ):
        arguments = ["format", "-t", CLUSTER_ID, "-c", *map(str, options)]
        ours = main(["storage", *arguments])
        theirs = apache_tool(STORAGE_TOOL, *arguments)
        assert (ours, theirs.exit_code) == (1, 1), (options, theirs)
    assert not (tmp_path / "static").exists()
    assert not (tmp_path / "dynamic").exists()


USERS = (
    "SCRAM-SHA-256=[name=alice,password=alice-secret,salt=c2FsdA==]",
    'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]',
    'SCRAM-SHA-512=[name=bob,password="b=o",salt=AAAA,iterations=4096]',
)


def test_both_begin_with_the_same_users(tmp_path: Path, tools: ApacheTools) -> None:
    options = [option for user in USERS for option in ("--add-scram", user)]
    found = []
    for name in ("ours", "theirs"):
        config = write(node_config(tmp_path / name), tmp_path / f"{name}.properties")
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(config), "--release-version", "3.9", *options)
        if name == "ours":
            assert main(["storage", *arguments]) == 0
        else:
            run = apache_tool(STORAGE_TOOL, *arguments)
            assert run.exit_code == 0, run
        found.append(dump_metadata(tools, tmp_path / name / BOOTSTRAP))
    assert found[0] == found[1]
    assert [record.data["name"] for record in found[0] if "SCRAM" in record.type] == ["alice", "alice", "bob"]
    node = OurNode(node_config(tmp_path / "theirs"))
    assert [user.name for user in node.image.scram_credentials] == ["alice", "alice", "bob"]
    node.stop()


def test_both_refuse_the_same_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(node_config(tmp_path / "data"), tmp_path / "server.properties")
    for options in (
        ("--add-scram", "SCRAM-SHA-256"),
        ("--add-scram", "PLAIN=[name=alice,password=secret]"),
        ("--add-scram", "SCRAM-SHA-256=name=alice"),
        ("--add-scram", "SCRAM-SHA-256=[name=alice]"),
        ("--add-scram", "SCRAM-SHA-256=[password=secret]"),
        ("--add-scram", "SCRAM-SHA-256=[name=alice,saltedpassword=YCE=]"),
        ("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret,iterations=1]"),
        ("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret,iterations=16385]"),
        ("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret,shoe=44]"),
        ("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]", "--release-version", "3.5-IV1"),
        ("--feature", "metadata.version=30", "--release-version", "4.3"),
    ):
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(config), *options]
        ours = main(["storage", *arguments])
        theirs = apache_tool(STORAGE_TOOL, *arguments)
        assert (ours, theirs.exit_code) == (1, 1), (options, theirs)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("release", ["3.3-IV3", "3.8", "3.9-IV0", "4.0", "4.3", None])
def test_version_mapping(tools: ApacheTools, capsys: pytest.CaptureFixture[str], release: str | None) -> None:
    """We list the features that we support, with Apache Kafka's levels."""
    arguments = ("version-mapping", *(() if release is None else ("--release-version", release)))
    assert main(["storage", *arguments]) == 0
    ours = capsys.readouterr().out.splitlines()
    theirs = tools.run(STORAGE_TOOL, *arguments).stdout.splitlines()
    assert [line for line in theirs if line.partition("=")[0] in SUPPORTED] == ours


@pytest.mark.parametrize(
    "feature",
    [
        *("eligible.leader.replicas.version=1", "kraft.version=1", "transaction.version=2", "metadata.version=27"),
        *("group.version=0", "share.version=1", "streams.version=1"),
        *("shoe.size=44", "group.version=9", "metadata.version=99"),
    ],
)
def test_feature_dependencies(tools: ApacheTools, capsys: pytest.CaptureFixture[str], feature: str) -> None:
    code = main(["storage", "feature-dependencies", "--feature", feature])
    said = tools.run(STORAGE_TOOL, "feature-dependencies", "--feature", feature)
    assert (code, capsys.readouterr().out) == (said.exit_code, said.stdout)


def test_the_names_of_releases_mean_the_same(tools: ApacheTools) -> None:
    for name, level in RELEASES.items():
        said = tools.run(STORAGE_TOOL, "version-mapping", "--release-version", name).stdout
        assert f"metadata.version={level} " in said, said
