"""The request handlers, a module per API: `handle(broker, request, context)` returns the response."""

from __future__ import annotations

from ottla.broker.handlers import (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    client_quotas,
    consumer_group_describe,
    consumer_group_heartbeat,
    control,
    create_partitions,
    create_topics,
    delegation_tokens,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    features,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    partition_reassignments,
    produce,
    sasl,
    scram_credentials,
    sync_group,
    to_controller,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.broker.serving import by_key, serve
from ottla.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster import DescribeClusterRequest, UnregisterBrokerRequest, UpdateFeaturesRequest
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.group_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from ottla.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from ottla.protocol.messages.metadata import DescribeProducersRequest, DescribeTopicPartitionsRequest, MetadataRequest
from ottla.protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from ottla.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
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
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
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

# What is not here is neither served nor announced. By API key, which is that of the request class.
HANDLERS = by_key(
    serve(ProduceRequest, produce.handle, elements_max=20_000, keep=produce.keep_records),
    serve(FetchRequest, fetch.handle, ends_with_peer=True),
    serve(ListOffsetsRequest, list_offsets.handle, ends_with_peer=True),
    serve(MetadataRequest, metadata.handle, ends_with_peer=True),
    serve(OffsetCommitRequest, offset_commit.handle),
    serve(OffsetFetchRequest, offset_fetch.handle, ends_with_peer=True),
    serve(FindCoordinatorRequest, find_coordinator.handle, ends_with_peer=True),
    serve(JoinGroupRequest, join_group.handle, elements_max=5000, ends_with_peer=True, reports_bytes=True),
    serve(HeartbeatRequest, heartbeat.handle),
    serve(LeaveGroupRequest, leave_group.handle, elements_max=5000),
    serve(SyncGroupRequest, sync_group.handle, elements_max=5000, ends_with_peer=True),
    serve(DescribeGroupsRequest, describe_groups.handle, ends_with_peer=True, reports_bytes=True),
    serve(ListGroupsRequest, list_groups.handle, ends_with_peer=True),
    serve(SaslHandshakeRequest, sasl.handle_handshake),
    serve(ApiVersionsRequest, api_versions.handle, ends_with_peer=True),
    serve(CreateTopicsRequest, create_topics.handle, elements_max=50_000),
    serve(DeleteTopicsRequest, delete_topics.handle, elements_max=50_000),
    serve(DeleteRecordsRequest, delete_records.handle),
    serve(InitProducerIdRequest, init_producer_id.handle),
    serve(OffsetForLeaderEpochRequest, offset_for_leader_epoch.handle, ends_with_peer=True),
    serve(AddPartitionsToTxnRequest, add_partitions_to_txn.handle, elements_max=20_000),
    serve(AddOffsetsToTxnRequest, add_offsets_to_txn.handle),
    serve(EndTxnRequest, end_txn.handle),
    serve(WriteTxnMarkersRequest, write_txn_markers.handle),
    serve(TxnOffsetCommitRequest, txn_offset_commit.handle),
    serve(DescribeAclsRequest, acls.handle_describe, ends_with_peer=True),
    serve(CreateAclsRequest, acls.handle_create),
    serve(DeleteAclsRequest, acls.handle_delete, elements_max=20_000),
    serve(DescribeConfigsRequest, describe_configs.handle, ends_with_peer=True),
    serve(AlterConfigsRequest, alter_configs.handle, elements_max=50_000),
    serve(AlterReplicaLogDirsRequest, alter_replica_log_dirs.handle, elements_max=50_000),
    serve(DescribeLogDirsRequest, describe_log_dirs.handle, ends_with_peer=True),
    serve(SaslAuthenticateRequest, sasl.handle_authenticate),
    serve(CreateDelegationTokenRequest, delegation_tokens.handle_create),
    serve(RenewDelegationTokenRequest, delegation_tokens.handle_renew),
    serve(ExpireDelegationTokenRequest, delegation_tokens.handle_expire),
    serve(DescribeDelegationTokenRequest, delegation_tokens.handle_describe, ends_with_peer=True),
    serve(CreatePartitionsRequest, create_partitions.handle, elements_max=50_000),
    serve(DeleteGroupsRequest, delete_groups.handle),
    serve(ElectLeadersRequest, elect_leaders.handle),
    serve(IncrementalAlterConfigsRequest, alter_configs.handle_incremental, elements_max=50_000),
    serve(AlterPartitionReassignmentsRequest, partition_reassignments.handle_alter),
    serve(ListPartitionReassignmentsRequest, partition_reassignments.handle_list, ends_with_peer=True),
    serve(OffsetDeleteRequest, offset_delete.handle, elements_max=20_000),
    serve(DescribeClientQuotasRequest, client_quotas.handle_describe, ends_with_peer=True),
    serve(AlterClientQuotasRequest, client_quotas.handle_alter, elements_max=50_000),
    serve(DescribeUserScramCredentialsRequest, scram_credentials.handle_describe, ends_with_peer=True),
    serve(AlterUserScramCredentialsRequest, scram_credentials.handle_alter, elements_max=20_000),
    serve(UpdateFeaturesRequest, features.handle_update, ends_with_peer=True),
    serve(DescribeClusterRequest, describe_cluster.handle, ends_with_peer=True),
    serve(DescribeProducersRequest, describe_producers.handle, ends_with_peer=True),
    serve(UnregisterBrokerRequest, features.handle_unregister, ends_with_peer=True),
    serve(DescribeTransactionsRequest, describe_transactions.handle, ends_with_peer=True),
    serve(ListTransactionsRequest, list_transactions.handle, ends_with_peer=True),
    serve(ConsumerGroupHeartbeatRequest, consumer_group_heartbeat.handle, elements_max=20_000),
    serve(ConsumerGroupDescribeRequest, consumer_group_describe.handle, ends_with_peer=True),
    serve(ListConfigResourcesRequest, list_config_resources.handle, ends_with_peer=True),
    serve(DescribeTopicPartitionsRequest, describe_topic_partitions.handle, elements_max=20_000, ends_with_peer=True),
)

CLUSTER_ELEMENTS_MAX = 10_000_000  # of what a controller sends: everything about every partition

# What brokers of a cluster say to each other.
CLUSTER_HANDLERS = by_key(
    serve(LeaderAndIsrRequest, control.handle_leader_and_isr, elements_max=CLUSTER_ELEMENTS_MAX),
    serve(StopReplicaRequest, control.handle_stop_replica, elements_max=CLUSTER_ELEMENTS_MAX),
    serve(UpdateMetadataRequest, control.handle_update_metadata, elements_max=CLUSTER_ELEMENTS_MAX),
    serve(ControlledShutdownRequest, to_controller.handle_controlled_shutdown),
    serve(AlterPartitionRequest, to_controller.handle_alter_partition, elements_max=CLUSTER_ELEMENTS_MAX),
    serve(AllocateProducerIdsRequest, to_controller.handle_allocate_producer_ids),
)
