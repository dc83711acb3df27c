"""DescribeCluster: the brokers, the controller and the cluster id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.errors import ErrorCode
from ottla.protocol.messages.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

BROKERS = 1  # the other kind of endpoint, controllers, is KRaft's


def handle(broker: Broker, request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    image = broker.image
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a listener of brokers; there are no separate controllers here",
            endpoint_type=request.endpoint_type,
            cluster_id=image.cluster_id,
            brokers=[],
        )
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack)
            for node, endpoint in broker.endpoints(context.connection.listener_name)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
