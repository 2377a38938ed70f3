"""AlterClientQuotas: limits of users, client ids, both together, or addresses.

Each entity of a request is judged for itself: all of its changes are taken, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from pybroker.metadata.controller.decisions import Result, Setting, check_record_count
from pybroker.metadata.image import EMPTY, MetadataImage
from pybroker.metadata.quotas import CLIENT_ID, IP, USER, QuotaEntity, quota_entity, quota_record
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.message import Message
from pybroker.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
)


class Limit(IntEnum):
    """The largest whole number that a quota can be; FRACTION is for those that need not be whole."""

    FRACTION = 0
    INT = 2**31 - 1
    LONG = 2**63 - 1


CLIENT_KEYS: Mapping[str, Limit] = MappingProxyType(
    {
        "producer_byte_rate": Limit.LONG,
        "consumer_byte_rate": Limit.LONG,
        "request_percentage": Limit.FRACTION,
        "controller_mutation_rate": Limit.FRACTION,
    }
)
IP_KEYS: Mapping[str, Limit] = MappingProxyType({"connection_creation_rate": Limit.INT})

_WHOLE = 1e-6  # as far as a number may be from a whole one


def alter_client_quotas(image: MetadataImage, setting: Setting, request: AlterClientQuotasRequest) -> Result:
    records: list[Message] = []
    verdicts: dict[QuotaEntity, KafkaError | None] = {}
    for entry in request.entries:
        entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
        try:
            if entity in verdicts:
                raise _invalid(f"{_shown(entity)} is in the request more than once; the first time counts.")
            verdicts[entity] = None
            records += _decide(image, setting, entity, entry)
        except KafkaError as error:
            verdicts[entity] = error
    check_record_count(len(records))
    entries = [_response(entity, verdict) for entity, verdict in verdicts.items()]
    return Result([] if request.validate_only else records, AlterClientQuotasResponse(entries=entries))


def _response(entity: QuotaEntity, error: KafkaError | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[EntityData(entity_type=part.type, entity_name=part.name) for part in entity],
    )


def _decide(
    image: MetadataImage, setting: Setting, entity: QuotaEntity, entry: AlterClientQuotasRequestEntryData
) -> list[Message]:
    keys = _keys_of(setting, entity)
    altered: dict[str, float | None] = {}
    for op in entry.ops:
        if op.key in altered:
            raise _invalid(f"{op.key} of {_shown(entity)} is in the request more than once.")
        altered[op.key] = None if op.remove else op.value
    present = image.client_quotas.get(entity, EMPTY)
    for key, value in altered.items():
        if value is not None:
            _check_value(keys, key, value)
    return [quota_record(entity, key, value) for key, value in altered.items() if value != present.get(key)]


def _keys_of(setting: Setting, entity: QuotaEntity) -> Mapping[str, Limit]:
    """The quotas that such an entity can have."""
    types = [part.type for part in entity]
    if not entity:
        raise _invalid("A quota needs an entity: a user, a client id, or an address; found none.")
    for part in entity:
        if part.type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"{part.type!r} is no type of entity; expected {USER}, {CLIENT_ID} or {IP}.")
        if part.name == "":
            raise _invalid(f"The name of a {part.type} is empty; expected a name, or null for the default.")
    if IP not in types:
        return CLIENT_KEYS
    if len(types) > 1:
        raise _invalid(f"An {IP} stands alone; found it together with {' and '.join(one for one in types if one != IP)}.")
    (address,) = (part.name for part in entity)
    if address is not None and not setting.is_address(address):
        raise _invalid(f"{address!r} is neither an address nor the name of a host that can be resolved.")
    return IP_KEYS


def _check_value(keys: Mapping[str, Limit], key: str, value: float) -> None:
    limit = keys.get(key)
    if limit is None:
        raise _invalid(f"{key!r} is no quota of such an entity; expected one of {', '.join(keys)}.")
    if not value > 0:
        raise _invalid(f"{key}={value}; a quota must be greater than 0.")
    # Compared as floats, as the limit of a long is then one more than it is.
    if limit is not Limit.FRACTION and value > float(limit):
        raise _invalid(f"{key}={value} is too large; expected at most {limit.value}.")
    if limit is not Limit.FRACTION and value % 1 > _WHOLE:
        raise _invalid(f"{key}={value}; expected a whole number.")


def _shown(entity: QuotaEntity) -> str:
    return ", ".join(f"{part.type} {'(default)' if part.name is None else repr(part.name)}" for part in entity)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
