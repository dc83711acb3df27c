"""Topics: create, extend, delete, describe."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ottla.client.metadata import Cluster, ClusterView
from ottla.client.retrying import error_of, raise_if
from ottla.errors import ApiError
from ottla.ids import ZERO_TOPIC_ID
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
        timeout_ms=cluster.options.timeout_ms,
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
        timeout_ms=cluster.options.timeout_ms,
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
        timeout_ms=cluster.options.timeout_ms,
        validate_only=validate_only,
    )
    response = await cluster.ask_controller(
        request, CreatePartitionsResponse, lambda answer: (each.error_code for each in answer.results)
    )
    cluster.forget([name])
    for each in response.results:
        raise_if(error_of(each.error_code, each.error_message, f"the topic {each.name}"))


async def describe_topics(cluster: Cluster, names: Collection[str] | None = None) -> ClusterView:
    """Topics with partitions, leaders and replicas; all of them where none is named."""
    return await cluster.refresh(names)
