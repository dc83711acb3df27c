"""Electing leaders by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum

from ottla.client.admin.calls import AdminCalls
from ottla.client.leaders import by_topic
from ottla.client.retrying import error_of, raise_if
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions


class ElectionType(IntEnum):
    """PREFERRED: the first replica, if it is in sync. UNCLEAN: any replica that is alive, whatever it lacks."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionCalls(AdminCalls):
    async def elect_leaders(
        self,
        kind: ElectionType,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, ApiError | None]:
        """Holds elections for these partitions, or wherever one is needed; what came of each.

        A partition that needed none has the error ELECTION_NOT_NEEDED if it was named, and is left out if not.
        """
        deadline = self._deadline(timeout_s)
        topics = None
        if partitions is not None:
            topics = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic(partitions).items()]
        request = ElectLeadersRequest(
            election_type=kind, topic_partitions=topics, timeout_ms=self._cluster.broker_timeout_ms(deadline)
        )
        response = await self._cluster.ask_controller(request, ElectLeadersResponse, _codes, deadline)
        raise_if(error_of(response.error_code, None, "the election"))
        outcomes = {
            TopicPartition(topic.topic, each.partition_id): error_of(
                each.error_code, each.error_message, f"{topic.topic}-{each.partition_id}"
            )
            for topic in response.replica_election_results
            for each in topic.partition_result
        }
        self._cluster.forget({partition.topic for partition in outcomes})
        return outcomes


def _codes(response: ElectLeadersResponse) -> Iterable[int]:
    yield response.error_code
    yield from (each.error_code for topic in response.replica_election_results for each in topic.partition_result)
