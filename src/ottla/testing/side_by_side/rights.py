"""Every right, somebody who lacks just that one, somebody who has no other, and what they ask of a broker.

Everybody has names of his own, so that what one may do changes nothing for the next: a topic and groups that are there,
and others that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from ottla.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.messages.cluster import (
    DescribeClusterRequest,
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)
from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from ottla.protocol.messages.fetch import FetchRequest, ReplicaState
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.protocol.messages.metadata import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from ottla.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialUpsertion,
    UserName,
)
from ottla.protocol.messages.tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)
from ottla.security.acls import Operation, Permission, Resource
from ottla.testing.raw_groups import commit, delete_offsets, fetch_offsets, first_beat, heartbeat, join, leave, sync
from ottla.testing.raw_requests import creatable, create_topic, fetch, list_offsets, one_batch, produce
from ottla.testing.raw_transactions import end_request, init_request, marker_request, offsets_request
from ottla.testing.side_by_side.secured import acl

NOBODY_ID = 999_999_999  # a producer id that nobody was given
UNKNOWN_ID = UUID(int=7)
TOPIC, BROKER, GROUP = 2, 4, 32
EVERYTHING, NOTHING = "everything", "nothing"


class Right(NamedTuple):
    resource: Resource
    operation: Operation

    def __str__(self) -> str:
        return f"{self.resource.name}-{self.operation.name}".lower()


RIGHTS = [
    Right(resource, operation)
    for resource, operations in {
        Resource.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
        Resource.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
        Resource.CLUSTER: "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
        Resource.TRANSACTIONAL_ID: "DESCRIBE WRITE TWO_PHASE_COMMIT",
        Resource.DELEGATION_TOKEN: "DESCRIBE",
        Resource.USER: "CREATE_TOKENS DESCRIBE_TOKENS",
    }.items()
    for operation in map(Operation.__getitem__, operations.split())
]


def without(right: Right) -> str:
    return f"without-{right}"


def only(right: Right) -> str:
    return f"only-{right}"


RANDOM_USERS = [f"random-{number}" for number in range(60)]  # who have ACLs of their own
USERS = [NOTHING, EVERYTHING, *map(without, RIGHTS), *map(only, RIGHTS), *RANDOM_USERS]


def acls_of_users() -> Iterator[AclCreation]:
    resources = dict.fromkeys(right.resource for right in RIGHTS)
    for user in (EVERYTHING, *map(without, RIGHTS)):
        for resource in resources:
            yield acl(user, Operation.ALL, resource)
    for right in RIGHTS:
        yield acl(without(right), right.operation, right.resource, permission=Permission.DENY)
        yield acl(only(right), right.operation, right.resource)


@dataclass(frozen=True, slots=True)
class Names:
    """What belongs to one user; the first of each kind is there."""

    user: str
    topic_id: UUID = UNKNOWN_ID

    def of(self, kind: str) -> str:
        return f"{kind}-{self.user}"

    @property
    def topics(self) -> tuple[str, str]:
        return self.of("topic"), self.of("missing")

    @property
    def groups(self) -> tuple[str, str]:
        return self.of("group"), self.of("no-group")


class Case(NamedTuple):
    """A question; `seen`: what of the answer is compared, where not all of it can be the same."""

    request: Any
    version: int
    seen: Callable[[Any], Any] | None = None


def cases(names: Names) -> Iterator[Case]:
    """In an order in which what is there lasts until somebody has asked for it."""
    yield from _records(names)
    yield from _metadata(names)
    yield from _offsets_of_groups(names)
    yield from _groups(names)
    yield from _transactions(names)
    yield from _configs(names)
    yield from _cluster(names)
    yield from _tokens(names)
    yield from _changes(names)


def _both(first: Any, second: Any, field: str) -> Any:
    """One request about what two are about."""
    getattr(first, field).extend(getattr(second, field))
    return first


def _records(names: Names) -> Iterator[Case]:
    topic, missing = names.topics
    records = one_batch(b"x")
    yield Case(_both(produce(topic, records), produce(missing, records), "topic_data"), 9)
    by_id = produce("", records, topic_id=names.topic_id)
    yield Case(_both(by_id, produce("", records, topic_id=UNKNOWN_ID), "topic_data"), 13)
    hidden = one_batch(b"x", is_transactional=True, producer_id=NOBODY_ID, producer_epoch=0, base_sequence=0)
    yield Case(produce(topic, hidden, transactional_id=names.of("new-txn")), 9, codes_only)
    yield Case(produce(topic, hidden), 9, codes_only)
    yield Case(_both(fetch(topic), fetch(missing), "topics"), 12)
    both = _both(fetch("", topic_id=names.topic_id), fetch("", topic_id=UNKNOWN_ID), "topics")
    yield Case(both, 13)
    yield Case(_as_follower(_both(fetch(topic), fetch(missing), "topics")), 12)
    replica: FetchRequest = fetch("", topic_id=names.topic_id)
    replica.replica_state = ReplicaState(replica_id=1, replica_epoch=-1)
    yield Case(replica, 15)
    yield Case(_both(list_offsets(topic, -1), list_offsets(missing, -1), "topics"), 7)
    epochs = [
        OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        for name in names.topics
    ]
    yield Case(OffsetForLeaderEpochRequest(topics=epochs), 4)
    producers = [DescribeProducersRequestTopicRequest(name=name, partition_indexes=[0]) for name in names.topics]
    yield Case(DescribeProducersRequest(topics=producers), 0)


def _as_follower(request: FetchRequest) -> FetchRequest:
    request.replica_id = 1
    return request


def _metadata(names: Names) -> Iterator[Case]:
    topics = [MetadataRequestTopic(name=name) for name in names.topics]
    quiet = {"allow_auto_topic_creation": False}
    bits = {"include_topic_authorized_operations": True}
    cluster_bits = {"include_cluster_authorized_operations": True}
    yield Case(MetadataRequest(topics=topics, **quiet, **bits, **cluster_bits), 9)
    ids = [MetadataRequestTopic(name=None, topic_id=each) for each in (names.topic_id, UNKNOWN_ID)]
    yield Case(MetadataRequest(topics=ids, **quiet, **bits), 12)
    yield Case(MetadataRequest(topics=[*ids, *topics], **quiet), 12)
    yield Case(MetadataRequest(topics=None, **quiet, **bits), 12, own_topics(names))
    yield Case(MetadataRequest(topics=[]), 0, own_topics(names))
    yield Case(MetadataRequest(topics=[]), 1)
    named = [DescribeTopicPartitionsRequestTopicRequest(name=name) for name in sorted(names.topics)]
    yield Case(DescribeTopicPartitionsRequest(topics=named), 0)
    yield Case(DescribeTopicPartitionsRequest(topics=[]), 0, own_topics(names))
    yield Case(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1), 0)


def _offsets_of_groups(names: Names) -> Iterator[Case]:
    (topic, missing), (group, no_group) = names.topics, names.groups
    yield Case(_both(commit(group, topic, {0: 1}), commit(group, missing, {0: 1}), "topics"), 9)
    committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    ids = [OffsetCommitRequestTopic(topic_id=each, partitions=[committed]) for each in (names.topic_id, UNKNOWN_ID)]
    yield Case(OffsetCommitRequest(group_id=group, topics=ids), 10)
    wanted = {topic: [0], missing: [0]}
    for version in (1, 7, 8):
        yield Case(fetch_offsets(version, group, wanted), version)
    for version in (7, 8):
        yield Case(fetch_offsets(version, group, None), version)
    yield Case(_both(fetch_offsets(8, group, wanted), fetch_offsets(8, no_group, None), "groups"), 8)
    by_id = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (names.topic_id, UNKNOWN_ID)]
    yield Case(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=by_id)]), 10)
    yield Case(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 10)


def _groups(names: Names) -> Iterator[Case]:
    group, no_group = names.groups
    for kind, key in enumerate((group, names.of("txn"))):
        yield Case(FindCoordinatorRequest(key_type=kind, key=key), 3)
        yield Case(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key, names.of("other")]), 4)
    yield Case(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"]), 5)
    for version in (1, 9):
        yield Case(join(names.of("joined"), "unknown"), version)
    yield Case(heartbeat(group, 1, "unknown"), 4)
    yield Case(sync(group, 1, "unknown"), 5)
    yield Case(leave(group, "unknown"), 5)
    yield Case(DescribeGroupsRequest(groups=[group, no_group], include_authorized_operations=True), 5)
    yield Case(ListGroupsRequest(), 5, own_groups(names))
    yield Case(first_beat(names.of("beaten"), "m", *names.topics), 1, codes_only)
    described = [names.of("consumers"), no_group]
    yield Case(ConsumerGroupDescribeRequest(group_ids=described, include_authorized_operations=True), 1)


def _transactions(names: Names) -> Iterator[Case]:
    (topic, missing), (group, _), txn = names.topics, names.groups, names.of("txn")
    yield Case(init_request(None), 4, codes_only)
    yield Case(init_request(names.of("new-txn")), 4, codes_only)
    yield Case(init_request(names.of("two-phase"), enable2_pc=True), 6, codes_only)
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (topic, missing)]
    yield Case(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=txn,
            v3_and_below_producer_id=NOBODY_ID,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        ),
        3,
    )
    batch = AddPartitionsToTxnTransaction(
        transactional_id=txn, producer_id=NOBODY_ID, producer_epoch=0, verify_only=True, topics=topics
    )
    yield Case(AddPartitionsToTxnRequest(transactions=[batch]), 5)
    ids: dict[str, Any] = {"transactional_id": txn, "producer_id": NOBODY_ID, "producer_epoch": 0}
    yield Case(AddOffsetsToTxnRequest(**ids, group_id=group), 4)
    offsets: TxnOffsetCommitRequest = offsets_request(txn, NOBODY_ID, 0, group, topic, 1)
    offsets.topics += offsets_request(txn, NOBODY_ID, 0, group, missing, 1).topics
    for version in (3, 5):
        yield Case(offsets, version)
    yield Case(end_request(txn, NOBODY_ID, 0, commit=True), 5)
    yield Case(marker_request(NOBODY_ID, 0, missing, 0, commit=True), 1)
    yield Case(DescribeTransactionsRequest(transactional_ids=[txn, names.of("no-txn")]), 0, without_times)
    yield Case(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1, own_transactions(names))


def _configs(names: Names) -> Iterator[Case]:
    resources = [
        *((TOPIC, name, "retention.ms", "1000") for name in names.topics),
        (BROKER, "1", "log.retention.ms", "1000"),
        (BROKER, "", "log.retention.ms", "1000"),
        (GROUP, names.groups[0], "consumer.session.timeout.ms", "50000"),
    ]
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
        for kind, name, key, _ in resources
    ]
    yield Case(DescribeConfigsRequest(resources=asked), 4, codes_and_names)
    whole = [
        AlterConfigsRequestAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterConfigsRequestAlterableConfig(name=key, value=value)],
        )
        for kind, name, key, value in resources
        if name  # the defaults of all brokers are refused by Kafka, whoever asks
    ]
    yield Case(AlterConfigsRequest(resources=whole, validate_only=True), 2, codes_and_names)
    parts = [
        IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)],
        )
        for kind, name, key, value in resources
    ]
    yield Case(IncrementalAlterConfigsRequest(resources=parts, validate_only=True), 1, codes_and_names)
    yield Case(ListConfigResourcesRequest(resource_types=[]), 1, codes_only)
    yield Case(ListConfigResourcesRequest(), 0)


def _cluster(names: Names) -> Iterator[Case]:
    topic, missing = names.topics
    yield Case(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    dirs = [AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in (topic, missing)]
    yield Case(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=dirs)]), 2)
    for version in (2, 4):
        yield Case(
            DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])]), version, without_sizes
        )
    quota = [EntityData(entity_type="user", entity_name=names.user)]
    change = AlterClientQuotasRequestEntryData(
        entity=quota, ops=[OpData(key="producer_byte_rate", value=1e9, remove=False)]
    )
    yield Case(AlterClientQuotasRequest(entries=[change], validate_only=True), 1)
    own = ComponentData(entity_type="user", match_type=0, match=names.user)
    yield Case(DescribeClientQuotasRequest(components=[own], strict=False), 1)
    credential = ScramCredentialUpsertion(
        name=names.of("scram"), mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
    )
    yield Case(AlterUserScramCredentialsRequest(deletions=[], upsertions=[credential]), 0)
    yield Case(DescribeUserScramCredentialsRequest(users=[UserName(name=names.of("no-user"))]), 0)
    feature = FeatureUpdateKey(feature="no.such.feature", max_version_level=1, upgrade_type=1)
    yield Case(UpdateFeaturesRequest(feature_updates=[feature], validate_only=True), 1, codes_only)
    yield Case(UnregisterBrokerRequest(broker_id=99), 0)
    of_both = [TopicPartitions(topic=name, partitions=[0]) for name in (topic, missing)]
    for version in (0, 2):
        yield Case(ElectLeadersRequest(topic_partitions=of_both), version)
    yield Case(ElectLeadersRequest(election_type=9, topic_partitions=of_both), 2)
    stays = [ReassignablePartition(partition_index=0, replicas=[1])]
    moved = [ReassignableTopic(name=name, partitions=stays) for name in (topic, missing)]
    yield Case(AlterPartitionReassignmentsRequest(topics=moved), 1)
    looked_for = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in (topic, missing)]
    yield Case(ListPartitionReassignmentsRequest(topics=looked_for), 0)
    yield Case(ListPartitionReassignmentsRequest(topics=None), 0)
    created = acl(names.of("friend"), Operation.READ, Resource.TOPIC, missing)
    yield Case(CreateAclsRequest(creations=[created]), 3)
    wanted: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield Case(DescribeAclsRequest(**wanted, principal_filter=f"User:{names.user}"), 3, sorted_acls)
    yield Case(
        DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted, principal_filter=f"User:{names.of('friend')}")]), 3
    )


def _tokens(names: Names) -> Iterator[Case]:
    yield Case(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3, codes_only)
    yield Case(
        CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=names.of("owner"), renewers=[], max_lifetime_ms=-1
        ),
        3,
        codes_only,
    )
    yield Case(RenewDelegationTokenRequest(hmac=b"unknown", renew_period_ms=-1), 2)
    yield Case(ExpireDelegationTokenRequest(hmac=b"unknown", expiry_time_period_ms=-1), 2)
    given = DescribeDelegationTokenOwner(principal_type="User", principal_name=names.of("granted"))
    yield Case(DescribeDelegationTokenRequest(owners=[given]), 3, owners_of_tokens)


def _changes(names: Names) -> Iterator[Case]:
    (topic, missing), (group, no_group) = names.topics, names.groups
    wanted = [creatable(names.of("new")), creatable(topic)]
    yield Case(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7, without_settings)
    yield Case(create_topic(names.of("newer")), 4)
    more = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in (topic, missing)]
    yield Case(CreatePartitionsRequest(topics=more, timeout_ms=10_000, validate_only=True), 3)
    records = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        for name in (topic, missing)
    ]
    yield Case(DeleteRecordsRequest(topics=records, timeout_ms=10_000), 2)
    yield Case(delete_offsets(group, {topic: [0], missing: [0]}), 0)
    yield Case(DeleteGroupsRequest(groups_names=[group, no_group]), 2)
    yield Case(DeleteTopicsRequest(topic_names=[missing], timeout_ms=10_000), 5)
    doomed = [
        DeleteTopicState(name=None, topic_id=names.topic_id),
        DeleteTopicState(name=None, topic_id=UNKNOWN_ID),
        DeleteTopicState(name=missing, topic_id=UUID(int=0)),
    ]
    yield Case(DeleteTopicsRequest(topics=doomed, timeout_ms=10_000), 6)
    created = MetadataRequest(topics=[MetadataRequestTopic(name=names.of("made"))], allow_auto_topic_creation=True)
    yield Case(created, 9, is_forbidden)


# -- what is compared --------------------------------------------------------------------------------------------------


def codes_only(answer: Any) -> Any:
    return list(codes_in(answer))


def codes_in(value: Any) -> Iterator[int]:
    """Every error code in an answer, in order."""
    if isinstance(value, list):
        for one in value:
            yield from codes_in(one)
    elif hasattr(type(value), "__schema__"):
        for name in type(value).__slots__:
            if name.endswith("error_code"):
                yield getattr(value, name)
            else:
                yield from codes_in(getattr(value, name))


def codes_and_names(answer: Any) -> Any:
    entries = getattr(answer, "results", None) or getattr(answer, "responses", [])
    return sorted((one.resource_type, one.resource_name, one.error_code) for one in entries)


def own_topics(names: Names) -> Callable[[Any], Any]:
    """Of a list of all: those of this user and how many others there are, as others make more of them meanwhile."""

    def seen(answer: Any) -> Any:
        own = [one for one in answer.topics if one.name in names.topics]
        return own, any(one.name not in names.topics for one in answer.topics)

    return seen


def own_groups(names: Names) -> Callable[[Any], Any]:
    def seen(answer: Any) -> Any:
        own = sorted(
            (one for one in answer.groups if one.group_id.endswith(f"-{names.user}")), key=lambda one: one.group_id
        )
        return answer.error_code, own, len(own) < len(answer.groups)

    return seen


def own_transactions(names: Names) -> Callable[[Any], Any]:
    def seen(answer: Any) -> Any:
        own = [one for one in answer.transaction_states if one.transactional_id == names.of("txn")]
        return answer.error_code, own, len(own) < len(answer.transaction_states)

    return seen


def without_times(answer: Any) -> Any:
    for state in answer.transaction_states:
        state.transaction_start_time_ms = min(state.transaction_start_time_ms, 0)
    return answer


def without_sizes(answer: Any) -> Any:
    return answer.error_code, [[(topic.name, len(topic.partitions)) for topic in one.topics] for one in answer.results]


def without_settings(answer: Any) -> Any:
    for topic in answer.topics:
        topic.configs = topic.configs if topic.configs is None else bool(topic.configs)
    answer.topics.sort(key=lambda topic: topic.name)
    return answer


def sorted_acls(answer: Any) -> Any:
    return answer.error_code, sorted(
        (one.resource_type, one.resource_name, each.operation, each.permission_type)
        for one in answer.resources
        for each in one.acls
    )


def owners_of_tokens(answer: Any) -> Any:
    return answer.error_code, sorted(token.principal_name for token in answer.tokens)


def is_forbidden(answer: Any) -> Any:
    """A topic that was just made is there for some, and for others not yet."""
    return [(topic.name, topic.error_code == 29) for topic in answer.topics]
