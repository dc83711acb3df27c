"""Sets of partitions by topic id: what members have, are to have and give up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias
from uuid import UUID

from ottla.protocol.messages.group_records import TopicPartition, TopicPartitions

# Values: nobody changes one after it was made.
Partitions: TypeAlias = Mapping[UUID, frozenset[int]]

# The member epoch in which each partition was assigned.
AssignmentEpochs: TypeAlias = Mapping[tuple[UUID, int], int]

NO_PARTITIONS: Partitions = {}


class TopicPartitionsLike(Protocol):
    """How requests, replies and records all write the partitions of a topic."""

    topic_id: UUID
    partitions: list[int]


def read_partitions(listed: Iterable[TopicPartitionsLike]) -> Partitions:
    return {each.topic_id: frozenset(each.partitions) for each in listed if each.partitions}


def target_partitions(partitions: Partitions) -> list[TopicPartition]:
    return [TopicPartition(topic_id=topic_id, partitions=sorted(found)) for topic_id, found in partitions.items()]


def current_partitions(partitions: Partitions, epochs: AssignmentEpochs) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(found),
            assignment_epochs=[epochs[topic_id, partition] for partition in sorted(found)],
        )
        for topic_id, found in partitions.items()
    ]


def read_epochs(listed: Iterable[TopicPartitions], default: int) -> Iterator[tuple[tuple[UUID, int], int]]:
    """When each partition was assigned; records of older brokers do not say."""
    for each in listed:
        epochs = each.assignment_epochs or [default] * len(each.partitions)
        for partition, epoch in zip(each.partitions, epochs, strict=False):
            yield (each.topic_id, partition), epoch


def each_partition(partitions: Partitions) -> Iterator[tuple[UUID, int]]:
    for topic_id, found in partitions.items():
        for partition in found:
            yield topic_id, partition


def union(first: Partitions, second: Partitions) -> Partitions:
    return _collect(
        (topic_id, first.get(topic_id, _NONE) | second.get(topic_id, _NONE)) for topic_id in {**first, **second}
    )


def intersection(first: Partitions, second: Partitions) -> Partitions:
    return _collect((topic_id, found & second.get(topic_id, _NONE)) for topic_id, found in first.items())


def difference(first: Partitions, second: Partitions) -> Partitions:
    return _collect((topic_id, found - second.get(topic_id, _NONE)) for topic_id, found in first.items())


def is_subset(first: Partitions, second: Partitions) -> bool:
    return all(found <= second.get(topic_id, _NONE) for topic_id, found in first.items())


_NONE: frozenset[int] = frozenset()


def _collect(found: Iterable[tuple[UUID, frozenset[int]]]) -> Partitions:
    return {topic_id: partitions for topic_id, partitions in found if partitions}
