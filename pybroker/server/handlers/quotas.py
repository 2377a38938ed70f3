"""DescribeClientQuotas v0-1, AlterClientQuotas v0-1: described from the image, altered by the controller.

Any thread; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from pybroker.metadata.controller.refusals import refused
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.quotas import CLIENT_ID, IP, USER, QuotaEntity
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntryData,
    EntityData,
    ValueData,
)
from pybroker.server.forwarding import Forwarding


class MatchType(IntEnum):
    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class _Any:
    """Whatever the name is."""


ANY = _Any()
Wanted = Mapping[str, str | _Any | None]


class QuotaHandlers:
    def __init__(self, image_of: Callable[[], MetadataImage], forwarding: Forwarding, timeout_ms: Callable[[], int]) -> None:
        """`timeout_ms` is how long the controller is waited for."""
        self._image_of = image_of
        self._forwarding = forwarding
        self._timeout_ms = timeout_ms

    def handle_describe_client_quotas(
        self, request: Request, message: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        try:
            wanted = _wanted(message.components)
        except KafkaError as error:
            return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
        entries = [
            DescribeClientQuotasResponseEntryData(
                entity=[EntityData(entity_type=part.type, entity_name=part.name) for part in entity],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in self._image_of().client_quotas.items()
            if _matches(entity, wanted, is_strict=message.strict)
        ]
        return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message="", entries=entries)

    def handle_alter_client_quotas(self, request: Request, message: AlterClientQuotasRequest) -> None:
        self._forwarding.forward(
            request,
            message,
            self._timeout_ms(),
            lambda: refused(message, ErrorCode.REQUEST_TIMED_OUT, "The controller has not answered in time."),
        )


def _wanted(components: Iterable[ComponentData]) -> Wanted:
    wanted: dict[str, str | _Any | None] = {}
    for one in components:
        if not one.entity_type:
            raise _invalid("A part of the filter has no type of entity.")
        if one.entity_type in wanted:
            raise _invalid(f"{one.entity_type!r} is in the filter more than once.")
        if one.entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{one.entity_type!r} is no type of entity; expected {USER}, {CLIENT_ID} or {IP}.",
            )
        match one.match_type:
            case MatchType.EXACT if one.match is None:
                raise _invalid(f"The filter is for one {one.entity_type}, but names none.")
            case MatchType.EXACT:
                wanted[one.entity_type] = one.match
            case MatchType.DEFAULT | MatchType.SPECIFIED if one.match is not None:
                raise _invalid(f"The filter is for no certain {one.entity_type}, but names {one.match!r}.")
            case MatchType.DEFAULT:
                wanted[one.entity_type] = None
            case MatchType.SPECIFIED:
                wanted[one.entity_type] = ANY
            case other:
                raise _invalid(f"There is no type of match {other}; expected 0 to 2.")
    if IP in wanted and len(wanted) > 1:
        raise _invalid(f"An {IP} stands alone; found it in the filter together with others.")
    return wanted


def _matches(entity: QuotaEntity, wanted: Wanted, *, is_strict: bool) -> bool:
    if is_strict and len(entity) != len(wanted):
        return False
    names = dict(entity)
    return all(kind in names and (name is ANY or names[kind] == name) for kind, name in wanted.items())


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
