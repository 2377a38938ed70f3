"""The SCRAM credentials of users in the metadata log: one for each user and mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pybroker.metadata.draft import MetadataReplayError, TrackedDraft
from pybroker.protocol.internal.metadata_log import RemoveUserScramCredentialRecord, UserScramCredentialRecord


class ScramUser(NamedTuple):
    name: str
    mechanism: int


@dataclass(slots=True, frozen=True)
class ScramCredential:
    """Keys in place of a password; they are not for logs, so they do not show."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


ScramCredentials = Mapping[ScramUser, ScramCredential]
ScramDraft = TrackedDraft[ScramUser, ScramCredential]


def replay_scram(draft: ScramDraft, record: UserScramCredentialRecord) -> None:
    credential = ScramCredential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)
    draft.put(ScramUser(record.name, record.mechanism), credential)


def replay_removed_scram(draft: ScramDraft, record: RemoveUserScramCredentialRecord) -> None:
    user = ScramUser(record.name, record.mechanism)
    if draft.remove(user) is None:
        raise MetadataReplayError(f"{user} is removed, but is not there")


def scram_record(user: ScramUser, credential: ScramCredential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user.name,
        mechanism=user.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def scram_records(credentials: ScramCredentials) -> Iterator[UserScramCredentialRecord]:
    return (scram_record(user, credential) for user, credential in credentials.items())
