"""Changes to the configs of running brokers: which keys take them, and on which level. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.config.key import Update
from pybroker.config.keys import BROKER, CONNECTIONS, STORES
from pybroker.config.problems import Problem, Severity
from pybroker.config.reading import BROKER_LEVEL, CLUSTER_LEVEL, Given, parse_override, read_broker


def check_dynamic(changes: Mapping[str, str], *, per_broker: bool) -> list[Problem]:
    """What AlterConfigs on one broker, or else on the cluster's default, would say of `changes`."""
    where = BROKER_LEVEL if per_broker else CLUSTER_LEVEL
    problems = read_broker({name: Given(text, where) for name, text in changes.items()}).problems
    for name in changes:
        override = parse_override(name)
        key = override.key if override else BROKER.get(name)
        if key is None:
            continue
        is_bound = override is not None and key.name not in CONNECTIONS
        refusal = None
        if key.update is Update.READ_ONLY:
            refusal = "is read when the node starts and cannot be changed while it runs"
        elif not per_broker and (key.update is Update.PER_BROKER or is_bound):
            refusal = "can be changed for one broker only, not for the cluster"
        elif per_broker and key.name in STORES and override is None:
            refusal = f"can be changed per listener only: listener.name.{{listener}}.{name}"
        if refusal is not None:
            problems.append(Problem(Severity.ERROR, where, (name,), f"{name} {refusal}"))
    return problems
