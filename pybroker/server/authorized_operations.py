"""The operations that a client may do, as the bit fields in which Metadata and its kin tell them.

Without an authorizer everybody may do everything that makes sense on a resource.
"""

from __future__ import annotations

from typing import Final

from pybroker.security.acls import AclOperation


def bit_field(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED: Final = -(2**31)

TOPIC_OPERATIONS: Final = bit_field(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

CLUSTER_OPERATIONS: Final = bit_field(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)

GROUP_OPERATIONS: Final = bit_field(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
