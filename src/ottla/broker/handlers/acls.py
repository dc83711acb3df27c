"""DescribeAcls, CreateAcls, DeleteAcls: there is no authorizer, and whoever asks for its rules is told so.

Tools that copy rules from cluster to cluster know this answer and go on without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, ProtocolError
from ottla.protocol.messages.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ottla.runtime.turns import Steps, in_turns

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NO_AUTHORIZER = "this broker has no authorizer"
UNKNOWN = 0  # what stands in place of a kind that its sender does not know itself


async def handle_describe(broker: Broker, request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    _check_known(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[])


@in_turns
def handle_create(broker: Broker, request: CreateAclsRequest, context: Context) -> Steps[CreateAclsResponse]:
    results = []
    for one in request.creations:
        _check_known(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
        results.append(AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER))
        yield
    return CreateAclsResponse(results=results)


@in_turns
def handle_delete(broker: Broker, request: DeleteAclsRequest, context: Context) -> Steps[DeleteAclsResponse]:
    results = []
    for one in request.filters:
        _check_known(one.resource_type_filter, one.pattern_type_filter, one.operation, one.permission_type)
        results.append(
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
            )
        )
        yield
    return DeleteAclsResponse(filter_results=results)


def _check_known(*kinds: int) -> None:
    """A rule of an unknown kind closes the connection, as it does in Kafka."""
    if UNKNOWN in kinds:
        raise ProtocolError("an ACL does not name its resource")
