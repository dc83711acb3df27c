"""ListConfigResources: what can be configured, by type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.dynamic import ConfigResourceType
from ottla.errors import ErrorCode
from ottla.protocol.messages.configs import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)
from ottla.runtime.turns import Steps, in_turns

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


@in_turns
def handle(broker: Broker, request: ListConfigResourcesRequest, context: Context) -> Steps[ListConfigResourcesResponse]:
    known = [kind.value for kind in ConfigResourceType]
    # Version 0 was ListClientMetricsResources and knows nothing else.
    wanted = [ConfigResourceType.CLIENT_METRICS.value] if context.version == 0 else request.resource_types or known
    if not set(wanted) <= set(known):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    found = []
    for kind in dict.fromkeys(wanted):
        for name in _names(broker, kind):
            found.append(ListedConfigResource(resource_name=name, resource_type=kind))
            yield
    return ListConfigResourcesResponse(config_resources=found)


def _names(broker: Broker, kind: int) -> list[str]:
    match kind:
        case ConfigResourceType.TOPIC:
            return sorted(broker.image.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(node_id) for node_id in sorted(broker.image.brokers)]
        case _:
            return broker.configs.resources(kind)
