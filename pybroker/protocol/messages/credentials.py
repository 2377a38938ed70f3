"""SCRAM users and delegation tokens."""

from __future__ import annotations

from pybroker.protocol.message import Message, Struct, col


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = col("[]UserName", nullable="0+")


class UserName(Struct):
    name: str = col("string")


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    throttle_time_ms: int                                      = col("int32", default=0)
    error_code:       int                                      = col("int16")
    error_message:    str | None                               = col("string", nullable="0+")
    results:          list[DescribeUserScramCredentialsResult] = col("[]DescribeUserScramCredentialsResult")


class DescribeUserScramCredentialsResult(Struct):
    user:             str                  = col("string")
    error_code:       int                  = col("int16")
    error_message:    str | None           = col("string", nullable="0+")
    credential_infos: list[CredentialInfo] = col("[]CredentialInfo")


class CredentialInfo(Struct):
    mechanism:  int = col("int8")
    iterations: int = col("int32")


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    deletions:  list[ScramCredentialDeletion]  = col("[]ScramCredentialDeletion")
    upsertions: list[ScramCredentialUpsertion] = col("[]ScramCredentialUpsertion")


class ScramCredentialDeletion(Struct):
    name:      str = col("string")
    mechanism: int = col("int8")


class ScramCredentialUpsertion(Struct):
    name:            str   = col("string")
    mechanism:       int   = col("int8")
    iterations:      int   = col("int32")
    salt:            bytes = col("bytes")
    salted_password: bytes = col("bytes")


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    throttle_time_ms: int                                   = col("int32", default=0)
    results:          list[AlterUserScramCredentialsResult] = col("[]AlterUserScramCredentialsResult")


class AlterUserScramCredentialsResult(Struct):
    user:          str        = col("string")
    error_code:    int        = col("int16")
    error_message: str | None = col("string", nullable="0+")


class CreateDelegationTokenRequest(Message, key=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None              = col("string", "3+", nullable="3+", default="")
    owner_principal_name: str | None              = col("string", "3+", nullable="3+", default="")
    renewers:             list[CreatableRenewers] = col("[]CreatableRenewers")
    max_lifetime_ms:      int                     = col("int64")


class CreatableRenewers(Struct):
    principal_type: str = col("string")
    principal_name: str = col("string")


class CreateDelegationTokenResponse(Message, key=38, versions="1-3", flexible="2+"):
    error_code:                     int   = col("int16")
    principal_type:                 str   = col("string")
    principal_name:                 str   = col("string")
    token_requester_principal_type: str   = col("string", "3+", default="")
    token_requester_principal_name: str   = col("string", "3+", default="")
    issue_timestamp_ms:             int   = col("int64")
    expiry_timestamp_ms:            int   = col("int64")
    max_timestamp_ms:               int   = col("int64")
    token_id:                       str   = col("string")
    hmac:                           bytes = col("bytes")
    throttle_time_ms:               int   = col("int32", default=0)


class RenewDelegationTokenRequest(Message, key=39, versions="1-2", flexible="2+"):
    hmac:            bytes = col("bytes")
    renew_period_ms: int   = col("int64")


class RenewDelegationTokenResponse(Message, key=39, versions="1-2", flexible="2+"):
    error_code:          int = col("int16")
    expiry_timestamp_ms: int = col("int64")
    throttle_time_ms:    int = col("int32", default=0)


class ExpireDelegationTokenRequest(Message, key=40, versions="1-2", flexible="2+"):
    hmac:                  bytes = col("bytes")
    expiry_time_period_ms: int   = col("int64")


class ExpireDelegationTokenResponse(Message, key=40, versions="1-2", flexible="2+"):
    error_code:          int = col("int16")
    expiry_timestamp_ms: int = col("int64")
    throttle_time_ms:    int = col("int32", default=0)


class DescribeDelegationTokenRequest(Message, key=41, versions="1-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = col("[]DescribeDelegationTokenOwner", nullable="0+")


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = col("string")
    principal_name: str = col("string")


class DescribeDelegationTokenResponse(Message, key=41, versions="1-3", flexible="2+"):
    error_code:       int                            = col("int16")
    tokens:           list[DescribedDelegationToken] = col("[]DescribedDelegationToken")
    throttle_time_ms: int                            = col("int32", default=0)


class DescribedDelegationToken(Struct):
    principal_type:                 str                                   = col("string")
    principal_name:                 str                                   = col("string")
    token_requester_principal_type: str                                   = col("string", "3+", default="")
    token_requester_principal_name: str                                   = col("string", "3+", default="")
    issue_timestamp:                int                                   = col("int64")
    expiry_timestamp:               int                                   = col("int64")
    max_timestamp:                  int                                   = col("int64")
    token_id:                       str                                   = col("string")
    hmac:                           bytes                                 = col("bytes")
    renewers:                       list[DescribedDelegationTokenRenewer] = col("[]DescribedDelegationTokenRenewer")


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = col("string")
    principal_name: str = col("string")
