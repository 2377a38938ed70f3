"""IncrementalAlterConfigs and AlterConfigs, for topics, brokers, the cluster's default, groups and client metrics.

Each resource of a request stands for itself: all of its changes are taken, or none. What applies to a broker is checked
against the controller's own file with the dynamic configs on top, as that broker would be after a restart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from pybroker.config.key import Key
from pybroker.config.keys import BROKER, CLIENT_METRICS, TOPIC
from pybroker.config.problems import Problem, errors
from pybroker.config.reading import parse_override, read_resource
from pybroker.config.resources import check_group, check_topic
from pybroker.config.types import ConfigType, to_text
from pybroker.metadata.controller import elr
from pybroker.metadata.controller.decisions import Result, Setting, check_record_count
from pybroker.metadata.controller.topic_names import problem_with_name
from pybroker.metadata.image import ConfigResource, MetadataImage, ResourceType
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import ConfigRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from pybroker.protocol.wire import MAX_STRING_BYTES

MIN_METRICS_INTERVAL_MS, MAX_METRICS_INTERVAL_MS = 100, 3_600_000
_MATCH_SELECTORS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_ALTERABLE = frozenset({ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP})

AlteredResource = IncrementalAlterConfigsRequestAlterConfigsResource | AlterConfigsRequestAlterConfigsResource
AlteredConfig = IncrementalAlterConfigsRequestAlterableConfig | AlterConfigsRequestAlterableConfig


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_alter_configs(image: MetadataImage, setting: Setting, request: IncrementalAlterConfigsRequest) -> Result:
    records: list[Message] = []
    responses = []
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    for one in request.resources:
        resource = ConfigResource(one.resource_type, one.resource_name)
        try:
            _check_request(one, named, (change.name for change in one.configs if _lacks_value(change)))
            altered = {change.name: _changed(image, resource, change) for change in one.configs}
            records += _decide(image, setting, resource, altered)
        except KafkaError as error:
            responses.append(_response(resource, error.code, error.message))
        else:
            responses.append(_response(resource, ErrorCode.NONE))
    records += elr.clearing(image, records)
    check_record_count(len(records))
    return Result([] if request.validate_only else records, IncrementalAlterConfigsResponse(responses=responses))


def alter_configs(image: MetadataImage, setting: Setting, request: AlterConfigsRequest) -> Result:
    """The older API: what is not mentioned is deleted."""
    records: list[Message] = []
    responses = []
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    for one in request.resources:
        resource = ConfigResource(one.resource_type, one.resource_name)
        try:
            _check_request(one, named, (given.name for given in one.configs if given.value is None))
            altered = {given.name: given.value for given in one.configs}
            altered |= {name: None for name in image.config_of(*resource) if name not in altered}
            records += _decide(image, setting, resource, altered)
        except KafkaError as error:
            responses.append(_response(resource, error.code, error.message))
        else:
            responses.append(_response(resource, ErrorCode.NONE))
    records += elr.clearing(image, records)
    check_record_count(len(records))
    return Result([] if request.validate_only else records, AlterConfigsResponse(responses=responses))


def _response(resource: ConfigResource, code: ErrorCode, message: str | None = None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
    )


def _check_request(one: AlteredResource, named: Mapping[tuple[int, str], int], without_value: Iterable[str]) -> None:
    """What is wrong with the request, whatever the cluster is like."""
    refused = None
    missing = sorted(set(without_value))
    configs: Sequence[AlteredConfig] = one.configs
    twice = sorted(name for name, times in Counter(change.name for change in configs).items() if times > 1)
    if named[one.resource_type, one.resource_name] > 1:
        refused = f"Resource {one.resource_name!r} is in the request more than once."
    elif one.resource_type not in _ALTERABLE:
        refused = f"Configs of resource type {one.resource_type} cannot be altered here."
    elif twice:
        refused = f"Keys that are in the request more than once: {', '.join(twice)}."
    elif missing:
        refused = f"Keys without a value: {', '.join(missing)}."
    if refused is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, refused)


def _lacks_value(change: IncrementalAlterConfigsRequestAlterableConfig) -> bool:
    return change.value is None and change.config_operation != Operation.DELETE


def _changed(
    image: MetadataImage, resource: ConfigResource, change: IncrementalAlterConfigsRequestAlterableConfig
) -> str | None:
    """The value of a key after one operation on it."""
    name, value = change.name, change.value or ""
    if change.config_operation == Operation.SET:
        return value
    if change.config_operation == Operation.DELETE:
        return None
    if change.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{name}: there is no operation {change.config_operation}; expected 0 to 3."
        )
    key = _key(resource.type, name)
    if key is None or key.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list: nothing can be appended or subtracted.")
    present = image.config_of(*resource).get(name)
    parts = list(filter(None, (to_text(key.default) or "" if present is None else present).split(",")))
    if change.config_operation == Operation.APPEND:
        known = set(parts)
        parts += [one for one in dict.fromkeys(value.split(",")) if one not in known]
    else:
        gone = set(value.split(","))
        parts = [one for one in parts if one not in gone]
    joined = ",".join(parts)
    if len(joined.encode()) > MAX_STRING_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{name} would have {len(joined.encode())} bytes; a config takes at most {MAX_STRING_BYTES}.",
        )
    return joined


def _key(type: int, name: str) -> Key | None:
    if type == ResourceType.TOPIC:
        return TOPIC.get(name)
    if type == ResourceType.BROKER:
        override = parse_override(name)
        return override.key if override else BROKER.get(name)
    return None


def _decide(
    image: MetadataImage, setting: Setting, resource: ConfigResource, altered: Mapping[str, str | None]
) -> list[Message]:
    """The records of the changes, None being a deletion, if the resource may have what it then has."""
    present = image.config_of(*resource)
    merged = dict(present)
    for name, value in altered.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    if resource.type == ResourceType.TOPIC:
        _check_topic(image, setting, resource.name, merged, present)
    elif resource.type == ResourceType.BROKER:
        _check_broker(image, setting, resource.name, merged)
    elif resource.type == ResourceType.GROUP:
        _check_group(image, setting, resource.name, merged)
    else:
        _check_client_metrics(resource.name, merged)
    for name, value in altered.items():
        elr.check_change(image, resource, name, value)
    # A broker reloads what its configs name, a key store say, even if the value is the one it has.
    is_broker = resource.type == ResourceType.BROKER
    return [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
        for name, value in altered.items()
        if is_broker or value != present.get(name)
    ]


def _check_topic(
    image: MetadataImage, setting: Setting, name: str, configs: Mapping[str, str], present: Mapping[str, str]
) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topics have no common default; expected the name of a topic.")
    problem = problem_with_name(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    _refuse(ErrorCode.INVALID_CONFIG, check_topic(configs, setting.effective.of(image).config, present))
    if name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")


def _check_broker(image: MetadataImage, setting: Setting, name: str, configs: Mapping[str, str]) -> None:
    if name and not name.isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Found broker {name!r}; expected its id, or '' for all.")
    if name and int(name) not in image.brokers and int(name) not in image.controllers:
        known = ", ".join(map(str, sorted({*image.brokers, *image.controllers})))
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Found node {name}; expected one that is registered ({known}), or '' for all."
        )
    if name and int(name) != setting.config["node.id"]:
        return  # whether it fits its other configs that node has to say
    if name:
        cluster, broker = image.config_of(ResourceType.BROKER, ""), configs
    else:
        cluster, broker = configs, image.config_of(ResourceType.BROKER, str(setting.config["node.id"]))
    _refuse(ErrorCode.INVALID_REQUEST, setting.config.with_changes(cluster, broker).problems)


def _check_group(image: MetadataImage, setting: Setting, name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Groups have no common default; expected the id of a group.")
    _refuse(ErrorCode.INVALID_CONFIG, check_group(configs, setting.effective.of(image).config))


def _check_client_metrics(name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A subscription to client metrics needs a name.")
    unknown = sorted(configs.keys() - CLIENT_METRICS.keys())
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Not configs of client metrics: {', '.join(unknown)}.")
    values, problems = read_resource(CLIENT_METRICS, "client metrics", configs)
    _refuse(ErrorCode.INVALID_CONFIG, problems)
    interval_ms = values.get("interval.ms", MIN_METRICS_INTERVAL_MS)
    if not MIN_METRICS_INTERVAL_MS <= interval_ms <= MAX_METRICS_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"interval.ms={interval_ms}; expected {MIN_METRICS_INTERVAL_MS} to {MAX_METRICS_INTERVAL_MS}.",
        )
    for pattern in values.get("match", ()):
        selector, _equals, expression = pattern.partition("=")
        if selector.strip() not in _MATCH_SELECTORS or not expression or "=" in expression or not _compiles(expression):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"match has {pattern!r}; expected selector=regular expression, with a selector of "
                f"{', '.join(sorted(_MATCH_SELECTORS))}.",
            )


def _compiles(expression: str) -> bool:
    try:
        re.compile(expression.strip())
    except re.error:
        return False
    return True


def _refuse(code: ErrorCode, problems: Iterable[Problem]) -> None:
    found = errors(problems)
    if found:
        raise KafkaError(code, "; ".join(problem.message for problem in found))
