"""`pybroker start --check`: would this node start here, and would its clients find it?

Looks at what only the machine can tell: directories, ports, names. Nothing is left behind but a directory's lock file.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Final

from pybroker.base.filesystem import FileSystem
from pybroker.config import Config, Problem, Severity
from pybroker.config.listeners import problem_with_protocol
from pybroker.log.manager.directories import LogDirError, open_log_dirs
from pybroker.network.acceptor import OS_DEFAULT, ListenerError, bind
from pybroker.server.bootstrap import StorageError, check_cluster, look, open_storage, plan_by_itself

CONNECT_S: Final = 3.0

_ANY: Final = ("", "0.0.0.0", "::")


def problems_of(
    config: Config,
    filesystem: FileSystem,
    *,
    now_ms: int,
    formats: bool = False,
    cluster_id: str | None = None,
    config_file: str | None = None,
) -> list[Problem]:
    """`formats`: the start would format directories that are not formatted yet, for `cluster_id` if that is given.
    `config_file` is for the advice."""
    return [
        *_storage(config, filesystem, formats, cluster_id, config_file),
        *_directories(config, filesystem, now_ms),
        *_advertised_localhost(config),
        *_ports(config),
    ]


def _error(key: str, message: str) -> Problem:
    return Problem(Severity.ERROR, "this machine", (key,), f"{key}: {message}")


def _warning(key: str, message: str) -> Problem:
    return Problem(Severity.WARNING, "this machine", (key,), f"{key}: {message}")


def _storage(
    config: Config, filesystem: FileSystem, formats: bool, cluster_id: str | None, config_file: str | None
) -> Iterator[Problem]:
    """Are the directories this node's?"""
    found = look(filesystem, config)
    if formats and not any(one.meta or one.is_unreadable for one in found):
        try:
            plan_by_itself(config, cluster_id)
        except StorageError as error:
            yield _error("log.dirs", str(error))
            return
        yield _warning("log.dirs", f"{', '.join(one.path for one in found)}: not formatted yet; the start does that")
        return
    try:
        storage = open_storage(filesystem, config, config_file=config_file)
        if formats:
            check_cluster(storage, cluster_id)
    except StorageError as error:
        yield _error("log.dirs", str(error))
        return
    for one in found:
        if one.is_unreadable:
            yield _error("log.dirs", f"{one.problem}; the node would go on without it")
        elif one.meta is None:
            yield _warning("log.dirs", f"{one.problem}; the start sees to that")


def _directories(config: Config, filesystem: FileSystem, now_ms: int) -> Iterator[Problem]:
    """Can they be used, and does nobody else use them?"""
    present = []
    for one in look(filesystem, config):
        if filesystem.exists(one.path):
            if not one.is_unreadable:
                present.append(one.path)
            continue
        parent = os.path.dirname(one.path)
        while not os.path.exists(parent):
            parent = os.path.dirname(parent)
        if not (os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK)):
            yield _error(
                "log.dirs", f"{one.path} is not there and cannot be made: {parent} is no directory that we may write to"
            )
    if not present:
        return
    try:
        dirs = open_log_dirs(filesystem, present, None, now_ms=now_ms)
    except LogDirError as error:
        yield _error("log.dirs", str(error))
        return
    for log_dir in dirs:
        if log_dir.failure is not None:
            yield _error("log.dirs", f"{log_dir.path} cannot be used: {log_dir.failure}")
        elif not os.access(log_dir.path, os.W_OK):
            yield _error("log.dirs", f"{log_dir.path} is not writable")
        log_dir.unlock()


def _advertised_localhost(config: Config) -> Iterator[Problem]:
    """Clients elsewhere would be sent to themselves."""
    listening = {one.name: one for one in config.listeners}
    for advertised in config.advertised_listeners:
        listener = listening.get(advertised.name)
        if listener is not None and _is_loopback(advertised.host) and not _is_loopback(listener.host):
            yield _warning(
                "advertised.listeners",
                f"{advertised} tells clients to connect to their own machine, though the node listens on "
                f"{listener.host or 'all interfaces'}; clients elsewhere need an address that they can reach",
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _ports(config: Config) -> Iterator[Problem]:
    """Listen where the node would, then connect as a client would."""
    with ExitStack() as opened:
        bound: dict[str, int] = {}
        for listener in config.listeners:
            problem = problem_with_protocol(listener, config.security_protocols.get(listener.name, listener.name))
            if problem is not None:
                yield _error("listeners", problem)
                continue
            try:
                server = opened.enter_context(bind(listener, 1, OS_DEFAULT))
            except ListenerError as error:
                yield _error("listeners", str(error))
            else:
                bound[listener.name] = server.getsockname()[1]
        for advertised in config.advertised_listeners:
            if advertised.name not in bound:
                continue
            if advertised.host in _ANY:
                continue  # what the file's own check says
            port = advertised.port or bound[advertised.name]
            try:
                socket.create_connection((advertised.host, port), CONNECT_S).close()
            except OSError as error:
                yield _error("advertised.listeners", f"{advertised} cannot be reached from here: {error.strerror or error}")
