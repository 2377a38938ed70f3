"""Changes of configs, as far as the node that is asked for them has a say: a broker in its own configs, each in the levels of
its loggers.

Any thread. A check says whether the change is done with; otherwise the controller decides. A refusal is a KafkaError.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from pybroker.config import Config
from pybroker.config.keys import BROKER
from pybroker.config.problems import errors
from pybroker.config.reading import parse_override
from pybroker.config.types import ConfigType, to_text
from pybroker.metadata.image import MetadataImage, ResourceType
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.configs import (
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from pybroker.server import broker_loggers
from pybroker.server.dynamic_config import NodeConfig, usable

logger = logging.getLogger(__name__)

Change = IncrementalAlterConfigsRequestAlterableConfig

FORWARDED: Final = (ResourceType.TOPIC, ResourceType.CLIENT_METRICS, ResourceType.GROUP)

# Pools that grow and shrink by no more than half or double at a time.
THREADS: Final = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
)


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChanges:
    def __init__(self, config: NodeConfig, *, checks_brokers: bool = True) -> None:
        """Without `checks_brokers`, for a controller: brokers have checked theirs before they hand them on."""
        self._config = config
        self._node_id = config.static.int("node.id")
        self._checks_brokers = checks_brokers

    def check_incremental(
        self, image: MetadataImage, resource: IncrementalAlterConfigsRequestAlterConfigsResource, *, validate_only: bool
    ) -> bool:
        changes = resource.configs
        _check_entries(changes, [one.name for one in changes if one.config_operation != Operation.DELETE and one.value is None])
        match resource.resource_type:
            case ResourceType.BROKER_LOGGER:
                self._check_node_id(resource.resource_name)
                _check_logger_changes(changes)
                if not validate_only:
                    _set_levels(changes)
                return True
            case ResourceType.BROKER if not self._checks_brokers:
                pass
            case ResourceType.BROKER:
                per_broker = self._is_own(resource.resource_name)
                stored = image.config_of(ResourceType.BROKER, resource.resource_name)
                # What was no use before must not stand in the way of what is changed now.
                texts = changed(usable(stored, {}, per_broker=per_broker), changes)
                self._check_broker(texts, per_broker=per_broker)
            case other if other not in FORWARDED:
                raise _unknown_type(other)
        return False

    def check_whole(self, resource: AlterConfigsRequestAlterConfigsResource) -> bool:
        """AlterConfigs, which replaces all configs of a resource, and knows no loggers."""
        _check_entries(resource.configs, [one.name for one in resource.configs if one.value is None])
        if resource.resource_type == ResourceType.BROKER and not self._checks_brokers:
            return False
        if resource.resource_type == ResourceType.BROKER:
            texts = {one.name: one.value for one in resource.configs if one.value is not None}
            self._check_broker(texts, per_broker=self._is_own(resource.resource_name))
        elif resource.resource_type not in FORWARDED:
            raise _unknown_type(resource.resource_type)
        return False

    def _is_own(self, name: str) -> bool:
        """Whether it is this broker's own resource, not the default of all."""
        if name:
            self._check_node_id(name)
        return bool(name)

    def _check_node_id(self, name: str) -> None:
        if name != str(self._node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {self._node_id} changes its own configs only; found {name!r} where its id was expected.",
            )

    def _check_broker(self, texts: Mapping[str, str], *, per_broker: bool) -> None:
        node = self._config
        loaded = node.with_changes(broker=texts) if per_broker else node.with_changes(cluster=texts)
        if loaded.config is None:
            message = "; ".join(problem.message for problem in errors(loaded.problems))
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        _check_threads(node.current, loaded.config)


def changed(texts: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """The configs of a broker after `changes`."""
    result = dict(texts)
    for one in changes:
        match one.config_operation:
            case Operation.SET:
                result[one.name] = one.value or ""
            case Operation.DELETE:
                result.pop(one.name, None)
            case Operation.APPEND:
                old = _items(one, result)
                result[one.name] = ",".join(old + [item for item in (one.value or "").split(",") if item not in old])
            case Operation.SUBTRACT:
                gone = (one.value or "").split(",")
                result[one.name] = ",".join(item for item in _items(one, result) if item not in gone)
            case other:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{one.name}: there is no operation {other} on configs.")
    return result


def _items(change: Change, texts: Mapping[str, str]) -> list[str]:
    override = parse_override(change.name)
    key = override.key if override else BROKER.get(change.name)
    if key is None or key.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{change.name} is not a list: nothing can be appended to it or subtracted from it."
        )
    text = texts.get(change.name, to_text(key.default) or "")
    return text.split(",") if text else []


def _check_entries(
    entries: Sequence[Change] | Sequence[AlterConfigsRequestAlterableConfig], without_value: Sequence[str]
) -> None:
    repeated = [name for name, times in Counter(one.name for one in entries).items() if times > 1]
    if repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configs that are in the request more than once: {', '.join(repeated)}.")
    if without_value:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configs without a value: {', '.join(without_value)}.")


def _check_threads(old: Config, new: Config) -> None:
    for name in THREADS:
        before, after = old.int(name), new.int(name)
        if not before // 2 <= after <= before * 2:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name}={after} is too big a step: while it is {before} it can be changed to {max(before // 2, 1)} at least "
                f"and {before * 2} at most.",
            )


def _check_logger_changes(changes: Sequence[Change]) -> None:
    for one in changes:
        if one.config_operation not in (Operation.SET, Operation.DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{one.name}: the level of a logger can only be set or deleted.")
        if not broker_loggers.exists(one.name):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"There is no logger {one.name!r}.")
        if one.config_operation == Operation.SET and one.value not in broker_loggers.LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{one.name}: the level of a logger is one of {', '.join(broker_loggers.LEVELS)}; found {one.value!r}.",
            )
        if one.config_operation == Operation.DELETE and one.name == broker_loggers.ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The root logger needs a level: it can be set, not deleted.")


def _set_levels(changes: Sequence[Change]) -> None:
    for one in changes:
        if one.config_operation == Operation.SET:
            assert one.value is not None
            broker_loggers.set_level(one.name, one.value)
            logger.warning("the level of logger %s is %s now", one.name, one.value)
        else:
            broker_loggers.unset_level(one.name)
            logger.warning("logger %s has no level of its own any more", one.name)


def _unknown_type(resource_type: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Configs of resource type {resource_type} cannot be changed this way.")
