"""What a client may do with a resource, as answers that are asked for it say it: a bit per operation.

There is no authorizer yet, so everybody may do everything that the resource knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

NOT_ASKED = -(2**31)


class AclOperation(IntEnum):
    """Kafka's numbers of the operations that rights are given for."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = bits(
    (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
CLUSTER_OPERATIONS = bits(
    (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    )
)
GROUP_OPERATIONS = bits(
    (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
