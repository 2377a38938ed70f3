"""A client's request in an Envelope (KIP-590), as a broker wraps it and a controller unwraps it, and the answer likewise. Pure.

Inside is the request as the client could have sent it, header and all; beside it who the client is and where it connects
from. What is wrong with the envelope itself is an error of the envelope; what cannot be read inside is UNSUPPORTED_VERSION,
upon which the broker lets its client connect anew and ask for the versions again.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final, NamedTuple

from pybroker.network.answers import encode_answer
from pybroker.network.headers import BadRequestError, Table, read_header, table_of
from pybroker.protocol.api_table import API_BY_KEY, APIS, Api
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pybroker.protocol.internal.principal import DefaultPrincipalData
from pybroker.protocol.message import Message, encoder
from pybroker.protocol.messages.cluster import EnvelopeRequest, EnvelopeResponse
from pybroker.protocol.messages.headers import RequestHeader
from pybroker.security.principals import Principal

# What a broker may send on to the controller on a client's behalf.
FORWARDABLE: Final = frozenset(
    api.key
    for api in APIS
    if api.name
    in (
        "CreateTopics",
        "DeleteTopics",
        "CreateAcls",
        "DeleteAcls",
        "AlterConfigs",
        "CreatePartitions",
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "ElectLeaders",
        "IncrementalAlterConfigs",
        "AlterPartitionReassignments",
        "ListPartitionReassignments",
        "AlterClientQuotas",
        "AlterUserScramCredentials",
        "DescribeQuorum",
        "UpdateFeatures",
        "UnregisterBroker",
        "AllocateProducerIds",
        "AddRaftVoter",
        "RemoveRaftVoter",
    )
)
assert len(FORWARDABLE) == 21

_TABLE: Final[Table] = table_of({api.key: (api, api.versions) for api in APIS})
_version: Final = struct.Struct(">h")


class Forwarded(NamedTuple):
    """A request that came in an Envelope."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    frame: memoryview  # the request with its header
    position: int  # where its body starts
    principal: Principal
    host: str


# The broker's side.


def wrap(
    request: Message, version: int, correlation_id: int, client_id: str | None, who: Principal, host: str
) -> EnvelopeRequest:
    assert request.KEY in FORWARDABLE, f"{type(request).__name__} is not forwarded"
    api = API_BY_KEY[request.KEY]
    header = RequestHeader(
        request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    data = bytearray(header.encode(api.request_header_version(version)))
    encoder(type(request), version)(request, data, None)
    return EnvelopeRequest(request_data=bytes(data), request_principal=principal_bytes(who), client_host_address=_packed(host))


def principal_bytes(principal: Principal) -> bytes:
    """Its version first, in two bytes."""
    data = DefaultPrincipalData(type=principal.type, name=principal.name, token_authenticated=False)
    version = DefaultPrincipalData.VERSIONS.high
    return _version.pack(version) + data.encode(version)


# The controller's side.


def unwrap(envelope: EnvelopeRequest) -> Forwarded:
    """KafkaError, with the error that the envelope is answered with, if that cannot be."""
    principal = _principal_of(envelope.request_principal)
    address = envelope.client_host_address
    if len(address) not in (4, 16):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a client address of {len(address)} bytes; expected 4 or 16")
    frame = memoryview(envelope.request_data)
    try:
        served, correlation_id, client_id, position = read_header(_TABLE, frame)
    except BadRequestError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"inside is {error}") from error
    if served.api.key not in FORWARDABLE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{served.api.name} is not to be forwarded")
    host = str(ipaddress.ip_address(bytes(address)))
    return Forwarded(served.api, served.version, correlation_id, client_id, frame, position, principal, host)


def wrapped_answer(forwarded: Forwarded, response: Message) -> EnvelopeResponse:
    out = bytearray()
    encode_answer(response, forwarded.version, forwarded.correlation_id, out, [])
    return EnvelopeResponse(response_data=memoryview(out)[4:], error_code=ErrorCode.NONE)


def _principal_of(data: bytes | None) -> Principal:
    failure = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    if data is None or len(data) < _version.size:
        raise KafkaError(failure, "no principal; expected that of the client")
    (version,) = _version.unpack_from(data)
    try:
        found = DefaultPrincipalData.decode(version, data[_version.size :])
    except ProtocolError as error:
        raise KafkaError(failure, f"a principal that cannot be read: {error}") from error
    return Principal(found.type, found.name)


def _packed(host: str) -> bytes:
    """An IPv6 address may be followed by the interface that it is of."""
    return ipaddress.ip_address(host.partition("%")[0]).packed
