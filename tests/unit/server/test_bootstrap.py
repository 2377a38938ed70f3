from __future__ import annotations

from collections.abc import Mapping

import pytest
from unit.server.quorum.quorums import NOW_MS, config_of

from pybroker.base.filesystem import write_file
from pybroker.base.ids import uuid_from_text, uuid_to_text
from pybroker.config import Config
from pybroker.log.checkpoints import read_meta_properties
from pybroker.metadata.controller.features import METADATA_VERSION, TRANSACTION_VERSION
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord
from pybroker.server.bootstrap import (
    VOTERS_SNAPSHOT,
    FormatPlan,
    InitialController,
    StorageError,
    format_if_needed,
    format_storage,
    look,
    open_storage,
)
from pybroker.server.metadata_snapshot import read_snapshot
from pybroker.testing.disk import PowerCutError, SimDisk

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
STANDALONE = FormatPlan(standalone=True)
STATIC = {"controller.quorum.voters": "1@localhost:9093", "controller.quorum.bootstrap.servers": None}
TWO_VOTERS = "1@localhost:9093,2@localhost:9095"
TWO_DIRS = {"log.dirs": "/one,/two", "metadata.log.dir": "/meta"}
BROKER_ONLY = {"process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
CONTROLLER_1 = InitialController(1, "localhost", 9093, uuid_from_text("JEXY6aqzQY-32P5TStzaFg"))
CONTROLLER_2 = InitialController(2, "::1", 9094, uuid_from_text("MvDxzVmcRsaTz33bUuRU6A"))


def run(disk: SimDisk, plan: FormatPlan = STANDALONE, config: Config | None = None, cluster_id: str = CLUSTER) -> list[str]:
    return format_storage(disk, config_of() if config is None else config, cluster_id, plan, now_ms=NOW_MS)


def refusal(plan: FormatPlan, changes: Mapping[str, str | None] | None = None, cluster_id: str = CLUSTER) -> str:
    disk = SimDisk()
    with pytest.raises(StorageError) as caught:
        run(disk, plan, config_of(changes), cluster_id)
    assert not disk.exists("/data"), "refused, and yet something was written"
    return str(caught.value)


def levels_in(disk: SimDisk, path: str) -> dict[str, int]:
    records = read_snapshot(disk, path).records
    return {one.name: one.feature_level for one in records if isinstance(one, FeatureLevelRecord)}


def test_a_standalone_node_is_its_own_voter() -> None:
    disk = SimDisk()
    lines = run(disk)
    storage = open_storage(disk, config_of())
    assert (storage.cluster_id, storage.metadata_dir) == (CLUSTER, "/data")
    snapshot = read_snapshot(disk, f"/data/{VOTERS_SNAPSHOT}")
    assert snapshot.voters is not None
    (voter,) = snapshot.voters.voters
    assert (snapshot.kraft_version, voter.voter_id, voter.voter_directory_id) == (1, 1, storage.metadata_directory_id)
    assert [(one.name, one.host, one.port) for one in voter.endpoints] == [("CONTROLLER", "localhost", 9093)]
    levels = levels_in(disk, "/data/bootstrap.checkpoint")
    assert (levels[METADATA_VERSION], levels[TRANSACTION_VERSION]) == (30, 2)
    assert storage.metadata_directory_id is not None
    expected = f"metadata.version 4.3-IV0, directory.id {uuid_to_text(storage.metadata_directory_id)}"
    assert lines == [f"/data: formatted for metadata, with voters, {expected}"]


def test_every_directory_gets_its_own_id_and_only_the_metadatas_the_voters() -> None:
    disk, config = SimDisk(), config_of(TWO_DIRS)
    run(disk, config=config)
    metas = [read_meta_properties(disk, f"{path}/meta.properties") for path in ("/meta", "/one", "/two")]
    assert all(meta is not None and (meta.cluster_id, meta.node_id) == (CLUSTER, 1) for meta in metas)
    assert len({meta.directory_id for meta in metas if meta is not None}) == 3
    found = [disk.exists(f"{path}/{VOTERS_SNAPSHOT}") for path in ("/meta", "/one", "/two")]
    assert found == [True, False, False]
    assert all(disk.exists(f"{path}/bootstrap.checkpoint") for path in ("/meta", "/one", "/two"))


def test_static_voters_need_no_snapshot() -> None:
    disk, config = SimDisk(), config_of(STATIC)
    run(disk, FormatPlan(), config)
    assert not disk.exists(f"/data/{VOTERS_SNAPSHOT}")
    assert open_storage(disk, config).cluster_id == CLUSTER


def test_no_initial_controllers_need_none_either() -> None:
    disk = SimDisk()
    run(disk, FormatPlan(no_initial_controllers=True))
    assert not disk.exists(f"/data/{VOTERS_SNAPSHOT}")


def test_initial_controllers_are_voters_with_the_ids_given() -> None:
    disk = SimDisk()
    run(disk, FormatPlan(initial_controllers=(CONTROLLER_2, CONTROLLER_1)))
    assert open_storage(disk, config_of()).metadata_directory_id == CONTROLLER_1.directory_id
    voters = read_snapshot(disk, f"/data/{VOTERS_SNAPSHOT}").voters
    assert voters is not None
    assert [(one.voter_id, one.voter_directory_id, one.endpoints[0].host) for one in voters.voters] == [
        (1, CONTROLLER_1.directory_id, "localhost"),
        (2, CONTROLLER_2.directory_id, "::1"),
    ]


def test_initial_controllers_as_they_are_written() -> None:
    assert InitialController.parse("1@localhost:9093:JEXY6aqzQY-32P5TStzaFg") == CONTROLLER_1
    assert InitialController.parse("2@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A") == CONTROLLER_2
    for wrong in ("", "1", "1@localhost:9093", "x@localhost:9093:JEXY6aqzQY-32P5TStzaFg", "1@localhost:JEXY6aqzQY-32P5TStzaFg"):
        with pytest.raises(StorageError, match="expected id@host:port:directory-id"):
            InitialController.parse(wrong)


def test_levels_may_be_chosen() -> None:
    disk = SimDisk()
    run(disk, FormatPlan(standalone=True, features={METADATA_VERSION: 21, "kraft.version": 1}))
    assert read_snapshot(disk, "/data/bootstrap.checkpoint").records == (
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=21),
    )


def test_what_is_refused_before_anything_is_written() -> None:
    assert "controller.quorum.voters fixes the voters" in refusal(STANDALONE, STATIC)
    assert "controller.quorum.voters fixes the voters" in refusal(FormatPlan(initial_controllers=(CONTROLLER_1,)), STATIC)
    assert "nothing says who the voters are" in refusal(FormatPlan())
    assert "no controller" in refusal(STANDALONE, BROKER_ONLY)
    assert "not supported" in refusal(FormatPlan(standalone=True, features={"share.version": 1}))
    assert "from 7 to 30" in refusal(FormatPlan(standalone=True, features={METADATA_VERSION: 31}))
    assert "kraft.version=0" in refusal(FormatPlan(standalone=True, features={"kraft.version": 0}))
    assert "kraft.version=1" in refusal(FormatPlan(features={"kraft.version": 1}), STATIC)
    assert "cluster id ''" in refusal(STANDALONE, cluster_id="")
    assert "cluster id ' x'" in refusal(STANDALONE, cluster_id=" x")


def test_a_broker_needs_no_word_on_voters() -> None:
    disk, config = SimDisk(), config_of(BROKER_ONLY)
    run(disk, FormatPlan(), config)
    assert open_storage(disk, config).cluster_id == CLUSTER


def test_what_is_formatted_is_not_formatted_again() -> None:
    disk = SimDisk()
    run(disk)
    before = open_storage(disk, config_of())
    with pytest.raises(StorageError, match="/data: formatted already"):
        run(disk)
    assert run(disk, FormatPlan(standalone=True, ignore_formatted=True)) == []
    assert open_storage(disk, config_of()) == before
    with pytest.raises(StorageError, match=f"belongs to cluster {CLUSTER} already; expected another"):
        run(disk, FormatPlan(standalone=True, ignore_formatted=True), cluster_id="another")


def test_directories_that_were_added_are_formatted_beside_the_others() -> None:
    disk = SimDisk()
    run(disk)
    config = config_of({"log.dirs": "/data,/more"})
    (line,) = run(disk, FormatPlan(standalone=True, ignore_formatted=True), config)
    assert line.startswith("/more: formatted for data")
    assert [one.problem for one in look(disk, config)] == [None, None]


def test_a_node_that_formats_by_itself_does_it_once() -> None:
    disk = SimDisk()
    first = format_if_needed(disk, config_of(), now_ms=NOW_MS)
    assert read_snapshot(disk, f"/data/{VOTERS_SNAPSHOT}").kraft_version == 1
    assert format_if_needed(disk, config_of(), now_ms=NOW_MS) == first
    static = config_of(STATIC | {"log.dirs": "/static"})
    format_if_needed(disk, static, now_ms=NOW_MS)
    assert not disk.exists(f"/static/{VOTERS_SNAPSHOT}")


def test_a_node_that_formats_by_itself_takes_the_cluster_id_it_is_given_and_no_other() -> None:
    disk, static = SimDisk(), config_of(STATIC)
    assert format_if_needed(disk, static, now_ms=NOW_MS, cluster_id=CLUSTER).cluster_id == CLUSTER
    assert format_if_needed(disk, static, now_ms=NOW_MS, cluster_id=CLUSTER).cluster_id == CLUSTER
    assert format_if_needed(disk, static, now_ms=NOW_MS).cluster_id == CLUSTER
    with pytest.raises(StorageError, match=f"/data belongs to cluster {CLUSTER} already; expected another"):
        format_if_needed(disk, static, now_ms=NOW_MS, cluster_id="another")


@pytest.mark.parametrize("changes", [STATIC | {"controller.quorum.voters": TWO_VOTERS}, BROKER_ONLY])
def test_one_of_several_nodes_does_not_make_up_a_cluster_id_of_its_own(changes: Mapping[str, str | None]) -> None:
    disk, config = SimDisk(), config_of(changes)
    with pytest.raises(StorageError, match="all of them need the same cluster id"):
        format_if_needed(disk, config, now_ms=NOW_MS)
    assert not disk.exists("/data")
    assert format_if_needed(disk, config, now_ms=NOW_MS, cluster_id=CLUSTER).cluster_id == CLUSTER
    assert not disk.exists(f"/data/{VOTERS_SNAPSHOT}")


def test_one_of_several_bootstrap_servers_does_not_make_itself_the_only_voter() -> None:
    disk = SimDisk()
    config = config_of({"controller.quorum.bootstrap.servers": "localhost:9093,localhost:9095"})
    with pytest.raises(StorageError, match="names 2 controllers"):
        format_if_needed(disk, config, now_ms=NOW_MS, cluster_id=CLUSTER)
    assert not disk.exists("/data")


def test_unformatted_directories_are_refused_with_the_command_that_helps() -> None:
    with pytest.raises(StorageError, match=r"storage format -t CLUSTER_ID -c my\.properties --standalone\n"):
        open_storage(SimDisk(), config_of(), config_file="my.properties")
    with pytest.raises(StorageError, match=r"storage format -t CLUSTER_ID -c FILE\n"):
        open_storage(SimDisk(), config_of(STATIC))


def test_a_log_directory_that_is_new_beside_formatted_ones_is_the_log_managers_business() -> None:
    disk = SimDisk()
    run(disk)
    assert open_storage(disk, config_of({"log.dirs": "/data,/more"})).cluster_id == CLUSTER


def test_metadata_that_is_gone_is_not_made_up() -> None:
    disk = SimDisk()
    run(disk)
    config = config_of({"log.dirs": "/data", "metadata.log.dir": "/lost"})
    for use in (open_storage, lambda disk, config: format_if_needed(disk, config, now_ms=NOW_MS)):
        with pytest.raises(StorageError, match="/lost is not there"):
            use(disk, config)


def test_directories_of_somebody_else() -> None:
    disk = SimDisk()
    run(disk)
    with pytest.raises(StorageError, match=r"belongs to node 1; the configuration says node\.id=2"):
        open_storage(disk, config_of({"node.id": "2"}))
    run(disk, config=config_of({"log.dirs": "/other"}), cluster_id="another")
    with pytest.raises(StorageError, match=f"/other belongs to cluster another, /data to {CLUSTER}"):
        open_storage(disk, config_of({"log.dirs": "/data,/other"}))


def test_a_copied_directory_and_a_damaged_one_are_named() -> None:
    disk = SimDisk()
    config = config_of({"log.dirs": "/one,/two"})
    run(disk, config=config)
    text = "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\ndirectory.id=JEXY6aqzQY-32P5TStzaFg\n"
    for path in ("/one", "/two"):
        write_file(disk, f"{path}/meta.properties", text.encode())
    assert [one.problem for one in look(disk, config)] == [None, "/two has the directory.id of /one: was it copied?"]
    write_file(disk, "/two/meta.properties", b"version=0\n")
    found = look(disk, config)[1]
    assert found.is_unreadable
    assert "/two cannot be read" in (found.problem or "")
    with pytest.raises(StorageError, match="/two cannot be read"):
        run(disk, FormatPlan(standalone=True, ignore_formatted=True), config)


@pytest.mark.parametrize("seed", range(25))
def test_a_crash_while_formatting_is_mended_by_doing_it_again(seed: int) -> None:
    disk, config = SimDisk(), config_of(TWO_DIRS)
    disk.rng.seed(seed)
    disk.cut_at = seed + 1
    with pytest.raises(PowerCutError):
        run(disk, config=config)
    disk.crash()
    run(disk, FormatPlan(standalone=True, ignore_formatted=True), config)
    storage = open_storage(disk, config)
    voters = read_snapshot(disk, f"/meta/{VOTERS_SNAPSHOT}").voters
    assert voters is not None
    assert voters.voters[0].voter_directory_id == storage.metadata_directory_id
    assert levels_in(disk, "/two/bootstrap.checkpoint")[METADATA_VERSION] == 30
