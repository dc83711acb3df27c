"""Topics: create, extend, delete, describe, wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ottla.client.admin.calls import UNKNOWN_TOPIC_WAIT_S, AdminCalls, only
from ottla.client.arguments import several
from ottla.client.error_codes import error_of_code
from ottla.client.errors import TimedOutError
from ottla.client.metadata import ClusterView, Topic
from ottla.client.retrying import Deadline, UnknownTopicError, error_of, is_passing
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import ZERO_TOPIC_ID
from ottla.net.client import ConnectionFailedError
from ottla.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
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
    config: Mapping[str, str | None] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic is to have, and on which brokers those are that come."""

    count: int
    assignment: Sequence[Sequence[int]] = ()


class TopicCalls(AdminCalls):
    # -- seeing --------------------------------------------------------------------------------------------------------

    async def list_topics(self, *, include_internal: bool = False, timeout_s: float | None = None) -> list[str]:
        """The names of all topics, in order; those that brokers use themselves if asked for."""
        view = await self._cluster.refresh(None, self._deadline(timeout_s))
        return sorted(name for name, topic in view.topics.items() if include_internal or not topic.is_internal)

    async def describe_topic(self, name: str, *, timeout_s: float | None = None) -> Topic:
        """A topic with its partitions, their leaders and replicas."""
        return only(await self.describe_topics([name], timeout_s=timeout_s))

    async def describe_topics(
        self, names: Collection[str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, Topic | ApiError]:
        """Topics with their partitions, leaders and replicas; all of them where none is named."""
        view = await self.metadata(names, timeout_s=timeout_s)
        wanted = sorted(view.topics) if names is None else dict.fromkeys(names)
        return {name: view.topics.get(name) or _missing(view, name) for name in wanted}

    async def metadata(self, topics: Collection[str] | None = None, *, timeout_s: float | None = None) -> ClusterView:
        """Brokers, controller and topics in one answer; all topics where none is named."""
        names = None if topics is None else list(several(topics))
        return await self._cluster.refresh(names, self._deadline(timeout_s))

    async def wait_for_topic(
        self, name: str, *, partitions: int | None = None, timeout_s: float | None = None
    ) -> Topic:
        """Waits until every broker knows the topic, and every partition has a leader.

        `partitions`: until it has at least so many, for a topic that was extended.
        """
        deadline = self._deadline(timeout_s)
        reason: OttlaError | None = None
        for pause_s in self._cluster.options.pauses:
            try:
                topics = [
                    (await self._cluster.view([name], node_id=node_id, deadline=deadline)).topic(name)
                    for node_id in (await self._cluster.refresh((), deadline)).nodes
                ]
                found = _not_ready(topics, partitions)
                if found is None:
                    return topics[0]
                reason = found
            except TimedOutError as error:
                reason = reason or error.cause  # what was missing before says more
                if reason is None:
                    raise
                break
            except (ApiError, ConnectionFailedError) as error:
                if not is_passing(error) and not isinstance(error, UnknownTopicError):
                    raise
                reason = error
            if pause_s >= deadline.left_s:
                break
            await asyncio.sleep(pause_s)
        raise TimedOutError(deadline.timeout_s, reason, f"waiting for the topic {name}") from reason

    # -- changing ------------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignment: Sequence[Sequence[int]] = (),
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> CreatedTopic:
        """Creates a topic; -1 takes the cluster's default. `assignment` names the replicas of each partition."""
        topic = NewTopic(name, partitions, replication_factor, assignment, config)
        return only(await self.create_topics([topic], validate_only=validate_only, timeout_s=timeout_s))

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, CreatedTopic | ApiError]:
        """Creates topics. The broker that this client asks knows them when it returns; others may a moment later."""
        deadline = self._deadline(timeout_s)
        wanted = {topic.name: topic for topic in topics}

        async def ask(names: Sequence[str]) -> dict[str, CreatedTopic | ApiError]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=self._cluster.broker_timeout_ms(deadline),
                validate_only=validate_only,
            )
            response = await self._cluster.ask_controller(request, CreateTopicsResponse, _create_codes, deadline)
            return {
                each.name: error_of(each.error_code, each.error_message, f"the topic {each.name}")
                or CreatedTopic(
                    each.name,
                    each.topic_id,
                    each.num_partitions,
                    each.replication_factor,
                    {entry.name: entry.value for entry in each.configs or ()},
                )
                for each in response.topics
            }

        outcomes = await self._unthrottled(wanted, ask, deadline)
        self._cluster.forget(wanted)
        if not validate_only:
            created = [name for name, outcome in outcomes.items() if isinstance(outcome, CreatedTopic)]
            await self._wait_until_known(created, deadline)
        return outcomes

    async def _wait_until_known(self, names: Collection[str], deadline: Deadline) -> None:
        """The controller has them. Not longer than a moment: they exist, whoever does not know it yet."""
        until = Deadline.after(min(UNKNOWN_TOPIC_WAIT_S, deadline.left_s))
        for pause_s in self._cluster.options.pauses:
            if not names or not (await self._cluster.refresh(names, deadline)).errors or pause_s >= until.left_s:
                return
            await asyncio.sleep(pause_s)

    async def delete_topic(self, topic: str | UUID, *, timeout_s: float | None = None) -> None:
        """Deletes a topic, by name or by id."""
        only(await self.delete_topics([topic], timeout_s=timeout_s))

    async def delete_topics(
        self, topics: Iterable[str | UUID], *, timeout_s: float | None = None
    ) -> dict[str | UUID, ApiError | None]:
        """Deletes topics, by name or by id."""
        deadline = self._deadline(timeout_s)

        async def ask(keys: Sequence[str | UUID]) -> dict[str | UUID, ApiError | None]:
            names = [key for key in keys if isinstance(key, str)]
            request = DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(name=None, topic_id=key)
                    if isinstance(key, UUID)
                    else DeleteTopicState(name=key, topic_id=ZERO_TOPIC_ID)
                    for key in keys
                ],
                topic_names=names,
                timeout_ms=self._cluster.broker_timeout_ms(deadline),
            )
            response = await self._cluster.ask_controller(request, DeleteTopicsResponse, _delete_codes, deadline)
            outcomes: dict[str | UUID, ApiError | None] = {}
            for each in response.responses:
                key = each.topic_id if each.topic_id in keys else each.name
                assert key is not None, "a topic is answered for by its name or its id"
                outcomes[key] = error_of(each.error_code, each.error_message, f"the topic {key}")
            return outcomes

        outcomes = await self._unthrottled(topics, ask, deadline)
        self._cluster.forget(name for name in outcomes if isinstance(name, str))
        return outcomes

    async def create_partitions(
        self,
        topic: str,
        count: int,
        *,
        assignment: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Raises the number of partitions of a topic to `count`; `assignment` names the replicas of the new ones."""
        wanted = {topic: NewPartitions(count, assignment)}
        only(await self.create_partitions_of_topics(wanted, validate_only=validate_only, timeout_s=timeout_s))

    async def create_partitions_of_topics(
        self, topics: Mapping[str, NewPartitions], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, ApiError | None]:
        """Raises the number of partitions of several topics."""
        deadline = self._deadline(timeout_s)

        async def ask(names: Sequence[str]) -> dict[str, ApiError | None]:
            request = CreatePartitionsRequest(
                topics=[_extended(name, topics[name]) for name in names],
                timeout_ms=self._cluster.broker_timeout_ms(deadline),
                validate_only=validate_only,
            )
            response = await self._cluster.ask_controller(request, CreatePartitionsResponse, _extend_codes, deadline)
            return {
                each.name: error_of(each.error_code, each.error_message, f"the topic {each.name}")
                for each in response.results
            }

        outcomes = await self._unthrottled(topics, ask, deadline)
        self._cluster.forget(topics)
        return outcomes


def _missing(view: ClusterView, name: str) -> ApiError:
    return view.errors.get(name) or UnknownTopicError(f"the topic {name} does not exist")


def _not_ready(topics: Sequence[Topic], partitions: int | None) -> ApiError | None:
    for topic in topics:
        if partitions is not None and len(topic.partitions) < partitions:
            return UnknownTopicError(f"{topic.name} has {len(topic.partitions)} partitions, not yet {partitions}")
        for each in topic.partitions:
            if each.leader_id < 0:
                return error_of_code(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{each.partition} has no leader")
    return None


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


def _extended(name: str, wanted: NewPartitions) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in wanted.assignment]
    return CreatePartitionsTopic(name=name, count=wanted.count, assignments=assignments or None)


def _create_codes(response: CreateTopicsResponse) -> Iterable[int]:
    return (each.error_code for each in response.topics)


def _delete_codes(response: DeleteTopicsResponse) -> Iterable[int]:
    return (each.error_code for each in response.responses)


def _extend_codes(response: CreatePartitionsResponse) -> Iterable[int]:
    return (each.error_code for each in response.results)
