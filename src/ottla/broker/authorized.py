"""The operations that each kind of resource has, as responses report them: a bit per operation.

Handlers report all of them; where there are ACLs, the table of rights takes out those that the peer may not do.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.security.acls import Operation

NOT_ASKED = -(2**31)


def bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = bits(
    (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)
CLUSTER_OPERATIONS = bits(
    (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    )
)
GROUP_OPERATIONS = bits(
    (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)
