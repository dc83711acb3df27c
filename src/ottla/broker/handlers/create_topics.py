"""CreateTopics: each topic by itself, with its own error."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.broker.client_quotas import Charge
from ottla.broker.metadata_changes import RequestedTopic
from ottla.cluster.image import TopicState
from ottla.cluster.topics import DEFAULT, Assignment
from ottla.config.dynamic import ConfigResourceType, ConfigScope
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


PARTITIONS_MAX = 10_000  # of all topics of one request
FIRST_STRICT_VERSION = 6  # from here on whoever creates too much is refused (KIP-599)


async def handle(broker: Broker, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    charge = context.charge(strict=context.version >= FIRST_STRICT_VERSION)
    counts = Counter(topic.name for topic in request.topics)
    too_many = _partition_count(broker, request) > PARTITIONS_MAX
    outcomes: dict[str, TopicState | ApiError] = {}
    all_requested: list[CreatableTopic] = []
    new: list[RequestedTopic] = []
    async for requested in broker.turns.over(request.topics):
        if counts[requested.name] > 1:
            continue
        all_requested.append(requested)
        try:
            if too_many:
                raise ApiError(ErrorCode.POLICY_VIOLATION, f"a request may create at most {PARTITIONS_MAX} partitions")
            new.append(_new_topic(requested))
        except ApiError as error:
            outcomes[requested.name] = error
    outcomes.update(zip((topic.name for topic in new), await _create(broker, new, request, charge), strict=True))
    results = [
        _result(broker, outcomes[requested.name], requested) async for requested in broker.turns.over(all_requested)
    ]
    repeated = ApiError(ErrorCode.INVALID_REQUEST, "the topic is in the request more than once")
    results += [_failed(name, repeated) for name, count in counts.items() if count > 1]
    return CreateTopicsResponse(topics=results)


def _failed(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message or None)


def _partition_count(broker: Broker, request: CreateTopicsRequest) -> int:
    """How many partitions all topics would have together."""
    default = broker.configs.broker_config().num_partitions
    return sum(
        len(topic.assignments) or (default if topic.num_partitions == DEFAULT else topic.num_partitions)
        for topic in request.topics
    )


async def _create(
    broker: Broker, new: list[RequestedTopic], request: CreateTopicsRequest, charge: Charge
) -> list[TopicState | ApiError]:
    if request.timeout_ms <= 0 and not request.validate_only:
        # The caller does not wait; what it started goes on all the same, unless it cannot be.
        outcomes = await broker.controller.create_topics(new, validate_only=True)
        outcomes = [_charged(outcome, charge) for outcome in outcomes]
        possible = [
            requested for requested, outcome in zip(new, outcomes, strict=True) if isinstance(outcome, TopicState)
        ]
        broker.in_background("create topics", _in_background(broker, possible))
        late = ApiError(ErrorCode.REQUEST_TIMED_OUT, "the topic is being created")
        return [late if isinstance(outcome, TopicState) else outcome for outcome in outcomes]
    creation = broker.controller.create_topics(
        new, validate_only=request.validate_only, wait_s=request.timeout_ms / 1000, charge=charge
    )
    return await broker.carried_out(creation)


def _charged(outcome: TopicState | ApiError, charge: Charge) -> TopicState | ApiError:
    """A topic that can be created, unless that would be too many."""
    if isinstance(outcome, ApiError):
        return outcome
    try:
        charge(len(outcome.partitions))
    except ApiError as error:
        return error
    return outcome


async def _in_background(broker: Broker, new: list[RequestedTopic]) -> None:
    await broker.controller.create_topics(new)


def _new_topic(requested: CreatableTopic) -> RequestedTopic:
    return RequestedTopic(
        requested.name,
        requested.num_partitions,
        requested.replication_factor,
        [Assignment(assignment.partition_index, assignment.broker_ids) for assignment in requested.assignments],
        {entry.name: entry.value for entry in requested.configs},
    )


def _result(broker: Broker, topic: TopicState | ApiError, requested: CreatableTopic) -> CreatableTopicResult:
    if isinstance(topic, ApiError):
        return _failed(requested.name, topic)
    resource = ConfigScope(ConfigResourceType.TOPIC, topic.name)
    config = {entry.name: entry.value for entry in requested.configs if entry.value is not None}
    entries = broker.configs.replaced(resource, config).describe_topic(topic.name)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in entries
        ],
    )
