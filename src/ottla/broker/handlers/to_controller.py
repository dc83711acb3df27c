"""AlterPartition, ControlledShutdown and AllocateProducerIds: what brokers ask of their controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle_alter_partition(
    broker: Broker, request: AlterPartitionRequest, context: Context
) -> AlterPartitionResponse:
    assert broker.cluster is not None
    return await broker.cluster.controller_requests.alter_partition(request, context.version)


async def handle_controlled_shutdown(
    broker: Broker, request: ControlledShutdownRequest, context: Context
) -> ControlledShutdownResponse:
    assert broker.cluster is not None
    return await broker.cluster.controller_requests.controlled_shutdown(request)


async def handle_allocate_producer_ids(
    broker: Broker, request: AllocateProducerIdsRequest, context: Context
) -> AllocateProducerIdsResponse:
    assert broker.cluster is not None
    return await broker.cluster.controller_requests.allocate_producer_ids(request)
