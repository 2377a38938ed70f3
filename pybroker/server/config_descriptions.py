"""The entries of DescribeConfigs: what each config of a resource is now, where that comes from, and what else it could be.

Any thread. A resource that cannot be described ends in a KafkaError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pybroker.config.key import Key
from pybroker.config.keys import BROKER, CLIENT_METRICS, GROUP, TOPIC, WHILE_RUNNING
from pybroker.config.reading import parse_override, read_resource
from pybroker.config.resources import Described, Source, Synonym, describe_broker, describe_group, describe_topic
from pybroker.config.types import to_text
from pybroker.metadata.controller.topic_names import problem_with_name
from pybroker.metadata.image import MetadataImage, ResourceType
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from pybroker.server import broker_loggers
from pybroker.server.dynamic_config import NodeConfig

DYNAMIC_BROKER_LOGGER: Final = 6
CLIENT_METRICS_SOURCE: Final = 7
UNKNOWN_TYPE: Final = 0
_SOURCES: Final = (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER, Source.STATIC_BROKER)  # of the fields of Levels

Entry = DescribeConfigsResourceResult


class ConfigDescriptions:
    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._node_id = config.static.int("node.id")

    def of(
        self, image: MetadataImage, resource: DescribeConfigsResource, *, includes_synonyms: bool, includes_documentation: bool
    ) -> list[Entry]:
        name = resource.resource_name
        wanted = frozenset(resource.configuration_keys or ())
        match resource.resource_type:
            case ResourceType.TOPIC:
                entries = self._topic(image, name, wanted)
            case ResourceType.BROKER if not name:
                entries = self._cluster_default(wanted)
            case ResourceType.BROKER:
                self._check_node_id(name)
                entries = self._broker(wanted)
            case ResourceType.BROKER_LOGGER:
                self._check_node_id(name)
                return [_logger_entry(one) for one in broker_loggers.names() if not wanted or one in wanted]
            case ResourceType.CLIENT_METRICS:
                entries = _client_metrics(image, name, wanted)
            case ResourceType.GROUP:
                entries = self._group(image, name, wanted)
            case other:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"There are no configs of resource type {other}.")
        found = list(entries)
        for entry in found:
            if not includes_synonyms:
                entry.synonyms = []
            if not includes_documentation:
                entry.documentation = None
        return found

    def _topic(self, image: MetadataImage, topic: str, wanted: frozenset[str]) -> Iterator[Entry]:
        problem = problem_with_name(topic)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        overrides = image.config_of(ResourceType.TOPIC, topic)
        config, levels = self._config.current, self._config.levels
        return (_entry(name, describe_topic(name, overrides, config, levels)) for name in _chosen(TOPIC, wanted))

    def _group(self, image: MetadataImage, group: str, wanted: frozenset[str]) -> Iterator[Entry]:
        if not group:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A group's configs need the group's name; found an empty one.")
        overrides = image.config_of(ResourceType.GROUP, group)
        config, levels = self._config.current, self._config.levels
        return (_entry(name, describe_group(name, overrides, config, levels)) for name in _chosen(GROUP, wanted))

    def _broker(self, wanted: frozenset[str]) -> Iterator[Entry]:
        """Every key there is, and whatever else is set on any level."""
        levels = self._config.levels
        extra = dict.fromkeys(name for level in levels for name in level if name not in BROKER)
        names = [*_chosen(BROKER, wanted), *(name for name in extra if not wanted or name in wanted)]
        for name in names:
            if _key_of(name) is not None:
                yield _entry(name, describe_broker(name, levels))
            else:
                yield _unknown(name, [source for source, level in zip(_SOURCES, levels, strict=True) if name in level])

    def _cluster_default(self, wanted: frozenset[str]) -> Iterator[Entry]:
        """Only what is set for the cluster as a whole, and nothing of what would count otherwise."""
        levels = self._config.levels
        for name in levels.cluster:
            if wanted and name not in wanted:
                continue
            if _key_of(name) is None:
                yield _unknown(name, [Source.DYNAMIC_DEFAULT_BROKER])
                continue
            described = describe_broker(name, levels._replace(broker={}))
            own = tuple(one for one in described.synonyms if one.source is Source.DYNAMIC_DEFAULT_BROKER)
            yield _entry(name, described._replace(synonyms=own))

    def _check_node_id(self, name: str) -> None:
        if name != str(self._node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {self._node_id} knows its own configs only; found {name!r} where its id was expected.",
            )


def _client_metrics(image: MetadataImage, name: str, wanted: frozenset[str]) -> Iterator[Entry]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A client metrics subscription needs a name; found an empty one.")
    # Told as they are read: a list without the blanks that it was given with.
    values, _ = read_resource(CLIENT_METRICS, "client metrics", image.config_of(ResourceType.CLIENT_METRICS, name))
    overrides = {key_name: to_text(value) for key_name, value in values.items()}
    for key_name in sorted(_chosen(CLIENT_METRICS, wanted)):
        key = CLIENT_METRICS[key_name]
        given = overrides.get(key_name)
        entry = _entry(key_name, Described(key, to_text(key.default) if given is None else given, Source.DEFAULT, ()))
        if given is not None:
            entry.config_source = CLIENT_METRICS_SOURCE
            entry.synonyms = [DescribeConfigsSynonym(name=key_name, value=given, source=CLIENT_METRICS_SOURCE)]
        yield entry


def _chosen(keys: Mapping[str, Key], wanted: frozenset[str]) -> Iterable[str]:
    return (name for name, key in keys.items() if not key.internal and (not wanted or name in wanted))


def _key_of(name: str) -> Key | None:
    override = parse_override(name)
    return override.key if override else BROKER.get(name) or WHILE_RUNNING.get(name)


def _entry(name: str, described: Described) -> Entry:
    return Entry(
        name=name,
        value=None if described.sensitive else described.value,
        read_only=described.read_only,
        config_source=described.source,
        is_sensitive=described.sensitive,
        synonyms=[_synonym(one) for one in described.synonyms],
        config_type=described.key.type,
        documentation=described.key.doc,
    )


def _synonym(synonym: Synonym) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)


def _unknown(name: str, sources: list[Source]) -> Entry:
    """Who knows whether it is a password: its value is nobody's business."""
    return Entry(
        name=name,
        value=None,
        read_only=True,
        config_source=sources[0],
        is_sensitive=True,
        synonyms=[DescribeConfigsSynonym(name=name, value=None, source=source) for source in sources],
        config_type=UNKNOWN_TYPE,
        documentation=None,
    )


def _logger_entry(name: str) -> Entry:
    return Entry(
        name=name,
        value=broker_loggers.level_of(name),
        read_only=False,
        config_source=DYNAMIC_BROKER_LOGGER,
        is_sensitive=False,
        synonyms=[],
    )
