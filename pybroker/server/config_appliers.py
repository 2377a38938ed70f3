"""Who does what when broker configs change: ties the parts of a node to the configs that they apply."""

from __future__ import annotations

from typing import Protocol

from pybroker.config import Config
from pybroker.log.cleaner.setup import NodeLogCleaner
from pybroker.log.manager.log_manager import LogManager
from pybroker.log.manager.scheduler import ThreadBackground
from pybroker.log.manager.settings import ManagerSettings
from pybroker.server.config_parts import Part
from pybroker.server.dynamic_config import NodeConfig


class Reconfigurable(Protocol):
    def reconfigure(self, config: Config) -> None: ...


def apply_changes(
    config: NodeConfig,
    logs: LogManager,
    background: ThreadBackground,
    cleaner: NodeLogCleaner | None = None,
    sockets: Reconfigurable | None = None,
    groups: Reconfigurable | None = None,
) -> None:
    """Dynamic configs reach the parts of the node that are given: those that count already, and every change from now on."""
    config.subscribe_logs(logs.update_configs)
    # Beside its own configs the manager goes by log.segment.delete.delay.ms, which is a default of topics, too.
    config.subscribe(lambda _, new: logs.reconfigure(ManagerSettings.of(new)))
    config.subscribe(lambda _, new: background.resize(new.int("background.threads")), Part.SCHEDULER)
    if cleaner is not None:
        config.subscribe(lambda _, new: cleaner.reconfigure(new), Part.CLEANER)
    if sockets is not None:
        config.subscribe(lambda _, new: sockets.reconfigure(new), Part.SOCKET_SERVER)
    if groups is not None:
        config.subscribe(lambda _, new: groups.reconfigure(new), Part.COORDINATORS)
