"""Moving partitions to other brokers: begin, cancel, list."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.admin.calls import AdminCalls
from ottla.client.leaders import by_topic
from ottla.client.retrying import error_of, raise_if
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition on its way: `replicas` are all that it has now, those that come and those that go among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(node for node in self.replicas if node not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(node for node in self.replicas if node not in self.adding)


class ReassignmentCalls(AdminCalls):
    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, ApiError | None]:
        """Sends partitions to these brokers; None cancels a move that is in progress.

        It returns before they are there: `list_reassignments` says what still moves.
        """
        deadline = self._deadline(timeout_s)
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=number, replicas=_wanted(targets[TopicPartition(topic, number)])
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(targets).items()
        ]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._cluster.broker_timeout_ms(deadline), topics=topics
        )
        response = await self._cluster.ask_controller(
            request, AlterPartitionReassignmentsResponse, _alter_codes, deadline
        )
        raise_if(error_of(response.error_code, response.error_message, "the reassignment"))
        self._cluster.forget({partition.topic for partition in targets})
        return {
            TopicPartition(topic.name, each.partition_index): error_of(
                each.error_code, each.error_message, f"{topic.name}-{each.partition_index}"
            )
            for topic in response.responses
            for each in topic.partitions
        }

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """The moves in progress: all of them, or of these partitions."""
        deadline = self._deadline(timeout_s)
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(timeout_ms=self._cluster.broker_timeout_ms(deadline), topics=topics)
        response = await self._cluster.ask_controller(
            request, ListPartitionReassignmentsResponse, lambda answer: (answer.error_code,), deadline
        )
        raise_if(error_of(response.error_code, response.error_message, "the reassignments"))
        return {
            TopicPartition(topic.name, each.partition_index): OngoingReassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }


def _wanted(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _alter_codes(response: AlterPartitionReassignmentsResponse) -> Iterable[int]:
    yield response.error_code
    yield from (each.error_code for topic in response.responses for each in topic.partitions)
