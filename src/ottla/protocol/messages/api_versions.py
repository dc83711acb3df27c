"""ApiVersions: what a broker speaks."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bool, Int16, Int32, Int64, String


@message(key=18, versions=(0, 4), flexible=3, listeners=("broker", "controller"))
class ApiVersionsRequest:
    """Asks which APIs and versions the broker speaks; the first request of most clients."""

    client_software_name: String = wire(since=3, default="", ignorable=True)
    client_software_version: String = wire(since=3, default="", ignorable=True)


@struct
class ApiVersion:
    """An entry of `api_keys` of `ApiVersionsResponse`."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    """An entry of `supported_features` of `ApiVersionsResponse`."""

    name: String
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    """An entry of `finalized_features` of `ApiVersionsResponse`."""

    name: String
    max_version_level: Int16
    min_version_level: Int16


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """The APIs, their version ranges, and the features of the cluster."""

    error_code: Int16 = wire(default=0)
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = wire(since=1, default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire(since=3, tag=0, factory=list, ignorable=True)
    finalized_features_epoch: Int64 = wire(since=3, tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = wire(since=3, tag=2, factory=list, ignorable=True)
    zk_migration_ready: Bool = wire(since=3, tag=3, default=False, ignorable=True)
