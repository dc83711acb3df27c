"""The cluster as a whole: its id, its brokers, its features, its metadata quorum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from uuid import UUID

import ottla
from ottla.client.admin.calls import AdminCalls
from ottla.client.retrying import error_of, raise_if
from ottla.errors import ApiError, ErrorCode
from ottla.net.client import Address
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.cluster import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    FeatureUpdateKey,
    Listener,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    ReplicaState,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

METADATA_TOPIC: Final = "__cluster_metadata"


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


@dataclass(frozen=True, slots=True)
class VersionRange:
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class Features:
    """Which features the cluster has enabled, up to which level, and which the broker that was asked could have."""

    finalized: Mapping[str, int] = field(hash=False)
    supported: Mapping[str, VersionRange] = field(hash=False)
    finalized_epoch: int


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that a feature is to have; 0 disables it. A lower level than now needs a downgrade."""

    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A controller, or a broker that follows the metadata; -1 where a time is not known."""

    replica_id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class ClusterCalls(AdminCalls):
    async def describe_cluster(
        self, *, include_fenced: bool = False, timeout_s: float | None = None
    ) -> ClusterDescription:
        """The id of the cluster, its controller and its brokers; those that are fenced too if asked for."""
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, include_fenced_brokers=include_fenced
        )
        deadline = self._deadline(timeout_s)
        try:
            found = await self._cluster.ask_any(request, DescribeClusterResponse, deadline=deadline)
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION or include_fenced:
                raise
            return await self._describe_by_metadata(timeout_s)  # a broker before 2.8
        raise_if(error_of(found.error_code, found.error_message, "the cluster"))
        brokers = [
            ClusterBroker(each.broker_id, Address(each.host, each.port), each.rack, each.is_fenced)
            for each in found.brokers
        ]
        brokers.sort(key=lambda broker: broker.broker_id)
        return ClusterDescription(found.cluster_id, found.controller_id, tuple(brokers))

    async def _describe_by_metadata(self, timeout_s: float | None) -> ClusterDescription:
        view = await self._cluster.refresh((), self._deadline(timeout_s))
        nodes = [view.nodes[node_id] for node_id in sorted(view.nodes)]
        brokers = tuple(ClusterBroker(each.node_id, each.address, each.rack, is_fenced=False) for each in nodes)
        return ClusterDescription(view.cluster_id or "", view.controller_id, brokers)

    async def describe_features(self, broker_id: int | None = None, *, timeout_s: float | None = None) -> Features:
        """The features of the cluster, as any broker knows them, or that one."""
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=ottla.__version__)
        deadline = self._deadline(timeout_s)
        if broker_id is None:
            found = await self._cluster.ask_any(request, ApiVersionsResponse, deadline=deadline)
        else:
            found = await self._cluster.ask_node(broker_id, request, ApiVersionsResponse, deadline=deadline)
        raise_if(error_of(found.error_code, None, "the features"))
        return Features(
            {each.name: each.max_version_level for each in found.finalized_features},
            {each.name: VersionRange(each.min_version, each.max_version) for each in found.supported_features},
            found.finalized_features_epoch,
        )

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> None:
        """Changes the levels of features: all of them, or none."""
        deadline = self._deadline(timeout_s)
        request = UpdateFeaturesRequest(
            timeout_ms=self._cluster.broker_timeout_ms(deadline),
            feature_updates=[
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=update.level,
                    allow_downgrade=update.upgrade_type is not UpgradeType.UPGRADE,
                    upgrade_type=update.upgrade_type,
                )
                for name, update in updates.items()
            ],
            validate_only=validate_only,
        )
        response = await self._cluster.ask_controller(
            request, UpdateFeaturesResponse, lambda answer: (answer.error_code,), deadline
        )
        raise_if(error_of(response.error_code, response.error_message, "the features"))
        for each in response.results:
            raise_if(error_of(each.error_code, each.error_message, f"the feature {each.feature}"))

    async def unregister_broker(self, broker_id: int, *, timeout_s: float | None = None) -> None:
        """Takes a broker that has left for good off the cluster's list (KRaft only)."""
        response = await self._cluster.ask_any(
            UnregisterBrokerRequest(broker_id=broker_id),
            UnregisterBrokerResponse,
            lambda answer: (answer.error_code,),
            self._deadline(timeout_s),
        )
        raise_if(error_of(response.error_code, response.error_message, f"broker {broker_id}"))

    # -- the metadata quorum of KRaft ----------------------------------------------------------------------------------

    async def describe_quorum(self, *, timeout_s: float | None = None) -> Quorum:
        """The controllers that vote on the metadata, and who follows them (KRaft only)."""
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        request = DescribeQuorumRequest(
            topics=[DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
        )
        response = await self._cluster.ask_any(request, DescribeQuorumResponse, deadline=self._deadline(timeout_s))
        raise_if(error_of(response.error_code, response.error_message, "the quorum"))
        (found,) = response.topics[0].partitions
        raise_if(error_of(found.error_code, found.error_message, "the quorum"))
        return Quorum(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            tuple(map(_quorum_replica, found.current_voters)),
            tuple(map(_quorum_replica, found.observers)),
        )

    async def add_voter(
        self, voter_id: int, directory_id: UUID, listeners: Mapping[str, Address], *, timeout_s: float | None = None
    ) -> None:
        """Has a controller vote on the metadata: its id, that of its directory, and where it listens (KRaft only)."""
        deadline = self._deadline(timeout_s)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self._cluster.broker_timeout_ms(deadline),
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[
                Listener(name=name, host=address.host, port=address.port) for name, address in listeners.items()
            ],
        )
        response = await self._cluster.ask_any(
            request, AddRaftVoterResponse, lambda answer: (answer.error_code,), deadline
        )
        raise_if(error_of(response.error_code, response.error_message, f"the voter {voter_id}"))

    async def remove_voter(self, voter_id: int, directory_id: UUID, *, timeout_s: float | None = None) -> None:
        """Takes a controller out of those who vote on the metadata (KRaft only)."""
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id)
        response = await self._cluster.ask_any(
            request, RemoveRaftVoterResponse, lambda answer: (answer.error_code,), self._deadline(timeout_s)
        )
        raise_if(error_of(response.error_code, response.error_message, f"the voter {voter_id}"))


def _quorum_replica(found: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        found.replica_id,
        found.replica_directory_id,
        found.log_end_offset,
        found.last_fetch_timestamp,
        found.last_caught_up_timestamp,
    )
