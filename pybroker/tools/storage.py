"""`pybroker storage`: formats the directories of a node, shows what they are, draws cluster ids, and tells of features."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from pybroker.base.filesystem import OsFileSystem
from pybroker.base.ids import uuid_to_text
from pybroker.config import Config, load_file
from pybroker.log.manager.directories import random_uuid
from pybroker.metadata.controller.feature_levels import LEVELS, default_levels, requirements
from pybroker.metadata.controller.features import (
    LATEST_RELEASE,
    METADATA_VERSION,
    RELEASES,
    level_of_release,
    name_of_level,
)
from pybroker.protocol.internal.metadata_log import UserScramCredentialRecord
from pybroker.server.bootstrap import FormatPlan, InitialController, StorageError, format_storage, look
from pybroker.server.scram_users import ScramUserError, parse_scram_user


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    formats = actions.add_parser("format", help="make the directories of a configuration a node's", allow_abbrev=False)
    formats.add_argument("-t", "--cluster-id", required=True, help="the same for all nodes of a cluster")
    _add_config(formats)
    formats.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="leave directories that are formatted as they are"
    )
    formats.add_argument(
        "-r", "--release-version", metavar="RELEASE", help=f"the metadata.version, as 4.1 or 4.1-IV0; default {LATEST_RELEASE}"
    )
    formats.add_argument(
        "-f", "--feature", action="append", default=[], metavar="NAME=LEVEL", help="the level of one feature; may be repeated"
    )
    voters = formats.add_mutually_exclusive_group()
    voters.add_argument("-s", "--standalone", action="store_true", help="this node is the only voter of its metadata quorum")
    voters.add_argument(
        "-N", "--no-initial-controllers", action="store_true", help="the voters are not known here; the node joins them later"
    )
    voters.add_argument(
        "-I", "--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY,...", help="the voters, the same list for all of them"
    )
    formats.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="USER",
        help="a user that the cluster begins with, as SCRAM-SHA-256=[name=alice,password=secret]; may be repeated",
    )

    info = actions.add_parser("info", help="show what the directories of a configuration are", allow_abbrev=False)
    _add_config(info)

    actions.add_parser("random-uuid", help="draw a cluster id", allow_abbrev=False)

    mapping = actions.add_parser("version-mapping", help="the features that a release begins with", allow_abbrev=False)
    mapping.add_argument("-r", "--release-version", metavar="RELEASE", default=LATEST_RELEASE, help="as 4.1 or 4.1-IV0")

    dependencies = actions.add_parser("feature-dependencies", help="what levels of features require", allow_abbrev=False)
    dependencies.add_argument("-f", "--feature", action="append", required=True, metavar="NAME=LEVEL", help="may be repeated")


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", required=True, type=Path, metavar="FILE", help="the node's server.properties")


def run(args: argparse.Namespace) -> int:
    try:
        match args.action:
            case "random-uuid":
                print(uuid_to_text(random_uuid()))
            case "version-mapping":
                _version_mapping(args.release_version)
            case "feature-dependencies":
                _feature_dependencies(args.feature)
            case _:
                return _on_directories(args)
        return 0
    except (StorageError, OSError) as error:
        print(f"pybroker storage: {error}", file=sys.stderr)
        return 1


def _on_directories(args: argparse.Namespace) -> int:
    loaded = load_file(args.config)
    for problem in loaded.problems:
        print(problem, file=sys.stderr)
    if loaded.config is None:
        return 1
    return _info(loaded.config) if args.action == "info" else _format(loaded.config, args)


def _format(config: Config, args: argparse.Namespace) -> int:
    controllers = filter(None, (args.initial_controllers or "").split(","))
    plan = FormatPlan(
        standalone=args.standalone,
        initial_controllers=tuple(InitialController.parse(one.strip()) for one in controllers),
        no_initial_controllers=args.no_initial_controllers,
        features=_features(args.release_version, args.feature),
        scram_users=tuple(map(_scram_user, args.add_scram)),
        ignore_formatted=args.ignore_formatted,
    )
    now_ms = time.time_ns() // 1_000_000
    lines = format_storage(OsFileSystem(), config, args.cluster_id, plan, now_ms=now_ms)
    print("\n".join(lines) or "all directories are formatted already")
    return 0


def _features(release: str | None, settings: list[str]) -> dict[str, int]:
    features: dict[str, int] = {}
    for setting in settings:
        name, level = _setting(setting)
        if name in features:
            raise StorageError(f"--feature {name} is given twice; expected one level")
        features[name] = level
    if release is not None:
        if METADATA_VERSION in features:
            raise StorageError(f"--release-version {release} says what --feature {METADATA_VERSION} says; expected one of them")
        features[METADATA_VERSION] = _level_of(release)
    return features


def _setting(text: str) -> tuple[str, int]:
    name, _equals, level = text.partition("=")
    if not level.isdecimal():
        raise StorageError(f"--feature {text}: expected name=level, with a level that is a number")
    return name, int(level)


def _level_of(release: str) -> int:
    found = level_of_release(release)
    if found is None:
        raise StorageError(f"--release-version {release} is not known; expected one of {', '.join(RELEASES)}")
    return found


def _scram_user(text: str) -> UserScramCredentialRecord:
    try:
        return parse_scram_user(text)
    except ScramUserError as error:
        raise StorageError(f"--add-scram: {error}") from None


def _version_mapping(release: str) -> None:
    level = _level_of(release)
    print(f"{METADATA_VERSION}={level} ({release})")
    for name, default in default_levels(level).items():
        print(f"{name}={default}")


def _feature_dependencies(settings: list[str]) -> None:
    for name, level in map(_setting, settings):
        required = requirements(name, level)
        if required is None:
            known = name == METADATA_VERSION or name in LEVELS
            raise StorageError(f"feature {name} has no level {level}" if known else f"there is no feature {name}")
        if not required:
            print(f"{_shown(name, level)} has no dependencies.")
        else:
            print(f"{_shown(name, level)} requires:")
            for other, least in required.items():
                print(f"    {_shown(other, least)}")


def _shown(name: str, level: int) -> str:
    return f"{name}={level} ({name_of_level(level)})" if name == METADATA_VERSION else f"{name}={level}"


def _info(config: Config) -> int:
    found = look(OsFileSystem(), config)
    print("Directories:")
    for one in found:
        print(f"  {one.path}")
        if one.meta is not None:
            directory = "none" if one.meta.directory_id is None else uuid_to_text(one.meta.directory_id)
            print(f"    cluster.id={one.meta.cluster_id} node.id={one.meta.node_id} directory.id={directory}")
    problems = [one.problem for one in found if one.problem is not None]
    if problems:
        print("Problems:")
        for problem in problems:
            print(f"  {problem}")
    return 1 if problems else 0
