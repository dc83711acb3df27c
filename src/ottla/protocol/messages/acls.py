"""Access control lists."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Int8, Int16, Int32, String


@message(key=29, versions=(0, 3), flexible=2, listeners=("broker", "controller"), advertised=(1, 3))
class DescribeAclsRequest:
    """Asks for the rules that match a filter."""

    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = wire(since=1, default=3)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@struct
class AclDescription:
    """An entry of `acls` of `DescribeAclsResource`."""

    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DescribeAclsResource:
    """An entry of `resources` of `DescribeAclsResponse`."""

    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = wire(since=1, default=3)
    acls: list[AclDescription]


@message(key=29, versions=(0, 3), flexible=2)
class DescribeAclsResponse:
    """The rules found, by resource."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    resources: list[DescribeAclsResource]


@struct
class AclCreation:
    """An entry of `creations` of `CreateAclsRequest`."""

    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = wire(since=1, default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message(key=30, versions=(0, 3), flexible=2, listeners=("broker", "controller"), advertised=(1, 3))
class CreateAclsRequest:
    """Creates rules."""

    creations: list[AclCreation]


@struct
class AclCreationResult:
    """An entry of `results` of `CreateAclsResponse`."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@message(key=30, versions=(0, 3), flexible=2)
class CreateAclsResponse:
    """The outcome of each creation."""

    throttle_time_ms: Int32 = wire(default=0)
    results: list[AclCreationResult]


@struct
class DeleteAclsFilter:
    """An entry of `filters` of `DeleteAclsRequest`."""

    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = wire(since=1, default=3)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@message(key=31, versions=(0, 3), flexible=2, listeners=("broker", "controller"), advertised=(1, 3))
class DeleteAclsRequest:
    """Deletes the rules that match filters."""

    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsMatchingAcl:
    """An entry of `matching_acls` of `DeleteAclsFilterResult`."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = wire(since=1, default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DeleteAclsFilterResult:
    """An entry of `filter_results` of `DeleteAclsResponse`."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    matching_acls: list[DeleteAclsMatchingAcl]


@message(key=31, versions=(0, 3), flexible=2)
class DeleteAclsResponse:
    """The rules deleted, per filter."""

    throttle_time_ms: Int32 = wire(default=0)
    filter_results: list[DeleteAclsFilterResult]
