"""Formatting: how directories become a node's, and what a node reads of them before it starts.

Plain functions over the port to the disk, for `pybroker storage` and for a node that formats by itself. A directory counts
as formatted when it has its meta.properties, which is written last: after a crash the same command can be given again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pybroker.base.filesystem import FileSystem
from pybroker.base.ids import Uuid, uuid_from_text, uuid_to_text
from pybroker.config.broker import Config
from pybroker.config.listeners import parse_listener
from pybroker.log.checkpoints import (
    META_PROPERTIES,
    CorruptFileError,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from pybroker.log.manager.directories import random_uuid
from pybroker.metadata.controller.feature_levels import default_levels, unmet
from pybroker.metadata.controller.features import (
    KRAFT_VERSION,
    LATEST_RELEASE,
    METADATA_VERSION,
    RELEASES,
    SCRAM,
    SUPPORTED,
    name_of_level,
)
from pybroker.metadata.controller.topic_names import METADATA_TOPIC
from pybroker.protocol.internal.control_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from pybroker.protocol.internal.metadata_log import FeatureLevelRecord, UserScramCredentialRecord
from pybroker.protocol.message import Message
from pybroker.raft.events import SnapshotId
from pybroker.server.metadata_snapshot import BOOTSTRAP, snapshot_name, write_snapshot

VOTERS_SNAPSHOT: Final = f"{METADATA_TOPIC}-0/{snapshot_name(SnapshotId(0, 0))}"


class StorageError(Exception):
    """Directories that cannot be formatted as asked, or not be used as they are."""


@dataclass(slots=True, frozen=True)
class InitialController:
    id: int
    host: str
    port: int
    directory_id: Uuid

    @classmethod
    def parse(cls, text: str) -> InitialController:
        """From `id@host:port:directory`."""
        number, _at, rest = text.partition("@")
        address, _colon, directory = rest.rpartition(":")
        try:
            listener = parse_listener(f"CONTROLLER://{address}")
            return cls(int(number), listener.host, listener.port, uuid_from_text(directory))
        except ValueError:
            raise StorageError(f"{text!r} is no initial controller; expected id@host:port:directory-id") from None


@dataclass(slots=True, frozen=True)
class FormatPlan:
    """What to write. Without voters of its own a controller needs controller.quorum.voters, or to be told of no voters."""

    standalone: bool = False
    initial_controllers: tuple[InitialController, ...] = ()
    no_initial_controllers: bool = False
    features: Mapping[str, int] = field(default_factory=dict)
    scram_users: tuple[UserScramCredentialRecord, ...] = ()
    ignore_formatted: bool = False

    @property
    def is_dynamic(self) -> bool:
        return self.standalone or bool(self.initial_controllers) or self.no_initial_controllers


@dataclass(slots=True, frozen=True)
class Storage:
    """A node's formatted directories, as far as the start must know of them."""

    cluster_id: str
    metadata_dir: str
    metadata_directory_id: Uuid | None


@dataclass(slots=True, frozen=True)
class Found:
    """What one directory has; `meta` is None for one that is not formatted, or of which that cannot be told."""

    path: str
    meta: MetaProperties | None
    problem: str | None = None
    is_unreadable: bool = False


def directories_of(config: Config) -> list[str]:
    """Every directory that belongs to the node, the metadata's first."""
    paths = [config.text("metadata.log.dir"), *config.items_of("log.dirs")]
    return list(dict.fromkeys(map(os.path.abspath, paths)))


def look(filesystem: FileSystem, config: Config) -> list[Found]:
    """What is in the directories, and what is wrong with it."""
    found: list[Found] = []
    cluster_ids: dict[str, str] = {}
    directory_ids: dict[Uuid, str] = {}
    for path in directories_of(config):
        try:
            meta = read_meta_properties(filesystem, f"{path}/{META_PROPERTIES}")
        except (CorruptFileError, OSError) as error:
            found.append(Found(path, None, f"{path} cannot be read: {error}", is_unreadable=True))
            continue
        problem = None
        if meta is None:
            problem = f"{path} is not formatted" if filesystem.exists(path) else f"{path} is not there"
        else:
            first = next(iter(cluster_ids), meta.cluster_id)
            if meta.node_id != config.int("node.id"):
                problem = f"{path} belongs to node {meta.node_id}; the configuration says node.id={config['node.id']}"
            elif meta.cluster_id != first:
                problem = f"{path} belongs to cluster {meta.cluster_id}, {cluster_ids[first]} to {first}"
            elif meta.directory_id is not None and meta.directory_id in directory_ids:
                problem = f"{path} has the directory.id of {directory_ids[meta.directory_id]}: was it copied?"
            cluster_ids.setdefault(meta.cluster_id, path)
            if meta.directory_id is not None:
                directory_ids.setdefault(meta.directory_id, path)
        found.append(Found(path, meta, problem))
    return found


def open_storage(filesystem: FileSystem, config: Config, *, config_file: str | None = None) -> Storage:
    """What a start must know of formatted directories; StorageError, with the command that helps, if they are not.

    A log directory that is new beside formatted ones, or whose disk has failed, is the log manager's business; the one with
    the metadata must have been formatted.
    """
    found = look(filesystem, config)
    metadata = found[0]
    if not any(one.meta or one.is_unreadable for one in found):
        command = f"pybroker storage format -t CLUSTER_ID -c {config_file or 'FILE'}"
        options = "" if config["controller.quorum.voters"] else " --standalone"
        raise StorageError(
            f"{', '.join(one.path for one in found)}: not formatted yet. Format with\n  {command}{options}\n"
            "where `pybroker storage random-uuid` gives a new CLUSTER_ID; or start with --format-if-needed."
        )
    problems = [one.problem for one in found if one.problem is not None and (one.meta is not None or one is metadata)]
    if problems or metadata.meta is None:
        raise StorageError("; ".join(problems))
    return Storage(metadata.meta.cluster_id, metadata.path, metadata.meta.directory_id)


def format_if_needed(
    filesystem: FileSystem,
    config: Config,
    *,
    now_ms: int,
    cluster_id: str | None = None,
    new_uuid: Callable[[], Uuid] = random_uuid,
) -> Storage:
    """For a node that formats by itself, if nothing was formatted yet: for cluster `cluster_id`, or as one of its own."""
    if not any(one.meta or one.is_unreadable for one in look(filesystem, config)):
        plan = plan_by_itself(config, cluster_id)
        new_id = uuid_to_text(new_uuid()) if cluster_id is None else cluster_id
        format_storage(filesystem, config, new_id, plan, now_ms=now_ms, new_uuid=new_uuid)
    storage = open_storage(filesystem, config)
    check_cluster(storage, cluster_id)
    return storage


def check_cluster(storage: Storage, cluster_id: str | None) -> None:
    """StorageError if the directories are those of another cluster than the one that was asked for."""
    if cluster_id is not None and storage.cluster_id != cluster_id:
        raise StorageError(f"{storage.metadata_dir} belongs to cluster {storage.cluster_id} already; expected {cluster_id}")


def plan_by_itself(config: Config, cluster_id: str | None) -> FormatPlan:
    """How a node formats that nobody tells how. Nodes that did it each on its own would be no cluster, which is refused."""
    voters, bootstrap = config.items_of("controller.quorum.voters"), config.items_of("controller.quorum.bootstrap.servers")
    is_standalone = config.is_controller and not voters
    if is_standalone and len(bootstrap) > 1:
        raise StorageError(
            f"controller.quorum.bootstrap.servers names {len(bootstrap)} controllers, and this one would make itself the only "
            "voter. Set controller.quorum.voters, or format each with `pybroker storage format --initial-controllers`."
        )
    if cluster_id is None and not (is_standalone or (config.is_controller and len(voters) == 1)):
        raise StorageError(
            "this node is one of several, and all of them need the same cluster id: format each with `pybroker storage format "
            "-t CLUSTER_ID`, or start them with --env and the same CLUSTER_ID in the environment"
        )
    return FormatPlan(standalone=is_standalone)


def format_storage(
    filesystem: FileSystem,
    config: Config,
    cluster_id: str,
    plan: FormatPlan,
    *,
    now_ms: int,
    new_uuid: Callable[[], Uuid] = random_uuid,
) -> list[str]:
    """Format what is not formatted; returns a line for each directory that was. StorageError if nothing was touched."""
    _check_plan(config, cluster_id, plan)
    features = _features(plan)
    todo = _unformatted(filesystem, config, cluster_id, plan)
    level = name_of_level(features[METADATA_VERSION])
    records: list[tuple[Message, int]] = [
        *((FeatureLevelRecord(name=name, feature_level=features[name]), 0) for name in _in_order(features)),
        *((user, 0) for user in plan.scram_users),
    ]
    lines = []
    for path in todo:
        is_metadata = path == directories_of(config)[0]
        directory_id = _own_directory_id(config, plan) if is_metadata else None
        directory_id = new_uuid() if directory_id is None else directory_id
        filesystem.make_dirs(path)
        filesystem.sync_dir(os.path.dirname(path))
        write_snapshot(filesystem, f"{path}/{BOOTSTRAP}", records, now_ms=now_ms)
        voters = _voters(config, plan, directory_id) if is_metadata else None
        if voters is not None:
            snapshot = f"{path}/{VOTERS_SNAPSHOT}"
            filesystem.make_dirs(os.path.dirname(snapshot))
            write_snapshot(filesystem, snapshot, (), now_ms=now_ms, voters=voters, last_timestamp_ms=now_ms)
            filesystem.sync_dir(path)
        meta = MetaProperties(cluster_id, config.int("node.id"), directory_id)
        write_meta_properties(filesystem, f"{path}/{META_PROPERTIES}", meta, now_ms)
        use = "data" if not is_metadata else "metadata" if voters is None else "metadata, with voters"
        lines.append(f"{path}: formatted for {use}, metadata.version {level}, directory.id {uuid_to_text(directory_id)}")
    return lines


def _check_plan(config: Config, cluster_id: str, plan: FormatPlan) -> None:
    if not cluster_id or cluster_id != cluster_id.strip():
        raise StorageError(f"found cluster id {cluster_id!r}; expected one such as `pybroker storage random-uuid` gives")
    is_static = bool(config["controller.quorum.voters"])
    has_voters = plan.standalone or bool(plan.initial_controllers)
    if is_static and has_voters:
        raise StorageError(
            "controller.quorum.voters fixes the voters in the configuration, --standalone and --initial-controllers put them "
            "into the metadata. Take controller.quorum.voters away and set controller.quorum.bootstrap.servers."
        )
    if config.is_controller and not is_static and not plan.is_dynamic:
        raise StorageError(
            "this node is a controller, and nothing says who the voters are: expected controller.quorum.voters in the "
            "configuration, or one of --standalone, --initial-controllers and --no-initial-controllers"
        )
    if plan.standalone and not config.is_controller:
        raise StorageError("--standalone makes this node the only voter, but its process.roles has no controller")
    kraft = plan.features.get(KRAFT_VERSION)
    if kraft is not None and (kraft > 0) != plan.is_dynamic:
        raise StorageError(
            f"kraft.version={kraft}: voters in the metadata, which --standalone, --initial-controllers and "
            "--no-initial-controllers are about, go with 1, controller.quorum.voters with 0"
        )


def _features(plan: FormatPlan) -> dict[str, int]:
    for name, level in plan.features.items():
        if name not in SUPPORTED:
            raise StorageError(f"feature {name} is not supported; expected one of {', '.join(sorted(SUPPORTED))}")
        low, high = SUPPORTED[name].min_version, SUPPORTED[name].max_version
        if not low <= level <= high:
            raise StorageError(f"{name}={level} is not supported; expected a level from {low} to {high}")
    metadata_version = plan.features.get(METADATA_VERSION, RELEASES[LATEST_RELEASE])
    features = default_levels(metadata_version) | {METADATA_VERSION: metadata_version} | dict(plan.features)
    for name, level in features.items():
        missing = unmet(name, level, features)
        if missing is not None:
            raise StorageError(
                f"{name}={level} requires {missing[0]}={missing[1]} or above; found {features.get(missing[0], 0)}"
            )
    if plan.scram_users and metadata_version < SCRAM:
        raise StorageError(
            f"metadata.version {name_of_level(metadata_version)} has no SCRAM users; expected {name_of_level(SCRAM)} or later"
        )
    return features


def _in_order(features: Mapping[str, int]) -> Iterator[str]:
    """As they are written; kraft.version is the quorum's own and no record of the metadata."""
    yield METADATA_VERSION
    yield from sorted(name for name, level in features.items() if level and name not in (METADATA_VERSION, KRAFT_VERSION))


def _unformatted(filesystem: FileSystem, config: Config, cluster_id: str, plan: FormatPlan) -> list[str]:
    found = look(filesystem, config)
    for one in found:
        if one.meta is not None and one.meta.cluster_id != cluster_id:
            raise StorageError(f"{one.path} belongs to cluster {one.meta.cluster_id} already; expected {cluster_id}")
        if one.problem is not None and (one.meta is not None or one.is_unreadable):
            raise StorageError(one.problem)
    formatted = [one.path for one in found if one.meta is not None]
    if formatted and not plan.ignore_formatted:
        raise StorageError(f"{', '.join(formatted)}: formatted already. With --ignore-formatted only the others are formatted.")
    return [one.path for one in found if one.meta is None]


def _own_directory_id(config: Config, plan: FormatPlan) -> Uuid | None:
    node_id = config.int("node.id")
    return next((one.directory_id for one in plan.initial_controllers if one.id == node_id), None)


def _voters(config: Config, plan: FormatPlan, directory_id: Uuid) -> VotersRecord | None:
    controllers: Sequence[InitialController] = plan.initial_controllers
    name = config.controller_listener_names[0] if config.controller_listener_names else "CONTROLLER"
    if plan.standalone:
        advertised = next(one for one in config.advertised_listeners if one.name == name)
        controllers = [InitialController(config.int("node.id"), advertised.host, advertised.port, directory_id)]
    if not controllers:
        return None
    kraft = SUPPORTED[KRAFT_VERSION]
    return VotersRecord(
        version=0,
        voters=[
            VotersRecordVoter(
                voter_id=one.id,
                voter_directory_id=one.directory_id,
                endpoints=[Endpoint(name=name, host=one.host, port=one.port)],
                k_raft_version_feature=KRaftVersionFeature(
                    min_supported_version=kraft.min_version, max_supported_version=kraft.max_version
                ),
            )
            for one in sorted(controllers, key=lambda one: one.id)
        ],
    )
