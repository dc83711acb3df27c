"""Rules about who may do what: describe, create, delete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.client.admin.calls import AdminCalls, only
from ottla.client.retrying import error_of, raise_if
from ottla.errors import ApiError
from ottla.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ottla.security.acls import Operation, Pattern, Permission, Resource

# What a rule is about, how it names that, what may be done, and whether it may. ANY is for filters, and so is MATCH:
# all patterns that apply to a name.
AclResourceType = Resource
PatternType = Pattern
AclOperation = Operation
AclPermission = Permission


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule. A principal is `User:alice`, or `User:*` for everybody; the name `*` is every resource of a type."""

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        what = f"{self.resource_type.name.lower()} {self.resource_name}"
        return f"{self.permission.name.lower()} {self.principal} {self.operation.name.lower()} on {what}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules are meant: those that fit everything that is named."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


class AclCalls(AdminCalls):
    async def describe_acls(self, wanted: AclFilter | None = None, *, timeout_s: float | None = None) -> list[Acl]:
        """The rules that fit a filter; all of them without one."""
        wanted = wanted or AclFilter()
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        response = await self._cluster.ask_any(request, DescribeAclsResponse, deadline=self._deadline(timeout_s))
        raise_if(error_of(response.error_code, response.error_message, "the rules"))
        return [
            Acl(
                AclResourceType(resource.resource_type),
                resource.resource_name,
                each.principal,
                AclOperation(each.operation),
                AclPermission(each.permission_type),
                each.host,
                PatternType(resource.pattern_type),
            )
            for resource in response.resources
            for each in resource.acls
        ]

    async def create_acl(self, acl: Acl, *, timeout_s: float | None = None) -> None:
        """Creates a rule. One that exists already is accepted."""
        only(await self.create_acls([acl], timeout_s=timeout_s))

    async def create_acls(self, acls: Iterable[Acl], *, timeout_s: float | None = None) -> dict[Acl, ApiError | None]:
        """Creates rules. Those that exist already are accepted."""
        wanted = list(dict.fromkeys(acls))
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    resource_pattern_type=each.pattern_type,
                    principal=each.principal,
                    host=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in wanted
            ]
        )
        response = await self._cluster.ask_controller(
            request,
            CreateAclsResponse,
            lambda answer: (each.error_code for each in answer.results),
            self._deadline(timeout_s),
        )
        return {
            acl: error_of(each.error_code, each.error_message, f"the rule `{acl}`")
            for acl, each in zip(wanted, response.results, strict=True)
        }

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout_s: float | None = None
    ) -> dict[AclFilter, list[Acl] | ApiError]:
        """Deletes the rules that fit each filter, and returns them."""
        wanted = list(dict.fromkeys(filters))
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=each.resource_type,
                    resource_name_filter=each.resource_name,
                    pattern_type_filter=each.pattern_type,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in wanted
            ]
        )
        response = await self._cluster.ask_controller(
            request,
            DeleteAclsResponse,
            lambda answer: (each.error_code for each in answer.filter_results),
            self._deadline(timeout_s),
        )
        outcomes: dict[AclFilter, list[Acl] | ApiError] = {}
        for asked, found in zip(wanted, response.filter_results, strict=True):
            failed = [error_of(each.error_code, each.error_message, "a rule") for each in found.matching_acls]
            error = error_of(found.error_code, found.error_message, "the filter") or next(filter(None, failed), None)
            outcomes[asked] = error or [
                Acl(
                    AclResourceType(each.resource_type),
                    each.resource_name,
                    each.principal,
                    AclOperation(each.operation),
                    AclPermission(each.permission_type),
                    each.host,
                    PatternType(each.pattern_type),
                )
                for each in found.matching_acls
            ]
        return outcomes
