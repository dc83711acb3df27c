"""The cluster as a whole: its id, its controller, its brokers."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.metadata import Cluster
from ottla.client.retrying import error_of, raise_if
from ottla.net.client import Address
from ottla.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    broker_id: int
    address: Address
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: tuple[ClusterBroker, ...]


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    found = await cluster.ask_any(request, DescribeClusterResponse)
    raise_if(error_of(found.error_code, found.error_message, "the cluster"))
    brokers = [
        ClusterBroker(each.broker_id, Address(each.host, each.port), each.rack, each.is_fenced)
        for each in found.brokers
    ]
    brokers.sort(key=lambda broker: broker.broker_id)
    return ClusterDescription(found.cluster_id, found.controller_id, tuple(brokers))
