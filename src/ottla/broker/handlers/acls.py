"""DescribeAcls, CreateAcls and DeleteAcls. Without an authorizer there are none: every request is refused so."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ottla.broker.response_budget import ResponseBudget
from ottla.errors import ApiError, ErrorCode, ProtocolError
from ottla.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.security.acls import Acl, AclFilter, DamagedAclError, Operation, Pattern, Permission, Resource
from ottla.store.api import StoreError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NO_AUTHORIZER = "No Authorizer is configured."
UNKNOWN = 0


async def handle_describe(broker: Broker, request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    wanted = _filter(request)
    acls = broker.dispatcher.acls
    if acls is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[])
    found: dict[tuple[Resource, str, Pattern], list[AclDescription]] = defaultdict(list)
    async for acl in broker.turns.over(await acls.matching(wanted)):
        found[acl.resource, acl.name, acl.pattern].append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(resource_type=resource, resource_name=name, pattern_type=pattern, acls=entries)
            async for (resource, name, pattern), entries in broker.turns.over(found.items())
        ]
    )


async def handle_create(broker: Broker, request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    turns = broker.turns
    async for one in turns.over(request.creations):
        _check_known(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
    acls = broker.dispatcher.acls
    outcomes: list[ApiError | None]
    if acls is None:
        outcomes = [ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)] * len(request.creations)
    else:
        try:
            outcomes = await acls.create([_acl(one) async for one in turns.over(request.creations)])
        except (StoreError, DamagedAclError) as error:
            failed = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the ACLs cannot be changed now: {error}")
            outcomes = [failed] * len(request.creations)
    return CreateAclsResponse(results=[_created(outcome) async for outcome in turns.over(outcomes)])


def _created(error: ApiError | None) -> AclCreationResult:
    return (
        AclCreationResult() if error is None else AclCreationResult(error_code=error.code, error_message=error.message)
    )


async def handle_delete(broker: Broker, request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    filters = [_filter(one) async for one in broker.turns.over(request.filters)]
    acls = broker.dispatcher.acls
    if acls is None:
        return await _all_failed(broker, request, ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
    try:
        deleted = await acls.delete(filters)
    except (StoreError, DamagedAclError) as error:
        failed = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the ACLs cannot be changed now: {error}")
        return await _all_failed(broker, request, failed)
    results, budget = [], ResponseBudget()
    for found in deleted:
        budget.spend(len(found))
        results.append(DeleteAclsFilterResult(matching_acls=[_gone(acl) async for acl in broker.turns.over(found)]))
    return DeleteAclsResponse(filter_results=results)


def _gone(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


async def _all_failed(broker: Broker, request: DeleteAclsRequest, error: ApiError) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=[])
            async for _ in broker.turns.over(request.filters)
        ]
    )


def _acl(wanted: AclCreation) -> Acl:
    try:
        return Acl(
            Resource(wanted.resource_type),
            wanted.resource_name,
            Pattern(wanted.resource_pattern_type),
            wanted.principal,
            wanted.host,
            Operation(wanted.operation),
            Permission(wanted.permission_type),
        )
    except ValueError as error:
        raise ProtocolError(f"an ACL of an unknown kind: {error}") from error


def _filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    _check_known(wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type)
    return AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _check_known(*kinds: int) -> None:
    """A rule of an unknown kind closes the connection, as it does in Kafka."""
    if UNKNOWN in kinds:
        raise ProtocolError("an ACL does not name its resource")
