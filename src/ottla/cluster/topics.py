"""What the controller decides about topics: may this one be created, and how does it look. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.cluster.image import CLUSTER_METADATA_TOPIC, ClusterImage, PartitionState, TopicState, has_look, look_of
from ottla.cluster.placement import assign, assign_more
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TOPIC_NAME_LENGTH_MAX, is_valid_topic_name, topic_id_text

if TYPE_CHECKING:
    import random

DEFAULT = -1  # "as the broker's settings say"
PARTITIONS_MAX = 100_000  # of one topic: more would make its metadata larger than a client can take


class Assignment(NamedTuple):
    """The brokers of a partition, chosen by hand; the first one leads."""

    partition: int
    brokers: Sequence[int]


def new_topic_id(rng: random.Random, taken: Container[UUID]) -> UUID:
    """An id that no topic has."""
    while True:
        topic_id = UUID(int=rng.getrandbits(128), version=4)
        # Kafka's tools take a leading '-' for an option, so it never makes such an id.
        if topic_id not in taken and not topic_id_text(topic_id).startswith("-"):
            return topic_id


def decide_topic(
    image: ClusterImage,
    name: str,
    *,
    partition_count: int,
    replication_factor: int,
    assignments: Sequence[Assignment],
    topic_id: UUID,
    rng: random.Random,
) -> TopicState:
    """The new topic; ApiError says why it cannot be. Counts are real numbers here, defaults are filled in already."""
    check_name(image, name)
    if assignments:
        if partition_count != DEFAULT or replication_factor != DEFAULT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "with an explicit assignment, both counts must be -1")
        replicas = _by_hand(image, assignments)
    else:
        if replication_factor < 1:
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{replication_factor} replicas: must be 1 or more")
        if not 1 <= partition_count <= PARTITIONS_MAX:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions: must be from 1 to {PARTITIONS_MAX}"
            )
        replicas = assign(image.brokers, partition_count, replication_factor, rng)
    return TopicState(name, topic_id, tuple(_new_partition(nodes) for nodes in replicas))


def decide_more_partitions(
    image: ClusterImage,
    topic: TopicState,
    total: int,
    assignments: Sequence[Sequence[int]] | None,
) -> TopicState:
    """The topic with `total` partitions; a topic never shrinks."""
    count = len(topic.partitions)
    if total <= count:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"{topic.name} already has {count} partitions; {total} is not more"
        )
    factor = len(topic.partitions[0].replicas)
    if assignments is not None:
        if len(assignments) != total - count:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(assignments)} assignments for {total - count} new partitions",
            )
        added = _by_hand(image, [Assignment(index, nodes) for index, nodes in enumerate(assignments)])
        if any(len(nodes) != factor for nodes in added):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"every partition of {topic.name} has {factor} replicas"
            )
    else:
        if total > PARTITIONS_MAX:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{total} partitions: at most {PARTITIONS_MAX}")
        added = assign_more(image.brokers, range(count, total), topic.partitions[0].replicas)
    return replace(topic, partitions=topic.partitions + tuple(_new_partition(nodes) for nodes in added))


def check_name(image: ClusterImage, name: str) -> None:
    """Whether a new topic may be called so."""
    if not is_valid_topic_name(name):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name!r} is not a valid topic name: use 1 to {TOPIC_NAME_LENGTH_MAX} letters, digits, '.', '_' "
            "and '-', and not '.' or '..'",
        )
    if name == CLUSTER_METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is reserved for Kafka's metadata log")
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    collision = colliding_topic(image, name)
    if collision is not None:
        # Metrics write '.' as '_', so the two could not be told apart.
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} collides with {collision}: '.' and '_' are the same")


def colliding_topic(image: ClusterImage, name: str) -> str | None:
    """An existing topic that differs from `name` only by '.' and '_'."""
    other = image.names_by_look.get(look_of(name)) if has_look(name) else None
    return None if other == name else other


def _by_hand(image: ClusterImage, assignments: Sequence[Assignment]) -> list[tuple[int, ...]]:
    if sorted(assignment.partition for assignment in assignments) != list(range(len(assignments))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0, without a gap and each once"
        )
    factor = len(assignments[0].brokers)
    for index, nodes in sorted(assignments):
        if not nodes or len(set(nodes)) != len(nodes):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {index}: a broker is missing or listed twice"
            )
        if len(nodes) != factor:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "all partitions must have the same number of replicas")
        unknown = [node for node in nodes if node not in image.brokers]
        if unknown:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {index}: broker {unknown[0]} is not alive")
    return [tuple(nodes) for _, nodes in sorted(assignments)]


def _new_partition(replicas: tuple[int, ...]) -> PartitionState:
    return PartitionState(replicas=replicas, leader=replicas[0], leader_epoch=0, isr=replicas)
