"""AlterUserScramCredentials: each user of a request is judged for itself, and may be in it once.

Clients send a salted password; the keys that a server needs are made of it here, and nothing else is stored.
"""

from __future__ import annotations

from pybroker.metadata.controller.decisions import Result, check_record_count
from pybroker.metadata.controller.features import SCRAM, metadata_version, name_of_level
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.scram import ScramCredential, ScramUser, scram_record
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.internal.metadata_log import RemoveUserScramCredentialRecord
from pybroker.protocol.message import Message
from pybroker.protocol.messages.credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pybroker.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, keys_of, mechanism_of

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_user_scram_credentials(image: MetadataImage, request: AlterUserScramCredentialsRequest) -> Result:
    taken: dict[str, Message] = {}
    refused: dict[str, KafkaError] = {}
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    for one in alterations:
        if one.name in refused:
            continue
        try:
            if taken.pop(one.name, None) is not None:
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, f"User {one.name!r} is in the request more than once.")
            taken[one.name] = _decide(image, one)
        except KafkaError as error:
            refused[one.name] = error
    check_record_count(len(taken))
    results = [AlterUserScramCredentialsResult(user=user, error_code=ErrorCode.NONE, error_message=None) for user in taken]
    results += [
        AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
        for user, error in refused.items()
    ]
    return Result(list(taken.values()), AlterUserScramCredentialsResponse(results=results))


def _decide(image: MetadataImage, one: Alteration) -> Message:
    level = metadata_version(image)
    if level < SCRAM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {name_of_level(level)} has no SCRAM credentials; expected {name_of_level(SCRAM)} or later.",
        )
    if not one.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A user needs a name; found an empty one.")
    mechanism = mechanism_of(one.mechanism)
    if mechanism is None:
        known = ", ".join(f"{mechanism.value} ({mechanism.sasl_name})" for mechanism in ScramMechanism)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"SCRAM mechanism {one.mechanism} is not known; expected one of {known}."
        )
    user = ScramUser(one.name, mechanism)
    if isinstance(one, ScramCredentialDeletion):
        if user not in image.scram_credentials:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, f"User {one.name!r} has no credential for {mechanism.sasl_name} to delete."
            )
        return RemoveUserScramCredentialRecord(name=one.name, mechanism=mechanism)
    if not MIN_ITERATIONS <= one.iterations <= MAX_ITERATIONS:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Found {one.iterations} iterations; expected {MIN_ITERATIONS} to {MAX_ITERATIONS}.",
        )
    keys = keys_of(mechanism, bytes(one.salted_password))
    return scram_record(user, ScramCredential(bytes(one.salt), keys.stored_key, keys.server_key, one.iterations))
