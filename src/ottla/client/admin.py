"""Asking about a cluster and changing it: topics, settings, offsets, directories.

Each function takes a `Cluster` and values and returns values. Where one call concerns several things, what went wrong
with single ones is in the answer beside those that went well; what concerns the whole call is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar
from uuid import UUID

from ottla.client.metadata import Cluster, ClusterView
from ottla.client.retrying import Deadline, error_of, is_passing
from ottla.errors import ApiError, OttlaError
from ottla.ids import ZERO_TOPIC_ID, TopicPartition
from ottla.net.client import Address, ConnectionFailedError
from ottla.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.messages.metadata import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
    ProducerState,
)
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

Item = TypeVar("Item")

CLIENT_REPLICA_ID: Final = -1  # whoever asks is no replica


# -- topics ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made. -1 takes the cluster's default; `assignment` names the replicas of each partition by hand."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Sequence[Sequence[int]] = ()
    config: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What a broker made; -1 where it is too old to tell."""

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> dict[str, CreatedTopic | ApiError]:
    """Creates topics. When it returns, the broker that was asked knows them."""
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics],
        timeout_ms=_timeout_ms(cluster),
        validate_only=validate_only,
    )
    response = await cluster.ask_controller(
        request, CreateTopicsResponse, lambda answer: (each.error_code for each in answer.topics)
    )
    outcomes: dict[str, CreatedTopic | ApiError] = {}
    for each in response.topics:
        outcomes[each.name] = error_of(each.error_code, each.error_message, f"the topic {each.name}") or CreatedTopic(
            each.name, each.topic_id, each.num_partitions, each.replication_factor
        )
    if not validate_only:
        for name, outcome in outcomes.items():
            if isinstance(outcome, CreatedTopic):
                # The controller has it; brokers hear of it a moment later.
                await cluster.topic(name, may_create=True)
    return outcomes


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignment else topic.partitions,
        replication_factor=-1 if topic.assignment else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(topic.assignment)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in (topic.config or {}).items()],
    )


async def delete_topics(cluster: Cluster, names: Collection[str]) -> dict[str, ApiError | None]:
    """Deletes topics by name."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_TOPIC_ID) for name in names],
        topic_names=list(names),
        timeout_ms=_timeout_ms(cluster),
    )
    response = await cluster.ask_controller(
        request, DeleteTopicsResponse, lambda answer: (each.error_code for each in answer.responses)
    )
    cluster.forget(names)
    return {
        each.name or "": error_of(each.error_code, each.error_message, f"the topic {each.name}")
        for each in response.responses
    }


async def create_partitions(cluster: Cluster, name: str, count: int, *, validate_only: bool = False) -> None:
    """Raises the number of partitions of a topic to `count`."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=_timeout_ms(cluster),
        validate_only=validate_only,
    )
    response = await cluster.ask_controller(
        request, CreatePartitionsResponse, lambda answer: (each.error_code for each in answer.results)
    )
    cluster.forget([name])
    for each in response.results:
        _raise_if(error_of(each.error_code, each.error_message, f"the topic {each.name}"))


async def describe_topics(cluster: Cluster, names: Collection[str] | None = None) -> ClusterView:
    """Topics with partitions, leaders and replicas; all of them where none is named."""
    return await cluster.refresh(names)


# -- settings ----------------------------------------------------------------------------------------------------------


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """What has settings: a topic by name, a broker by id, all brokers together by the empty name."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.type.name.lower()} {self.name}"


class ConfigSource(IntEnum):
    """Where a setting has its value from, in Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    BROKER_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. The value of a sensitive one is never told."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


async def describe_configs(
    cluster: Cluster,
    resource: ConfigResource,
    names: Collection[str] | None = None,
    *,
    with_synonyms: bool = False,
    with_documentation: bool = False,
) -> list[ConfigEntry]:
    """The settings of a resource, or those of the names given."""
    wanted = DescribeConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configuration_keys=None if names is None else list(names),
    )
    request = DescribeConfigsRequest(
        resources=[wanted], include_synonyms=with_synonyms, include_documentation=with_documentation
    )
    if (node_id := _own_node(resource)) is None:
        response = await cluster.ask_any(request, DescribeConfigsResponse)
    else:
        response = await cluster.ask_node(node_id, request, DescribeConfigsResponse)
    (result,) = response.results
    _raise_if(error_of(result.error_code, result.error_message, str(resource)))
    return [_config_entry(each) for each in result.configs]


def _config_entry(found: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=found.name,
        value=found.value,
        source=ConfigSource(found.config_source),
        is_read_only=found.read_only,
        is_sensitive=found.is_sensitive,
        synonyms=tuple(ConfigSynonym(each.name, each.value, ConfigSource(each.source)) for each in found.synonyms),
        documentation=found.documentation,
    )


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    operation: ConfigOperation
    value: str | None = None


async def alter_configs(
    cluster: Cluster, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
) -> None:
    """Changes single settings of a resource: all of them, or none."""
    altered = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[
            IncrementalAlterConfigsRequestAlterableConfig(
                name=change.name, config_operation=change.operation, value=change.value
            )
            for change in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)
    if (node_id := _own_node(resource)) is None:
        response = await cluster.ask_controller(request, IncrementalAlterConfigsResponse, _alter_codes)
    else:
        response = await cluster.ask_node(node_id, request, IncrementalAlterConfigsResponse)
    for each in response.responses:
        _raise_if(error_of(each.error_code, each.error_message, str(resource)))


def _alter_codes(response: IncrementalAlterConfigsResponse) -> Iterable[int]:
    results: list[AlterConfigsResourceResponse] = response.responses
    return (each.error_code for each in results)


def _own_node(resource: ConfigResource) -> int | None:
    """A broker's own settings are known to that broker alone."""
    return int(resource.name) if resource.type is ResourceType.BROKER and resource.name else None


# -- the cluster -------------------------------------------------------------------------------------------------------


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
    _raise_if(error_of(found.error_code, found.error_message, "the cluster"))
    brokers = [
        ClusterBroker(each.broker_id, Address(each.host, each.port), each.rack, each.is_fenced)
        for each in found.brokers
    ]
    brokers.sort(key=lambda broker: broker.broker_id)
    return ClusterDescription(found.cluster_id, found.controller_id, tuple(brokers))


@dataclass(frozen=True, slots=True)
class ReplicaInDirectory:
    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """One directory of a broker. Sizes of the disk are -1 where the broker is too old to tell."""

    path: str
    error: ApiError | None
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaInDirectory, ...]


async def describe_log_dirs(
    cluster: Cluster, node_id: int, partitions: Collection[TopicPartition] | None = None
) -> list[LogDirectory]:
    """What lies in the directories of a broker; all replicas where none is named."""
    topics = None
    if partitions is not None:
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
        ]
    found = await cluster.ask_node(node_id, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
    _raise_if(error_of(found.error_code, None, f"the log directories of broker {node_id}"))
    return [
        LogDirectory(
            path=each.log_dir,
            error=error_of(each.error_code, None, each.log_dir),
            total_bytes=each.total_bytes,
            usable_bytes=each.usable_bytes,
            replicas=tuple(
                ReplicaInDirectory(
                    TopicPartition(topic.name, replica.partition_index),
                    replica.partition_size,
                    replica.offset_lag,
                    replica.is_future_key,
                )
                for topic in each.topics
                for replica in topic.partitions
            ),
        )
        for each in found.results
    ]


# -- partitions, asked of their leaders --------------------------------------------------------------------------------


class OffsetSpec(IntEnum):
    """Places of a log that have no number; any number from 0 on is a time in milliseconds."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The offset at a place or time; -1 where no record is that late."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    specs: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    timeout_s: float | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """The offset of each partition at an `OffsetSpec` or at a time; `timeout_s` in place of the client's."""

    async def ask(node_id: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, FoundOffset | ApiError]:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=specs[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(
            replica_id=CLIENT_REPLICA_ID, isolation_level=isolation, topics=topics, timeout_ms=_timeout_ms(cluster)
        )
        connection = await cluster.connection(node_id)
        # Version 0 answers with lists of offsets and belongs to another age.
        response = await connection.request(request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, each.partition_index): error_of(
                each.error_code, None, f"{topic.name}-{each.partition_index}"
            )
            or FoundOffset(each.offset, each.timestamp, each.leader_epoch)
            for topic in response.topics
            for each in topic.partitions
        }

    return await ask_leaders(cluster, specs, ask, timeout_s)


async def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Deletes what lies before the offset given for each partition (-1: everything); returns the new log starts."""

    async def ask(node_id: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | ApiError]:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=number, offset=before[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        connection = await cluster.connection(node_id)
        request = DeleteRecordsRequest(topics=topics, timeout_ms=_timeout_ms(cluster))
        response = await connection.request(request, DeleteRecordsResponse)
        outcomes: dict[TopicPartition, int | ApiError] = {}
        for topic in response.topics:
            for each in topic.partitions:
                error = error_of(each.error_code, None, f"{topic.name}-{each.partition_index}")
                partition = TopicPartition(topic.name, each.partition_index)
                outcomes[partition] = each.low_watermark if error is None else error
        return outcomes

    return await ask_leaders(cluster, before, ask)


async def describe_producers(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, list[ProducerState]]:
    """The producers that each partition remembers."""

    async def ask(
        node_id: int, asked: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState] | ApiError]:
        topics = [
            DescribeProducersRequestTopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(asked).items()
        ]
        connection = await cluster.connection(node_id)
        response = await connection.request(DescribeProducersRequest(topics=topics), DescribeProducersResponse)
        outcomes: dict[TopicPartition, list[ProducerState] | ApiError] = {}
        for topic in response.topics:
            for each in topic.partitions:
                error = error_of(each.error_code, each.error_message, f"{topic.name}-{each.partition_index}")
                partition = TopicPartition(topic.name, each.partition_index)
                outcomes[partition] = each.active_producers if error is None else error
        return outcomes

    return await ask_leaders(cluster, partitions, ask)


async def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[int, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, Item | ApiError]]],
    timeout_s: float | None = None,
) -> dict[TopicPartition, Item]:
    """Asks the leader of every partition; those that have moved are asked for again at the new one."""
    deadline = cluster.deadline() if timeout_s is None else Deadline.after(timeout_s)
    pauses = iter(cluster.options.pauses)
    outcomes: dict[TopicPartition, Item] = {}
    missing = list(partitions)
    while True:
        failure: OttlaError | None = None
        for node_id, led in (await cluster.by_leader(missing, deadline)).items():
            try:
                answers = await ask(node_id, led)
            except ConnectionFailedError as error:
                answers = {}
                failure = _noted(cluster, error, led)
            for partition, answer in answers.items():
                if isinstance(answer, ApiError):
                    failure = _noted(cluster, answer, [partition])
                else:
                    outcomes[partition] = answer
        missing = [partition for partition in missing if partition not in outcomes]
        if not missing:
            return outcomes
        assert failure is not None, "a broker answers for every partition it was asked about"
        await deadline.pause(next(pauses), failure)


def _noted(cluster: Cluster, error: OttlaError, partitions: Iterable[TopicPartition]) -> OttlaError:
    """The error, if it may pass; what it shows to be out of date is forgotten."""
    if not is_passing(error):
        raise error
    cluster.learn_from(error, {partition.topic for partition in partitions})
    return error


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions under their topic, as most requests want them."""
    groups: dict[str, list[int]] = {}
    for topic, number in partitions:
        groups.setdefault(topic, []).append(number)
    return groups


def _timeout_ms(cluster: Cluster) -> int:
    """How long a broker may take for what it is asked to do."""
    return int(cluster.options.timeout_s * 1000)


def _raise_if(error: ApiError | None) -> None:
    if error is not None:
        raise error
