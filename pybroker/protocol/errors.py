"""The error codes of the protocol, and the two exceptions that carry a refusal upwards.

`ErrorCode` is what a response holds; a code is retriable when a client, on its own, sends the same request again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

RETRIABLE: Final = True


class ErrorCode(IntEnum):
    retriable: bool

    def __new__(cls, code: int, retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        return member

    UNKNOWN_SERVER_ERROR                  = -1
    NONE                                  = 0
    OFFSET_OUT_OF_RANGE                   = 1
    CORRUPT_MESSAGE                       = 2, RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION            = 3, RETRIABLE
    INVALID_FETCH_SIZE                    = 4
    LEADER_NOT_AVAILABLE                  = 5, RETRIABLE
    NOT_LEADER_OR_FOLLOWER                = 6, RETRIABLE
    REQUEST_TIMED_OUT                     = 7, RETRIABLE
    BROKER_NOT_AVAILABLE                  = 8
    REPLICA_NOT_AVAILABLE                 = 9, RETRIABLE
    MESSAGE_TOO_LARGE                     = 10
    STALE_CONTROLLER_EPOCH                = 11
    OFFSET_METADATA_TOO_LARGE             = 12
    NETWORK_EXCEPTION                     = 13, RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS          = 14, RETRIABLE
    COORDINATOR_NOT_AVAILABLE             = 15, RETRIABLE
    NOT_COORDINATOR                       = 16, RETRIABLE
    INVALID_TOPIC_EXCEPTION               = 17
    RECORD_LIST_TOO_LARGE                 = 18
    NOT_ENOUGH_REPLICAS                   = 19, RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND      = 20, RETRIABLE
    INVALID_REQUIRED_ACKS                 = 21
    ILLEGAL_GENERATION                    = 22
    INCONSISTENT_GROUP_PROTOCOL           = 23
    INVALID_GROUP_ID                      = 24
    UNKNOWN_MEMBER_ID                     = 25
    INVALID_SESSION_TIMEOUT               = 26
    REBALANCE_IN_PROGRESS                 = 27
    INVALID_COMMIT_OFFSET_SIZE            = 28
    TOPIC_AUTHORIZATION_FAILED            = 29
    GROUP_AUTHORIZATION_FAILED            = 30
    CLUSTER_AUTHORIZATION_FAILED          = 31
    INVALID_TIMESTAMP                     = 32
    UNSUPPORTED_SASL_MECHANISM            = 33
    ILLEGAL_SASL_STATE                    = 34
    UNSUPPORTED_VERSION                   = 35
    TOPIC_ALREADY_EXISTS                  = 36
    INVALID_PARTITIONS                    = 37
    INVALID_REPLICATION_FACTOR            = 38
    INVALID_REPLICA_ASSIGNMENT            = 39
    INVALID_CONFIG                        = 40
    NOT_CONTROLLER                        = 41, RETRIABLE
    INVALID_REQUEST                       = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT        = 43
    POLICY_VIOLATION                      = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER          = 45
    DUPLICATE_SEQUENCE_NUMBER             = 46
    INVALID_PRODUCER_EPOCH                = 47
    INVALID_TXN_STATE                     = 48
    INVALID_PRODUCER_ID_MAPPING           = 49
    INVALID_TRANSACTION_TIMEOUT           = 50
    CONCURRENT_TRANSACTIONS               = 51, RETRIABLE
    TRANSACTION_COORDINATOR_FENCED        = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED                     = 54
    OPERATION_NOT_ATTEMPTED               = 55
    KAFKA_STORAGE_ERROR                   = 56, RETRIABLE
    LOG_DIR_NOT_FOUND                     = 57
    SASL_AUTHENTICATION_FAILED            = 58
    UNKNOWN_PRODUCER_ID                   = 59
    REASSIGNMENT_IN_PROGRESS              = 60
    DELEGATION_TOKEN_AUTH_DISABLED        = 61
    DELEGATION_TOKEN_NOT_FOUND            = 62
    DELEGATION_TOKEN_OWNER_MISMATCH       = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED  = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED              = 66
    INVALID_PRINCIPAL_TYPE                = 67
    NON_EMPTY_GROUP                       = 68
    GROUP_ID_NOT_FOUND                    = 69
    FETCH_SESSION_ID_NOT_FOUND            = 70, RETRIABLE
    INVALID_FETCH_SESSION_EPOCH           = 71, RETRIABLE
    LISTENER_NOT_FOUND                    = 72, RETRIABLE
    TOPIC_DELETION_DISABLED               = 73
    FENCED_LEADER_EPOCH                   = 74, RETRIABLE
    UNKNOWN_LEADER_EPOCH                  = 75, RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE          = 76
    STALE_BROKER_EPOCH                    = 77
    OFFSET_NOT_AVAILABLE                  = 78, RETRIABLE
    MEMBER_ID_REQUIRED                    = 79
    PREFERRED_LEADER_NOT_AVAILABLE        = 80, RETRIABLE
    GROUP_MAX_SIZE_REACHED                = 81
    FENCED_INSTANCE_ID                    = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE        = 83, RETRIABLE
    ELECTION_NOT_NEEDED                   = 84, RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS           = 85
    GROUP_SUBSCRIBED_TO_TOPIC             = 86
    INVALID_RECORD                        = 87
    UNSTABLE_OFFSET_COMMIT                = 88, RETRIABLE
    THROTTLING_QUOTA_EXCEEDED             = 89, RETRIABLE
    PRODUCER_FENCED                       = 90
    RESOURCE_NOT_FOUND                    = 91
    DUPLICATE_RESOURCE                    = 92
    UNACCEPTABLE_CREDENTIAL               = 93
    INCONSISTENT_VOTER_SET                = 94
    INVALID_UPDATE_VERSION                = 95
    FEATURE_UPDATE_FAILED                 = 96
    PRINCIPAL_DESERIALIZATION_FAILURE     = 97
    SNAPSHOT_NOT_FOUND                    = 98
    POSITION_OUT_OF_RANGE                 = 99
    UNKNOWN_TOPIC_ID                      = 100, RETRIABLE
    DUPLICATE_BROKER_REGISTRATION         = 101
    BROKER_ID_NOT_REGISTERED              = 102
    INCONSISTENT_TOPIC_ID                 = 103, RETRIABLE
    INCONSISTENT_CLUSTER_ID               = 104
    TRANSACTIONAL_ID_NOT_FOUND            = 105
    FETCH_SESSION_TOPIC_ID_ERROR          = 106, RETRIABLE
    INELIGIBLE_REPLICA                    = 107
    NEW_LEADER_ELECTED                    = 108
    OFFSET_MOVED_TO_TIERED_STORAGE        = 109
    FENCED_MEMBER_EPOCH                   = 110
    UNRELEASED_INSTANCE_ID                = 111
    UNSUPPORTED_ASSIGNOR                  = 112
    STALE_MEMBER_EPOCH                    = 113
    MISMATCHED_ENDPOINT_TYPE              = 114
    UNSUPPORTED_ENDPOINT_TYPE             = 115
    UNKNOWN_CONTROLLER_ID                 = 116
    UNKNOWN_SUBSCRIPTION_ID               = 117
    TELEMETRY_TOO_LARGE                   = 118
    INVALID_REGISTRATION                  = 119
    TRANSACTION_ABORTABLE                 = 120
    INVALID_RECORD_STATE                  = 121
    SHARE_SESSION_NOT_FOUND               = 122, RETRIABLE
    INVALID_SHARE_SESSION_EPOCH           = 123, RETRIABLE
    FENCED_STATE_EPOCH                    = 124
    INVALID_VOTER_KEY                     = 125
    DUPLICATE_VOTER                       = 126
    VOTER_NOT_FOUND                       = 127
    INVALID_REGULAR_EXPRESSION            = 128
    REBOOTSTRAP_REQUIRED                  = 129
    STREAMS_INVALID_TOPOLOGY              = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH        = 131
    STREAMS_TOPOLOGY_FENCED               = 132
    SHARE_SESSION_LIMIT_REACHED           = 133, RETRIABLE


MAX_MESSAGE_LENGTH = 2000


def clipped(message: str) -> str:
    """What was found may be as long as a string can be: with words around it, no answer could carry it."""
    return message if len(message) <= MAX_MESSAGE_LENGTH else message[:MAX_MESSAGE_LENGTH] + "…"


def error_of(code: int) -> ErrorCode:
    """A code that another node sent; one that is newer than this table is an error all the same."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_name(code: int) -> str:
    """The name of a code that another node sent, or its number if it is newer than this table."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class ProtocolError(Exception):
    """Bytes that are not the message they claim to be, or a message that its version cannot carry."""

    def __init__(self, problem: str, *, message: str = "", version: int = -1, field: str = "", offset: int = -1) -> None:
        self.problem = problem
        self.message = message
        self.version = version
        self.field = field
        self.offset = offset
        super().__init__(problem)

    def __str__(self) -> str:
        where = f"{self.message} v{self.version}" if self.message else ""
        if self.field:
            where += f", field {self.field}"
        if self.offset >= 0:
            where += f", at byte {self.offset}"
        return f"{where}: {self.problem}" if where else self.problem


class KafkaError(Exception):
    """A refusal that a client is answered with: the code, and a sentence that says what was found and expected.

    `records` are the numbers of the records in the batch that are to blame, where that can be told.
    """

    def __init__(self, code: ErrorCode, message: str, *, records: Sequence[int] = ()) -> None:
        message = clipped(message)
        self.code = code
        self.message = message
        self.records = records
        super().__init__(f"{code.name}: {message}")


class MalformedRecordsError(KafkaError):
    """The bytes given for a partition are no single batch of format 2: refused for themselves, whatever the log holds."""
