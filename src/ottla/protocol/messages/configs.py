"""Configuration of topics, brokers and other resources."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bool, Int8, Int16, Int32, String


@struct
class DescribeConfigsResource:
    """An entry of `resources` of `DescribeConfigsRequest`."""

    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None


@message(key=32, versions=(0, 4), flexible=4, listeners=("broker", "controller"), advertised=(1, 4))
class DescribeConfigsRequest:
    """Asks for the configuration of resources."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = wire(since=1, default=False)
    include_documentation: Bool = wire(since=3, default=False)


@struct
class DescribeConfigsSynonym:
    """An entry of `synonyms` of `DescribeConfigsResourceResult`."""

    name: String
    value: String | None
    source: Int8


@struct
class DescribeConfigsResourceResult:
    """An entry of `configs` of `DescribeConfigsResult`."""

    name: String
    value: String | None
    read_only: Bool
    is_default: Bool = wire(until=0, default=False)
    config_source: Int8 = wire(since=1, default=-1, ignorable=True)
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym] = wire(since=1, factory=list, ignorable=True)
    config_type: Int8 = wire(since=3, default=0, ignorable=True)
    documentation: String | None = wire(since=3, default=None, ignorable=True)


@struct
class DescribeConfigsResult:
    """An entry of `results` of `DescribeConfigsResponse`."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


@message(key=32, versions=(0, 4), flexible=4)
class DescribeConfigsResponse:
    """The settings of each resource with their sources."""

    throttle_time_ms: Int32 = wire(default=0)
    results: list[DescribeConfigsResult]


@struct
class AlterConfigsRequestAlterableConfig:
    """An entry of `configs` of `AlterConfigsRequestAlterConfigsResource`."""

    name: String
    value: String | None


@struct
class AlterConfigsRequestAlterConfigsResource:
    """An entry of `resources` of `AlterConfigsRequest`."""

    resource_type: Int8
    resource_name: String
    configs: list[AlterConfigsRequestAlterableConfig]


@message(key=33, versions=(0, 2), flexible=2, listeners=("broker", "controller"))
class AlterConfigsRequest:
    """Replaces the configuration of resources."""

    resources: list[AlterConfigsRequestAlterConfigsResource]
    validate_only: Bool


@struct
class AlterConfigsResourceResponse:
    """An entry of `responses` of `AlterConfigsResponse`, among others."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    resource_type: Int8
    resource_name: String


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """The outcome per resource."""

    throttle_time_ms: Int32 = wire(default=0)
    responses: list[AlterConfigsResourceResponse]


@struct
class IncrementalAlterConfigsRequestAlterableConfig:
    """An entry of `configs` of `IncrementalAlterConfigsRequestAlterConfigsResource`."""

    name: String
    config_operation: Int8
    value: String | None


@struct
class IncrementalAlterConfigsRequestAlterConfigsResource:
    """An entry of `resources` of `IncrementalAlterConfigsRequest`."""

    resource_type: Int8
    resource_name: String
    configs: list[IncrementalAlterConfigsRequestAlterableConfig]


@message(key=44, versions=(0, 1), flexible=1, listeners=("broker", "controller"))
class IncrementalAlterConfigsRequest:
    """Sets, deletes, appends or subtracts single settings."""

    resources: list[IncrementalAlterConfigsRequestAlterConfigsResource]
    validate_only: Bool


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """The outcome per resource."""

    throttle_time_ms: Int32 = wire(default=0)
    responses: list[AlterConfigsResourceResponse]


@message(key=74, versions=(0, 1), flexible=0, listeners=("broker",))
class ListConfigResourcesRequest:
    """Asks which resources have configuration, by type; version 0 knows client metrics only."""

    resource_types: list[Int8] = wire(since=1, factory=list)


@struct
class ListedConfigResource:
    """An entry of `config_resources` of `ListConfigResourcesResponse`."""

    resource_name: String
    resource_type: Int8 = wire(since=1, default=16, ignorable=True)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """The resources found."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    config_resources: list[ListedConfigResource]
