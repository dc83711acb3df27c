"""Markers in partitions that other brokers of the cluster lead: WriteTxnMarkers, one request to each leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from ottla.broker.broker_connections import BrokerConnections
from ottla.cluster.image import ClusterImage
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.transactions.coordinator import DueMarkers

logger = logging.getLogger(__name__)


class RemoteOutcome(NamedTuple):
    """The partitions that this broker does not lead, and those of them that need no marker any more."""

    partitions: set[TopicPartition]
    marked: set[TopicPartition]


class RemoteMarkers:
    """Asks other brokers to write markers."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], ClusterImage],
        connections: BrokerConnections,
        is_topic_gone: Callable[[str], Awaitable[bool]],
    ) -> None:
        """`is_topic_gone`: whether a topic that the image does not have exists nowhere."""
        self._node_id = node_id
        self._image = image
        self._connections = connections
        self._is_topic_gone = is_topic_gone

    async def write(
        self, due: DueMarkers, coordinator_epoch: int, partitions: Collection[TopicPartition]
    ) -> RemoteOutcome:
        """Writes the markers of those partitions that others lead."""
        image = self._image()
        outcome = RemoteOutcome(set(), set())
        by_leader: dict[int, list[TopicPartition]] = {}
        for name in partitions:
            state = image.partition(name)
            if state is None:
                outcome.partitions.add(name)
                if await self._is_topic_gone(name.topic):
                    outcome.marked.add(name)  # nothing is left to do
            elif state.leader != self._node_id:
                outcome.partitions.add(name)
                by_leader.setdefault(state.leader, []).append(name)
        for marked in await asyncio.gather(
            *(self._write_by_leader(due, coordinator_epoch, leader, names) for leader, names in by_leader.items())
        ):
            outcome.marked.update(marked)
        return outcome

    async def _write_by_leader(
        self, due: DueMarkers, coordinator_epoch: int, leader: int, names: Collection[TopicPartition]
    ) -> set[TopicPartition]:
        """The partitions of one leader in which the marker is committed now."""
        try:
            request = _request(due, coordinator_epoch, names)
            response = await self._connections.ask(leader, request, WriteTxnMarkersResponse)
        except ApiError as error:
            logger.info("the markers of %s do not reach broker %d: %s", due.transactional_id, leader, error)
            return set()
        return _marked(due, response)


def _request(due: DueMarkers, coordinator_epoch: int, names: Collection[TopicPartition]) -> WriteTxnMarkersRequest:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name in names:
        topic = topics.setdefault(name.topic, WritableTxnMarkerTopic(name=name.topic, partition_indexes=[]))
        topic.partition_indexes.append(name.partition)
    marker = WritableTxnMarker(
        producer_id=due.producer.producer_id,
        producer_epoch=due.producer.epoch,
        transaction_result=due.is_commit,
        topics=list(topics.values()),
        coordinator_epoch=coordinator_epoch,
        transaction_version=due.client_version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _marked(due: DueMarkers, response: WriteTxnMarkersResponse) -> set[TopicPartition]:
    marked = set()
    for result in response.markers:
        for topic in result.topics:
            for each in topic.partitions:
                name, code = TopicPartition(topic.name, each.partition_index), ErrorCode.of(each.error_code)
                if code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH):
                    marked.add(name)
                elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                    raise ApiError(code, "another coordinator has ended transactions")
                else:
                    logger.info("the marker of %s was not written to %s: %s", due.transactional_id, name, code.name)
    return marked
