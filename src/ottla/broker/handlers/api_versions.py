"""ApiVersions: what this broker speaks, and the features of the cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.cluster.features import FINALIZED_FEATURES, SUPPORTED_FEATURES
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.versions import API_TABLE

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_NAMED_VERSION = 3
FIRST_ZERO_MINIMUM_VERSION = 4  # earlier clients choke on a feature whose lowest version is 0 (KIP-1022)

FINALIZED_EPOCH = 1  # of a single broker, whose features do not change


async def handle(broker: Broker, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    if context.version >= FIRST_NAMED_VERSION and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    supported = [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in SUPPORTED_FEATURES.items()
        if lowest > 0 or context.version >= FIRST_ZERO_MINIMUM_VERSION
    ]
    cluster = broker.cluster
    levels = FINALIZED_FEATURES if cluster is None else cluster.features.finalized
    finalized = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in levels.items()
    ]
    return ApiVersionsResponse(
        api_keys=broker.advertised,
        supported_features=supported,
        finalized_features=finalized,
        finalized_features_epoch=FINALIZED_EPOCH if cluster is None else cluster.features.epoch,
    )


def advertised(keys: list[int], *, has_two_phase_commit: bool = False) -> list[ApiVersion]:
    """What to announce of the APIs that are served: every version that we read.

    Wider than a Kafka 4 broker, on purpose: librdkafka drops codecs silently where Produce does not start at 0, and
    sarama before 1.41 always sends OffsetCommit 1.
    """
    # InitProducerId 6 (two-phase commit) is not final yet: it is served where it is enabled.
    last = {} if has_two_phase_commit else {22: 5}
    return [
        ApiVersion(
            api_key=key,
            min_version=API_TABLE[key].versions.first,
            max_version=last.get(key, API_TABLE[key].versions.last),
        )
        for key in sorted(keys)
    ]
