"""Delegation tokens in the metadata log, by their id. Principals are written as `User:name`.

A token's HMAC is not stored: whoever has delegation.token.secret.key makes it of the id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pybroker.metadata.draft import TrackedDraft
from pybroker.protocol.internal.metadata_log import DelegationTokenRecord, RemoveDelegationTokenRecord


@dataclass(slots=True, frozen=True)
class DelegationToken:
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


DelegationTokens = Mapping[str, DelegationToken]
TokensDraft = TrackedDraft[str, DelegationToken]


def replay_token(draft: TokensDraft, record: DelegationTokenRecord) -> None:
    token = DelegationToken(
        token_id=record.token_id,
        owner=record.owner,
        requester=record.requester,
        renewers=tuple(record.renewers),
        issue_timestamp_ms=record.issue_timestamp,
        expiry_timestamp_ms=record.expiration_timestamp,
        max_timestamp_ms=record.max_timestamp,
    )
    draft.put(token.token_id, token)


def replay_removed_token(draft: TokensDraft, record: RemoveDelegationTokenRecord) -> None:
    """One that is gone already stays gone: a sweep of expired tokens may meet a client that expires one."""
    draft.remove(record.token_id)


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=token.expiry_timestamp_ms,
        token_id=token.token_id,
    )


def token_records(tokens: DelegationTokens) -> Iterator[DelegationTokenRecord]:
    return map(token_record, tokens.values())
