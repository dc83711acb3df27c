"""Every version that is announced is served; what is not announced closes the connection."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.handlers import HANDLERS
from ottla.errors import ErrorCode
from ottla.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster import DescribeClusterRequest, UnregisterBrokerRequest, UpdateFeaturesRequest
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from ottla.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from ottla.protocol.messages.metadata import DescribeProducersRequest, DescribeTopicPartitionsRequest
from ottla.protocol.messages.offsets import DeleteRecordsRequest, OffsetForLeaderEpochRequest
from ottla.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.messages.scram import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from ottla.protocol.messages.tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from ottla.protocol.versions import API_TABLE
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, metadata, one_batch, produce

NewTopic = Callable[..., tuple[str, UUID]]
# What a stranger to a group or to a transactional id is told.
EXPECTED_ERRORS = {
    17: {ErrorCode.ILLEGAL_SASL_STATE},
    29: {ErrorCode.SECURITY_DISABLED},
    36: {ErrorCode.ILLEGAL_SASL_STATE},
    **{key: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED} for key in (38, 39, 40, 41)},
    25: {ErrorCode.NOT_COORDINATOR},
    26: {ErrorCode.NOT_COORDINATOR},
    11: {ErrorCode.MEMBER_ID_REQUIRED},
    12: {ErrorCode.UNKNOWN_MEMBER_ID},
    13: {ErrorCode.UNKNOWN_MEMBER_ID},
    14: {ErrorCode.UNKNOWN_MEMBER_ID},
    64: {ErrorCode.BROKER_ID_NOT_REGISTERED},
}


def request_for(key: int, version: int, topic: str, topic_id: UUID) -> object:
    """A request of that API that asks for something real, in as few fields as the version has."""
    named = {"topic": "", "topic_id": topic_id} if version >= 13 else {"topic": topic}
    match key:
        case 0:
            return produce(records=one_batch(b"v") if version >= 3 else None, **named)
        case 1:
            return fetch(**named)
        case 2:
            return list_offsets(topic, -1)
        case 3:
            return metadata(topic)
        case 8:
            committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
            by = {"topic_id": topic_id} if version >= 10 else {"name": topic}
            return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(partitions=[committed], **by)])
        case 9 if version >= 8:
            return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        case 9:
            return OffsetFetchRequest(group_id="g")
        case 10:
            return FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest(key="g")
        case 11:
            protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
            return JoinGroupRequest(
                group_id=f"joined-{version}",
                session_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=protocols,
            )
        case 12:
            return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        case 13:
            return LeaveGroupRequest(group_id="g")
        case 14:
            spoken = {"protocol_type": "consumer", "protocol_name": "range"}
            return SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[], **spoken)
        case 15:
            return DescribeGroupsRequest(groups=[])
        case 16:
            return ListGroupsRequest()
        case 17:
            return SaslHandshakeRequest(mechanism="PLAIN")
        case 18:
            named_client = {"client_software_name": "raw", "client_software_version": "1"}
            return ApiVersionsRequest(**named_client if version >= 3 else {})
        case 19:
            return create_topic(f"{topic}-{version}")
        case 20:
            return DeleteTopicsRequest(timeout_ms=1000)
        case 21:
            return DeleteRecordsRequest(topics=[], timeout_ms=1000)
        case 22:
            return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        case 23:
            return OffsetForLeaderEpochRequest(topics=[])
        case 24 if version >= 4:
            return AddPartitionsToTxnRequest(transactions=[])
        case 24:
            return AddPartitionsToTxnRequest(v3_and_below_transactional_id="t")
        case 25:
            return AddOffsetsToTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, group_id="g")
        case 26:
            return EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
        case 27:
            return WriteTxnMarkersRequest(markers=[])
        case 28:
            return TxnOffsetCommitRequest(
                transactional_id="t", group_id="g", producer_id=1, producer_epoch=0, topics=[]
            )
        case 29:
            kinds = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
            return DescribeAclsRequest(**kinds, resource_name_filter=None, principal_filter=None, host_filter=None)
        case 30:
            return CreateAclsRequest(creations=[])
        case 31:
            return DeleteAclsRequest(filters=[])
        case 38:
            return CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
        case 39:
            return RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1)
        case 40:
            return ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1)
        case 41:
            return DescribeDelegationTokenRequest(owners=None)
        case 50:
            return DescribeUserScramCredentialsRequest(users=None)
        case 48:
            return DescribeClientQuotasRequest(components=[], strict=False)
        case 49:
            return AlterClientQuotasRequest(entries=[], validate_only=False)
        case 57:
            return UpdateFeaturesRequest(feature_updates=[])
        case 64:
            return UnregisterBrokerRequest(broker_id=99)
        case 51:
            return AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
        case 32:
            return DescribeConfigsRequest(
                resources=[DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)]
            )
        case 33:
            return AlterConfigsRequest(resources=[], validate_only=False)
        case 34:
            return AlterReplicaLogDirsRequest(dirs=[])
        case 35:
            return DescribeLogDirsRequest(topics=None)
        case 36:
            return SaslAuthenticateRequest(auth_bytes=b"")
        case 37:
            return CreatePartitionsRequest(topics=[], timeout_ms=1000, validate_only=False)
        case 42:
            return DeleteGroupsRequest(groups_names=[])
        case 43:
            return ElectLeadersRequest(topic_partitions=None)
        case 44:
            return IncrementalAlterConfigsRequest(resources=[], validate_only=False)
        case 45:
            stays = ReassignablePartition(partition_index=0, replicas=[1])
            return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[stays])])
        case 46:
            return ListPartitionReassignmentsRequest(topics=None)
        case 47:
            return OffsetDeleteRequest(group_id="g", topics=[])
        case 60:
            return DescribeClusterRequest(include_cluster_authorized_operations=False)
        case 61:
            return DescribeProducersRequest(topics=[])
        case 65:
            return DescribeTransactionsRequest(transactional_ids=[])
        case 66:
            return ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        case 68:
            return ConsumerGroupHeartbeatRequest(
                group_id=f"consumers-{version}",
                member_id="a-member",
                member_epoch=0,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            )
        case 69:
            return ConsumerGroupDescribeRequest(group_ids=[], include_authorized_operations=False)
        case 74:
            return ListConfigResourcesRequest()
        case 75:
            return DescribeTopicPartitionsRequest(topics=[])
        case _:
            raise AssertionError(f"no request for {API_TABLE[key].name}: add one")


def announced(client: RawClient) -> dict[int, range]:
    answer = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 4)
    return {entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in answer.api_keys}


def errors_in(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for one in value:
            yield from errors_in(one)
    elif hasattr(type(value), "__match_args__") and hasattr(type(value), "__slots__"):
        for name in type(value).__slots__:
            if name == "error_code":
                yield getattr(value, name)
            else:
                yield from errors_in(getattr(value, name))


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: API_TABLE[key].name)
def test_every_announced_version_is_answered(key: int, client: RawClient, new_topic: NewTopic) -> None:
    topic, topic_id = new_topic()
    client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6)  # there are no groups before somebody looks for one
    for version in announced(client)[key]:
        answer = client.ask(request_for(key, version, topic, topic_id), version)
        is_old_produce = key == 0 and version < 3
        if not is_old_produce:  # old formats have a test of their own
            allowed = {0, *EXPECTED_ERRORS.get(key, ())}
            assert set(errors_in(answer)) <= allowed, f"{API_TABLE[key].name} {version}: {answer}"


def test_what_is_announced_is_what_is_served(client: RawClient) -> None:
    assert sorted(announced(client)) == sorted(HANDLERS)


@pytest.mark.parametrize("key", sorted(set(HANDLERS) - {18}), ids=lambda key: API_TABLE[key].name)
def test_a_version_that_is_not_announced_closes_the_connection(key: int, connect: Callable[[], RawClient]) -> None:
    for version in (API_TABLE[key].versions.last + 1, 32767, -1):
        client = connect()
        client.socket.sendall(struct.pack(">ihhih", 10, key, version, 1, -1))
        assert client.is_ended(), f"version {version}"


@pytest.mark.parametrize("key", [4, 36, 17, 76, 999, -1])
def test_an_api_that_is_not_served_closes_the_connection(key: int, client: RawClient) -> None:
    client.socket.sendall(struct.pack(">ihhih", 10, key, 0, 1, -1))
    assert client.is_ended()


@pytest.mark.parametrize("version", [5, 127, 32767, -1])
def test_api_versions_of_the_future_is_answered_in_version_0_and_the_connection_goes_on(
    version: int, client: RawClient
) -> None:
    client.socket.sendall(struct.pack(">ihhih", 15, 18, version, 7, -1) + b"\x00junk")
    assert client.receive_frame() == bytes.fromhex("00000007002300000001001200000004")
    assert announced(client)[18] == range(5)


def test_a_client_id_may_be_null_or_empty_or_long(connect: Callable[[], RawClient]) -> None:
    for client_id in (None, "", "x" * 32767, "ключ"):
        client = connect()
        client.client_id = client_id
        assert announced(client)


def test_bytes_behind_a_request_are_ignored(client: RawClient) -> None:
    _, frame = client.encoded(ApiVersionsRequest(), 0)
    client.socket.sendall(struct.pack(">i", len(frame) - 4 + 5) + frame[4:] + b"extra")
    assert client.receive_frame()[:6] == struct.pack(">ih", 1, 0)


def test_features_are_told_from_version_3_on(client: RawClient) -> None:
    named = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    assert client.ask(ApiVersionsRequest(), 2).finalized_features == []
    for version in (3, 4):
        answer = client.ask(named, version)
        assert {one.name: one.max_version_level for one in answer.finalized_features}["metadata.version"] == 30
        assert answer.finalized_features_epoch >= 0
        lowest = [one.min_version for one in answer.supported_features]
        assert (0 in lowest) == (version >= 4), "a reader of version 3 fails over a lowest version of 0"


def test_a_fetch_of_version_0_to_3_asks_for_nothing_that_is_there(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    client.ask(produce(topic, one_batch(b"new")), 9)
    for version in range(4):
        partition = client.ask(fetch(topic), version).responses[0].partitions[0]
        assert (partition.error_code, bytes(partition.records)) == (35, b"")
        empty = client.ask(fetch(topic, 1), version).responses[0].partitions[0]
        assert (empty.error_code, empty.high_watermark) == (0, 1)


def test_an_empty_fetch_is_answered_in_every_version(client: RawClient) -> None:
    for version in range(19):
        assert client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), version).responses == []
