"""DescribeConfigs v1-4, IncrementalAlterConfigs v0-1, AlterConfigs v0-2, ListConfigResources v0-1.

What is described is what this broker goes by. Of a change the broker checks what it alone can know: whether its own configs
would still hold together, and its loggers, whose levels it sets at once; the controller decides on the rest and stores it.
Any thread; nothing here waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from pybroker.metadata.image import MetadataImage, ResourceType
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode, KafkaError, error_of
from pybroker.protocol.message import Message
from pybroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from pybroker.server.config_changes import ConfigChanges
from pybroker.server.config_descriptions import ConfigDescriptions
from pybroker.server.dynamic_config import NodeConfig
from pybroker.server.forwarding import Forwarding

logger = logging.getLogger(__name__)

Resource = IncrementalAlterConfigsRequestAlterConfigsResource | AlterConfigsRequestAlterConfigsResource
Verdicts = dict[int, KafkaError | None]

# In the order in which Apache Kafka lists them.
LISTED_TYPES: Final = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


class ConfigHandlers:
    def __init__(
        self,
        image_of: Callable[[], MetadataImage],
        config: NodeConfig,
        forwarding: Forwarding,
        *,
        is_controller: bool = False,
    ) -> None:
        """`is_controller`: the configs of any broker can be changed here, and are those of others to check."""
        self._image_of = image_of
        self._config = config
        self._forwarding = forwarding
        self._descriptions = ConfigDescriptions(config)
        self._changes = ConfigChanges(config, checks_brokers=not is_controller)

    def handle_describe_configs(self, request: Request, message: DescribeConfigsRequest) -> DescribeConfigsResponse:
        image = self._image_of()
        strange = [one.resource_type for one in message.resources if one.resource_type not in LISTED_TYPES]
        results = []
        for one in message.resources:
            result = DescribeConfigsResult(
                error_code=ErrorCode.NONE,
                error_message="",
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                configs=[],
            )
            results.append(result)
            try:
                if strange:
                    # As with Apache Kafka, it spoils the whole request.
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"There are no configs of resource type {strange[0]}.")
                result.configs = self._descriptions.of(
                    image,
                    one,
                    includes_synonyms=message.include_synonyms,
                    includes_documentation=message.include_documentation,
                )
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
        return DescribeConfigsResponse(results=results)

    def handle_incremental_alter_configs(self, request: Request, message: IncrementalAlterConfigsRequest) -> None:
        image = self._image_of()
        check = self._changes.check_incremental
        verdicts = _judged(message.resources, lambda one: check(image, one, validate_only=message.validate_only))
        rest = [one for number, one in enumerate(message.resources) if number not in verdicts]
        forwarded = IncrementalAlterConfigsRequest(resources=rest, validate_only=message.validate_only)
        self._forward(request, message.resources, verdicts, forwarded if rest else None, IncrementalAlterConfigsResponse)

    def handle_alter_configs(self, request: Request, message: AlterConfigsRequest) -> None:
        verdicts = _judged(message.resources, self._changes.check_whole)
        rest = [one for number, one in enumerate(message.resources) if number not in verdicts]
        forwarded = AlterConfigsRequest(resources=rest, validate_only=message.validate_only)
        self._forward(request, message.resources, verdicts, forwarded if rest else None, AlterConfigsResponse)

    def _forward(
        self,
        request: Request,
        resources: Sequence[Resource],
        verdicts: Verdicts,
        rest: Message | None,
        response: type[IncrementalAlterConfigsResponse] | type[AlterConfigsResponse],
    ) -> None:
        if rest is None:
            request.respond(response(responses=_assembled(resources, verdicts, {})))
            return

        def answer_of(answer: Message) -> Message:
            assert isinstance(answer, response), answer
            answered = {(one.resource_type, one.resource_name): one for one in answer.responses}
            return response(responses=_assembled(resources, verdicts, answered))

        def timed_out() -> Message:
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller has not answered in time.")
            everything: Verdicts = dict.fromkeys(range(len(resources)), late)
            return response(responses=_assembled(resources, everything | verdicts, {}))

        timeout_ms = self._config.current.int("request.timeout.ms")
        self._forwarding.forward(request, rest, timeout_ms, timed_out, answer_of=answer_of)

    def handle_list_config_resources(
        self, request: Request, message: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        # Version 0 was ListClientMetricsResources.
        wanted = set(message.resource_types) if request.version else {ResourceType.CLIENT_METRICS}
        if not wanted <= set(LISTED_TYPES):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
        image = self._image_of()
        return ListConfigResourcesResponse(
            error_code=ErrorCode.NONE,
            config_resources=[
                ConfigResource(resource_name=name, resource_type=kind)
                for kind in LISTED_TYPES
                if not wanted or kind in wanted
                for name in _listed(image, kind)
            ],
        )


def _judged(resources: Sequence[Resource], check: Callable[..., bool]) -> Verdicts:
    """By number, what is decided here: refusals, and None for what is done. The controller decides on the others."""
    verdicts: Verdicts = {}
    named = [(one.resource_type, one.resource_name) for one in resources]
    for number, one in enumerate(resources):
        try:
            if named.count(named[number]) > 1:
                what = f"Resource {one.resource_name!r} of type {one.resource_type}"
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} is in the request more than once.")
            if check(one):
                verdicts[number] = None
        except KafkaError as error:
            logger.info("configs of %s (type %d) are not changed: %s", one.resource_name, one.resource_type, error.message)
            verdicts[number] = error
    return verdicts


def _assembled(
    resources: Sequence[Resource], verdicts: Verdicts, answered: dict[tuple[int, str], AlterConfigsResourceResponse]
) -> list[AlterConfigsResourceResponse]:
    """One result per resource, in the order of the request."""
    results = []
    for number, one in enumerate(resources):
        key = (one.resource_type, one.resource_name)
        code, text = ErrorCode.UNKNOWN_SERVER_ERROR, "The controller has not answered for this resource."
        if number in verdicts:
            verdict = verdicts[number]
            code, text = (ErrorCode.NONE, "") if verdict is None else (verdict.code, verdict.message)
        elif key in answered:
            code, text = error_of(answered[key].error_code), answered[key].error_message or ""
        results.append(
            AlterConfigsResourceResponse(
                error_code=code, error_message=text or None, resource_type=one.resource_type, resource_name=one.resource_name
            )
        )
    return results


def _listed(image: MetadataImage, kind: int) -> list[str]:
    """Every topic and every broker, with configs or without; of the others those that have some."""
    if kind == ResourceType.TOPIC:
        return list(image.topics)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker.id) for broker in image.brokers.values()]
    return [resource.name for resource in image.configs if resource.type == kind]
