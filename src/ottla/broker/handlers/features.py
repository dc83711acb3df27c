"""UpdateFeatures and UnregisterBroker: what Kafka changes of a cluster by hand, and what of it there is here.

The levels of features are the highest that all brokers support: asking for them changes nothing, asking for others is
refused with the reason. A broker is registered as long as it runs, so there is nobody to unregister: its registration
goes with its session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.cluster.features import FINALIZED_FEATURES, SUPPORTED_FEATURES
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.cluster import (
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_UPGRADE_TYPE_VERSION = 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


async def handle_update(broker: Broker, request: UpdateFeaturesRequest, context: Context) -> UpdateFeaturesResponse:
    """All features or none: the first that cannot be as wanted is the answer for all of them."""
    if broker.cluster is not None and not broker.cluster.controller.is_active:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.NOT_CONTROLLER,
            error_message="this broker is not the controller: see the metadata for which one is",
        )
    levels = FINALIZED_FEATURES if broker.cluster is None else broker.cluster.features.finalized
    names: dict[str, None] = {}  # of those that are supported, so there are few
    try:
        async for update in broker.turns.over(request.feature_updates):
            _check(update, levels, context.version)
            names[update.feature] = None
    except ApiError as error:
        reason = f"The update failed for all features since the following feature had an error: {error.message}"
        return UpdateFeaturesResponse(error_code=error.code, error_message=reason)
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=name) for name in names])


def _check(update: FeatureUpdateKey, levels: Mapping[str, int], version: int) -> None:
    """ApiError unless the feature is at the wanted level already."""
    name, level = update.feature, update.max_version_level
    if name not in SUPPORTED_FEATURES:
        raise _refusal(update, "Broker does not support this feature.")
    if version >= FIRST_UPGRADE_TYPE_VERSION and update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refusal(update, "The controller does not support the given upgrade type.")
    lowest, highest = SUPPORTED_FEATURES[name]
    if not lowest <= level <= highest:
        raise _refusal(update, f"Local controller only supports versions {lowest}-{highest}")
    if level != levels.get(name, 0):
        raise _refusal(
            update, f"its level is {levels.get(name, 0)}, the highest that all brokers support, and cannot be changed."
        )


def _refusal(update: FeatureUpdateKey, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}",
    )


async def handle_unregister(
    broker: Broker, request: UnregisterBrokerRequest, context: Context
) -> UnregisterBrokerResponse:
    if request.broker_id not in broker.image.brokers:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {request.broker_id} is not currently registered",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"broker {request.broker_id} is running: its registration goes when it stops",
    )
