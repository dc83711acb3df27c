"""ApiVersions: what this broker speaks, and the features of the cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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

# Only what is announced here may be used by clients; the rest of Kafka's features comes with what they stand for.
SUPPORTED_FEATURES = {"metadata.version": (7, 30), "group.version": (0, 1), "transaction.version": (0, 2)}
FINALIZED_FEATURES = {"metadata.version": 30, "group.version": 1, "transaction.version": 2}
FINALIZED_EPOCH = 1


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
    finalized = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in FINALIZED_FEATURES.items()
    ]
    return ApiVersionsResponse(
        api_keys=broker.advertised,
        supported_features=supported,
        finalized_features=finalized,
        finalized_features_epoch=FINALIZED_EPOCH,
    )


def advertised(keys: list[int], *, has_two_phase_commit: bool = False) -> list[ApiVersion]:
    """What to announce of the APIs that are served: every version that we read.

    Wider than a Kafka 4 broker, on purpose: librdkafka drops codecs silently where Produce does not start at 0, and
    sarama before 1.41 always sends OffsetCommit 1.
    """
    # InitProducerId 6 (two-phase commit) is not final yet: it is for those who were told that this broker has it.
    last = {} if has_two_phase_commit else {22: 5}
    return [
        ApiVersion(
            api_key=key,
            min_version=API_TABLE[key].versions.first,
            max_version=last.get(key, API_TABLE[key].versions.last),
        )
        for key in sorted(keys)
    ]
