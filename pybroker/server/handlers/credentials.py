"""DescribeUserScramCredentials v0, AlterUserScramCredentials v0, CreateDelegationToken v1-3, RenewDelegationToken v1-2,
ExpireDelegationToken v1-2, DescribeDelegationToken v1-3.

Credentials are described from the image, without the keys, and altered by the controller. A delegation token stands for
somebody who has proved who they are: on a listener where nobody does, all requests about tokens are refused. Any thread;
nothing here waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pybroker.metadata.controller.refusals import refused
from pybroker.metadata.controller.tokens import no_token
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.scram import ScramUser
from pybroker.network.request import Request
from pybroker.protocol.errors import ErrorCode, clipped
from pybroker.protocol.messages.credentials import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    CredentialInfo,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from pybroker.security.principals import ANONYMOUS, Principal
from pybroker.security.scram import ScramMechanism
from pybroker.server.forwarding import Forwarding

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NO_TIMESTAMP = -1


class CredentialHandlers:
    def __init__(self, image_of: Callable[[], MetadataImage], forwarding: Forwarding, timeout_ms: Callable[[], int]) -> None:
        """`timeout_ms` is how long the controller is waited for."""
        self._image_of = image_of
        self._forwarding = forwarding
        self._timeout_ms = timeout_ms

    def handle_describe_user_scram_credentials(
        self, request: Request, message: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        image = self._image_of()
        named = Counter(user.name for user in message.users or ()) or Counter(
            {user.name: 1 for user in image.scram_credentials}
        )
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.NONE,
            error_message="",
            results=[_described(image, name, times) for name, times in named.items()],
        )

    def handle_alter_user_scram_credentials(self, request: Request, message: AlterUserScramCredentialsRequest) -> None:
        self._forwarding.forward(
            request,
            message,
            self._timeout_ms(),
            lambda: refused(message, ErrorCode.REQUEST_TIMED_OUT, "The controller has not answered in time."),
        )

    def handle_create_delegation_token(
        self, request: Request, message: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse:
        owner = ANONYMOUS
        if message.owner_principal_name:
            owner = Principal(message.owner_principal_type or "", message.owner_principal_name)
        response = no_token(owner, ANONYMOUS, NOT_ALLOWED, request.version)
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIMESTAMP
        return response

    def handle_renew_delegation_token(
        self, request: Request, message: RenewDelegationTokenRequest
    ) -> RenewDelegationTokenResponse:
        return RenewDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP)

    def handle_expire_delegation_token(
        self, request: Request, message: ExpireDelegationTokenRequest
    ) -> ExpireDelegationTokenResponse:
        return ExpireDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP)

    def handle_describe_delegation_token(
        self, request: Request, message: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse:
        return DescribeDelegationTokenResponse(error_code=NOT_ALLOWED, tokens=[])


def _described(image: MetadataImage, name: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, f"User {name!r} is in the request {times} times.")
    infos = [
        CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism in ScramMechanism
        if (credential := image.scram_credentials.get(ScramUser(name, mechanism))) is not None
    ]
    if not infos:
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, f"User {name!r} has no SCRAM credentials.")
    return DescribeUserScramCredentialsResult(user=name, error_code=ErrorCode.NONE, error_message="", credential_infos=infos)


def _refused(name: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=clipped(message), credential_infos=[])
