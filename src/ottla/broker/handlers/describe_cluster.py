"""DescribeCluster: the brokers, the controller and the cluster id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.broker.first_image import first_image
from ottla.errors import ErrorCode
from ottla.protocol.messages.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

# Kinds of endpoints; controllers are KRaft's.
BROKERS = 1
CONTROLLERS = 2


async def handle(broker: Broker, request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return _refused(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a listener of brokers; there are no separate controllers here"
        )
    if request.endpoint_type != BROKERS:
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no kind {request.endpoint_type} of endpoints")
    image = await first_image(lambda: broker.image, broker.image_changed)
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack)
            for node, endpoint in broker.endpoints(context.session.listener_name)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
