"""Electing leaders by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum

from ottla.client.admin.leaders import by_topic
from ottla.client.metadata import Cluster
from ottla.client.retrying import error_of, raise_if
from ottla.errors import ApiError
from ottla.ids import TopicPartition
from ottla.protocol.messages.topics import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions


class ElectionType(IntEnum):
    """PREFERRED: the first replica, if it is in sync. UNCLEAN: any replica that is alive, whatever it lacks."""

    PREFERRED = 0
    UNCLEAN = 1


async def elect_leaders(
    cluster: Cluster, kind: ElectionType, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, ApiError | None]:
    """Holds elections for these partitions, or wherever one is needed; what came of each.

    A partition that needed none answers ELECTION_NOT_NEEDED if it was named, and is not in the answer if not.
    """
    topics = None
    if partitions is not None:
        topics = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=cluster.options.timeout_ms)
    response = await cluster.ask_controller(request, ElectLeadersResponse, _codes)
    raise_if(error_of(response.error_code, None, "the election"))
    outcomes = {
        TopicPartition(topic.topic, each.partition_id): error_of(
            each.error_code, each.error_message, f"{topic.topic}-{each.partition_id}"
        )
        for topic in response.replica_election_results
        for each in topic.partition_result
    }
    cluster.forget({partition.topic for partition in outcomes})
    return outcomes


def _codes(response: ElectLeadersResponse) -> Iterable[int]:
    yield response.error_code
    yield from (each.error_code for topic in response.replica_election_results for each in topic.partition_result)
