"""Client quotas in the metadata log: for each entity, which is a user, a client id, both, or an address, its limits by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pybroker.metadata.draft import TrackedDraft
from pybroker.protocol.internal.metadata_log import ClientQuotaRecord, EntityData

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class EntityPart(NamedTuple):
    """`name` is None for the default of the type."""

    type: str
    name: str | None


# Sorted by type, so that equal entities are equal tuples.
QuotaEntity = tuple[EntityPart, ...]
ClientQuotas = Mapping[QuotaEntity, Mapping[str, float]]
QuotasDraft = TrackedDraft[QuotaEntity, Mapping[str, float]]


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Of a type that is there twice the last name counts."""
    return tuple(EntityPart(*part) for part in sorted(dict(parts).items()))


def replay_quota(draft: QuotasDraft, record: ClientQuotaRecord) -> None:
    entity = quota_entity((part.entity_type, part.entity_name) for part in record.entity)
    quotas = dict(draft.now.get(entity, {}))
    if record.remove:
        quotas.pop(record.key, None)
    else:
        quotas[record.key] = record.value
    if quotas:
        draft.put(entity, quotas)
    else:
        draft.remove(entity)


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """None takes the quota away."""
    parts = [EntityData(entity_type=part.type, entity_name=part.name) for part in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)


def quota_records(quotas: ClientQuotas) -> Iterator[ClientQuotaRecord]:
    return (quota_record(entity, key, value) for entity, limits in quotas.items() for key, value in limits.items())
