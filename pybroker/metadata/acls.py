"""Access control entries in the metadata log: by the id that the controller gave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybroker.base.ids import Uuid, uuid_to_text
from pybroker.metadata.draft import MetadataReplayError, TrackedDraft
from pybroker.protocol.internal.metadata_log import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from pybroker.security.acls import Acl

Acls = Mapping[Uuid, Acl]
AclsDraft = TrackedDraft[Uuid, Acl]


def replay_acl(draft: AclsDraft, record: AccessControlEntryRecord) -> None:
    acl = Acl(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
    )
    draft.put(record.id, acl)


def replay_removed_acl(draft: AclsDraft, record: RemoveAccessControlEntryRecord) -> None:
    if draft.remove(record.id) is None:
        raise MetadataReplayError(f"access control entry {uuid_to_text(record.id)} is removed, but is not there")


def acl_record(id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def acl_records(acls: Acls) -> Iterator[AccessControlEntryRecord]:
    return (acl_record(id, acl) for id, acl in acls.items())
