"""LeaderAndIsr, UpdateMetadata and StopReplica: the controller's requests to this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.messages.replication import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle_leader_and_isr(broker: Broker, request: LeaderAndIsrRequest, context: Context) -> LeaderAndIsrResponse:
    assert broker.cluster is not None
    return await broker.cluster.control.leader_and_isr(request, context.version)


async def handle_update_metadata(
    broker: Broker, request: UpdateMetadataRequest, context: Context
) -> UpdateMetadataResponse:
    assert broker.cluster is not None
    return await broker.cluster.control.update_metadata(request)


async def handle_stop_replica(broker: Broker, request: StopReplicaRequest, context: Context) -> StopReplicaResponse:
    assert broker.cluster is not None
    return await broker.cluster.control.stop_replica(request)
