"""Delegation tokens: created, renewed, expired, and swept away when their time is over.

A token is known to its owner by the HMAC of its id under delegation.token.secret.key; without that key there are no tokens.
Principals are `User:name`.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from itertools import islice

from pybroker.base.ids import uuid_to_text
from pybroker.config.types import Password
from pybroker.metadata.controller.decisions import Result, Setting
from pybroker.metadata.controller.features import DELEGATION_TOKENS, metadata_version, name_of_level
from pybroker.metadata.controller.view import View
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.tokens import DelegationToken, token_record
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import RemoveDelegationTokenRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.credentials import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from pybroker.security.principals import USER_TYPE, Principal

MAX_SWEPT = 1000
REQUESTER_SINCE = 3
_MAX_TIMESTAMP_MS = 2**63 - 1


def create_delegation_token(
    image: MetadataImage,
    setting: Setting,
    now_ms: int,
    requester: Principal,
    request: CreateDelegationTokenRequest,
    version: int,
) -> Result:
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    response = no_token(owner, requester, ErrorCode.NONE, version)
    try:
        secret = _secret(image, setting)
        if any(one.principal_type != USER_TYPE for one in request.renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, f"Renewers are of type {USER_TYPE}.")
    except KafkaError as error:
        response.error_code = error.code
        return Result([], response)
    lifetime_ms = setting.config.int("delegation.token.max.lifetime.ms")
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_timestamp_ms = _sum(now_ms, lifetime_ms)
    token = DelegationToken(
        token_id=uuid_to_text(setting.new_uuid()),
        owner=str(owner),
        requester=str(requester),
        renewers=tuple(str(Principal(one.principal_type, one.principal_name)) for one in request.renewers),
        issue_timestamp_ms=now_ms,
        expiry_timestamp_ms=min(max_timestamp_ms, _sum(now_ms, setting.config.int("delegation.token.expiry.time.ms"))),
        max_timestamp_ms=max_timestamp_ms,
    )
    response.issue_timestamp_ms = token.issue_timestamp_ms
    response.expiry_timestamp_ms = token.expiry_timestamp_ms
    response.max_timestamp_ms = token.max_timestamp_ms
    response.token_id = token.token_id
    response.hmac = token_hmac(secret, token.token_id)
    return Result([token_record(token)], response)


def no_token(owner: Principal, requester: Principal, code: ErrorCode, version: int) -> CreateDelegationTokenResponse:
    """The answer to a request for a token that is refused; who asked is told since version 3."""
    tells = version >= REQUESTER_SINCE
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type if tells else "",
        token_requester_principal_name=requester.name if tells else "",
        issue_timestamp_ms=0,
        expiry_timestamp_ms=0,
        max_timestamp_ms=0,
        token_id="",
        hmac=b"",
    )


def renew_delegation_token(
    image: MetadataImage, setting: Setting, now_ms: int, renewer: Principal, request: RenewDelegationTokenRequest
) -> Result:
    token = _found(image, setting, bytes(request.hmac))
    _check_live(token, now_ms)
    _check_renewer(token, renewer)
    period_ms = setting.config.int("delegation.token.expiry.time.ms")
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expiry_ms = min(token.max_timestamp_ms, _sum(now_ms, period_ms))
    record = token_record(replace(token, expiry_timestamp_ms=expiry_ms))
    return Result([record], RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry_ms))


def expire_delegation_token(
    image: MetadataImage, setting: Setting, now_ms: int, renewer: Principal, request: ExpireDelegationTokenRequest
) -> Result:
    token = _found(image, setting, bytes(request.hmac))
    _check_renewer(token, renewer)
    record: Message
    if request.expiry_time_period_ms < 0:
        expiry_ms, record = now_ms, RemoveDelegationTokenRecord(token_id=token.token_id)
    else:
        _check_live(token, now_ms)
        expiry_ms = min(token.max_timestamp_ms, _sum(now_ms, request.expiry_time_period_ms))
        record = token_record(replace(token, expiry_timestamp_ms=expiry_ms))
    return Result([record], ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry_ms))


def sweep(view: View) -> list[Message]:
    """Take away the tokens whose time is over, so many at a time."""
    over = (token for token in view.image.delegation_tokens.values() if _is_over(token, view.now_ms))
    return [RemoveDelegationTokenRecord(token_id=token.token_id) for token in islice(over, MAX_SWEPT)]


def token_hmac(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), hashlib.sha512)


def _secret(image: MetadataImage, setting: Setting) -> str:
    secret: Password | None = setting.config["delegation.token.secret.key"]
    if secret is None:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "There are no delegation tokens: delegation.token.secret.key is not set."
        )
    level = metadata_version(image)
    if level < DELEGATION_TOKENS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {name_of_level(level)} has no delegation tokens; expected {name_of_level(DELEGATION_TOKENS)}.",
        )
    return secret.value


def _found(image: MetadataImage, setting: Setting, wanted: bytes) -> DelegationToken:
    secret = _secret(image, setting)
    for token in image.delegation_tokens.values():
        if hmac.compare_digest(token_hmac(secret, token.token_id), wanted):
            return token
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no delegation token with this HMAC.")


def _check_live(token: DelegationToken, now_ms: int) -> None:
    if _is_over(token, now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"Delegation token {token.token_id} has expired.")


def _is_over(token: DelegationToken, now_ms: int) -> bool:
    return min(token.max_timestamp_ms, token.expiry_timestamp_ms) < now_ms


def _check_renewer(token: DelegationToken, renewer: Principal) -> None:
    if str(renewer) not in (token.owner, *token.renewers):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
            f"{renewer} is neither the owner nor a renewer of delegation token {token.token_id}.",
        )


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, _MAX_TIMESTAMP_MS)
