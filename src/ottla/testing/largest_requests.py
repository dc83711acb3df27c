"""The largest request of every API that a broker has to take, and what must be there for it to hurt.

For each API that is served there is at least one row; a test holds that. `Stage` makes the topics, groups and records
that the rows name. Sizes come from outside: a benchmark takes the largest that are legal, a test smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

from ottla.config.dynamic import ConfigResourceType
from ottla.protocol.messages import (
    acls,
    api_versions,
    cluster,
    configs,
    consumer_groups,
    fetch,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    offsets,
    quotas,
    sasl,
    scram,
    tokens,
    topics,
    transactions,
)
from ottla.protocol.schema import message_schema_of
from ottla.protocol.wire import ZERO_UUID
from ottla.records.layout import Compression
from ottla.testing.messages import smallest_message
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_groups import commit
from ottla.testing.raw_requests import create_topic, one_batch, produce, produce_to_many
from ottla.testing.raw_transactions import RawProducer, find_coordinator

WIDE = "wide"  # has very many partitions
ZIPPED = "zipped"  # has batches that decompress to many times their size
GROUP = "keeper"  # the first of the groups with offsets
TRANSACTION = "large"
TIME_MS = 1_700_000_000_000
GROUP_KEY, TRANSACTION_KEY = 0, 1
MEMBERS_MAX = 5000  # and whatever else is decided about a group in one go


@dataclass(frozen=True, slots=True)
class Size:
    """How large."""

    partitions: int  # of the one topic
    names: int  # in a list of whatever there is not
    groups: int
    offsets_per_group: int
    zipped_batches: int
    zipped_bytes: int  # that each of them decompresses to
    # Of the producer that `Stage` introduces.
    producer_id: int = 0
    producer_epoch: int = 0


NOTHING = Size(partitions=0, names=0, groups=0, offsets_per_group=0, zipped_batches=0, zipped_bytes=0)


class Row(NamedTuple):
    """A request, the version in which it is sent, and what is large about it."""

    title: str
    version: int
    make: Callable[[Size], Any]

    @property
    def key(self) -> int:
        """Of the API."""
        key = message_schema_of(type(self.make(NOTHING))).key
        assert key is not None
        return key


def filled(cls: type[Any], version: int, **fields: Any) -> Any:
    """The smallest message with these fields."""
    message = smallest_message(cls, version)
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def names(size: Size, count_max: int = 100_000) -> list[str]:
    return [f"n{number}" for number in range(min(size.names, count_max))]


def _resources(cls: type[Any], version: int, size: Size, kind: ConfigResourceType) -> list[Any]:
    return [filled(cls, version, resource_type=kind, resource_name=name) for name in names(size)]


def _batches(size: Size) -> Iterator[tuple[int, bytes | None]]:
    return ((index, one_batch(b"x")) for index in range(min(size.partitions, 19_000)))


def _fetch(size: Size) -> Any:
    partitions = [
        filled(fetch.FetchPartition, 12, partition=index, fetch_offset=0, partition_max_bytes=1000)
        for index in range(size.partitions)
    ]
    topic = filled(fetch.FetchTopic, 12, topic=WIDE, partitions=partitions)
    return filled(fetch.FetchRequest, 12, max_wait_ms=200, min_bytes=1 << 30, max_bytes=1 << 30, topics=[topic])


def _alter_replica_log_dirs(size: Size) -> Any:
    """Of a directory that there is not: all that a broker does about each replica without a disk."""
    topic = log_dirs.AlterReplicaLogDirTopic(name=WIDE, partitions=list(range(min(size.partitions, 49_000))))
    return log_dirs.AlterReplicaLogDirsRequest(dirs=[log_dirs.AlterReplicaLogDir(path="/nowhere", topics=[topic])])


def _fetch_small_topics(size: Size) -> Any:
    """A new session with very many topics of one partition each."""
    partition = filled(fetch.FetchPartition, 12, partition=0, fetch_offset=0, partition_max_bytes=1000)
    wanted = [filled(fetch.FetchTopic, 12, topic=name, partitions=[partition]) for name in names(size, 49_000)]
    return filled(fetch.FetchRequest, 12, session_epoch=0, max_bytes=1 << 30, topics=wanted)


def _list_offsets(topic: str, indexes: range, timestamp: int) -> Any:
    partitions = [
        filled(offsets.ListOffsetsPartition, 9, partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
        for index in indexes
    ]
    return filled(
        offsets.ListOffsetsRequest,
        9,
        replica_id=-1,
        topics=[filled(offsets.ListOffsetsTopic, 9, name=topic, partitions=partitions)],
    )


def _list_decompressing(size: Size) -> Any:
    return _list_offsets(ZIPPED, range(size.zipped_batches), TIME_MS + 1)


def _metadata(size: Size) -> Any:
    wanted = [filled(metadata.MetadataRequestTopic, 12, name=name, topic_id=ZERO_UUID) for name in names(size)]
    return filled(metadata.MetadataRequest, 12, topics=wanted, allow_auto_topic_creation=False)


def _committable(size: Size) -> range:
    """As many as fit in a batch of the offsets topic: more are refused, here as in Kafka."""
    return range(min(size.partitions, 9000))


def _fetch_offsets(size: Size) -> Any:
    wanted = [
        filled(group_offsets.OffsetFetchRequestGroup, 8, group_id=name, topics=None) for name in group_names(size)
    ]
    return filled(group_offsets.OffsetFetchRequest, 8, groups=wanted)


def _fetch_offsets_by_id(size: Size) -> Any:
    """Of very many topics that nobody has."""
    wanted = [
        filled(group_offsets.OffsetFetchRequestTopics, 10, topic_id=UUID(int=number + 1), partition_indexes=[0])
        for number in range(min(size.names, 49_000))
    ]
    group = filled(group_offsets.OffsetFetchRequestGroup, 10, group_id=GROUP, topics=wanted)
    return filled(group_offsets.OffsetFetchRequest, 10, groups=[group])


def group_names(size: Size) -> list[str]:
    return [GROUP, *(f"{GROUP}{number}" for number in range(1, size.groups))]


def _join(size: Size) -> Any:
    protocols = [filled(groups.JoinGroupRequestProtocol, 9, name=name) for name in names(size, MEMBERS_MAX)]
    return filled(
        groups.JoinGroupRequest,
        9,
        group_id="joined",
        session_timeout_ms=6000,
        protocol_type="consumer",
        protocols=protocols,
    )


def _leave(size: Size) -> Any:
    members = [filled(groups.MemberIdentity, 5, member_id=name) for name in names(size, MEMBERS_MAX)]
    return filled(groups.LeaveGroupRequest, 5, group_id=GROUP, members=members)


def _sync(size: Size) -> Any:
    assignments = [filled(groups.SyncGroupRequestAssignment, 5, member_id=name) for name in names(size, MEMBERS_MAX)]
    return filled(
        groups.SyncGroupRequest,
        5,
        group_id=GROUP,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )


def _api_versions() -> Any:
    return filled(api_versions.ApiVersionsRequest, 3, client_software_name="neighbour", client_software_version="1")


def _create(size: Size) -> Any:
    wanted = [
        filled(topics.CreatableTopic, 7, name=name, num_partitions=1, replication_factor=1)
        for name in names(size, size.names // 10)
    ]
    return filled(topics.CreateTopicsRequest, 7, topics=wanted, timeout_ms=60_000, validate_only=True)


def _delete(size: Size) -> Any:
    wanted = [filled(topics.DeleteTopicState, 6, name=name, topic_id=ZERO_UUID) for name in names(size)]
    return filled(topics.DeleteTopicsRequest, 6, topics=wanted, timeout_ms=60_000)


def _delete_records(size: Size) -> Any:
    partitions = [
        filled(offsets.DeleteRecordsPartition, 2, partition_index=index, offset=0) for index in range(size.partitions)
    ]
    topic = filled(offsets.DeleteRecordsTopic, 2, name=WIDE, partitions=partitions)
    return filled(offsets.DeleteRecordsRequest, 2, topics=[topic], timeout_ms=60_000)


def _leader_epochs(size: Size) -> Any:
    partitions = [
        filled(offsets.OffsetForLeaderPartition, 4, partition=index, leader_epoch=0) for index in range(size.names)
    ]
    topic = filled(offsets.OffsetForLeaderTopic, 4, topic=WIDE, partitions=partitions)
    return filled(offsets.OffsetForLeaderEpochRequest, 4, replica_id=-1, topics=[topic])


def _of_transaction(cls: type[Any], version: int, size: Size, **fields: Any) -> Any:
    return filled(
        cls,
        version,
        transactional_id=TRANSACTION,
        producer_id=size.producer_id,
        producer_epoch=size.producer_epoch,
        **fields,
    )


def _add_offsets(size: Size) -> Any:
    return _of_transaction(transactions.AddOffsetsToTxnRequest, 4, size, group_id=GROUP)


def _add_partitions(size: Size) -> Any:
    topic = filled(transactions.AddPartitionsToTxnTopic, 3, name=WIDE, partitions=list(range(size.partitions)))
    return filled(
        transactions.AddPartitionsToTxnRequest,
        3,
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=size.producer_id,
        v3_and_below_producer_epoch=size.producer_epoch,
        v3_and_below_topics=[topic],
    )


def _commit_in_transaction(size: Size) -> Any:
    partitions = [
        filled(transactions.TxnOffsetCommitRequestPartition, 3, partition_index=index, committed_offset=1)
        for index in _committable(size)
    ]
    topic = filled(transactions.TxnOffsetCommitRequestTopic, 3, name=WIDE, partitions=partitions)
    return _of_transaction(
        transactions.TxnOffsetCommitRequest, 3, size, group_id=GROUP, generation_id=-1, member_id="", topics=[topic]
    )


def _markers(size: Size) -> Any:
    topic = filled(transactions.WritableTxnMarkerTopic, 1, name=WIDE, partition_indexes=list(range(size.partitions)))
    marker = filled(
        transactions.WritableTxnMarker, 1, producer_id=77, producer_epoch=0, transaction_result=True, topics=[topic]
    )
    return filled(transactions.WriteTxnMarkersRequest, 1, markers=[marker])


def _describe_configs(size: Size) -> Any:
    resources = _resources(configs.DescribeConfigsResource, 4, size, ConfigResourceType.GROUP)
    return filled(configs.DescribeConfigsRequest, 4, resources=resources)


def _alter_configs(size: Size) -> Any:
    resources = _resources(configs.AlterConfigsRequestAlterConfigsResource, 2, size, ConfigResourceType.TOPIC)
    return filled(configs.AlterConfigsRequest, 2, resources=resources, validate_only=True)


def _incremental_alter_configs(size: Size) -> Any:
    cls = configs.IncrementalAlterConfigsRequestAlterConfigsResource
    resources = _resources(cls, 1, size, ConfigResourceType.TOPIC)
    return filled(configs.IncrementalAlterConfigsRequest, 1, resources=resources, validate_only=True)


def _create_partitions(size: Size) -> Any:
    wanted = [filled(topics.CreatePartitionsTopic, 3, name=name, count=2, assignments=None) for name in names(size)]
    return filled(topics.CreatePartitionsRequest, 3, topics=wanted, timeout_ms=60_000, validate_only=True)


def _elect(size: Size) -> Any:
    topic = topics.TopicPartitions(topic=WIDE, partitions=list(range(size.partitions)))
    return filled(topics.ElectLeadersRequest, 2, topic_partitions=[topic], timeout_ms=60_000)


def _reassign(size: Size) -> Any:
    """To a broker that there is not."""
    partitions = [
        filled(topics.ReassignablePartition, 1, partition_index=index, replicas=[9]) for index in range(size.partitions)
    ]
    topic = filled(topics.ReassignableTopic, 1, name=WIDE, partitions=partitions)
    return filled(topics.AlterPartitionReassignmentsRequest, 1, timeout_ms=60_000, topics=[topic])


def _list_reassignments(size: Size) -> Any:
    topic = filled(
        topics.ListPartitionReassignmentsTopics, 0, name=WIDE, partition_indexes=list(range(size.partitions))
    )
    return filled(topics.ListPartitionReassignmentsRequest, 0, timeout_ms=60_000, topics=[topic])


def _delete_offsets(size: Size) -> Any:
    partitions = [
        filled(group_offsets.OffsetDeleteRequestPartition, 0, partition_index=index) for index in range(size.partitions)
    ]
    topic = filled(group_offsets.OffsetDeleteRequestTopic, 0, name=WIDE, partitions=partitions)
    return filled(group_offsets.OffsetDeleteRequest, 0, group_id="nobody", topics=[topic])


def _describe_producers(size: Size) -> Any:
    cls = metadata.DescribeProducersRequestTopicRequest
    topic = filled(cls, 0, name=WIDE, partition_indexes=list(range(size.partitions)))
    return filled(metadata.DescribeProducersRequest, 0, topics=[topic])


def _describe_transactions(size: Size) -> Any:
    return filled(transactions.DescribeTransactionsRequest, 0, transactional_ids=names(size))


def _list_transactions(size: Size) -> Any:
    return filled(transactions.ListTransactionsRequest, 1, producer_id_filters=list(range(size.names)))


def _beat(size: Size) -> Any:
    return filled(
        consumer_groups.ConsumerGroupHeartbeatRequest,
        1,
        group_id="beating",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=names(size, MEMBERS_MAX),
        topic_partitions=[],
    )


def _describe_consumers(size: Size) -> Any:
    return filled(consumer_groups.ConsumerGroupDescribeRequest, 1, group_ids=names(size))


def _list_resources(size: Size) -> Any:
    return filled(configs.ListConfigResourcesRequest, 1, resource_types=[2] * size.names)


# Kinds of resources, patterns, operations and permissions of access rules: any that is known.
_KIND = 2


def _create_acls(size: Size) -> Any:
    one = filled(
        acls.AclCreation,
        3,
        resource_type=_KIND,
        resource_pattern_type=_KIND,
        operation=_KIND,
        permission_type=_KIND,
    )
    return filled(acls.CreateAclsRequest, 3, creations=[one] * size.names)


def _describe_scram(size: Size) -> Any:
    users = [scram.UserName(name=name) for name in names(size)]
    return scram.DescribeUserScramCredentialsRequest(users=users)


def _alter_scram(size: Size) -> Any:
    """Deletions of users that are not there: each is looked for."""
    deletions = [scram.ScramCredentialDeletion(name=name, mechanism=1) for name in names(size)]
    return scram.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])


def _create_token(size: Size) -> Any:
    renewers = [tokens.CreatableRenewers(principal_type="User", principal_name=name) for name in names(size)]
    return filled(tokens.CreateDelegationTokenRequest, 3, renewers=renewers)


def _describe_tokens(size: Size) -> Any:
    owners = [tokens.DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in names(size)]
    return filled(tokens.DescribeDelegationTokenRequest, 3, owners=owners)


def _acl_filter(cls: type[Any]) -> Any:
    return filled(cls, 3, resource_type_filter=_KIND, pattern_type_filter=_KIND, operation=_KIND, permission_type=_KIND)


def _delete_acls(size: Size) -> Any:
    return filled(acls.DeleteAclsRequest, 3, filters=[_acl_filter(acls.DeleteAclsFilter)] * min(size.names, 19_000))


def _alter_quotas(size: Size) -> Any:
    """Of users who have none: each is looked for, and nothing is written."""
    entries = [
        quotas.AlterClientQuotasRequestEntryData(
            entity=[quotas.EntityData(entity_type="user", entity_name=name)],
            ops=[quotas.OpData(key="producer_byte_rate", value=0.0, remove=True)],
        )
        for name in names(size, 16_000)
    ]
    return quotas.AlterClientQuotasRequest(entries=entries, validate_only=False)


def _describe_quotas(size: Size) -> Any:
    component = quotas.ComponentData(entity_type="user", match_type=2, match=None)
    return quotas.DescribeClientQuotasRequest(components=[component], strict=False)


def _update_features(size: Size) -> Any:
    updates = [filled(cluster.FeatureUpdateKey, 2, feature="group.version", max_version_level=1)] * size.names
    return cluster.UpdateFeaturesRequest(feature_updates=updates)


ROWS = (
    Row("Produce to every partition", 9, lambda size: produce_to_many(WIDE, _batches(size))),
    Row("Fetch of every partition", 12, _fetch),
    Row("Fetch of very many small topics", 12, _fetch_small_topics),
    Row("ListOffsets of very many partitions", 9, lambda size: _list_offsets(WIDE, range(size.names), -1)),
    Row(
        "ListOffsets by time in batches that decompress",
        9,
        lambda size: _list_offsets(ZIPPED, range(size.zipped_batches), TIME_MS + 1),
    ),
    Row("Metadata of everything", 12, lambda size: filled(metadata.MetadataRequest, 12, topics=None)),
    Row("Metadata of topics that are not there", 12, _metadata),
    Row("OffsetCommit of every partition", 8, lambda size: commit(GROUP, WIDE, dict.fromkeys(_committable(size), 1))),
    Row("OffsetCommit of a deleted topic", 8, lambda size: commit(GROUP, "gone", dict.fromkeys(range(size.names), 1))),
    Row("OffsetFetch of all offsets of all groups", 8, _fetch_offsets),
    Row("OffsetFetch of very many topics by id", 10, _fetch_offsets_by_id),
    Row("FindCoordinator", 6, lambda size: filled(groups.FindCoordinatorRequest, 6, coordinator_keys=names(size))),
    Row("JoinGroup with very many protocols", 9, _join),
    Row("Heartbeat", 4, lambda size: filled(groups.HeartbeatRequest, 4, group_id=GROUP, member_id="m")),
    Row("LeaveGroup of very many members", 5, _leave),
    Row("SyncGroup with very many assignments", 5, _sync),
    Row("DescribeGroups", 6, lambda size: filled(groups.DescribeGroupsRequest, 6, groups=names(size))),
    Row("ListGroups", 5, lambda size: filled(groups.ListGroupsRequest, 5, states_filter=[], types_filter=[])),
    Row("SaslHandshake", 1, lambda size: filled(sasl.SaslHandshakeRequest, 1, mechanism="PLAIN")),
    Row("SaslAuthenticate", 2, lambda size: filled(sasl.SaslAuthenticateRequest, 2, auth_bytes=bytes(size.names))),
    Row("DescribeAcls", 3, lambda size: _acl_filter(acls.DescribeAclsRequest)),
    Row("CreateAcls", 3, _create_acls),
    Row("DeleteAcls", 3, _delete_acls),
    Row("DescribeUserScramCredentials", 0, _describe_scram),
    Row("AlterUserScramCredentials", 0, _alter_scram),
    Row("DescribeClientQuotas", 1, _describe_quotas),
    Row("AlterClientQuotas of very many users", 1, _alter_quotas),
    Row("UpdateFeatures", 2, _update_features),
    Row("UnregisterBroker", 0, lambda size: cluster.UnregisterBrokerRequest(broker_id=99)),
    Row("CreateDelegationToken with very many renewers", 3, _create_token),
    Row("RenewDelegationToken", 2, lambda size: filled(tokens.RenewDelegationTokenRequest, 2, hmac=bytes(size.names))),
    Row(
        "ExpireDelegationToken", 2, lambda size: filled(tokens.ExpireDelegationTokenRequest, 2, hmac=bytes(size.names))
    ),
    Row("DescribeDelegationToken of very many owners", 3, _describe_tokens),
    Row("ApiVersions", 3, lambda size: _api_versions()),
    Row("CreateTopics, validated only", 7, _create),
    Row("DeleteTopics that are not there", 6, _delete),
    Row("DeleteRecords of every partition", 2, _delete_records),
    Row("InitProducerId", 4, lambda size: filled(transactions.InitProducerIdRequest, 4, transaction_timeout_ms=1000)),
    Row("OffsetForLeaderEpoch", 4, _leader_epochs),
    Row("AddPartitionsToTxn of every partition", 3, _add_partitions),
    Row(
        "AddOffsetsToTxn", 4, lambda size: _of_transaction(transactions.AddOffsetsToTxnRequest, 4, size, group_id=GROUP)
    ),
    Row("TxnOffsetCommit of every partition", 3, _commit_in_transaction),
    Row("EndTxn", 3, lambda size: _of_transaction(transactions.EndTxnRequest, 3, size, committed=True)),
    Row("WriteTxnMarkers to every partition", 1, _markers),
    Row("DescribeConfigs of very many groups", 4, _describe_configs),
    Row("AlterConfigs", 2, _alter_configs),
    Row("IncrementalAlterConfigs", 1, _incremental_alter_configs),
    Row("AlterReplicaLogDirs of every partition", 2, _alter_replica_log_dirs),
    Row("DescribeLogDirs", 4, lambda size: filled(log_dirs.DescribeLogDirsRequest, 4, topics=None)),
    Row("CreatePartitions", 3, _create_partitions),
    Row("ElectLeaders of every partition", 2, _elect),
    Row(
        "ElectLeaders wherever one is needed",
        2,
        lambda size: filled(topics.ElectLeadersRequest, 2, topic_partitions=None, timeout_ms=60_000),
    ),
    Row("AlterPartitionReassignments of every partition", 1, _reassign),
    Row("ListPartitionReassignments of every partition", 0, _list_reassignments),
    Row("DeleteGroups", 2, lambda size: filled(groups.DeleteGroupsRequest, 2, groups_names=names(size))),
    Row("OffsetDelete of every partition", 0, _delete_offsets),
    Row("DescribeCluster", 1, lambda size: filled(cluster.DescribeClusterRequest, 1)),
    Row("DescribeProducers of every partition", 0, _describe_producers),
    Row("DescribeTransactions", 0, _describe_transactions),
    Row("ListTransactions", 1, _list_transactions),
    Row("ConsumerGroupHeartbeat with very many topics", 1, _beat),
    Row("ConsumerGroupDescribe", 1, _describe_consumers),
    Row("ListConfigResources", 1, _list_resources),
    Row("DescribeTopicPartitions", 0, lambda size: filled(metadata.DescribeTopicPartitionsRequest, 0, topics=[])),
)


class Stage:
    """What the rows need, made on a broker."""

    def __init__(self, client: RawClient, size: Size) -> None:
        self._client = client
        self._size = size

    def make(self) -> Size:
        """The size with which rows are to be made from here on."""
        for key_type, key in ((GROUP_KEY, GROUP), (TRANSACTION_KEY, TRANSACTION)):
            find_coordinator(self._client, key, key_type)
        self._client.ask(create_topic(WIDE, self._size.partitions), 7)
        self._client.ask(create_topic(ZIPPED, self._size.zipped_batches), 7)
        self._fill_zipped()
        self._commit_offsets()
        producer = RawProducer(self._client, TRANSACTION)
        producer.init()
        return replace(self._size, producer_id=producer.producer_id, producer_epoch=producer.epoch)

    def _fill_zipped(self) -> None:
        """A batch for each partition, whose last record alone is of the time that is asked for."""
        record = bytes(1000)
        count = max(1, self._size.zipped_bytes // len(record))
        times = [TIME_MS] * (count - 1) + [TIME_MS + 1]
        data = one_batch(*[record] * count, timestamps=times, compression=Compression.ZSTD)
        for index in range(self._size.zipped_batches):
            self._client.ask(produce(ZIPPED, data, partition=index), 9)

    def _commit_offsets(self) -> None:
        per_commit = 1000
        for name in group_names(self._size):
            for start in range(0, self._size.offsets_per_group, per_commit):
                indexes = range(start, min(start + per_commit, self._size.offsets_per_group, self._size.partitions))
                self._client.ask(commit(name, WIDE, dict.fromkeys(indexes, 1)), 8)
