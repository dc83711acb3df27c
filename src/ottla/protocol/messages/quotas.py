"""Client quotas."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bool, Float64, Int8, Int16, Int32, String


@struct
class ComponentData:
    """An entry of `components` of `DescribeClientQuotasRequest`."""

    entity_type: String
    match_type: Int8
    match: String | None


@message(key=48, versions=(0, 1), flexible=1, listeners=("broker",))
class DescribeClientQuotasRequest:
    """Asks for the quotas that match a filter."""

    components: list[ComponentData]
    strict: Bool


@struct
class EntityData:
    """An entry of `entity` of `DescribeClientQuotasResponseEntryData`, among others."""

    entity_type: String
    entity_name: String | None


@struct
class ValueData:
    """An entry of `values` of `DescribeClientQuotasResponseEntryData`."""

    key: String
    value: Float64


@struct
class DescribeClientQuotasResponseEntryData:
    """An entry of `entries` of `DescribeClientQuotasResponse`."""

    entity: list[EntityData]
    values: list[ValueData]


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse:
    """The quotas found, by entity."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    entries: list[DescribeClientQuotasResponseEntryData] | None


@struct
class OpData:
    """An entry of `ops` of `AlterClientQuotasRequestEntryData`."""

    key: String
    value: Float64
    remove: Bool


@struct
class AlterClientQuotasRequestEntryData:
    """An entry of `entries` of `AlterClientQuotasRequest`."""

    entity: list[EntityData]
    ops: list[OpData]


@message(key=49, versions=(0, 1), flexible=1, listeners=("broker", "controller"))
class AlterClientQuotasRequest:
    """Sets or removes quotas."""

    entries: list[AlterClientQuotasRequestEntryData]
    validate_only: Bool


@struct
class AlterClientQuotasResponseEntryData:
    """An entry of `entries` of `AlterClientQuotasResponse`."""

    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    entity: list[EntityData]


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse:
    """The outcome per entity."""

    throttle_time_ms: Int32 = wire(default=0)
    entries: list[AlterClientQuotasResponseEntryData]
